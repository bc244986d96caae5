//! The interface of all kinds of work to the caller: prepared participants that wait for one window.
//!
//! Participants are server sessions, a program, or sessions with a mail server. A workload prepares all
//! of them from one [`Setup`], or fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgio_connect::{Client, ConnectParams};
use pgio_results::joint::GeneratorPart;
use pgio_results::model::{Check, SessionTotals, Slice};

use super::Totals;
use super::clock::Opener;
use super::error::EngineError;
use super::output::{ProgramOutput, StatusLine};
use super::shared::{Coordinator, Part};
use super::window::Listener;
use crate::config::resolve::Extent;
use crate::host::stop::Stop;

/// The parameters that all participants share.
#[derive(Debug, Clone)]
pub struct Setup {
    pub params: ConnectParams,
    /// The condition's settings, by session.
    pub settings: Vec<(String, String)>,
    /// Whether any condition of the experiment has such settings. Then the sessions of each one make the round trip
    /// that reads them, even if this condition has none.
    pub reads_settings: bool,
    pub warmup: Duration,
    pub seed: u64,
    pub stop: Stop,
    /// Agrees on the start of the measured window with other servers or drivers; none: the window is its own.
    pub opener: Option<Arc<dyn Opener>>,
    pub generator: Generator,
}

/// Which processes generate the load.
#[derive(Debug, Clone, Default)]
pub enum Generator {
    /// This one alone.
    #[default]
    Alone,
    /// Others, among which this one divides the work.
    Others(Arc<dyn Coordinator>),
    /// This one does a part of the work.
    Part(SessionShare),
}

/// A process's share of the sessions.
#[derive(Debug, Clone, Copy)]
pub struct SessionShare {
    /// The number of its first session among all processes' sessions.
    pub first: u32,
    /// Sessions of all processes.
    pub of: u32,
}

impl Setup {
    /// Returns the number of this process's first session.
    pub(crate) fn first_session(&self) -> u32 {
        self.share().map_or(0, |share| share.first)
    }

    /// Returns the number of sessions of all processes, of which this one has `own`.
    pub(super) fn all_sessions(&self, own: usize) -> u64 {
        self.share().map_or(own as u64, |share| u64::from(share.of))
    }

    pub(crate) fn share(&self) -> Option<SessionShare> {
        match self.generator {
            Generator::Part(share) => Some(share),
            Generator::Alone | Generator::Others(_) => None,
        }
    }
}

/// The prepared participants of one trial.
pub trait Participants {
    /// Returns the server processes that do the work.
    fn pids(&self) -> Vec<i32> {
        Vec::new()
    }

    /// Returns all pinned settings, as the sessions read them back.
    fn pinned(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Opens the window and returns when the work has ended. `listener` receives both events and the
    /// progress some twenty times a second, with a connection that is free for reading evidence.
    fn run(
        self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError>;
}

/// Prepared participants, and what is done once they have ended, whether they succeeded or failed.
pub(crate) struct Completed<F> {
    pub(crate) prepared: Box<dyn Participants>,
    pub(crate) complete: F,
}

impl<F> Participants for Completed<F>
where
    F: FnOnce(
        Result<WindowOutcome, EngineError>,
        &mut Client,
        Listener<'_>,
    ) -> Result<WindowOutcome, EngineError>,
{
    fn pids(&self) -> Vec<i32> {
        self.prepared.pids()
    }

    fn pinned(&self) -> BTreeMap<String, String> {
        self.prepared.pinned()
    }

    fn run(
        self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError> {
        let ran = self.prepared.run(admin, extent, listener);
        (self.complete)(ran, admin, listener)
    }
}

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
    /// The parts of the processes that did it, if they are others.
    pub generators: Vec<GeneratorPart>,
    /// What the parts report for the workload that divided the work.
    pub kept: Vec<Part>,
    /// What programs of the parts wrote, with the names of those that ran them.
    pub outputs: Vec<(String, ProgramOutput)>,
    /// What the participants found out about the window themselves.
    pub checks: Vec<Check>,
}

impl WindowOutcome {
    /// Creates the empty outcome of a window that opens at this moment of the server's clock.
    pub(crate) fn new(started: f64) -> WindowOutcome {
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
