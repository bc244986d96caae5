//! The wide table for spreadsheets: a row for each trial, a column for each metric.
//!
//! Pivot tables and plots need the trials themselves. Values are in base units (seconds, bytes), without
//! rounding; a lower bound is left empty, because a cell cannot say that it is one. `csv` renders the table.

use super::csv::number;
use super::table::{Column, Table};
use crate::analysis::{TrialStatus, trial_statuses};
use pgio_results::Trial;
use pgio_results::metrics;
use pgio_results::store::StoredExperiment;
use pgio_results::sweep::value_text;

const COLUMNS: [&str; 13] = [
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

/// All trials of these experiments, which share the columns.
pub fn flat(experiments: &[&StoredExperiment]) -> Table {
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
        all.map(|((line, trial), status)| row(stored, line, trial, status, &names))
            .collect::<Vec<_>>()
    });
    Table {
        title: String::new(),
        rows: rows.collect(),
        columns: COLUMNS
            .into_iter()
            .chain(names.iter().map(String::as_str))
            .map(Column::left)
            .collect(),
        notes: Vec::new(),
    }
}

fn row(
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
            let point =
                place.point.iter().map(|(axis, value)| format!("{axis} = {}", value_text(value)));
            cells.push(point.collect::<Vec<_>>().join("; "));
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
    use crate::analysis::test_support::demo;
    use crate::report::csv;

    #[test]
    fn a_trial_is_a_row_and_a_metric_a_column() {
        let stored = demo();
        let table = flat(&[&stored, &stored]);
        assert_eq!(table.rows.len(), 2 * stored.trials.len());
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        let rendered = csv::render(&table);
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
