//! The servers of an experiment: finds them, and starts private ones.
//!
//! Connects to none of them. Next: `opening` opens a session and makes the work ready.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::OpenError;
use super::job::Job;
use super::rights;
use crate::config::ConnectString;
use crate::config::experiment::{ControlMethod, Experiment, PrivateTarget, Target};
use crate::experiment::event::{Event, Observer};
use crate::experiment::{clusters, connection};
use crate::host::stop::Stop;
use crate::host::{self, Hosts};
use crate::pg::private::{self, PrivateCluster, Spec, VersionRequest};
use pgio_connect::{ConnectError, ConnectParams};

/// The server of one target.
#[derive(Debug)]
pub(super) struct TargetServer {
    /// Name as in the file; empty if pgio.conf or the environment names the server.
    pub(super) name: String,
    pub(super) params: ConnectParams,
    pub(super) cluster: Option<Arc<PrivateCluster>>,
    /// The block device under test.
    pub(super) device: Option<String>,
    /// The way to stop and start it.
    pub(super) control: Option<ControlMethod>,
    /// All hosts of the experiment, for its sources.
    pub(super) hosts: Hosts,
    /// Names in `hosts`, as in the file.
    pub(super) host: Option<String>,
    pub(super) standby_host: Option<String>,
}

impl TargetServer {
    fn new(
        name: &str,
        params: ConnectParams,
        cluster: Option<Arc<PrivateCluster>>,
        hosts: &Hosts,
    ) -> TargetServer {
        TargetServer {
            name: name.to_owned(),
            params,
            cluster,
            device: None,
            control: None,
            hosts: hosts.clone(),
            host: None,
            standby_host: None,
        }
    }
}

pub(super) fn params_of(
    servers: &BTreeMap<String, TargetServer>,
) -> BTreeMap<String, ConnectParams> {
    servers.iter().map(|(name, server)| (name.clone(), server.params.clone())).collect()
}

/// Resolves the connection parameters of existing servers; connects to none.
pub(super) fn params(
    job: &Job,
    run_id: &str,
    observe: &mut Observer<'_>,
) -> Result<BTreeMap<String, ConnectParams>, ConnectError> {
    let mut all = BTreeMap::new();
    if job.experiment.targets.is_empty() {
        all.insert(String::new(), job.base_keys.params(run_id)?);
    }
    for (name, target) in &job.experiment.targets {
        if let Target::Server { dsn, .. } = target {
            all.insert(name.clone(), connection::params(dsn, run_id)?);
        }
    }
    for warning in all.values().flat_map(connection::warnings) {
        observe(Event::Warns(&warning));
    }
    Ok(all)
}

/// Returns existing servers, and starts private ones.
pub(super) fn open(
    job: &Job,
    params: BTreeMap<String, ConnectParams>,
    run_id: &str,
    pg: Option<VersionRequest>,
    stop: &Stop,
    observe: &mut Observer<'_>,
) -> Result<BTreeMap<String, TargetServer>, OpenError> {
    let e = &job.experiment;
    let hosts = hosts(e)?;
    rights::check(job, &hosts)?;
    let mut servers = existing_servers(e, params, &hosts);
    for (name, target) in &e.targets {
        if let Target::Private(private) = target {
            let version = pg.or(private.major.map(VersionRequest::major));
            let mut steps = |step: &private::Progress| observe(Event::ServerStarts(step));
            let cluster = start_private(version, private, stop, &mut steps);
            observe(Event::ServerStarted);
            let cluster = cluster?;
            let dsn = ConnectString::new(cluster.primary_conninfo());
            let params = connection::params(&dsn, run_id)?;
            let server = TargetServer::new(name, params, Some(cluster), &hosts);
            servers.insert(name.clone(), server);
        }
    }
    Ok(servers)
}

/// Connects to every host of the file, before anything is changed.
pub(super) fn hosts(e: &Experiment) -> Result<Hosts, OpenError> {
    Ok(host::connect_all(&e.hosts)?)
}

/// Returns servers that exist without pgio.
pub(super) fn existing_servers(
    e: &Experiment,
    params: BTreeMap<String, ConnectParams>,
    hosts: &Hosts,
) -> BTreeMap<String, TargetServer> {
    let server = |(name, params): (String, _)| {
        let plain = TargetServer::new(&name, params, None, hosts);
        let server = match e.targets.get(&name) {
            Some(Target::Server { device, control, host, standby_host, .. }) => TargetServer {
                device: device.clone(),
                control: control.clone(),
                host: host.clone(),
                standby_host: standby_host.clone(),
                ..plain
            },
            _ => plain,
        };
        (name, server)
    };
    params.into_iter().map(server).collect()
}

fn start_private(
    pg: Option<VersionRequest>,
    target: &PrivateTarget,
    stop: &Stop,
    steps: private::Observer<'_>,
) -> Result<Arc<PrivateCluster>, OpenError> {
    let exe = std::env::current_exe().map_err(OpenError::Program)?;
    let spec = cluster_spec(exe, pg, target);
    // Held until the cluster has locked its directories.
    let _notes = clusters::note(&spec.directories()?)?;
    Ok(Arc::new(PrivateCluster::start_observed(&spec, stop, steps)?))
}

/// The cluster of a target. Its settings apply to all servers, except for what the primary's
/// commits wait for.
fn cluster_spec(exe: PathBuf, pg: Option<VersionRequest>, target: &PrivateTarget) -> Spec {
    let is_shared = |(name, _): &&(String, String)| name != "synchronous_standby_names";
    Spec {
        pg,
        standbys: target.standbys.clone(),
        initdb: target.initdb.clone(),
        primary_settings: target.settings.clone(),
        standby_settings: target.settings.iter().filter(is_shared).cloned().collect(),
        base_dir: target.directory.clone(),
        wal_dir: target.wal_directory.clone(),
        ..Spec::new(exe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::test_support::{COMMITS, job};

    const SERVER: &str = "dsn = 'host=h user=u dbname=d'\nhost = 'db'\nstandby_host = 'other'\n\
                          [hosts.db]\nssh = 'root@db'\n[hosts.other]\nssh = 'root@other'";

    fn params_and_warnings(job: &Job) -> (BTreeMap<String, ConnectParams>, Vec<String>) {
        let mut warnings = Vec::new();
        let params = params(job, "7", &mut |event| match event {
            Event::Warns(warning) => warnings.push(warning.to_string()),
            other => panic!("{other:?}"),
        });
        (params.unwrap(), warnings)
    }

    #[test]
    fn private_targets_are_not_among_the_existing_servers() {
        let (params, warnings) = params_and_warnings(&job(COMMITS));
        assert!(params.is_empty() && warnings.is_empty());
        // Without a target, pgio.conf or the environment names the server.
        let nowhere = job(&COMMITS.replace("[target]\nprivate = true\n", ""));
        assert_eq!(params_and_warnings(&nowhere).0.into_keys().collect::<Vec<_>>(), [""]);
    }

    #[test]
    fn existing_servers_take_hosts_and_connection_from_the_file() {
        let job = job(&COMMITS.replace("private = true", SERVER));
        let (params, warnings) = params_and_warnings(&job);
        assert_eq!(warnings, [""; 0]);
        let servers = existing_servers(&job.experiment, params, &Hosts::new());
        let server = &servers["target"];
        assert_eq!(
            (server.host.as_deref(), server.standby_host.as_deref()),
            (Some("db"), Some("other"))
        );
        assert!(server.cluster.is_none() && server.device.is_none() && server.control.is_none());
        assert_eq!(params_of(&servers)["target"].describe(), server.params.describe());
    }
}
