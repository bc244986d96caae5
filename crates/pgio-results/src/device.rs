//! What `pgio device` measured: plain data, each run on its own, in the order in which they ran.
//!
//! Nothing is judged here; `analysis::device` compares, `report::device` tells.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceRecord {
    /// Such as `fio-3.33`.
    pub fio: String,
    pub started_at: String,
    /// Of the order of places and of random offsets.
    pub seed: u64,
    pub rounds: u32,
    /// The first bytes of each place, which all tests worked on.
    pub region_bytes: u64,
    /// One, or two of which the second is compared with.
    pub places: Vec<DevicePlace>,
    pub tests: Vec<DeviceTest>,
    pub runs: Vec<DeviceRun>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DevicePlace {
    /// As it was named.
    pub name: String,
    /// `block device`, `file` or `scratch file`.
    pub kind: String,
    /// Without symbolic links; of a scratch file its directory.
    pub path: String,
    /// The smallest unit of direct I/O, where it is known.
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
    /// The one of each run's metrics that the test is about.
    pub metric: String,
}

/// One run of one test at one place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceRun {
    /// Counted from 1.
    pub round: u32,
    pub test: String,
    /// Index into the places.
    pub place: usize,
    pub seconds: f64,
    pub operations: u64,
    pub bytes: u64,
    /// By names of the table of metrics, in its units.
    pub metrics: BTreeMap<String, f64>,
}
