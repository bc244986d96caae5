//! Student's t for levels of a series, on logarithms without outliers.
//!
//! Outliers are cut off at [`OUTLIER`] robust standard deviations, so that three of them in a row do not make a
//! level. As in the other tests of `steady`, points depend on their neighbors: degrees of freedom and errors are
//! those of the effective number of points. Shared by [`super::step`] and [`super::episode`].

use super::dependence::{MAX_AUTOCORRELATION, autocorrelation, effective_under};
use crate::student::upper_tail;
use crate::summary;

/// Shorter stretches are outliers.
pub(super) const MIN_LEVEL_POINTS: usize = 3;

/// Values below this share of the median count as this share: a logarithm needs a value above 0.
const FLOOR: f64 = 0.01;

/// Distance from the median, in standard deviations estimated from the median deviation.
const OUTLIER: f64 = 3.0;
const NORMAL_SCALE: f64 = 1.4826;

/// The autocorrelation of residuals is biased downward, as in [`super::dependence::effective_size`]; more here, because
/// the ends of a level were chosen where the series changes most. Found by simulation.
const CHOSEN: f64 = 3.0;

/// Fewest effective points beyond the levels; with fewer, no variance could be estimated.
const MIN_FREEDOM: f64 = 0.5;

/// `None` if the median is not positive.
pub(super) fn logs(values: &[f64]) -> Option<Vec<f64>> {
    let median = summary::median(values).filter(|m| *m > 0.0)?;
    Some(values.iter().map(|v| (v.max(median * FLOOR) / median).ln()).collect())
}

/// Cuts off outliers, unless more than half of the logarithms are equal.
pub(super) fn without_outliers(logs: &[f64]) -> Vec<f64> {
    let Some(median) = summary::median(logs) else { return Vec::new() };
    let deviations: Vec<f64> = logs.iter().map(|log| (log - median).abs()).collect();
    let most = OUTLIER * NORMAL_SCALE * summary::median(&deviations).unwrap_or(0.0);
    if most > 0.0 {
        logs.iter().map(|log| log.clamp(median - most, median + most)).collect()
    } else {
        logs.to_vec()
    }
}

/// Returns p, two-sided, of the clearest of this many contrasts between levels, and the effective number of points.
/// `residuals` are the distances from the levels, `contrast` is a difference over its error for independent points
/// of variance 1.
///
/// Squares of neighbors resemble each other less than the points themselves, so the variance has more
/// degrees of freedom than the mean (Bayley and Hammersley: n (1 - r²) / (1 + r²)).
pub(super) fn p_value(residuals: &[f64], levels: usize, contrast: f64, choices: f64) -> (f64, f64) {
    let (n, levels) = (residuals.len() as f64, levels as f64);
    let r = (n * autocorrelation(residuals) + CHOSEN) / (n - 2.0 - CHOSEN).max(1.0);
    let r = r.clamp(0.0, MAX_AUTOCORRELATION);
    let effective = effective_under(residuals.len(), r);
    let freedom = (n * (1.0 - r * r) / (1.0 + r * r) - levels).max(1.0);
    let squares: f64 = residuals.iter().map(|r| r * r).sum();
    let variance = squares / n * effective / (effective - levels).max(MIN_FREEDOM);
    let error = (variance * n / effective).sqrt();
    let p = if error > 0.0 {
        (choices * 2.0 * upper_tail(contrast.abs() / error, freedom)).min(1.0)
    } else {
        // Levels without any scatter.
        0.0
    };
    (p, effective)
}
