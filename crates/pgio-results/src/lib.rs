//! The stored records: measuring code writes them, analysis and reports read them.
//!
//! [`model`] is a trial, [`change`] a setting that a condition changes, [`metrics`] the table of all metrics with unit
//! and direction, [`latency`] classes of operations and the statistics of their latencies, [`latency`] the metrics
//! derived from a histogram, [`checks`] the table of validity checks, [`thresholds`] their numbers, [`telemetry`]
//! observations beside the workload, [`wire`] the record of a trial as JSON, [`store`] the directory of an experiment,
//! [`joint`] the servers that share a window, [`points`] what is varied beside the conditions, [`factors`] the factors
//! that conditions are made of. Nothing here measures or judges. Next: `pgio_verdict` draws conclusions from these
//! records alone.

mod directory;
pub mod files;
pub mod histogram;
pub mod units;

pub mod change;
pub mod checks;
pub mod danger;
pub mod factors;
pub mod joint;
pub mod latency;
pub mod metrics;
pub mod model;
pub mod points;
pub mod store;
pub mod telemetry;
#[cfg(feature = "test-support")]
#[doc(hidden)]
pub mod test_support;
pub mod thresholds;
pub mod waits;
pub mod wire;

pub use model::{
    BURN_IN_BLOCK, Check, CheckVerdict, Evidence, Metric, Outcome, Trial, TrialPosition, Warning,
};
