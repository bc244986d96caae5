//! The first phase of a trial: all drivers connect and warm up at the same moment, or none does.
//!
//! Next: [`super::gate_phase`] and [`super::window_phase`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use postgres::Client;

use super::common_start::open_all;
use super::connected::{ConnectedDrivers, DriverEvent};
use super::failures::{END_TIMEOUT, Failure};
use super::part::PartState;
use super::roster::Roster;
use crate::workload::clock::{Opener, Start};
use crate::workload::drivers::error::{DriverError, Fault};
use crate::workload::drivers::messages::{FromDriver, ToDriver, Work};
use crate::workload::error::EngineError;
use crate::workload::participants::Setup;
use crate::workload::phase::{self, Phase};
use crate::workload::plan::GRACE;
use pgio_link::{Arrival, Clock};

/// What each driver has prepared: the processes of its sessions and where they are pinned.
pub(super) type Ready = BTreeMap<u32, (Vec<i32>, BTreeMap<String, String>)>;

impl Roster {
    /// Sends the assignments and waits until all drivers are ready.
    pub(super) fn prepare(
        &mut self,
        work: &Work,
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
    urgent: bool,
    /// The longest time that the warm-up may take.
    warmup: Duration,
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
                            let (number, clock) = (self.number, self.clock);
                            let (opener, admin) = (self.opener, &mut *self.admin);
                            open_all(self.connected, &mut self.parts, number, clock, |lead| {
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
                            let failure = Failure { message, fault, stopped };
                            return Err(match failure.into_error(self.connected, rank) {
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
