//! Prepares the background work of an experiment on its servers.
//!
//! Next: [`super::running`] runs it beside the trials.

use std::collections::BTreeMap;
use std::sync::Arc;

use pgio_connect::Client;

use super::running::{AllBackground, Background, reservation};
use super::spec::BackgroundSpec;
use crate::config::experiment::{Condition, WorkloadSpec};
use crate::config::{ConnectString, Layer, Use};
use crate::dataset::verify;
use crate::experiment::admin::{
    open_admin, open_admin_anywhere, open_reader_anywhere, refuse_other_runs,
};
use crate::experiment::application::{Job, OpenError, TargetServer, WorkPlace, workloads};
use crate::experiment::companion::{Accompanied, Reservation, connections_beside};
use crate::experiment::event::Observer;
use crate::experiment::live::LiveError;
use crate::experiment::target;
use crate::host::stop::Stop;
use crate::host::{Hosts, LOCAL};
use crate::pg::server::{self, Server};
use crate::treatment::Resource;
use crate::workload::command::LastSetup;
use crate::workload::{self, NeededSessions, Workload};

/// Prepares the work that runs beside a judged workload; a private server is loaded, unless the judged
/// workload or other background work has its data set there.
pub(super) fn prepare(
    specs: &[BackgroundSpec],
    run: &Accompanied<'_>,
    observe: &mut Observer<'_>,
) -> Result<AllBackground, OpenError> {
    let Accompanied { job, workload: judged, cells, servers, run_id, stop } = *run;
    let mut all = Vec::<Background>::new();
    for spec in specs {
        if !cells.iter().any(|cell| spec.runs_beside(&cell.cell.condition)) {
            continue;
        }
        let target = servers.get(&spec.target).expect("the parser knows every target");
        let is_judged = cells.iter().any(|cell| cell.targets().any(|name| *name == spec.target));
        let has_data = |of: &WorkloadSpec| of.kind.def().data_set;
        let loaded = all.iter().any(|b| b.spec.target == spec.target && has_data(&b.spec.work));
        let load = !(loaded || is_judged && has_data(judged));
        let prepared = prepare_one(job, spec, target, (run_id, load), stop, observe);
        let (background, mut admin) = prepared.map_err(|error| beside(spec, error))?;
        all.push(background);
        let taken: Vec<Reservation> = all.iter().map(Background::reservation).collect();
        let room = check_room(job, spec, &taken, &mut admin, stop);
        room.map_err(|error| beside(spec, error))?;
    }
    Ok(AllBackground(all))
}

fn prepare_one(
    job: &Job,
    spec: &BackgroundSpec,
    target: &TargetServer,
    (run_id, mut load): (&str, bool),
    stop: &Stop,
    observe: &mut Observer<'_>,
) -> Result<(Background, Client), OpenError> {
    let mut params = target.params.clone();
    if let (Some(standby), Some(cluster)) = (&spec.standby, &target.cluster) {
        let conninfo = cluster.conninfo_of(standby).expect("the parser knows every standby");
        params = target::params(&ConnectString::new(conninfo), run_id)?;
        if std::mem::take(&mut load) && spec.work.kind.def().data_set {
            let (mut admin, server) = open_admin(&target.params, run_id)?;
            prepare_work(job, spec, target, (&server, true), &mut admin, stop, observe)?;
        }
        cluster.wait_replayed(stop)?;
    }
    let (mut admin, server) = open_admin_anywhere(&params, run_id)?;
    refuse_other_runs(&mut admin, &server.info.database, run_id, false)?;
    let identity = identity_of(&mut admin, &server)?;
    let place = (&server, load);
    let workload = prepare_work(job, spec, target, place, &mut admin, stop, observe)?;
    let host = match &target.cluster {
        Some(_) => Some(LOCAL.to_owned()),
        // The server may be on this machine; a backend that is not found there is ignored.
        None => target.host.clone(),
    };
    let background = Background {
        spec: spec.clone(),
        run_id: run_id.to_owned(),
        params,
        workload,
        host,
        identity,
        private: target.cluster.is_some(),
        table_journal: None,
    };
    Ok((background, admin))
}

/// Refuses, on servers that exist, work that could not be prepared. Returns what it takes from these servers.
pub(super) fn check_on(
    specs: &[BackgroundSpec],
    job: &Job,
    servers: &BTreeMap<String, TargetServer>,
    stop: &Stop,
    observe: &mut Observer<'_>,
) -> Result<Vec<Reservation>, OpenError> {
    let mut all = Vec::new();
    for spec in specs {
        let Some(target) = servers.get(&spec.target) else { continue };
        let mut check = || {
            let (mut admin, server) = open_reader_anywhere(&target.params)?;
            let identity = identity_of(&mut admin, &server)?;
            let place = (&server, false);
            let workload = prepare_work(job, spec, target, place, &mut admin, stop, observe)?;
            all.push(reservation(spec, identity, &*workload));
            check_room(job, spec, &all, &mut admin, stop)
        };
        check().map_err(|error| beside(spec, error))?;
    }
    Ok(all)
}

/// Adds to an error which work it concerns, and where.
fn beside(spec: &BackgroundSpec, source: OpenError) -> OpenError {
    let what = format!("background work `{}` on {}", spec.work.name, spec.place());
    OpenError::Companion { what, source: Box::new(source) }
}

/// A standby has its primary's system identifier, and may have its port as well, but connections of its own.
fn identity_of(admin: &mut Client, server: &Server) -> Result<Resource, OpenError> {
    let identity = server::identity(admin).map_err(LiveError::from)?;
    let standby = if server.is_standby { ", a standby" } else { "" };
    Ok(Resource::server(&format!("{identity}{standby}")))
}

/// Prepares the work on the server of `admin`; `load` as in [`WorkPlace`].
fn prepare_work(
    job: &Job,
    spec: &BackgroundSpec,
    target: &TargetServer,
    (server, load): (&Server, bool),
    admin: &mut Client,
    stop: &Stop,
    observe: &mut Observer<'_>,
) -> Result<Arc<dyn Workload>, OpenError> {
    let layer = layer(job, spec);
    if server.is_standby {
        refuse_writes(spec, &layer)?;
        if spec.work.kind.def().data_set && verify::read_mark(admin)?.layout.unlogged {
            return Err(OpenError::Writes {
                why: "its data set is unlogged, so the standby has no copy: load it again without UNLOGGED",
            });
        }
    }
    let last_setup = LastSetup::default();
    let (seed, others) = (job.seed, false);
    let place = WorkPlace { target, server, last_setup: &last_setup, load, seed, others, stop };
    (workloads::code(spec.work.kind).prepare)(&spec.work, layer, &place, admin, observe)
}

/// Refuses work that would write to a standby.
fn refuse_writes(spec: &BackgroundSpec, layer: &Layer) -> Result<(), OpenError> {
    let keys = layer.clone().over(Layer::defaults(Use::Work(spec.work.kind)));
    match (spec.work.kind.def().writing)(&spec.work, &keys) {
        Some(why) => Err(OpenError::Writes { why }),
        None => Ok(()),
    }
}

/// Refuses this work, the last of those that take connections, if its server has no room beside conditions that run on
/// other targets. `live::check` judges the conditions that run there, because they may change the limit. `admin` is a
/// session there.
fn check_room(
    job: &Job,
    spec: &BackgroundSpec,
    all: &[Reservation],
    admin: &mut Client,
    stop: &Stop,
) -> Result<(), OpenError> {
    let Some(last) = all.last() else { return Ok(()) };
    let runs_apart = |c: &&Condition| c.targets().all(|target| *target != spec.target);
    let apart = job.experiment.conditions.iter().filter(runs_apart);
    let needed = apart.map(|c| connections_beside(all, &c.name, &last.server).0).max().unwrap_or(0);
    // The trial has one admin session there instead of this one.
    let total = needed.saturating_sub(1);
    let own = last.connections.saturating_sub(1).min(total);
    let sessions = NeededSessions { own, beside: total - own };
    let room = workload::wait_for_declared_room(admin, &[], sessions, stop);
    Ok(room.map(drop)?)
}

/// The keys of a section, below them the keys of pgio.conf.
fn layer(job: &Job, spec: &BackgroundSpec) -> Layer {
    spec.work.layer.clone().over(job.base_keys.layer.clone())
}

/// Checks keys and programs of work on servers that do not exist yet. On `servers`, a data set's mark supplies absent
/// keys, so [`check_on`] checks them there.
pub(super) fn check(
    specs: &[BackgroundSpec],
    job: &Job,
    servers: &BTreeMap<String, TargetServer>,
    hosts: &Hosts,
) -> Result<(), OpenError> {
    for spec in specs.iter().filter(|b| !servers.contains_key(&b.target)) {
        let layer = layer(job, spec);
        let check = || {
            if spec.standby.is_some() {
                refuse_writes(spec, &layer)?;
            }
            (spec.work.kind.def().check_keys)(layer.clone())?;
            (workloads::code(spec.work.kind).check_programs)(&spec.work, false, hosts)
        };
        check().map_err(|error| beside(spec, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::specs;
    use super::*;
    use crate::experiment::application::scripted::{COMMITS, job};
    use crate::experiment::application::servers;
    use crate::pg::words;

    /// Checks background work with these keys on this target.
    fn checked(target: &str, keys: &str) -> Result<(), String> {
        let head = COMMITS.replace("private = true", target);
        let job = job(&format!(
            "{head}[[background]]\ntarget = 'target'\nconditions = ['on']\nkind = 'slob'\n{keys}\n"
        ));
        let params = servers::params(&job, "7", &mut |_| {}).unwrap();
        let servers = servers::existing_servers(&job.experiment, params, &Hosts::new());
        check(&specs(&job), &job, &servers, &Hosts::new()).map_err(|error| words::sentence(&error))
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

    #[test]
    fn work_that_writes_or_lacks_its_program_is_refused_with_its_target() {
        let standby = "private = true\nstandby = true";
        let on_standby = |keys: &str| checked(standby, &format!("standby = 'standby'\n{keys}"));
        assert_eq!(on_standby("update_pct = 0"), Ok(()));
        let error = on_standby("update_pct = 5").unwrap_err();
        assert_eq!(
            error,
            "background work `slob` on standby `standby` of `target`: it would write to a standby: set update_pct = 0"
        );
        let command = |target: &str, keys: &str| {
            let head = COMMITS.replace("private = true", target);
            let text = format!(
                "{head}[[background]]\ntarget = 'target'\nconditions = ['on']\nkind = 'command'\n{keys}\n"
            );
            let job = job(&text);
            check(&specs(&job), &job, &BTreeMap::new(), &Hosts::new())
                .map_err(|error| words::sentence(&error))
        };
        assert_eq!(command(standby, "standby = 'standby'\nrun = ['true']"), Ok(()));
        let error = command(standby, "standby = 'standby'\npreset = 'pgbench-S'").unwrap_err();
        assert!(error.contains("set schema = \"\""), "{error}");
        let error = command("private = true", "run = ['/no/such']").unwrap_err();
        assert!(
            error.starts_with("background work `command` on `target`: program `/no/such`"),
            "{error}"
        );
    }
}
