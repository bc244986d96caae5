//! The contract of a treatment: from the experiment file to a change that is in force.
//!
//! Each phase is a type of its own, so that all state passes from one to the next by value:
//! a [`Treatment`] is what the file asks for, [`Treatment::check`] makes it [`Prepared`] on its hosts and
//! its server, [`Prepared::put_in_force`] carries out the steps of one trial and returns what is
//! [`InForce`] until the trial is over. Dropping that releases what it holds beside the steps, such as a
//! shell; the steps themselves are undone from the journal ([`super::undo_all`]).

use std::fmt;
use std::time::Duration;

use super::context::{Context, Machines};
use super::error::TreatmentError;
use super::journal::Journal;
use super::resource::Touch;
use super::step::{Record, Step};
use crate::config::experiment::TreatmentSpec;
use pgio_results::change::Change;
use pgio_results::model::{Check, Evidence, Trial, When};

/// A request of a condition. Plain data from the file.
pub trait Treatment: fmt::Debug {
    /// Returns what the file alone determines.
    fn declared(&self) -> Declared;
    /// Reads current values and returns what would change.
    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError>;
    /// Returns changes that must be undone even if pgio is killed. Also called before `check`.
    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError>;
    /// Refuses a further server of a condition that shares only a part of what this changes with an earlier one,
    /// where this changes what they share only once.
    fn check_shared(&self, _context: &mut Context<'_>) -> Result<(), TreatmentError> {
        Ok(())
    }
    /// Refuses users who lack a privilege on a host. Does not need the server, which may not run yet.
    fn check_rights(&self, _machines: &Machines<'_>) -> Result<(), TreatmentError> {
        Ok(())
    }
    /// Refuses, before anything is changed, what cannot work or cannot be verified. Finds the
    /// layout that earlier treatments of the condition make in the context, and adds its own.
    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError>;
}

/// A treatment that was checked against its server and its hosts. Lives as long as the experiment.
pub trait Prepared: fmt::Debug {
    /// Settings for the workload's sessions, which do not change the server.
    fn session_settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// Whether it changes nothing but its session settings, so that sessions can switch it inside a window.
    fn changes_sessions_only(&self) -> bool {
        false
    }
    /// Carries out all steps, each journaled before it is made; returns when they took effect and
    /// nothing of an earlier condition, such as a resync, continues. Called for each trial, even if
    /// nothing has to be changed.
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError>;
}

/// A treatment in force. Lives as long as the trial, and knows the prior state.
pub trait InForce: fmt::Debug + Send {
    /// Reads evidence that it is in force. Also called inside the window, several times a
    /// second if that is cheap; `judge` covers what telemetry observes.
    fn verify(&mut self, context: &mut Context<'_>, when: When) -> Vec<Evidence>;
    /// Judges what the record of a complete trial proves or disproves.
    fn judge(&self, _trial: &Trial) -> Vec<Check> {
        Vec::new()
    }
}

/// Evidence of a reading that failed, such as by a timeout of ssh. Inside the window it proves nothing: the
/// readings before and after it decide.
pub(crate) fn failed_reading(when: When, what: &str) -> Evidence {
    let (what, expected) = match when {
        When::During => (format!("reading of {what}"), None),
        When::Before | When::After => (what.to_owned(), Some("readable".to_owned())),
    };
    Evidence { when, what, found: "unreadable".to_owned(), expected }
}

/// Facts about a treatment from the file alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Declared {
    pub changes: Vec<Change>,
    /// Each change and how it is made, for users, if no server answers.
    pub intents: Vec<String>,
    /// Time that it adds between two trials, for applying and undoing.
    pub costs: Vec<Cost>,
    /// Time that it adds to the round trip to a standby, for the expected cost of a commit.
    pub round_trip: Option<Duration>,
}

/// A change that a treatment would make, and the current value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    pub what: String,
    pub now: String,
    pub then: String,
    /// How the change is made, such as `by ALTER SYSTEM and a reload`.
    pub how: &'static str,
}

/// Work that a treatment adds between two trials, for estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// A stop and a start of the server.
    Restart,
    /// mkfs and mount.
    NewFileSystem,
    /// The data set, or the data directory, is written once more.
    CopyData,
    /// A wait for a resync.
    Resync,
}

/// A row of the table of treatments.
#[derive(Debug)]
pub struct Kind {
    /// The key in a condition, and the kind of its steps in the journal.
    pub name: &'static str,
    pub help: &'static str,
    pub parse: fn(&TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError>,
    /// Reads a step back from a journal.
    pub(crate) read: ReadStep,
}

pub(crate) type ReadStep = fn(&Record) -> Result<Box<dyn Step>, TreatmentError>;
