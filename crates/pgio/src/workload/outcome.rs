//! What the caller of a window learns: events while it is open, the outcome when it has closed.
//!
//! Plain data, the same for every kind of work; whoever does the work fills it in, and nothing
//! here waits, connects or decides.

use std::collections::BTreeSet;
use std::time::Instant;

use super::Totals;
use super::command::{ProgramOutput, StatusLine};
use super::error::EngineError;
use crate::results::model::{SessionTotals, Slice};

/// How far the window is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    pub elapsed: f64,
    /// Seconds of the window that the counts cover, as a mean over the sessions: counts arrive
    /// once a slice, so `elapsed` runs ahead of them.
    pub covered: f64,
    pub block_visits: u64,
    pub commits: u64,
    /// The last line that a program printed.
    pub status: StatusLine,
    pub messages: u64,
}

/// Counts that lag further behind than this show a standstill, not the length of a slice.
const LAG: f64 = 2.0;

impl Progress {
    /// A count as a mean rate since the window opened; none before the first counts arrived.
    /// Divided by `elapsed` it would fall between two slices and jump with each.
    pub fn per_second(&self, count: u64) -> Option<f64> {
        let seconds = self.covered.max(self.elapsed - LAG);
        (self.covered > 0.0).then(|| count as f64 / seconds)
    }
}

/// An event of an open window.
#[derive(Debug, Clone)]
pub enum WindowEvent {
    /// The participants begin.
    Opened(Instant),
    Progress(Progress),
    /// Processes of the server that serve a program; those of sessions are known before.
    Serving(Vec<i32>),
    /// The last participant has ended its last operation, at this moment of this machine's clock.
    Closed(Instant),
    /// The output of a program, however it ended.
    Output(Box<ProgramOutput>),
}

/// The outcome of a window, complete or not.
#[derive(Debug)]
pub struct WindowOutcome {
    pub totals: Totals,
    pub sessions: Vec<SessionTotals>,
    pub timeline: Vec<Slice>,
    /// The common start, seconds since the epoch on the server's clock.
    pub started: f64,
    /// To the end of the last operation.
    pub seconds: f64,
    /// How long after the common start the last session began.
    pub late: f64,
    pub error: Option<EngineError>,
    /// Commits that became local because their wait for the standby was cancelled.
    pub cancelled_sync_rep: usize,
    /// Settings of the condition as every session read them back after each slice.
    pub readings: BTreeSet<(String, String)>,
}

impl WindowOutcome {
    /// The empty outcome of a window that opens at this moment of the server's clock.
    pub(super) fn new(started: f64) -> WindowOutcome {
        WindowOutcome {
            totals: Totals::default(),
            sessions: Vec::new(),
            timeline: Vec::new(),
            started,
            seconds: 0.0,
            late: 0.0,
            error: None,
            cancelled_sync_rep: 0,
            readings: BTreeSet::new(),
        }
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
