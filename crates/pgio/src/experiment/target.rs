//! A server that conditions run on, with everything that a run knows about it.
//!
//! Uses the admin session only to refuse other runs. Next: `live` applies conditions there.

use std::collections::BTreeSet;
use std::sync::Arc;

use pgio_connect::Client;

use super::admin::refuse_other_runs;
use super::error::LiveError;
use crate::dataset::LoadSpec;
use crate::pg::control::Controller;
use crate::pg::leftovers::LiveRun;
use crate::pg::private::PrivateCluster;
use crate::pg::server::{Server, ServerNode};
use crate::telemetry::TelemetrySources;
use crate::treatment::{ChangedServer, Resource, Touch};
use crate::workload::Workload;
use pgio_connect::ConnectParams;

/// A server that conditions run on.
pub struct Target {
    pub params: ConnectParams,
    pub admin: Client,
    pub server: Server,
    /// One workload per layer of the sweep; the first is the middle point's.
    pub workloads: Vec<Arc<dyn Workload>>,
    /// Present if the server is private.
    pub cluster: Option<Arc<PrivateCluster>>,
    /// How to stop and start a server that is not private, if its target allows it.
    pub control: Option<Controller>,
    /// The host it runs on, if known.
    pub host: Option<String>,
    /// The kernel's name of the block device under test, if the file names one.
    pub device: Option<String>,
    /// What telemetry observes; none disables it.
    pub sources: Option<TelemetrySources>,
    /// Set by `live::check`.
    pub reset: ResetPlan,
    /// The server itself.
    pub identity: Resource,
    pub node: ServerNode,
    /// Known changes of its conditions that survive a kill.
    pub touches: BTreeSet<Resource>,
}

impl Target {
    /// What a new session of it is compared with.
    pub(super) fn changed(&self) -> ChangedServer {
        let (touched, node) = (vec![self.identity.clone()], self.node.clone());
        // A run starts again what it stopped a moment ago, whatever follows the server.
        ChangedServer { touched, node, ..ChangedServer::default() }
    }

    /// Refuses other runs, also those that began while it was without an admin session. Returns those that may go on.
    pub(super) fn refuse_other_runs(&mut self, run_id: &str) -> Result<Vec<LiveRun>, LiveError> {
        let changes_server = self.touches.contains(&self.identity);
        refuse_other_runs(&mut self.admin, &self.server.info.database, run_id, changes_server)
    }

    /// Changes of a private server end with it. A change of a host affects the server as well.
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

/// The reset of one server.
#[derive(Debug, Clone, Default)]
pub enum ResetPlan {
    #[default]
    Checkpoint,
    Vacuum {
        spec: LoadSpec,
        /// Whether the user knows already that a session delays it.
        named: bool,
    },
    Reload(LoadSpec),
    Recreate {
        /// None if no data set was loaded.
        load: Option<LoadSpec>,
    },
}
