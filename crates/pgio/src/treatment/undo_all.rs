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
use super::step::{OnConflict, Record, Undone};
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
mod tests {
    use std::fs;
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::host::LOCAL;
    use crate::treatment::journal::UndoTarget;
    use crate::treatment::test_support::{in_context_of, parsed};

    /// Another name of this machine.
    const ALIAS: &str = "db";
    /// The name of one that is not reached.
    const FAR: &str = "far";

    fn in_context<T>(server: Option<&str>, act: impl FnOnce(&mut Context<'_>) -> T) -> T {
        in_context_of(&[LOCAL, ALIAS], server, act)
    }

    /// A file that was made by it, and that its undo removes, unless a directory is in its place.
    fn made(context: &mut Context<'_>, dir: &Path, name: &str, host: &str) -> Record {
        let file = dir.join(name).display().to_string();
        let body = format!(
            "{{ name = {name:?}, apply = [\"touch\", {file:?}], verify = [\"test\", \"-e\", {file:?}], undo = [\"rm\", {file:?}], host = \"local\" }}"
        );
        let prepared = parsed("command", &body).unwrap().check(context).unwrap();
        let mut journal = Journal::in_memory("r0");
        prepared.put_in_force(context, &mut journal).unwrap();
        let (_, step) = journal.open_steps().remove(0);
        Record { host: Some(host.to_owned()), ..step }
    }

    fn server_step() -> Record {
        let (kind, what) = ("postgres".to_owned(), "work_mem".to_owned());
        Record { kind, what, host: None, prior: json!(null), ours: json!("7MB") }
    }

    fn journal(dir: &Path, steps: &[Record]) -> Journal {
        let mut journal = Journal::new(&dir.join("journal"), "r1");
        journal
            .set_target(UndoTarget {
                connect: "host=/nonexistent".to_owned(),
                ..UndoTarget::default()
            })
            .unwrap();
        for step in steps {
            let number = journal.intent(step).unwrap();
            journal.done(number).unwrap();
        }
        journal
    }

    /// Names of what is undone, in that order.
    fn undone(report: &UndoReport) -> Vec<String> {
        report.undone.iter().map(|restored| restored.step.what.clone()).collect()
    }

    fn left(report: &UndoReport) -> Vec<String> {
        report.remaining.iter().map(|left| format!("{}: {}", left.step, left.why)).collect()
    }

    #[test]
    #[cfg(feature = "shell")]
    fn an_unreachable_host_keeps_only_its_own_steps() {
        let dir = tempfile::tempdir().unwrap();
        in_context(Some(LOCAL), |context| {
            let steps = [("a", LOCAL), ("b", FAR), ("c", ALIAS), ("d", FAR)]
                .map(|(name, host)| made(context, dir.path(), name, host));
            let mut journal = journal(dir.path(), &steps);
            let unreachable =
                Unreachable::from([(FAR.to_owned(), "host far cannot be reached".to_owned())]);
            let report = undo_all(context, &mut journal, OnConflict::Ask, &unreachable);
            assert_eq!(undone(&report), ["command `c`", "command `a`"]);
            assert_eq!(
                left(&report),
                ["d", "b"]
                    .map(|n| format!("command `{n}` on host far: host far cannot be reached"))
            );
            let there = |name: &str| dir.path().join(name).exists();
            assert_eq!(["a", "b", "c", "d"].map(there), [false, true, false, true]);
            let open = journal.open_steps();
            assert_eq!(open.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [4, 2]);
            let message = report.into_result().map(drop).unwrap_err().to_string();
            assert_eq!(message, "host far cannot be reached");
        });
    }

    #[test]
    #[cfg(feature = "shell")]
    fn a_failed_step_blocks_earlier_steps_on_its_machine() {
        let dir = tempfile::tempdir().unwrap();
        in_context(Some(LOCAL), |context| {
            let steps = [("a", ALIAS), ("b", LOCAL), ("c", LOCAL)]
                .map(|(name, host)| made(context, dir.path(), name, host));
            // Which rm refuses to remove.
            fs::remove_file(dir.path().join("b")).unwrap();
            fs::create_dir(dir.path().join("b")).unwrap();
            let mut journal = journal(dir.path(), &steps);
            let report = undo_all(context, &mut journal, OnConflict::Ask, &Unreachable::new());
            assert_eq!(undone(&report), ["command `c`"]);
            let text = left(&report);
            assert!(
                text[0].starts_with("command `b` on host local: undo of command `b`"),
                "{text:?}"
            );
            assert_eq!(
                text[1..],
                ["command `a` on host db: command `b` on host local must be undone first"]
            );
            let message = report.into_result().map(drop).unwrap_err().to_string();
            assert!(
                message.starts_with("undo of command `b`"),
                "as it is where it is the only one: {message}"
            );
            fs::remove_dir(dir.path().join("b")).unwrap();
            fs::write(dir.path().join("b"), "").unwrap();
            let report = undo_all(context, &mut journal, OnConflict::Ask, &Unreachable::new());
            assert_eq!(undone(&report), ["command `b`", "command `a`"]);
            assert!(journal.open_steps().is_empty() && report.into_result().is_ok());
        });
    }

    #[test]
    #[cfg(feature = "shell")]
    fn a_server_waits_for_its_host_but_not_the_reverse() {
        let dir = tempfile::tempdir().unwrap();
        for (server, waits) in [(Some(ALIAS), true), (Some(FAR), false), (None, false)] {
            in_context(server, |context| {
                let first = made(context, dir.path(), "a", LOCAL);
                let second = made(context, dir.path(), "b", LOCAL);
                fs::remove_file(dir.path().join("b")).unwrap();
                fs::create_dir(dir.path().join("b")).unwrap();
                // The server's step lies between one that works and one that fails on its host.
                let steps = [first, server_step(), second];
                let mut one = journal(dir.path(), &steps);
                let text = left(&undo_all(context, &mut one, OnConflict::Ask, &Unreachable::new()));
                assert_eq!(text.len(), 3);
                assert_eq!(text[1].ends_with("must be undone first"), waits, "{text:?}");
                // It cannot be reached, and no file is there because of it.
                fs::remove_dir(dir.path().join("b")).unwrap();
                fs::write(dir.path().join("b"), "").unwrap();
                let report = undo_all(context, &mut one, OnConflict::Ask, &Unreachable::new());
                assert_eq!(undone(&report), ["command `b`", "command `a`"]);
                assert_eq!(report.remaining.len(), 1);
                drop(one);
                fs::remove_dir_all(dir.path().join("journal")).unwrap();
            });
        }
    }

    #[test]
    #[cfg(feature = "shell")]
    fn files_are_flushed_only_after_fsync_is_restored() {
        let dir = tempfile::tempdir().unwrap();
        in_context(None, |context| {
            let fsync = Record { what: "fsync".to_owned(), ours: json!("off"), ..server_step() };
            let sync = Record {
                what: "files written without fsync".to_owned(),
                host: Some(LOCAL.to_owned()),
                prior: json!("on disk"),
                ours: json!("sync"),
                ..server_step()
            };
            let device = made(context, dir.path(), "a", LOCAL);
            let mut journal = journal(dir.path(), &[device, sync, fsync]);
            let report = undo_all(context, &mut journal, OnConflict::Ask, &Unreachable::new());
            // The server does not exist, which keeps no device of the host as it is.
            assert_eq!(undone(&report), ["command `a`"]);
            let text = left(&report);
            assert_eq!(
                text[1..],
                ["files written without fsync on host local: fsync must be undone first"]
            );
        });
    }

    #[test]
    #[cfg(feature = "shell")]
    fn an_unwritable_journal_does_not_block_the_undo() {
        let dir = tempfile::tempdir().unwrap();
        in_context(None, |context| {
            let steps = ["a", "b"].map(|name| made(context, dir.path(), name, LOCAL));
            let mut journal = journal(dir.path(), &steps);
            journal.refuse_writes();
            let report = undo_all(context, &mut journal, OnConflict::Ask, &Unreachable::new());
            assert_eq!(undone(&report), ["command `b`", "command `a`"]);
            assert!(["a", "b"].iter().all(|name| !dir.path().join(name).exists()));
            assert_eq!(journal.open_steps().len(), 2, "to be undone once more, which does no harm");
            let error = report.into_result().map(drop).unwrap_err();
            assert!(matches!(error, TreatmentError::Journal(_)), "{error}");
        });
    }
}
