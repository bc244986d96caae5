//! Who is connected: the drivers of a run by rank, and the engine that starts them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::engine::{Engine, split_by_group};
use super::error::DriverError;
use super::launch::{Invitation, Launcher};
use super::messages::{FromDriver, ToDriver};
use crate::host::stop::Stop;
use crate::workload::error::EngineError;
use pgio_link::{
    Arrival, Clock, Event, Hello, Link, Listener, Ranks, Token, host_name, local_addresses,
};

pub(super) const TICK: Duration = Duration::from_millis(50);
/// How often something is prepared again because a driver was lost before the window.
const ATTEMPTS: u32 = 3;

/// Drivers of a run: all, or those of one server. One trial at a time uses them.
pub struct Drivers(pub(super) Mutex<Roster>);

impl std::fmt::Debug for Drivers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Drivers")
    }
}

pub(super) struct Roster {
    pub(super) connected: ConnectedDrivers,
    pub(super) arrivals: Receiver<Arrival>,
    engine: Arc<Engine>,
    pub(super) clock: Clock,
    pub(super) run_id: String,
    /// The number of the last trial.
    pub(super) number: u64,
}

/// The connected drivers, by rank.
#[derive(Debug)]
pub(super) struct ConnectedDrivers {
    pub(super) drivers: BTreeMap<u32, Option<Driver>>,
    /// Why drivers were refused, for the message if some are missing.
    refused: Vec<String>,
    /// Connections that ended before their driver was registered.
    ended: BTreeSet<u64>,
}

#[derive(Debug)]
pub(super) struct Driver {
    id: u64,
    pub(super) hello: Hello,
    pub(super) link: Link,
}

/// An event of a connected driver.
#[derive(Debug)]
pub(super) enum DriverEvent {
    Message(u32, FromDriver),
    Lost { rank: u32, host: String, why: String },
}

impl ConnectedDrivers {
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

    /// Records who comes and goes; returns the event of a connected driver.
    pub(super) fn handle_arrival(&mut self, arrival: Arrival) -> Option<DriverEvent> {
        match arrival {
            Arrival::Joined { rank, id, hello, link, .. } => {
                if !self.ended.remove(&id) {
                    self.drivers.insert(rank, Some(Driver { id, hello, link }));
                }
                None
            }
            Arrival::Refused { address, hello, why } => {
                let host = hello.map_or_else(|| address.ip().to_string(), |hello| hello.host);
                self.refused.push(format!("{host} ({why})"));
                None
            }
            Arrival::FromDriver { rank, id, event } => {
                let slot = self.drivers.get_mut(&rank)?;
                let driver = match slot {
                    Some(driver) if driver.id == id => driver,
                    _ => {
                        if let Event::Lost(_) = event {
                            self.ended.insert(id);
                        }
                        return None;
                    }
                };
                let host = driver.hello.host.clone();
                let why = match event {
                    Event::Message(json) => match serde_json::from_slice(&json) {
                        Ok(message) => return Some(DriverEvent::Message(rank, message)),
                        Err(e) => format!("it sent an invalid message: {e}"),
                    },
                    Event::Lost(why) => why,
                };
                *slot = None;
                Some(DriverEvent::Lost { rank, host, why })
            }
        }
    }

    /// Like [`ConnectedDrivers::handle_arrival`], without messages about another trial or question, such as one
    /// that was given up.
    pub(super) fn handle_arrival_for(
        &mut self,
        number: u64,
        arrival: Arrival,
    ) -> Option<DriverEvent> {
        self.handle_arrival(arrival).filter(|event| match event {
            DriverEvent::Message(_, message) => message.number() == number,
            DriverEvent::Lost { .. } => true,
        })
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

    fn missing_ranks(&self) -> Vec<u32> {
        let empty = self.drivers.iter().filter(|(_, driver)| driver.is_none());
        empty.map(|(rank, _)| *rank).collect()
    }
}

impl Drivers {
    /// Listens, has the engine start the drivers, and waits until all have connected. They are divided
    /// into `groups` groups of the same size, each of which serves trials of its own.
    pub fn open(
        mut launcher: Box<dyn Launcher>,
        (count, groups): (u32, u32),
        listen: Option<SocketAddr>,
        run_id: &str,
        stop: &Stop,
    ) -> Result<Vec<Arc<Drivers>>, EngineError> {
        launcher.check().map_err(EngineError::Drivers)?;
        let token = launcher.token().map_err(DriverError::from)?;
        let token = match token {
            Some(token) => token,
            None => Token::draw().map_err(DriverError::from)?,
        };
        let local_only = launcher.is_on_this_machine();
        let ip = if local_only { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        let address = listen.unwrap_or_else(|| SocketAddr::from((ip, 0)));
        let (sender, arrivals) = mpsc::channel();
        let clock = Clock::start();
        let ranks = Ranks::new(count);
        let version = (run_id, env!("CARGO_PKG_VERSION"));
        let listener = Listener::open(address, token.clone(), version, ranks, clock, sender)
            .map_err(DriverError::from)?;
        let coordinator = coordinator_addresses(address, listener.port(), local_only);
        launcher.invite(Invitation { coordinator, token, run_id: run_id.to_owned() });
        // All at once, so that an engine may place them as it likes.
        let ranks: Vec<u32> = (0..count).collect();
        let engine = Arc::new(Engine::new(launcher, listener)?);
        engine.start(&ranks)?;
        let each = split_by_group(arrivals, groups).map_err(DriverError::from)?;
        let rosters = each.into_iter().zip(0..).map(|(arrivals, group)| {
            let own = ranks.iter().filter(|rank| *rank % groups == group);
            let mut roster = Roster {
                connected: ConnectedDrivers {
                    drivers: own.map(|rank| (*rank, None)).collect(),
                    refused: Vec::new(),
                    ended: BTreeSet::new(),
                },
                arrivals,
                engine: Arc::clone(&engine),
                clock,
                run_id: run_id.to_owned(),
                number: 0,
            };
            roster.wait_for_all(stop)?;
            Ok(Arc::new(Drivers(Mutex::new(roster))))
        });
        rosters.collect()
    }
}

/// Returns where drivers find this process: every address that may be the right one, since the proof of
/// the token tells it from others.
fn coordinator_addresses(bound: SocketAddr, port: u16, local_only: bool) -> String {
    if local_only || !bound.ip().is_unspecified() {
        return SocketAddr::new(bound.ip(), port).to_string();
    }
    let own = local_addresses().into_iter().filter(|ip| ip.is_ipv4() == bound.is_ipv4());
    let mut all: Vec<String> = own.map(|ip| SocketAddr::new(ip, port).to_string()).collect();
    all.push(format!("{}:{port}", host_name()));
    all.join(",")
}

impl Roster {
    /// Prepares something on all drivers, and again with another driver if one is lost meanwhile.
    pub(super) fn with_all<T>(
        &mut self,
        stop: &Stop,
        mut prepare: impl FnMut(&mut Roster) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let mut attempts = 0;
        loop {
            self.replace_missing(stop)?;
            attempts += 1;
            match prepare(self) {
                Err(EngineError::Drivers(DriverError::Lost { .. })) if attempts < ATTEMPTS => {}
                done => return done,
            }
        }
    }

    /// Waits until every rank is connected; has the engine start those that are missing.
    fn replace_missing(&mut self, stop: &Stop) -> Result<(), EngineError> {
        // Handle drivers that connected or were lost since the last trial.
        while let Ok(arrival) = self.arrivals.try_recv() {
            self.connected.handle_arrival(arrival);
        }
        let missing = self.connected.missing_ranks();
        if missing.is_empty() {
            return Ok(());
        }
        self.connected.refused.clear();
        self.engine.start(&missing)?;
        self.wait_for_all(stop)
    }

    /// Waits until every driver that was started is connected.
    fn wait_for_all(&mut self, stop: &Stop) -> Result<(), EngineError> {
        let (begun, timeout) = (Instant::now(), self.engine.timeout()?);
        let mut losses = 0;
        loop {
            match self.arrivals.recv_timeout(TICK) {
                Ok(arrival) => {
                    if let Some(DriverEvent::Lost { rank, host, why }) =
                        self.connected.handle_arrival(arrival)
                    {
                        losses += 1;
                        if losses > ATTEMPTS * self.connected.count() {
                            return Err(DriverError::Lost { rank, host, why, inside: false }.into());
                        }
                        // Whatever ended the others may have ended this one a moment later.
                        self.engine.start(&[rank])?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let why = "the thread that listens for drivers ended".to_owned();
                    return Err(DriverError::Ended(why).into());
                }
            }
            let missing = self.connected.missing_ranks();
            if missing.is_empty() {
                return Ok(());
            }
            if stop.requested() {
                return Err(EngineError::Stopped);
            }
            let ended = self.engine.why_missing(&missing)?;
            if ended.is_some() || begun.elapsed() > timeout {
                return Err(self.missing_error(&missing, begun.elapsed(), ended).into());
            }
        }
    }

    fn missing_error(
        &self,
        missing: &[u32],
        waited: Duration,
        ended: Option<String>,
    ) -> DriverError {
        let mut detail = String::new();
        if let Some(ended) = ended {
            detail.push_str(&format!("; {ended}"));
        }
        if !self.connected.refused.is_empty() {
            detail.push_str(&format!("; refused: {}", self.connected.refused.join(", ")));
        }
        if detail.is_empty() {
            let ranks: Vec<String> = missing.iter().map(u32::to_string).collect();
            let hint = "check that they can reach this machine, or set listen in [drivers]";
            detail = format!("; missing: {}: {hint}", ranks.join(", "));
        }
        DriverError::Missing {
            connected: self.connected.drivers.len() - missing.len(),
            drivers: self.connected.count(),
            seconds: waited.as_secs(),
            detail,
        }
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        self.connected.send_all(&ToDriver::End);
        // Dropping the links lets the last message leave.
        self.connected.drivers.clear();
    }
}

pub(super) fn application_name(run_id: &str, rank: u32) -> String {
    crate::pg::leftovers::application_name_of_driver(run_id, rank)
}

#[cfg(test)]
mod tests;
