//! The two phases of a measured window: all drivers come to its start, then they work.
//!
//! Next: [`super::remote`] runs them; [`super::preparing`] is the phase before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::error::{DriverError, Fault};
use super::merge::PartState;
use super::messages::{FromDriver, PartProgress, ToDriver};
use super::preparing::{END_TIMEOUT, failure};
use super::proof;
use super::roster::{ConnectedDrivers, DriverEvent, application_name};
use crate::pg::leftovers::application_name_of_command;
use crate::workload::error::EngineError;
use crate::workload::phase::Phase;
use crate::workload::plan::GRACE;
use crate::workload::window::{OpenWindow, span};
use pgio_link::Arrival;

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

    fn take(&mut self, arrival: Arrival) -> Result<(), EngineError> {
        match self.connected.handle_arrival_for(self.number, arrival) {
            Some(DriverEvent::Message(rank, message)) => {
                match message {
                    FromDriver::AtGate { .. } => self.waiting += 1,
                    FromDriver::Failed { message, fault, stopped, .. } => {
                        return Err(failure(self.connected, rank, (message, fault, stopped)));
                    }
                    FromDriver::Reached { .. }
                    | FromDriver::Checked { .. }
                    | FromDriver::Ready { .. }
                    | FromDriver::Opened { .. }
                    | FromDriver::Progress { .. }
                    | FromDriver::Closed { .. }
                    | FromDriver::Serving { .. }
                    | FromDriver::Sent { .. }
                    | FromDriver::Ended { .. } => {}
                }
                Ok(())
            }
            Some(DriverEvent::Lost { rank, host, why }) => {
                Err(DriverError::Lost { rank, host, why, inside: false }.into())
            }
            None => Ok(()),
        }
    }

    fn is_unfinished(&self, ending: bool) -> bool {
        self.waiting < self.drivers && !ending
    }

    fn overdue(&mut self) -> Option<EngineError> {
        (self.begun.elapsed() > GRACE)
            .then(|| EngineError::Other("drivers did not come to the window's start".to_owned()))
    }

    fn end(&mut self, _urgent: bool) {}
}

/// The drivers during a window.
pub(super) struct WindowPhase<'a> {
    pub(super) connected: &'a mut ConnectedDrivers,
    pub(super) parts: &'a mut [PartState],
    pub(super) window: OpenWindow<'a>,
    pub(super) number: u64,
    /// The longest time from the start until the drivers have ended; none: no limit.
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

impl WindowPhase<'_> {
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
                let name = application_name_of_command(&application_name(self.run_id, rank));
                // Without an answer, the driver's addresses stay unknown.
                let seen = proof::find_sessions(self.window.admin(), &name, &pids);
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
                    return Err(failure(self.connected, rank, (message, Fault::Work, stopped)));
                }
            }
            FromDriver::Failed { message, fault, stopped, .. } => {
                self.ended.insert(rank);
                if self.aborted.is_none() {
                    return Err(failure(self.connected, rank, (message, fault, stopped)));
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

impl Phase for WindowPhase<'_> {
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

    /// Drivers give up work that hangs; later than they do, the drivers themselves hang.
    fn overdue(&mut self) -> Option<EngineError> {
        let timeout = self.longest? + GRACE;
        (self.window.start.at.elapsed() > timeout)
            .then(|| EngineError::Other("drivers did not end with the window".to_owned()))
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
