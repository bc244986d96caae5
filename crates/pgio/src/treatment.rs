//! What is applied to the world, and how it is put back.
//!
//! Write-ahead undo: probe, append the intent with the prior value and fsync, apply, read back,
//! append done ([`journal`]). Whatever stops the tool, `undo` finds each step that was begun and
//! puts the prior value back, never a default; where the value found is neither ours nor the prior
//! one it stops and asks.
//!
//! A new treatment is one file here, one line in [`KINDS`], one example, one section of the docs.

pub mod ballast;
mod body;
mod cache;
mod command;
mod drbd;
mod filesystem;
mod guard;
pub mod journal;
mod link;
pub mod made_table;
pub mod postgres;
mod resource;
mod stopped;
#[cfg(test)]
mod test_support;
mod throttle;
mod values;
mod way_back;
mod world;

use std::fmt;
use std::time::Duration;

use ::postgres::Client;
use serde::{Deserialize, Serialize};

use crate::config::experiment::TreatmentSpec;
use crate::dataset::DatasetError;
use crate::host::exec::ExecError;
use crate::host::rights::RightsError;
use crate::pg::connect::ConnectError;
use crate::results::change::Change;
use crate::results::model::{Check, Evidence, Trial, When};
use journal::{Journal, JournalError};

pub use resource::{Resource, Touch};
pub use way_back::{Away, Left, TakenBack, Why, take_back};
pub use world::{Control, Door, Machines, Pair, World};

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
    /// While it waited for something; what was begun is for its undo.
    #[error("stopped")]
    Stopped,
    #[error(
        "{what} is now {found}, neither ours ({ours}) nor what it was before ({prior}): someone changed it since; `pgio undo --keep` leaves it as it is, `pgio undo --restore` puts the prior value back"
    )]
    ChangedSince { what: String, found: String, ours: String, prior: String },
    /// Of steps that do not depend on each other.
    #[error("{0}")]
    Several(String),
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    Host(#[from] ExecError),
    #[error(transparent)]
    Rights(#[from] RightsError),
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
    /// Where; absent: on the server, through its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// What was found, `null` for absence.
    pub prior: serde_json::Value,
    pub ours: serde_json::Value,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            None => f.write_str(&self.what),
            Some(host) => write!(f, "{} on host {host}", self.what),
        }
    }
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

/// In words, of [`Undone::Rewritten`].
pub const REWRITTEN: &str = "postgresql.auto.conf holds the same settings and is not byte for byte as it was: ALTER SYSTEM keeps no comments, and lines of settings that this role may not change stay where they are";

/// What came of undoing a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    PutBack,
    /// Put back, and what comes of it by itself, such as a peer's return, was not waited for.
    NotAwaited,
    /// Put back, and what was beside it in the file is the same and not written the same.
    Rewritten,
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

/// Files of the server that lie on another device while a treatment is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// On the server's host, without symbolic links; all below it goes with it.
    pub directory: String,
    /// A path in /dev.
    pub device: String,
    /// A new tablespace, not what was there before.
    pub is_tablespace: bool,
}

/// The other half of the server's data, which another host keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    pub host: String,
    /// In words, such as `DRBD r0`.
    pub of: String,
    /// Paths in /dev.
    pub devices: Vec<String>,
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

/// One thing applied to the world.
pub trait Treatment: fmt::Debug {
    /// What it changes, from the file alone.
    fn changes(&self) -> Vec<Change>;
    /// Each change and how it is made, from the file alone: for where nobody can be asked.
    fn intents(&self) -> Vec<String>;
    /// What would change, by reading alone.
    fn outlook(&self, world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError>;
    /// Settings that hold by session and leave the server alone.
    fn session_settings(
        &self,
        _admin: &mut Client,
    ) -> Result<Vec<(String, String)>, TreatmentError> {
        Ok(Vec::new())
    }
    /// Refuses whoever may not do it, without asking the server: before one is started and loaded.
    fn check_rights(&self, _machines: &Machines<'_>) -> Result<(), TreatmentError> {
        Ok(())
    }
    /// Refuses before anything is changed what could not work or could not be verified. What
    /// treatments before it in the condition will have moved by then is in the world, and so are the
    /// replicas that they know.
    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError>;
    /// What it will move, known once it is checked.
    fn moves(&self) -> Vec<Moved> {
        Vec::new()
    }
    /// What it may change that has to be put back even if pgio is killed.
    fn touches(&self, world: &mut World<'_>) -> Result<Vec<Touch>, TreatmentError>;
    /// What will have to be changed, with what is there now, in the order in which it is applied.
    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError>;
    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError>;
    /// After all steps are applied: make them take effect, and see that they did.
    fn settle(&self, world: &mut World<'_>) -> Result<(), TreatmentError>;
    /// Waits until nothing that came before disturbs any more, such as a resync: under each condition,
    /// whether or not anything had to be changed for it.
    fn rest(&self, _world: &mut World<'_>) -> Result<(), TreatmentError> {
        Ok(())
    }
    /// What can be read back now to prove that it is in force. Also inside the window, several times a
    /// second where it is cheap; what the telemetry sees is for `judge`.
    fn verify(&self, world: &mut World<'_>, when: When) -> Vec<Evidence>;
    /// What it costs to put it in force and take it back, from the file alone.
    fn costs(&self) -> Vec<Cost> {
        Vec::new()
    }
    /// What it adds to the way to a standby and back, for what a commit should cost.
    fn round_trip(&self) -> Option<Duration> {
        None
    }
    /// All its steps are undone: lets go of what it held beside them.
    fn taken_back(&self) {}
    /// What the record of a complete trial proves or disproves.
    fn judge(&self, _trial: &Trial) -> Vec<Check> {
        Vec::new()
    }
}

/// A row of the table of treatments.
#[derive(Debug)]
pub struct Kind {
    /// The key in a condition.
    pub name: &'static str,
    pub help: &'static str,
    pub parse: fn(&TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError>,
    pub undo: Undo,
}

/// Idempotent; what it finds is ours, the prior value, something in between that a crash left, or
/// a stranger's.
pub type Undo = fn(&mut World<'_>, &Step, Stranger) -> Result<Undone, TreatmentError>;

/// In the order in which they are applied, whatever that of the file: one that restarts the server
/// comes before those that a restart would undo.
pub const KINDS: &[Kind] = &[
    drbd::KIND,
    postgres::KIND,
    filesystem::KIND,
    cache::KIND,
    ballast::KIND,
    link::KIND,
    throttle::KIND,
    command::KIND,
];

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

/// All of a condition, in the order in which they are applied. That of `postgres` is always among
/// them: what a server does by default needs proof as well.
pub fn parse_all(specs: &[TreatmentSpec]) -> Result<Vec<Box<dyn Treatment>>, TreatmentError> {
    let mut sorted = postgres::as_one(specs);
    sorted.sort_by_key(|spec| KINDS.iter().position(|kind| kind.name == spec.kind));
    let mut all = sorted.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    if specs.iter().all(|spec| spec.kind != postgres::KIND.name) {
        all.push(postgres::unchanged());
    }
    Ok(all)
}

/// Whether any of them says the value of this setting.
pub fn declare(treatments: &[Box<dyn Treatment>], setting: &str) -> bool {
    declared(treatments, setting).is_some()
}

/// The value that they say a setting of the server is to have; of several the last, which is applied
/// last.
pub fn declared(treatments: &[Box<dyn Treatment>], setting: &str) -> Option<String> {
    changes(treatments).into_iter().rfind(|c| c.sets(setting)).map(|c| c.value)
}

/// All that they change, in the order in which it is applied.
pub fn changes(treatments: &[Box<dyn Treatment>]) -> Vec<Change> {
    treatments.iter().flat_map(|t| t.changes()).collect()
}

/// Refuses what could not work, each treatment seen as it will be met: after those before it.
/// Returns what they may change that has to be put back even if pgio is killed.
pub fn check_all(
    treatments: &[Box<dyn Treatment>],
    world: &mut World<'_>,
) -> Result<Vec<Touch>, TreatmentError> {
    let mut touches = Vec::new();
    for treatment in treatments {
        treatment.check(world)?;
        world.moved.extend(treatment.moves());
        touches.extend(treatment.touches(world)?);
    }
    Ok(touches)
}

/// The same before anything is checked, as far as it is known then: a treatment that another experiment
/// has in force is refused by its check, for a reason that does not name the experiment.
pub fn touched_before_check(
    treatments: &[Box<dyn Treatment>],
    world: &mut World<'_>,
) -> Vec<Touch> {
    treatments.iter().filter_map(|t| t.touches(world).ok()).flatten().collect()
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
        treatment.rest(world)?;
        if world.stop.requested() {
            return Err(TreatmentError::Stopped);
        }
    }
    Ok(())
}

/// Whether it is something that a workload made, and no change of a condition's.
pub fn is_made(step: &Step) -> bool {
    step.kind == made_table::KIND
}

fn undo_of(step: &Step) -> Result<Undo, TreatmentError> {
    let kind = KINDS.iter().find(|k| k.name == step.kind).map(|k| k.undo);
    let of_none = match step.kind.as_str() {
        stopped::KIND => Some(stopped::undo as Undo),
        made_table::KIND => Some(made_table::undo as Undo),
        _ => None,
    };
    kind.or(of_none).ok_or_else(|| {
        TreatmentError::Config(format!(
            "the journal holds a step of kind `{}` that this pgio does not know; use the pgio that wrote it",
            step.kind
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::change::Subject;
    use crate::results::store::ConditionInfo;

    /// What each kind of treatment really says is what is read back from a manifest, from one of an
    /// earlier version as well, which has the words alone.
    #[test]
    fn what_a_treatment_changes_reaches_the_analysis() {
        let bodies = [
            ("drbd", "{ resource = 'r0', protocol = 'A', secondary = 'db2', al-extents = 67 }"),
            ("drbd", "{ resource = 'r0', connection = 'disconnected' }"),
            ("postgres", "{ synchronous_commit = 'local', max_wal_size = '4GB' }"),
            ("filesystem", "{ options = 'barrier=0' }"),
            ("filesystem", "{ device = '/dev/loop7', type = 'xfs', allow_format = true }"),
            (
                "filesystem",
                "{ device = '/dev/loop7', type = 'ext4', allow_format = true, tablespace = '/x' }",
            ),
            ("cache", "'cold'"),
            ("ballast", "{ leave = '1G' }"),
            ("link", "{ interface = 'eth0', delay = '5ms' }"),
            ("throttle", "{ device = '/dev/sdb', host = 'db2', write_iops = 500 }"),
            ("command", "{ name = 'a b', apply = 'true', verify = 'true', undo = 'true' }"),
        ];
        for kind in KINDS {
            assert!(bodies.iter().any(|(name, _)| *name == kind.name), "{}", kind.name);
        }
        for (kind, body) in bodies {
            let table: toml::Table = toml::from_str(&format!("body = {body}")).unwrap();
            let spec =
                TreatmentSpec { kind: kind.to_owned(), body: table["body"].clone(), line: 1 };
            let treatment = parse(&spec).unwrap_or_else(|e| panic!("{kind} {body}: {e}"));
            let changes = treatment.changes();
            assert!(!changes.is_empty() && changes.iter().all(|c| c.subject != Subject::Words));
            let info = ConditionInfo { name: "a".to_owned(), changes };
            let mut stored = serde_json::to_value(&info).unwrap();
            let read = |stored: &serde_json::Value| -> ConditionInfo {
                serde_json::from_value(stored.clone()).unwrap()
            };
            assert_eq!(read(&stored), info);
            stored.as_object_mut().unwrap().remove("changes");
            assert_eq!(read(&stored), info, "in words: {:?}", info.treatments());
        }
    }
}
