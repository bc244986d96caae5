//! An experiment as rows of the results database.
//!
//! Pure: from the stored experiment and its analysis. The rows have no experiment_id yet, which the
//! database draws; `write` puts it in front of each row.

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use pgio_results::store::StoredExperiment;
use pgio_results::{CheckVerdict, Outcome, Trial, wire};
use pgio_verdict::history::Run;
use pgio_verdict::{self as analysis, Analysis, TrialStatus};
use serde::Serialize;

/// What is stored of one experiment.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) run: Run,
    pub(super) pgio: String,
    pub(super) seed: u64,
    pub(super) margin: Option<f64>,
    pub(super) server_version: Option<String>,
    pub(super) manifest: String,
    pub(super) digest: String,
    /// Rows by table, in the order in which they must be inserted.
    pub(super) tables: Vec<TableRows>,
    pub(super) trials: usize,
}

#[derive(Debug)]
pub(super) struct TableRows {
    pub(super) table: &'static str,
    pub(super) columns: &'static str,
    pub(super) rows: Rows,
}

impl Record {
    /// `None` without any trial, because nothing ran and there is no run id.
    pub(super) fn from_stored(stored: &StoredExperiment) -> Option<Record> {
        let run = Run::from_stored(stored)?;
        let analysis = analysis::analyze(stored);
        let statuses = analysis::trial_statuses(stored);
        let tables = vec![
            conditions(&run),
            condition_metrics(&run),
            trials(stored, &statuses),
            trial_metrics(stored),
            comparisons(&analysis),
        ];
        let manifest = json(&stored.manifest);
        Some(Record {
            pgio: stored.manifest.pgio.clone(),
            seed: stored.manifest.seed,
            margin: stored.manifest.rules.matters.filter(|m| m.is_finite()),
            server_version: server_version(stored),
            manifest,
            digest: digest(stored),
            tables,
            trials: stored.trials.len(),
            run,
        })
    }
}

/// The version of the baseline's server, if it has a trial; another condition's may be another.
fn server_version(stored: &StoredExperiment) -> Option<String> {
    let baseline = &stored.manifest.baseline;
    let is_baseline = |t: &&Trial| t.place.as_ref().is_some_and(|p| p.condition == *baseline);
    let trial = stored.trials.iter().find(is_baseline).or_else(|| stored.trials.first());
    trial.map(|trial| trial.server.version.clone())
}

/// Identifies what would be stored: the records, and the pgio that judges them. Much cheaper than a record.
pub(super) fn digest(stored: &StoredExperiment) -> String {
    let mut digest = Sha256::new();
    digest.update(super::schema::VERSION.to_le_bytes());
    digest.update(env!("CARGO_PKG_VERSION"));
    digest.update(json(&stored.manifest));
    for trial in &stored.trials {
        digest.update(wire::to_json(trial));
        digest.update("\n");
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// JSON for a column of type jsonb, which stores no NUL.
pub(super) fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("plain data with string keys always serializes");
    text.replace("\\u0000", "\\ufffd")
}

/// The word that JSON has for a unit variant.
fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// A time that PostgreSQL can read.
pub(super) fn time(text: &str) -> Option<String> {
    text.parse::<Timestamp>().ok().map(|time| time.to_string())
}

fn conditions(run: &Run) -> TableRows {
    let mut rows = Rows::default();
    for (ordinal, c) in (1..).zip(&run.conditions) {
        let ordinal: usize = ordinal;
        rows.plain(ordinal).text(&c.name).text(&c.treatments).plain(c.trials).end();
    }
    TableRows { table: "conditions", columns: "ordinal, condition, treatments, trials", rows }
}

fn condition_metrics(run: &Run) -> TableRows {
    let mut rows = Rows::default();
    for c in &run.conditions {
        for (name, value) in &c.values {
            let unit = run.definition(name).map_or("", |def| def.unit);
            rows.text(&c.name).text(name).text(unit).plain(value).end();
        }
    }
    TableRows { table: "condition_metrics", columns: "condition, metric, unit, value", rows }
}

fn trials(stored: &StoredExperiment, statuses: &[TrialStatus]) -> TableRows {
    let mut rows = Rows::default();
    for ((line, trial), status) in (1..).zip(&stored.trials).zip(statuses) {
        let line: usize = line;
        let place = trial.place.as_ref();
        let invalid = trial.checks.iter().filter(|c| c.verdict == CheckVerdict::Invalid);
        let invalid: Vec<&str> = invalid.map(|c| c.id.as_str()).collect();
        let outcome = match &trial.outcome {
            Outcome::Complete => "complete",
            Outcome::Failed { .. } => "failed",
            Outcome::Interrupted => "interrupted",
        };
        rows.plain(line)
            .text(place.map_or("", |p| &p.condition))
            .plain(place.map_or(1, |p| p.block))
            .plain(place.map_or(1, |p| p.position))
            .plain(place.map_or(0, |p| p.attempt))
            .text(&place.map_or_else(|| "{}".to_owned(), |p| json(&p.point)))
            .optional(time(&trial.started_at).as_deref())
            .plain(if trial.window.seconds.is_finite() { trial.window.seconds } else { 0.0 })
            .text(outcome)
            .text(status.name())
            .text(&invalid.join(" "))
            .end();
    }
    let columns = "line, condition, block, position, attempt, point, started_at, window_seconds, outcome, \
                   standing, invalid_checks";
    TableRows { table: "trials", columns, rows }
}

fn trial_metrics(stored: &StoredExperiment) -> TableRows {
    let mut rows = Rows::default();
    for (line, trial) in (1..).zip(&stored.trials) {
        let line: usize = line;
        for (name, metric) in &trial.metrics {
            let Some(value) = metric.value.filter(|v| v.is_finite()) else { continue };
            rows.plain(line)
                .text(name)
                .text(&metric.unit)
                .plain(value)
                .plain(metric.at_least)
                .end();
        }
    }
    TableRows { table: "trial_metrics", columns: "line, metric, unit, value, at_least", rows }
}

fn comparisons(analysis: &Analysis) -> TableRows {
    let mut rows = Rows::default();
    for c in &analysis.comparisons {
        rows.text(&c.condition).text(&c.metric).plain(c.primary).plain(c.blocks);
        // The table has no column for a bound, so only an estimate is stored.
        for number in [c.estimated_ratio(), c.interval.low, c.interval.high, c.p, c.p_adjusted] {
            rows.number(number);
        }
        rows.text(&word(c.verdict));
        rows.optional(c.decision.map(word).as_deref()).optional(c.gate.map(word).as_deref()).end();
    }
    let columns = "condition, metric, is_primary, blocks, ratio, ratio_low, ratio_high, p, p_adjusted, \
                   verdict, decision, gate";
    TableRows { table: "comparisons", columns, rows }
}

/// Rows in the text format of COPY: a row under construction, ended by [`Row::end`].
#[derive(Debug, Default)]
pub(super) struct Rows {
    text: String,
    in_row: bool,
}

impl Rows {
    pub(super) fn text(&mut self, value: &str) -> &mut Rows {
        self.separate();
        for c in value.chars() {
            match c {
                '\\' => self.text.push_str("\\\\"),
                '\t' => self.text.push_str("\\t"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                // PostgreSQL stores no NUL.
                '\0' => self.text.push(char::REPLACEMENT_CHARACTER),
                c => self.text.push(c),
            }
        }
        self
    }

    /// A number or a boolean.
    pub(super) fn plain(&mut self, value: impl std::fmt::Display) -> &mut Rows {
        self.separate();
        self.text.push_str(&value.to_string());
        self
    }

    pub(super) fn null(&mut self) -> &mut Rows {
        self.separate();
        self.text.push_str("\\N");
        self
    }

    /// Null also for a number that is not finite.
    pub(super) fn number(&mut self, value: Option<f64>) -> &mut Rows {
        match value.filter(|v| v.is_finite()) {
            Some(value) => self.plain(value),
            None => self.null(),
        }
    }

    pub(super) fn optional(&mut self, value: Option<&str>) -> &mut Rows {
        match value {
            Some(value) => self.text(value),
            None => self.null(),
        }
    }

    pub(super) fn end(&mut self) {
        self.text.push('\n');
        self.in_row = false;
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    fn separate(&mut self) {
        if self.in_row {
            self.text.push('\t');
        }
        self.in_row = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_verdict::test_support::{demo, stored_runs};

    #[test]
    fn a_record_has_a_row_for_everything_and_one_digest() {
        let stored = stored_runs(2, f64::from);
        let record = Record::from_stored(&stored[0]).unwrap();
        let lines = |name: &str| {
            let table = record.tables.iter().find(|t| t.table == name).unwrap();
            let columns = table.columns.split(',').count();
            assert!(
                table.rows.as_str().lines().all(|line| line.split('\t').count() == columns),
                "{name}"
            );
            table.rows.as_str().lines().count()
        };
        let counts = ["conditions", "condition_metrics", "trials", "trial_metrics", "comparisons"]
            .map(lines);
        assert_eq!(counts, [3, 3, 12, 12, 2]);
        assert_eq!(record.digest, Record::from_stored(&stored[0]).unwrap().digest);
        let mut longer = stored[0].clone();
        longer.trials.push(longer.trials[0].clone());
        assert_ne!(record.digest, Record::from_stored(&longer).unwrap().digest);
        assert_eq!(record.digest.len(), 64);
    }

    #[test]
    fn the_version_is_that_of_the_baselines_server_whichever_condition_ran_first() {
        let mut stored = demo();
        for t in stored.trials.iter_mut().filter(|t| t.place.as_ref().unwrap().condition == "on") {
            t.server.version = "18.1".to_owned();
        }
        stored.trials.swap(0, 3);
        assert_eq!(stored.trials[0].server.version, "18.1");
        assert_eq!(Record::from_stored(&stored).unwrap().server_version.as_deref(), Some("15.14"));
    }

    #[test]
    fn an_effect_that_is_only_a_bound_is_stored_as_its_known_end() {
        let mut stored = demo();
        stored.manifest.rules.also_judge = vec!["commit_latency_p95".to_owned()];
        for t in stored.trials.iter_mut().filter(|t| t.place.as_ref().unwrap().condition == "on") {
            t.metrics.get_mut("commit_latency_p95").unwrap().at_least = true;
        }
        let record = Record::from_stored(&stored).unwrap();
        let table = record.tables.iter().find(|t| t.table == "comparisons").unwrap();
        let known = |condition: &str| -> Vec<bool> {
            let start = format!("{condition}\tcommit_latency_p95\t");
            let row = table.rows.as_str().lines().find(|row| row.starts_with(&start)).unwrap();
            row.split('\t').skip(4).take(3).map(|number| number != "\\N").collect()
        };
        assert_eq!(known("on"), [false, true, false]);
        assert_eq!(known("remote_write"), [true, true, true]);
    }

    #[test]
    fn values_are_escaped() {
        let mut rows = Rows::default();
        rows.text("a\tb\\c\nd\0").number(Some(0.1)).number(Some(f64::NAN)).optional(None).end();
        rows.plain(7).plain(true).end();
        assert_eq!(rows.as_str(), "a\\tb\\\\c\\nd\u{fffd}\t0.1\t\\N\t\\N\n7\ttrue\n");
    }
}
