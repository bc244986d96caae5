//! Errors of opening, resuming and running an experiment, and of a single trial.
//!
//! One enum for each; `cli::exit` gives each variant its exit code.

use std::io;
use std::path::PathBuf;

use super::job::JobError;
use crate::exit_code::{FAILED, FILES, HasExitCode, REFUSED, USAGE};
use crate::feature;

use crate::config::ResolveError;
use crate::dataset::DatasetError;
use crate::experiment::admin::ConflictError;
use crate::experiment::live::LiveError;
use crate::experiment::run::NoneValid;
use crate::experiment::slob::SlobError;
use crate::experiment::state::StateError;
use crate::host::called;
use crate::host::exec::ExecError;
use crate::pg::control::ControlError;
use crate::pg::private;
use crate::treatment::TreatmentError;
use crate::treatment::journal::JournalError;
use crate::workload::EngineError;
use pgio_connect::ConnectError;
use pgio_results::checks::DATA_DRIFT;
use pgio_results::store::StoreError;

/// A server cannot be reached or started, or the work cannot be prepared there.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("unknown host `{name}`: write [hosts.{name}]{example}")]
    UnknownHost { name: String, example: &'static str },
    #[error("the server's host is unknown, so its device cannot be measured: set host in [target]")]
    UnknownDeviceHost,
    #[error("device `{device}` is not on {}: correct device in [target]", called(host))]
    NoDevice { device: String, host: String },
    #[error("control in [target] requires host: set host in [target]")]
    UnknownControlHost,
    #[error("cannot find the program file of pgio in /proc/self/exe: mount /proc")]
    Program(#[source] io::Error),
    #[error(transparent)]
    Treatment(#[from] TreatmentError),
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error(transparent)]
    Conflict(#[from] ConflictError),
    #[error(transparent)]
    Host(#[from] ExecError),
    #[error(transparent)]
    Private(#[from] private::Error),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    Slob(#[from] SlobError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// What runs beside the trials cannot be prepared.
    #[error("{what}")]
    Companion { what: String, source: Box<OpenError> },
    #[error("it would write to a standby: {why}")]
    Writes { why: &'static str },
    #[error("{key} names host `{name}`, which is not in [hosts]: add [hosts.{name}]")]
    NoSuchHost { key: &'static str, name: String },
}

impl HasExitCode for OpenError {
    fn code(&self) -> u8 {
        match self {
            OpenError::UnknownHost { .. } | OpenError::NoSuchHost { .. } => USAGE,
            OpenError::UnknownDeviceHost
            | OpenError::UnknownControlHost
            | OpenError::NoDevice { .. }
            | OpenError::Writes { .. } => REFUSED,
            OpenError::Companion { source, .. } => source.code(),
            OpenError::Program(_) => FAILED,
            OpenError::Treatment(source) => source.code(),
            OpenError::Live(source) => source.code(),
            OpenError::Conflict(source) => source.code(),
            OpenError::Host(source) => source.code(),
            OpenError::Private(source) => source.code(),
            OpenError::State(source) => source.code(),
            OpenError::Connect(source) => source.code(),
            OpenError::Control(source) => source.code(),
            OpenError::Resolve(source) => source.code(),
            OpenError::Dataset(source) => source.code(),
            OpenError::Slob(source) => source.code(),
            OpenError::Engine(source) => source.code(),
        }
    }
}

/// A single trial cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SingleError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Conflict(#[from] ConflictError),
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error(transparent)]
    Slob(#[from] SlobError),
}

impl HasExitCode for SingleError {
    fn code(&self) -> u8 {
        match self {
            SingleError::Connect(source) => source.code(),
            SingleError::Conflict(source) => source.code(),
            SingleError::Live(source) => source.code(),
            SingleError::Slob(source) => source.code(),
        }
    }
}

/// An interrupted experiment cannot continue here.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "{} has no experiment file, because the file contains a password: name the file before --resume",
        path.display()
    )]
    NotStored { path: PathBuf },
    #[error("{} holds the results of one workload: name the directory above it", dir.display())]
    OneOfSeveral { dir: PathBuf },
    #[error(
        "{} holds a workload that {} lacks: undo the change, or start a new run in another directory",
        dir.display(), file.display()
    )]
    NoSuchWorkload { dir: PathBuf, file: PathBuf },
    #[error(
        "{} was started by pgio {begun_by} but this is {this}: continue it with the version that started it",
        dir.display()
    )]
    OtherVersion { dir: PathBuf, begun_by: String, this: &'static str },
    #[error(
        "{} holds a different experiment: {differences}; undo the change, or start a new run in another directory",
        dir.display()
    )]
    OtherExperiment { dir: PathBuf, differences: String },
    #[error(
        "cannot change {key} in the stored experiment: change it in a copy of the file and name that before --resume"
    )]
    NotInsertable { key: String },
    #[error(
        "{key} was {was} and is {is}: a resumed experiment may only grow; name the former value or a larger one"
    )]
    Smaller { key: &'static str, was: u32, is: u32 },
    #[error("cannot continue: {0}")]
    Changed(String),
}

impl HasExitCode for ResumeError {
    fn code(&self) -> u8 {
        match self {
            ResumeError::Store(source) => source.code(),
            ResumeError::Job(source) => source.code(),
            ResumeError::Read { .. } | ResumeError::OtherVersion { .. } => FILES,
            ResumeError::NotStored { .. }
            | ResumeError::OneOfSeveral { .. }
            | ResumeError::NoSuchWorkload { .. }
            | ResumeError::OtherExperiment { .. }
            | ResumeError::NotInsertable { .. }
            | ResumeError::Smaller { .. } => USAGE,
            ResumeError::Changed(_) => REFUSED,
        }
    }
}

/// A run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Resume(#[from] ResumeError),
    #[error(transparent)]
    Conflict(#[from] ConflictError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The run failed and changes are still in place.
    #[error("{journal}")]
    ChangesRemain { journal: JournalError, source: Box<LiveError> },
    #[error("stopped")]
    Interrupted,
    #[error("three trials failed in a row: {0}; remove the cause and continue with --resume")]
    Failing(String),
    #[error(
        "{0}; start a new run with reset = \"vacuum\" (or \"reload\") in [experiment], or let such trials count with tolerate = [\"{DATA_DRIFT}\"]"
    )]
    Outgrown(String),
    #[error("{}", describe(.0))]
    NoneValid(NoneValid),
}

/// `no trial of 2 blocks is valid: 18 of 18 are invalid (foreign-load 18); stop …`
fn describe(found: &NoneValid) -> String {
    let NoneValid { blocks, trials, failed, checks } = found;
    let mut most: Vec<(&String, &usize)> = checks.iter().collect();
    most.sort_by_key(|(_, times)| std::cmp::Reverse(**times));
    let ids = |of: &dyn Fn(&(&String, &usize)) -> String| {
        most.iter().map(of).collect::<Vec<_>>().join(", ")
    };
    let counts = ids(&|(id, times)| format!("{id} {times}"));
    let also_failed = if *failed > 0 { format!(", {failed} failed") } else { String::new() };
    let remedy = most.first().and_then(|(id, _)| feature::definition(id)).map(|c| c.remedy);
    let remedy = remedy.map_or_else(String::new, |remedy| format!("{remedy}; "));
    let named = ids(&|(id, _)| format!("{id:?}"));
    let invalid = trials - failed;
    format!(
        "no trial of {blocks} blocks is valid: {invalid} of {trials} are invalid ({counts}){also_failed}, repeats included; \
         {remedy}to let such trials count, write tolerate = [{named}] in [experiment] and start a new run"
    )
}

impl From<TreatmentError> for RunError {
    fn from(error: TreatmentError) -> RunError {
        RunError::Open(error.into())
    }
}

impl From<ConnectError> for RunError {
    fn from(error: ConnectError) -> RunError {
        RunError::Open(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checks_that_left_no_valid_trial_are_named_the_most_frequent_first() {
        let checks = [("durability", 2), ("foreign-load", 12)];
        let checks = checks.map(|(id, times)| (id.to_owned(), times)).into();
        let found = NoneValid { blocks: 2, trials: 14, failed: 1, checks };
        assert_eq!(
            RunError::NoneValid(found).to_string(),
            "no trial of 2 blocks is valid: 13 of 14 are invalid (foreign-load 12, durability 2), 1 failed, \
             repeats included; stop other programs on the host, or measure when it is idle; to let such \
             trials count, write tolerate = [\"foreign-load\", \"durability\"] in [experiment] and start a new run"
        );
    }
}
