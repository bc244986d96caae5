//! Restores the data before each trial: by nothing but the CHECKPOINT that begins every trial, by a VACUUM
//! of the data set's tables, by reloading the data set, or by creating the database again.
//!
//! Runs before the condition is applied, so that it is not part of it. What a reset needs to
//! know is read once and checked before the first trial. A workload that creates its own table for
//! each trial has no data set to load.

use super::admin::open_admin;
use super::live::LiveError;
use super::target::{ResetPlan, Target};
use crate::config::experiment::Reset;
use crate::dataset::{self, DatasetError, LoadEvent, database, verify};
use crate::host::stop::Stop;
use crate::pg::session;
use crate::treatment::journal::{Journal, JournalError};
use crate::treatment::other_steps;
use pgio_results::model::Warning;

/// Refuses a reset that cannot work or would lose data.
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
        Reset::Vacuum => {
            Ok(loaded
                .map_or(ResetPlan::Checkpoint, |spec| ResetPlan::Vacuum { spec, named: false }))
        }
        _ => Ok(loaded.map_or(ResetPlan::Checkpoint, ResetPlan::Reload)),
    }
}

/// What happens during a reset.
#[derive(Debug)]
pub enum ResetEvent {
    /// A load progresses.
    Loads,
    Warns(Warning),
}

/// Performs the reset. `journal` is for a database that is re-created.
pub fn perform(
    target: &mut Target,
    run_id: &str,
    journal: Journal,
    stop: &Stop,
    observe: &mut dyn FnMut(ResetEvent),
) -> Result<(), LiveError> {
    let way = target.reset.clone();
    let spec = match &way {
        ResetPlan::Checkpoint => None,
        ResetPlan::Vacuum { spec, named } => {
            let mut now_named = *named;
            dataset::vacuum(&mut target.admin, spec, stop, &mut |session| {
                if !std::mem::replace(&mut now_named, true) {
                    observe(ResetEvent::Warns(session.warning()));
                }
            })?;
            target.reset = ResetPlan::Vacuum { spec: spec.clone(), named: now_named };
            None
        }
        ResetPlan::Reload(spec) => Some(spec),
        ResetPlan::Recreate { load } => {
            // A signal must not cut it short.
            let _restoring = stop.restoring();
            make_again(target, run_id, journal)?;
            load.as_ref()
        }
    };
    let Some(spec) = spec else { return Ok(()) };
    let params = &target.params;
    let connect = || session::open(params);
    dataset::load(&mut target.admin, &connect, spec, stop, &mut |event| match event {
        LoadEvent::Progress { .. } => observe(ResetEvent::Loads),
        LoadEvent::Warning(warning) => observe(ResetEvent::Warns(warning)),
        LoadEvent::BaseLoaded { .. }
        | LoadEvent::ScanLoaded { .. }
        | LoadEvent::BatchWaiting { .. }
        | LoadEvent::TableLoaded { .. }
        | LoadEvent::GroupComplete { .. } => {}
    })?;
    Ok(())
}

fn make_again(target: &mut Target, run_id: &str, mut journal: Journal) -> Result<(), LiveError> {
    // The workload's own table is dropped with the database and does not block that.
    for workload in &target.workloads {
        workload.clean_up(&mut target.admin)?;
    }
    // Check again: someone may have created objects in it since the last trial.
    let database = &database::describe(&mut target.admin, target.cluster.is_some())?;
    let step = other_steps::recreation_step(&database.name, &database.leftovers());
    let number = journal.intent(&step).map_err(journaled)?;
    let beside = if database.name == "postgres" { "template1" } else { "postgres" };
    let params = target.params.clone().with_dbname(beside);
    // Replace the admin session, so that the session in the database ends.
    (target.admin, _) = open_admin(&params, run_id)?;
    let recreated = database::recreate(&mut target.admin, database);
    (target.admin, _) = open_admin(&target.params, run_id)?;
    recreated?;
    target.refuse_other_runs(run_id)?;
    journal.undone(number).and_then(|()| journal.finish()).map_err(journaled)
}

fn journaled(error: JournalError) -> LiveError {
    let condition = "the reset before it".to_owned();
    LiveError::Treatment { condition, source: Box::new(error.into()) }
}
