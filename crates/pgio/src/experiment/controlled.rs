//! The way to stop and start a target's server, whosever it is, and noticing that it was used: with
//! the server end all of its sessions, the coordinating one among them.

use std::sync::Arc;

use super::live::Target;
use crate::pg::control::Controller;
use crate::pg::private::PrivateCluster;
use crate::treatment::Control;

#[derive(Debug)]
pub(super) struct Controlled {
    way: Way,
    restarted: bool,
}

#[derive(Debug)]
enum Way {
    Cluster(Arc<PrivateCluster>),
    Server(Controller),
}

impl Controlled {
    /// None: the server is never stopped.
    pub(super) fn of(target: &Target) -> Option<Controlled> {
        let cluster = target.cluster.clone().map(Way::Cluster);
        let way = cluster.or(target.control.clone().map(Way::Server))?;
        Some(Controlled { way, restarted: false })
    }

    pub(super) fn restarted(this: &Option<Controlled>) -> bool {
        this.as_ref().is_some_and(|controlled| controlled.restarted)
    }

    fn way(&mut self) -> &mut dyn Control {
        match &mut self.way {
            Way::Cluster(cluster) => cluster,
            Way::Server(controller) => controller,
        }
    }
}

impl Control for Controlled {
    fn stop(&mut self) -> Result<(), String> {
        self.way().stop()
    }

    fn start(&mut self) -> Result<(), String> {
        self.restarted = true;
        self.way().start()
    }
}
