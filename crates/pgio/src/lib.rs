//! pgio: what a storage or replication choice costs a PostgreSQL database.
//!
//! The crate in levels; a module uses only lower ones (a test holds `use crate::`
//! lines against this table):
//!
//! | level | modules |
//! |---|---|
//! | 0 | [`units`], [`rng`], [`histogram`], [`warning`], [`printable`], and the crate `benchmath` |
//! | 1 | [`config`]: pgio.conf and experiment files, parsed; [`files`]: reading and writing where others may write |
//! | 2 | [`host`]: processes and /proc; [`results`]: what is stored |
//! | 3 | [`pg`]: PostgreSQL; [`analysis`]: verdicts, from stored results alone |
//! | 4 | [`dataset`]: plan, load, verify |
//! | 5 | [`workload`], [`treatment`], [`telemetry`]: one shape per family |
//! | 6 | [`experiment`] orchestrates; [`report`] tells; neither sees the other |
//! | 7 | [`cli`] talks to a person |
//!
//! Start reading at [`experiment`] for the main loop, or at [`cli`] for a command.

pub use pgio_report::{analysis, report};
pub use pgio_results as results;
pub use pgio_results::{files, histogram, units, warning};
pub use printable;

pub mod rng;

pub mod config;

pub mod host;

pub mod pg;

pub mod dataset;

pub mod telemetry;
pub mod treatment;
pub mod workload;

pub mod experiment;

pub mod cli;
