//! Latencies and waits of the cells of a factorial design: one line a cell in text, a folded table on the page.
//!
//! The effects of factors say which one matters, the cells what a call took there and what it waited for.
//! Values are of each cell's typical trial; nothing here is compared. Next: `tables` for the
//! effects and the list of cells.

use pgio_report::report::format::{self, NONE};
use pgio_report::report::table::{Column, Table};
use pgio_results::latency::{Class, Statistic};
use pgio_results::metrics::latency_metric;
use pgio_results::waits::{GROUPS, WaitGroup};
use pgio_verdict::effects::FactorEffects;
use pgio_verdict::{Analysis, Condition};

/// Classes in the order in which they tell most; a line of text has room for the first two that were timed.
const CLASSES: [Class; 8] = [
    Class::Commit,
    Class::Transaction,
    Class::Update,
    Class::Read,
    Class::Insert,
    Class::Delete,
    Class::Scan,
    Class::Delivery,
];
const MAX_CLASSES: usize = 2;
/// Waits in a line of text: at most this many, of at least this share of the sessions' time.
const MAX_WAITS: usize = 3;
const NAMED_SHARE: f64 = 0.05;
const PERCENTILES: [Statistic; 3] = [Statistic::P50, Statistic::P95, Statistic::P99];
const STATISTICS: [Statistic; 5] =
    [Statistic::Mean, Statistic::P50, Statistic::P95, Statistic::P99, Statistic::P99_9];

/// One line a cell; `None` if no cell has a latency or a wait.
pub(super) fn line_by_line(analysis: &Analysis) -> Option<Table> {
    let cells = &analysis.conditions;
    let timed: Vec<Class> = CLASSES
        .into_iter()
        .filter(|class| cells.iter().any(|cell| percentiles(cell, *class).is_some()))
        .collect();
    // A transaction consists mostly of its commit.
    let has_commits = timed.contains(&Class::Commit);
    let classes: Vec<Class> = timed
        .into_iter()
        .filter(|class| !(has_commits && *class == Class::Transaction))
        .take(MAX_CLASSES)
        .collect();
    let with_waits = cells.iter().any(|cell| !waits(cell).is_empty());
    if classes.is_empty() && !with_waits {
        return None;
    }
    let mut columns = vec![Column::left("cell")];
    columns.extend(classes.iter().map(|c| Column::right(format!("{} p50 / p95 / p99", c.name()))));
    columns.extend(with_waits.then(|| Column::left("most of the sessions' time")));
    let row = |cell: &Condition| {
        let shown = |class: &Class| percentiles(cell, *class).unwrap_or_else(|| NONE.to_owned());
        let mut row = vec![cell.name.clone()];
        row.extend(classes.iter().map(shown));
        row.extend(with_waits.then(|| largest_waits(cell)));
        row
    };
    Some(Table {
        title: "Latency and waits by cell".to_owned(),
        columns,
        rows: cells.iter().map(row).collect(),
        ..Table::default()
    })
}

/// A cell on the page.
pub(super) struct CellDetails {
    /// `cell 3: commit_delay, jit high`
    pub summary: String,
    pub table: Table,
}

/// All latencies and waits of each cell that has any.
pub(super) fn folded(analysis: &Analysis, screened: &FactorEffects) -> Vec<CellDetails> {
    let one = |cell: &Condition| {
        let latencies = CLASSES.into_iter().filter_map(|class| {
            let values = STATISTICS.map(|s| latency(cell, class, s));
            let is_timed = values.iter().any(Option::is_some);
            let cells = values.map(|value| value.unwrap_or_else(|| NONE.to_owned()));
            let name = class.name().to_owned();
            is_timed.then(|| std::iter::once(name).chain(cells).collect::<Vec<_>>())
        });
        let rows: Vec<Vec<String>> = latencies.collect();
        let waits: Vec<String> = waits(cell).into_iter().map(share).collect();
        if rows.is_empty() && waits.is_empty() {
            return None;
        }
        let mut columns = vec![Column::left("operation")];
        columns.extend(STATISTICS.map(|statistic| Column::right(statistic.label())));
        let notes = (!waits.is_empty()).then(|| format!("Sessions' time: {}.", waits.join(", ")));
        let design = screened.cells.iter().find(|design| design.condition == cell.name);
        let high = design.map(|design| design.high.join(", ")).filter(|high| !high.is_empty());
        let summary = match high {
            Some(high) => format!("{}: {high} high", cell.name),
            None => cell.name.clone(),
        };
        let columns = if rows.is_empty() { Vec::new() } else { columns };
        let notes = notes.into_iter().collect();
        Some(CellDetails { summary, table: Table { title: String::new(), columns, rows, notes } })
    };
    analysis.conditions.iter().filter_map(one).collect()
}

fn percentiles(cell: &Condition, class: Class) -> Option<String> {
    let values = PERCENTILES.map(|statistic| {
        let metric = cell.metrics.get(latency_metric(class, statistic)?.name)?;
        Some((metric.value?, metric.at_least))
    });
    format::side_by_side(&values)
}

fn latency(cell: &Condition, class: Class, statistic: Statistic) -> Option<String> {
    let metric = cell.metrics.get(latency_metric(class, statistic)?.name)?;
    Some(format::marked(format::seconds(metric.value?), metric.at_least))
}

/// The groups with a share of the sessions' time, the largest first.
fn waits(cell: &Condition) -> Vec<(WaitGroup, f64)> {
    let share = |group: &WaitGroup| {
        let value = cell.metrics.get(group.metric())?.value.filter(|share| *share > 0.0)?;
        Some((*group, value))
    };
    let mut all: Vec<(WaitGroup, f64)> = GROUPS.iter().filter_map(share).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

/// `WAL flush 62 %, CPU 30 %`
fn largest_waits(cell: &Condition) -> String {
    let large = waits(cell).into_iter().filter(|(_, share)| *share >= NAMED_SHARE).take(MAX_WAITS);
    let shown: Vec<String> = large.map(share).collect();
    if shown.is_empty() { NONE.to_owned() } else { shown.join(", ") }
}

fn share((group, share): (WaitGroup, f64)) -> String {
    format!("{} {:.0} %", group.title(), share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_verdict::analyze;
    use pgio_verdict::test_support::{screened, set};

    fn with_latencies() -> Analysis {
        let mut stored = screened(6);
        for trial in &mut stored.trials {
            let is_slow = trial.place.as_ref().is_some_and(|p| p.condition == "cell 2");
            let base = if is_slow { 0.004 } else { 0.001 };
            for (name, value) in [
                ("commit_latency_p50", base),
                ("commit_latency_p95", base * 2.0),
                ("commit_latency_p99", base * 3.0),
                ("transaction_latency_p50", base * 1.1),
                ("read_latency_mean", 0.000_05),
                ("wait_share_flush", if is_slow { 0.62 } else { 0.3 }),
                ("wait_share_cpu", 0.3),
                ("wait_share_locks", 0.01),
            ] {
                set(trial, name, value);
            }
        }
        analyze(&stored)
    }

    #[test]
    fn a_line_has_the_commits_and_the_largest_waits() {
        let table = line_by_line(&with_latencies()).unwrap();
        let headings: Vec<&str> = table.columns.iter().map(|c| c.heading.as_str()).collect();
        assert_eq!(headings, ["cell", "commit p50 / p95 / p99", "most of the sessions' time"]);
        let row = table.rows.iter().find(|row| row[0] == "cell 2").unwrap();
        assert_eq!(row[1..], ["4.00 / 8.00 / 12.0 ms", "WAL flush 62 %, CPU 30 %"]);
        assert_eq!(table.rows.len(), 16);
    }

    #[test]
    fn a_folded_table_has_every_operation_and_all_waits() {
        let analysis = with_latencies();
        let all = folded(&analysis, analysis.factor_effects.as_ref().unwrap());
        assert_eq!(all.len(), 16);
        assert_eq!(all[1].summary, "cell 2: commit_delay, work_mem high");
        assert_eq!(all[0].summary, "all low");
        let operations: Vec<&str> = all[1].table.rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(operations, ["commit", "transaction", "read"]);
        assert_eq!(all[1].table.rows[2][1..], ["50.0 µs", NONE, NONE, NONE, NONE]);
        assert_eq!(all[1].table.notes, ["Sessions' time: WAL flush 62 %, CPU 30 %, locks 1 %."]);
    }

    #[test]
    fn cells_without_latencies_and_waits_have_no_table() {
        let analysis = analyze(&screened(6));
        assert_eq!(line_by_line(&analysis), None);
        assert!(folded(&analysis, analysis.factor_effects.as_ref().unwrap()).is_empty());
    }
}
