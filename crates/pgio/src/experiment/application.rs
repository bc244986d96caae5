//! Runs an experiment file, from its text to the stored results.
//!
//! [`Job`] is the file, parsed. [`perform`] runs it: it finds or starts the servers (`servers`). For
//! each workload, `workload_run` opens them with the work ready to run (`servers`, `workloads`), decides which
//! trials to run (`cells`, `schedule`), and lets `live` and `run` run them. `manifest` is stored beside the
//! trials. [`resume`] decides whether an interrupted run may continue; `file_changes` adds blocks to it. Without
//! running anything, [`validate`] refuses what a run would refuse, [`preview`] lists what it would change,
//! [`estimate`] predicts its duration, and [`pilot`] compares stored results with the file.
//!
//! [`single`] runs one trial without a file.
//!
//! `job` also runs the commands that print the nodes of a fleet.
//!
//! Prints nothing: events go to an observer, errors are enums (`error`). Next: `perform`.

pub mod cells;
pub mod error;
pub mod estimate;
mod file_changes;
mod job;
#[cfg(test)]
mod loop_tests;
mod manifest;
mod perform;
pub mod pilot;
mod preview;
pub mod resume;
mod schedule;
#[cfg(test)]
pub(crate) mod scripted;
pub(crate) mod servers;
pub mod single;
mod validation;
mod workload_run;
pub(crate) mod workloads;

pub use self::error::OpenError;
pub use self::file_changes::BlockLimits;
pub use self::job::{Job, JobError, with_nodes, with_number, with_value};
pub use self::perform::{Run, Start, perform};
pub use self::preview::{
    ConditionChange, PlanNote, PlannedChange, Preview, WorkloadPreview, preview,
};
pub use self::servers::{TargetServer, controller};
pub use self::validation::{Unchecked, validate};
pub use self::workloads::{WorkPlace, WorkloadCode};
