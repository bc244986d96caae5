//! What becomes of a trial on which a driver fails or is lost: its error, its check, and the end of the other
//! drivers' sessions.

use std::collections::BTreeSet;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::connected::{ConnectedDrivers, DriverEvent};
use crate::workload::drivers::error::{DriverError, Fault};
use crate::workload::drivers::messages::{FromDriver, ToDriver};
use crate::workload::error::EngineError;
use pgio_link::Arrival;
use pgio_results::model::Check;

/// Time for drivers to end their sessions after an order to end.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(12);

/// What a driver says of its failure.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) message: String,
    pub(super) fault: Fault,
    /// Somebody else than the coordinator ended the driver.
    pub(super) stopped: bool,
}

impl Failure {
    /// Converts the failure of the driver of this rank into the error of the trial.
    pub(super) fn into_error(self, connected: &ConnectedDrivers, rank: u32) -> EngineError {
        let Failure { message, fault, stopped } = self;
        if stopped {
            let why = "a signal stopped it".to_owned();
            let host = connected.host(rank);
            DriverError::Lost { rank, host, why, inside: true }.into()
        } else {
            DriverError::Failed { rank, host: connected.host(rank), message, fault }.into()
        }
    }
}

/// Has all drivers end their sessions and waits until they have.
pub(super) fn abandon(
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

/// Returns the check of a trial that lost a driver.
pub fn lost_driver_check(error: &EngineError) -> Option<Check> {
    match error {
        EngineError::Drivers(lost @ DriverError::Lost { .. }) => Some(Check::invalid(
            "driver-lost",
            lost.to_string(),
            "find out what ended the driver or cut its connection; the trial is repeated with all drivers",
        )),
        _ => None,
    }
}
