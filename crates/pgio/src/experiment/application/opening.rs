//! Opens a target: admin session, prepared work, telemetry.
//!
//! [`Purpose::Look`] is for `--plan`: a read-only session, no data set loaded, nothing probed.

use std::collections::BTreeSet;

use postgres::Client;

use super::cells::layers;
use super::error::OpenError;
use super::job::Job;
use super::observing;
use super::servers::TargetServer;
use super::workloads::{self, WorkPlace};
use crate::config::experiment::{ControlMethod, WorkloadKind, WorkloadSpec};
use crate::experiment::admin::{open_admin, open_reader};
use crate::experiment::error::LiveError;
use crate::experiment::event::{Event, Observer};
use crate::experiment::target::{ResetPlan, Target};
use crate::host::LOCAL;
use crate::host::stop::Stop;
use crate::pg::control::Controller;
use crate::pg::server;
use crate::treatment::Resource;
use crate::workload::command::LastSetup;

/// The purpose of opening a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose<'a> {
    Run { run_id: &'a str },
    Look,
}

pub(super) fn open(
    job: &Job,
    spec: &WorkloadSpec,
    on: &TargetServer,
    purpose: Purpose<'_>,
    stop: &Stop,
    observe: &mut Observer<'_>,
) -> Result<Target, OpenError> {
    let (mut admin, server) = match purpose {
        Purpose::Run { run_id } => open_admin(&on.params, run_id)?,
        Purpose::Look => open_reader(&on.params)?,
    };
    server.warnings.iter().for_each(|warning| observe(Event::Warns(warning)));
    let runs = purpose != Purpose::Look;
    let mut workloads = Vec::new();
    let made = LastSetup::default();
    for layer in layers(spec, job.experiment.sweep) {
        let load = workloads.is_empty() && runs;
        let place = WorkPlace { on, server: &server, made: &made, load, seed: job.seed, stop };
        let layer = layer.over(job.below.layer.clone());
        workloads.push(workloads::prepare(spec, layer, &place, &mut admin, observe)?);
    }
    let work = workloads[0].as_ref();
    let sources = observing::sources(&job.experiment, spec, on, &server, &mut admin, work, runs);
    let seen = || Some(sources.as_ref()?.server_host()?.name().to_owned());
    let host = match &on.cluster {
        Some(_) => Some(LOCAL.to_owned()),
        None => on.host.clone().or_else(seen),
    };
    if spec.kind == WorkloadKind::Device && host.is_none() {
        return Err(OpenError::UnknownDeviceHost);
    }
    let control = on.control.as_ref();
    let control = control.map(|way| controller(way, host.as_deref(), on, &mut admin));
    let identity = server::identity(&mut admin).map_err(LiveError::from)?;
    Ok(Target {
        identity: Resource::server(&identity),
        touches: BTreeSet::new(),
        params: on.params.clone(),
        control: control.transpose()?,
        sources,
        admin,
        server,
        workloads,
        cluster: on.cluster.clone(),
        host,
        // For the workload `device` this is the device to test, not the one that data and WAL must lie on.
        device: on.device.clone().filter(|_| spec.kind != WorkloadKind::Device),
        reset: ResetPlan::default(),
    })
}

/// Finds the way to stop and start the server, before anything is changed.
fn controller(
    way: &ControlMethod,
    host: Option<&str>,
    on: &TargetServer,
    admin: &mut Client,
) -> Result<Controller, OpenError> {
    let known = host.and_then(|name| Some((name, on.hosts.get(name)?)));
    let (name, host) = known.ok_or(OpenError::UnknownControlHost)?;
    Ok(Controller::find(admin, name, host.clone(), way)?)
}
