//! An experiment file from its text to its stored results.
//!
//! [`Job`] is the file, parsed. [`perform`] runs it: it finds or starts the servers (`servers`, `rights`), opens them
//! with the work ready to run (`opening`, `workloads`, `observing`), decides what is to be done (`cells`, `agenda`),
//! and has `live` and `run` do it. `manifest` is what is stored beside the trials. [`resume`] decides whether an
//! interrupted run may go on, `extend` lets it go on for more blocks. Without running anything: [`validate`] refuses
//! what a run would refuse, [`preview`] says what it would change, [`estimate`] how long it should take.
//!
//! Prints nothing and knows no exit code: events go to an observer, errors are enums (`error`). Next: `perform`.

mod agenda;
pub mod cells;
mod difference;
pub mod error;
pub mod estimate;
mod extend;
mod job;
mod manifest;
mod observing;
mod opening;
mod perform;
mod preview;
pub mod resume;
mod rights;
mod servers;
#[cfg(test)]
mod test_support;
mod validation;
mod workloads;

pub use self::extend::Larger;
pub use self::job::{Job, JobError};
pub use self::perform::{Run, Start, perform};
pub use self::preview::{ConditionChange, Doubt, PlannedChange, Preview, WorkloadPreview, preview};
pub use self::validation::{Unchecked, validate};
