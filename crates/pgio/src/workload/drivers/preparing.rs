//! Prepares a trial on all drivers: all drivers connect and warm up at the same moment, or none does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use postgres::Client;

use super::error::{DriverError, Fault};
use super::merge::PartState;
use super::messages::{FromDriver, ToDriver};
use super::roster::{ConnectedDrivers, DriverEvent};
use crate::workload::clock::{Opener, ROUND_TRIPS, Start, common_lead};
use crate::workload::error::EngineError;
use crate::workload::phase::Phase;
use crate::workload::plan::GRACE;
use pgio_link::{Arrival, Clock, LinkError};

/// Time for the round trips to one driver.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for drivers to end their sessions after an order to end.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(12);

/// Converts a driver's failure into the error of the trial.
pub(super) fn failure(
    connected: &ConnectedDrivers,
    rank: u32,
    (message, fault, stopped): (String, Fault, bool),
) -> EngineError {
    match stopped {
        true => {
            let why = "a signal stopped it".to_owned();
            let host = connected.host(rank);
            DriverError::Lost { rank, host, why, inside: true }.into()
        }
        false => DriverError::Failed { rank, host: connected.host(rank), message, fault }.into(),
    }
}

/// Measures all clocks and opens a window on all drivers at the moment that `agree` returns, which may not come
/// sooner than the time that it is given.
pub(super) fn open_all(
    connected: &ConnectedDrivers,
    parts: &mut [PartState],
    (number, clock): (u64, Clock),
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

/// The phase from the assignments to the readiness of all.
pub(super) struct PreparePhase<'a> {
    pub(super) connected: &'a mut ConnectedDrivers,
    pub(super) parts: Vec<PartState>,
    pub(super) number: u64,
    pub(super) clock: Clock,
    pub(super) admin: &'a mut Client,
    pub(super) opener: Option<&'a Arc<dyn Opener>>,
    /// Drivers that wait for the warm-up to open.
    pub(super) waiting: usize,
    /// What each driver has prepared.
    pub(super) ready: BTreeMap<u32, (Vec<i32>, BTreeMap<String, String>)>,
    /// Drivers that have ended this trial.
    pub(super) ended: BTreeSet<u32>,
    pub(super) last_event: Instant,
    pub(super) aborted: Option<Instant>,
    pub(super) urgent: bool,
    /// The longest time that the warm-up may take.
    pub(super) warmup: Duration,
}

impl Phase for PreparePhase<'_> {
    type Event = Arrival;

    fn take(&mut self, arrival: Arrival) -> Result<(), EngineError> {
        match self.connected.handle_arrival_for(self.number, arrival) {
            Some(DriverEvent::Message(rank, message)) => {
                self.last_event = Instant::now();
                match message {
                    FromDriver::AtGate { .. } => {
                        self.waiting += 1;
                        if self.waiting == self.parts.len() {
                            self.waiting = 0;
                            let trial = (self.number, self.clock);
                            let (opener, admin) = (self.opener, &mut *self.admin);
                            open_all(self.connected, &mut self.parts, trial, |lead| {
                                Start::agree_on_warm_up(opener, admin, lead)
                            })?;
                        }
                    }
                    FromDriver::Ready { pids, pinned, .. } => {
                        self.ready.insert(rank, (pids, pinned));
                    }
                    FromDriver::Failed { message, fault, stopped, .. } => {
                        self.ended.insert(rank);
                        if self.aborted.is_none() {
                            let what = (message, fault, stopped);
                            return Err(match failure(self.connected, rank, what) {
                                EngineError::Drivers(DriverError::Lost {
                                    rank, host, why, ..
                                }) => DriverError::Lost { rank, host, why, inside: false }.into(),
                                other => other,
                            });
                        }
                    }
                    FromDriver::Reached { .. }
                    | FromDriver::Checked { .. }
                    | FromDriver::Opened { .. }
                    // The preparation continues.
                    | FromDriver::Progress { .. }
                    | FromDriver::Closed { .. }
                    | FromDriver::Serving { .. }
                    | FromDriver::Sent { .. }
                    | FromDriver::Ended { .. } => {}
                }
                Ok(())
            }
            Some(DriverEvent::Lost { rank, host, why }) => {
                self.ended.insert(rank);
                Err(DriverError::Lost { rank, host, why, inside: false }.into())
            }
            None => Ok(()),
        }
    }

    fn is_unfinished(&self, ending: bool) -> bool {
        match self.aborted {
            Some(at) if ending => self.ended.len() < self.parts.len() && at.elapsed() < END_TIMEOUT,
            _ => self.ready.len() < self.parts.len() || ending,
        }
    }

    fn overdue(&mut self) -> Option<EngineError> {
        // A driver connects all of its sessions and says nothing meanwhile.
        (self.last_event.elapsed() > GRACE * 3 + self.warmup).then(|| {
            let late = self.parts.iter().find(|part| !self.ready.contains_key(&part.rank));
            let (rank, host) = late.map_or((0, String::new()), |p| (p.rank, p.host.clone()));
            let message = "its sessions were not ready in time; see the server's log".to_owned();
            DriverError::Failed { rank, host, message, fault: Fault::Work }.into()
        })
    }

    fn end(&mut self, urgent: bool) {
        if self.aborted.is_none() || urgent && !self.urgent {
            self.connected.send_all(&ToDriver::Abort { number: self.number, urgent });
            self.aborted.get_or_insert_with(Instant::now);
            self.urgent |= urgent;
        }
    }
}
