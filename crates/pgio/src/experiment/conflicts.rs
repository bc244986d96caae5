//! Finds changes of other runs that affect this one, before it starts and before it changes anything.
//!
//! Only changes of the run's own servers and resources keep it from starting. The caller
//! reports other changes of interrupted runs. Next: `treatment::journal`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::state::{self, StateError};
use crate::pg::{leftovers, server, session};
use crate::treatment::Resource;
use crate::treatment::journal::{self, Claims, Holder, JournalError, Subject, UndoTarget};
use pgio_connect::ConnectParams;

#[derive(Debug, thiserror::Error)]
pub enum ConflictError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Journal(#[from] JournalError),
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
