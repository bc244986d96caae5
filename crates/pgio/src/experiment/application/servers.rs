//! The servers of an experiment: finds them, starts private ones, and opens each with a workload ready to run.
//!
//! Only [`open_target`] connects. [`Purpose::Inspect`] is for `--plan`: a read-only session, no data set loaded,
//! nothing probed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::cells::layers;
use super::error::OpenError;
use super::job::Job;
use super::validation::check_rights;
use super::workloads::{self, WorkPlace};
use crate::config::ConnectString;
use crate::config::experiment::{ControlMethod, Experiment, PrivateTarget, Target, WorkloadSpec};
use crate::experiment::admin::{self, open_admin, open_reader, refuse_other_runs};
use crate::experiment::clusters;
use crate::experiment::event::{Event, Observer};
use crate::experiment::live::LiveError;
use crate::experiment::target::{self, ResetPlan, Target as OpenTarget};
use crate::host::stop::Stop;
use crate::host::{self, Hosts, LOCAL};
use crate::pg::control::Controller;
use crate::pg::private::{self, PrivateCluster, Spec, VersionRequest};
use crate::pg::server::{self, Server, ServerNode};
use crate::telemetry::{OwnStandby, Standby, Survey, TelemetrySources};
use crate::treatment::Resource;
use crate::treatment::journal::Claims;
use crate::workload::Workload;
use crate::workload::command::LastSetup;
use pgio_connect::Client;
use pgio_connect::{ConnectError, ConnectParams, Env};

/// The server of one target.
#[derive(Debug)]
pub struct TargetServer {
    /// Name as in the file; empty if pgio.conf or the environment names the server.
    pub(crate) name: String,
    pub(crate) params: ConnectParams,
    pub(crate) cluster: Option<Arc<PrivateCluster>>,
    /// The block device under test.
    pub(crate) device: Option<String>,
    /// The way to stop and start it.
    pub(crate) control: Option<ControlMethod>,
    /// All hosts of the experiment, for its sources.
    pub(crate) hosts: Hosts,
    /// Names in `hosts`, as in the file.
    pub(crate) host: Option<String>,
    pub(crate) standby_host: Option<String>,
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
pub(crate) fn params(
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
            all.insert(name.clone(), target::params(dsn, run_id)?);
        }
    }
    for warning in all.values().flat_map(target::warnings) {
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
    check_rights(job, &hosts)?;
    let mut servers = existing_servers(e, params, &hosts);
    for (name, target) in &e.targets {
        if let Target::Private(private) = target {
            let version = pg.or(private.major.map(VersionRequest::major));
            let mut steps = |step: &private::Progress| observe(Event::ServerStarts(step));
            let cluster = start_private(version, private, stop, &mut steps);
            observe(Event::ServerStarted);
            let cluster = cluster?;
            let dsn = ConnectString::new(cluster.primary_conninfo());
            let params = target::params(&dsn, run_id)?;
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
pub(crate) fn existing_servers(
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

/// The purpose of opening a target.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose<'a> {
    Run { run_id: &'a str, claims: &'a Claims },
    Inspect,
}

/// Opens a target: admin session, prepared work, telemetry.
pub(super) fn open_target(
    job: &Job,
    spec: &WorkloadSpec,
    target: &TargetServer,
    purpose: Purpose<'_>,
    stop: &Stop,
    observe: &mut Observer<'_>,
) -> Result<OpenTarget, OpenError> {
    let (mut admin, server) = match purpose {
        Purpose::Run { run_id, .. } => open_admin(&target.params, run_id)?,
        Purpose::Inspect => open_reader(&target.params)?,
    };
    server.warnings.iter().for_each(|warning| observe(Event::Warns(warning)));
    let identity = server::identity(&mut admin).map_err(LiveError::from)?;
    let runs = match purpose {
        // Before a data set is loaded, which drops tables.
        Purpose::Run { run_id, claims } => {
            if target.cluster.is_none() {
                admin::refuse_changed(&[Resource::server(&identity)].into(), claims)?;
            }
            refuse_other_runs(&mut admin, &server.info.database, run_id, false)?;
            true
        }
        Purpose::Inspect => false,
    };
    let mut workloads = Vec::new();
    let last_setup = LastSetup::default();
    for layer in layers(spec, job.experiment.combination) {
        let load = workloads.is_empty() && runs;
        let (seed, others) = (job.seed, job.generators.is_some());
        let place = WorkPlace {
            target,
            server: &server,
            last_setup: &last_setup,
            load,
            seed,
            others,
            stop,
        };
        let layer = layer.over(job.base_keys.layer.clone());
        workloads
            .push((workloads::code(spec.kind).prepare)(spec, layer, &place, &mut admin, observe)?);
    }
    let work = workloads[0].as_ref();
    let sources = telemetry_sources(&job.experiment, spec, target, &server, &mut admin, work, runs);
    let found_host = || Some(sources.as_ref()?.server_host()?.name().to_owned());
    let host = match &target.cluster {
        Some(_) => Some(LOCAL.to_owned()),
        None => target.host.clone().or_else(found_host),
    };
    let tests_device = spec.kind.def().tests_device;
    if tests_device && host.is_none() && job.generators.is_none() {
        return Err(OpenError::UnknownDeviceHost);
    }
    // A device to test is not the one that data and WAL must lie on.
    let device = target.device.as_deref().filter(|_| !tests_device);
    let device = device.map(|device| match &sources {
        Some(sources) => {
            let missing = || OpenError::NoDevice {
                device: device.to_owned(),
                host: host.clone().unwrap_or_default(),
            };
            sources.kernel_name(device).ok_or_else(missing)
        }
        None => Ok(device.to_owned()),
    });
    let device = device.transpose()?;
    let control = target.control.as_ref();
    let control =
        control.map(|method| controller(method, host.as_deref(), &target.hosts, &mut admin));
    Ok(OpenTarget {
        identity: Resource::server(&identity),
        node: ServerNode::read(&mut admin),
        touches: BTreeSet::new(),
        standbys: Vec::new(),
        params: target.params.clone(),
        control: control.transpose()?,
        sources,
        admin,
        server,
        workloads,
        cluster: target.cluster.clone(),
        host,
        device,
        reset: ResetPlan::default(),
    })
}

/// Finds the way to stop and start the server, before anything is changed.
pub fn controller(
    method: &ControlMethod,
    host: Option<&str>,
    hosts: &Hosts,
    admin: &mut Client,
) -> Result<Controller, OpenError> {
    let known = host.and_then(|name| Some((name, hosts.get(name)?)));
    let (name, host) = known.ok_or(OpenError::UnknownControlHost)?;
    Ok(Controller::find(admin, name, host.clone(), method)?)
}

/// Total length of all windows above which pgio takes a second or two to measure flush and
/// round trip beside them.
const MIN_DURATION_FOR_PROBES: Duration = Duration::from_secs(20);

fn own_standbys(cluster: &PrivateCluster, primary: &ConnectParams) -> Vec<OwnStandby> {
    let params = |conninfo: String| {
        let params = pgio_connect::resolve(&conninfo, &Env::from_process()).ok()?;
        Some(params.with_application_name(primary.application_name.clone()))
    };
    let standbys = cluster.standbys().map(|(spec, data)| OwnStandby {
        name: spec.name.clone(),
        data,
        from: spec.from.clone(),
        apply_delay: spec.apply_delay,
        upstream: cluster.upstream_conninfo(&spec.name).and_then(params),
    });
    standbys.collect()
}

/// Returns none if the file turns telemetry off. `probing` allows a temporary file beside the WAL, to time a flush.
fn telemetry_sources(
    e: &Experiment,
    spec: &WorkloadSpec,
    target: &TargetServer,
    server: &Server,
    admin: &mut Client,
    workload: &dyn Workload,
    probing: bool,
) -> Option<TelemetrySources> {
    if e.telemetry.is_zero() {
        return None;
    }
    let survey = Survey {
        params: &target.params,
        server,
        cadence: e.telemetry,
        hosts: &target.hosts,
        host: target.host.as_deref(),
    };
    let mut sources = TelemetrySources::survey(&survey, admin);
    if let Some(cluster) = &target.cluster {
        sources.watch_standbys(own_standbys(cluster, &target.params));
    }
    // A second per WAL directory is too much for an experiment of seconds.
    let window = workload.extent().time().unwrap_or(Duration::MAX);
    let per_block = e.size_of(spec).trials_per_block;
    let trials = u32::try_from(per_block).unwrap_or(u32::MAX).saturating_mul(e.blocks);
    let commits = workload.info().primary_metric == "commits_per_second";
    if probing && commits && window.saturating_mul(trials) >= MIN_DURATION_FOR_PROBES {
        let data = target.cluster.as_ref().and_then(|c| c.standby_data_dir());
        let host = match &target.standby_host {
            Some(host) => Some(host.as_str()),
            None => data.is_some().then_some(LOCAL),
        };
        let standby = host.map(|host| Standby { host, data: data.as_deref() });
        sources.measure_expected(standby, admin);
    }
    Some(sources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::scripted::{COMMITS, job};

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
