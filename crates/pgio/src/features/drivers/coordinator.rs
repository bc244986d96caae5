//! The coordinator: what the pgio that runs the experiment does with its drivers.
//!
//! [`super::roster`] has them started by what the user has ([`super::launch`]), waits for them and replaces lost ones;
//! [`super::connected`] knows who is there and asks all of them whether they reach the server. Here they are the
//! participants of a trial: each is sent its part, all come to the window's start and work in one window
//! ([`super::phases`]), and what they did is added up; PostgreSQL's own count is the proof ([`super::proof`]). A
//! driver that fails or is lost ends the trial.
//!
//! Nothing here uses [`super::serve`], which runs in other processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use pgio_connect::{Client, ConnectParams};

use super::connected::{ConnectedDrivers, Driver};
use super::messages::application_name_of_driver;
use super::messages::{Assignment, DriverError, Failure, PartResult, Report, ToDriver};
use super::phases::{GatePhase, WindowPhase, open_all};
use super::proof::{self, Counted, find_addresses, terminate_lost};
use super::roster::{ATTEMPTS, Drivers, Roster};
use super::{launch, messages};
use crate::config::resolve::Extent;
use crate::host::stop::Stop;
use crate::workload::EngineError;
use crate::workload::clock::Start;
use crate::workload::output::ProgramOutput;
use crate::workload::participants::{Participants, Setup, WindowEvent, WindowOutcome};
use crate::workload::phase;
use crate::workload::prepare::version_num;
use crate::workload::shared::{Coordinator, Part, Proof, SharedWork, WorkLimit};
use crate::workload::window::{OpenWindow, WindowPlan};
use pgio_link::{Arrival, Offset};
use pgio_results::joint::GeneratorPart;
use pgio_results::latency::Class;

impl Coordinator for Drivers {
    fn check(&self, work: &dyn SharedWork, stop: &Stop) -> Result<(), EngineError> {
        self.check_hosts(work, stop)
    }

    fn reach(
        &self,
        params: &ConnectParams,
        admin: &mut Client,
        stop: &Stop,
    ) -> Result<(), EngineError> {
        let failed = |source| EngineError::Postgres { doing: "reading the server's name", source };
        let server = messages::server_name(admin).map_err(failed)?;
        self.reach_server(params, &server, stop)
    }

    fn descend_from_this(&self) -> bool {
        launch::is_driver_descendant()
    }

    fn prepare(
        self: Arc<Self>,
        work: &dyn SharedWork,
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
            let prepared = roster.prepare(work, &setup, admin);
            prepared.inspect_err(|error| terminate_lost(error, &roster.run_id, admin))
        })?;
        drop(roster);
        let pids = ready.values().flat_map(|(pids, _)| pids.clone()).collect();
        let pinned = ready.into_values().next().map(|(_, pinned)| pinned).unwrap_or_default();
        Ok(Box::new(RemoteSessions {
            proof: work.proof(),
            drivers: Arc::clone(&self),
            number,
            work_limit: work.limit(),
            parts,
            pids,
            pinned,
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
                let skewed = proof::check_skew(&self.parts, outcome.seconds);
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
            given_up: false,
            urgent: false,
        };
        let error = phase::run(&mut window_phase, arrivals, &self.setup.stop);
        let mut outcome = window_phase.window.outcome;
        proof::merge(&mut outcome, &self.parts);
        outcome.kept =
            self.parts.iter_mut().flat_map(|part| std::mem::take(&mut part.kept)).collect();
        outcome.outputs = self.parts.iter_mut().filter_map(PartState::take_output).collect();
        if error.is_some() {
            outcome.seconds = outcome.seconds.max(opened_at.elapsed().as_secs_f64());
        }
        outcome.error = error;
        outcome
    }
}

fn counts_failed(source: pgio_connect::Error) -> EngineError {
    EngineError::Postgres { doing: "reading the server's counts", source }
}

/// Returns the length of a window that has one.
fn window_length(extent: Extent) -> Option<Duration> {
    match extent {
        Extent::Time(length) => Some(length),
        Extent::Transactions(_) | Extent::Calls(_) => None,
    }
}

impl Roster {
    /// Sends each driver its part; returns the trial's number and the parts.
    pub(super) fn assign(
        &mut self,
        work: &dyn SharedWork,
        setup: &Setup,
    ) -> Result<(u64, Vec<PartState>), EngineError> {
        self.number += 1;
        let number = self.number;
        let count = self.connected.count();
        let all = work.sessions().unwrap_or(count as usize);
        let mut parts = Vec::new();
        let mut first = 0;
        for (position, rank) in self.connected.ranks().into_iter().enumerate() {
            let sessions = session_count(all, position as u32, count);
            let part = work.part(first, sessions)?;
            let assignment = Assignment {
                dsn: setup.params.without_secrets(),
                application_name: application_name_of_driver(&self.run_id, rank),
                part,
                first: first as u32,
                of: all as u32,
                settings: setup.settings.clone(),
                reads_settings: setup.reads_settings,
                warmup_seconds: setup.warmup.as_secs_f64(),
                seed: setup.seed,
            };
            if let Some(driver) = self.connected.driver(rank) {
                parts.push(PartState::new(driver, rank, first as u32, sessions as u32));
            }
            let prepare = ToDriver::Prepare { number, assignment: Box::new(assignment) };
            if let Err(error) = self.connected.send(rank, &prepare) {
                // Those before it are connecting their sessions.
                abandon(&mut self.connected, &self.arrivals, number, position);
                return Err(error.into());
            }
            first += sessions;
        }
        Ok((number, parts))
    }
}

/// Sessions of one driver; the first ones take the remainder.
fn session_count(sessions: usize, rank: u32, drivers: u32) -> usize {
    let (rank, drivers) = (rank as usize, drivers as usize);
    sessions / drivers + usize::from(rank < sessions % drivers)
}

/// A driver's part of a window, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct PartState {
    pub rank: u32,
    pub host: String,
    pub first: u32,
    pub sessions: u32,
    pub addresses: Vec<String>,
    pub offset: Option<Offset>,
    /// Nanoseconds after the common start on the coordinator's clock.
    pub opened: Option<i64>,
    pub result: Option<PartResult>,
    /// What it reports for the workload.
    pub kept: Vec<Part>,
}

impl PartState {
    fn new(driver: &Driver, rank: u32, first: u32, sessions: u32) -> PartState {
        PartState { rank, host: driver.hello.host.clone(), first, sessions, ..PartState::default() }
    }

    /// Takes what the driver's program wrote, with the name to show for it.
    pub(super) fn take_output(&mut self) -> Option<(String, ProgramOutput)> {
        let output = self.result.as_mut()?.output.take()?;
        Some((format!("driver {} on {}", self.rank, self.host), output))
    }

    /// Returns the part as the trial stores it; none without a result.
    pub(super) fn to_stored(&self) -> Option<GeneratorPart> {
        let result = self.result.as_ref()?;
        let trip = |part: fn(&Offset) -> Duration| {
            self.offset.as_ref().map_or(0.0, |offset| part(offset).as_secs_f64())
        };
        let other_calls = [Class::Delivery, Class::Device].map(|c| result.totals.count(c.name()));
        let mut histograms = result.totals.histograms.clone();
        histograms.retain(|_, h| h.total_count() > 0);
        Some(GeneratorPart {
            rank: self.rank,
            host: self.host.clone(),
            addresses: self.addresses.clone(),
            first_session: self.first,
            sessions: self.sessions,
            calls: result.totals.calls.max(other_calls.into_iter().max().unwrap_or(0)),
            seconds: result.seconds,
            opened_late_seconds: self.opened.unwrap_or(0) as f64 / 1e9,
            round_trip_seconds: trip(|offset| offset.quickest),
            worst_round_trip_seconds: trip(|offset| offset.worst),
            cpu_seconds: result.cpu_seconds,
            cores: result.cores,
            histograms,
        })
    }
}

/// Time for drivers to end their sessions after an order to end.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(12);

impl Failure {
    /// Converts the failure of the driver of this rank into the error of the trial.
    pub(super) fn into_error(
        self,
        connected: &ConnectedDrivers,
        rank: u32,
        inside: bool,
    ) -> EngineError {
        let Failure { message, fault, stopped } = self;
        if stopped {
            let why = "a signal stopped it".to_owned();
            let host = connected.host(rank);
            DriverError::Lost { rank, host, why, inside }.into()
        } else {
            DriverError::Failed { rank, host: connected.host(rank), message, fault }.into()
        }
    }
}

/// Has all drivers end their sessions and waits until they have.
fn abandon(
    connected: &mut ConnectedDrivers,
    arrivals: &Receiver<Arrival>,
    number: u64,
    drivers: usize,
) {
    connected.send_all(&ToDriver::Abort { number, urgent: false });
    let begun = Instant::now();
    let mut ended = BTreeSet::new();
    while ended.len() < drivers && begun.elapsed() < END_TIMEOUT {
        let Ok(arrival) = arrivals.recv_timeout(Duration::from_millis(50)) else { continue };
        match connected.report_of_trial(number, arrival) {
            // A window that it had opened already has a result.
            Ok(Some((rank, Report::Failed(_) | Report::Ended(_)))) => drop(ended.insert(rank)),
            Ok(_) => {}
            Err(lost) => drop(ended.insert(lost.rank)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_shared_out_completely() {
        let shares: Vec<usize> = (0..3).map(|rank| session_count(8, rank, 3)).collect();
        assert_eq!(shares, [3, 3, 2]);
        assert_eq!((0..4).map(|rank| session_count(4, rank, 4)).sum::<usize>(), 4);
    }
}
