//! What other runs changed or are changing, before a run starts.
//!
//! Only what concerns its own servers and the resources that it changes keeps a run from starting; an
//! interrupted run elsewhere is worth a line. Next: `treatment::journal`.

use std::collections::BTreeSet;

use super::exit::Failure;
use super::state;
use crate::pg::connect::ConnectParams;
use crate::treatment::Resource;
use crate::treatment::journal::{self, Claims, Holder, Subject};

/// Before any server is asked: refuses where an interrupted run changed one that is reached in the
/// same way, and names the runs that left something elsewhere.
pub(super) fn refuse_unfinished<'a>(
    params: impl IntoIterator<Item = &'a ConnectParams>,
) -> Result<(), Failure> {
    let connects = params.into_iter().map(ConnectParams::without_secrets).collect();
    let subject = Subject { connects: &connects, resources: &BTreeSet::new() };
    for other in journal::check(&state::journal_dir()?, &subject)? {
        eprintln!(
            "pgio: an interrupted run left changes elsewhere ({}; {}): `pgio undo` puts them back",
            other.what(),
            other.path.display()
        );
    }
    Ok(())
}

/// The same for servers and resources that are known now, and where somebody else is changing them.
pub(super) fn refuse_changed(
    resources: &BTreeSet<Resource>,
    claims: &Claims,
) -> Result<(), Failure> {
    claims.check_free(&state::locks_dir()?, resources)?;
    let subject = Subject { connects: &BTreeSet::new(), resources };
    journal::check(&state::journal_dir()?, &subject)?;
    Ok(())
}

/// From now on nobody else changes them.
pub(super) fn claim(
    resources: &BTreeSet<Resource>,
    claims: &mut Claims,
    run_id: &str,
    experiment: &str,
) -> Result<(), Failure> {
    let (run, experiment) = (run_id.to_owned(), experiment.to_owned());
    let holder = Holder { run, experiment, pid: std::process::id() };
    claims.take(&state::locks_dir()?, &holder, resources)?;
    // Someone may have come and been killed since it was looked for.
    refuse_changed(resources, claims)
}
