//! A server that conditions run on, with everything that a run knows of it.
//!
//! Holds the coordinating session, and does nothing with it. Next: `live` puts conditions in force there.

use std::collections::BTreeSet;
use std::sync::Arc;

use postgres::Client;

use crate::dataset::LoadSpec;
use crate::pg::connect::ConnectParams;
use crate::pg::control::Controller;
use crate::pg::private::PrivateCluster;
use crate::pg::server::Server;
use crate::telemetry::TelemetrySources;
use crate::treatment::{Resource, Touch};
use crate::workload::Workload;

/// A server that conditions run on.
pub struct Target {
    pub params: ConnectParams,
    pub admin: Client,
    pub server: Server,
    /// One for each way in which the sweep changes the work; the first is the middle point's.
    pub workloads: Vec<Arc<dyn Workload>>,
    /// Present when the server is ours.
    pub cluster: Option<Arc<PrivateCluster>>,
    /// How one that is not ours is stopped and started, where its target says so.
    pub control: Option<Controller>,
    /// Where it runs, as far as that is known.
    pub host: Option<String>,
    /// The block device that is to be measured, where the file names one.
    pub device: Option<String>,
    /// What is observed there; absent: nothing.
    pub sources: Option<TelemetrySources>,
    /// Found out by `live::check`.
    pub reset: ResetPlan,
    /// The server itself.
    pub identity: Resource,
    /// What its conditions may change that outlives a kill, as far as that is known.
    pub touches: BTreeSet<Resource>,
}

impl Target {
    /// What is done to a private server goes with it. A change of a host bears on the server as well.
    pub(super) fn note(&mut self, touches: Vec<Touch>) {
        let private = self.cluster.is_some();
        for touch in touches {
            match touch {
                Touch::Resource(resource) => drop(self.touches.insert(resource)),
                Touch::Server if private => continue,
                Touch::Server => {}
            }
            if !private {
                self.touches.insert(self.identity.clone());
            }
        }
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({})", self.params.describe())
    }
}

/// What a reset does on one server.
#[derive(Debug, Clone, Default)]
pub enum ResetPlan {
    #[default]
    Checkpoint,
    Vacuum(LoadSpec),
    Reload(LoadSpec),
    Recreate {
        /// None where no data set was loaded.
        load: Option<LoadSpec>,
    },
}
