//! The short forms of a report: the terminal's ([`summary`]), with one line for each condition and the remarks in brief,
//! and the table of answers ([`answers`]), which is the first thing on the page and in Markdown.
//!
//! `lead::opening` precedes the first table in every format. The whole report (`comparison`) has the rest.

use std::collections::BTreeSet;

use super::format::{self, NONE};
use super::lead::{RERUN, opening};
use super::section::Report;
use super::statement::{BASELINE, Statement, effect, marked_name};
use super::table::{Column, Document, Label, Remark, Table};
use super::{comparison, explain, lead, margin, noise};
use pgio_results::CheckVerdict;
use pgio_results::waits::WaitGroup;
use pgio_verdict::condition::{self, OPERATIONS};
use pgio_verdict::waits::{DecompositionDifference, PartDifference};
use pgio_verdict::{Analysis, Comparison, Condition, Finding, State};

/// Remarks with their text; more are named.
const SHOWN: usize = 4;

/// `rerun` is the command that adds blocks.
pub fn summary<'a>(report: impl Into<Report<'a>>, rerun: &str) -> Document {
    let report = report.into();
    let analysis = report.analysis;
    let mut tables: Vec<Table> = report.effects().cloned().collect();
    if tables.is_empty() {
        tables.push(conditions(report));
    }
    Document {
        title: analysis.experiment.clone(),
        subtitle: analysis.question.replace('`', ""),
        headline: opening(report, rerun),
        tables,
        remarks: remarks(analysis),
    }
}

/// One line for each condition, and what the numbers mean below.
fn conditions(report: Report<'_>) -> Table {
    let analysis = report.analysis;
    let operation = operation(analysis);
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
        cells.push(match (primary, lead::instead_of_effect(analysis, c)) {
            (_, Some(instead)) => instead,
            (Some(primary), None) if c.name != analysis.baseline => effect(primary, true),
            _ => "baseline".to_owned(),
        });
        cells.extend(with_totals.then(|| comparison::all_work(analysis, c)));
        let decision = || primary.map_or_else(String::new, |c| margin::cell(c).replace('\n', " "));
        cells.extend(analysis.margin.map(|_| decision()));
        let time = |mean| time_cell(analysis, c, mean).replace('\n', " ");
        cells.extend(operation.map(|(_, mean)| time(mean)));
        cells
    };
    let others = analysis.conditions.iter().filter(|c| c.name != analysis.baseline);
    let others = others.filter(|c| !analysis.is_aa(&c.name));
    let mut notes: Vec<String> = others
        .map(|c| {
            let wait = largest_wait(analysis, &c.name);
            let wait = wait.map_or_else(String::new, |wait| format!(" {wait}"));
            format!("{}: {}.{wait}", c.name, Statement::new(analysis, &c.name).short())
        })
        .collect();
    if noise::blindness(analysis, RERUN).is_none() {
        notes.push(noise::trust(analysis));
    }
    let rows: Vec<Vec<String>> = analysis.conditions.iter().map(row).collect();
    notes.extend(comparison::not_decided(&rows));
    notes.extend(comparison::chosen_afterwards(analysis));
    notes.extend(margin::without_totals(analysis).map(|why| format!("Does not matter: {why}.")));
    notes.extend(report.lead().filter(|_| report.instead().is_none()));
    notes.extend(noise::woven(analysis));
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

/// `None` if contrasts take the place of comparisons, and if there is nothing to compare.
pub(super) fn answers(analysis: &Analysis) -> Option<Table> {
    if analysis.has_contrasts() || analysis.conditions.len() < 2 {
        return None;
    }
    let operation = operation(analysis);
    let went = |c: &Condition| where_time_went(analysis, &c.name);
    let any_went = analysis.conditions.iter().any(|c| !went(c).is_empty());
    let sampled = !analysis.decompositions.is_empty() && any_went;
    let mut columns = vec![
        Column::left("condition"),
        Column::left("answer"),
        Column::right(format!("change of {}", format::metric_name(&analysis.primary_metric))),
        Column::right("95 % interval"),
    ];
    columns.extend(operation.map(|(class, _)| Column::right(format!("time per {class}"))));
    columns.extend(sampled.then(|| Column::left("where the time went")));
    let row = |c: &Condition| {
        let statement = Statement::new(analysis, &c.name);
        let mut cells = vec![c.name.clone(), with_value(analysis, c, &statement)];
        cells.extend(change(&statement));
        cells.extend(operation.map(|(_, mean)| time_cell(analysis, c, mean)));
        cells.extend(sampled.then(|| went(c)));
        cells
    };
    Some(Table { columns, rows: analysis.conditions.iter().map(row).collect(), ..Table::default() })
}

/// The document of the whole report, after the answers.
pub fn answered<'a>(report: impl Into<Report<'a>>) -> Document {
    let report = report.into();
    let mut document = comparison::document(report);
    document.tables.splice(0..0, answers(report.analysis));
    document
}

/// The answer; of the baseline with its value, which the changes refer to, before what it endangers.
fn with_value(analysis: &Analysis, c: &Condition, statement: &Statement) -> String {
    let text = statement.short();
    let value = c.metrics.get(&analysis.primary_metric).filter(|m| m.value.is_some());
    match value.filter(|_| c.name == analysis.baseline && c.state == State::Measured) {
        Some(value) => {
            text.replacen(BASELINE, &format!("{BASELINE}: {}", format::metric(value)), 1)
        }
        None => text,
    }
}

/// The change and its interval.
fn change(statement: &Statement) -> [String; 2] {
    let size = statement.size.as_ref();
    let interval = size.and_then(|size| Some(format!("{} %", size.interval.as_ref()?)));
    [size.map(|size| size.value.clone()), interval]
        .map(|text| text.unwrap_or_else(|| NONE.to_owned()))
}

/// The first operation that the baseline or another condition timed, and its metric.
pub(super) fn operation(analysis: &Analysis) -> Option<(&'static str, &'static str)> {
    let has = |name: &str| {
        analysis.conditions.iter().any(|c| c.metrics.get(name).is_some_and(|m| m.value.is_some()))
    };
    condition::shown(has)
}

/// The time of the baseline's mean operation, and what the other conditions add to it.
pub(super) fn time_cell(analysis: &Analysis, c: &Condition, mean: &str) -> String {
    if c.name == analysis.baseline {
        return comparison::metric(analysis, c, mean);
    }
    analysis.comparison(&c.name, mean).map_or_else(|| NONE.to_owned(), added_time)
}

/// `+1.10 ms\n[+1.02, +1.18]`; a difference that may be none is marked.
fn added_time(c: &Comparison) -> String {
    let Some(difference) = c.difference else { return NONE.to_owned() };
    let Some((low, high)) = c.difference_interval().sides() else {
        // Without both bounds, nothing is claimed beyond the estimate.
        return format!("{}\n(no interval)", format::signed_seconds(difference));
    };
    let (factor, unit) = format::time_unit(difference.abs().max(low.abs()).max(high.abs()));
    let signed = |seconds: f64| {
        let sign = if seconds < 0.0 { "" } else { "+" };
        format!("{sign}{}", format::number(seconds * factor))
    };
    let mark = if c.difference_interval().excludes(0.0) { "" } else { "~ " };
    format!("{mark}{} {unit}\n[{}, {}]", signed(difference), signed(low), signed(high))
}

/// One sentence on where the time of a condition went.
fn where_time_went(analysis: &Analysis, condition: &str) -> String {
    if condition == analysis.baseline || analysis.is_aa(condition) {
        return String::new();
    }
    let Some(d) = divided(analysis, condition) else {
        return "Its waits were not sampled.".to_owned();
    };
    let class = &d.class;
    // `~` beside the time says that already.
    if !explain::is_decided(d) {
        return String::new();
    }
    let none = || format!("No single wait explains the time per {class}.");
    largest_wait(analysis, condition).unwrap_or_else(none)
}

/// The wait that explains most of the time that a condition adds, if the two are measurable.
pub(super) fn largest_wait(analysis: &Analysis, condition: &str) -> Option<String> {
    let d = divided(analysis, condition).filter(|d| explain::is_decided(d))?;
    // Without any spread between blocks a part has no interval.
    let may_be_none =
        |p: &&PartDifference| p.interval.sides().is_some_and(|(l, h)| l <= 0.0 && h >= 0.0);
    let part = d.parts.iter().filter(|p| !may_be_none(p)).max_by(compare_sizes)?;
    Some(describe_largest_part(d, part))
}

/// The difference of the operation that tells most.
fn divided<'a>(analysis: &'a Analysis, condition: &str) -> Option<&'a DecompositionDifference> {
    let difference = |class: &str| {
        let all = explain::shown_differences(analysis);
        all.filter(|d| d.condition == condition).find(|d| d.class == class)
    };
    OPERATIONS.iter().find_map(|(class, _)| difference(class))
}

fn compare_sizes(a: &&PartDifference, b: &&PartDifference) -> std::cmp::Ordering {
    a.seconds.abs().total_cmp(&b.seconds.abs())
}

/// `Mostly waiting for the standby (SyncRep): +1.02 ms of +1.10 ms per commit.`
///
/// A part that exceeds the whole, or has the other sign, is not a share of it: other parts offset it.
fn describe_largest_part(d: &DecompositionDifference, part: &PartDifference) -> String {
    let share = part.seconds / d.seconds;
    let degree = match share {
        s if s >= 0.5 => "Mostly",
        s if s > 0.0 => "In part",
        _ if part.seconds < 0.0 => "Despite less",
        _ => "Despite more",
    };
    let (group, class) = (wait_phrase(part.group), &d.class);
    let [of_part, whole] = [part.seconds, d.seconds].map(format::signed_seconds);
    if (0.0..=1.0).contains(&share) {
        return format!("{degree} {group}: {of_part} of {whole} per {class}.");
    }
    format!("{degree} {group}: {of_part}; {whole} per {class} with all other parts.")
}

/// What a session does in waits of this kind.
fn wait_phrase(group: WaitGroup) -> &'static str {
    match group {
        WaitGroup::Cpu => "processor time",
        WaitGroup::DataFileRead => "reading data files",
        WaitGroup::DataFileWrite => "writing data files",
        WaitGroup::Flush => "flushing WAL to disk",
        WaitGroup::SyncRep => "waiting for the standby (SyncRep)",
        WaitGroup::Locks => "waiting for locks",
        WaitGroup::Client => "waiting for the client",
        WaitGroup::Other => "other waits",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text;
    use pgio_verdict::test_support::{
        COMMIT_MEAN, demo, experiment, latencies, replicated, screened, set, trial,
    };
    use pgio_verdict::{Interval, analyze};

    fn render_answers(analysis: &Analysis) -> String {
        text::table(&answers(analysis).unwrap())
    }

    /// In every second block a commit takes 2 ms longer, and a tenth as many end.
    #[test]
    fn the_time_that_a_condition_adds_belongs_to_the_mean_beside_it() {
        let one = |condition: &str, block: u32, more: f64| {
            let (n, milliseconds) =
                if u32::is_multiple_of(block, 2) { (100, 3.0 + more) } else { (1000, 1.0 + more) };
            let rate = f64::from(n);
            let mean = milliseconds / 1e3;
            let measured = [("commits_per_second", rate), (COMMIT_MEAN, mean)];
            let mut t = trial(condition, block, &measured);
            let mut h = pgio_results::histogram::Histogram::default();
            (0..n).for_each(|_| h.record(milliseconds * 1e6));
            t.histograms.insert("commit".to_owned(), h);
            t
        };
        let both = |block| [one("local", block, 0.0), one("on", block, 1.0)];
        let analysis = analyze(&experiment(&["local", "on"], (1..=8).flat_map(both).collect()));
        let cells = analysis.conditions.iter().map(|c| time_cell(&analysis, c, COMMIT_MEAN));
        let first = |cell: String| cell.lines().next().unwrap_or_default().to_owned();
        assert_eq!(cells.map(first).collect::<Vec<_>>(), ["1.18 ms", "+1.00 ms"]);
        let c = analysis.comparison("on", COMMIT_MEAN).unwrap();
        let sum = c.baseline_value.unwrap() + c.difference.unwrap();
        assert!((c.value.unwrap() - sum).abs() < 1e-12 && (sum - 0.002_18).abs() < 5e-6, "{c:?}");
        // The other tables have the same means.
        let text = text::render(&crate::report::document(&analysis));
        assert!(text.contains("1.18 ms") && text.contains("2.18 ms"), "{text}");
    }

    #[test]
    fn a_line_for_each_condition() {
        insta::assert_snapshot!(render_answers(&analyze(&demo())));
    }

    #[test]
    fn answers_attribute_the_added_time_to_the_standby() {
        insta::assert_snapshot!(render_answers(&analyze(&replicated(6))));
    }

    #[test]
    fn no_wait_is_named_if_its_interval_contains_zero() {
        let mut analysis = analyze(&replicated(6));
        for part in analysis.decomposition_differences.iter_mut().flat_map(|d| &mut d.parts) {
            part.interval = Interval::new(part.seconds - 1.0, part.seconds + 1.0);
        }
        assert!(
            render_answers(&analysis).contains("No single wait"),
            "{}",
            render_answers(&analysis)
        );
    }

    #[test]
    fn a_part_is_a_share_only_of_a_larger_difference_of_its_sign() {
        let analysis = analyze(&replicated(6));
        let mut d = analysis.decomposition_differences[0].clone();
        let mut part = d.parts.remove(0);
        part.group = WaitGroup::Flush;
        let mut describe = |part_seconds, seconds| {
            (part.seconds, d.seconds) = (part_seconds, seconds);
            describe_largest_part(&d, &part).replace("flushing WAL to disk", "X")
        };
        assert_eq!(describe(60e-6, 110e-6), "Mostly X: +60.0 µs of +110 µs per commit.");
        assert_eq!(describe(20e-6, 110e-6), "In part X: +20.0 µs of +110 µs per commit.");
        assert_eq!(
            describe(110e-6, 62.6e-6),
            "Mostly X: +110 µs; +62.6 µs per commit with all other parts."
        );
        assert_eq!(
            describe(-30e-6, 62.6e-6),
            "Despite less X: −30.0 µs; +62.6 µs per commit with all other parts."
        );
        assert_eq!(
            describe(30e-6, -62.6e-6),
            "Despite more X: +30.0 µs; −62.6 µs per commit with all other parts."
        );
    }

    /// A commit of `on` takes twice as long in blocks with a tenth of the commits, so the typical block and all commits
    /// together differ.
    #[test]
    fn a_row_has_one_time_per_commit_of_which_the_parts_are() {
        let mut stored = replicated(6);
        for t in &mut stored.trials {
            let place = t.place.as_ref().unwrap();
            let (on, stalled) = (place.condition == "on", place.block % 2 == 0);
            let h =
                if on && stalled { latencies(4.4, 100) } else { t.histograms["commit"].clone() };
            set(t, COMMIT_MEAN, h.sum_ns() / h.count() as f64 / 1e9);
            t.histograms.insert("commit".to_owned(), h);
        }
        let analysis = analyze(&stored);
        let c = analysis.comparison("on", COMMIT_MEAN).unwrap();
        let d = &analysis.decomposition_differences[0];
        assert_eq!((c.difference, c.difference_interval()), (Some(d.seconds), d.interval));
        assert!((d.seconds - 1.2e-3).abs() < 0.1e-3, "{d:?}");
        let parts: f64 = d.parts.iter().map(|p| p.seconds).sum();
        assert!((parts - d.seconds).abs() < 1e-9, "{d:?}");
    }

    #[test]
    fn a_time_is_marked_by_the_interval_beside_it() {
        let mut analysis = analyze(&demo());
        let is_it = |c: &&mut Comparison| c.condition == "on" && c.metric == COMMIT_MEAN;
        let c = analysis.comparisons.iter_mut().find(is_it).unwrap();
        assert!(added_time(c).starts_with("+5"), "{}", added_time(c));
        c.difference_low = Some(-1e-6);
        assert!(added_time(c).starts_with("~ +5"), "{}", added_time(c));
    }

    #[test]
    fn a_condition_without_trials_has_a_line() {
        let text = render_answers(&analyze(&experiment(&["local", "on"], Vec::new())));
        assert!(text.lines().any(|l| l.starts_with("on") && l.contains("no trial")), "{text}");
    }

    #[test]
    fn a_factorial_design_compares_no_conditions() {
        assert_eq!(answers(&analyze(&screened(6))), None);
    }
}
