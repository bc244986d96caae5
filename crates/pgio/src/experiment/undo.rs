//! Undoes what interrupted runs left in place: changes with a journal, private clusters, sessions.
//!
//! [`undo_interrupted`] goes through all journals whose run is dead; [`undo_journal`] connects to the hosts and the
//! server of one, ends sessions of dead runs there, and undoes its steps. A journal stays locked meanwhile, and
//! stays on disk while one of its changes is in place.
//!
//! Prints nothing: events go to an observer, errors are [`UndoError`].
//! Next: `treatment::undo_all`, which undoes the steps of a journal; `cli::undo`, which shows the events.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pgio_connect::Client;

use super::clusters::{self, Abandoned};
use super::state::{self, StateError};
use super::target;
use crate::config::ConnectString;
use crate::exit_code::{HasExitCode, UNFINISHED, USAGE};
use crate::host::stop::Stop;
use crate::host::{Host, Hosts, Machine};
use crate::pg::control::Controller;
use crate::pg::server::{RECOVERY_TIMEOUT, open_after_recovery};
use crate::pg::{leftovers, private, session, words};
use crate::treatment::journal::{self, Journal, JournalError, JournalStatus, Unfinished};
use crate::treatment::{
    self, AdminSession, ChangedServer, Context, Control, Layout, OnConflict, Record,
    TreatmentError, UndoReport, Unreachable, UnreachableControl,
};
use pgio_connect::{self, ConnectError, ConnectParams, Env};
use pgio_results::Warning;

/// Why an undo is incomplete, or cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The journal's connection string cannot be resolved here, for this reason.
    #[error("{0}")]
    Unresolved(String),
    /// The report of the journal, which the observer received, names them.
    #[error(
        "{} changes could not be undone (see above) and stay in the journal; fix the cause and rerun `pgio undo`",
        if *others_undone { "some" } else { "the" }
    )]
    ChangesRemain { others_undone: bool },
    #[error(
        "everything was restored, but the journal could not be updated; make room on its file system and rerun `pgio undo`"
    )]
    Unwritten(#[source] TreatmentError),
    #[error("run {0} is still running: it undoes its changes itself when it ends")]
    StillRunning(String),
    #[error("{0} may be any of the runs {1}: name one")]
    Ambiguous(String, String),
    #[error("no interrupted run {run} has a journal in {}", directory.display())]
    NoSuchRun { run: String, directory: PathBuf },
    #[error(
        "the abandoned private PostgreSQL in {} cannot be removed now; rerun `pgio undo`",
        directory.display()
    )]
    Cluster { directory: PathBuf },
}

impl HasExitCode for UndoError {
    fn code(&self) -> u8 {
        match self {
            UndoError::State(source) => source.code(),
            UndoError::Journal(source) => source.code(),
            UndoError::Connect(source) => source.code(),
            UndoError::NoSuchRun { .. } | UndoError::Ambiguous(..) => USAGE,
            UndoError::StillRunning(_)
            | UndoError::Unwritten(_)
            | UndoError::Unresolved(_)
            | UndoError::ChangesRemain { .. }
            | UndoError::Cluster { .. } => UNFINISHED,
        }
    }
}

/// An event of an undo, for the caller to show.
#[derive(Debug)]
pub enum UndoEvent<'a> {
    /// The run of this journal lives, and undoes its changes itself.
    Skipped(&'a JournalStatus),
    Warns(&'a Warning),
    /// A session of an interrupted run was ended; its process id.
    SessionEnded(i32),
    /// The steps of one journal were undone, as far as possible. `server` describes its server.
    StepsUndone {
        report: &'a UndoReport,
        server: &'a str,
        /// The run and the file.
        journal: (&'a str, &'a Path),
    },
    /// A change stays in place whose journal is about to be removed; its server and its prior value.
    LeftInPlace {
        step: &'a Record,
        server: &'a str,
        prior: &'a str,
    },
    /// The journal of a run was removed.
    Forgotten(&'a Path),
    /// An abandoned private cluster was removed; its directory.
    ClusterRemoved(&'a Path),
}

/// Receives events.
pub type Observer<'a> = dyn FnMut(UndoEvent<'_>) + 'a;

/// The result for all journals.
#[derive(Debug)]
pub struct UndoSummary {
    /// Whether anything was undone.
    pub found: bool,
    /// One failure does not keep other journals from being undone.
    pub failures: Vec<UndoError>,
}

/// Undoes all that interrupted runs left in place. `connect` replaces the connection string of each journal;
/// sessions on that server are ended even without a journal.
///
/// An error is one that ended the undo early; failures of single journals are in the summary.
pub fn undo_interrupted(
    connect: Option<&str>,
    on_conflict: OnConflict,
    observe: &mut Observer<'_>,
) -> Result<UndoSummary, UndoError> {
    let (mut found, mut failures) = (false, Vec::new());
    for dir in [state::journal_dir()?, state::held_journal_dir()?, state::table_journal_dir()?] {
        let Unfinished { dead, living, unreadable } = journal::unfinished(&dir)?;
        for run in &living {
            observe(UndoEvent::Skipped(run));
        }
        failures.extend(unreadable.into_iter().map(UndoError::from));
        for journal in dead {
            match undo_journal(journal, connect, on_conflict, observe) {
                Ok(any) => found |= any,
                // Other journals can still be undone.
                Err(error) => failures.push(error),
            }
        }
    }
    let mut cluster_errors = Vec::new();
    let removed = clusters::remove_abandoned(&mut |Abandoned { directory, removed }| {
        found = true;
        if removed {
            observe(UndoEvent::ClusterRemoved(&directory));
        } else {
            cluster_errors.push(UndoError::Cluster { directory });
        }
    });
    failures.extend(cluster_errors);
    failures.extend(removed.err().map(UndoError::from));
    // A run that changed no setting has no journal, but may have left sessions.
    if failures.is_empty()
        && let Some(text) = connect
    {
        let params = params_of(text, observe)?;
        let open = || session::open(&params);
        let mut admin = open_after_recovery(|| RECOVERY_TIMEOUT, ConnectError::is_recovery, open)?;
        found |= end_sessions(&mut admin, observe);
    }
    Ok(UndoSummary { found, failures })
}

/// Removes the journals of a run whose server or host is gone; names what stays in place.
pub fn forget(run: &str, observe: &mut Observer<'_>) -> Result<(), UndoError> {
    let directories =
        [state::journal_dir()?, state::held_journal_dir()?, state::table_journal_dir()?];
    let mut journals = Vec::new();
    for dir in &directories {
        let Unfinished { dead, living, .. } = journal::unfinished(dir)?;
        if living.iter().any(|status| journal::is_of_run(&status.run, run)) {
            return Err(UndoError::StillRunning(run.to_owned()));
        }
        journals.extend(dead.into_iter().filter(|dead| journal::is_of_run(dead.run(), run)));
    }
    if journals.is_empty() {
        let (run, directory) = (run.to_owned(), state::base_dir()?);
        return Err(UndoError::NoSuchRun { run, directory });
    }
    let runs: BTreeSet<&str> =
        journals.iter().map(|journal| journal::run_id_of(journal.run())).collect();
    if runs.len() > 1 {
        let runs: Vec<&str> = runs.into_iter().collect();
        return Err(UndoError::Ambiguous(run.to_owned(), runs.join(", ")));
    }
    for journal in journals {
        let server = journal.target().connect.clone();
        for (_, step) in journal.open_steps() {
            let prior = treatment::prior_of(&step).unwrap_or_default();
            observe(UndoEvent::LeftInPlace { step: &step, server: &server, prior: &prior });
        }
        let path = journal.path().unwrap_or_default();
        journal.forget()?;
        observe(UndoEvent::Forgotten(&path));
    }
    Ok(())
}

/// Undoes one journal, and removes it if nothing is left. Returns whether there was anything to undo.
pub fn undo_journal(
    mut journal: Journal,
    connect: Option<&str>,
    on_conflict: OnConflict,
    observe: &mut Observer<'_>,
) -> Result<bool, UndoError> {
    if journal.open_steps().is_empty() {
        journal.finish()?;
        return Ok(false);
    }
    let target = journal.target().clone();
    let (hosts, unreachable) = connect_hosts(&journal);
    let resolved = params_of(connect.unwrap_or(&target.connect), observe);
    let (params, session) = match (connect, resolved) {
        (_, Ok(params)) => (params, AdminSession::OnDemand(Box::default())),
        (Some(_), Err(error)) => return Err(error.into()),
        // Steps on hosts need no server, such as a wrong PGPORT would make unreachable.
        (None, Err(error)) => {
            let why = words::sentence(&error);
            let nowhere =
                pgio_connect::resolve("host=/nonexistent dbname=none user=none", &Env::default());
            let params = nowhere.map_err(|_| UndoError::Unresolved(why.clone()))?;
            (params, AdminSession::Unresolved(why))
        }
    };
    let mut control = controller(&journal, &hosts, &unreachable);
    let mut context = Context {
        params: &params,
        session,
        changed: ChangedServer {
            touched: target.touches.clone(),
            node: target.node.clone(),
            standbys: target.standbys.clone(),
            accepts_any_timeline: on_conflict == OnConflict::Restore,
        },
        hosts: &hosts,
        // The journal names the server's host if pgio may stop and start the server.
        server_host: target.control.as_ref().map(|plan| plan.host.as_str()),
        control: control.as_deref_mut().map(|c| c as &mut dyn Control),
        private: target.private,
        layout: Layout::default(),
        streaming: None,
        is_renewed: false,
        // A signal may end the process here; remaining steps stay in the journal.
        stop: Stop::new(),
    };
    // A step below may start a server that is down; a server that no step needs may stay down.
    if !target.private
        && let Ok(admin) = context.admin()
    {
        end_sessions(admin, observe);
    }
    let report = treatment::undo_all(&mut context, &mut journal, on_conflict, &unreachable);
    let path = journal.path().unwrap_or_default();
    let names = (journal.run(), path.as_path());
    observe(UndoEvent::StepsUndone { report: &report, server: &params.describe(), journal: names });
    check_complete(report)?;
    journal.finish()?;
    if target.private {
        // The directory of a private server could not be removed while something was mounted in it.
        private::reap_default();
    }
    Ok(true)
}

/// Fails if any change is still in place, whatever the reason. The table of a server that is gone is not.
fn check_complete(report: UndoReport) -> Result<(), UndoError> {
    if !report.lacks_tables_only() {
        return Err(UndoError::ChangesRemain { others_undone: !report.undone.is_empty() });
    }
    let unwritten = report.journal_error.map(TreatmentError::from);
    unwritten.map_or(Ok(()), |error| Err(UndoError::Unwritten(error)))
}

/// Connects to the hosts of the journal; returns why others cannot be reached.
fn connect_hosts(journal: &Journal) -> (Hosts, Unreachable) {
    let (mut hosts, mut unreachable) = (Hosts::new(), Unreachable::new());
    for name in journal.open_steps().into_iter().filter_map(|(_, step)| step.host) {
        if hosts.contains_key(&name) || unreachable.contains_key(&name) {
            continue;
        }
        match connect_host(journal, &name) {
            Ok(host) => drop(hosts.insert(name, host)),
            Err(why) => drop(unreachable.insert(name, why)),
        }
    }
    (hosts, unreachable)
}

/// A host without ssh is the machine of the run, which is another one if they share a home directory.
fn connect_host(journal: &Journal, name: &str) -> Result<Arc<Host>, String> {
    let spec = journal.target().hosts.get(name).cloned().unwrap_or_default();
    let (run_machine, this_machine) = (journal.machine(), Machine::this());
    if spec.ssh.is_none() && run_machine.is_another(&this_machine) {
        return Err(format!(
            "the run was on machine {}, and this is {}: run `pgio undo` there",
            run_machine.name, this_machine.name
        ));
    }
    Host::connect(name, &spec).map(Arc::new).map_err(|error| words::sentence(&error))
}

/// Returns none if the target does not say how to stop and start its server.
fn controller(
    journal: &Journal,
    hosts: &Hosts,
    unreachable: &Unreachable,
) -> Option<Box<dyn Control>> {
    let plan = journal.target().control.clone()?;
    let host = match (hosts.get(&plan.host), unreachable.get(&plan.host)) {
        (Some(host), _) => Ok(host.clone()),
        (None, Some(why)) => Err(why.clone()),
        (None, None) => connect_host(journal, &plan.host),
    };
    Some(match host {
        Ok(host) => Box::new(Controller::new(plan, host)),
        Err(why) => Box::new(UnreachableControl(why)),
    })
}

fn params_of(text: &str, observe: &mut Observer<'_>) -> Result<ConnectParams, ConnectError> {
    let mut warn = |warning: &_| observe(UndoEvent::Warns(warning));
    let params = target::params_with_warnings(&ConnectString::new(text), "undo", &mut warn)?;
    // Without the advisory lock of a run, another pgio would end a session named `pgio:…` as a leftover.
    Ok(params.with_application_name("pgio undo"))
}

fn end_sessions(admin: &mut Client, observe: &mut Observer<'_>) -> bool {
    // A role that may not end them has left none of its own.
    let ended = leftovers::terminate(admin).unwrap_or_default();
    for pid in &ended {
        observe(UndoEvent::SessionEnded(*pid));
    }
    !ended.is_empty()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::host::LOCAL;
    use crate::treatment::journal::UndoTarget;

    /// A command on this machine that made the file, with the undo given.
    fn step(file: &Path, undo: &[&str]) -> Record {
        let verify = ["test".into(), "-e".into(), file.display().to_string()];
        let ours = json!({ "name": "a", "verify": verify, "undo": undo, "seconds": 60.0 });
        let (kind, what) = ("command", "command `a`");
        let record =
            json!({ "kind": kind, "what": what, "host": LOCAL, "prior": null, "ours": ours });
        serde_json::from_value(record).unwrap()
    }

    /// The journal of a run on a server that does not exist.
    fn journal(dir: &Path, steps: &[Record]) -> Journal {
        let mut journal = Journal::new(dir, "r1");
        let connect = "host=/nonexistent dbname=none user=none".to_owned();
        journal.set_target(UndoTarget { connect, ..UndoTarget::default() }).unwrap();
        for step in steps {
            let number = journal.intent(step).unwrap();
            journal.done(number).unwrap();
        }
        journal
    }

    /// The result, and what the observer received.
    fn undo(journal: Journal) -> (Result<bool, UndoError>, Vec<String>) {
        let mut events = Vec::new();
        let result = undo_journal(journal, None, OnConflict::Ask, &mut |event| {
            events.push(match event {
                UndoEvent::StepsUndone { report, .. } => {
                    format!("{} undone, {} left", report.undone.len(), report.remaining.len())
                }
                other => format!("{other:?}"),
            });
        });
        (result, events)
    }

    #[test]
    #[cfg(feature = "shell")]
    fn a_step_on_a_host_is_undone_without_a_server() {
        let dir = tempfile::tempdir().unwrap();
        let (journals, file) = (dir.path().join("journal"), dir.path().join("made"));
        fs::write(&file, "").unwrap();
        let steps = [step(&file, &["rm", &file.display().to_string()])];
        let (result, events) = undo(journal(&journals, &steps));
        assert!(result.unwrap());
        assert_eq!(events, ["1 undone, 0 left"]);
        assert!(!file.exists());
        assert_eq!(fs::read_dir(&journals).unwrap().count(), 0);
    }

    #[test]
    fn a_change_that_stays_is_reported_and_stays_in_the_journal() {
        let dir = tempfile::tempdir().unwrap();
        let (journals, file) = (dir.path().join("journal"), dir.path().join("made"));
        fs::write(&file, "").unwrap();
        let (result, events) = undo(journal(&journals, &[step(&file, &["false"])]));
        assert_eq!(
            result.unwrap_err().to_string(),
            "the changes could not be undone (see above) and stay in the journal; fix the cause and rerun `pgio undo`"
        );
        assert_eq!(events, ["0 undone, 1 left"]);
        assert!(file.exists());
        let left = journal::unfinished(&journals).unwrap();
        let open: Vec<usize> = left.dead.iter().map(|journal| journal.open_steps().len()).collect();
        assert_eq!(open, [1]);
    }

    #[test]
    fn a_journal_without_a_step_is_nothing_to_undo() {
        let dir = tempfile::tempdir().unwrap();
        let (result, events) = undo(journal(&dir.path().join("journal"), &[]));
        assert!(!result.unwrap());
        assert_eq!(events, [""; 0]);
    }
}
