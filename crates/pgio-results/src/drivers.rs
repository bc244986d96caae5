//! The part that one driver had in a trial, as stored in the trial's record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
#[cfg(feature = "schema")]
use crate::histogram::stored::HistogramV1;

/// One of several processes that generated the load, each with its range of the sessions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DriverPart {
    /// From 0.
    pub rank: u32,
    /// The name of its host, as the host says.
    pub host: String,
    /// The addresses of its sessions, as the server sees them; empty for a Unix-domain socket.
    pub addresses: Vec<String>,
    /// Its first session among those of the trial, from 0, and how many it had.
    pub first_session: u32,
    pub sessions: u32,
    /// Its calls that were answered.
    pub calls: u64,
    /// Seconds from the common start to its last answer.
    pub seconds: f64,
    /// Seconds by which it opened its window after the common start, on the coordinator's clock.
    pub opened_late_seconds: f64,
    /// The quickest and the slowest of the round trips from which its clock's offset was taken.
    pub round_trip_seconds: f64,
    pub worst_round_trip_seconds: f64,
    /// CPU time of its process inside the window, and the processors that it may use.
    pub cpu_seconds: f64,
    pub cores: u32,
    /// Histograms by class of operation; those of the trial are their sums.
    #[serde(with = "crate::histogram::stored")]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, HistogramV1>"))]
    pub histograms: BTreeMap<String, Histogram>,
}
