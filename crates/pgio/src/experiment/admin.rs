//! Opens the admin session of a run, and refuses other runs on its server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use pgio_connect::{Client, ConnectParams, SimpleQueryMessage};
use pgio_results::Warning;

use super::live::LiveError;
use super::state::{self, StateError};
use crate::dataset;
use crate::exit_code::HasExitCode;
use crate::pg::leftovers::{self, LiveRun};
use crate::pg::server::{self, Server, ServerError};
use crate::pg::session;
use crate::treatment::Resource;
use crate::treatment::journal::{self, Claims, Holder, JournalError, Subject, UndoTarget};
use crate::workload::EngineError;

/// Opens the admin session, announces that the run lives, and ends sessions
/// of killed runs, which would hold the tables.
pub fn open_admin(params: &ConnectParams, run_id: &str) -> Result<(Client, Server), LiveError> {
    open(params, run_id, Server::require_primary)
}

/// As [`open_admin`], also on a standby, where work that only reads can run.
pub fn open_admin_anywhere(
    params: &ConnectParams,
    run_id: &str,
) -> Result<(Client, Server), LiveError> {
    open(params, run_id, Ok)
}

fn open(
    params: &ConnectParams,
    run_id: &str,
    accept: fn(Server) -> Result<Server, ServerError>,
) -> Result<(Client, Server), LiveError> {
    let unannounced = params.clone().with_application_name(leftovers::UNANNOUNCED);
    let mut admin = session::open(&unannounced)?;
    check_unpooled(&mut admin, params)?;
    let server = accept(server::inspect(&mut admin, &params.describe())?)?;
    // Objects it creates and drops are not part of the work and must not wait for a lost standby.
    admin.batch_execute("SET synchronous_commit = local")?;
    leftovers::announce(&mut admin, run_id)?;
    leftovers::terminate(&mut admin)?;
    Ok((admin, server))
}

/// Refuses, on an announced session, while another run is at work in the database, whose tables must be neither
/// dropped nor replaced, or while one of the two changes the server. Announces the change before it looks: of two
/// runs that start at the same time, at least one sees the other. Returns those that may go on beside this one.
pub fn refuse_other_runs(
    admin: &mut Client,
    database: &str,
    run_id: &str,
    changes_server: bool,
) -> Result<Vec<LiveRun>, LiveError> {
    if changes_server {
        leftovers::announce_change(admin, run_id)?;
    }
    let is_in_the_way =
        |run: &LiveRun| changes_server || run.changes_server || run.database == database;
    let runs = leftovers::live_runs(admin, run_id, is_in_the_way)?;
    let (in_the_way, beside): (Vec<_>, Vec<_>) = runs.into_iter().partition(is_in_the_way);
    if in_the_way.is_empty() {
        return Ok(beside);
    }
    // It may be loading, which has an error of its own.
    dataset::refuse_while_loading(admin)?;
    Err(LiveError::OtherRuns(in_the_way))
}

/// Says that runs in other databases of the server go on.
pub fn beside_warning(beside: &[LiveRun], server: &str) -> Option<Warning> {
    let runs: Vec<String> = beside.iter().map(LiveRun::to_string).collect();
    (!runs.is_empty()).then(|| {
        Warning::new(
            format!("another run of pgio uses the server {server}"),
            runs.join("; "),
            "measure one after the other, or see the check foreign-sessions of each trial",
        )
    })
}

/// Opens a read-only session: announces no run, ends no session, and can change
/// nothing.
pub fn open_reader(params: &ConnectParams) -> Result<(Client, Server), LiveError> {
    let (reader, server) = open_reader_anywhere(params)?;
    Ok((reader, server.require_primary()?))
}

/// As [`open_reader`], also on a standby.
pub fn open_reader_anywhere(params: &ConnectParams) -> Result<(Client, Server), LiveError> {
    let unannounced = params.clone().with_application_name(leftovers::UNANNOUNCED);
    let mut reader = session::open(&unannounced)?;
    check_unpooled(&mut reader, params)?;
    let server = server::inspect(&mut reader, &params.describe())?;
    reader.batch_execute("SET default_transaction_read_only = on")?;
    Ok((reader, server))
}

/// Refuses a transaction pooler: one process serves two idle connections in turn, or several serve one. Queries by
/// the simple protocol, since prepared statements fail there with misleading errors.
pub fn check_unpooled(admin: &mut Client, params: &ConnectParams) -> Result<(), LiveError> {
    let pid = |client: &mut Client| -> Option<String> {
        let messages = client.simple_query("SELECT pg_backend_pid()").ok()?;
        messages.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.try_get(0).ok()?.map(str::to_owned),
            _ => None,
        })
    };
    // A refused second connection proves nothing; the connection limit is checked later.
    let Ok(mut second) = session::open(params) else { return Ok(()) };
    match (pid(admin), pid(&mut second), pid(&mut second)) {
        (Some(first), Some(second), Some(again)) if first == second || second != again => {
            Err(EngineError::Pooled.into())
        }
        _ => Ok(()),
    }
}

// Finds changes of other runs that affect this one, before it starts and before it changes anything. Only changes of
// the run's own servers and resources keep it from starting. The caller reports other changes of interrupted runs.

#[derive(Debug, thiserror::Error)]
pub enum ConflictError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl HasExitCode for ConflictError {
    fn code(&self) -> u8 {
        match self {
            ConflictError::State(source) => source.code(),
            ConflictError::Journal(source) => source.code(),
        }
    }
}

/// An interrupted run whose changes do not affect this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptedRun {
    /// Description of its changes.
    pub what: String,
    pub journal: PathBuf,
}

/// Before connecting to a server: refuses if an interrupted run changed one with the
/// same connection parameters, unless another server answers there. Returns interrupted runs that changed something
/// else.
pub fn refuse_unfinished<'a>(
    params: impl IntoIterator<Item = &'a ConnectParams>,
) -> Result<Vec<InterruptedRun>, ConflictError> {
    let servers: BTreeMap<String, &ConnectParams> =
        params.into_iter().map(|params| (params.without_secrets(), params)).collect();
    let connects = servers.keys().cloned().collect();
    let is_another_server = |target: &UndoTarget| {
        let found = servers.get(&target.connect).and_then(|params| identify(params));
        found.is_some_and(|found| target.touches.iter().any(|t| t.is_another_server(&found)))
    };
    let (connects, resources) = (&connects, &BTreeSet::new());
    let subject = Subject { connects, resources, is_another_server: &is_another_server };
    let others = journal::check(&state::journal_dir()?, &subject)?.into_iter();
    Ok(others
        .map(|found| InterruptedRun { what: found.describe_changes(), journal: found.path })
        .collect())
}

/// None if no server answers.
fn identify(params: &ConnectParams) -> Option<Resource> {
    let unannounced = params.clone().with_application_name(leftovers::UNANNOUNCED);
    let mut client = session::open(&unannounced).ok()?;
    Some(Resource::server(&server::identity(&mut client).ok()?))
}

/// Refuses servers and resources that an interrupted run changed, or that another run is changing.
pub fn refuse_changed(
    resources: &BTreeSet<Resource>,
    claims: &Claims,
) -> Result<(), ConflictError> {
    claims.check_free(&state::locks_dir()?, resources)?;
    let connects = &BTreeSet::new();
    let subject = Subject { connects, resources, is_another_server: &|_| false };
    journal::check(&state::journal_dir()?, &subject)?;
    Ok(())
}

/// Claims them, so that no other run changes them.
pub fn claim(
    resources: &BTreeSet<Resource>,
    claims: &mut Claims,
    run_id: &str,
    experiment: &str,
) -> Result<(), ConflictError> {
    let (run, experiment) = (run_id.to_owned(), experiment.to_owned());
    let holder = Holder { run, experiment, pid: std::process::id() };
    claims.take(&state::locks_dir()?, &holder, resources)?;
    // Another run may have started and been killed since the last check.
    refuse_changed(resources, claims)
}
