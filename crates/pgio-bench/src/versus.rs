//! The arguments of all benches against the original, and the format of ratios of pairs.

use std::path::PathBuf;

use benchmath::summary;

use pgio::cli::exit::{Failure, USAGE};
use pgio::pg::private::VersionRequest;
use pgio_results::model::Trial;
use pgio_results::units::Scale;

#[derive(Debug, clap::Args)]
pub(super) struct Versus {
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

pub(super) fn metric(trial: &Trial, name: &str) -> f64 {
    trial.metrics.get(name).and_then(|m| m.value).unwrap_or(f64::NAN)
}

/// Formats ratios as `median 2.91 (2.80 to 3.05)`.
pub(super) fn spread(values: &[f64], decimals: usize) -> String {
    let of = |q| summary::quantile(values, q).unwrap_or(f64::NAN);
    format!("median {:.decimals$} ({:.decimals$} to {:.decimals$})", of(0.5), of(0.0), of(1.0))
}

pub(super) fn missing(what: &str) -> Failure {
    Failure::message(USAGE, format!("--upstream: {what}"))
}
