//! The drivers of a run and what starts them; it waits until all are connected, and replaces those that are
//! lost.
//!
//! Next: [`super::connected`] holds the connections, [`super::launch`] starts drivers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::connected::ConnectedDrivers;
use super::launch::{Invitation, Launcher};
use super::messages::{DriverError, ToDriver};
use crate::host::stop::Stop;
use crate::workload::error::EngineError;
use pgio_link::{
    Arrival, Clock, LinkError, Listener, Ranks, Run, Token, host_name, local_addresses,
};

/// The interval of checks while no driver says anything.
pub(super) const TICK: Duration = Duration::from_millis(50);
/// How often something is prepared at most if drivers are lost before the window.
pub(super) const ATTEMPTS: u32 = 3;

/// Drivers of a run: all, or one server's. One trial at a time uses them.
pub(super) struct Drivers(pub(super) Mutex<Roster>);

impl std::fmt::Debug for Drivers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Drivers")
    }
}

pub(super) struct Roster {
    pub(super) connected: ConnectedDrivers,
    pub(super) arrivals: Receiver<Arrival>,
    launcher: Arc<LauncherThread>,
    pub(super) clock: Clock,
    pub(super) run_id: String,
    /// The number of the last trial.
    pub(super) number: u64,
}

/// How many drivers a run has.
#[derive(Debug, Clone, Copy)]
pub(super) struct DriverCounts {
    pub drivers: u32,
    /// Groups of the same size, each of which serves trials of its own.
    pub groups: u32,
}

impl Drivers {
    /// Listens, has the engine start the drivers, and waits until all have connected. Returns
    /// the groups.
    pub(super) fn open(
        mut launcher: Box<dyn Launcher>,
        counts: DriverCounts,
        listen: Option<SocketAddr>,
        run_id: &str,
        stop: &Stop,
    ) -> Result<Vec<Arc<Drivers>>, EngineError> {
        launcher.check()?;
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
        let DriverCounts { drivers, groups } = counts;
        let run = Run {
            id: run_id.to_owned(),
            token: token.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ranks: Ranks::new(drivers),
        };
        let listener = Listener::open(address, run, clock, sender).map_err(DriverError::from)?;
        let coordinator = coordinator_addresses(address, listener.port(), local_only);
        launcher.invite(Invitation { coordinator, token, run_id: run_id.to_owned() });
        // All at once, so that an engine may place them as it likes.
        let ranks: Vec<u32> = (0..drivers).collect();
        let launcher = Arc::new(LauncherThread::new(launcher, listener)?);
        launcher.start(&ranks)?;
        let each = split_by_group(arrivals, groups).map_err(DriverError::from)?;
        let rosters = each.into_iter().zip(0..).map(|(arrivals, group)| {
            let own = ranks.iter().filter(|rank| *rank % groups == group);
            let mut roster = Roster {
                connected: ConnectedDrivers::new(own.copied()),
                arrivals,
                launcher: Arc::clone(&launcher),
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

/// Gives every group what happens to its own drivers; all hear of drivers that were refused.
fn split_by_group(
    arrivals: Receiver<Arrival>,
    groups: u32,
) -> Result<Vec<Receiver<Arrival>>, LinkError> {
    if groups == 1 {
        return Ok(vec![arrivals]);
    }
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..groups).map(|_| mpsc::channel()).unzip();
    let forward = move || {
        // A group that is gone has ended its drivers.
        for arrival in arrivals {
            match arrival {
                Arrival::Joined { rank, .. } | Arrival::FromDriver { rank, .. } => {
                    let _ = senders[(rank % groups) as usize].send(arrival);
                }
                Arrival::Refused { address, hello, why, place } => {
                    for sender in &senders {
                        let (hello, why, place) = (hello.clone(), why.clone(), Arc::clone(&place));
                        let _ = sender.send(Arrival::Refused { address, hello, why, place });
                    }
                }
            }
        }
    };
    thread::Builder::new().name("groups".to_owned()).spawn(forward)?;
    Ok(receivers)
}

impl Roster {
    /// Prepares something on all drivers, and again with another driver if one is lost meanwhile; at most this many
    /// times.
    pub(super) fn with_all<T>(
        &mut self,
        stop: &Stop,
        attempts: u32,
        mut prepare: impl FnMut(&mut Roster) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let mut attempt = 0;
        loop {
            self.replace_missing(stop)?;
            attempt += 1;
            let done = prepare(self);
            let is_lost =
                |error: &EngineError| matches!(error.work(), Some(DriverError::Lost { .. }));
            if attempt == attempts || !done.as_ref().is_err_and(is_lost) {
                return done;
            }
        }
    }

    /// Waits until every rank is connected; has the engine start those that are missing.
    fn replace_missing(&mut self, stop: &Stop) -> Result<(), EngineError> {
        // Handle drivers that connected or were lost since the last trial.
        while let Ok(arrival) = self.arrivals.try_recv() {
            // One that was lost is missing.
            let _ = self.connected.handle_arrival(arrival);
        }
        let missing = self.connected.missing_ranks();
        if missing.is_empty() {
            return Ok(());
        }
        self.connected.refused.clear();
        self.launcher.start(&missing)?;
        self.wait_for_all(stop)
    }

    /// Waits until every driver that was started is connected.
    fn wait_for_all(&mut self, stop: &Stop) -> Result<(), EngineError> {
        let (begun, timeout) = (Instant::now(), self.launcher.timeout()?);
        let mut losses = 0;
        loop {
            match self.arrivals.recv_timeout(TICK) {
                Ok(arrival) => {
                    if let Err(lost) = self.connected.handle_arrival(arrival) {
                        losses += 1;
                        if losses > ATTEMPTS * self.connected.count() {
                            return Err(lost.into_error(false));
                        }
                        // Whatever ended the others may have ended this one a moment later.
                        self.launcher.start(&[lost.rank])?;
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
            let ended = self.launcher.why_missing(&missing)?;
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

type Call = Box<dyn FnOnce(&mut dyn Launcher) + Send>;

/// What starts the drivers of a run and lets them in. Ends with the last of them.
///
/// The thread lasts as long as the run, since local drivers end with the thread that started them, and
/// several servers start theirs from different ones.
pub(super) struct LauncherThread {
    calls: Option<Sender<Call>>,
    thread: Option<JoinHandle<()>>,
    // Drops last: drivers that receive the order to end need no new connection.
    _listener: Listener,
}

impl LauncherThread {
    pub(super) fn new(
        mut launcher: Box<dyn Launcher>,
        listener: Listener,
    ) -> Result<LauncherThread, DriverError> {
        let (calls, received) = mpsc::channel::<Call>();
        let work = move || {
            for call in received {
                call(&mut *launcher);
            }
            launcher.end();
        };
        let thread = thread::Builder::new().name("engine".to_owned()).spawn(work);
        let thread = thread.map_err(LinkError::from)?;
        Ok(LauncherThread { calls: Some(calls), thread: Some(thread), _listener: listener })
    }

    fn call<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut dyn Launcher) -> T + Send + 'static,
    ) -> Result<T, DriverError> {
        let (answer, answers) = mpsc::channel();
        let call: Call = Box::new(move |launcher| drop(answer.send(ask(launcher))));
        // A thread that has ended drops the call, and with it the answer's sender.
        let _ = self.calls.as_ref().map(|calls| calls.send(call));
        let ended = |_| DriverError::Ended("its thread panicked; see its message above".to_owned());
        answers.recv().map_err(ended)
    }

    pub(super) fn start(&self, ranks: &[u32]) -> Result<(), DriverError> {
        let ranks = ranks.to_vec();
        self.call(move |launcher| launcher.start(&ranks))?
    }

    /// Returns why drivers of these ranks will not come any more, if that is known.
    pub(super) fn why_missing(&self, missing: &[u32]) -> Result<Option<String>, DriverError> {
        let missing = missing.to_vec();
        self.call(move |launcher| launcher.why_missing(&missing))
    }

    /// Returns how long drivers may take to connect.
    pub(super) fn timeout(&self) -> Result<Duration, DriverError> {
        self.call(|launcher| launcher.timeout())
    }
}

impl Drop for LauncherThread {
    fn drop(&mut self) {
        self.calls = None;
        // A thread that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::ClientSettings;
    use crate::features::drivers::messages::{Failure, Fault, FromDriver, Report};
    use crate::workload::client::ClientWork;
    use crate::workload::client::calls::{AllCalls, Calls, Statement};
    use crate::workload::shared::Proof;
    use crate::workload::{Generator, Script, Setup};
    use pgio_link::{Event, Hello, Link, PROTOCOL, Patience, build_hash, dial};

    /// Starts drivers that do nothing. While the first one is replaced the second is lost, and both come when
    /// that is replaced, too.
    #[derive(Default)]
    struct Fake {
        invitation: Option<Invitation>,
        links: Arc<Mutex<BTreeMap<u32, Link>>>,
        started: Arc<Mutex<Vec<u32>>>,
        /// What the drivers have heard.
        heard: Arc<Mutex<Vec<(u32, String)>>>,
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
            let patience = Patience { within: Duration::from_secs(5), stopped: &|| false };
            let heard = Arc::clone(&self.heard);
            let sink = move |event| {
                if let Event::Message(json) = event {
                    heard.lock().unwrap().push((rank, String::from_utf8(json).unwrap()));
                }
            };
            let link = dial(coordinator, &patience, token, &hello, Clock::start(), Box::new(sink));
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

        fn why_missing(&mut self, _: &[u32]) -> Option<String> {
            None
        }

        fn timeout(&self) -> Duration {
            Duration::from_secs(20)
        }

        fn end(&mut self) {}
    }

    fn two_drivers(fake: Fake, stop: &Stop) -> Arc<Drivers> {
        let counts = DriverCounts { drivers: 2, groups: 1 };
        Drivers::open(Box::new(fake), counts, None, "test", stop).unwrap().remove(0)
    }

    #[test]
    fn a_driver_that_is_lost_while_others_are_replaced_is_replaced_too() {
        let fake = Fake::default();
        let (links, started) = (Arc::clone(&fake.links), Arc::clone(&fake.started));
        let stop = Stop::new();
        let drivers = two_drivers(fake, &stop);
        assert_eq!(*started.lock().unwrap(), [0, 1]);
        links.lock().unwrap().remove(&0);
        let mut roster = drivers.0.lock().unwrap();
        while roster.connected.missing_ranks().is_empty() {
            let arrival = roster.arrivals.recv_timeout(Duration::from_secs(5)).unwrap();
            let _ = roster.connected.handle_arrival(arrival);
        }
        roster.replace_missing(&stop).unwrap();
        assert_eq!(*started.lock().unwrap(), [0, 1, 0, 1]);
        assert_eq!(roster.connected.missing_ranks(), Vec::<u32>::new());
    }

    #[test]
    fn drivers_abort_their_part_if_another_cannot_be_sent_its_own() {
        let fake = Fake::default();
        let (links, heard) = (Arc::clone(&fake.links), Arc::clone(&fake.heard));
        let stop = Stop::new();
        let drivers = two_drivers(fake, &stop);
        let ends_its_part = thread::spawn(move || {
            let begun = Instant::now();
            let has_heard = |text: &str| {
                heard.lock().unwrap().iter().any(|(rank, json)| *rank == 0 && json.contains(text))
            };
            while !has_heard("Abort") && begun.elapsed() < Duration::from_secs(30) {
                thread::sleep(TICK);
            }
            let message = "stopped".to_owned();
            let report = Report::Failed(Failure { message, fault: Fault::Work, stopped: true });
            let failed = FromDriver { number: 1, report };
            links.lock().unwrap()[&0].send(&failed).unwrap();
            has_heard("Prepare") && has_heard("Abort")
        });
        let own = |bytes: usize| Calls {
            script: Script::default(),
            statements: vec![Statement { name: "r".into(), sql: "x".repeat(bytes), types: vec![] }],
            calls: Vec::new(),
        };
        let work = ClientWork {
            calls: AllCalls::per_session(vec![own(1), own(65 << 20)]),
            settings: ClientSettings { threads: 1, pipeline: 1, pace: None },
            proof: Proof::Scanned { tables: Vec::new() },
        };
        let env = pgio_connect::Env::default();
        let setup = Setup {
            params: pgio_connect::resolve("host=h user=u dbname=d", &env).unwrap(),
            settings: Vec::new(),
            reads_settings: false,
            warmup: Duration::ZERO,
            seed: 1,
            stop,
            opener: None,
            generator: Generator::Alone,
        };
        let error = drivers.0.lock().unwrap().assign(&work, &setup).unwrap_err();
        assert!(error.to_string().contains("exceeds the limit"), "{error}");
        assert!(ends_its_part.join().unwrap());
    }

    #[test]
    fn work_is_prepared_as_often_as_it_may_be() {
        let stop = Stop::new();
        let drivers = two_drivers(Fake::default(), &stop);
        let mut roster = drivers.0.lock().unwrap();
        for attempts in [1, ATTEMPTS] {
            let mut prepared = 0;
            let lost = roster.with_all(&stop, attempts, |_| -> Result<(), EngineError> {
                prepared += 1;
                let (host, why) = ("h".to_owned(), "gone".to_owned());
                Err(DriverError::Lost { rank: 0, host, why, inside: false }.into())
            });
            let error = lost.unwrap_err();
            assert!(matches!(error.work(), Some(DriverError::Lost { .. })), "{error:?}");
            assert_eq!(prepared, attempts);
        }
    }
}
