//! Settings of the workload `slob`, and what ends a run.

use std::time::Duration;

use super::features::Features;
use crate::config::engine::Engine;
use crate::config::value::Access;
use pgio_results::units::Scale;

/// Settings of the workload `slob`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlobSettings {
    pub update_pct: u8,
    pub run_time: Duration,
    pub warmup: Duration,
    pub num_schemas: u32,
    pub num_threads: u32,
    /// Total number of sessions; absent: NUM_THREADS on each table.
    pub sessions: Option<u32>,
    /// Blocks.
    pub work_unit: u64,
    /// Blocks.
    pub update_work_unit: u64,
    pub scale: Scale,
    pub access: Access,
    /// Update calls per transaction; 0 is one transaction per session.
    pub commit_every: u32,
    pub batch: u32,
    /// Features beyond uniform reads and updates.
    pub features: Features,
    pub engine: Engine,
    /// Absent: drawn and recorded.
    pub seed: Option<u64>,
}

impl SlobSettings {
    /// Number of tables that the workload uses.
    pub fn tables(&self) -> u32 {
        if self.features.single_table { 1 } else { self.num_schemas }
    }

    pub fn sessions(&self) -> u32 {
        self.sessions.unwrap_or(self.num_schemas * self.num_threads)
    }

    /// Number of tables that a session visits in turn: more than one only if there are fewer sessions
    /// than tables.
    pub fn tables_per_session(&self) -> u32 {
        self.tables().div_ceil(self.sessions())
    }

    pub fn extent(&self) -> Extent {
        match self.features.work_loop {
            Some(calls) => Extent::Calls(calls),
            None => Extent::Time(self.run_time),
        }
    }

    /// Returns whether the workload changes no data.
    pub fn read_only(&self) -> bool {
        self.update_pct == 0 && self.features.turnover_pct.is_zero()
    }
}

/// What ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Extent {
    Time(Duration),
    /// Total over all sessions.
    Transactions(u64),
    /// Number per session.
    Calls(u64),
}

impl Extent {
    /// Returns the time after which the run ends; `None` if an amount of work ends it.
    pub fn time(self) -> Option<Duration> {
        match self {
            Extent::Time(window) => Some(window),
            Extent::Transactions(_) | Extent::Calls(_) => None,
        }
    }

    /// Returns the number of calls of an open loop.
    pub fn calls_at(self, per_second: f64, sessions: u32) -> f64 {
        match self {
            Extent::Time(window) => per_second * window.as_secs_f64(),
            Extent::Transactions(n) => n as f64,
            Extent::Calls(n) => n as f64 * f64::from(sessions),
        }
    }
}
