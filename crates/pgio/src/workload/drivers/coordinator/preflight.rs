//! Asks all drivers, before anything is changed, whether they reach the server and whether their hosts have
//! what the work needs.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::connected::DriverEvent;
use super::roster::{ATTEMPTS, Drivers, Roster, TICK};
use crate::host::stop::Stop;
use crate::pg::leftovers::application_name_of_driver;
use crate::workload::drivers::error::{DriverError, Fault};
use crate::workload::drivers::messages::{FromDriver, ToDriver, Work};
use crate::workload::error::EngineError;
use pgio_connect::ConnectParams;

/// Time for a driver to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Drivers {
    /// Has every driver connect to the server once. `expected` is what [`server_name`] returns for the
    /// coordinator's own session.
    ///
    /// [`server_name`]: crate::workload::drivers::server_name
    pub fn reach(
        &self,
        params: &ConnectParams,
        expected: &str,
        stop: &Stop,
    ) -> Result<(), EngineError> {
        let run_id = self.0.lock().unwrap_or_else(PoisonError::into_inner).run_id.clone();
        let ask = |number, rank| ToDriver::Reach {
            number,
            dsn: params.without_secrets(),
            application_name: application_name_of_driver(&run_id, rank),
        };
        let take = |rank, host, answer| match answer {
            FromDriver::Reached { server, .. } if server != expected => {
                let expected = expected.to_owned();
                Err(DriverError::OtherServer { rank, host, found: server, expected })
            }
            answer => Ok(matches!(answer, FromDriver::Reached { .. })),
        };
        self.ask(&ask, &take, stop)
    }

    /// Has every driver look for what the work needs.
    pub(super) fn check_hosts(&self, work: &Work, stop: &Stop) -> Result<(), EngineError> {
        let ask = |number, _| ToDriver::Check { number, work: Box::new(work.clone()) };
        let take = |_, _, answer| Ok(matches!(answer, FromDriver::Checked { .. }));
        self.ask(&ask, &take, stop)
    }

    fn ask(&self, ask: &Ask<'_>, take: &Take<'_>, stop: &Stop) -> Result<(), EngineError> {
        let mut roster = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        roster.with_all(stop, ATTEMPTS, |roster| roster.ask(ask, take, stop))
    }
}

/// Makes the message from its number and the driver's rank.
type Ask<'a> = dyn Fn(u64, u32) -> ToDriver + 'a;
/// Returns whether this is the answer, of the driver of this rank on this host.
type Take<'a> = dyn Fn(u32, String, FromDriver) -> Result<bool, DriverError> + 'a;

impl Roster {
    fn ask(&mut self, ask: &Ask<'_>, take: &Take<'_>, stop: &Stop) -> Result<(), EngineError> {
        self.number += 1;
        let number = self.number;
        for rank in self.connected.ranks() {
            self.connected.send(rank, &ask(number, rank))?;
        }
        let begun = Instant::now();
        let mut open: BTreeSet<u32> = self.connected.ranks().into_iter().collect();
        while let Some(first) = open.first().copied() {
            let event = match self.arrivals.recv_timeout(TICK) {
                Ok(arrival) => self.connected.handle_arrival_for(number, arrival),
                Err(_) => None,
            };
            match event {
                Some(DriverEvent::Message(rank, message)) => {
                    let host = self.connected.host(rank);
                    if let FromDriver::Failed { message, fault, .. } = message {
                        return Err(DriverError::Failed { rank, host, message, fault }.into());
                    }
                    if take(rank, host, message)? {
                        open.remove(&rank);
                    }
                }
                Some(DriverEvent::Lost { rank, host, why }) => {
                    return Err(DriverError::Lost { rank, host, why, inside: false }.into());
                }
                None => {}
            }
            if stop.requested() {
                return Err(EngineError::Stopped);
            }
            if begun.elapsed() > TIMEOUT {
                let seconds = TIMEOUT.as_secs();
                return Err(DriverError::Failed {
                    rank: first,
                    host: self.connected.host(first),
                    message: format!(
                        "no answer within {seconds} s; check that its host can reach the server and is not overloaded"
                    ),
                    fault: Fault::Connect,
                }
                .into());
            }
        }
        Ok(())
    }
}
