//! Opens a target: admin session, prepared work, telemetry.
//!
//! [`Purpose::Inspect`] is for `--plan`: a read-only session, no data set loaded, nothing probed.

use std::collections::BTreeSet;
use std::time::Duration;

use postgres::Client;

use super::cells::layers;
use super::error::OpenError;
use super::job::Job;
use super::servers::TargetServer;
use super::workloads::{self, WorkPlace};
use crate::config::experiment::{ControlMethod, Experiment, WorkloadSpec};
use crate::experiment::admin::{open_admin, open_reader, refuse_other_runs};
use crate::experiment::conflicts;
use crate::experiment::error::LiveError;
use crate::experiment::event::{Event, Observer};
use crate::experiment::target::{ResetPlan, Target};
use crate::host::stop::Stop;
use crate::host::{Hosts, LOCAL};
use crate::pg::control::Controller;
use crate::pg::private::PrivateCluster;
use crate::pg::server::{self, Server, ServerNode};
use crate::telemetry::{OwnStandby, Standby, Survey, TelemetrySources};
use crate::treatment::Resource;
use crate::treatment::journal::Claims;
use crate::workload::Workload;
use crate::workload::command::LastSetup;
use pgio_connect::{ConnectParams, Env};

/// The purpose of opening a target.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose<'a> {
    Run { run_id: &'a str, claims: &'a Claims },
    Inspect,
}

pub(super) fn open(
    job: &Job,
    spec: &WorkloadSpec,
    target: &TargetServer,
    purpose: Purpose<'_>,
    stop: &Stop,
    observe: &mut Observer<'_>,
) -> Result<Target, OpenError> {
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
                conflicts::refuse_changed(&[Resource::server(&identity)].into(), claims)?;
            }
            refuse_other_runs(&mut admin, &server.info.database, run_id, false)?;
            true
        }
        Purpose::Inspect => false,
    };
    let mut workloads = Vec::new();
    let last_setup = LastSetup::default();
    for layer in layers(spec, job.experiment.sweep) {
        let load = workloads.is_empty() && runs;
        let (seed, drivers) = (job.seed, job.drivers.is_some());
        let place = WorkPlace {
            target,
            server: &server,
            last_setup: &last_setup,
            load,
            seed,
            drivers,
            stop,
        };
        let layer = layer.over(job.base_keys.layer.clone());
        workloads.push(workloads::prepare(spec, layer, &place, &mut admin, observe)?);
    }
    let work = workloads[0].as_ref();
    let sources = telemetry_sources(&job.experiment, spec, target, &server, &mut admin, work, runs);
    let found_host = || Some(sources.as_ref()?.server_host()?.name().to_owned());
    let host = match &target.cluster {
        Some(_) => Some(LOCAL.to_owned()),
        None => target.host.clone().or_else(found_host),
    };
    let tests_device = spec.kind.def().tests_device;
    if tests_device && host.is_none() && job.drivers.is_none() {
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
    Ok(Target {
        identity: Resource::server(&identity),
        node: ServerNode::read(&mut admin),
        touches: BTreeSet::new(),
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
