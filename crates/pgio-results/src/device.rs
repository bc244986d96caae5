//! Results of `pgio device`: plain data, one record per run, in execution order.
//!
//! Nothing is judged here; `analysis::device` compares, `report::device` prints.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
