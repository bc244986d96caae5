//! The last phase of a trial: all drivers work in one window, until the last of them has ended its sessions.
//!
//! Next: [`super::merge`] adds up what they did.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::connected::{ConnectedDrivers, DriverEvent};
use super::failures::{END_TIMEOUT, Failure};
use super::part::PartState;
use super::server_sessions::find_sessions;
use crate::pg::leftovers::{application_name_of_command, application_name_of_driver};
use crate::workload::drivers::error::{DriverError, Fault};
use crate::workload::drivers::messages::{FromDriver, PartProgress, ToDriver};
use crate::workload::error::EngineError;
use crate::workload::phase::Phase;
use crate::workload::plan::GRACE;
use crate::workload::window::{OpenWindow, span};
use pgio_link::Arrival;

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
    pub(super) urgent: bool,
}

impl WindowPhase<'_, '_> {
    fn handle_message(&mut self, rank: u32, message: FromDriver) -> Result<(), EngineError> {
        let Some(part) = self.parts.iter_mut().find(|part| part.rank == rank) else {
            return Ok(());
        };
        match message {
            FromDriver::Opened { at, .. } => {
                let offset = part.offset.as_ref();
                part.opened = offset.map(|offset| offset.to_ours(at) - self.start);
            }
            FromDriver::Progress { progress, .. } => {
                self.window.note_progress();
                self.progress.insert(rank, progress);
                self.add_up();
            }
            FromDriver::Closed { at, .. } => {
                self.closed += 1;
                let ended = part.offset.as_ref().map(|offset| offset.to_ours(at) - self.start);
                self.last = self.last.max(ended.unwrap_or(0) as f64 / 1e9);
                if self.closed == self.parts.len() {
                    self.window.close(self.window.start.at + span(self.last));
                    self.connected.send_all(&ToDriver::Release { number: self.number });
                }
            }
            FromDriver::Serving { pids, .. } => {
                let driver = application_name_of_driver(self.run_id, rank);
                let name = application_name_of_command(&driver);
                // Without an answer, the driver's addresses stay unknown.
                let seen = find_sessions(self.window.admin(), &name, &pids);
                part.addresses = seen.map(|seen| seen.addresses).unwrap_or_default();
                self.serving.insert(rank, pids);
                self.window.report_serving(self.serving.values().flatten().copied().collect());
            }
            FromDriver::Sent { sent, .. } => part.sent.extend(sent),
            FromDriver::Ended { result, .. } => {
                self.ended.insert(rank);
                let (error, stopped) = (result.error.clone(), result.stopped);
                part.result = Some(*result);
                // After an order to stop, an early end is no failure of the driver.
                if let (Some(message), None) = (error, self.aborted) {
                    let failure = Failure { message, fault: Fault::Work, stopped };
                    return Err(failure.into_error(self.connected, rank));
                }
            }
            FromDriver::Failed { message, fault, stopped, .. } => {
                self.ended.insert(rank);
                if self.aborted.is_none() {
                    let failure = Failure { message, fault, stopped };
                    return Err(failure.into_error(self.connected, rank));
                }
            }
            FromDriver::Reached { .. }
            | FromDriver::Checked { .. }
            | FromDriver::AtGate { .. }
            | FromDriver::Ready { .. } => {}
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

    fn take(&mut self, arrival: Arrival) -> Result<(), EngineError> {
        match self.connected.handle_arrival_for(self.number, arrival) {
            Some(DriverEvent::Message(rank, message)) => self.handle_message(rank, message),
            Some(DriverEvent::Lost { rank, host, why }) => {
                self.ended.insert(rank);
                Err(DriverError::Lost { rank, host, why, inside: true }.into())
            }
            None => Ok(()),
        }
    }

    fn is_unfinished(&self, _ending: bool) -> bool {
        let given_up = self.aborted.is_some_and(|at| at.elapsed() > END_TIMEOUT);
        self.ended.len() < self.parts.len() && !given_up
    }

    /// Drivers give up work that hangs, and report progress while they wait for work that does not. Later,
    /// and without a report, the drivers themselves hang.
    fn overdue(&mut self) -> Option<EngineError> {
        let timeout = self.longest? + GRACE;
        (self.window.start.at.elapsed() > timeout && self.window.quiet_time() > GRACE)
            .then(|| EngineError::Overdue("drivers did not end with the window".to_owned()))
    }

    fn tick(&mut self) {
        if self.closed < self.parts.len() {
            self.window.report_progress();
        }
    }

    fn end(&mut self, urgent: bool) {
        if self.aborted.is_none() || urgent && !self.urgent {
            self.connected.send_all(&ToDriver::Abort { number: self.number, urgent });
            self.aborted.get_or_insert_with(Instant::now);
            self.urgent |= urgent;
        }
    }
}
