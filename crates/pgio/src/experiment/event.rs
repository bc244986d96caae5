//! What happens in a run, for whoever shows it.
//!
//! A run prints nothing; it hands events to one observer as they happen.

use std::path::Path;

use super::conflicts::Elsewhere;
use super::pace::Pace;
use super::plan::Planned;
use super::run::Decision;
use crate::analysis::width::Width;
use crate::config::experiment::WorkloadSpec;
use crate::dataset::LoadEvent;
use crate::pg::private;
use crate::results::model::{Trial, Warning};
use crate::workload::Progress;

#[derive(Debug)]
pub enum Event<'a> {
    LeftElsewhere(&'a Elsewhere),
    /// A step in the start of a private server, until `ServerStarted`.
    ServerStarts(&'a private::Progress),
    ServerStarted,
    /// The data set is being loaded into a private server.
    Loads(&'a LoadEvent),
    /// An experiment that was resumed is complete already.
    NothingLeft {
        dir: &'a Path,
    },
    /// The trials of a workload follow.
    WorkloadBegins(WorkloadBegins<'a>),
    /// Its blocks are used up, and its intervals are wider than asked for.
    BlockLimit {
        blocks: u32,
    },
    /// Its results are in this directory, however it ended.
    WorkloadEnds {
        dir: &'a Path,
    },
    Begins {
        planned: &'a Planned,
        condition: &'a str,
    },
    /// The data set is being made anew.
    Resets {
        planned: &'a Planned,
        condition: &'a str,
    },
    Warns(&'a Warning),
    Progress {
        condition: &'a str,
        progress: Progress,
    },
    Ended {
        planned: &'a Planned,
        trial: &'a Trial,
    },
    Decided {
        decision: Decision<'a>,
        condition: &'a str,
    },
    /// The primary intervals, looked at between two blocks.
    Looked {
        width: &'a Width,
        precision: f64,
    },
}

#[derive(Debug)]
pub struct WorkloadBegins<'a> {
    pub workload: &'a WorkloadSpec,
    pub pace: Pace,
    /// The metric that is judged.
    pub primary: &'a str,
    /// More blocks may come than are planned.
    pub open_ended: bool,
}

/// Receives events.
pub type Observer<'a> = dyn FnMut(Event<'_>) + 'a;
