//! Drivers that come and go.

use std::collections::BTreeMap;

use super::*;
use crate::config::ClientSettings;
use crate::workload::client::calls::{AllCalls, Calls, Statement};
use crate::workload::drivers::error::Fault;
use crate::workload::drivers::messages::{FromDriver, Work};
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

#[test]
fn a_driver_that_is_lost_while_others_are_replaced_is_replaced_too() {
    let fake = Fake::default();
    let (links, started) = (Arc::clone(&fake.links), Arc::clone(&fake.started));
    let stop = Stop::new();
    let drivers =
        Drivers::open(Box::new(fake), DriverCounts { drivers: 2, groups: 1 }, None, "test", &stop)
            .unwrap()
            .remove(0);
    assert_eq!(*started.lock().unwrap(), [0, 1]);
    links.lock().unwrap().remove(&0);
    let mut roster = drivers.0.lock().unwrap();
    while roster.connected.missing_ranks().is_empty() {
        let arrival = roster.arrivals.recv_timeout(Duration::from_secs(5)).unwrap();
        roster.connected.handle_arrival(arrival);
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
    let drivers =
        Drivers::open(Box::new(fake), DriverCounts { drivers: 2, groups: 1 }, None, "test", &stop)
            .unwrap()
            .remove(0);
    let ends_its_part = thread::spawn(move || {
        let begun = Instant::now();
        let of = |text: &str| {
            heard.lock().unwrap().iter().any(|(rank, json)| *rank == 0 && json.contains(text))
        };
        while !of("Abort") && begun.elapsed() < Duration::from_secs(30) {
            thread::sleep(TICK);
        }
        let message = "stopped".to_owned();
        let failed = FromDriver::Failed { number: 1, message, fault: Fault::Work, stopped: true };
        links.lock().unwrap()[&0].send(&failed).unwrap();
        of("Prepare") && of("Abort")
    });
    let own = |bytes: usize| Calls {
        script: Script::default(),
        statements: vec![Statement { name: "r".into(), sql: "x".repeat(bytes), types: vec![] }],
        calls: Vec::new(),
    };
    let settings = ClientSettings { threads: 1, pipeline: 1, pace: None };
    let work = Work::Client { calls: AllCalls::per_session(vec![own(1), own(65 << 20)]), settings };
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
    let counts = DriverCounts { drivers: 2, groups: 1 };
    let drivers =
        Drivers::open(Box::new(Fake::default()), counts, None, "test", &stop).unwrap().remove(0);
    let mut roster = drivers.0.lock().unwrap();
    for attempts in [1, ATTEMPTS] {
        let mut prepared = 0;
        let lost = roster.with_all(&stop, attempts, |_| -> Result<(), EngineError> {
            prepared += 1;
            let (host, why) = ("h".to_owned(), "gone".to_owned());
            Err(DriverError::Lost { rank: 0, host, why, inside: false }.into())
        });
        assert!(matches!(lost, Err(EngineError::Drivers(DriverError::Lost { .. }))), "{lost:?}");
        assert_eq!(prepared, attempts);
    }
}
