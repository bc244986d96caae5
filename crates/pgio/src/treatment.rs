//! What is applied to the world, and how it is put back.
//!
//! Write-ahead undo: probe, append the intent with the prior value and fsync, apply, read back,
//! append done ([`journal`]). Whatever stops the tool, `undo` finds each step that was begun and
//! puts the prior value back, never a default; where the value found is neither ours nor the prior
//! one it stops and asks.
//!
//! A new treatment is one file here, one line in [`KINDS`], one example, one section of the docs.

mod body;
pub mod journal;
pub mod postgres;
mod values;

use std::fmt;

use ::postgres::Client;
use serde::{Deserialize, Serialize};

use crate::config::experiment::TreatmentSpec;
use crate::pg::connect::{self, ConnectError, ConnectParams};
use crate::results::model::{Evidence, When};
use journal::{Journal, JournalError};

#[derive(Debug, thiserror::Error)]
pub enum TreatmentError {
    #[error("{0}")]
    Config(String),
    #[error("{0}")]
    Refused(String),
    #[error("cannot {doing}")]
    Postgres { doing: String, source: ::postgres::Error },
    #[error("cannot reach the server to change or restore a setting")]
    Connect(#[source] ConnectError),
    #[error("{what} did not take effect within {seconds} s: {why}")]
    NotInForce { what: String, seconds: u64, why: String },
    #[error("cannot restart the server: {0}")]
    Restart(String),
    #[error(
        "{what} is now {found}, neither ours ({ours}) nor what it was before ({prior}): someone changed it since; `pgio undo --keep` leaves it as it is, `pgio undo --restore` puts the prior value back"
    )]
    ChangedSince { what: String, found: String, ours: String, prior: String },
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// One reversible change as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The kind of treatment that made it and can undo it.
    pub kind: String,
    /// In words, such as `synchronous_standby_names in postgresql.auto.conf`.
    pub what: String,
    /// What was found, `null` for absence.
    pub prior: serde_json::Value,
    pub ours: serde_json::Value,
}

/// What a present value that is neither ours nor the prior one means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stranger {
    /// Stop with a question.
    Ask,
    /// Leave it as it is.
    Keep,
    /// Put the prior value back all the same.
    Restore,
}

/// What came of undoing a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    PutBack,
    /// Someone's later value was left.
    Kept,
}

/// A change that a treatment would make, found out without making it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    pub what: String,
    pub now: String,
    pub then: String,
    /// Such as `by ALTER SYSTEM and a reload`.
    pub how: &'static str,
}

/// Restarts a server that is ours, and returns when it answers again.
pub trait Restarter {
    fn restart(&mut self) -> Result<(), String>;
}

/// What treatments act on.
pub struct World<'a> {
    pub params: &'a ConnectParams,
    pub admin: &'a mut Client,
    /// Present only when the cluster is ours.
    pub restarter: Option<&'a mut dyn Restarter>,
}

impl fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World({})", self.params.describe())
    }
}

impl World<'_> {
    /// A connection in place of one that a restart ended.
    pub fn reconnect(&mut self) -> Result<(), TreatmentError> {
        *self.admin = connect::connect(self.params).map_err(TreatmentError::Connect)?;
        Ok(())
    }
}

/// One thing applied to the world.
pub trait Treatment: fmt::Debug {
    /// Each change in words, such as `synchronous_commit = local`.
    fn describe(&self) -> Vec<String>;
    /// What would change on this server, by reading alone.
    fn outlook(&self, admin: &mut Client) -> Result<Vec<Outlook>, TreatmentError>;
    /// Settings that hold by session and leave the server alone.
    fn session_settings(&self, admin: &mut Client)
    -> Result<Vec<(String, String)>, TreatmentError>;
    /// Refuses before anything is changed what could not work or could not be verified.
    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError>;
    /// What will have to be changed, with what is there now.
    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError>;
    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError>;
    /// After all steps are applied: make them take effect, and see that they did.
    fn settle(&self, world: &mut World<'_>) -> Result<(), TreatmentError>;
    /// What can be read back now to prove that it is in force.
    fn verify(&self, admin: &mut Client, when: When) -> Vec<Evidence>;
}

/// A row of the table of treatments.
#[derive(Debug)]
pub struct Kind {
    /// The key in a condition.
    pub name: &'static str,
    pub help: &'static str,
    pub parse: fn(&TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError>,
    pub undo: fn(&mut World<'_>, &Step, Stranger) -> Result<Undone, TreatmentError>,
}

pub const KINDS: &[Kind] = &[postgres::KIND];

pub fn names() -> Vec<&'static str> {
    KINDS.iter().map(|k| k.name).collect()
}

pub fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    let kind = KINDS
        .iter()
        .find(|k| k.name == spec.kind)
        .expect("the experiment file was parsed against the names of this table");
    (kind.parse)(spec)
}

/// All of a condition. That of `postgres` is always among them: what a server does by default needs
/// proof as well.
pub fn parse_all(specs: &[TreatmentSpec]) -> Result<Vec<Box<dyn Treatment>>, TreatmentError> {
    let mut all = specs.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    if specs.iter().all(|spec| spec.kind != postgres::KIND.name) {
        all.push(postgres::unchanged());
    }
    Ok(all)
}

/// Puts treatments in force, each step journaled before it is taken.
pub fn put_in_force(
    treatments: &[Box<dyn Treatment>],
    world: &mut World<'_>,
    journal: &mut Journal,
) -> Result<(), TreatmentError> {
    for treatment in treatments {
        let steps = treatment.probe(world)?;
        for step in &steps {
            let number = journal.intent(step)?;
            treatment.apply(world, step)?;
            journal.done(number)?;
        }
        if !steps.is_empty() {
            treatment.settle(world)?;
        }
    }
    Ok(())
}

/// Takes back every step that the journal still holds, the last one first.
pub fn take_back(
    world: &mut World<'_>,
    journal: &mut Journal,
    stranger: Stranger,
) -> Result<Vec<(Step, Undone)>, TreatmentError> {
    let mut all = Vec::new();
    for (number, step) in journal.open_steps() {
        let kind = KINDS.iter().find(|k| k.name == step.kind).ok_or_else(|| {
            TreatmentError::Config(format!(
                "the journal holds a step of kind `{}` that this pgio does not know; use the pgio that wrote it",
                step.kind
            ))
        })?;
        let undone = (kind.undo)(world, &step, stranger)?;
        journal.undone(number)?;
        all.push((step, undone));
    }
    Ok(all)
}
