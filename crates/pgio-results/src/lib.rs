//! What is stored: the records that measuring writes and that analysis and reports read.
//!
//! [`model`] is a trial in memory, [`change`] what a condition changes, [`metrics`] the table of every metric's unit and direction,
//! [`latency`] which of them a histogram has, [`checks`] the table of validity checks, [`telemetry`] and [`series`] what was observed beside
//! the work, [`wire`] the versioned form on disk, [`store`] the directory of an experiment,
//! [`sweep`] what is varied beside the conditions. Nothing here measures or judges. Next: `analysis` draws conclusions from these records alone.

pub mod files;
pub mod histogram;
pub mod units;
pub mod warning;

pub mod change;
pub mod checks;
pub mod device;
pub mod latency;
pub mod metrics;
pub mod model;
pub mod series;
pub mod store;
pub mod sweep;
pub mod telemetry;
#[cfg(feature = "test-support")]
#[doc(hidden)]
pub mod test_support;
pub mod waits;
pub mod wire;

pub use model::{
    BURN_IN_BLOCK, Check, CheckVerdict, Evidence, Metric, Outcome, Place, Trial, Warning,
};
