//! An analysis as a document: the conditions against the baseline, the secondary metrics, their
//! explanation (`explain`), and the warnings.
//!
//! This file chooses contents and wording; verdicts and numbers come from the analysis. Next: `text`
//! prints the document.

use std::collections::BTreeMap;

use super::format::{self, NONE, NOT_DECIDED};
use super::lead::RERUN;
use super::noise::trust;
use super::section::Report;
use super::statement::{effect, marked_name, needed_blocks};
use super::table::{Column, Document, Label, Remark, Table};
use super::{explain, lead, margin, noise, servers};
use pgio_results::latency::{Class, Statistic};
use pgio_results::metrics::{self, Direction, MetricDef};
use pgio_results::{CheckVerdict, Metric, Warning};
use pgio_verdict::{
    ALPHA, Analysis, Condition, CountedWarning, Decision, Finding, Interval, State, Totals,
    Verdict, is_rate_of_work,
};

/// Conditions beside the baseline in one table of secondary metrics; more do not fit into a line.
const SIDE_BY_SIDE: usize = 2;
/// Marks a decided secondary change.
const STAR: &str = "*";
const COMMIT_PERCENTILES: [Statistic; 3] = [Statistic::P50, Statistic::P95, Statistic::P99];

pub fn document<'a>(report: impl Into<Report<'a>>) -> Document {
    let report = report.into();
    let analysis = report.analysis;
    let mut tables: Vec<Table> = report.effects().cloned().collect();
    let what = match report.instead().and_then(|section| section.instead.as_ref()) {
        Some((what, further)) => {
            tables.extend(further.iter().cloned());
            what.clone()
        }
        None => {
            let mut primary = primary(report);
            let is_open = analysis.aa.is_some() && noise::blindness(analysis, RERUN).is_none();
            primary.notes.extend(is_open.then(|| trust(analysis)));
            primary.notes.extend(noise::woven(analysis));
            tables.push(primary);
            tables.extend(servers::table(analysis));
            let of_features =
                |explains| report.explaining(explains).flat_map(|s| s.tables.iter().cloned());
            tables.extend(of_features(false));
            tables.extend(secondary(analysis));
            tables.extend(explain::tables(analysis));
            tables.extend(of_features(true));
            format!("compared with {}", analysis.baseline)
        }
    };
    Document {
        title: analysis.experiment.clone(),
        subtitle: format!(
            "{}, {what} (95 % intervals)",
            format::metric_name(&analysis.primary_metric)
        ),
        headline: lead::opening(report, RERUN),
        tables,
        remarks: remarks(analysis),
    }
}

pub(super) fn primary(report: Report<'_>) -> Table {
    let analysis = report.analysis;
    let conditions = &analysis.conditions;
    let some_left_out = conditions.iter().any(|c| c.valid != c.trials);
    let commits = conditions.iter().any(|c| commit_percentiles(analysis, c).is_some());
    let mut columns = vec![
        Column::left("condition"),
        Column::right(format::metric_name(&analysis.primary_metric)),
        Column::left("effect [95 %]"),
        Column::right("ratio"),
    ];
    if let Some(share) = analysis.margin {
        columns.push(Column::left(format!("more than {}", margin::share(share))));
    }
    let with_totals = analysis.comparisons.iter().any(|c| c.primary && c.totals.is_some());
    if with_totals {
        columns.push(Column::left(totals_heading(analysis)));
    }
    if commits {
        let names: Vec<&str> = shown_percentiles(analysis).map(|s| s.label()).collect();
        columns.push(Column::right(format!("commit {}", names.join(" / "))));
    }
    if some_left_out {
        columns.push(Column::right("trials"));
    }

    let row = |c: &Condition| {
        let mut cells = vec![marked_name(analysis, &c.name), primary_value(analysis, c)];
        cells.extend(effect_and_ratio(analysis, c));
        if analysis.margin.is_some() {
            cells.push(analysis.primary(&c.name).map_or_else(String::new, margin::cell));
        }
        if with_totals {
            cells.push(all_work(analysis, c));
        }
        if commits {
            cells.push(commit_percentiles(analysis, c).unwrap_or_else(|| NONE.to_owned()));
        }
        if some_left_out {
            let all_count = c.valid == c.trials;
            cells.push(if all_count {
                c.trials.to_string()
            } else {
                format!("{} of {}", c.valid, c.trials)
            });
        }
        cells
    };
    let rows: Vec<Vec<String>> = conditions.iter().map(row).collect();
    let notes = primary_notes(report, &rows);
    Table { title: String::new(), columns, rows, notes }
}

pub(super) fn metric(analysis: &Analysis, condition: &Condition, name: &str) -> String {
    shown(analysis, condition, name).map_or_else(|| NONE.to_owned(), |m| format::metric(&m))
}

/// The value beside a ratio is the baseline's value times that ratio. A mean over all trials would not
/// match the ratio, because it covers other blocks. Without a ratio, the condition's own mean.
fn shown(analysis: &Analysis, condition: &Condition, name: &str) -> Option<Metric> {
    let own = condition.metrics.get(name)?;
    let mut compared = analysis.comparisons.iter().filter(|c| c.metric == name);
    // The time of an operation is the mean over all of them, to which what a condition adds belongs.
    if compared.clone().any(|c| c.explains && !c.primary) {
        let value = if condition.name == analysis.baseline {
            compared.next().and_then(|c| c.baseline_value)
        } else {
            compared.find(|c| c.condition == condition.name).and_then(|c| c.value)
        };
        return Some(Metric { value: value.or(own.value), ..own.clone() });
    }
    let from_ratio = || {
        let ratio = analysis.comparison(&condition.name, name)?.ratio?;
        let baseline = analysis.condition(&analysis.baseline)?.metrics.get(name)?.value?;
        Some(baseline * ratio)
    };
    Some(Metric { value: from_ratio().or(own.value), ..own.clone() })
}

pub(super) fn totals_heading(analysis: &Analysis) -> &'static str {
    let primary = analysis.definition(&analysis.primary_metric);
    match primary.map_or(Direction::Neutral, |def| def.direction) {
        Direction::LowerIsFaster => "all trials together",
        Direction::HigherIsFaster | Direction::Neutral => "all work / all time",
    }
}

/// All work over all time against the baseline's.
pub(super) fn all_work(analysis: &Analysis, condition: &Condition) -> String {
    let totals = analysis.primary(&condition.name).and_then(|c| c.totals);
    let mark = |t: Totals| if t.interval.excludes(1.0) { "" } else { "~ " };
    let shown =
        |t: Totals| format!("{}{}", mark(t), format::change_as_known(t.ratio, t.interval, None));
    totals.map_or_else(String::new, shown)
}

/// The primary metric, whose name is the heading.
pub(super) fn primary_value(analysis: &Analysis, condition: &Condition) -> String {
    let metric = shown(analysis, condition, &analysis.primary_metric);
    metric.map_or_else(|| NONE.to_owned(), |m| format::metric_below_heading(&m))
}

fn effect_and_ratio(analysis: &Analysis, condition: &Condition) -> [String; 2] {
    let instead = lead::instead_of_effect(analysis, condition);
    if condition.name == analysis.baseline {
        let state = instead.map_or_else(String::new, |state| format!(": {state}"));
        return [format!("baseline{state}"), String::new()];
    }
    if let Some(instead) = instead {
        let compared = analysis.primary(&condition.name);
        let needed = compared.filter(|_| condition.state == State::Undecided);
        let is_aa = analysis.is_aa(&condition.name);
        let instead = instead + &needed.map_or_else(String::new, |c| needed_blocks(c, is_aa));
        let ratio = compared.and_then(|c| c.ratio);
        return [instead, ratio.map_or_else(|| NONE.to_owned(), |r| format!("{r:.3}"))];
    }
    let Some(comparison) = analysis.primary(&condition.name) else {
        return [NONE.to_owned(), NONE.to_owned()];
    };
    let ratio = comparison.ratio.map_or_else(|| NONE.to_owned(), |r| format!("{r:.3}"));
    [effect(comparison, analysis.is_aa(&condition.name)), ratio]
}

/// Those that any condition has: one of too few operations is left out.
fn shown_percentiles(analysis: &Analysis) -> impl Iterator<Item = Statistic> {
    let has = |statistic: &Statistic| {
        let name = metrics::latency_name(Class::Commit, *statistic);
        analysis.conditions.iter().any(|c| c.metrics.contains_key(name))
    };
    COMMIT_PERCENTILES.into_iter().filter(has)
}

/// `0.310 / 0.522 / 1.10 ms`, all in the unit of the last.
fn commit_percentiles(analysis: &Analysis, condition: &Condition) -> Option<String> {
    let value = |statistic| {
        let name = metrics::latency_name(Class::Commit, statistic);
        let metric = shown(analysis, condition, name)?;
        Some((metric.value?, metric.at_least))
    };
    format::side_by_side(&shown_percentiles(analysis).map(value).collect::<Vec<_>>())
}

/// What `~` means, if a cell has it.
pub(super) fn not_decided(rows: &[Vec<String>]) -> Option<String> {
    rows.iter().flatten().any(|cell| cell.starts_with('~')).then(|| NOT_DECIDED.to_owned())
}

fn primary_notes(report: Report<'_>, rows: &[Vec<String>]) -> Vec<String> {
    let analysis = report.analysis;
    let mut notes = Vec::from_iter(not_decided(rows));
    if analysis.comparisons.iter().any(|c| c.primary && c.totals.is_some()) {
        notes.push(format!(
            "The effect is that of the typical block; {} weights stalls by their length.",
            totals_heading(analysis)
        ));
    }
    if analysis.comparisons.iter().any(|c| c.decision == Some(Decision::DoesNotMatter)) {
        let risk = margin::share(ALPHA);
        notes.push(format!(
            "Does not matter: the interval beside it, at {risk} risk, is within the margin{}.",
            margin::blind(analysis)
        ));
    }
    notes.extend(chosen_afterwards(analysis));
    notes.extend(report.sections.iter().flat_map(|section| section.effect_notes.iter().cloned()));
    notes.extend(margin::blocks_to_decide(analysis, analysis.comparisons.iter()));
    notes.extend(noise::variance(analysis));
    notes.extend(report.sections.iter().filter_map(|section| section.note.clone()));
    let cut_off = |c: &Condition| c.metrics.values().any(|m| m.at_least);
    if analysis.conditions.iter().any(cut_off) {
        notes.push(
            "≥ marks a lower bound: the window's end cut off calls that were due and not answered."
                .to_owned(),
        );
    }
    let percentile_missing = |c: &Condition| {
        let value = |name| c.metrics.get(name).map(|m: &Metric| m.value);
        COMMIT_PERCENTILES
            .into_iter()
            .any(|s| value(metrics::latency_name(Class::Commit, s)) == Some(None))
    };
    if analysis.conditions.iter().any(percentile_missing) {
        notes.push(format!(
            "{NONE} in a latency: below 20 µs the server's clock is too coarse for a percentile."
        ));
    }
    for comparison in analysis.comparisons.iter().filter(|c| c.primary) {
        // A check reports too few blocks.
        if comparison.verdict != Verdict::TooFewBlocks {
            let condition = &comparison.condition;
            notes.extend(comparison.warnings.iter().map(|w| format!("{condition}: {w}.")));
        }
    }
    notes
}

/// Warns that this comparison was chosen after the results were known.
pub(super) fn chosen_afterwards(analysis: &Analysis) -> Option<String> {
    let own = analysis.own_baseline.as_ref()?;
    Some(format!(
        "Compared with {}; the experiment's own baseline is {own}. Among many pairs some differ by \
         chance: run this pair alone to confirm the result.",
        analysis.baseline
    ))
}

pub(super) fn secondary(analysis: &Analysis) -> Vec<Table> {
    let others: Vec<&Condition> = analysis
        .conditions
        .iter()
        .filter(|c| c.name != analysis.baseline && !analysis.is_aa(&c.name))
        .collect();
    let Some(baseline) = analysis.condition(&analysis.baseline) else { return Vec::new() };
    let groups: Vec<&[&Condition]> = others.chunks(SIDE_BY_SIDE).collect();
    let mut groups: Vec<SecondaryGroup> =
        groups.iter().map(|group| secondary_group(analysis, baseline, group)).collect();
    groups.retain(|group| !group.table.rows.is_empty());
    let any_starred = groups.iter().any(|group| group.starred);
    let mut tables: Vec<Table> = groups.into_iter().map(|group| group.table).collect();
    if let Some(first) = tables.first_mut() {
        first.title =
            "Secondary metrics (indicative; change against the baseline [95 %])".to_owned();
    }
    if let Some(last) = tables.last_mut() {
        if any_starred {
            last.notes.push(format!(
                "{STAR} decided: the chance of even one false {STAR} among them is at most 5 %. Without an interval, \
                 these blocks are too few to bound so many changes."
            ));
        }
        last.notes.extend(analysis.notes.iter().map(|n| format!("Note: {n}.")));
    }
    tables
}

/// The secondary metrics of some conditions.
struct SecondaryGroup {
    table: Table,
    /// Whether a cell has a star.
    starred: bool,
}

fn secondary_group(
    analysis: &Analysis,
    baseline: &Condition,
    group: &[&Condition],
) -> SecondaryGroup {
    let mut columns = vec![Column::left("metric"), Column::right(&baseline.name)];
    columns.extend(group.iter().map(|c| Column::right(&c.name)));
    let (mut rows, mut starred) = (Vec::new(), false);
    // The table of servers shows theirs.
    let has_server = |name: &str| analysis.metrics.iter().any(|m| m.name == name && m.of.is_some());
    let secondary =
        |def: &MetricDef<'_>| def.name != analysis.primary_metric && !has_server(def.name);
    for def in metrics::all(&analysis.metrics).filter(secondary) {
        let measured = |c: &Condition| {
            c.metrics.get(def.name).is_some_and(|m| m.value.is_some_and(|v| v != 0.0))
        };
        // A rate that is not compared is the primary metric in another unit.
        let is_compared = |c: &&Condition| analysis.comparison(&c.name, def.name).is_some();
        let repeats = is_rate_of_work(&def) && !group.iter().any(is_compared);
        if repeats || !measured(baseline) && !group.iter().any(|c| measured(c)) {
            continue;
        }
        let mut cells = vec![format::metric_name(def.name), metric(analysis, baseline, def.name)];
        cells.extend(group.iter().map(|c| with_change(analysis, c, def.name)));
        rows.push(cells);
        starred |= group.iter().any(|c| is_starred(analysis, c, def.name));
    }
    let table = Table { title: String::new(), columns, rows, notes: Vec::new() };
    SecondaryGroup { table, starred }
}

fn is_starred(analysis: &Analysis, condition: &Condition, name: &str) -> bool {
    analysis.comparison(&condition.name, name).is_some_and(|c| c.verdict.is_decided())
}

/// `1.85 ms +215 % [+190, +241]`, with a star where the change is decided.
fn with_change(analysis: &Analysis, condition: &Condition, name: &str) -> String {
    let value = metric(analysis, condition, name);
    let Some(c) = analysis.comparison(&condition.name, name) else { return value };
    let star = if is_starred(analysis, condition, name) { STAR } else { "" };
    match c.ratio {
        Some(ratio) => {
            // A bound's own end adds nothing to its mark here.
            let known = if c.bound.is_some() { Interval::UNKNOWN } else { c.interval };
            format!("{value} {}{star}", format::change_as_known(ratio, known, c.bound))
        }
        None => format!("{value}{star}"),
    }
}

pub(super) fn remarks(analysis: &Analysis) -> Vec<Remark> {
    let mut remarks: Vec<Remark> = grouped(analysis).iter().map(|same| finding(same)).collect();
    remarks.extend(warnings(&analysis.warnings));
    remarks
}

/// Groups warnings that differ only in a figure, and shows the first of each group.
fn warnings(all: &[CountedWarning]) -> Vec<Remark> {
    let mut grouped: Vec<(&Warning, usize, bool)> = Vec::new();
    for CountedWarning { warning, trials } in all {
        let same = |(known, ..): &&mut (&Warning, usize, bool)| {
            known.why == warning.why && known.try_this == warning.try_this
        };
        match grouped.iter_mut().find(same) {
            Some((_, sum, several)) => (*sum, *several) = (*sum + trials, true),
            None => grouped.push((warning, *trials, false)),
        }
    }
    let remark = |(warning, trials, several): &(&Warning, usize, bool)| {
        let first = if *several { "for example, " } else { "" };
        let trials = format::counted(*trials, "trial");
        Remark { label: Label::Warning, text: format!("{first}{warning} ({trials})") }
    };
    grouped.iter().map(remark).collect()
}

/// The findings that are remarks, each once with all its conditions and trials. Messages of one check that differ only
/// in figures are represented by the first.
pub(super) fn grouped(analysis: &Analysis) -> Vec<Vec<&Finding>> {
    let mut grouped: Vec<Vec<&Finding>> = Vec::new();
    let mut seen: BTreeMap<(&str, CheckVerdict, &str), usize> = BTreeMap::new();
    for check in analysis.checks.iter().filter(|f| !lead::leads(f)) {
        let is_single = check.trial.is_some() || check.condition.is_some();
        let message = if is_single { "" } else { check.message.as_str() };
        let at = *seen.entry((&check.id, check.verdict, message)).or_insert_with(|| {
            grouped.push(Vec::new());
            grouped.len() - 1
        });
        grouped[at].push(check);
    }
    grouped
}

fn finding(same: &[&Finding]) -> Remark {
    let check = same[0];
    let places = places(same);
    let places = if places.is_empty() { places } else { format!(" ({places})") };
    let first = if same.iter().any(|s| s.message != check.message) { "for example, " } else { "" };
    let remedy =
        if check.remedy.is_empty() { String::new() } else { format!("; {}", check.remedy) };
    Remark {
        label: check.verdict.into(),
        text: format!("{}{places}: {first}{}{remedy}", check.id, check.message),
    }
}

/// `3 trials: local, trials 6, 30; on, trial 27`, `2 conditions: local; on`
fn places(same: &[&Finding]) -> String {
    let mut places: Vec<(Option<&str>, Vec<usize>)> = Vec::new();
    for check in same {
        let condition = check.condition.as_deref();
        match places.iter_mut().find(|(known, _)| *known == condition) {
            Some((_, trials)) => trials.extend(check.trial),
            None => places.push((condition, check.trial.into_iter().collect())),
        }
    }
    let place = |(condition, trials): &(Option<&str>, Vec<usize>)| {
        let numbers: Vec<String> = trials.iter().map(usize::to_string).collect();
        let trials = match trials.len() {
            0 => None,
            1 => Some(format!("trial {}", numbers[0])),
            _ => Some(format!("trials {}", numbers.join(", "))),
        };
        let parts: Vec<String> = condition.map(str::to_owned).into_iter().chain(trials).collect();
        parts.join(", ")
    };
    let texts: Vec<String> = places.iter().map(place).filter(|text| !text.is_empty()).collect();
    let trials: usize = places.iter().map(|(_, trials)| trials.len()).sum();
    let count = match (trials, texts.len()) {
        (0, n) if n > 1 => format!("{n} conditions: "),
        (n, m) if n > 1 && m > 1 => format!("{n} trials: "),
        _ => String::new(),
    };
    count + &texts.join("; ")
}
