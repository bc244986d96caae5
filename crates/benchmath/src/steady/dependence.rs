//! The effective number of points of a series whose neighbors depend on each other.
//!
//! Lag-1 autocorrelation and what follows from it (Bayley and Hammersley, JRSS Supplement 8(2), 1946).
//! Shared by all tests of `steady`.

use crate::summary;

/// Upper limit for the autocorrelation: with more, no test could reject, and a trend left in the
/// residuals looks like autocorrelation.
pub(super) const MAX_AUTOCORRELATION: f64 = 0.9;

/// The number of independent points that would estimate the mean equally well.
///
/// The lag-1 autocorrelation of few points is biased downward, more so after removing a line or a
/// step: by (2 + 4 r) / n (Marriott and Pope, Biometrika 41, 1954, for a mean and, with the
/// constant part doubled, for a line). This function corrects the bias. A negative autocorrelation
/// counts as 0.
pub(super) fn effective_size(residuals: &[f64]) -> f64 {
    let n = residuals.len() as f64;
    let found = autocorrelation(residuals);
    let r = ((n * found + 2.0) / (n - 4.0)).clamp(0.0, MAX_AUTOCORRELATION);
    effective_under(residuals.len(), r)
}

pub(super) fn effective_under(points: usize, r: f64) -> f64 {
    let n = points as f64;
    let weights = (1..points).map(|k| (1.0 - k as f64 / n) * r.powi(k as i32));
    n / (1.0 + 2.0 * weights.sum::<f64>())
}

pub(super) fn autocorrelation(values: &[f64]) -> f64 {
    let center = summary::mean(values).unwrap_or(0.0);
    let squares: f64 = values.iter().map(|v| (v - center).powi(2)).sum();
    let products: f64 = values.windows(2).map(|w| (w[0] - center) * (w[1] - center)).sum();
    if squares > 0.0 { products / squares } else { 0.0 }
}
