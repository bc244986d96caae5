//! The evidence for and against the result: remarks, checks, evidence of conditions, and trials.
//!
//! The section is complete: it lists how often each check passed, and why a trial does not count. Warnings are folded, and
//! each stands there once.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use pgio_results::model::When;
use pgio_results::{CheckVerdict, Evidence, Metric, Outcome, Trial, TrialPosition};

use super::super::format::{self, NONE, metric_name};
use super::super::table::{Column, Label, Remark, Table};
use super::page::{Page, Section};
use super::svg::{Axis, Scale};
use super::table;
use super::timeline::{Dot, Line, Ring, Stroke, TimeLine};
use pgio_verdict::TrialStatus;

pub(super) fn section(page: &Page<'_>) -> Section {
    let body = html! {
        (remarks(page))
        @for (table, name) in [
            (every_check(page), "Every check"),
            (evidence(page), "Evidence that conditions held"),
            (trials(page), "Trials"),
        ] {
            @if !table.rows.is_empty() { (table::render(&table, name)) }
        }
    };
    Section { id: "checks", title: "Checks", body }
}

fn remarks(page: &Page<'_>) -> Markup {
    if page.remarks.is_empty() {
        return html! { p { "No check failed, and there are no warnings." } };
    }
    let (invalid, others): (Vec<&Remark>, Vec<&Remark>) =
        page.remarks.iter().partition(|r| r.label == Label::Invalid);
    html! {
        div #warnings {
            @if !invalid.is_empty() { (items(&invalid)) }
            @if !others.is_empty() {
                details #folded-warnings .warnings {
                    summary { (format::counted(others.len(), "warning")) }
                    (items(&others))
                }
            }
        }
    }
}

pub(super) fn list(remarks: &[Remark]) -> Markup {
    // INVALID comes first.
    let mut remarks: Vec<&Remark> = remarks.iter().collect();
    remarks.sort_by_key(|r| r.label != Label::Invalid);
    items(&remarks)
}

fn items(remarks: &[&Remark]) -> Markup {
    html! {
        ul.remarks { @for r in remarks {
            li {
                span.badge.(r.label.word().to_lowercase()) { (r.label) }
                span { (table::prose(&r.text)) }
            }
        } }
    }
}

/// Line of a trial, with the message and remedy of its check.
type Message<'a> = (usize, &'a str, &'a str);

/// A row for each check and verdict, with its messages and trials. Passed checks come from the trials'
/// records, others from the analysis, which adds checks across trials.
fn every_check(page: &Page<'_>) -> Table {
    let mut found: BTreeMap<(&str, CheckVerdict), Vec<Message<'_>>> = BTreeMap::new();
    for (line, trial) in (1..).zip(&page.stored.trials).filter(|(_, t)| !t.is_burn_in()) {
        for c in trial.checks.iter().filter(|c| c.verdict == CheckVerdict::Ok) {
            found.entry((&c.id, c.verdict)).or_default().push((line, &c.message, &c.remedy));
        }
    }
    for f in &page.analysis.checks {
        let Some(line) = f.trial else { continue };
        found.entry((&f.id, f.verdict)).or_default().push((line, &f.message, &f.remedy));
    }
    let row = |((id, verdict), all): (&(&str, CheckVerdict), &Vec<Message<'_>>)| {
        let lines: Vec<usize> = all.iter().map(|(line, ..)| *line).collect();
        let which = if *verdict == CheckVerdict::Ok {
            format!("{} of {}", lines.len(), page.count())
        } else {
            numbers(&lines)
        };
        // What is not in order is said above, or in the headline.
        let passed = || all.iter().filter(|_| *verdict == CheckVerdict::Ok);
        let messages = first_and_count(passed().map(|(_, message, _)| *message));
        let remedies = first_and_count(passed().map(|(.., remedy)| *remedy));
        vec![(*id).to_owned(), Label::from(*verdict).to_string(), which, messages, remedies]
    };
    Table {
        title: "Every check".to_owned(),
        columns: ["check", "verdict", "trials", "message", "what to do"].map(Column::left).to_vec(),
        rows: found.iter().map(row).collect(),
        ..Table::default()
    }
}

/// The first text, and the number of other texts.
fn first_and_count<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let all: BTreeSet<&str> = texts.collect();
    let first = all.first().copied().unwrap_or_default();
    match all.len() {
        0 | 1 => first.to_owned(),
        n => format!("{first} (and {} more like it)", n - 1),
    }
}

/// `3, 7, 12`, limited to what fits.
fn numbers(lines: &[usize]) -> String {
    const MAX_LISTED: usize = 8;
    let shown: Vec<String> = lines.iter().take(MAX_LISTED).map(usize::to_string).collect();
    match lines.len().saturating_sub(MAX_LISTED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The values read back to prove each condition; equal values of its trials share a row.
fn evidence(page: &Page<'_>) -> Table {
    let mut rows = Vec::new();
    let mut all_hold = true;
    for condition in page.conditions() {
        let mut found: BTreeMap<(&str, &str, Option<&str>), [usize; 3]> = BTreeMap::new();
        for e in page.trials_anywhere(condition).flat_map(|t| &t.evidence) {
            let key = (e.what.as_str(), e.found.as_str(), e.expected.as_deref());
            found.entry(key).or_default()[at(e)] += 1;
        }
        for ((what, seen, expected), [before, during, after]) in found {
            let holds = expected.map(|e| e == seen);
            all_hold &= holds != Some(false);
            rows.push(vec![
                condition.to_owned(),
                what.to_owned(),
                expected.unwrap_or("(recorded only)").to_owned(),
                seen.to_owned(),
                format!("{before} / {during} / {after}"),
                match holds {
                    Some(true) => "yes".to_owned(),
                    Some(false) => "NO".to_owned(),
                    None => String::new(),
                },
            ]);
        }
    }
    let heading = ["condition", "what", "expected", "found", "before / during / after", "held"];
    let warning = "An unexpected value makes its trial invalid.".to_owned();
    Table {
        title: "Evidence that each condition was in force".to_owned(),
        columns: heading.map(Column::left).to_vec(),
        rows,
        notes: if all_hold { Vec::new() } else { vec![warning] },
    }
}

fn at(e: &Evidence) -> usize {
    match e.when {
        When::Before => 0,
        When::During => 1,
        When::After => 2,
    }
}

fn trials(page: &Page<'_>) -> Table {
    let metric = &page.analysis.primary_metric;
    let mut invalid: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for f in page.analysis.checks.iter().filter(|f| f.verdict == CheckVerdict::Invalid) {
        if let Some(line) = f.trial {
            invalid.entry(line).or_default().push(format!("{}: {}", f.id, f.message));
        }
    }
    let row = |((line, trial), status): ((usize, &Trial), &TrialStatus)| {
        let place = trial.place.as_ref();
        let unit = page.analysis.unit(metric);
        let shown = |m: &Metric| Some(format::marked(format::bare(m.value?, unit), m.at_least));
        let value = trial.metrics.get(metric).and_then(shown);
        let value = value.unwrap_or_else(|| NONE.to_owned());
        let in_place = |text: fn(&TrialPosition) -> String| place.map_or_else(String::new, text);
        vec![
            line.to_string(),
            place.map_or_else(String::new, |p| cell(page, p)),
            status_word(*status).to_owned(),
            value,
            in_place(|p| if p.is_burn_in() { NONE.to_owned() } else { p.block.to_string() }),
            in_place(|p| (p.attempt + 1).to_string()),
            trial.started_at.get(11..19).unwrap_or(&trial.started_at).to_owned(),
            why(invalid.get(&line).cloned().unwrap_or_default(), trial),
        ]
    };
    let numbered = (1..).zip(&page.stored.trials);
    let columns = vec![
        Column::right("trial"),
        Column::left("condition"),
        Column::left("counts"),
        Column::right(metric_name(metric)),
        Column::right("block"),
        Column::right("attempt"),
        Column::right("began (UTC)"),
        Column::left("why not"),
    ];
    Table {
        title: "Trials, in order of execution".to_owned(),
        columns,
        rows: numbered.zip(&page.statuses).map(row).collect(),
        ..Table::default()
    }
}

/// The condition, and its point if that is not the middle one.
fn cell(page: &Page<'_>, place: &TrialPosition) -> String {
    let away =
        page.stored.manifest.varied.as_ref().map(|varied| varied.describe_difference(&place.point));
    match away.filter(|text| !text.is_empty()) {
        Some(away) => format!("{} ({away})", place.condition),
        None => place.condition.clone(),
    }
}

fn status_word(status: TrialStatus) -> &'static str {
    match status {
        TrialStatus::Counts => "yes",
        TrialStatus::Invalid => "INVALID",
        TrialStatus::Failed => "FAILED",
        TrialStatus::Interrupted => "interrupted",
        TrialStatus::Repeated => "repeated later",
        TrialStatus::BurnIn => "burn-in",
        TrialStatus::UnknownCondition => "unknown condition",
    }
}

fn why(mut reasons: Vec<String>, trial: &Trial) -> String {
    if let Outcome::Failed { error } = &trial.outcome {
        reasons.push(error.clone());
    }
    reasons.join("; ")
}

// The primary metric of every trial, in order of execution. The chart shows what an interval hides: a drift over the
// experiment, a single outlier, and the trials that do not count (crossed out). Lines join the trials of a
// condition.

const HEIGHT: f64 = 260.0;

pub(super) fn trial_values(page: &Page<'_>) -> Option<Section> {
    let metric = &page.analysis.primary_metric;
    let value = |t: &Trial| t.metrics.get(metric).and_then(|m| m.value).filter(|v| v.is_finite());
    let values = |condition| -> Vec<(usize, f64)> {
        page.trials(condition).filter_map(|(line, t)| Some((line, value(t)?))).collect()
    };
    let all: Vec<(&str, Vec<(usize, f64)>)> =
        page.conditions().map(|name| (name, values(name))).filter(|(_, v)| !v.is_empty()).collect();
    let count: usize = all.iter().map(|(_, values)| values.len()).sum();
    if count < 2 {
        return None;
    }
    let counts = |line: usize| page.statuses[line - 1] == TrialStatus::Counts;
    let mut chart = chart(page, &all);
    for (name, values) in &all {
        let look = page.looks.get(name);
        let counted = values.iter().filter(|(line, _)| counts(*line));
        let points = counted.map(|(line, value)| (*line as f64, Some(*value))).collect();
        let label = (*name).to_owned();
        chart.lines.push(Line { label, look, stroke: Stroke::Thin, points });
        chart.dots.extend(values.iter().map(|(line, value)| Dot {
            x: *line as f64,
            y: *value,
            look,
            tip: tip(page, *line, name, *value),
            ring: if counts(*line) { Ring::None } else { Ring::Crossed },
            ..Dot::default()
        }));
    }
    let body = html! {
        p { "In order of execution; vertical lines separate blocks. "
            @if page.stored.manifest.varied.is_some() { "Only trials at the middle point. " }
            @if page.has_left_out() { "Crossed-out trials do not count; the table of trials gives the reason." } }
        (page.looks.legend(all.iter().map(|(name, _)| *name)))
        (chart.draw())
    };
    Some(Section { id: "trials", title: "Every trial", body })
}

/// The chart without its values.
fn chart(page: &Page<'_>, all: &[(&str, Vec<(usize, f64)>)]) -> TimeLine {
    let values = || all.iter().flat_map(|(_, v)| v).map(|(_, value)| *value);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    // A scale that does not start at zero makes small differences visible.
    let from = if low < 0.0 {
        low
    } else if low > high * 0.6 {
        (low - (high - low) * 0.25).max(0.0)
    } else {
        0.0
    };
    let y = Scale::linear(from, high + (high - from) * 0.06);
    let metric = &page.analysis.primary_metric;
    let unit = page.analysis.unit(metric);
    let trials = page.statuses.len() as f64;
    TimeLine {
        id: "trials-plot".to_owned(),
        title: format!("{} of every trial", metric_name(metric)),
        description: format!(
            "{} trials of {} conditions, from {} to {}. The table of trials below has each value.",
            all.iter().map(|(_, values)| values.len()).sum::<usize>(),
            all.len(),
            format::quantity(low, unit),
            format::quantity(high, unit)
        ),
        height: HEIGHT,
        x: Axis {
            scale: Scale::linear(0.5, trials + 0.5),
            ticks: block_starts(page),
            caption: "block".to_owned(),
        },
        y: Axis {
            scale: y,
            ticks: y.ticks(5).into_iter().map(|v| (v, format::bare(v, unit))).collect(),
            caption: metric_name(metric),
        },
        ..TimeLine::default()
    }
}

/// The start of each block, with labels few enough for a phone.
fn block_starts(page: &Page<'_>) -> Vec<(f64, String)> {
    let mut starts: Vec<(u32, usize)> = Vec::new();
    for (line, trial) in (1..).zip(&page.stored.trials) {
        let Some(place) = trial.place.as_ref().filter(|p| !p.is_burn_in()) else { continue };
        if starts.last().is_none_or(|(block, _)| *block != place.block) {
            starts.push((place.block, line));
        }
    }
    let every = starts.len().div_ceil(12).max(1);
    let label = |(i, (block, line)): (usize, &(u32, usize))| {
        let text = if i % every == 0 { block.to_string() } else { String::new() };
        (*line as f64 - 0.5, text)
    };
    starts.iter().enumerate().map(label).collect()
}

fn tip(page: &Page<'_>, line: usize, name: &str, value: f64) -> String {
    let metric = &page.analysis.primary_metric;
    let unit = page.analysis.unit(metric);
    let is_bound = page.stored.trials[line - 1].metrics.get(metric).is_some_and(|m| m.at_least);
    let shown = format::marked(format::quantity(value, unit), is_bound);
    let why = match page.statuses[line - 1] {
        TrialStatus::Counts => "",
        _ => ", does not count",
    };
    format!("trial {line}, {name}: {shown}{why}")
}
