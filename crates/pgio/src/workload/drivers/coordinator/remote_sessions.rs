//! The drivers as participants of a trial: prepared together, one window for all, one outcome.
//!
//! A trial goes through [`super::prepare_phase`], [`super::gate_phase`] and [`super::window_phase`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use postgres::Client;

use super::common_start::open_all;
use super::failures::abandon;
use super::gate_phase::GatePhase;
use super::merge;
use super::part::PartState;
use super::proof::{self, Counted, Proof};
use super::roster::{ATTEMPTS, Drivers, Roster};
use super::server_sessions::{find_addresses, terminate_lost};
use super::window_phase::WindowPhase;
use crate::config::resolve::Extent;
use crate::host::stop::Stop;
use crate::workload::clock::Start;
use crate::workload::drivers::error::DriverError;
use crate::workload::drivers::messages::{ToDriver, Work, WorkLimit};
use crate::workload::error::EngineError;
use crate::workload::outcome::{WindowEvent, WindowOutcome};
use crate::workload::participants::{Participants, Remote, Setup};
use crate::workload::phase;
use crate::workload::plan::WindowPlan;
use crate::workload::prepare::version_num;
use crate::workload::window::OpenWindow;

impl Remote for Drivers {
    fn check(&self, work: Work, stop: &Stop) -> Result<(), EngineError> {
        self.check_hosts(&work, stop)
    }

    fn prepare(
        self: Arc<Self>,
        work: Work,
        proof: Option<Proof>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<Box<dyn Participants>, EngineError> {
        let version = version_num(admin)?;
        let mut roster = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let drivers = roster.connected.count();
        if let Some(sessions) = work.sessions().filter(|sessions| *sessions < drivers as usize) {
            return Err(DriverError::MoreThanSessions { drivers, sessions }.into());
        }
        let attempts = if work.is_repeatable() { ATTEMPTS } else { 1 };
        let (number, parts, ready) = roster.with_all(&setup.stop, attempts, |roster| {
            let prepared = roster.prepare(&work, &setup, admin);
            prepared.inspect_err(|error| terminate_lost(error, &roster.run_id, admin))
        })?;
        drop(roster);
        let pids = ready.values().flat_map(|(pids, _)| pids.clone()).collect();
        let pinned = ready.into_values().next().map(|(_, pinned)| pinned).unwrap_or_default();
        Ok(Box::new(RemoteSessions {
            drivers: self,
            number,
            work_limit: work.limit(),
            parts,
            pids,
            pinned,
            proof,
            version,
            setup,
            has_ended: false,
        }))
    }
}

/// Sessions on all drivers that wait for their window.
struct RemoteSessions {
    drivers: Arc<Drivers>,
    number: u64,
    parts: Vec<PartState>,
    pids: Vec<i32>,
    pinned: BTreeMap<String, String>,
    proof: Option<Proof>,
    version: u32,
    setup: Setup,
    work_limit: WorkLimit,
    /// All drivers have ended their sessions.
    has_ended: bool,
}

impl std::fmt::Debug for RemoteSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteSessions").field("drivers", &self.parts.len()).finish_non_exhaustive()
    }
}

impl Drop for RemoteSessions {
    /// A trial that failed before its window leaves sessions that nobody will use.
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut roster = self.drivers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Roster { connected, arrivals, .. } = &mut *roster;
        abandon(connected, arrivals, self.number, self.parts.len());
    }
}

impl Participants for RemoteSessions {
    fn pids(&self) -> Vec<i32> {
        self.pids.clone()
    }

    fn pinned(&self) -> BTreeMap<String, String> {
        self.pinned.clone()
    }

    fn run(
        mut self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError> {
        let drivers = Arc::clone(&self.drivers);
        let mut roster = drivers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let roster = &mut *roster;
        let before = self.read_counts(admin)?;
        let unseen = match before {
            Some(_) => find_addresses(&mut self.parts, &roster.run_id, &self.pids, admin)
                .map_err(counts_failed)?,
            None => Vec::new(),
        };
        let start = match self.open(roster, admin, extent) {
            Ok(start) => start,
            Err(error) => {
                abandon(&mut roster.connected, &roster.arrivals, self.number, self.parts.len());
                self.has_ended = true;
                terminate_lost(&error, &roster.run_id, admin);
                return Err(error);
            }
        };
        let window = OpenWindow::open(admin, start, self.plan(extent), listener);
        let mut outcome = self.work(roster, window, extent);
        self.has_ended = true;
        match &outcome.error {
            None => {
                let counts = before.zip(self.read_counts(admin)?);
                let counted =
                    counts.map(|(before, after)| proof::check(before, after, &outcome.totals));
                let hidden = (!unseen.is_empty()).then(|| proof::hidden_sessions_check(&unseen));
                let skewed = merge::check_skew(&self.parts, outcome.seconds);
                outcome.checks.extend([counted, hidden, skewed].into_iter().flatten());
            }
            Some(error) => terminate_lost(error, &roster.run_id, admin),
        }
        Ok(outcome)
    }
}

impl RemoteSessions {
    /// Reads the server's own counts of the work, if they can prove it.
    fn read_counts(&self, admin: &mut Client) -> Result<Option<Counted>, EngineError> {
        let proof = self.proof.as_ref();
        proof.map(|proof| proof.read(admin, self.version)).transpose().map_err(counts_failed)
    }

    /// Gathers all drivers at the window's start and opens it on all of them at once.
    fn open(
        &mut self,
        roster: &mut Roster,
        admin: &mut Client,
        extent: Extent,
    ) -> Result<Start, EngineError> {
        let Roster { connected, arrivals, clock, .. } = roster;
        connected.send_all(&ToDriver::Run { number: self.number, extent });
        let mut gate_phase = GatePhase {
            connected: &mut *connected,
            number: self.number,
            waiting: 0,
            drivers: self.parts.len(),
            begun: Instant::now(),
        };
        if let Some(error) = phase::run(&mut gate_phase, arrivals, &self.setup.stop) {
            return Err(error);
        }
        open_all(connected, &mut self.parts, self.number, *clock, |lead| {
            Start::agree_on_window(self.setup.opener.as_ref(), admin, lead)
        })
    }

    fn plan(&self, extent: Extent) -> WindowPlan {
        let sessions: u32 = self.parts.iter().map(|part| part.sessions).sum();
        WindowPlan::new(extent, u64::from(sessions), 1)
    }

    /// Waits until all drivers have ended, and merges what they report.
    fn work(
        &mut self,
        roster: &mut Roster,
        window: OpenWindow<'_>,
        extent: Extent,
    ) -> WindowOutcome {
        let Roster { connected, arrivals, clock, run_id, .. } = roster;
        let opened_at = window.start.at;
        let mut window_phase = WindowPhase {
            connected: &mut *connected,
            number: self.number,
            longest: self.work_limit.for_span(window_length(extent)),
            start: clock.at(opened_at),
            progress: BTreeMap::new(),
            closed: 0,
            last: 0.0,
            ended: BTreeSet::new(),
            parts: &mut self.parts,
            run_id,
            serving: BTreeMap::new(),
            window,
            aborted: None,
            urgent: false,
        };
        let error = phase::run(&mut window_phase, arrivals, &self.setup.stop);
        let mut outcome = window_phase.window.outcome;
        merge::merge(&mut outcome, &self.parts);
        outcome.sent =
            self.parts.iter_mut().flat_map(|part| std::mem::take(&mut part.sent)).collect();
        outcome.outputs = self.parts.iter_mut().filter_map(PartState::take_output).collect();
        if error.is_some() {
            outcome.seconds = outcome.seconds.max(opened_at.elapsed().as_secs_f64());
        }
        outcome.error = error;
        outcome
    }
}

fn counts_failed(source: postgres::Error) -> EngineError {
    EngineError::Postgres { doing: "reading the server's counts", source }
}

/// Returns the length of a window that has one.
fn window_length(extent: Extent) -> Option<Duration> {
    match extent {
        Extent::Time(length) => Some(length),
        Extent::Transactions(_) | Extent::Calls(_) => None,
    }
}
