//! Who is connected: the drivers of a run by rank, and the engine that starts them.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::error::{DriverError, Fault};
use super::launch::{Invitation, Launcher};
use super::messages::{FromDriver, ToDriver, Work};
use crate::host::stop::Stop;
use crate::workload::error::EngineError;
use pgio_connect::ConnectParams;
use pgio_link::{
    Arrival, Clock, Event, Hello, Link, Listener, Seats, Token, host_name, local_addresses,
};

const TICK: Duration = Duration::from_millis(50);
/// How often something is prepared again because a driver was lost before the window.
const ATTEMPTS: u32 = 3;
/// Time for a driver to reach the server and say so.
const REACHED: Duration = Duration::from_secs(30);

/// The drivers of a run. One trial at a time uses them.
pub struct Drivers(pub(super) Mutex<Roster>);

impl std::fmt::Debug for Drivers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Drivers")
    }
}

pub(super) struct Roster {
    pub(super) seated: Seated,
    pub(super) arrivals: Receiver<Arrival>,
    launcher: Box<dyn Launcher>,
    pub(super) clock: Clock,
    pub(super) run_id: String,
    /// The number of the last trial.
    pub(super) number: u64,
    // Drops last: drivers that receive the order to end need no new connection.
    _listener: Listener,
}

/// The connected drivers, by rank.
#[derive(Debug)]
pub(super) struct Seated {
    pub(super) drivers: Vec<Option<Driver>>,
    /// Why drivers were refused, for the message if some are missing.
    refused: Vec<String>,
    /// Connections that ended before they were seated.
    ended: BTreeSet<u64>,
}

#[derive(Debug)]
pub(super) struct Driver {
    id: u64,
    pub(super) hello: Hello,
    pub(super) link: Link,
}

/// What a seated driver says.
#[derive(Debug)]
pub(super) enum Said {
    Message(u32, FromDriver),
    Lost { rank: u32, host: String, why: String },
}

impl Seated {
    pub(super) fn count(&self) -> u32 {
        self.drivers.len() as u32
    }

    /// Takes note of who comes and goes; returns what a seated driver says.
    pub(super) fn note(&mut self, arrival: Arrival) -> Option<Said> {
        match arrival {
            Arrival::Joined { rank, id, hello, link, .. } => {
                if !self.ended.remove(&id) {
                    self.drivers[rank as usize] = Some(Driver { id, hello, link });
                }
                None
            }
            Arrival::Refused { address, hello, why } => {
                let host = hello.map_or_else(|| address.ip().to_string(), |hello| hello.host);
                self.refused.push(format!("{host} ({why})"));
                None
            }
            Arrival::Heard { rank, id, event } => {
                let seat = &mut self.drivers[rank as usize];
                let driver = match seat {
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
                        Ok(message) => return Some(Said::Message(rank, message)),
                        Err(e) => format!("it sent what is no message: {e}"),
                    },
                    Event::Lost(why) => why,
                };
                *seat = None;
                Some(Said::Lost { rank, host, why })
            }
        }
    }

    pub(super) fn send(&self, rank: u32, message: &ToDriver) -> Result<(), DriverError> {
        match self.drivers.get(rank as usize).and_then(Option::as_ref) {
            Some(driver) => Ok(driver.link.send(message)?),
            // Its loss is on its way as an event.
            None => Ok(()),
        }
    }

    pub(super) fn send_all(&self, message: &ToDriver) {
        for driver in self.drivers.iter().flatten() {
            // A driver that cannot be sent to is lost, which arrives as an event.
            let _ = driver.link.send(message);
        }
    }

    pub(super) fn host(&self, rank: u32) -> String {
        let driver = self.drivers.get(rank as usize).and_then(Option::as_ref);
        driver.map_or_else(|| "an unknown host".to_owned(), |driver| driver.hello.host.clone())
    }

    fn missing(&self) -> Vec<u32> {
        let ranks = self.drivers.iter().enumerate();
        ranks.filter(|(_, driver)| driver.is_none()).map(|(rank, _)| rank as u32).collect()
    }
}

impl Drivers {
    /// Listens, has the engine start the drivers, and waits until all have connected.
    pub fn open(
        mut launcher: Box<dyn Launcher>,
        count: u32,
        listen: Option<SocketAddr>,
        run_id: &str,
        stop: &Stop,
    ) -> Result<Drivers, EngineError> {
        launcher.check().map_err(EngineError::Drivers)?;
        let token = launcher.token().map_err(DriverError::from)?;
        let token = match token {
            Some(token) => token,
            None => Token::draw().map_err(DriverError::from)?,
        };
        let near = launcher.is_on_this_machine();
        let ip = if near { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        let address = listen.unwrap_or_else(|| SocketAddr::from((ip, 0)));
        let (sender, arrivals) = mpsc::channel();
        let clock = Clock::start();
        let seats = Seats::new(count);
        let version = (run_id, env!("CARGO_PKG_VERSION"));
        let listener = Listener::open(address, token.clone(), version, seats, clock, sender)
            .map_err(DriverError::from)?;
        let coordinator = addresses(address, listener.port(), near);
        launcher.invite(Invitation { coordinator, token, run_id: run_id.to_owned() });
        let seated = Seated {
            drivers: (0..count).map(|_| None).collect(),
            refused: Vec::new(),
            ended: BTreeSet::new(),
        };
        let mut roster = Roster {
            seated,
            arrivals,
            launcher,
            clock,
            run_id: run_id.to_owned(),
            number: 0,
            _listener: listener,
        };
        roster.fill(stop)?;
        Ok(Drivers(Mutex::new(roster)))
    }

    /// Has every driver connect to the server once and look for what the works need, before anything is
    /// changed. `server` is what [`super::server_name`] returns for the coordinator's own session.
    pub fn reach(
        &self,
        (params, works): (&ConnectParams, &[Work]),
        server: &str,
        stop: &Stop,
    ) -> Result<(), EngineError> {
        let mut roster = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        roster.with_all(stop, |roster| roster.reach(params, works, server, stop))
    }
}

/// Returns where drivers find this process: every address that may be the right one, since the proof of
/// the token tells it from others.
fn addresses(bound: SocketAddr, port: u16, near: bool) -> String {
    if near || !bound.ip().is_unspecified() {
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
            self.fill(stop)?;
            attempts += 1;
            match prepare(self) {
                Err(EngineError::Drivers(DriverError::Lost { .. })) if attempts < ATTEMPTS => {}
                done => return done,
            }
        }
    }

    /// Waits until every rank is connected; has the engine start those that are missing.
    fn fill(&mut self, stop: &Stop) -> Result<(), EngineError> {
        // Whoever came or went since the last trial.
        while let Ok(arrival) = self.arrivals.try_recv() {
            self.seated.note(arrival);
        }
        let missing = self.seated.missing();
        if missing.is_empty() {
            return Ok(());
        }
        self.seated.refused.clear();
        self.launcher.start(&missing)?;
        let (begun, patience) = (Instant::now(), self.launcher.patience());
        let mut losses = 0;
        loop {
            match self.arrivals.recv_timeout(TICK) {
                Ok(arrival) => {
                    if let Some(Said::Lost { rank, host, why }) = self.seated.note(arrival) {
                        losses += 1;
                        if losses > ATTEMPTS * self.seated.count() {
                            return Err(DriverError::Lost { rank, host, why, inside: false }.into());
                        }
                        // Whatever ended the others may have ended this one a moment later.
                        self.launcher.start(&[rank])?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let why = "the thread that listens for drivers ended".to_owned();
                    return Err(DriverError::Ended(why).into());
                }
            }
            let missing = self.seated.missing();
            if missing.is_empty() {
                return Ok(());
            }
            if stop.requested() {
                return Err(EngineError::Stopped);
            }
            let ended = self.launcher.ended(&missing);
            if ended.is_some() || begun.elapsed() > patience {
                return Err(self.missing(&missing, begun.elapsed(), ended).into());
            }
        }
    }

    fn missing(&self, missing: &[u32], waited: Duration, ended: Option<String>) -> DriverError {
        let mut detail = String::new();
        if let Some(ended) = ended {
            detail.push_str(&format!("; {ended}"));
        }
        if !self.seated.refused.is_empty() {
            detail.push_str(&format!("; refused: {}", self.seated.refused.join(", ")));
        }
        if detail.is_empty() {
            let ranks: Vec<String> = missing.iter().map(u32::to_string).collect();
            let hint = "check that they can reach this machine, or set listen in [drivers]";
            detail = format!("; missing: {}: {hint}", ranks.join(", "));
        }
        DriverError::Missing {
            connected: self.seated.drivers.len() - missing.len(),
            drivers: self.seated.count(),
            seconds: waited.as_secs(),
            detail,
        }
    }

    fn reach(
        &mut self,
        params: &ConnectParams,
        works: &[Work],
        expected: &str,
        stop: &Stop,
    ) -> Result<(), EngineError> {
        self.number += 1;
        let number = self.number;
        for rank in 0..self.seated.count() {
            let application_name = application_name(&self.run_id, rank);
            let dsn = params.without_secrets();
            let works = works.to_vec();
            let reach = ToDriver::Reach { number, dsn, application_name, works };
            self.seated.send(rank, &reach)?;
        }
        let begun = Instant::now();
        let mut open: BTreeSet<u32> = (0..self.seated.count()).collect();
        while let Some(first) = open.first().copied() {
            let said = match self.arrivals.recv_timeout(TICK) {
                Ok(arrival) => self.seated.note(arrival),
                Err(_) => None,
            };
            match said {
                Some(Said::Message(rank, message)) if message.number() == number => {
                    let host = self.seated.host(rank);
                    match message {
                        FromDriver::Reached { server, .. } if server == expected => {
                            open.remove(&rank);
                        }
                        FromDriver::Reached { server: found, .. } => {
                            let expected = expected.to_owned();
                            let error = DriverError::OtherServer { rank, host, found, expected };
                            return Err(error.into());
                        }
                        FromDriver::Failed { message, fault, .. } => {
                            return Err(DriverError::Failed { rank, host, message, fault }.into());
                        }
                        _ => {}
                    }
                }
                Some(Said::Lost { rank, host, why }) => {
                    return Err(DriverError::Lost { rank, host, why, inside: false }.into());
                }
                _ => {}
            }
            if stop.requested() {
                return Err(EngineError::Stopped);
            }
            if begun.elapsed() > REACHED {
                let seconds = REACHED.as_secs();
                return Err(DriverError::Failed {
                    rank: first,
                    host: self.seated.host(first),
                    message: format!("the server does not answer it within {seconds} s"),
                    fault: Fault::Connect,
                }
                .into());
            }
        }
        Ok(())
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        self.seated.send_all(&ToDriver::End);
        // Dropping the links lets the last message leave.
        self.seated.drivers.clear();
        self.launcher.end();
    }
}

pub(super) fn application_name(run_id: &str, rank: u32) -> String {
    crate::pg::leftovers::application_name_of_driver(run_id, rank)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use pgio_link::{Hello, LinkError, PROTOCOL, build_hash, dial};

    /// Starts drivers that do nothing. While the first one is replaced the second is lost, and both come when that
    /// is replaced, too.
    #[derive(Default)]
    struct Fake {
        invitation: Option<Invitation>,
        links: Arc<Mutex<BTreeMap<u32, Link>>>,
        started: Arc<Mutex<Vec<u32>>>,
    }

    impl Fake {
        fn connect(&self, rank: u32) {
            let Invitation { coordinator, token, .. } = self.invitation.as_ref().unwrap();
            let hello = Hello {
                protocol: PROTOCOL,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                build: build_hash().unwrap(),
                host: host_name(),
                pid: 1,
                rank: Some(rank),
            };
            let patience: (Duration, &dyn Fn() -> bool) = (Duration::from_secs(5), &|| false);
            let link = dial(coordinator, patience, token, &hello, Clock::start(), Box::new(|_| {}));
            self.links.lock().unwrap().insert(rank, link.unwrap().1);
        }
    }

    impl Launcher for Fake {
        fn check(&self) -> Result<(), DriverError> {
            Ok(())
        }

        fn token(&self) -> Result<Option<Token>, LinkError> {
            Ok(None)
        }

        fn is_on_this_machine(&self) -> bool {
            true
        }

        fn invite(&mut self, invitation: Invitation) {
            self.invitation = Some(invitation);
        }

        fn start(&mut self, ranks: &[u32]) -> Result<(), DriverError> {
            let mut started = self.started.lock().unwrap();
            match started.len() {
                0 => ranks.iter().for_each(|rank| self.connect(*rank)),
                2 => drop(self.links.lock().unwrap().remove(&1)),
                _ => [0, 1].iter().for_each(|rank| self.connect(*rank)),
            }
            started.extend(ranks);
            Ok(())
        }

        fn ended(&mut self, _: &[u32]) -> Option<String> {
            None
        }

        fn patience(&self) -> Duration {
            Duration::from_secs(20)
        }

        fn end(&mut self) {}
    }

    #[test]
    fn a_driver_that_is_lost_while_others_are_replaced_is_replaced_too() {
        let fake = Fake::default();
        let (links, started) = (Arc::clone(&fake.links), Arc::clone(&fake.started));
        let stop = Stop::new();
        let drivers = Drivers::open(Box::new(fake), 2, None, "test", &stop).unwrap();
        assert_eq!(*started.lock().unwrap(), [0, 1]);
        links.lock().unwrap().remove(&0);
        let mut roster = drivers.0.lock().unwrap();
        while roster.seated.missing().is_empty() {
            let arrival = roster.arrivals.recv_timeout(Duration::from_secs(5)).unwrap();
            roster.seated.note(arrival);
        }
        roster.fill(&stop).unwrap();
        assert_eq!(*started.lock().unwrap(), [0, 1, 0, 1]);
        assert_eq!(roster.seated.missing(), Vec::<u32>::new());
    }
}
