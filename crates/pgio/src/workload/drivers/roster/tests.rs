//! Drivers that come and go.

use super::*;
use pgio_link::{LinkError, PROTOCOL, build_hash, dial};

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
    let drivers = Drivers::open(Box::new(fake), (2, 1), None, "test", &stop).unwrap().remove(0);
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
