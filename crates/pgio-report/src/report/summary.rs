//! The short report, which a terminal shows: the question, the answer in a sentence, what speaks against it, one line for
//! each condition, and the remarks in brief. The whole report (`comparison`) and the page have the rest.
//!
//! `lead::opening` precedes the first table in every format.

use std::collections::BTreeSet;

use super::answer::{answer, marked_name};
use super::comparison;
use super::effect::effect;
use super::lead::{RERUN, blindness, opening, woven};
use super::table::{Column, Document, Label, Remark, Table};
use super::{answers, format, margin, outcomes, screening, sentence, sweep};
use crate::analysis::{Analysis, Condition, Finding};
use pgio_results::CheckVerdict;

/// Remarks with their text; more are named.
const SHOWN: usize = 4;

/// `rerun` is the command that adds blocks.
pub fn summary(analysis: &Analysis, rerun: &str) -> Document {
    let mut tables = screening::tables(analysis);
    if tables.is_empty() {
        tables.push(conditions(analysis));
    }
    Document {
        title: analysis.experiment.clone(),
        subtitle: analysis.question.replace('`', ""),
        headline: opening(analysis, rerun),
        tables,
        remarks: remarks(analysis),
    }
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
    columns.extend(
        with_totals
            .then(|| Column::left(format!("{} [95 %]", comparison::totals_heading(analysis)))),
    );
    columns
        .extend(analysis.margin.map(|m| Column::left(format!("more than {}", margin::share(m)))));
    columns.extend(operation.map(|(class, _)| Column::right(format!("time per {class}"))));
    let row = |c: &Condition| {
        let primary = analysis.primary(&c.name);
        let mut cells =
            vec![marked_name(analysis, &c.name), comparison::primary_value(analysis, c)];
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
    let rows: Vec<Vec<String>> = analysis.conditions.iter().map(row).collect();
    notes.extend(comparison::not_decided(&rows));
    notes.extend(comparison::chosen_afterwards(analysis));
    notes.extend(margin::without_totals(analysis).map(|why| format!("Does not matter: {why}.")));
    notes.extend(sweep::knees(analysis));
    notes.extend(woven(analysis));
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
