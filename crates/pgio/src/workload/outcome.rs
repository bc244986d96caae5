//! The events of an open window and the outcome of a closed one, as the caller receives them.
//!
//! Plain data, the same for every kind of work; nothing here waits, connects or decides.

use std::collections::BTreeSet;
use std::time::Instant;

use super::Totals;
use super::command::{ProgramOutput, StatusLine};
use super::error::EngineError;
use pgio_mail::session::Sent;
use pgio_results::joint::DriverPart;
use pgio_results::model::{Check, SessionTotals, Slice};

/// The progress of the window.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    pub elapsed: f64,
    /// Seconds of the window that the counts cover, averaged over the sessions: counts arrive once per
    /// slice, so `elapsed` is ahead of them.
    pub covered: f64,
    pub block_visits: u64,
    pub blocks_scanned: u64,
    pub commits: u64,
    /// The last line that a program printed.
    pub status: StatusLine,
    pub messages: u64,
}

/// A larger lag between counts and clock means a standstill, not a long slice.
const MAX_LAG_SECONDS: f64 = 2.0;

/// A rate of a progress: its metric, the count, and how many of the metric's seconds are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    pub metric: &'static str,
    pub count: u64,
    /// Seconds of the unit of time in the metric's name.
    pub unit: u32,
}

impl Progress {
    /// Returns the count of the primary metric, or of what the work does if that is no rate: at a given rate it is
    /// a latency.
    pub fn primary_count(&self, primary: &str) -> Option<Counted> {
        let all = [
            ("commits_per_second", self.commits, 1),
            ("messages_per_minute", self.messages, 60),
            ("block_visits_per_second", self.block_visits, 1),
            ("blocks_scanned_per_second", self.blocks_scanned, 1),
        ];
        let all = all.map(|(metric, count, unit)| Counted { metric, count, unit });
        let named = all.iter().find(|c| c.metric == primary);
        named.into_iter().chain(&all).find(|c| c.count > 0).copied()
    }

    /// Returns a count as a mean rate since the window opened; `None` before the first counts arrive.
    /// Dividing by `elapsed` would make the rate fall between two slices and jump at each one.
    pub fn per_second(&self, count: u64) -> Option<f64> {
        (self.covered > 0.0).then(|| count as f64 / self.seconds())
    }

    /// Returns the seconds of the window to which the counts belong.
    pub fn seconds(&self) -> f64 {
        self.covered.max(self.elapsed - MAX_LAG_SECONDS)
    }
}

/// An event of an open window.
#[derive(Debug, Clone)]
pub enum WindowEvent {
    /// The participants begin.
    Opened(Instant),
    Progress(Progress),
    /// Server processes that serve a program; the processes of sessions are known before.
    Serving(Vec<i32>),
    /// The last participant ended its last operation at this moment of this machine's clock.
    Closed(Instant),
    /// The output of a program, whether it succeeded or failed.
    Output(Box<ProgramOutput>),
}

/// The outcome of a window, complete or not.
#[derive(Debug, Default)]
pub struct WindowOutcome {
    pub totals: Totals,
    pub sessions: Vec<SessionTotals>,
    pub timeline: Vec<Slice>,
    /// The common start, seconds since the epoch on the server's clock.
    pub started: f64,
    /// Seconds to the end of the last operation.
    pub seconds: f64,
    /// Delay between the common start and the start of the last session.
    pub late: f64,
    /// Delay between the common start and the start of the first session.
    pub first: f64,
    /// How far the server's clock, by which its sessions are timed, moved against this machine's, in seconds.
    pub clock_moved: f64,
    /// The longest time in seconds for which a process that generated the load stood still.
    pub stood_still: f64,
    pub error: Option<EngineError>,
    /// Commits that became local because their wait for the standby was canceled.
    pub cancelled_sync_rep: usize,
    /// The condition's settings as every session read them back after each slice.
    pub readings: BTreeSet<(String, String)>,
    /// The parts of the drivers, if there were several.
    pub drivers: Vec<DriverPart>,
    /// The messages that drivers sent, the warm-up's included.
    pub sent: Vec<Sent>,
    /// What programs of drivers wrote, with the drivers' names.
    pub outputs: Vec<(String, ProgramOutput)>,
    /// What the participants found out about the window themselves.
    pub checks: Vec<Check>,
}

impl WindowOutcome {
    /// Creates the empty outcome of a window that opens at this moment of the server's clock.
    pub(super) fn new(started: f64) -> WindowOutcome {
        WindowOutcome { started, first: f64::INFINITY, ..WindowOutcome::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_steady_between_slices_and_falls_in_a_standstill() {
        let at = |elapsed, covered, commits| {
            let progress = Progress { elapsed, covered, commits, ..Progress::default() };
            progress.per_second(progress.commits)
        };
        assert_eq!(at(0.9, 0.0, 0), None);
        assert_eq!(at(1.0, 1.0, 3000), Some(3000.0));
        assert_eq!(at(1.95, 1.0, 3000), Some(3000.0), "not 1538");
        // Half of the sessions have reported their second slice.
        assert_eq!(at(2.01, 1.5, 4500), Some(3000.0));
        assert_eq!(at(12.0, 2.0, 6000), Some(600.0));
    }
}
