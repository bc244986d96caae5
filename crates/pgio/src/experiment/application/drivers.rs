//! Starts the drivers of a run, after all checks and before the first change.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::RunError;
use super::job::Job;
use crate::config::command::CommandSpec;
use crate::config::drivers::{DriverSpec, Spread};
use crate::config::experiment::{WorkloadKind, WorkloadSpec};
use crate::config::value::EngineName;
use crate::experiment::error::LiveError;
use crate::experiment::live::Live;
use crate::workload::drivers::coordinator::{DriverCounts, Drivers, launch};
use crate::workload::drivers::{DriverError, server_name};
use crate::workload::{EngineError, Generator};

/// Refuses, before a server is started, drivers that cannot be started, and work that they cannot do.
pub(super) fn check(job: &Job) -> Result<(), RunError> {
    let Some(spec) = &job.drivers else { return Ok(()) };
    let checked =
        job.experiment.workloads.iter().try_for_each(|workload| check_work(job, workload));
    let checked = checked.and_then(|()| check_targets(job, spec));
    checked.and_then(|()| launch::launcher(spec).check()).map_err(refusal)
}

fn refusal(error: DriverError) -> RunError {
    LiveError::from(EngineError::from(error)).into()
}

fn check_work(job: &Job, workload: &WorkloadSpec) -> Result<(), DriverError> {
    let name = &workload.name;
    let layer = workload.layer.clone().over(job.base_keys.layer.clone());
    let why = match workload.kind {
        WorkloadKind::Slob | WorkloadKind::Commit => {
            if layer.engine == Some(EngineName::Client) {
                return Ok(());
            }
            format!(
                "workload `{name}`: the server engine gains nothing from drivers on one target, because its sessions work inside the server; write engine = \"client\" in [workload], or leave out the drivers"
            )
        }
        WorkloadKind::Mail => return Ok(()),
        WorkloadKind::Device => {
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
            "pgio does not know how to combine the values of several drivers for `{}`; write combine = \"sum\", \"mean\", \"max\" or \"min\" in its [[workload.metric]]",
            primary.name
        )
    })
}

/// A driver works on one server at a time.
fn check_targets(job: &Job, spec: &DriverSpec) -> Result<(), DriverError> {
    let mut conditions = job.experiment.conditions.iter();
    let joint = conditions.find(|condition| condition.targets().count() > 1);
    let targets = job.experiment.targets.len();
    let refused = match (spec.spread, joint) {
        (Spread::Sessions, Some(condition)) => format!(
            "condition `{}` has several targets, and a driver works on one at a time; write spread = \"target\" in [drivers]",
            condition.name
        ),
        // With more drivers one server would have more load than another.
        (Spread::Target, _) if targets > 0 && !(spec.count as usize).is_multiple_of(targets) => {
            format!(
                "spread = \"target\" divides the drivers equally among {targets} targets, and {} cannot be; use a multiple of {targets}",
                spec.count
            )
        }
        _ => return Ok(()),
    };
    Err(DriverError::Refused(refused))
}

/// Starts the drivers unless an earlier workload of the run has, and has each reach its servers. Returns the drivers
/// of each target; `names` are all targets of the run.
pub(super) fn start(
    spec: &DriverSpec,
    names: &[&str],
    stage: &mut Live<'_>,
    run_id: &str,
    started: &OnceCell<Vec<Arc<Drivers>>>,
) -> Result<BTreeMap<String, Generator>, RunError> {
    let groups = match spec.spread {
        Spread::Sessions => 1,
        Spread::Target => names.len().max(1) as u32,
    };
    let each = spec.count / groups;
    let engine = |error: EngineError| RunError::from(LiveError::from(error));
    for workload in stage.targets.values().flat_map(|target| &target.workloads) {
        let Some(sessions) = workload.divisible() else { continue };
        if sessions < each {
            let sessions = sessions as usize;
            return Err(refusal(DriverError::MoreThanSessions { drivers: each, sessions }));
        }
    }
    let all = match started.get() {
        Some(all) => all,
        None => {
            let launcher = launch::launcher(spec);
            let counts = DriverCounts { drivers: spec.count, groups };
            let all = Drivers::open(launcher, counts, spec.listen, run_id, &stage.stop);
            let all = all.map_err(engine)?;
            started.get_or_init(|| all)
        }
    };
    let mut generators = BTreeMap::new();
    for (name, target) in &mut stage.targets {
        let position = names.iter().position(|known| known == name).unwrap_or(0);
        let drivers = Arc::clone(&all[position % groups as usize]);
        let server = server_name(&mut target.admin).map_err(LiveError::from)?;
        drivers.reach(&target.params, &server, &stage.stop).map_err(engine)?;
        for workload in &target.workloads {
            workload.check_drivers(&*drivers, &stage.stop).map_err(engine)?;
        }
        generators.insert(name.clone(), Generator::Drivers(drivers));
    }
    Ok(generators)
}
