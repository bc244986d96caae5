//! A step: one reversible change, typed by the treatment that makes it.
//!
//! Each kind of treatment has a step type of its own, which holds all that applying and undoing it
//! requires. Only the journal holds it as JSON. [`carry_out`] keeps the order: the record is on disk
//! before the change is made. Next: [`super::undo_all`], which undoes what a journal holds.

use std::fmt;

use super::context::Context;
use super::error::TreatmentError;
use super::journal::Journal;
use super::record::Record;

pub trait Step: fmt::Debug {
    fn record(&self) -> Record;
    /// Describes the prior value.
    fn prior(&self) -> String {
        self.record().prior_in_words()
    }
    /// Undoes the step; idempotent. The current value is ours, the prior one, something in between after a crash, or
    /// a later change of someone else.
    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError>;
}

/// Applies a step that is journaled first.
pub(super) fn carry_out<T>(
    journal: &mut Journal,
    step: &dyn Step,
    apply: impl FnOnce() -> Result<T, TreatmentError>,
) -> Result<T, TreatmentError> {
    let number = journal.intent(&step.record())?;
    let applied = apply()?;
    journal.done(number)?;
    Ok(applied)
}

/// Like [`carry_out`], for a step that learns from the change what its undo must compare with. A kill in
/// between leaves the first record.
pub(super) fn carry_out_then_amend<S: Step>(
    journal: &mut Journal,
    step: &mut S,
    apply: impl FnOnce(&mut S) -> Result<(), TreatmentError>,
) -> Result<(), TreatmentError> {
    let first = step.record();
    let number = journal.intent(&first)?;
    apply(step)?;
    let amended = step.record();
    if amended != first {
        journal.amend(number, &amended)?;
    }
    Ok(journal.done(number)?)
}

/// What undo does when the current value is neither ours nor the saved one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// Fail with an error that shows both values.
    Ask,
    /// Leave the current value.
    Keep,
    /// Restore the prior value nevertheless.
    Restore,
}

impl OnConflict {
    /// Whether the current value is to be overwritten; `Ask` fails with `conflict`.
    pub(super) fn overwrites(
        self,
        conflict: impl FnOnce() -> TreatmentError,
    ) -> Result<bool, TreatmentError> {
        match self {
            OnConflict::Ask => Err(conflict()),
            OnConflict::Keep => Ok(false),
            OnConflict::Restore => Ok(true),
        }
    }
}

/// Explains [`Undone::Rewritten`].
pub const REWRITTEN: &str = "postgresql.auto.conf has the same settings but is not byte for byte as it was: ALTER SYSTEM drops comments, and pgio does not move a line that this role cannot change, that might contain a password, or whose list ALTER SYSTEM would rewrite";

/// Explains [`Undone::RestartLeft`].
pub const RESTART_LEFT: &str =
    "the server runs with the condition's value until someone restarts it";

/// The result of undoing a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    Restored,
    /// Restored, without waiting for follow-up work such as the return of a peer.
    RestoredNotAwaited,
    /// Restored, and the rest of the file has the same content in another spelling.
    Rewritten,
    /// Restored, but the server runs with the changed value until someone restarts it.
    RestartLeft,
    /// The current value was kept, or there was nothing to undo.
    Kept,
}
