//! Stops and starts a target's server, private or not, and notes that it did: this ends
//! all sessions of the server, including the admin session.

use super::target::Target;
use crate::treatment::{Control, Pair};

pub(super) struct Controlled {
    way: Box<dyn Control>,
    restarted: bool,
}

impl Controlled {
    /// Returns none if the server is never stopped.
    pub(super) fn new(target: &Target) -> Option<Controlled> {
        let way: Box<dyn Control> = match (&target.cluster, &target.control) {
            (Some(cluster), _) => Box::new(cluster.clone()),
            (None, Some(controller)) => Box::new(controller.clone()),
            (None, None) => return None,
        };
        Some(Controlled { way, restarted: false })
    }

    pub(super) fn restarted(this: Option<&Controlled>) -> bool {
        this.is_some_and(|controlled| controlled.restarted)
    }
}

impl Control for Controlled {
    fn stop(&mut self) -> Result<(), String> {
        self.way.stop()
    }

    fn start(&mut self) -> Result<(), String> {
        self.restarted = true;
        self.way.start()
    }

    fn pair(&self) -> Option<Pair> {
        self.way.pair()
    }
}
