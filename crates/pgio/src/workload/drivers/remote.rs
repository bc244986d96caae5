//! The drivers as participants of a trial: prepared together, one window for all, one outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use postgres::Client;

use super::error::DriverError;
use super::merge::{self, PartState};
use super::messages::{Assignment, FromDriver, ToDriver, Work, WorkLimit};
use super::preparing::{END_TIMEOUT, PreparePhase, open_all};
use super::proof::{self, Proof};
use super::roster::{ConnectedDrivers, DriverEvent, Drivers, Roster, application_name};
use super::working::{GatePhase, WindowPhase};
use crate::config::resolve::Extent;
use crate::host::stop::Stop;
use crate::pg::leftovers::application_name_of_command;
use crate::workload::clock::Start;
use crate::workload::error::EngineError;
use crate::workload::outcome::{WindowEvent, WindowOutcome};
use crate::workload::participants::{Participants, Remote, Setup};
use crate::workload::phase;
use crate::workload::plan::WindowPlan;
use crate::workload::prepare::version_num;
use crate::workload::window::OpenWindow;
use pgio_link::Arrival;
use pgio_results::model::Check;

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
        let (number, parts, ready) = roster.with_all(&setup.stop, |roster| {
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

type Ready = BTreeMap<u32, (Vec<i32>, BTreeMap<String, String>)>;

impl Roster {
    /// Sends the assignments and waits until all drivers are ready.
    fn prepare(
        &mut self,
        work: &Work,
        setup: &Setup,
        admin: &mut Client,
    ) -> Result<(u64, Vec<PartState>, Ready), EngineError> {
        let (number, parts) = self.assign(work, setup)?;
        let longest = work.limit().for_span(Some(setup.warmup)).unwrap_or(setup.warmup);
        let mut preparing = PreparePhase {
            connected: &mut self.connected,
            parts,
            number,
            clock: self.clock,
            admin,
            opener: setup.opener.as_ref(),
            waiting: 0,
            ready: BTreeMap::new(),
            ended: BTreeSet::new(),
            last_event: Instant::now(),
            aborted: None,
            urgent: false,
            warmup: if setup.warmup.is_zero() { Duration::ZERO } else { longest },
        };
        match phase::run(&mut preparing, &self.arrivals, &setup.stop) {
            Some(error) => Err(error),
            None => Ok((number, preparing.parts, preparing.ready)),
        }
    }

    /// Sends each driver its part; returns the trial's number and the parts.
    pub(super) fn assign(
        &mut self,
        work: &Work,
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
            let assignment = Assignment {
                dsn: setup.params.without_secrets(),
                application_name: application_name(&self.run_id, rank),
                work: work.part(first, sessions),
                first: first as u32,
                of: all as u32,
                settings: setup.settings.clone(),
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
        match connected.handle_arrival_for(number, arrival) {
            Some(DriverEvent::Message(rank, message)) => {
                match message {
                    // A window that it had opened already has a result.
                    FromDriver::Failed { .. } | FromDriver::Ended { .. } => {
                        ended.insert(rank);
                    }
                    FromDriver::Reached { .. }
                    | FromDriver::Checked { .. }
                    | FromDriver::AtGate { .. }
                    | FromDriver::Ready { .. }
                    | FromDriver::Opened { .. }
                    | FromDriver::Progress { .. }
                    | FromDriver::Closed { .. }
                    | FromDriver::Serving { .. }
                    | FromDriver::Sent { .. } => {}
                }
            }
            Some(DriverEvent::Lost { rank, .. }) => drop(ended.insert(rank)),
            None => {}
        }
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
        let failed =
            |source| EngineError::Postgres { doing: "reading the server's counts", source };
        let drivers = Arc::clone(&self.drivers);
        let mut roster = drivers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Roster { connected, arrivals, clock, run_id, .. } = &mut *roster;
        let (proof, version) = (self.proof.take(), self.version);
        let count = |admin: &mut Client| {
            proof.as_ref().map(|proof| proof.read(admin, version)).transpose().map_err(failed)
        };
        let before = count(admin)?;
        let unseen = match before {
            Some(_) => {
                find_addresses(&mut self.parts, run_id, &self.pids, admin).map_err(failed)?
            }
            None => Vec::new(),
        };
        connected.send_all(&ToDriver::Run { number: self.number, extent });
        let mut gathering = GatePhase {
            connected: &mut *connected,
            number: self.number,
            waiting: 0,
            drivers: self.parts.len(),
            begun: Instant::now(),
        };
        let gathered = phase::run(&mut gathering, arrivals, &self.setup.stop);
        let trial = (self.number, *clock);
        let opened = match gathered {
            Some(error) => Err(error),
            None => open_all(connected, &mut self.parts, trial, |lead| {
                Start::agree_on_window(self.setup.opener.as_ref(), admin, lead)
            }),
        };
        let start = match opened {
            Ok(start) => start,
            Err(error) => {
                abandon(connected, arrivals, self.number, self.parts.len());
                self.has_ended = true;
                terminate_lost(&error, run_id, admin);
                return Err(error);
            }
        };
        let sessions: u32 = self.parts.iter().map(|part| part.sessions).sum();
        let plan = WindowPlan::new(extent, u64::from(sessions), 1);
        let window = OpenWindow::open(admin, start, plan, listener);
        let mut working = WindowPhase {
            connected: &mut *connected,
            number: self.number,
            longest: self.work_limit.for_span(window_length(extent)),
            start: clock.at(start.at),
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
        let error = phase::run(&mut working, arrivals, &self.setup.stop);
        let mut outcome = working.window.outcome;
        merge::merge(&mut outcome, &self.parts);
        outcome.sent =
            self.parts.iter_mut().flat_map(|part| std::mem::take(&mut part.sent)).collect();
        outcome.outputs = self.parts.iter_mut().filter_map(PartState::take_output).collect();
        if error.is_some() {
            outcome.seconds = outcome.seconds.max(start.at.elapsed().as_secs_f64());
        }
        self.has_ended = true;
        match &error {
            None => {
                if let (Some(before), Some(after)) = (before, count(admin)?) {
                    outcome.checks.push(proof::check(before, after, &outcome.totals));
                }
                outcome
                    .checks
                    .extend((!unseen.is_empty()).then(|| proof::hidden_sessions_check(&unseen)));
                outcome.checks.extend(merge::check_skew(&self.parts, outcome.seconds));
            }
            Some(error) => terminate_lost(error, run_id, admin),
        }
        outcome.error = error;
        Ok(outcome)
    }
}

/// Returns the length of a window that has one.
fn window_length(extent: Extent) -> Option<Duration> {
    match extent {
        Extent::Time(length) => Some(length),
        Extent::Transactions(_) | Extent::Calls(_) => None,
    }
}

/// Fills in the addresses of the drivers' sessions; returns the drivers whose sessions are not seen.
fn find_addresses(
    parts: &mut [PartState],
    run_id: &str,
    pids: &[i32],
    admin: &mut Client,
) -> Result<Vec<u32>, postgres::Error> {
    let mut unseen = Vec::new();
    for part in parts {
        let seen = proof::find_sessions(admin, &application_name(run_id, part.rank), pids)?;
        if seen.sessions != part.sessions as usize {
            unseen.push(part.rank);
        }
        part.addresses = seen.addresses;
    }
    Ok(unseen)
}

/// Ends what a lost driver has left on the server.
fn terminate_lost(error: &EngineError, run_id: &str, admin: &mut Client) {
    if let EngineError::Drivers(DriverError::Lost { rank, .. }) = error {
        let name = application_name(run_id, *rank);
        proof::terminate(admin, &application_name_of_command(&name));
        proof::terminate(admin, &name);
    }
}

/// Returns the check of a trial that lost a driver.
pub fn lost(error: &EngineError) -> Option<Check> {
    match error {
        EngineError::Drivers(lost @ DriverError::Lost { .. }) => Some(Check::invalid(
            "driver-lost",
            lost.to_string(),
            "find out what ended the driver or cut its connection; the trial is repeated with all drivers",
        )),
        _ => None,
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
