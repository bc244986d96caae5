//! The short report, which a terminal shows: the question, the answer in a sentence, what speaks against it, one line for
//! each condition, and the remarks in brief. The whole report (`comparison`) and the page have the rest.
//!
//! [`opening`] precedes the first table in every format.

use std::collections::BTreeSet;

use super::answer::{self, answer};
use super::comparison::{self, NOT_DECIDED};
use super::effect::effect;
use super::lead::{lead, woven};
use super::table::{Column, Document, Label, Remark, Table};
use super::{answers, format, margin, outcomes, screening, sentence, sweep};
use crate::analysis::{Analysis, Comparison, Condition, Decision, Finding};
use pgio_results::CheckVerdict;

/// The command that adds blocks, if the directory is not known.
pub(super) const RERUN: &str = "pgio compare --resume DIR";
/// An experiment whose twin may differ by this factor shows large effects only, which the reader must know first.
const MAX_REACH: f64 = 1.5;
/// Remarks with their text; more are named.
const SHOWN: usize = 4;
/// Effects that the first sentence names.
const NAMED: usize = 3;

/// `rerun` is the command that adds blocks.
pub fn summary(analysis: &Analysis, rerun: &str) -> Document {
    let tables = match screening::factorial(analysis) {
        Some(_) => screening::tables(analysis),
        None => vec![conditions(analysis)],
    };
    Document {
        title: analysis.experiment.clone(),
        subtitle: analysis.question.replace('`', ""),
        headline: opening(analysis, rerun),
        tables,
        remarks: remarks(analysis),
    }
}

/// What precedes the first table: whether the run can see anything, the answer in a sentence, and the problems.
pub(super) fn opening(analysis: &Analysis, rerun: &str) -> Vec<String> {
    let first = blindness(analysis, rerun);
    first.into_iter().chain(in_one_sentence(analysis)).chain(outcomes::headline(analysis)).collect()
}

/// `This run cannot see less than × 2.3 ...`, if the A/A twin differs from the baseline or may differ by much.
pub(super) fn blindness(analysis: &Analysis, rerun: &str) -> Option<String> {
    let twin = analysis.primary(analysis.aa.as_ref()?)?;
    if twin.verdict.is_decided() {
        return Some(sentence::trust(analysis));
    }
    let reach = |(low, high): (f64, f64)| high.max(1.0 / low);
    let reach = twin.interval.sides().map(reach);
    if twin.estimated_ratio().is_none() || reach.is_some_and(|reach| reach < MAX_REACH) {
        return None;
    }
    let measured = format::interval(twin.interval)?;
    let least = reach.map_or_else(|| "> ×100".to_owned(), |reach| format!("× {reach:.1}"));
    let quiet = if outcomes::busy_trials(analysis) > 0 {
        "stop other work on the machine, and "
    } else {
        ""
    };
    Some(format!(
        "This run cannot see less than {least}: `{}` measured twice differs by {measured} %. To see more, {quiet}run \
         four times the blocks: `{rerun} --blocks {}`.",
        analysis.baseline,
        4 * twin.blocks
    ))
}

/// `on costs at least half of the commits; remote_write is not decided.`
pub(super) fn in_one_sentence(analysis: &Analysis) -> Option<String> {
    if screening::factorial(analysis).is_some() {
        return lead(analysis).into_iter().next();
    }
    let mut others: Vec<&Comparison> = analysis
        .comparisons
        .iter()
        .filter(|c| c.primary && !analysis.is_aa(&c.condition))
        .collect();
    let size = |c: &Comparison| c.ratio.map_or(0.0, |r| r.ln().abs());
    others.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let (decided, open): (Vec<&Comparison>, Vec<&Comparison>) =
        others.into_iter().partition(|c| c.verdict.is_decided() && c.ratio.is_some());
    let one = |c: &&Comparison| {
        let stalls = if answer::stalls(analysis, &c.condition) { ", and stalls" } else { "" };
        format!("`{}` {}{stalls}", c.condition, answer::change(analysis, c))
    };
    let mut parts: Vec<String> = decided.iter().take(NAMED).map(one).collect();
    if decided.len() > NAMED {
        parts.push(format!("{} more differ", decided.len() - NAMED));
    }
    let named = |of: Vec<&Comparison>, what: String| {
        let name = |c: &&Comparison| {
            let stalls = if answer::stalls(analysis, &c.condition) { " (stalls)" } else { "" };
            format!("`{}`{stalls}", c.condition)
        };
        let names: Vec<String> = of.iter().take(NAMED).map(name).collect();
        let more = of.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!of.is_empty()).then(|| format!("{}{more}: {what}", names.join(", ")))
    };
    let (within, open): (Vec<_>, Vec<_>) =
        open.into_iter().partition(|c| c.decision == Some(Decision::DoesNotMatter));
    let share = analysis.margin.map_or_else(String::new, margin::share);
    parts.extend(named(within, format!("no difference above {share}")));
    parts.extend(named(open, "not decided".to_owned()));
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

/// One line for each condition, and what the numbers mean below.
fn conditions(analysis: &Analysis) -> Table {
    let operation = answers::operation(analysis);
    let with_totals = analysis.comparisons.iter().any(|c| c.primary && c.totals.is_some());
    let mut columns = vec![
        Column::left("condition"),
        Column::right(format::metric_name(&analysis.primary_metric)),
        Column::left("typical block [95 %]"),
    ];
    columns.extend(with_totals.then(|| Column::left("all work / all time [95 %]")));
    columns
        .extend(analysis.margin.map(|m| Column::left(format!("more than {}", margin::share(m)))));
    columns.extend(operation.map(|(class, _)| Column::right(format!("time per {class}"))));
    let row = |c: &Condition| {
        let primary = analysis.primary(&c.name);
        let mut cells = vec![c.name.clone(), comparison::primary_value(analysis, c)];
        cells.push(match (primary, outcomes::instead_of_effect(analysis, c)) {
            (_, Some(instead)) => instead,
            (Some(of), None) if c.name != analysis.baseline => effect(of, true),
            _ => "baseline".to_owned(),
        });
        cells.extend(with_totals.then(|| comparison::all_work(analysis, c)));
        let decision =
            || primary.map_or_else(String::new, |of| margin::cell(of).replace('\n', " "));
        cells.extend(analysis.margin.map(|_| decision()));
        let time = |mean| answers::time_cell(analysis, c, mean).replace('\n', " ");
        cells.extend(operation.map(|(_, mean)| time(mean)));
        cells
    };
    let others = analysis.conditions.iter().filter(|c| c.name != analysis.baseline);
    let others = others.filter(|c| !analysis.is_aa(&c.name));
    let mut notes: Vec<String> = others
        .map(|c| {
            let wait = answers::largest_wait(analysis, &c.name);
            let wait = wait.map_or_else(String::new, |wait| format!(" {wait}"));
            format!("{}: {}.{wait}", c.name, answer(analysis, &c.name))
        })
        .collect();
    if blindness(analysis, RERUN).is_none() {
        notes.push(sentence::trust(analysis));
    }
    let undecided = |c: &Comparison| c.primary && !c.verdict.is_decided();
    notes.extend(analysis.comparisons.iter().any(undecided).then(|| NOT_DECIDED.to_owned()));
    notes.extend(sweep::knees(analysis));
    notes.extend(woven(analysis));
    let rows = analysis.conditions.iter().map(row).collect();
    Table { title: String::new(), columns, rows, notes }
}

/// The first remarks in brief, INVALID before warnings, and the ids of the others.
fn remarks(analysis: &Analysis) -> Vec<Remark> {
    let mut found = comparison::grouped(analysis);
    found.sort_by_key(|same| same[0].verdict != CheckVerdict::Invalid);
    let more = found.split_off(SHOWN.min(found.len()));
    let mut all: Vec<Remark> = found.iter().map(|same| in_brief(same)).collect();
    let warnings = analysis.warnings.iter().map(|w| &w.warning.what);
    let mut names: BTreeSet<&str> = more.iter().map(|same| same[0].id.as_str()).collect();
    names.extend(warnings.map(String::as_str).take(SHOWN - all.len()));
    let count = more.len() + analysis.warnings.len();
    if count > 0 {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let names = if names.is_empty() { names } else { format!(": {names}") };
        let text = format!("{}{names}", format::counted(count, "more remark"));
        all.push(Remark { label: Label::Note, text });
    }
    all
}

/// `foreign-load, 30 trials: other processes used 1.43 of 2 cores`
fn in_brief(same: &[&Finding]) -> Remark {
    let check = same[0];
    let place = match (same.len(), check.trial) {
        (1, None) => String::new(),
        (n, None) => format!(", {}", format::counted(n, "condition")),
        (n, Some(_)) => format!(", {}", format::counted(n, "trial")),
    };
    Remark { label: check.verdict.into(), text: format!("{}{place}: {}", check.id, check.message) }
}
