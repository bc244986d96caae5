//! The second phase of a trial: all drivers come to the start of the measured window.
//!
//! Next: [`super::common_start`] opens the window, [`super::window_phase`] is the phase after.

use std::time::Instant;

use super::connected::{ConnectedDrivers, DriverEvent};
use super::failures::Failure;
use crate::workload::drivers::error::DriverError;
use crate::workload::drivers::messages::FromDriver;
use crate::workload::error::EngineError;
use crate::workload::phase::Phase;
use crate::workload::plan::GRACE;
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
                        let failure = Failure { message, fault, stopped };
                        return Err(failure.into_error(self.connected, rank));
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
            .then(|| EngineError::Overdue("drivers did not come to the window's start".to_owned()))
    }

    fn end(&mut self, _urgent: bool) {}
}
