//! The phases of a trial on drivers: all connect and warm up at the same moment, or none does; all come to the
//! start of the measured window, which [`open_all`] opens at one moment that it converts to the clock of each;
//! all work until the last of them has ended its sessions.
//!
//! Next: [`super::proof`] adds up what they did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::connected::ConnectedDrivers;
use super::coordinator::{END_TIMEOUT, PartState};
use super::messages::application_name_of_driver;
use super::messages::{DriverError, Failure, Fault, PartProgress, Report, ToDriver};
use super::proof::find_sessions;
use super::roster::Roster;
use crate::pg::leftovers::application_name_of_command;
use crate::workload::clock::{Opener, ROUND_TRIPS, Start, common_lead};
use crate::workload::error::EngineError;
use crate::workload::participants::Setup;
use crate::workload::phase::{self, Phase};
use crate::workload::shared::SharedWork;
use crate::workload::window::{GRACE, OpenWindow, span};
use pgio_link::{Arrival, Clock, LinkError};

/// Time for the round trips to one driver.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Measures all clocks and opens a window on all drivers at the moment that `agree` returns, which may not
/// come sooner than the time that it is given.
pub(super) fn open_all(
    connected: &ConnectedDrivers,
    parts: &mut [PartState],
    number: u64,
    clock: Clock,
    agree: impl FnOnce(Duration) -> Result<Start, EngineError>,
) -> Result<Start, EngineError> {
    let mut worst = Duration::ZERO;
    for part in parts.iter_mut() {
        let Some(driver) = connected.driver(part.rank) else { continue };
        let peer = format!("driver {} on {}", part.rank, part.host);
        let measured = driver.link.offset(ROUND_TRIPS, CLOCK_TIMEOUT, &peer);
        let offset = measured.map_err(|error| match error {
            // The loss of the connection has not been read yet.
            LinkError::Clock { .. } => DriverError::Lost {
                rank: part.rank,
                host: part.host.clone(),
                why: error.to_string(),
                inside: false,
            },
            other => other.into(),
        })?;
        worst = worst.max(offset.worst);
        part.offset = Some(offset);
    }
    let start = agree(common_lead(worst))?;
    let at = clock.at(start.at);
    for part in parts.iter() {
        let Some(offset) = &part.offset else { continue };
        let open = ToDriver::Open { number, at: offset.to_peer(at), epoch: start.epoch };
        connected.send(part.rank, &open)?;
    }
    Ok(start)
}

/// What each driver has prepared: the processes of its sessions and where they are pinned.
pub(super) type Ready = BTreeMap<u32, (Vec<i32>, BTreeMap<String, String>)>;

impl Roster {
    /// Sends the assignments and waits until all drivers are ready.
    pub(super) fn prepare(
        &mut self,
        work: &dyn SharedWork,
        setup: &Setup,
        admin: &mut Client,
    ) -> Result<(u64, Vec<PartState>, Ready), EngineError> {
        let (number, parts) = self.assign(work, setup)?;
        let longest = work.limit().for_span(Some(setup.warmup)).unwrap_or(setup.warmup);
        let mut prepare_phase = PreparePhase {
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
            given_up: false,
            urgent: false,
            warmup: if setup.warmup.is_zero() { Duration::ZERO } else { longest },
        };
        match phase::run(&mut prepare_phase, &self.arrivals, &setup.stop) {
            Some(error) => Err(error),
            None => Ok((number, prepare_phase.parts, prepare_phase.ready)),
        }
    }
}

/// The phase from the assignments to the readiness of all.
struct PreparePhase<'a> {
    connected: &'a mut ConnectedDrivers,
    parts: Vec<PartState>,
    number: u64,
    clock: Clock,
    admin: &'a mut Client,
    opener: Option<&'a Arc<dyn Opener>>,
    /// Drivers that wait for the warm-up to open.
    waiting: usize,
    /// What each driver has prepared.
    ready: Ready,
    /// Drivers that have ended this trial.
    ended: BTreeSet<u32>,
    last_event: Instant,
    aborted: Option<Instant>,
    given_up: bool,
    urgent: bool,
    /// The longest time that the warm-up may take.
    warmup: Duration,
}

impl Phase for PreparePhase<'_> {
    type Event = Arrival;

    fn take(&mut self, arrival: Arrival, now: Instant) -> Result<(), EngineError> {
        let report = self.connected.report_of_trial(self.number, arrival).map_err(|lost| {
            self.ended.insert(lost.rank);
            lost.into_error(false)
        })?;
        let Some((rank, report)) = report else { return Ok(()) };
        self.last_event = now;
        match report {
            Report::AtGate => {
                self.waiting += 1;
                if self.waiting == self.parts.len() {
                    self.waiting = 0;
                    let (number, clock) = (self.number, self.clock);
                    let (opener, admin) = (self.opener, &mut *self.admin);
                    open_all(self.connected, &mut self.parts, number, clock, |lead| {
                        Start::agree_on_warm_up(opener, admin, lead)
                    })?;
                }
            }
            Report::Ready { pids, pinned } => {
                self.ready.insert(rank, (pids, pinned));
            }
            Report::Failed(failure) => {
                self.ended.insert(rank);
                if self.aborted.is_none() {
                    return Err(failure.into_error(self.connected, rank, false));
                }
            }
            Report::Reached(_)
            | Report::Checked
            | Report::Opened(_)
            // The preparation continues.
            | Report::Progress(_)
            | Report::Closed(_)
            | Report::Serving(_)
            | Report::Kept(_)
            | Report::Ended(_) => {}
        }
        Ok(())
    }

    fn is_unfinished(&self, ending: bool) -> bool {
        match self.aborted {
            Some(_) if ending => self.ended.len() < self.parts.len() && !self.given_up,
            _ => self.ready.len() < self.parts.len() || ending,
        }
    }

    fn overdue(&mut self, now: Instant) -> Option<EngineError> {
        // A driver connects all of its sessions and says nothing meanwhile.
        (now - self.last_event > GRACE * 3 + self.warmup).then(|| {
            let late = self.parts.iter().find(|part| !self.ready.contains_key(&part.rank));
            let (rank, host) = late.map_or((0, String::new()), |p| (p.rank, p.host.clone()));
            let message = "its sessions were not ready in time; see the server's log".to_owned();
            DriverError::Failed { rank, host, message, fault: Fault::Work }.into()
        })
    }

    fn end(&mut self, urgent: bool, now: Instant) {
        if self.aborted.is_none() || urgent && !self.urgent {
            self.connected.send_all(&ToDriver::Abort { number: self.number, urgent });
            self.aborted.get_or_insert(now);
            self.urgent |= urgent;
        }
        self.given_up = self.aborted.is_some_and(|at| now - at > END_TIMEOUT);
    }
}

/// The phase in which all drivers come to the window's start.
pub(super) struct GatePhase<'a> {
    pub(super) connected: &'a mut ConnectedDrivers,
    pub(super) number: u64,
    pub(super) waiting: usize,
    pub(super) drivers: usize,
    pub(super) begun: Instant,
}

impl Phase for GatePhase<'_> {
    type Event = Arrival;

    fn take(&mut self, arrival: Arrival, _: Instant) -> Result<(), EngineError> {
        let report = self.connected.report_of_trial(self.number, arrival);
        match report.map_err(|lost| lost.into_error(false))? {
            Some((_, Report::AtGate)) => self.waiting += 1,
            Some((rank, Report::Failed(failure))) => {
                return Err(failure.into_error(self.connected, rank, true));
            }
            // Others belong to the preparation.
            Some(_) | None => {}
        }
        Ok(())
    }

    fn is_unfinished(&self, ending: bool) -> bool {
        self.waiting < self.drivers && !ending
    }

    fn overdue(&mut self, now: Instant) -> Option<EngineError> {
        (now - self.begun > GRACE)
            .then(|| EngineError::Overdue("drivers did not come to the window's start".to_owned()))
    }

    fn end(&mut self, _urgent: bool, _: Instant) {}
}

/// The drivers during a window.
pub(super) struct WindowPhase<'a, 'w> {
    pub(super) connected: &'a mut ConnectedDrivers,
    pub(super) parts: &'a mut [PartState],
    pub(super) window: OpenWindow<'w>,
    pub(super) number: u64,
    /// The longest time from the start until the drivers have ended or report progress; none: no limit.
    pub(super) longest: Option<Duration>,
    /// The common start on the coordinator's clock.
    pub(super) start: i64,
    /// By driver.
    pub(super) progress: BTreeMap<u32, PartProgress>,
    /// Drivers whose last call was answered.
    pub(super) closed: usize,
    /// Seconds from the common start to the last answer.
    pub(super) last: f64,
    /// Server processes that serve a driver's program.
    pub(super) serving: BTreeMap<u32, Vec<i32>>,
    pub(super) run_id: &'a str,
    /// Drivers that have ended their sessions or are lost.
    pub(super) ended: BTreeSet<u32>,
    pub(super) aborted: Option<Instant>,
    pub(super) given_up: bool,
    pub(super) urgent: bool,
}

impl WindowPhase<'_, '_> {
    fn handle_report(
        &mut self,
        rank: u32,
        report: Report,
        now: Instant,
    ) -> Result<(), EngineError> {
        let Some(part) = self.parts.iter_mut().find(|part| part.rank == rank) else {
            return Ok(());
        };
        match report {
            Report::Opened(at) => {
                let offset = part.offset.as_ref();
                part.opened = offset.map(|offset| offset.to_ours(at) - self.start);
            }
            Report::Progress(progress) => {
                self.window.note_progress(now);
                self.progress.insert(rank, progress);
                self.add_up();
            }
            Report::Closed(at) => {
                self.closed += 1;
                let ended = part.offset.as_ref().map(|offset| offset.to_ours(at) - self.start);
                self.last = self.last.max(ended.unwrap_or(0) as f64 / 1e9);
                if self.closed == self.parts.len() {
                    self.window.close(self.window.start.at + span(self.last));
                    self.connected.send_all(&ToDriver::Release { number: self.number });
                }
            }
            Report::Serving(pids) => {
                let driver = application_name_of_driver(self.run_id, rank);
                let name = application_name_of_command(&driver);
                // Without an answer, the driver's addresses stay unknown.
                let seen = find_sessions(self.window.admin(), &name, &pids);
                part.addresses = seen.map(|seen| seen.addresses).unwrap_or_default();
                self.serving.insert(rank, pids);
                self.window.report_serving(self.serving.values().flatten().copied().collect());
            }
            Report::Kept(value) => part.kept.push(value),
            Report::Ended(result) => {
                self.ended.insert(rank);
                let (error, stopped) = (result.error.clone(), result.stopped);
                part.result = Some(*result);
                // After an order to stop, an early end is no failure of the driver.
                if let (Some(message), None) = (error, self.aborted) {
                    let failure = Failure { message, fault: Fault::Work, stopped };
                    return Err(failure.into_error(self.connected, rank, true));
                }
            }
            Report::Failed(failure) => {
                self.ended.insert(rank);
                if self.aborted.is_none() {
                    return Err(failure.into_error(self.connected, rank, true));
                }
            }
            Report::Reached(_) | Report::Checked | Report::AtGate | Report::Ready { .. } => {}
        }
        Ok(())
    }

    fn add_up(&mut self) {
        let all = self.progress.values();
        let progress = &mut self.window.progress;
        progress.covered = all.clone().map(|p| p.covered).sum::<f64>() / self.parts.len() as f64;
        progress.block_visits = all.clone().map(|p| p.block_visits).sum();
        progress.blocks_scanned = all.clone().map(|p| p.blocks_scanned).sum();
        progress.commits = all.clone().map(|p| p.commits).sum();
        progress.messages = all.map(|p| p.messages).sum();
    }
}

impl Phase for WindowPhase<'_, '_> {
    type Event = Arrival;

    fn take(&mut self, arrival: Arrival, now: Instant) -> Result<(), EngineError> {
        let report = self.connected.report_of_trial(self.number, arrival).map_err(|lost| {
            self.ended.insert(lost.rank);
            lost.into_error(true)
        })?;
        report.map_or(Ok(()), |(rank, report)| self.handle_report(rank, report, now))
    }

    fn is_unfinished(&self, _ending: bool) -> bool {
        self.ended.len() < self.parts.len() && !self.given_up
    }

    /// Drivers give up work that hangs, and report progress while they wait for work that does not. Later,
    /// and without a report, the drivers themselves hang.
    fn overdue(&mut self, now: Instant) -> Option<EngineError> {
        let timeout = self.longest? + GRACE;
        (now - self.window.start.at > timeout && self.window.quiet_time(now) > GRACE)
            .then(|| EngineError::Overdue("drivers did not end with the window".to_owned()))
    }

    fn tick(&mut self, now: Instant) {
        if self.closed < self.parts.len() {
            self.window.report_progress(now);
        }
    }

    fn end(&mut self, urgent: bool, now: Instant) {
        if self.aborted.is_none() || urgent && !self.urgent {
            self.connected.send_all(&ToDriver::Abort { number: self.number, urgent });
            self.aborted.get_or_insert(now);
            self.urgent |= urgent;
        }
        self.given_up = self.aborted.is_some_and(|at| now - at > END_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::host;

    #[test]
    fn drivers_that_do_not_come_to_the_start_of_the_window_are_given_up() {
        let (clock, (_sender, arrivals)) = (host::clock::Clock::fake(), mpsc::channel());
        let begun = clock.now();
        let connected = &mut ConnectedDrivers::new(0..2);
        let mut gate = GatePhase { connected, number: 1, waiting: 1, drivers: 2, begun };
        let stop = host::stop::Stop::new();
        let error = phase::run_by(&clock, &mut gate, &arrivals, &stop).unwrap();
        assert_eq!(error.to_string(), "drivers did not come to the window's start");
        let waited = clock.now() - begun;
        assert!(waited > GRACE && waited < GRACE + Duration::from_secs(1), "{waited:?}");
    }
}
