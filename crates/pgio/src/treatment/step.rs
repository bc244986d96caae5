//! A step: one reversible change, typed by the treatment that makes it.
//!
//! Each kind of treatment has a step type of its own, which holds all that applying and undoing it
//! requires. Only the journal holds it as JSON. [`carry_out`] keeps the order: the record is on disk
//! before the change is made. Next: [`super::undo_all`], which undoes what a journal holds.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::context::Context;
use super::error::TreatmentError;
use super::journal::Journal;

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

/// A step of which the journal keeps the prior value and what replaced it, each as it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StepOf<P, T> {
    pub(crate) label: Label,
    pub(crate) prior: P,
    pub(crate) ours: T,
}

/// Undoes a [`StepOf`].
pub(crate) trait Undo {
    /// The kind of treatment that made the change.
    const KIND: &'static str;
    /// See [`Step::undo`].
    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError>;
}

impl<P, T> Step for StepOf<P, T>
where
    P: fmt::Debug + Serialize,
    T: fmt::Debug + Serialize,
    StepOf<P, T>: Undo,
{
    fn record(&self) -> Record {
        Record::new(Self::KIND, &self.label, &self.prior, &self.ours)
    }

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        Undo::undo(self, context, on_conflict)
    }
}

impl<P: DeserializeOwned, T: DeserializeOwned> StepOf<P, T> {
    pub(crate) fn from_record(record: &Record) -> Result<StepOf<P, T>, RecordError> {
        let (prior, ours) = (record.prior_as()?, record.ours_as()?);
        Ok(StepOf { label: record.label(), prior, ours })
    }

    pub(crate) fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError>
    where
        StepOf<P, T>: Step + 'static,
    {
        Ok(Box::new(StepOf::<P, T>::from_record(record)?))
    }
}

/// Applies a step that is journaled first.
pub(crate) fn carry_out<T>(
    journal: &mut Journal,
    step: &dyn Step,
    apply: impl FnOnce() -> Result<T, TreatmentError>,
) -> Result<T, TreatmentError> {
    let number = journal.intent(&step.record())?;
    let applied = apply()?;
    journal.done(number)?;
    Ok(applied)
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
    pub(crate) fn overwrites(
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

/// One reversible change as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The kind of treatment that made the change and can undo it.
    pub kind: String,
    /// Description, such as `synchronous_standby_names`.
    pub what: String,
    /// The host's name; none if the change is made on the server, through its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The prior value, `null` for absence.
    pub(crate) prior: Value,
    pub(crate) ours: Value,
}

/// Description of what a step changes and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) what: String,
    /// Absent: on the server, through its session.
    pub(crate) host: Option<String>,
}

/// A record that this version does not understand.
#[derive(Debug, thiserror::Error)]
#[error(
    "the journal's step `{what}` cannot be parsed ({why}); use the version of pgio that wrote it"
)]
pub(crate) struct RecordError {
    pub(crate) what: String,
    pub(crate) why: String,
}

impl Label {
    pub(crate) fn on_server(what: impl Into<String>) -> Label {
        Label { what: what.into(), host: None }
    }

    pub(crate) fn on_host(what: impl Into<String>, host: &str) -> Label {
        Label { what: what.into(), host: Some(host.to_owned()) }
    }

    pub(crate) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }
}

impl Record {
    pub(crate) fn new(
        kind: &str,
        label: &Label,
        prior: impl Serialize,
        ours: impl Serialize,
    ) -> Record {
        let Label { what, host } = label.clone();
        let (prior, ours) = (json(prior), json(ours));
        Record { kind: kind.to_owned(), what, host, prior, ours }
    }

    pub(crate) fn label(&self) -> Label {
        Label { what: self.what.clone(), host: self.host.clone() }
    }

    pub(crate) fn prior_as<T: DeserializeOwned>(&self) -> Result<T, RecordError> {
        self.read(&self.prior)
    }

    pub(crate) fn ours_as<T: DeserializeOwned>(&self) -> Result<T, RecordError> {
        self.read(&self.ours)
    }

    pub(crate) fn misread(&self, why: impl Into<String>) -> RecordError {
        RecordError { what: self.what.clone(), why: why.into() }
    }

    /// Describes the prior value if a treatment has no better description.
    pub(crate) fn prior_in_words(&self) -> String {
        match &self.prior {
            Value::Null => "absent".to_owned(),
            Value::String(text) => format!("`{text}`"),
            other => other.to_string(),
        }
    }

    fn read<T: DeserializeOwned>(&self, value: &Value) -> Result<T, RecordError> {
        T::deserialize(value).map_err(|error| self.misread(error.to_string()))
    }
}

fn json(value: impl Serialize) -> Value {
    serde_json::to_value(value).expect("plain data always serializes")
}

fn in_words(f: &mut fmt::Formatter<'_>, what: &str, host: Option<&str>) -> fmt::Result {
    match host {
        None => f.write_str(what),
        Some(host) => write!(f, "{what} on host {host}"),
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        in_words(f, &self.what, self.host.as_deref())
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        in_words(f, &self.what, self.host.as_deref())
    }
}
