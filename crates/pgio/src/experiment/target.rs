//! A server that conditions run on, with everything that a run knows about it.
//!
//! Uses the admin session only to refuse other runs. Next: `live` applies conditions there.

use std::collections::BTreeSet;
use std::sync::Arc;

use pgio_connect::{self, Client, ConnectError, ConnectParams, ConnectWarning, Env};
use pgio_results::Warning;

use super::admin::refuse_other_runs;
use super::live::LiveError;
use crate::config::{ConnectString, Layer, resolve};
use crate::dataset::LoadSpec;
use crate::pg::control::Controller;
use crate::pg::leftovers::{self, LiveRun};
use crate::pg::private::PrivateCluster;
use crate::pg::server::{Server, ServerNode};
use crate::telemetry::TelemetrySources;
use crate::treatment::{ChangedServer, Resource, Touch};
use crate::workload::Workload;

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
    /// The standbys that streamed from it when a condition was put in force; none once pgio itself stopped it.
    pub standbys: Vec<String>,
}

impl Target {
    /// What a new session of it is compared with.
    pub(super) fn changed(&self) -> ChangedServer {
        ChangedServer {
            touched: vec![self.identity.clone()],
            node: self.node.clone(),
            standbys: self.standbys.clone(),
            accepts_any_timeline: false,
        }
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

/// The given keys: flags override pgio.conf.
#[derive(Debug, Clone, Default)]
pub struct ConnectionKeys {
    pub layer: Layer,
    /// Whether a pgio.conf was read, so that its connection defaults apply.
    pub from_conf: bool,
}

impl ConnectionKeys {
    /// Returns CONNECT_STRING as given or by default; if it is empty, the PG* variables decide.
    pub fn connect_string(&self) -> ConnectString {
        let given = self.layer.connect_string.is_some() || self.layer.dbname.is_some();
        if self.from_conf || given {
            resolve::connect_string(&self.layer)
        } else {
            ConnectString::new("")
        }
    }

    pub fn params(&self, run_id: &str) -> Result<ConnectParams, ConnectError> {
        params(&self.connect_string(), run_id)
    }
}

/// As [`params`]; `warn` receives each warning at once, so that none is lost if a later server is refused.
pub fn params_with_warnings(
    text: &ConnectString,
    run_id: &str,
    warn: &mut dyn FnMut(&Warning),
) -> Result<ConnectParams, ConnectError> {
    let params = params(text, run_id)?;
    warnings(&params).iter().for_each(warn);
    Ok(params)
}

pub fn params(text: &ConnectString, run_id: &str) -> Result<ConnectParams, ConnectError> {
    let params = pgio_connect::resolve(text.expose(), &Env::from_process())?;
    Ok(params.with_application_name(leftovers::application_name(run_id)))
}

/// Returns warnings about what was ignored.
pub fn warnings(params: &ConnectParams) -> Vec<Warning> {
    params.warnings().iter().map(warning).collect()
}

pub fn warning(found: &ConnectWarning) -> Warning {
    Warning::new(found.what(), found.why(), found.hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_conf_and_a_key_the_environment_decides() {
        let mut keys = ConnectionKeys::default();
        assert_eq!(keys.connect_string().expose(), "");
        keys.from_conf = true;
        let from_conf_text = keys.connect_string();
        assert!(!from_conf_text.expose().is_empty());
        keys = ConnectionKeys::default();
        keys.layer.dbname = Some("bench".to_owned());
        assert!(keys.connect_string().expose().contains("bench"));
    }

    #[test]
    fn sessions_carry_the_run_in_their_name() {
        let params = params(&ConnectString::new("host=h dbname=d user=u"), "7").unwrap();
        assert!(format!("{params:?}").contains(&leftovers::application_name("7")));
    }
}
