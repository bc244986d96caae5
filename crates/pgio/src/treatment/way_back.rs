//! The way back: every step that a journal still holds, the last one first, as far as it goes.
//!
//! A step that cannot be undone keeps those from being undone that were taken before it on the same
//! machine, and no others: a host that is away must not leave the rest of the world changed. What is
//! left stays in the journal. Next: [`super::journal`], and `cli::undo`, which tells it.

use std::collections::BTreeMap;
use std::fmt;

use super::journal::{Journal, JournalError};
use super::{Step, Stranger, TreatmentError, Undone, World, undo_of};
use crate::pg::{interrupt, words};

/// Hosts that cannot be reached, each with the reason.
pub type Away = BTreeMap<String, String>;

/// What was undone, and what is left.
#[derive(Debug, Default)]
pub struct TakenBack {
    pub undone: Vec<(Step, Undone)>,
    pub left: Vec<Left>,
    /// Why the journal still holds a step that is undone: the first time that it could not be written.
    pub unwritten: Option<JournalError>,
}

/// A step that is still in place.
#[derive(Debug)]
pub struct Left {
    pub step: Step,
    pub why: Why,
}

#[derive(Debug)]
pub enum Why {
    Failed(TreatmentError),
    /// Its host cannot be reached.
    Away(String),
    /// What has to be undone before it.
    After(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Failed(error) => f.write_str(&words::sentence(error)),
            Why::Away(reason) => f.write_str(reason),
            Why::After(what) => write!(f, "{what} has to be put back before it"),
        }
    }
}

impl TakenBack {
    /// For whoever can go on only if nothing is left.
    pub fn complete(self) -> Result<Vec<(Step, Undone)>, TreatmentError> {
        let failed = self.left.into_iter().filter_map(|left| match left.why {
            Why::Failed(error) => Some(error),
            Why::Away(reason) => Some(TreatmentError::Refused(reason)),
            // Its reason is among the others.
            Why::After(_) => None,
        });
        let unwritten = self.unwritten.map(TreatmentError::from);
        let mut errors: Vec<TreatmentError> = failed.chain(unwritten).collect();
        match errors.len() {
            0 => Ok(self.undone),
            1 => Err(errors.remove(0)),
            _ => {
                let mut all: Vec<String> = errors.iter().map(|e| words::sentence(e)).collect();
                // A host that is away is so for each of its steps.
                all.dedup();
                Err(TreatmentError::Several(all.join("; ")))
            }
        }
    }
}

/// Takes back every step that the journal still holds, as far as that is possible.
pub fn take_back(
    world: &mut World<'_>,
    journal: &mut Journal,
    stranger: Stranger,
    away: &Away,
) -> TakenBack {
    let mut taken = TakenBack::default();
    let _restoring = world.stop.restoring();
    interrupt::settle(|| world.stop.urgent());
    for (number, step) in journal.open_steps() {
        let absent = step.host.as_ref().and_then(|host| away.get(host));
        let first = taken.left.iter().find(|left| waits_for(world, &step, &left.step));
        let why = match (absent, first) {
            (Some(reason), _) => Why::Away(reason.clone()),
            (None, Some(first)) => Why::After(first.step.to_string()),
            (None, None) => {
                match undo_of(&step).and_then(|undo| undo(world, &step, stranger)) {
                    Ok(undone) => {
                        // It can be undone once more; those that it holds up might not be later.
                        if let Err(error) = journal.undone(number) {
                            taken.unwritten.get_or_insert(error);
                        }
                        taken.undone.push((step, undone));
                        continue;
                    }
                    Err(error) => Why::Failed(error),
                }
            }
        };
        taken.left.push(Left { step, why });
    }
    taken
}

/// Whether a step has to wait until `later`, which was taken after it, is undone.
fn waits_for(world: &World<'_>, step: &Step, later: &Step) -> bool {
    match (step.host.as_deref(), later.host.as_deref()) {
        (None, None) => true,
        // Whoever puts a setting back may start the server, on a file system that is not back yet.
        (None, Some(later)) => {
            world.server_host.is_some_and(|server| is_one_machine(world, server, later))
        }
        // No device or file system depends on what a server was told through a session.
        (Some(_), None) => false,
        (Some(step), Some(later)) => is_one_machine(world, step, later),
    }
}

/// One machine may have two names.
fn is_one_machine(world: &World<'_>, one: &str, other: &str) -> bool {
    let both = world.hosts.get(one).zip(world.hosts.get(other));
    one == other || both.is_some_and(|(one, other)| one.is_same_machine(other))
}

#[cfg(test)]
mod tests;
