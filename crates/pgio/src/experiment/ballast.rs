//! Holds a ballast on this machine without an experiment: takes memory until only a given size is free.
//!
//! The ballast has a journal of its own, so that runs can start while it is held. [`release`] and an undo of all
//! journals free it. [`check`] comes before [`take`], so that the user can be asked in between.
//!
//! Prints nothing and knows no exit code: events go to an observer. Next: `treatment::ballast`, the same inside an
//! experiment; [`super::undo`], which undoes the journal.

use super::state::{self, StateError};
use super::undo::{self, UndoError, UndoEvent};
use crate::exit_code::HasExitCode;
use crate::features::memory::huge_pages;
use crate::features::memory::memory::Memory;
use crate::host::Host;
use crate::treatment::journal::{self, Journal, JournalError, UndoTarget};
use crate::treatment::{OnConflict, Step, TreatmentError};

#[derive(Debug, thiserror::Error)]
pub enum BallastError {
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
pub enum BallastEvent<'a> {
    /// An event of the undo that releases a ballast.
    Undo(UndoEvent<'a>),
    /// A ballast was released; the memory of this machine now.
    Released(&'a Memory),
    /// A ballast is held that should leave `leave` bytes free; the memory of this machine now.
    Taken { memory: &'a Memory, leave: u64 },
}

/// Receives events.
pub type Observer<'a> = dyn FnMut(BallastEvent<'_>) + 'a;

/// A size that this machine can leave free.
#[derive(Debug)]
pub struct CheckedSize {
    host: Host,
    leave: u64,
    /// All memory of this machine, in bytes.
    pub total: u64,
}

/// Refuses a size in bytes that cannot work or would harm this machine. A ballast already held does not count:
/// [`take`] replaces it.
pub fn check(leave: u64) -> Result<CheckedSize, BallastError> {
    let host = Host::local();
    let memory =
        huge_pages::check(&host, leave, &journal::all_open_steps(&state::ballast_journal_dir()?))?;
    Ok(CheckedSize { host, leave, total: memory.total })
}

/// Releases a ballast already held, then takes the memory.
pub fn take(size: &CheckedSize, observe: &mut Observer<'_>) -> Result<(), BallastError> {
    let CheckedSize { host, leave, .. } = size;
    let released = release(observe)?;
    let step = huge_pages::plan(host, *leave)
        .map_err(|error| if released { BallastError::AfterRelease(error) } else { error.into() })?;
    let mut journal = Journal::new(&state::ballast_journal_dir()?, "ballast");
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
pub fn release(observe: &mut Observer<'_>) -> Result<bool, BallastError> {
    let mut any = false;
    let found = journal::unfinished(&state::ballast_journal_dir()?)?;
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
