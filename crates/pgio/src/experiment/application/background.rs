//! Prepares the background work of an experiment on its servers.
//!
//! Next: `experiment::background` runs it beside the trials.

use std::collections::BTreeMap;

use postgres::Client;

use super::error::OpenError;
use super::job::Job;
use super::servers::TargetServer;
use super::workloads::{self, WorkPlace};
use crate::config::Layer;
use crate::config::experiment::{BackgroundSpec, Condition, WorkloadSpec};
use crate::experiment::admin::{open_admin, open_reader};
use crate::experiment::background::{Background, Neighbor, connections_beside};
use crate::experiment::error::LiveError;
use crate::experiment::event::Observer;
use crate::experiment::live::LiveCell;
use crate::host::LOCAL;
use crate::host::stop::Stop;
use crate::pg::server::{self, Server};
use crate::treatment::Resource;
use crate::workload::command::LastSetup;
use crate::workload::{self, NeededSessions};

/// Prepares the work that runs beside a judged workload; a private server is loaded, unless the judged
/// workload or other background work has its data set there.
pub(super) fn prepare(
    job: &Job,
    judged: &WorkloadSpec,
    cells: &[LiveCell],
    servers: &BTreeMap<String, TargetServer>,
    run_id: &str,
    stop: &Stop,
    observe: &mut Observer<'_>,
) -> Result<Vec<Background>, OpenError> {
    let mut all = Vec::new();
    for spec in &job.experiment.background {
        if !cells.iter().any(|cell| spec.runs_beside(&cell.cell.condition)) {
            continue;
        }
        let target = servers.get(&spec.target).expect("the parser knows every target");
        let (mut admin, server) = open_admin(&target.params, run_id)?;
        let identity = server::identity(&mut admin).map_err(LiveError::from)?;
        let is_judged = cells.iter().any(|cell| cell.targets().any(|name| *name == spec.target));
        let has_data = |of: &WorkloadSpec| of.kind.def().data_set;
        let loaded =
            all.iter().any(|b: &Background| b.spec.target == spec.target && has_data(&b.spec.work));
        let load = !(loaded || is_judged && has_data(judged));
        let last_setup = LastSetup::default();
        let place = work_place(job, target, &server, &last_setup, load, stop);
        let layer = layer(job, spec);
        let workload = workloads::prepare(&spec.work, layer, &place, &mut admin, observe)?;
        let host = match &target.cluster {
            Some(_) => Some(LOCAL.to_owned()),
            // The server may be on this machine; a backend that is not found there is ignored.
            None => target.host.clone(),
        };
        all.push(Background {
            spec: spec.clone(),
            run_id: run_id.to_owned(),
            params: target.params.clone(),
            workload,
            host,
            identity: Resource::server(&identity),
            private: target.cluster.is_some(),
            table_journal: None,
        });
        let neighbors: Vec<Neighbor<'_>> = all.iter().map(Background::neighbor).collect();
        check_room(job, &neighbors, &mut admin, stop)?;
    }
    Ok(all)
}

/// Refuses, on servers that exist, work that could not be prepared. Returns what it takes from these servers.
pub(super) fn check_on<'a>(
    job: &'a Job,
    servers: &BTreeMap<String, TargetServer>,
    stop: &Stop,
    observe: &mut Observer<'_>,
) -> Result<Vec<Neighbor<'a>>, OpenError> {
    let mut all = Vec::new();
    for spec in &job.experiment.background {
        let Some(target) = servers.get(&spec.target) else { continue };
        let (mut admin, server) = open_reader(&target.params)?;
        let identity = server::identity(&mut admin).map_err(LiveError::from)?;
        let last_setup = LastSetup::default();
        let place = work_place(job, target, &server, &last_setup, false, stop);
        let layer = layer(job, spec);
        let workload = workloads::prepare(&spec.work, layer, &place, &mut admin, observe)?;
        all.push(Neighbor::new(spec, Resource::server(&identity), &*workload));
        check_room(job, &all, &mut admin, stop)?;
    }
    Ok(all)
}

/// Refuses the last of these for which its server has no room beside conditions that run on other targets.
/// `live::check` judges the conditions that run there, because they may change the limit. `admin` is a session there.
fn check_room(
    job: &Job,
    all: &[Neighbor<'_>],
    admin: &mut Client,
    stop: &Stop,
) -> Result<(), OpenError> {
    let Some(last) = all.last() else { return Ok(()) };
    let runs_apart = |c: &&Condition| c.targets().all(|target| *target != last.spec.target);
    let apart = job.experiment.conditions.iter().filter(runs_apart);
    let needed = apart.map(|c| connections_beside(all, &c.name, &last.server)).max().unwrap_or(0);
    // The trial has one admin session there instead of this one.
    let total = needed.saturating_sub(1);
    let own = last.connections.saturating_sub(1).min(total);
    let sessions = NeededSessions { own, beside: total - own };
    let room = workload::wait_for_declared_room(admin, &[], sessions, stop);
    room.map_err(|source| LiveError::BackgroundRoom {
        name: last.spec.work.name.clone(),
        source: Box::new(source),
    })?;
    Ok(())
}

/// Where background work runs. No driver generates it.
fn work_place<'a>(
    job: &Job,
    target: &'a TargetServer,
    server: &'a Server,
    last_setup: &'a LastSetup,
    load: bool,
    stop: &'a Stop,
) -> WorkPlace<'a> {
    WorkPlace { target, server, last_setup, load, seed: job.seed, drivers: false, stop }
}

/// The keys of a section, below them those of pgio.conf.
fn layer(job: &Job, spec: &BackgroundSpec) -> Layer {
    spec.work.layer.clone().over(job.base_keys.layer.clone())
}

/// Checks the keys of work on servers that do not exist yet. On `servers`, a data set's mark supplies absent keys, so
/// [`check_on`] checks them there.
pub(super) fn check(job: &Job, servers: &BTreeMap<String, TargetServer>) -> Result<(), OpenError> {
    for spec in job.experiment.background.iter().filter(|b| !servers.contains_key(&b.target)) {
        workloads::check_keys(spec.work.kind, layer(job, spec))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::servers;
    use crate::experiment::application::test_support::{COMMITS, job};
    use crate::host::Hosts;

    /// Checks background work with these keys on this target.
    fn checked(target: &str, keys: &str) -> Result<(), String> {
        let head = COMMITS.replace("private = true", target);
        let job = job(&format!(
            "{head}[[background]]\ntarget = 'target'\nconditions = ['on']\nkind = 'slob'\n{keys}\n"
        ));
        let params = servers::params(&job, "7", &mut |_| {}).unwrap();
        let servers = servers::existing_servers(&job.experiment, params, &Hosts::new());
        check(&job, &servers).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_are_completed_with_defaults_only_where_no_server_exists() {
        let hot = "hot_table = 3\nhot_table_pct = 50";
        let half = "fillfactor = 50";
        let existing = "dsn = 'host=h user=u dbname=d'";
        assert_eq!(checked(existing, hot), Ok(()), "the data set may have three tables");
        assert_eq!(checked(existing, half), Ok(()), "its rows may be wide enough");
        let error = checked("private = true", hot).unwrap_err();
        assert!(error.contains("HOT_TABLE is 3, but the number of tables is 1"), "{error}");
        let error = checked("private = true", half).unwrap_err();
        assert!(error.to_uppercase().contains("FILLFACTOR"), "{error}");
    }
}
