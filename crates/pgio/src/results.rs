//! What is stored: the records that measuring writes and that analysis and reports read.
//!
//! [`model`] is a trial in memory, [`metrics`] the table of every metric's unit and direction,
//! [`wire`] the versioned form on disk, [`store`] the directory of an experiment. Nothing here
//! measures or judges. Next: `analysis` draws conclusions from these records alone.

pub mod metrics;
pub mod model;
pub mod store;
#[cfg(test)]
pub(crate) mod test_support;
pub mod wire;

pub use model::{Check, CheckVerdict, Evidence, Metric, Outcome, Place, Trial, Warning};
