//! Tables that workloads create in a database of the user's: journaled before they are created, dropped at the
//! end of the run.
//!
//! The same directory has the journal of a database that a reset re-creates. A table on a server that does not answer keeps its mark and its journal, so that `pgio undo` removes it later.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::session::ensure_session;
use crate::experiment::background::Background;
use crate::experiment::error::LiveError;
use crate::experiment::target::Target;
use crate::host::stop::Stop;
use crate::treatment::journal::{Journal, UndoTarget};
use crate::treatment::{Resource, other_steps};
use crate::workload::CreatedTable;
use pgio_connect::{ConnectParams, interrupt};

/// Timeout for a server to answer at the end of a run.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(10);
const STOPPED_CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(2);

/// Journals the tables and adds the journals to `journals`, by target.
pub(super) fn journal_tables(
    targets: &BTreeMap<String, Target>,
    dir: &Path,
    run_id: &str,
    experiment: &str,
    journals: &mut BTreeMap<String, Journal>,
) -> Result<(), LiveError> {
    for (at, (name, target)) in targets.iter().enumerate() {
        let makes = target.workloads.first().and_then(|workload| workload.created_table());
        let Some(table) = makes.filter(|_| target.cluster.is_none()) else { continue };
        let id = format!("{run_id}-{at}");
        let journal =
            table_journal(dir, &id, &target.params, &target.identity, experiment, &table)?;
        journals.insert(name.clone(), journal);
    }
    Ok(())
}

/// The same for the tables of background work.
pub(super) fn journal_background_tables(
    all: &mut [Background],
    dir: &Path,
    run_id: &str,
    experiment: &str,
) -> Result<(), LiveError> {
    for (at, background) in all.iter_mut().enumerate() {
        let makes = background.workload.created_table().filter(|_| !background.private);
        let Some(table) = makes else { continue };
        let id = format!("{run_id}-background-{at}");
        let journal =
            table_journal(dir, &id, &background.params, &background.identity, experiment, &table)?;
        background.table_journal = Some(journal);
    }
    Ok(())
}

/// Has on disk, before the table is created, what `undo` needs to drop it.
fn table_journal(
    dir: &Path,
    id: &str,
    params: &ConnectParams,
    identity: &Resource,
    experiment: &str,
    table: &CreatedTable,
) -> Result<Journal, LiveError> {
    let mut journal = Journal::new(dir, id);
    let undo_target = UndoTarget {
        connect: params.without_secrets(),
        experiment: experiment.to_owned(),
        touches: vec![identity.clone()],
        ..UndoTarget::default()
    };
    let step = other_steps::table_step(&table.schema, table.name, table.mark);
    let noted = journal.set_target(undo_target).and_then(|()| journal.intent(&step));
    noted.map_err(|source| LiveError::Treatment {
        condition: experiment.to_owned(),
        source: Box::new(source.into()),
    })?;
    Ok(journal)
}

/// The journal of a reset that re-creates the database; a private server's is not on disk.
pub(super) fn reset_journal(
    dir: &Path,
    run_id: &str,
    name: &str,
    target: &Target,
) -> Result<Journal, LiveError> {
    let mut journal = Journal::new(dir, &format!("{run_id}-reset-{name}"));
    let undo_target = UndoTarget {
        connect: target.params.without_secrets(),
        private: target.cluster.is_some(),
        touches: vec![target.identity.clone()],
        ..UndoTarget::default()
    };
    journal.set_target(undo_target).map_err(|source| LiveError::Treatment {
        condition: name.to_owned(),
        source: Box::new(source.into()),
    })?;
    Ok(journal)
}

/// Drops the tables of servers that answer, and removes their journals.
pub(super) fn drop_tables(
    targets: &mut BTreeMap<String, Target>,
    journals: &mut BTreeMap<String, Journal>,
    run_id: &str,
    stop: &Stop,
) {
    let _restoring = stop.restoring();
    interrupt::settle(|| stop.urgent());
    let limit = if stop.requested() { STOPPED_CLEAN_UP_TIMEOUT } else { CLEAN_UP_TIMEOUT };
    for (name, target) in targets {
        if !interrupt::within(limit, || ensure_session(target, run_id, limit)) {
            continue;
        }
        // On an unreachable server the table keeps our mark; `undo` and `destroy` find it.
        let mut dropped = true;
        for workload in &target.workloads {
            dropped &= workload.clean_up(&mut target.admin).is_ok();
        }
        if let Some(mut journal) = journals.remove(name).filter(|_| dropped) {
            // Failure is harmless: `undo` will find nothing to remove.
            let steps = journal.open_steps().into_iter();
            steps.for_each(|(number, _)| drop(journal.undone(number)));
            let _ = journal.finish();
        }
    }
}
