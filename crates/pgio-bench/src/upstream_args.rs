//! The arguments of all benches against the original, and the error of a checkout that lacks something.
//!
//! They are apart from [`super::upstream`], which runs what the checkout holds.

use std::path::PathBuf;

use pgio::cli::exit::{Failure, USAGE};
use pgio::pg::private::VersionRequest;
use pgio_results::units::Scale;

#[derive(Debug, clap::Args)]
pub(super) struct UpstreamArgs {
    /// A checkout of the original pgio 1.0
    #[arg(long, value_name = "DIR")]
    pub(super) upstream: PathBuf,
    /// Pairs of runs
    #[arg(long, default_value_t = 5)]
    pub(super) rounds: usize,
    /// Length of each run, if it has one
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    pub(super) seconds: u64,
    /// Size of each table
    #[arg(long, value_name = "SIZE")]
    pub(super) scale: Option<Scale>,
    #[arg(long, value_name = "VERSION", default_value = "15")]
    pub(super) pg: VersionRequest,
}

/// Returns the error of a checkout that lacks something.
pub(super) fn missing(what: &str) -> Failure {
    Failure::message(USAGE, format!("--upstream: {what}"))
}
