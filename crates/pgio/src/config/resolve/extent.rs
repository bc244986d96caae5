//! What ends a run: time, transactions or calls.

use std::time::Duration;

/// What ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Time(Duration),
    /// Total over all sessions.
    Transactions(u64),
    /// Number per session.
    Calls(u64),
}

impl Extent {
    /// Returns the number of calls of an open loop.
    pub fn calls_at(self, per_second: f64, sessions: u32) -> f64 {
        match self {
            Extent::Time(window) => per_second * window.as_secs_f64(),
            Extent::Transactions(n) => n as f64,
            Extent::Calls(n) => n as f64 * f64::from(sessions),
        }
    }
}
