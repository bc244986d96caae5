//! Holds a ballast on this machine without an experiment: takes memory until only a given size is free.
//!
//! The ballast has a journal of its own, so that runs can start while it is held. [`release`] and an undo of all
//! journals free it. [`check`] comes before [`take`], so that the user can be asked in between.
//!
//! Prints nothing: events go to an observer. Next: [`super::huge_pages`], the same inside an experiment;
//! `experiment::undo`, which undoes the journal.

use super::amount::Memory;
use super::huge_pages;
use crate::exit_code::HasExitCode;
use crate::experiment::state::{self, StateError};
use crate::experiment::undo::{self, UndoError, UndoEvent};
use crate::feature::Held;
use crate::host::Host;
use crate::treatment::journal::{self, Journal, JournalError, UndoTarget};
use crate::treatment::{OnConflict, Step, TreatmentError};
use pgio_results::Warning;

#[derive(Debug, thiserror::Error)]
pub(super) enum BallastError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Treatment(#[from] TreatmentError),
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// No ballast is held now.
    #[error("the previous ballast was released")]
    AfterRelease(#[source] TreatmentError),
}

impl HasExitCode for BallastError {
    fn code(&self) -> u8 {
        match self {
            BallastError::State(source) => source.code(),
            BallastError::Journal(source) => source.code(),
            BallastError::Treatment(source) | BallastError::AfterRelease(source) => source.code(),
            BallastError::Undo(source) => source.code(),
        }
    }
}

/// An event of taking or releasing a ballast, for the caller to show.
#[derive(Debug)]
pub(super) enum BallastEvent<'a> {
    /// An event of the undo that releases a ballast.
    Undo(UndoEvent<'a>),
    /// A ballast was released; the memory of this machine now.
    Released(&'a Memory),
    /// A ballast is held that should leave `leave` bytes free; the memory of this machine now.
    Taken { memory: &'a Memory, leave: u64 },
}

/// Receives events.
pub(super) type Observer<'a> = dyn FnMut(BallastEvent<'_>) + 'a;

/// A size that this machine can leave free.
#[derive(Debug)]
pub(super) struct CheckedSize {
    host: Host,
    leave: u64,
    /// All memory of this machine, in bytes.
    pub total: u64,
}

/// Refuses a size in bytes that cannot work or would harm this machine. A ballast already held does not count:
/// [`take`] replaces it.
pub(super) fn check(leave: u64) -> Result<CheckedSize, BallastError> {
    let host = Host::local();
    let memory =
        huge_pages::check(&host, leave, &journal::all_open_steps(&state::held_journal_dir()?))?;
    Ok(CheckedSize { host, leave, total: memory.total })
}

/// Releases a ballast already held, then takes the memory.
pub(super) fn take(size: &CheckedSize, observe: &mut Observer<'_>) -> Result<(), BallastError> {
    let CheckedSize { host, leave, .. } = size;
    let released = release(observe)?;
    let step = huge_pages::plan(host, *leave)
        .map_err(|error| if released { BallastError::AfterRelease(error) } else { error.into() })?;
    let mut journal = Journal::new(&state::held_journal_dir()?, "ballast");
    let touches = vec![huge_pages::memory_resource(host)];
    journal.set_target(UndoTarget { private: true, touches, ..UndoTarget::default() })?;
    let number = journal.intent(&step.record())?;
    let given = match huge_pages::take(host, &step) {
        Ok(given) => given,
        Err(error) => {
            undo_journal(journal, observe)?;
            return Err(error.into());
        }
    };
    journal.done(number)?;
    // The journal is locked until the event is shown: an undo elsewhere skips the ballast until then.
    observe(BallastEvent::Taken { memory: &given, leave: *leave });
    Ok(())
}

/// Returns whether a ballast was held.
pub(super) fn release(observe: &mut Observer<'_>) -> Result<bool, BallastError> {
    let mut any = false;
    let found = journal::unfinished(&state::held_journal_dir()?)?;
    if let Some(error) = found.unreadable.into_iter().next() {
        return Err(error.into());
    }
    for journal in found.dead {
        any |= undo_journal(journal, observe)?;
    }
    if any {
        observe(BallastEvent::Released(&huge_pages::read_memory(&Host::local())?));
    }
    Ok(any)
}

fn undo_journal(journal: Journal, observe: &mut Observer<'_>) -> Result<bool, UndoError> {
    undo::undo_journal(journal, None, OnConflict::Ask, &mut |event| {
        observe(BallastEvent::Undo(event));
    })
}

/// Returns the ballast that is held on this machine.
pub(super) fn held() -> Option<Held> {
    let host = Host::local();
    let steps = journal::all_open_steps(&state::held_journal_dir().ok()?);
    let what = steps.iter().find_map(|step| huge_pages::held(&host, step))?;
    let warning = Warning::new(
        "a ballast is held on this machine",
        what.clone(),
        "release the memory with `pgio ballast --release`",
    );
    Some(Held { fact: "driver.ballast", what, warning })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::{Failure, REFUSED, UNFINISHED};

    #[test]
    fn a_ballast_that_cannot_replace_another_names_the_release() {
        let failure = |error: BallastError| {
            let failure = Failure::from(error);
            (failure.code(), failure.sentence())
        };
        let refused = || TreatmentError::Refused("too little is free".to_owned());
        assert_eq!(failure(BallastError::Treatment(refused())).0, REFUSED);
        let expected = "the previous ballast was released: too little is free";
        assert_eq!(failure(BallastError::AfterRelease(refused())), (REFUSED, expected.to_owned()));
        let left = BallastError::Undo(UndoError::ChangesRemain { others_undone: false });
        assert_eq!(failure(left).0, UNFINISHED);
    }
}
