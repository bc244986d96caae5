//! Starts the drivers of a run, after all checks and before the first change.

use std::cell::OnceCell;
use std::sync::Arc;

use super::error::RunError;
use super::job::Job;
use crate::config::command::CommandSpec;
use crate::config::drivers::DriverSpec;
use crate::config::experiment::{WorkloadKind, WorkloadSpec};
use crate::config::value::EngineName;
use crate::experiment::error::LiveError;
use crate::experiment::live::Live;
use crate::workload::drivers::messages::Work;
use crate::workload::drivers::{DriverError, Drivers, launch, server_name};
use crate::workload::{EngineError, Generator};

/// Refuses, before a server is started, drivers that cannot be started, and work that they cannot do.
pub(super) fn check(job: &Job) -> Result<(), RunError> {
    let Some(spec) = &job.drivers else { return Ok(()) };
    let checked =
        job.experiment.workloads.iter().try_for_each(|workload| check_work(job, workload));
    let checked = checked.and_then(|()| check_targets(job));
    checked.and_then(|()| launch::launcher(spec).check()).map_err(refused)
}

fn refused(error: DriverError) -> RunError {
    LiveError::from(EngineError::from(error)).into()
}

fn check_work(job: &Job, workload: &WorkloadSpec) -> Result<(), DriverError> {
    let name = &workload.name;
    let why = match workload.kind {
        WorkloadKind::Slob | WorkloadKind::Commit => {
            let layer = workload.layer.clone().over(job.below.layer.clone());
            if layer.engine == Some(EngineName::Client) {
                return Ok(());
            }
            format!(
                "workload `{name}`: the server engine gains nothing from drivers on one target, because its sessions work inside the server; write engine = \"client\" in [workload], or leave out the drivers"
            )
        }
        WorkloadKind::Mail => return Ok(()),
        WorkloadKind::Device => {
            let layer = workload.layer.clone().over(job.below.layer.clone());
            if layer.path.is_some() {
                return Ok(());
            }
            format!(
                "workload `{name}`: drivers measure a place on their own hosts, not the target's device; write path in [workload], or leave out the drivers"
            )
        }
        WorkloadKind::Command => match workload.command.as_ref().and_then(obstacle) {
            Some(why) => format!("workload `{name}`: {why}"),
            None => return Ok(()),
        },
    };
    Err(DriverError::Refused(why))
}

/// Returns what prevents drivers from running a command; none: nothing.
fn obstacle(spec: &CommandSpec) -> Option<String> {
    if let Some(host) = &spec.host {
        return Some(format!(
            "each driver runs the command on its own host, not on {host}; delete host, or leave out the drivers"
        ));
    }
    let primary = spec.primary();
    primary.combine.is_none().then(|| {
        format!(
            "pgio does not know how the numbers of several drivers make one `{}`; write combine = \"sum\", \"mean\", \"max\" or \"min\" in its [[workload.metric]]",
            primary.name
        )
    })
}

/// A window of several servers has one process that opens it on all of them.
fn check_targets(job: &Job) -> Result<(), DriverError> {
    let mut conditions = job.experiment.conditions.iter();
    match conditions.find(|condition| condition.targets().count() > 1) {
        None => Ok(()),
        Some(condition) => Err(DriverError::Refused(format!(
            "condition `{}` has several targets, and drivers work on one at a time; leave out the drivers",
            condition.name
        ))),
    }
}

/// Starts the drivers unless an earlier workload of the run has, and has each reach every server.
pub(super) fn ready(
    spec: &DriverSpec,
    stage: &mut Live<'_>,
    run_id: &str,
    started: &OnceCell<Arc<Drivers>>,
) -> Result<Generator, RunError> {
    let engine = |error: EngineError| RunError::from(LiveError::from(error));
    for workload in stage.targets.values().flat_map(|target| &target.workloads) {
        let Some(sessions) = workload.divisible() else { continue };
        if sessions < spec.count {
            let sessions = sessions as usize;
            return Err(refused(DriverError::MoreThanSessions { drivers: spec.count, sessions }));
        }
    }
    let drivers = match started.get() {
        Some(drivers) => Arc::clone(drivers),
        None => {
            let launcher = launch::launcher(spec);
            let drivers = Drivers::open(launcher, spec.count, spec.listen, run_id, &stage.stop);
            let drivers = Arc::new(drivers.map_err(engine)?);
            Arc::clone(started.get_or_init(|| drivers))
        }
    };
    for target in stage.targets.values_mut() {
        let server = server_name(&mut target.admin).map_err(LiveError::from)?;
        let works = target.workloads.iter().filter_map(|workload| workload.checked_by_drivers());
        let works: Vec<Work> = works.collect();
        drivers.reach((&target.params, &works), &server, &stage.stop).map_err(engine)?;
    }
    Ok(Generator::Drivers(drivers))
}
