//! A trial and its parts, in memory as in the stored form.
//!
//! Base units are seconds for reported time spans, bytes, and blocks. Only histograms have a form of
//! their own when stored (`histogram::stored`). Next: `wire` reads and writes the record.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::joint::{ClockOffset, GeneratorPart};
use super::latency::Work;
use super::points::{Cell, Point};
use super::telemetry::Telemetry;
use crate::histogram::Histogram;
use crate::units::Layout;

#[cfg(feature = "schema")]
use crate::histogram::HistogramV1;

/// Facts about the environment: values by name, such as `setting.fsync` or `host.kernel`.
pub type Facts = BTreeMap<String, String>;

pub const TRIAL_SCHEMA: &str = "pgio.trial/1";

/// One run of the workload under one condition, complete or not.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trial {
    /// Always `pgio.trial/1`.
    pub schema: String,
    /// The version of pgio that wrote it.
    pub pgio: String,
    /// The run of the experiment that it belongs to.
    pub run_id: String,
    /// Its position in the experiment; absent for a single `pgio run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<TrialPosition>,
    /// Only complete trials are compared.
    pub outcome: Outcome,
    /// The server's clock when the window opened, RFC 3339.
    pub started_at: String,
    pub window: Window,
    pub workload: WorkloadInfo,
    /// The data set of the workload `slob`.
    pub dataset: Option<DatasetInfo>,
    /// The seed of its work, derived from the experiment's and the names of its place.
    pub seed: u64,
    pub server: ServerInfo,
    /// Settings pinned in every session of the workload, as read back there.
    pub settings: BTreeMap<String, String>,
    /// By the names in KEYS.md; a command's are declared in the manifest.
    pub metrics: BTreeMap<String, Metric>,
    /// Histograms by class of operation, such as `read`, `update`, `commit`.
    #[serde(with = "crate::histogram")]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, HistogramV1>"))]
    pub histograms: BTreeMap<String, Histogram>,
    /// What each session did; of the workload `commit`, only `commits` is counted.
    pub sessions: Vec<SessionTotals>,
    /// The window in slices of about a second, at most 10,000.
    pub timeline: Vec<Slice>,
    /// How it took turns with the other conditions of its block; absent if it had a window of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woven: Option<Woven>,
    /// The servers that shared its window, by target; empty if one server had it alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub targets: BTreeMap<String, TargetResult>,
    /// The processes that generated the load, if there were several.
    #[serde(default, rename = "drivers", skip_serializing_if = "Vec::is_empty")]
    pub generators: Vec<GeneratorPart>,
    /// pg_stat_database before and after the window.
    pub database: Option<DatabaseCounters>,
    /// What was observed beside the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
    /// Work that ran beside it, by name.
    #[serde(default, rename = "background", skip_serializing_if = "BTreeMap::is_empty")]
    pub companions: BTreeMap<String, CompanionUse>,
    /// The file with its samples, such as `series/0007.json`, relative to the results directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
    /// Non-default server settings, kernel, mounts, schedulers and CPU governor when the window
    /// opened; they must not differ between conditions. Trials read from a store share equal
    /// values. Names are such as `setting.NAME`, `host.kernel`, `host.vm.dirty_ratio`, `data.mount`, `wal.scheduler`,
    /// `standby.DIRECTORY.SETTING`, `drbd.protocol.RESOURCE`. No setting is there that may hold a secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: Arc<Facts>,
    /// What was read back before, during and after the window.
    pub evidence: Vec<Evidence>,
    /// With an `invalid` one the trial does not count.
    pub checks: Vec<Check>,
    pub warnings: Vec<Warning>,
}

/// What background work did during a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BackgroundUse"))]
pub struct CompanionUse {
    /// The target that it worked on.
    pub target: String,
    /// The standby of that target, if it worked on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<String>,
    /// The kind of workload.
    pub kind: String,
    /// The name of its rate, such as `commits_per_second`; `share_of_window` for a program without a metric.
    pub metric: String,
    /// Over the window; of a program over its whole run. Absent if it did nothing that counts.
    pub value: Option<f64>,
}

/// Block number of the burn-in trial, which precedes block 1.
pub const BURN_IN_BLOCK: u32 = 0;

impl Trial {
    /// An empty record of this version.
    pub fn new() -> Trial {
        let pgio = env!("CARGO_PKG_VERSION").to_owned();
        Trial { schema: TRIAL_SCHEMA.to_owned(), pgio, ..Trial::default() }
    }

    /// Shares the facts with one of these trials that has equal ones, so that a thousand trials keep them once.
    pub fn share_environment<'a>(&mut self, others: impl IntoIterator<Item = &'a Trial>) {
        let mut others = others.into_iter();
        if let Some(same) = others.find(|other| other.environment == self.environment) {
            self.environment = Arc::clone(&same.environment);
        }
    }

    /// Whether it ran under this condition.
    pub fn is_of(&self, condition: &str) -> bool {
        self.place.as_ref().is_some_and(|place| place.condition == condition)
    }

    /// Whether it ran before block 1 to warm up the server: stored and shown, never counted or
    /// compared.
    pub fn is_burn_in(&self) -> bool {
        self.place.as_ref().is_some_and(TrialPosition::is_burn_in)
    }

    /// Seconds that telemetry and the server's counters cover: the window, with all conditions of a woven
    /// one.
    pub fn observed_seconds(&self) -> f64 {
        self.woven.as_ref().map_or(self.window.seconds, |woven| woven.window_seconds)
    }

    /// Telemetry of this trial alone; `None` in a woven window, whose hosts, devices and standbys served all its
    /// conditions.
    pub fn own_telemetry(&self) -> Option<&Telemetry> {
        self.telemetry.as_ref().filter(|_| self.woven.is_none())
    }

    /// Whether it is complete and no check invalidates it.
    pub fn is_valid(&self) -> bool {
        self.outcome == Outcome::Complete
            && self.checks.iter().all(|c| c.verdict != CheckVerdict::Invalid)
    }
}

/// A trial's position in its experiment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialPosition {
    pub experiment: String,
    pub condition: String,
    /// Numbered from 1; 0 is the burn-in trial, which never counts.
    pub block: u32,
    /// Position within its block, numbered from 1.
    pub position: u32,
    /// Number of this attempt, from 0; above 0 for a repeat, for the baseline repeated beside it, or after an
    /// interruption.
    /// The last attempt counts, paired with the baseline's trial of the same attempt.
    #[serde(default)]
    pub attempt: u32,
    /// A value for each axis of the sweep; absent without a sweep.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub point: Point,
}

impl TrialPosition {
    pub fn is_burn_in(&self) -> bool {
        self.block == BURN_IN_BLOCK
    }

    /// Whether the trial belongs to this cell.
    pub fn is_in(&self, cell: &Cell) -> bool {
        self.condition == cell.condition && self.point == cell.point
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Outcome {
    #[default]
    Complete,
    Failed {
        error: String,
    },
    /// Stopped by the user inside the window; its data are kept but never compared.
    Interrupted,
}

/// The measuring window, common to all sessions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Window {
    /// Requested seconds; absent if a fixed number of transactions or calls was requested.
    pub asked_seconds: Option<f64>,
    /// Seconds from the common start to the last operation of the last session.
    /// All rates are per these.
    pub seconds: f64,
    /// Requested seconds of warm-up.
    pub warmup_seconds: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkloadInfo {
    pub kind: String,
    pub primary_metric: String,
    /// The workload's keys as resolved, such as `update_pct`.
    pub keys: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DatasetInfo {
    pub tables: u32,
    /// As requested, such as `200M`.
    pub scale: String,
    pub blocks_per_table: u64,
    pub seed: u64,
    pub layout: Layout,
    /// Bytes of all tables and their indexes at the start and end of the trial.
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Bytes of the rows from which the workload draws, if that is only a part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_used: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerInfo {
    /// `server_version`, such as `15.14 (Debian 15.14-0+deb12u1)`.
    pub version: String,
    pub version_num: u32,
    pub database: String,
    /// Under the trial's condition.
    pub shared_buffers: String,
    /// The connection target, without secrets.
    pub target: String,
    /// `off` if it was off at either end of the window; so is `full_page_writes`.
    pub fsync: String,
    pub full_page_writes: String,
    /// When the server was started, in seconds since 1970 by its clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<i64>,
}

/// One server of a trial, by the name of its target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TargetResult {
    pub server: ServerInfo,
    /// Seconds from the common start to the last operation of its last session.
    pub seconds: f64,
    pub dataset: Option<DatasetInfo>,
    /// Settings pinned in its sessions, as read back there.
    pub settings: BTreeMap<String, String>,
    pub sessions: Vec<SessionTotals>,
    pub metrics: BTreeMap<String, Metric>,
    /// Its part of the sum of the primary metric; absent if the metric is no rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    pub database: Option<DatabaseCounters>,
    /// Storage, wait events, standbys and probes; the trial's own telemetry has the hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: Facts,
    /// Its clock against pgio's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
}

/// A window shared by all conditions of a block, which took turns in short slices.
///
/// Counters of the server and telemetry of its hosts cover the whole window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Woven {
    /// Mean counted length of a slice.
    pub slice_seconds: f64,
    /// Uncounted time at the start of each slice.
    pub guard_seconds: f64,
    /// The condition's slices.
    pub slices: u32,
    /// Seconds of the whole window, with all conditions, guards and waits.
    pub window_seconds: f64,
    /// The rate of work in the second halves of the slices divided by that in the first halves; absent
    /// without work.
    pub halves: Option<f64>,
    /// The rate in the slices that followed each condition divided by the rate in all slices.
    #[serde(default)]
    pub after: BTreeMap<String, f64>,
    /// Standard error of the logarithm of `halves`, from the differences between slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halves_error: Option<f64>,
    /// Standard errors of the logarithms of `after`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub after_errors: BTreeMap<String, f64>,
}

/// Totals of one session inside the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionTotals {
    pub pid: i32,
    /// The table it worked on, such as `pgio1`.
    pub table: String,
    pub reads: u64,
    pub updates: u64,
    pub commits: u64,
    pub rows_updated: u64,
    pub blocks_read: u64,
    pub read_max_seconds: f64,
    pub update_max_seconds: f64,
    pub commit_max_seconds: f64,
    pub deadlocks: u64,
}

/// Totals of all sessions in about one second of the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Slice {
    /// Seconds from the start of the window to the end of the slice.
    pub at: f64,
    pub seconds: f64,
    pub block_visits: u64,
    pub rows_updated: u64,
    pub commits: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub messages: u64,
    /// In an open loop, calls or messages answered in the slice; the last slice includes those cut
    /// off by the end of the window.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub timed: u64,
    /// The sum of their latencies, or of their lower bounds.
    #[serde(default, skip_serializing_if = "is_zero_span")]
    pub latency_seconds: f64,
}

impl Slice {
    /// Adds the work of another slice, not its time.
    pub fn add_work(&mut self, slice: &Slice) {
        self.block_visits += slice.block_visits;
        self.rows_updated += slice.rows_updated;
        self.commits += slice.commits;
        self.messages += slice.messages;
        self.timed += slice.timed;
        self.latency_seconds += slice.latency_seconds;
    }

    /// Adds the slice of the same number of others that worked at the same time. The last one ends with the last of
    /// them.
    pub fn add_parallel(&mut self, slice: &Slice) {
        self.add_work(slice);
        self.at = self.at.max(slice.at);
        self.seconds = self.seconds.max(slice.seconds);
    }

    pub fn done(&self, work: Work) -> u64 {
        match work {
            Work::BlockVisits => self.block_visits,
            Work::RowsUpdated => self.rows_updated,
            Work::Commits => self.commits,
            Work::Messages => self.messages,
        }
    }
}

/// Fields that most workloads do not use are not stored.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_zero_span(seconds: &f64) -> bool {
    *seconds == 0.0
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Metric {
    /// Absent if it could not be measured or is meaningless.
    pub value: Option<f64>,
    pub unit: String,
    /// Whether the value is a lower bound because it depends on operations cut off by the end of
    /// the window.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
}

impl Metric {
    pub fn new(value: Option<f64>, unit: impl Into<String>) -> Metric {
        Metric { value, unit: unit.into(), at_least: false }
    }
}

/// Columns of the BEFORE and AFTER lines of the original pgio.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DatabaseRow {
    pub blks_hit: i64,
    pub blks_read: i64,
    pub tup_returned: i64,
    pub tup_fetched: i64,
    pub tup_updated: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DatabaseCounters {
    pub before: DatabaseRow,
    pub after: DatabaseRow,
}

/// A value read back to prove that a treatment was in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evidence {
    pub when: When,
    /// Such as `synchronous_commit` or `sync_state of pgio_standby`.
    pub what: String,
    pub found: String,
    /// The expected value; absent if the value is only recorded.
    pub expected: Option<String>,
}

impl Evidence {
    pub fn holds(&self) -> bool {
        self.expected.as_ref().is_none_or(|e| *e == self.found)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum When {
    Before,
    During,
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckVerdict {
    Ok,
    Warning,
    Invalid,
}

/// A named validity check of one trial, with its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// Stable identifier, such as `treatment-in-force`.
    pub id: String,
    pub verdict: CheckVerdict,
    pub message: String,
    /// A hint what to do; empty if the verdict is ok.
    pub remedy: String,
    /// Whether it judges how the condition behaved, so that the share of trials with a warning is a result. Written
    /// only if true; records of earlier versions lack it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub behavior: bool,
}

impl Check {
    pub fn ok(id: &str, message: impl Into<String>) -> Check {
        Check::new(id, CheckVerdict::Ok, message, "")
    }

    pub fn warning(id: &str, message: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check::new(id, CheckVerdict::Warning, message, remedy)
    }

    pub fn invalid(id: &str, message: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check::new(id, CheckVerdict::Invalid, message, remedy)
    }

    fn new(
        id: &str,
        verdict: CheckVerdict,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Check {
        let (message, remedy) = (message.into(), remedy.into());
        Check { id: id.to_owned(), verdict, message, remedy, behavior: false }
    }
}

// What happened, why, and what to try. Results carry warnings; reports show them last.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Warning {
    pub what: String,
    pub why: String,
    #[serde(rename = "try")]
    pub try_this: String,
}

impl Warning {
    pub fn new(
        what: impl Into<String>,
        why: impl Into<String>,
        try_this: impl Into<String>,
    ) -> Warning {
        Warning { what: what.into(), why: why.into(), try_this: try_this.into() }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.why, self.try_this)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceRecord {
    /// Such as `fio-3.33`.
    pub fio: String,
    pub started_at: String,
    /// Seed for the order of places and for random offsets.
    pub seed: u64,
    pub rounds: u32,
    /// Size of the region at the start of each place that all tests used.
    pub region_bytes: u64,
    /// One place, or two; the second one is the baseline.
    pub places: Vec<DevicePlace>,
    pub tests: Vec<DeviceTest>,
    pub runs: Vec<DeviceRun>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DevicePlace {
    /// Name on the command line.
    pub name: String,
    /// `block device`, `file` or `scratch file`.
    pub kind: String,
    /// Path without symbolic links; for a scratch file, its directory.
    pub path: String,
    /// The smallest unit of direct I/O, if known.
    pub sector_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceTest {
    /// Such as `random_read-8192-32`.
    pub name: String,
    /// `throughput`, `latency`, `random_read` or `random_write`.
    pub kind: String,
    pub block_bytes: u64,
    /// Requests in flight.
    pub depth: u32,
    /// The primary metric of the test.
    pub metric: String,
}

/// One run of one test at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceRun {
    /// Numbered from 1.
    pub round: u32,
    pub test: String,
    /// Index into the places.
    pub place: usize,
    pub seconds: f64,
    pub operations: u64,
    pub bytes: u64,
    /// Values by metric name, in the units of the table of metrics.
    pub metrics: BTreeMap<String, f64>,
}
