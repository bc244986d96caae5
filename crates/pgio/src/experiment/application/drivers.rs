//! Starts the drivers of a run, after all checks and before the first change.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::RunError;
use super::job::Job;
use crate::config::drivers::{DriverSpec, Spread};
use crate::config::experiment::WorkloadSpec;
use crate::experiment::live::{Live, LiveError};
use crate::experiment::target::Target;
use crate::workload::coordinator::{DriverCounts, Drivers, launch};
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
    let layer = workload.layer.clone().over(job.base_keys.layer.clone());
    let judged = &job.experiment.rules.question.also_judge;
    match (workload.kind.def().without_drivers)(workload, &layer, judged) {
        Some(why) => Err(DriverError::Refused(format!("workload `{}`: {why}", workload.name))),
        None => Ok(()),
    }
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

/// Refuses work with fewer sessions than drivers. `servers` is the number of servers of the whole run.
pub(super) fn check_sessions(
    spec: &DriverSpec,
    servers: usize,
    targets: &BTreeMap<String, Target>,
) -> Result<(), RunError> {
    let each = spec.count / groups(spec, servers);
    for workload in targets.values().flat_map(|target| &target.workloads) {
        let Some(sessions) = workload.divisible() else { continue };
        if sessions < each {
            let sessions = sessions as usize;
            return Err(refusal(DriverError::MoreThanSessions { drivers: each, sessions }));
        }
    }
    Ok(())
}

/// Returns how many groups of drivers divide the servers among them.
fn groups(spec: &DriverSpec, servers: usize) -> u32 {
    match spec.spread {
        Spread::Sessions => 1,
        Spread::Target => servers.max(1) as u32,
    }
}

/// Starts the drivers unless an earlier workload of the run has, and has each reach its servers. Returns the drivers
/// of each target; `names` are all targets of the run.
pub(super) fn start(
    spec: &DriverSpec,
    names: &[&str],
    runner: &mut Live<'_>,
    run_id: &str,
    started: &OnceCell<Vec<Arc<Drivers>>>,
) -> Result<BTreeMap<String, Generator>, RunError> {
    check_sessions(spec, names.len(), &runner.targets)?;
    let groups = groups(spec, names.len());
    let engine = |error: EngineError| RunError::from(LiveError::from(error));
    let all = match started.get() {
        Some(all) => all,
        None => {
            let launcher = launch::launcher(spec);
            let counts = DriverCounts { drivers: spec.count, groups };
            let all = Drivers::open(launcher, counts, spec.listen, run_id, &runner.stop);
            let all = all.map_err(engine)?;
            started.get_or_init(|| all)
        }
    };
    let mut generators = BTreeMap::new();
    for (name, target) in &mut runner.targets {
        let position = names.iter().position(|known| known == name).unwrap_or(0);
        let drivers = Arc::clone(&all[position % groups as usize]);
        let server = server_name(&mut target.admin).map_err(LiveError::from)?;
        drivers.reach(&target.params, &server, &runner.stop).map_err(engine)?;
        for workload in &target.workloads {
            workload.check_drivers(&*drivers, &runner.stop).map_err(engine)?;
        }
        generators.insert(name.clone(), Generator::Others(drivers));
    }
    Ok(generators)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::scripted::job;

    #[test]
    fn each_judged_metric_of_a_command_can_be_combined() {
        let checked = |head: &str| {
            let job = job(&format!(
                "[target]\nprivate = true\n[experiment]\n{head}\n[workload]\nkind = 'command'\npreset = 'sysbench-oltp_read_only'\n"
            ));
            check_work(&job, &job.experiment.workloads[0]).map_err(|error| error.to_string())
        };
        checked("").unwrap();
        checked("primary = 'sysbench_latency_mean'").unwrap();
        for head in ["primary = 'sysbench_latency_p95'", "also_judge = ['sysbench_latency_p95']"] {
            let error = checked(head).unwrap_err();
            let expected = "combine the values of several drivers for `sysbench_latency_p95`";
            assert!(error.contains(expected), "{head}: {error}");
        }
    }
}
