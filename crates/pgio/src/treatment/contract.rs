//! The contract of a treatment: from the experiment file to a change that is in force.
//!
//! Each phase is a type of its own, so that nothing is carried from one to the next but by value:
//! a [`Treatment`] is what the file asks for, [`Treatment::check`] makes it [`Prepared`] on its hosts and
//! its server, [`Prepared::put_in_force`] carries out the steps of one trial and returns what is
//! [`InForce`] until the trial is over. Dropping that releases what it holds beside the steps, such as a
//! shell; the steps themselves are undone from the journal ([`super::way_back`]).

use std::fmt;
use std::time::Duration;

use crate::config::experiment::TreatmentSpec;
use crate::results::change::Change;
use crate::results::model::{Check, Evidence, Trial, When};

use super::context::{Context, Machines};
use super::error::TreatmentError;
use super::journal::Journal;
use super::record::Record;
use super::resource::Touch;
use super::step::Step;

/// What a condition asks for. Plain data from the file.
pub trait Treatment: fmt::Debug {
    /// What is known from the file alone.
    fn declared(&self) -> Declared;
    /// Reads the present values and returns what would change.
    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError>;
    /// What it may change that must be put back even if pgio is killed. Asked before `check`, too.
    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError>;
    /// Refuses users who lack a privilege on a host. Does not need the server, which may not run yet.
    fn check_rights(&self, _machines: &Machines<'_>) -> Result<(), TreatmentError> {
        Ok(())
    }
    /// Refuses, before anything is changed, what could not work or could not be verified. Finds the
    /// layout that earlier treatments of the condition make in the context, and adds its own.
    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError>;
}

/// A treatment that was checked against its server and its hosts. Lives as long as the experiment.
pub trait Prepared: fmt::Debug {
    /// Settings for the workload's sessions, which leave the server alone.
    fn session_settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// Carries out all steps, each journaled before it is made; returns when they took effect and
    /// nothing of an earlier condition, such as a resync, goes on. Called for each trial, also where
    /// nothing has to be changed.
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError>;
}

/// A treatment that is in force. Lives as long as the trial, and knows what was found then.
pub trait InForce: fmt::Debug {
    /// Reads back what proves that it is in force. Called inside the window, too, several times a
    /// second where that is cheap; what the telemetry sees is left to `judge`.
    fn verify(&mut self, context: &mut Context<'_>, when: When) -> Vec<Evidence>;
    /// What the record of a complete trial proves or disproves.
    fn judge(&self, _trial: &Trial) -> Vec<Check> {
        Vec::new()
    }
}

/// What is known of a treatment from the file alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Declared {
    pub changes: Vec<Change>,
    /// Each change and how it is made, for people, where no server can be asked.
    pub intents: Vec<String>,
    /// What it adds to the time between two trials, there and back.
    pub costs: Vec<Cost>,
    /// What it adds to the round trip to a standby, for the expected cost of a commit.
    pub round_trip: Option<Duration>,
}

/// A change that a treatment would make, and the present value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    pub what: String,
    pub now: String,
    pub then: String,
    /// Such as `by ALTER SYSTEM and a reload`.
    pub how: &'static str,
}

/// What a treatment adds to the time between two trials, for estimates.
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
    /// Reads a step back from a journal of this or an earlier version.
    pub(super) read: ReadStep,
}

pub(super) type ReadStep = fn(&Record) -> Result<Box<dyn Step>, TreatmentError>;
