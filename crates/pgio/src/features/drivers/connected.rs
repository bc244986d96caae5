//! The drivers that are connected, by rank, what comes in from them, and what all are asked before anything is
//! changed: whether they reach the server and whether their hosts have what the work needs.
//!
//! Next: [`super::roster`] waits for drivers and has missing ones started again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::messages::application_name_of_driver;
use super::messages::{DriverError, Failure, Fault, FromDriver, Report, ToDriver};
use super::roster::{ATTEMPTS, Drivers, Roster, TICK};
use crate::host::stop::Stop;
use crate::workload::error::EngineError;
use crate::workload::shared::SharedWork;
use pgio_connect::ConnectParams;
use pgio_link::{Arrival, Event, Hello, Link};

/// Refusals that are kept, each of some hundred characters.
const KEPT_REFUSALS: usize = 8;

/// The connected drivers, by rank.
#[derive(Debug)]
pub(super) struct ConnectedDrivers {
    pub(super) drivers: BTreeMap<u32, Option<Driver>>,
    /// Why drivers were refused, for the message if some are missing: the last ones, each once.
    pub(super) refused: Vec<String>,
    /// Connections that ended before their driver was registered.
    ended: BTreeSet<u64>,
}

#[derive(Debug)]
pub(super) struct Driver {
    id: u64,
    pub(super) hello: Hello,
    pub(super) link: Link,
}

/// A driver whose connection has ended.
#[derive(Debug)]
pub(super) struct LostDriver {
    pub(super) rank: u32,
    host: String,
    why: String,
}

impl LostDriver {
    /// Returns the error of a trial that loses it inside the window or before.
    pub(super) fn into_error(self, inside: bool) -> EngineError {
        let LostDriver { rank, host, why } = self;
        DriverError::Lost { rank, host, why, inside }.into()
    }
}

impl ConnectedDrivers {
    /// Returns the drivers of these ranks, none of which is connected yet.
    pub(super) fn new(ranks: impl Iterator<Item = u32>) -> ConnectedDrivers {
        ConnectedDrivers {
            drivers: ranks.map(|rank| (rank, None)).collect(),
            refused: Vec::new(),
            ended: BTreeSet::new(),
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.drivers.len() as u32
    }

    pub(super) fn ranks(&self) -> Vec<u32> {
        self.drivers.keys().copied().collect()
    }

    /// Returns the driver of this rank, if it is connected.
    pub(super) fn driver(&self, rank: u32) -> Option<&Driver> {
        self.drivers.get(&rank)?.as_ref()
    }

    /// Records who comes and goes; returns the message of a connected driver and its rank.
    pub(super) fn handle_arrival(
        &mut self,
        arrival: Arrival,
    ) -> Result<Option<(u32, FromDriver)>, LostDriver> {
        match arrival {
            Arrival::Joined { rank, id, hello, link, .. } => {
                if !self.ended.remove(&id) {
                    self.drivers.insert(rank, Some(Driver { id, hello, link }));
                }
                Ok(None)
            }
            Arrival::Refused { address, hello, why, .. } => {
                let host = hello.map_or_else(|| address.ip().to_string(), |hello| hello.host);
                self.keep_refusal(format!("{host} ({why})"));
                Ok(None)
            }
            Arrival::FromDriver { rank, id, event } => {
                let Some(slot) = self.drivers.get_mut(&rank) else { return Ok(None) };
                let driver = match slot {
                    Some(driver) if driver.id == id => driver,
                    _ => {
                        if let Event::Lost(_) = event {
                            self.ended.insert(id);
                        }
                        return Ok(None);
                    }
                };
                let host = driver.hello.host.clone();
                let why = match event {
                    Event::Message(json) => match serde_json::from_slice(&json) {
                        Ok(message) => return Ok(Some((rank, message))),
                        Err(e) => format!("it sent an invalid message: {e}"),
                    },
                    Event::Lost(why) => why,
                };
                *slot = None;
                Err(LostDriver { rank, host, why })
            }
        }
    }

    /// Keeps the last few: any host may be refused, as often as it likes.
    fn keep_refusal(&mut self, text: String) {
        self.refused.retain(|kept| *kept != text);
        if self.refused.len() == KEPT_REFUSALS {
            self.refused.remove(0);
        }
        self.refused.push(text);
    }

    /// Like [`ConnectedDrivers::handle_arrival`], without messages about another trial or question, such as
    /// one that was given up.
    pub(super) fn report_of_trial(
        &mut self,
        number: u64,
        arrival: Arrival,
    ) -> Result<Option<(u32, Report)>, LostDriver> {
        let message = self.handle_arrival(arrival)?.filter(|(_, message)| message.number == number);
        Ok(message.map(|(rank, message)| (rank, message.report)))
    }

    pub(super) fn send(&self, rank: u32, message: &ToDriver) -> Result<(), DriverError> {
        match self.driver(rank) {
            Some(driver) => Ok(driver.link.send(message)?),
            // Its loss is on its way as an event.
            None => Ok(()),
        }
    }

    pub(super) fn send_all(&self, message: &ToDriver) {
        for driver in self.drivers.values().flatten() {
            // A driver that cannot be sent to is lost, which arrives as an event.
            let _ = driver.link.send(message);
        }
    }

    pub(super) fn host(&self, rank: u32) -> String {
        self.driver(rank)
            .map_or_else(|| "an unknown host".to_owned(), |driver| driver.hello.host.clone())
    }

    pub(super) fn missing_ranks(&self) -> Vec<u32> {
        let empty = self.drivers.iter().filter(|(_, driver)| driver.is_none());
        empty.map(|(rank, _)| *rank).collect()
    }
}

/// Time for a driver to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Drivers {
    /// Has every driver connect to the server once. `expected` is what [`server_name`] returns for the
    /// coordinator's own session.
    ///
    /// [`server_name`]: super::messages::server_name
    pub(super) fn reach_server(
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
            Report::Reached(found) if found != expected => {
                let expected = expected.to_owned();
                Err(DriverError::OtherServer { rank, host, found, expected })
            }
            answer => Ok(matches!(answer, Report::Reached(_))),
        };
        self.ask(&ask, &take, stop)
    }

    /// Has every driver look for what the work needs on its host.
    pub(super) fn check_hosts(
        &self,
        work: &dyn SharedWork,
        stop: &Stop,
    ) -> Result<(), EngineError> {
        let part = Box::new(work.part(0, work.sessions().unwrap_or(0))?);
        let ask = |number, _| ToDriver::Check { number, part: part.clone() };
        let take = |_, _, answer| Ok(matches!(answer, Report::Checked));
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
type Take<'a> = dyn Fn(u32, String, Report) -> Result<bool, DriverError> + 'a;

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
            let report = match self.arrivals.recv_timeout(TICK) {
                Ok(arrival) => self.connected.report_of_trial(number, arrival),
                Err(_) => Ok(None),
            };
            if let Some((rank, report)) = report.map_err(|lost| lost.into_error(false))? {
                let host = self.connected.host(rank);
                if let Report::Failed(Failure { message, fault, .. }) = report {
                    return Err(DriverError::Failed { rank, host, message, fault }.into());
                }
                if take(rank, host, report)? {
                    open.remove(&rank);
                }
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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::mpsc;

    use super::*;
    use pgio_link::{Clock, Listener, PROTOCOL, Patience, Ranks, Run, Token, build_hash, dial};

    #[test]
    fn only_the_last_refusals_are_kept_each_once() {
        let (sender, arrivals) = mpsc::channel();
        let token = Token::draw().unwrap();
        let run = Run {
            id: "run".to_owned(),
            token: token.clone(),
            version: "1.0".to_owned(),
            ranks: Ranks::new(1),
        };
        let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = Listener::open(any, run, Clock::start(), sender).unwrap();
        let address = format!("127.0.0.1:{}", listener.port());
        let patience = Patience { within: Duration::from_secs(20), stopped: &|| false };
        let mut connected = ConnectedDrivers::new(0..1);
        for number in 0..2 * KEPT_REFUSALS {
            let hello = Hello {
                protocol: PROTOCOL,
                version: "0.9".to_owned(),
                build: build_hash().unwrap(),
                host: format!("host-{number}"),
                pid: 1,
                rank: None,
            };
            // The second time for a reason that is known.
            for _ in 0..2 {
                let sink = Box::new(|_: Event| {});
                let refused = dial(&address, &patience, &token, &hello, Clock::start(), sink);
                assert!(refused.is_err());
                let arrival = arrivals.recv_timeout(Duration::from_secs(20)).unwrap();
                assert!(connected.handle_arrival(arrival).unwrap().is_none());
            }
        }
        let kept: Vec<&str> =
            connected.refused.iter().filter_map(|text| text.split(' ').next()).collect();
        let last: Vec<String> =
            (KEPT_REFUSALS..2 * KEPT_REFUSALS).map(|number| format!("host-{number}")).collect();
        assert_eq!(kept, last);
    }
}
