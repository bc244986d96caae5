//! The same data before each trial: nothing but the CHECKPOINT that every trial begins with, the
//! data set's dead rows cleared away, the data set loaded again, or the whole database made again.
//!
//! Runs before the condition is put in force, so that it is no part of it. What a way needs to
//! know is read once and refused before the first trial. A workload that makes its own table for
//! each trial has nothing to be loaded.

use super::admin::open_admin;
use super::error::LiveError;
use super::target::{ResetPlan, Target};
use crate::config::experiment::Reset;
use crate::dataset::{self, DatasetError, LoadEvent, database, verify};
use crate::host::stop::Stop;
use crate::pg::connect;
use crate::results::model::Warning;

/// Refuses what could not work or would lose something.
pub fn prepare(reset: &Reset, target: &mut Target) -> Result<ResetPlan, DatasetError> {
    let loaded = match reset {
        Reset::Checkpoint => return Ok(ResetPlan::Checkpoint),
        _ => verify::loaded_spec(&mut target.admin)?,
    };
    match reset {
        Reset::Recreate { named } => {
            let private = target.cluster.is_some();
            let found = &target.server.info.database;
            if let Some(named) = named.as_ref().filter(|n| *n != found && !private) {
                return Err(DatasetError::NotRecreatable {
                    name: found.clone(),
                    why: format!("recreate_database names `{named}`, the target `{found}`"),
                });
            }
            database::describe(&mut target.admin, private)?;
            Ok(ResetPlan::Recreate { load: loaded })
        }
        Reset::Vacuum => Ok(loaded.map_or(ResetPlan::Checkpoint, ResetPlan::Vacuum)),
        _ => Ok(loaded.map_or(ResetPlan::Checkpoint, ResetPlan::Reload)),
    }
}

/// Does it; returns what the load warned of. `tick` is called as a load goes on.
pub fn perform(
    target: &mut Target,
    run_id: &str,
    stop: &Stop,
    tick: &mut dyn FnMut(),
) -> Result<Vec<Warning>, LiveError> {
    let way = target.reset.clone();
    let spec = match &way {
        ResetPlan::Checkpoint => None,
        ResetPlan::Vacuum(spec) => {
            dataset::vacuum(&mut target.admin, spec)?;
            None
        }
        ResetPlan::Reload(spec) => Some(spec),
        ResetPlan::Recreate { load } => {
            make_again(target, run_id)?;
            load.as_ref()
        }
    };
    let mut warnings = Vec::new();
    if let Some(spec) = spec {
        let params = &target.params;
        dataset::load(&mut target.admin, &|| connect::connect(params), spec, stop, &mut |event| {
            if let LoadEvent::Progress { .. } = event {
                tick();
            } else if let LoadEvent::Warning(warning) = event {
                warnings.push(warning);
            }
        })?;
    }
    Ok(warnings)
}

fn make_again(target: &mut Target, run_id: &str) -> Result<(), LiveError> {
    // What the workload made for itself goes with the database, and is no reason to keep it.
    for workload in &target.workloads {
        workload.clean_up(&mut target.admin)?;
    }
    // Looked at anew: someone may have put something into it since the last trial.
    let database = &database::describe(&mut target.admin, target.cluster.is_some())?;
    let beside = if database.name == "postgres" { "template1" } else { "postgres" };
    let params = target.params.clone().with_dbname(beside);
    // In its place, so that the session in the database ends.
    (target.admin, _) = open_admin(&params, run_id)?;
    database::recreate(&mut target.admin, database)?;
    (target.admin, _) = open_admin(&target.params, run_id)?;
    Ok(())
}
