//! Finds changes of other runs that affect this one, before it starts and before it changes anything.
//!
//! Only changes of the run's own servers and resources keep it from starting. The caller
//! reports other changes of interrupted runs. Next: `treatment::journal`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::state::{self, StateError};
use crate::treatment::Resource;
use crate::treatment::journal::{self, Claims, Holder, JournalError, Subject};
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
/// same connection parameters. Returns interrupted runs that changed something else.
pub fn refuse_unfinished<'a>(
    params: impl IntoIterator<Item = &'a ConnectParams>,
) -> Result<Vec<InterruptedRun>, ConflictError> {
    let connects = params.into_iter().map(ConnectParams::without_secrets).collect();
    let subject = Subject { connects: &connects, resources: &BTreeSet::new() };
    let others = journal::check(&state::journal_dir()?, &subject)?.into_iter();
    Ok(others
        .map(|found| InterruptedRun { what: found.describe_changes(), journal: found.path })
        .collect())
}

/// Refuses servers and resources that an interrupted run changed, or that another run is changing.
pub fn refuse_changed(
    resources: &BTreeSet<Resource>,
    claims: &Claims,
) -> Result<(), ConflictError> {
    claims.check_free(&state::locks_dir()?, resources)?;
    let subject = Subject { connects: &BTreeSet::new(), resources };
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
