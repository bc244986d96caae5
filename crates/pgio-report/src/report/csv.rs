//! Comma-separated values for spreadsheets and statistics programs: one flat table.
//!
//! The table has a row for each condition and metric, including the baseline, and what sections add, such as
//! contrasts. Cells have no units and no rounding; a missing value is an empty cell. A file
//! has one table, because CSV supports no more. Quoting follows RFC 4180. A cell that a spreadsheet would
//! treat as a formula begins with `'`. Next: `docs/FORMAT.md` documents the columns.

use serde::Serialize;

use super::section::Report;
use super::table::{Column, Table};
use pgio_results::Trial;
use pgio_results::metrics;
use pgio_results::points::{Point, value_text};
use pgio_results::store::StoredExperiment;
use pgio_verdict::{Analysis, Bound, Comparison, Condition, TrialStatus, trial_statuses};

const COLUMNS: &[&str] = &[
    "experiment",
    "condition",
    "treatments",
    "baseline",
    "trials",
    "valid",
    "invalid",
    "failed",
    "metric",
    "unit",
    "value",
    "primary",
    "verdict",
    "blocks",
    "ratio",
    "ratio_low",
    "ratio_high",
    "difference",
    "difference_low",
    "difference_high",
    "p",
    "p_adjusted",
    "blocks_needed",
    "point",
    "value_low",
    "value_high",
    "value_bound",
    "ratio_bound",
    "totals_ratio",
    "totals_low",
    "totals_high",
    "margin",
    "decision",
    "gate",
    "decision_blocks",
    "factors",
    "aliases",
];

/// All numbers of an analysis.
pub fn flat<'a>(report: impl Into<Report<'a>>) -> Table {
    let report = report.into();
    let analysis = report.analysis;
    let mut rows = Vec::new();
    for condition in &analysis.conditions {
        for def in metrics::all(&analysis.metrics) {
            let value = condition.metrics.get(def.name).and_then(|m| m.value);
            let compared = analysis.comparison(&condition.name, def.name);
            if value.is_some() || compared.is_some() {
                let mut row = head(analysis, condition);
                row.extend([def.name.to_owned(), def.unit.to_owned(), number(value)]);
                row.push((def.name == analysis.primary_metric).to_string());
                row.extend(compared.map_or_else(nothing, comparison));
                row.extend([point(&analysis.middle), String::new(), String::new()]);
                let cut_off = condition.metrics.get(def.name).is_some_and(|m| m.at_least);
                row.extend([at_least(cut_off), bound(compared.and_then(|c| c.bound))]);
                let totals = compared.and_then(|c| c.totals);
                row.extend([number(totals.map(|t| t.ratio))]);
                row.extend(
                    [totals.and_then(|t| t.interval.low), totals.and_then(|t| t.interval.high)]
                        .map(number),
                );
                row.extend(compared.map_or_else(|| vec![String::new(); 4], margin));
                row.extend([const { String::new() }; 2]);
                rows.push(row);
            }
        }
    }
    rows.extend(report.sections.iter().flat_map(|section| section.rows.iter().cloned()));
    Table {
        columns: COLUMNS.iter().map(|name| Column::left(*name)).collect(),
        rows,
        ..Table::default()
    }
}

/// All numbers of several analyses in one table; each row names its experiment.
pub fn flat_all(reports: &[Report<'_>]) -> Table {
    let mut all = Table::default();
    for report in reports {
        let table = flat(*report);
        all.columns = table.columns;
        all.rows.extend(table.rows);
    }
    all
}

/// `delay = 1; sessions = 4`
pub fn point(point: &Point) -> String {
    let words = point.iter().map(|(axis, value)| format!("{axis} = {}", value_text(value)));
    words.collect::<Vec<_>>().join("; ")
}

/// The row of a contrast, in place of a condition's.
pub fn contrast(
    analysis: &Analysis,
    c: &Comparison,
    factors: String,
    aliases: String,
) -> Vec<String> {
    let mut row = vec![analysis.experiment.clone(), c.condition.clone()];
    row.extend([const { String::new() }; 6]);
    row.extend([c.metric.clone(), analysis.unit(&c.metric).to_owned(), number(c.value)]);
    row.push(c.primary.to_string());
    row.extend(comparison(c));
    row.extend([const { String::new() }; 3 + 2 + 3]);
    row.extend(margin(c));
    row.extend([factors, aliases]);
    row
}

/// A row of the flat table: empty but for these columns.
pub fn row(cells: &[(&str, String)]) -> Vec<String> {
    let cell = |column: &&str| cells.iter().find(|(name, _)| name == column);
    COLUMNS
        .iter()
        .map(|name| cell(name).map_or_else(String::new, |(_, text)| text.clone()))
        .collect()
}

fn head(analysis: &Analysis, condition: &Condition) -> Vec<String> {
    vec![
        analysis.experiment.clone(),
        condition.name.clone(),
        condition.treatments.join("; "),
        (condition.name == analysis.baseline).to_string(),
        condition.trials.to_string(),
        condition.valid.to_string(),
        condition.invalid.to_string(),
        condition.failed.to_string(),
    ]
}

/// The cells of a metric that was not compared, such as the baseline's.
fn nothing() -> Vec<String> {
    vec![String::new(); 11]
}

fn comparison(c: &Comparison) -> Vec<String> {
    let mut cells = vec![word(c.verdict), c.blocks.to_string()];
    cells.extend([c.ratio, c.interval.low, c.interval.high].map(number));
    cells.extend([c.difference, c.difference_low, c.difference_high].map(number));
    cells.extend([c.p, c.p_adjusted].map(number));
    cells.push(c.blocks_needed.map_or_else(String::new, |n| n.to_string()));
    cells
}

/// Whether the effect exceeds the margin.
fn margin(c: &Comparison) -> Vec<String> {
    vec![
        number(c.margin),
        c.decision.map_or_else(String::new, word),
        c.gate.map_or_else(String::new, word),
        c.decision_blocks.map_or_else(String::new, |n| n.to_string()),
    ]
}

/// Empty without a value.
pub fn at_least(is_bound: bool) -> String {
    bound(is_bound.then_some(Bound::AtLeast))
}

/// The same words as in the JSON.
pub fn bound(bound: Option<Bound>) -> String {
    let word = |bound| match bound {
        Bound::AtLeast => "at_least",
        Bound::AtMost => "at_most",
    };
    bound.map_or_else(String::new, |bound| word(bound).to_owned())
}

/// The same word as in the JSON.
pub fn word(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).ok();
    value.as_ref().and_then(|v| v.as_str()).unwrap_or_default().to_owned()
}

pub fn number(value: Option<f64>) -> String {
    value.filter(|v| v.is_finite()).map_or_else(String::new, |v| v.to_string())
}

/// Any table of the model, without its title and notes.
pub fn render(table: &Table) -> String {
    let table = table.printable();
    let headings: Vec<&str> = table.columns.iter().map(|c| c.heading.as_str()).collect();
    line(&headings) + &rows(&table)
}

fn rows(table: &Table) -> String {
    table.rows.iter().map(|row| line(row)).collect()
}

fn line(cells: &[impl AsRef<str>]) -> String {
    let quoted: Vec<String> = cells.iter().map(|cell| quote(cell.as_ref())).collect();
    quoted.join(",") + "\r\n"
}

fn quote(cell: &str) -> String {
    let cell = &neutral(cell);
    if cell.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// No formula. The full-width forms are the same signs to some spreadsheets; tab and carriage return,
/// which some strip first, are spelled out by now.
fn neutral(cell: &str) -> String {
    const SIGNS: [char; 8] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];
    let is_of_number = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
    let is_number = cell.chars().all(is_of_number) && cell.parse::<f64>().is_ok();
    if cell.trim_start().starts_with(SIGNS) && !is_number {
        format!("'{cell}")
    } else {
        cell.to_owned()
    }
}

const WIDE_COLUMNS: [&str; 13] = [
    "experiment",
    "run_id",
    "line",
    "condition",
    "is_baseline",
    "block",
    "position",
    "attempt",
    "point",
    "started_at",
    "window_seconds",
    "standing",
    "counts",
];

/// The wide table for spreadsheets: a row for each trial of these experiments, a column for each metric. Values are in
/// base units (seconds, bytes), without rounding; a lower bound is left empty, because a cell cannot say that it is one.
pub fn wide(experiments: &[&StoredExperiment]) -> Table {
    let mut names: Vec<String> = Vec::new();
    for stored in experiments {
        let measured = |name: &str| stored.trials.iter().any(|t| t.metrics.contains_key(name));
        for def in metrics::all(&stored.manifest.metrics) {
            if !names.iter().any(|known| known == def.name) && measured(def.name) {
                names.push(def.name.to_owned());
            }
        }
    }
    let rows = experiments.iter().flat_map(|stored| {
        let all = (1..).zip(&stored.trials).zip(trial_statuses(stored));
        all.map(|((line, trial), status)| wide_row(stored, line, trial, status, &names))
            .collect::<Vec<_>>()
    });
    Table {
        rows: rows.collect(),
        columns: WIDE_COLUMNS
            .into_iter()
            .chain(names.iter().map(String::as_str))
            .map(Column::left)
            .collect(),
        ..Table::default()
    }
}

fn wide_row(
    stored: &StoredExperiment,
    line: usize,
    trial: &Trial,
    status: TrialStatus,
    names: &[String],
) -> Vec<String> {
    let mut cells = vec![stored.manifest.name.clone(), trial.run_id.clone(), line.to_string()];
    match &trial.place {
        Some(place) => {
            cells.extend([
                place.condition.clone(),
                (place.condition == stored.manifest.baseline).to_string(),
            ]);
            cells.extend([place.block, place.position, place.attempt].map(|n| n.to_string()));
            cells.push(point(&place.point));
        }
        None => cells.extend([const { String::new() }; 6]),
    }
    cells.extend([trial.started_at.clone(), number(Some(trial.window.seconds))]);
    cells.extend([status.name().to_owned(), (status == TrialStatus::Counts).to_string()]);
    cells.extend(names.iter().map(|name| {
        number(trial.metrics.get(name).filter(|m| !m.at_least).and_then(|metric| metric.value))
    }));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_verdict::analyze;
    use pgio_verdict::test_support::demo;
    use proptest::prelude::*;

    /// A reader that knows nothing but RFC 4180.
    fn read(text: &str) -> Vec<Vec<String>> {
        let mut rows = vec![vec![String::new()]];
        let (mut quoted, mut chars) = (false, text.chars().peekable());
        while let Some(c) = chars.next() {
            let row = rows.last_mut().unwrap();
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => {
                    chars.next();
                    row.last_mut().unwrap().push('"');
                }
                '"' => quoted = !quoted,
                ',' if !quoted => row.push(String::new()),
                '\r' if !quoted => {}
                '\n' if !quoted => rows.push(vec![String::new()]),
                c => row.last_mut().unwrap().push(c),
            }
        }
        rows.pop();
        rows
    }

    #[test]
    fn every_condition_has_its_numbers_in_full() {
        let analysis = analyze(&demo());
        let rows = read(&render(&flat(&analysis)));
        assert_eq!(rows[0], COLUMNS);
        assert!(rows.iter().all(|row| row.len() == COLUMNS.len()));
        let at = |name| COLUMNS.iter().position(|c| *c == name).unwrap();
        let row = |condition: &str| {
            let primary = |r: &&Vec<String>| r[at("condition")] == condition;
            rows.iter().filter(primary).find(|r| r[at("primary")] == "true").unwrap().clone()
        };
        let on = row("on");
        assert_eq!(on[at("verdict")], "slower");
        assert_eq!(on[at("ratio")].parse().ok(), analysis.primary("on").unwrap().ratio);
        let local = row("local");
        assert_eq!((local[at("baseline")].as_str(), local[at("verdict")].as_str()), ("true", ""));
        assert!(local[at("value")].parse::<f64>().unwrap() > 2000.0);
    }

    #[test]
    fn csv_cells_cannot_be_read_as_formulas() {
        for (cell, written) in [
            ("-12.5e3", "-12.5e3"),
            ("+3", "+3"),
            ("=1+1", "'=1+1"),
            ("-1+cmd|' /C calc'!A0", "'-1+cmd|' /C calc'!A0"),
            ("-inf", "'-inf"),
            (" @SUM(A1)", "' @SUM(A1)"),
            ("＝1", "'＝1"),
            ("a=1", "a=1"),
        ] {
            assert_eq!(quote(cell), written);
        }
        let column = |text: &str| Column::left(text);
        let table = Table {
            columns: vec![column("a")],
            rows: vec![vec!["\t=1".to_owned()], vec!["\r=1\u{1b}".to_owned()]],
            ..Table::default()
        };
        assert_eq!(render(&table), "a\r\n\\t=1\r\n\\r=1\\u{1b}\r\n");
    }

    proptest! {
        #[test]
        fn csv_reads_back_unchanged(
            rows in prop::collection::vec(prop::collection::vec("[a,\"\n µ]{0,8}", 3), 1..4)
        ) {
            let table = Table {
                columns: ["a", "b,", "c"].map(Column::left).to_vec(),
                rows: rows.clone(),
                ..Table::default()
            };
            prop_assert_eq!(&read(&render(&table))[1..], &rows[..]);
        }
    }

    #[test]
    fn a_trial_is_a_row_and_a_metric_a_column() {
        let stored = demo();
        let table = wide(&[&stored, &stored]);
        assert_eq!(table.rows.len(), 2 * stored.trials.len());
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        let rendered = render(&table);
        let mut lines = rendered.lines();
        let headings: Vec<&str> = lines.next().unwrap().split(',').collect();
        let at = headings.iter().position(|name| *name == "commits_per_second").unwrap();
        let first: Vec<&str> = lines.next().unwrap().split(',').collect();
        let value = stored.trials[0].metrics["commits_per_second"].value.unwrap();
        assert_eq!(first[at].parse::<f64>().unwrap(), value);
        assert_eq!(first[..4], ["sync-commit", stored.trials[0].run_id.as_str(), "1", "local"]);
        assert_eq!(first[11..13], ["counts", "true"]);
    }
}
