//! Checks of `--plan`: refuses what a run would refuse before its first change, with the same messages.
//! Changes nothing: sessions are read-only, no data set is loaded, no directory is
//! created, nothing is probed or journaled, and a private server is not started.
//!
//! A private server is checked as far as possible without it; [`validate`] returns what remains
//! unchecked, for the plan to show.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::cells::{cells, layers};
use super::error::{OpenError, RunError};
use super::job::Job;
use super::servers::{self, Purpose, TargetServer};
use super::workloads;
use crate::config::experiment::{Experiment, Target, WorkloadSpec};
use crate::experiment::admin::{self, ConflictError};
use crate::experiment::companion::Reservation;
use crate::experiment::event::{Event, Observer};
use crate::experiment::live::{self, LiveCell, LiveError};
use crate::experiment::target::Target as OpenTarget;
use crate::feature;
use crate::host::stop::Stop;
use crate::host::{Hosts, LOCAL};
use crate::pg::private::{self, VersionRequest};
use crate::treatment::journal::Claims;
use crate::treatment::{Machines, Resource};
use pgio_results::store::Store;

/// A private server that was not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unchecked {
    pub target: String,
    /// The installed version; if none, one will be downloaded.
    pub installed: Option<String>,
}

/// Refuses what cannot run; returns what could not be checked.
pub fn validate(
    job: &Job,
    out: &Path,
    observe: &mut Observer<'_>,
) -> Result<Vec<Unchecked>, RunError> {
    job.check_generators()?;
    let params = servers::params(job, "plan", observe)?;
    for other in admin::refuse_unfinished(params.values())? {
        observe(Event::OtherInterrupted(&other));
    }
    for workload in &job.experiment.workloads {
        Store::check_free(&job.dir_of(out, workload))?;
    }
    let hosts = servers::hosts(&job.experiment)?;
    check_rights(job, &hosts)?;
    let servers = servers::existing_servers(&job.experiment, params, &hosts);
    let mut reserved = Vec::new();
    for companions in feature::companions(job) {
        reserved.extend(companions.check(job, &servers, &hosts, observe)?);
    }
    for workload in &job.experiment.workloads {
        validate_workload(job, workload, &servers, &hosts, &reserved, observe)?;
    }
    Ok(validate_private(&job.experiment)?)
}

fn validate_workload(
    job: &Job,
    spec: &WorkloadSpec,
    servers: &BTreeMap<String, TargetServer>,
    hosts: &Hosts,
    reserved: &[Reservation],
    observe: &mut Observer<'_>,
) -> Result<(), RunError> {
    let stop = Stop::new();
    let cells = cells(job, spec)?;
    let mut rules = job.experiment.rules.clone();
    rules.reset = job.experiment.reset_of(spec).clone();
    let mut targets = inspect(job, spec, &cells, servers, observe)?;
    // In the order of a run, which takes a lock where the plan only looks whether it is free.
    let measured = targets.values().map(|target| target.identity.clone()).collect();
    refuse_changed(&measured)?;
    refuse_changed(&live::touched_before_check(&cells, &mut targets, hosts, &stop))?;
    live::check(&cells, &mut targets, hosts, &rules, reserved, &stop)?;
    refuse_changed(&live::touched(&targets))?;
    if let Some(generators) = &job.generators {
        let checked = generators.check_work(job.experiment.targets.len(), &targets);
        checked.map_err(LiveError::from)?;
    }
    if cells.iter().any(|cell| cell.targets().any(|target| !servers.contains_key(target))) {
        validate_work(job, spec, hosts)?;
    }
    Ok(())
}

/// Opens the servers of a workload without changing them, which refuses what they lack for it. A private server has no
/// data set before its workload begins.
pub(super) fn inspect(
    job: &Job,
    spec: &WorkloadSpec,
    cells: &[LiveCell],
    servers: &BTreeMap<String, TargetServer>,
    observe: &mut Observer<'_>,
) -> Result<BTreeMap<String, OpenTarget>, OpenError> {
    let mut targets = BTreeMap::new();
    for (name, server) in servers.iter().filter(|(_, server)| server.cluster.is_none()) {
        if cells.iter().any(|c| c.targets().any(|target| target == name)) {
            let stop = Stop::new();
            let target = servers::open_target(job, spec, server, Purpose::Inspect, &stop, observe)?;
            targets.insert(name.clone(), target);
        }
    }
    Ok(targets)
}

/// Refuses what other runs changed or are changing. A plan holds no claims.
fn refuse_changed(resources: &BTreeSet<Resource>) -> Result<(), ConflictError> {
    admin::refuse_changed(resources, &Claims::default())
}

/// Checks the work on a server that does not exist yet.
fn validate_work(job: &Job, spec: &WorkloadSpec, hosts: &Hosts) -> Result<(), OpenError> {
    for layer in layers(spec, job.experiment.combination) {
        let layer = layer.over(job.base_keys.layer.clone());
        (spec.kind.def().check_keys)(layer)?;
    }
    (workloads::code(spec.kind).check_programs)(spec, job.generators.is_some(), hosts)
}

fn validate_private(e: &Experiment) -> Result<Vec<Unchecked>, OpenError> {
    let mut open = Vec::new();
    for (name, target) in &e.targets {
        let Target::Private(private) = target else { continue };
        for directory in private.directories() {
            private::check_base(directory)?;
        }
        let found = private::find_installed(private.major.map(VersionRequest::major))?;
        if let Some(found) = &found {
            private::check_version_options(found, &private.initdb)?;
        }
        let installed = found.map(|found| found.version.to_string());
        open.push(Unchecked { target: name.clone(), installed });
    }
    Ok(open)
}

/// Refuses conditions that this user may not apply, before a server is started and a data set is loaded into it. Queries
/// the hosts only; the treatments' `check` comes later and checks everything.
pub(super) fn check_rights(job: &Job, hosts: &Hosts) -> Result<(), OpenError> {
    for workload in &job.experiment.workloads {
        for cell in cells(job, workload)? {
            for target in cell.targets() {
                check_rights_of_cell(&job.experiment, &cell, target, hosts)?;
            }
        }
    }
    Ok(())
}

fn check_rights_of_cell(
    e: &Experiment,
    cell: &LiveCell,
    target: &str,
    hosts: &Hosts,
) -> Result<(), LiveError> {
    let server = match e.targets.get(target) {
        Some(Target::Private(_)) => Some(LOCAL),
        Some(Target::Server { host, .. }) => host.as_deref(),
        None => None,
    };
    // The server's host is found later, and the rights there are checked then.
    if server.is_none() {
        return Ok(());
    }
    let machines = Machines { hosts, server };
    for treatment in cell.treatments.iter() {
        treatment.check_rights(&machines).map_err(|source| LiveError::Treatment {
            condition: cell.title.clone(),
            source: Box::new(source),
        })?;
    }
    Ok(())
}
