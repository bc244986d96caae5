//! Changes of other runs that concern this one, before it starts and before it changes something itself.
//!
//! Only what concerns the run's own servers and the resources that it changes keeps it from starting. The caller
//! shows what interrupted runs left elsewhere. Next: `treatment::journal`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::state::{self, StateError};
use crate::pg::connect::ConnectParams;
use crate::treatment::Resource;
use crate::treatment::journal::{self, Claims, Holder, JournalError, Subject};

#[derive(Debug, thiserror::Error)]
pub enum ConflictError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// An interrupted run that changed something which does not concern this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// What it changed, for people.
    pub what: String,
    pub journal: PathBuf,
}

/// Before any server is asked: refuses where an interrupted run changed one that is reached in the
/// same way. Returns those that left something elsewhere.
pub fn refuse_unfinished<'a>(
    params: impl IntoIterator<Item = &'a ConnectParams>,
) -> Result<Vec<Elsewhere>, ConflictError> {
    let connects = params.into_iter().map(ConnectParams::without_secrets).collect();
    let subject = Subject { connects: &connects, resources: &BTreeSet::new() };
    let others = journal::check(&state::journal_dir()?, &subject)?.into_iter();
    Ok(others.map(|found| Elsewhere { what: found.what(), journal: found.path }).collect())
}

/// Refuses servers and resources that an interrupted run changed, or that somebody else is changing.
pub fn refuse_changed(
    resources: &BTreeSet<Resource>,
    claims: &Claims,
) -> Result<(), ConflictError> {
    claims.check_free(&state::locks_dir()?, resources)?;
    let subject = Subject { connects: &BTreeSet::new(), resources };
    journal::check(&state::journal_dir()?, &subject)?;
    Ok(())
}

/// From now on nobody else changes them.
pub fn claim(
    resources: &BTreeSet<Resource>,
    claims: &mut Claims,
    run_id: &str,
    experiment: &str,
) -> Result<(), ConflictError> {
    let (run, experiment) = (run_id.to_owned(), experiment.to_owned());
    let holder = Holder { run, experiment, pid: std::process::id() };
    claims.take(&state::locks_dir()?, &holder, resources)?;
    // Another run may have come and been killed since the last look.
    refuse_changed(resources, claims)
}
