//! The figures of all benches: what they read from a trial, and how they show the ratios of pairs.

use benchmath::summary;

use pgio_results::model::Trial;

/// Returns a metric of the trial; not a number if it has no value.
pub(super) fn metric(trial: &Trial, name: &str) -> f64 {
    trial.metrics.get(name).and_then(|m| m.value).unwrap_or(f64::NAN)
}

/// Formats ratios as `median 2.91 (2.80 to 3.05)`.
pub(super) fn spread(values: &[f64], decimals: usize) -> String {
    let of = |q| summary::quantile(values, q).unwrap_or(f64::NAN);
    format!("median {:.decimals$} ({:.decimals$} to {:.decimals$})", of(0.5), of(0.0), of(1.0))
}
