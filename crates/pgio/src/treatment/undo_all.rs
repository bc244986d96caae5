//! Undoes every step that a journal still holds, the last one first, as far as possible.
//!
//! A step that cannot be undone blocks those that were made before it on the same machine, and no
//! others: an unreachable host must not leave everything else changed. The remaining steps
//! stay in the journal. Next: [`super::journal`]; `experiment::undo`, which calls it for the journals of dead runs.

use std::collections::BTreeMap;
use std::fmt;

use super::context::Context;
use super::error::TreatmentError;
use super::journal::{Journal, JournalError};
use super::kinds;
use super::postgres::{is_sync, waits_for_fsync};
use super::record::Record;
use super::step::{OnConflict, Undone};
use crate::pg::words;
use pgio_connect::interrupt;

/// Hosts that cannot be reached, each with the reason.
pub type Unreachable = BTreeMap<String, String>;

/// The steps that were undone, and those that remain.
#[derive(Debug, Default)]
pub struct UndoReport {
    pub undone: Vec<Restored>,
    pub remaining: Vec<Remaining>,
    /// The first failure to write the journal, which then still holds a step that is undone.
    pub journal_error: Option<JournalError>,
}

/// A step that was undone.
#[derive(Debug)]
pub struct Restored {
    pub step: Record,
    /// Description of the prior value.
    pub prior: String,
    pub undone: Undone,
}

/// A step that is still in place.
#[derive(Debug)]
pub struct Remaining {
    pub step: Record,
    pub why: Blocker,
}

/// Why a step is still in place.
#[derive(Debug)]
pub enum Blocker {
    Failed(TreatmentError),
    /// Its host cannot be reached, for this reason.
    Unreachable(String),
    /// A later step that must be undone before it.
    After(String),
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocker::Failed(error) => f.write_str(&words::sentence(error)),
            Blocker::Unreachable(reason) => f.write_str(reason),
            Blocker::After(what) => write!(f, "{what} must be undone first"),
        }
    }
}

impl UndoReport {
    /// Whether nothing remains but tables of a workload on a server that is gone, and with it the tables.
    pub fn lacks_tables_only(&self) -> bool {
        self.remaining.iter().all(|left| {
            let is_gone = match &left.why {
                Blocker::Failed(error) => error.is_gone_server(),
                Blocker::After(_) => true,
                Blocker::Unreachable(_) => false,
            };
            is_gone && kinds::is_workload_table(&left.step)
        })
    }

    /// The undone steps, or an error where any remains.
    pub fn into_result(self) -> Result<Vec<Restored>, TreatmentError> {
        let failed = self.remaining.into_iter().filter_map(|left| match left.why {
            Blocker::Failed(error) => Some(error),
            Blocker::Unreachable(reason) => Some(TreatmentError::Refused(reason)),
            // The blocking step is among the others.
            Blocker::After(_) => None,
        });
        let unwritten = self.journal_error.map(TreatmentError::from);
        let mut errors: Vec<TreatmentError> = failed.chain(unwritten).collect();
        match errors.len() {
            0 => Ok(self.undone),
            1 => Err(errors.remove(0)),
            _ => {
                let mut all: Vec<String> = errors.iter().map(|e| words::sentence(e)).collect();
                // One unreachable host is the reason of each of its steps.
                all.dedup();
                Err(TreatmentError::Several(all.join("; ")))
            }
        }
    }
}

/// Undoes every step that the journal still holds, as far as possible.
pub fn undo_all(
    context: &mut Context<'_>,
    journal: &mut Journal,
    on_conflict: OnConflict,
    unreachable: &Unreachable,
) -> UndoReport {
    let mut report = UndoReport::default();
    let _restoring = context.stop.restoring();
    interrupt::settle(|| context.stop.urgent());
    for (number, step) in journal.open_steps() {
        let reason = step.host.as_ref().and_then(|host| unreachable.get(host));
        let first = report.remaining.iter().find(|left| waits_for(context, &step, &left.step));
        let why = match (reason, first) {
            (Some(reason), _) => Blocker::Unreachable(reason.clone()),
            (None, Some(first)) => Blocker::After(first.step.to_string()),
            (None, None) => match undo(context, &step, on_conflict) {
                Ok((undone, prior)) => {
                    // A second undo does no harm; the steps that this one blocks may not wait.
                    if let Err(error) = journal.undone(number) {
                        report.journal_error.get_or_insert(error);
                    }
                    report.undone.push(Restored { step, prior, undone });
                    continue;
                }
                Err(error) => Blocker::Failed(error),
            },
        };
        report.remaining.push(Remaining { step, why });
    }
    report
}

fn undo(
    context: &mut Context<'_>,
    record: &Record,
    on_conflict: OnConflict,
) -> Result<(Undone, String), TreatmentError> {
    let step = kinds::read_step(record)?;
    let undone = match step.undo(context, on_conflict) {
        // One more try, by a session that waits for the server: each undo may be done twice.
        Err(error) if error.is_recovery() && !context.stop.urgent() => {
            step.undo(context, on_conflict)
        }
        undone => undone,
    };
    Ok((undone?, step.prior()))
}

/// Whether a step must wait until `later`, which was made after it, is undone.
fn waits_for(context: &Context<'_>, step: &Record, later: &Record) -> bool {
    // No change depends on what a sync wrote.
    if is_sync(later) {
        return false;
    }
    match (step.host.as_deref(), later.host.as_deref()) {
        (None, None) => true,
        // Restoring a setting may start the server, on a file system that is not restored yet.
        (None, Some(later)) => {
            context.server_host.is_some_and(|server| is_one_machine(context, server, later))
        }
        // No device or file system depends on a setting of the server.
        (Some(_), None) => waits_for_fsync(step, later),
        (Some(step), Some(later)) => is_one_machine(context, step, later),
    }
}

/// One machine may have two names.
fn is_one_machine(context: &Context<'_>, one: &str, other: &str) -> bool {
    let both = context.hosts.get(one).zip(context.hosts.get(other));
    one == other || both.is_some_and(|(one, other)| one.is_same_machine(other))
}

#[cfg(test)]
mod tests;
