//! The result of a slice, and the sums over slices and sessions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::SliceArgs;
use super::sql::{self, fill};
use pgio_results::histogram::Histogram;
use pgio_results::latency::Class;
use pgio_results::model::SessionTotals;

/// The name of a further count: blocks read by scans.
pub(super) const BLOCKS_SCANNED: &str = "blocks_scanned";

/// Each call of `slob` is timed in one of these classes.
pub(super) const SLOB_CALLS: [Class; 5] =
    [Class::Read, Class::Update, Class::Scan, Class::Insert, Class::Delete];

impl SliceArgs {
    /// Returns the DO statement of this slice.
    pub(super) fn statement(&self, block: &str) -> String {
        let block = fill_slice(
            block,
            &or_null(self.start_at.map(timestamp)),
            &timestamp(self.until_at),
            &or_null(self.seed),
            &or_null(self.at_most),
        );
        fill(sql::BLOCK.trim_end(), &[("block", &block)])
    }
}

/// Returns the DO statement of a slice of a woven window; its parts end at these moments.
pub(super) fn woven_statement(block: &str, ends: [f64; 3], seed: Option<f64>) -> String {
    let seed = seed.map(|seed| format!("CASE weave_part WHEN 1 THEN {seed} END"));
    let block = fill_slice(block, "NULL", "weave_ends[weave_part]", &or_null(seed), "NULL");
    let ends = ends.map(timestamp).join(", ");
    fill(sql::WOVEN.trim_end(), &[("ends", &ends), ("block", &block)])
}

fn fill_slice(block: &str, start_at: &str, until_at: &str, seed: &str, at_most: &str) -> String {
    let values =
        [("start_at", start_at), ("until_at", until_at), ("seed", seed), ("at_most", at_most)];
    fill(block.trim_end(), &values)
}

fn or_null<T: ToString>(value: Option<T>) -> String {
    value.map_or("NULL".to_owned(), |v| v.to_string())
}

/// Returns a moment in seconds.
pub(super) fn seconds(us: i64) -> f64 {
    us as f64 / 1e6
}

/// Formats a moment of the server's clock; a timestamptz holds microseconds.
fn timestamp(epoch_seconds: f64) -> String {
    if epoch_seconds.is_finite() {
        format!("to_timestamp({epoch_seconds:.6})")
    } else {
        "'infinity'".to_owned()
    }
}

/// The JSON that a workload's block writes to `pgio.result`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct SliceResult {
    /// Since the epoch on the server's clock.
    pub began_us: i64,
    pub ended_us: i64,
    #[serde(default)]
    pub blocks_read: u64,
    #[serde(default)]
    pub rows_updated: i64,
    #[serde(default)]
    pub rows_inserted: u64,
    #[serde(default)]
    pub deadlocks: u64,
    #[serde(default)]
    pub rows_lost: u64,
    #[serde(default)]
    pub counts: BTreeMap<String, i64>,
    classes: BTreeMap<String, ClassResult>,
}

#[derive(Debug, Clone, Deserialize)]
struct ClassResult {
    us: i64,
    max: i64,
    h: Vec<u64>,
}

/// The work of one session or of all sessions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Totals {
    #[serde(with = "pgio_results::histogram")]
    pub histograms: BTreeMap<String, Histogram>,
    pub blocks_read: u64,
    pub rows_updated: u64,
    pub rows_inserted: u64,
    pub rows_lost: u64,
    pub deadlocks: u64,
    /// Further counts of a workload, by name.
    pub counts: BTreeMap<String, f64>,
    /// Calls of the client-side engine that were answered, that began, and that were due inside the
    /// window of an open loop.
    pub calls: u64,
    pub begun: u64,
    pub due: u64,
    /// Commits that are part of an update, whose latency includes them.
    pub commits_within: u64,
}

impl Totals {
    /// Returns the number of operations of a class.
    pub fn count(&self, class: &str) -> u64 {
        self.histograms.get(class).map_or(0, Histogram::count)
    }

    pub fn commits(&self) -> u64 {
        self.count("commit") + self.commits_within
    }

    /// Returns the blocks visited: each row read or updated is in a block of its own.
    pub fn block_visits(&self) -> u64 {
        self.blocks_read + self.rows_updated
    }

    pub fn merge(&mut self, other: &Totals) {
        for (class, h) in &other.histograms {
            self.histograms.entry(class.clone()).or_default().merge(h);
        }
        self.blocks_read += other.blocks_read;
        self.rows_updated += other.rows_updated;
        self.rows_inserted += other.rows_inserted;
        self.rows_lost += other.rows_lost;
        self.deadlocks += other.deadlocks;
        for (name, n) in &other.counts {
            *self.counts.entry(name.clone()).or_default() += n;
        }
        self.calls += other.calls;
        self.begun += other.begun;
        self.due += other.due;
        self.commits_within += other.commits_within;
    }

    /// Returns one of the further counts; 0 if it is not counted.
    pub fn counted(&self, name: &str) -> f64 {
        self.counts.get(name).copied().unwrap_or(0.0)
    }

    pub fn blocks_scanned(&self) -> u64 {
        self.counted(BLOCKS_SCANNED) as u64
    }

    /// Returns the unit of a fixed amount of work: calls if the workload counts them, else commits.
    pub(super) fn work_units(&self) -> u64 {
        self.counts.get("calls").map_or_else(|| self.count("commit"), |calls| *calls as u64)
    }

    /// Returns the calls of `slob` that ended.
    pub fn slob_calls(&self) -> u64 {
        SLOB_CALLS.iter().map(|class| self.count(class.name())).sum()
    }

    /// Returns the calls that ended: calls of `slob`, some of which commit, or commits.
    pub(super) fn ended_calls(&self) -> u64 {
        match self.slob_calls() {
            0 => self.count(Class::Commit.name()),
            calls => calls,
        }
    }

    pub(super) fn from_slice(slice: SliceResult) -> Option<Totals> {
        let mut histograms = BTreeMap::new();
        for (class, c) in slice.classes {
            let [sum, max] = [c.us, c.max].map(|us| us as f64 * 1e3);
            histograms.insert(class, Histogram::from_parts(&c.h, sum, max)?);
        }
        Some(Totals {
            histograms,
            blocks_read: slice.blocks_read,
            // A rollback can subtract rows of an earlier slice: never go below zero.
            rows_updated: u64::try_from(slice.rows_updated).unwrap_or(0),
            rows_inserted: slice.rows_inserted,
            rows_lost: slice.rows_lost,
            deadlocks: slice.deadlocks,
            counts: slice.counts.into_iter().map(|(name, n)| (name, n as f64)).collect(),
            ..Totals::default()
        })
    }

    pub(super) fn to_session_totals(&self, pid: i32, table: &str) -> SessionTotals {
        let longest = |class: &str| {
            self.histograms.get(class).and_then(Histogram::answered_max_ns).unwrap_or(0.0) / 1e9
        };
        SessionTotals {
            pid,
            table: table.to_owned(),
            reads: self.count("read"),
            updates: self.count("update"),
            commits: self.count("commit"),
            rows_updated: self.rows_updated,
            blocks_read: self.blocks_read,
            read_max_seconds: longest("read"),
            update_max_seconds: longest("update"),
            commit_max_seconds: longest("commit"),
            deadlocks: self.deadlocks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_keep_their_microseconds() {
        assert_eq!(timestamp(1_700_000_000.123_456), "to_timestamp(1700000000.123456)");
        assert_eq!(timestamp(f64::INFINITY), "'infinity'");
    }

    #[test]
    fn a_woven_slice_is_one_statement_whose_parts_end_one_after_the_other() {
        let block = "DECLARE until_at CONSTANT timestamptz := {until_at}; s float8 := {seed};\n\
                     BEGIN {start_at} {at_most} {table} END\n";
        let woven = woven_statement(block, [1.0, 2.5, 4.0], Some(0.5));
        assert!(woven.ends_with("$pgio$"), "{woven}");
        assert_eq!(woven.matches("DO $pgio$").count(), 1);
        let ends = "ARRAY[to_timestamp(1.000000), to_timestamp(2.500000), to_timestamp(4.000000)]";
        let once = "CASE weave_part WHEN 1 THEN 0.5 END";
        for part in [ends, "until_at CONSTANT timestamptz := weave_ends[weave_part];", once] {
            assert!(woven.contains(part), "{part}: {woven}");
        }
        assert!(woven.contains("BEGIN NULL NULL {table} END;\n"), "{woven}");
        let later = woven_statement(block, [1.0, 2.5, 4.0], None);
        assert!(later.contains("s float8 := NULL;"), "{later}");
    }

    #[test]
    fn calls_are_counted_whatever_the_workload() {
        let totals = |counts: &[(&str, u64)]| {
            let mut totals = Totals::default();
            for (class, n) in counts {
                let bins = std::iter::repeat_n(0, 3).chain([*n]).collect::<Vec<u64>>();
                let histogram = Histogram::from_parts(&bins, 1.0, 1.0).unwrap();
                totals.histograms.insert((*class).to_owned(), histogram);
            }
            totals
        };
        // Reads do not commit, and some sessions commit once in many calls.
        assert_eq!(totals(&[("read", 9)]).ended_calls(), 9);
        assert_eq!(totals(&[("read", 9), ("update", 3), ("commit", 1)]).ended_calls(), 12);
        assert_eq!(totals(&[("commit", 5), ("transaction", 5)]).ended_calls(), 5);
        assert_eq!(totals(&[("scan", 1), ("insert", 2), ("delete", 3)]).ended_calls(), 6);
        assert_eq!(Totals::default().ended_calls(), 0);
    }

    #[test]
    fn a_slice_is_read_and_merged() {
        let json = r#"{"began_us":1000000,"ended_us":2000000,"blocks_read":255,"rows_updated":8,
            "counts":{"hot":3},"classes":{"read":{"us":10,"max":10,"h":[0,0,1]}}}"#;
        let slice: SliceResult = serde_json::from_str(json).unwrap();
        let mut totals = Totals::from_slice(slice).unwrap();
        totals.merge(&totals.clone());
        assert_eq!((totals.count("read"), totals.block_visits()), (2, 526));
        assert_eq!(
            (totals.counted("hot"), totals.counted("cold"), totals.work_units()),
            (6.0, 0.0, 0)
        );
        assert_eq!(totals.histograms["read"].answered_mean_ns(), Some(10_000.0));
    }
}
