//! Events of a run, for the caller to show.
//!
//! A run prints nothing; it sends each event to one observer.

use std::path::Path;
use std::time::Duration;

use super::admin::InterruptedRun;
use super::pace::Pace;
use super::plan::Planned;
use super::run::Decision;
use crate::config::experiment::WorkloadSpec;
use crate::dataset::LoadEvent;
use crate::pg::private;
use crate::workload::Progress;
use pgio_results::model::{Trial, Warning};
use pgio_results::store::{Calibration, StoredExperiment};
use pgio_verdict::resolution::Width;

#[derive(Debug)]
pub enum Event<'a> {
    OtherInterrupted(&'a InterruptedRun),
    /// A step in the start of a private server, until `ServerStarted`.
    ServerStarts(&'a private::Progress),
    ServerStarted,
    /// The data set is being loaded into a private server.
    Loads(&'a LoadEvent),
    /// The resumed experiment is already complete.
    NothingLeft {
        dir: &'a Path,
    },
    /// The trials of a workload begin.
    WorkloadBegins(WorkloadBegins<'a>),
    /// All allowed blocks are done, and intervals are wider than requested.
    BlockLimit {
        blocks: u32,
    },
    /// The workload ended, successfully or not; its results are in this directory.
    WorkloadEnds {
        dir: &'a Path,
    },
    /// A trial begins, or all trials of a woven window.
    Begins {
        planned: &'a [Planned],
        condition: &'a str,
    },
    /// The data set is being reset.
    Resets {
        planned: &'a Planned,
        condition: &'a str,
    },
    /// Slices of this mean length are tried.
    Calibrates {
        slice: Duration,
    },
    /// Whether conditions take turns, and how that was found.
    Calibrated(&'a Calibration),
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
    /// The primary intervals, computed between two blocks.
    WidthChecked {
        width: &'a Width,
        precision: f64,
    },
}

#[derive(Debug)]
pub struct WorkloadBegins<'a> {
    pub workload: &'a WorkloadSpec,
    /// The directory of its results, which is created only when nothing refuses the run.
    pub dir: &'a Path,
    /// What an interrupted run left, which this one continues; without trials if there is none.
    pub earlier: &'a StoredExperiment,
    pub pace: Pace,
    /// The primary metric.
    pub primary: &'a str,
    /// Whether more blocks than planned may follow.
    pub open_ended: bool,
}

/// Receives events.
pub type Observer<'a> = dyn FnMut(Event<'_>) + 'a;
