//! The admin session of a target: whether it still answers, opening a new one, and the context that
//! treatments get, in which stopping the server is noted.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use pgio_connect::{ConnectParams, interrupt};

use crate::experiment::admin::open_admin;
use crate::experiment::live::LiveError;
use crate::experiment::target::Target;
use crate::host::Hosts;
use crate::host::stop::Stop;
use crate::pg::control::Line;
use crate::pg::server::{RECOVERY_TIMEOUT, Server, is_lost, open_after_recovery};
use crate::treatment::journal::{Journal, UndoTarget};
use crate::treatment::{AdminSession, Context, Control, Layout, Pair, Resource, other_steps};
use crate::workload::CreatedTable;

pub(super) fn context<'a>(
    target: &'a mut Target,
    control: &'a mut Option<Controlled>,
    hosts: &'a Hosts,
    stop: &Stop,
) -> Context<'a> {
    Context {
        params: &target.params,
        changed: target.changed(),
        session: AdminSession::Open(&mut target.admin),
        hosts,
        server_host: target.host.as_deref(),
        private: target.cluster.is_some(),
        control: control.as_mut().map(|c| c as &mut dyn Control),
        layout: Layout::default(),
        streaming: None,
        is_renewed: false,
        stop: stop.clone(),
    }
}

/// Returns whether the server answers, through a new session if the old one ended.
pub(super) fn ensure_session(target: &mut Target, run_id: &str, limit: Duration) -> bool {
    if !target.admin.is_closed() && target.admin.is_valid(limit) {
        return true;
    }
    // Otherwise dropping the session would wait for the missing answer.
    interrupt::cut_all();
    open_session(target, run_id, limit).is_ok()
}

/// Opens a new admin session, which announces again that the run lives. Refuses another version of the server: an
/// upgrade of its package may have become effective by the restart.
pub(super) fn renew_session(target: &mut Target, run_id: &str) -> Result<(), LiveError> {
    let found = open_session(target, run_id, RECOVERY_TIMEOUT)?.info.version;
    check_version(&target.server.info.version, found)
}

fn check_version(before: &str, found: String) -> Result<(), LiveError> {
    if before == found {
        return Ok(());
    }
    Err(LiveError::OtherVersion { before: before.to_owned(), found })
}

/// `limit` is for a server that recovers.
fn open_session(target: &mut Target, run_id: &str, limit: Duration) -> Result<Server, LiveError> {
    let is_recovery = |error: &LiveError| match error {
        LiveError::Connect(source) => source.is_recovery(),
        LiveError::Postgres(source) => is_lost(source),
        _ => false,
    };
    let open = || open_admin(&target.params, run_id);
    let opened = open_after_recovery(|| limit, is_recovery, open);
    let (mut admin, server) = opened.map_err(|error| match error {
        LiveError::Connect(source) => LiveError::ConnectionLost(source),
        other => other,
    })?;
    let checked = target.changed().check(&mut admin, &target.params);
    checked.map_err(|source| LiveError::OtherServer(Box::new(source)))?;
    target.admin = admin;
    target.refuse_other_runs(run_id)?;
    refresh_storage(target);
    Ok(server)
}

/// Finds the storage of the server again, for telemetry.
pub(super) fn refresh_storage(target: &mut Target) {
    if let Some(sources) = &mut target.sources {
        sources.refresh_storage(&mut target.admin);
    }
}

/// Stops and starts a target's server, private or not, and notes that it did: this ends all sessions of
/// the server, including the admin session.
pub(super) struct Controlled {
    control: Box<dyn Control>,
    restarted: bool,
}

impl Controlled {
    /// Returns none if the server is never stopped.
    pub(super) fn new(target: &Target) -> Option<Controlled> {
        let control: Box<dyn Control> = match (&target.cluster, &target.control) {
            (Some(cluster), _) => Box::new(cluster.clone()),
            (None, Some(controller)) => Box::new(controller.clone()),
            (None, None) => return None,
        };
        Some(Controlled { control, restarted: false })
    }

    pub(super) fn was_restarted(this: Option<&Controlled>) -> bool {
        this.is_some_and(|controlled| controlled.restarted)
    }
}

impl Control for Controlled {
    fn stop(&mut self) -> Result<(), String> {
        self.control.stop()
    }

    fn start(&mut self) -> Result<(), String> {
        self.restarted = true;
        self.control.start()
    }

    fn line_while_down(&mut self, name: &str) -> Result<Line, String> {
        self.control.line_while_down(name)
    }

    fn set_line_while_down(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        self.control.set_line_while_down(name, value)
    }

    fn pair(&self) -> Option<Pair> {
        self.control.pair()
    }
}

// Tables that workloads create in a database of the user's: journaled before they are created, dropped at the end of
// the run. The same directory has the journal of a database that a reset re-creates. A table on a server that does
// not answer keeps its mark and its journal, so that `pgio undo` removes it later.

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

/// Has on disk, before the table is created, what `undo` needs to drop it.
pub(crate) fn table_journal(
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
        if let Some(journal) = journals.remove(name).filter(|_| dropped) {
            end_table_journal(journal);
        }
    }
}

/// Removes the journal of a table that was dropped. Failure is harmless: `undo` will find nothing to remove.
pub(crate) fn end_table_journal(mut journal: Journal) {
    let steps = journal.open_steps().into_iter();
    steps.for_each(|(number, _)| drop(journal.undone(number)));
    let _ = journal.finish();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_after_a_restart_is_refused() {
        assert!(check_version("16.3", "16.3".to_owned()).is_ok());
        assert_eq!(
            check_version("16.3", "16.4".to_owned()).unwrap_err().to_string(),
            "the server came back as PostgreSQL 16.4 in place of 16.3: its program was replaced during the run, so start a new experiment"
        );
    }
}
