//! Tests whether a series is steady: a trend, a change point and an episode, with their p values.
//!
//! For values at equal time steps, such as the rate in each second of a window. The trend is the
//! Theil-Sen slope (Sen, JASA 63(324), 1968) with the Mann-Kendall test (Mann, Econometrica 13(3),
//! 1945; Kendall, Rank Correlation Methods, 1975); the change point is Pettitt's (Applied
//! Statistics 28(2), 1979) with his approximate p. Both use ranks, so a single outlier does not make a
//! trend. [`step`] also looks at the size of a step, and [`episode`] at a change that ends; both cut
//! outliers off.
//!
//! The tests assume that values are independent if nothing changes. Adjacent seconds are not and
//! would raise false alarms; therefore the variance of the statistics is multiplied by n over the
//! effective sample size under lag-1 autocorrelation (Bayley and Hammersley, JRSS Supplement 8(2),
//! 1946; for Mann-Kendall: Yue and Wang, Water Resources Management 18, 2004). Slower oscillations,
//! which lag 1 does not capture, are still reported as a change. This module does not judge trials;
//! see `student` and `signed_rank`.

use std::fmt;

use statrs::distribution::{ContinuousCDF, Normal};

pub use self::episode::Episode;
pub use self::step::{MIN_LOG_STEP, Shift};
use crate::student::upper_tail;
use crate::summary;

mod episode;
mod step;

/// Minimum number of points; with fewer, the normal approximation of Mann-Kendall is inaccurate.
/// Below 18 points, ranks do not show a step at a level of 0.004: even a perfect one has a larger p.
pub const MIN_POINTS: usize = 8;

/// Test results for a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steadiness {
    pub points: usize,
    pub trend: Trend,
    pub shift: Shift,
    /// `None` if no stretch differs from both of its sides.
    pub episode: Option<Episode>,
}

/// A linear trend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// In the values' unit per step.
    pub slope: f64,
    /// Change from the first point to the last, relative to the median: -0.1 means a decrease of 10
    /// %. `None` if the median is 0.
    pub change: Option<f64>,
    /// Two-sided.
    pub p: f64,
    /// Effective number of independent points after removing the trend.
    pub effective_points: f64,
}

/// The series has fewer than [`MIN_POINTS`] points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooShort {
    pub points: usize,
}

impl fmt::Display for TooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} points are too few to judge; lengthen the window to at least {MIN_POINTS}",
            self.points
        )
    }
}

impl std::error::Error for TooShort {}

/// Tests finite values at equal time steps for a trend and a change point.
///
/// Time and memory grow with the square of the length; average long series first.
pub fn judge(values: &[f64]) -> Result<Steadiness, TooShort> {
    if values.len() < MIN_POINTS {
        return Err(TooShort { points: values.len() });
    }
    Ok(Steadiness {
        points: values.len(),
        trend: trend(values),
        shift: step::shift(values),
        episode: episode::clearest(values),
    })
}

/// The scatter of a series around its mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scatter {
    pub points: usize,
    /// Mean square of the deviations from the mean, relative to the square of the mean.
    pub variance: f64,
    /// Lag-1 autocorrelation, corrected for the bias of few points.
    pub autocorrelation: f64,
}

/// `None` with fewer than [`MIN_POINTS`] points or a mean that is not positive.
pub fn scatter(values: &[f64]) -> Option<Scatter> {
    let points = values.len();
    let center = summary::mean(values).filter(|mean| points >= MIN_POINTS && *mean > 0.0)?;
    let residuals: Vec<f64> = values.iter().map(|v| v - center).collect();
    let squares: f64 = residuals.iter().map(|r| r * r).sum();
    let n = points as f64;
    // After removing a mean, it is too small by (1 + 3 r) / n (Marriott and Pope 1954).
    let autocorrelation = (n * autocorrelation(&residuals) + 1.0) / (n - 3.0);
    Some(Scatter { points, variance: squares / n / center.powi(2), autocorrelation })
}

impl Scatter {
    /// The variance of the mean, relative to its square, under this autocorrelation: that of several series
    /// together, because the variance of one series from its own is biased upward. Unlike in the tests, a
    /// negative one counts, because cutting it off would be a bias as well.
    pub fn variance_of_mean(&self, autocorrelation: f64) -> f64 {
        let r = autocorrelation.clamp(-0.5, MAX_AUTOCORRELATION);
        let effective = effective_under(self.points, r);
        // The mean follows the points, which takes its own variance from the scatter around it.
        self.variance / (effective - 1.0).max(0.5)
    }
}

fn trend(values: &[f64]) -> Trend {
    let n = values.len() as f64;
    let slope = theil_sen(values);
    let residuals: Vec<f64> = (0..).zip(values).map(|(i, v)| v - slope * f64::from(i)).collect();
    let effective_points = effective_size(&residuals);
    let variance = mann_kendall_variance(values) * n / effective_points;
    let s = mann_kendall(values);
    // Continuity correction.
    let z = s.signum() * (s.abs() - 1.0).max(0.0) / variance.sqrt();
    let p = if variance > 0.0 { two_sided(z) } else { 1.0 };
    let median = summary::median(values).expect("the caller checked the number of points");
    let change = (median != 0.0).then(|| slope * (n - 1.0) / median);
    Trend { slope, change, p, effective_points }
}

/// The median of the slopes of all pairs.
fn theil_sen(values: &[f64]) -> f64 {
    let mut slopes = Vec::with_capacity(values.len() * (values.len() - 1) / 2);
    for (i, a) in values.iter().enumerate() {
        slopes.extend((1..).zip(&values[i + 1..]).map(|(steps, b)| (b - a) / f64::from(steps)));
    }
    summary::median(&slopes).expect("two points have a slope")
}

/// Number of increasing pairs minus number of decreasing pairs.
fn mann_kendall(values: &[f64]) -> f64 {
    let later = |i: usize, a: f64| -> i64 {
        let signs = values[i + 1..].iter().map(|b| i64::from(*b > a) - i64::from(*b < a));
        signs.sum()
    };
    values.iter().enumerate().map(|(i, a)| later(i, *a)).sum::<i64>() as f64
}

/// Variance of [`mann_kendall`] for independent values, corrected for ties.
fn mann_kendall_variance(values: &[f64]) -> f64 {
    let term = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
    let sorted = summary::sorted(values);
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|tied| term(tied.len() as f64)).sum();
    (term(values.len() as f64) - ties) / 18.0
}

fn two_sided(z: f64) -> f64 {
    (2.0 * Normal::standard().sf(z.abs())).min(1.0)
}

/// Upper limit for the autocorrelation: with more, no test could reject, and a trend left in the
/// residuals looks like autocorrelation.
const MAX_AUTOCORRELATION: f64 = 0.9;

/// The number of independent points that would estimate the mean equally well.
///
/// The lag-1 autocorrelation of few points is biased downward, more so after removing a line or a
/// step: by (2 + 4 r) / n (Marriott and Pope, Biometrika 41, 1954, for a mean and, with the
/// constant part doubled, for a line). This function corrects the bias. A negative autocorrelation
/// counts as 0.
fn effective_size(residuals: &[f64]) -> f64 {
    let n = residuals.len() as f64;
    let found = autocorrelation(residuals);
    let r = ((n * found + 2.0) / (n - 4.0)).clamp(0.0, MAX_AUTOCORRELATION);
    effective_under(residuals.len(), r)
}

fn effective_under(points: usize, r: f64) -> f64 {
    let n = points as f64;
    let weights = (1..points).map(|k| (1.0 - k as f64 / n) * r.powi(k as i32));
    n / (1.0 + 2.0 * weights.sum::<f64>())
}

fn autocorrelation(values: &[f64]) -> f64 {
    let center = summary::mean(values).unwrap_or(0.0);
    let squares: f64 = values.iter().map(|v| (v - center).powi(2)).sum();
    let products: f64 = values.windows(2).map(|w| (w[0] - center) * (w[1] - center)).sum();
    if squares > 0.0 { products / squares } else { 0.0 }
}

// Student's t for levels of a series, on logarithms without outliers.
//
// Outliers are cut off at [`OUTLIER`] robust standard deviations, so that three of them in a row do not make a
// level. As in the other tests of `steady`, points depend on their neighbors: degrees of freedom and errors are
// taken from the effective number of points. Shared by [`step`] and [`episode`].

/// Shorter stretches are outliers.
const MIN_LEVEL_POINTS: usize = 3;

/// Values below this share of the median count as this share: a logarithm needs a value above 0.
const FLOOR: f64 = 0.01;

/// Distance from the median, in standard deviations estimated from the median deviation.
const OUTLIER: f64 = 3.0;
const NORMAL_SCALE: f64 = 1.4826;

/// The autocorrelation of residuals is biased downward, as in [`effective_size`]; more here, because
/// the ends of a level were chosen where the series changes most. Found by simulation.
const CHOSEN: f64 = 3.0;

/// Fewest effective points beyond the levels; with fewer, no variance could be estimated.
const MIN_FREEDOM: f64 = 0.5;

/// `None` if the median is not positive.
fn logs(values: &[f64]) -> Option<Vec<f64>> {
    let median = summary::median(values).filter(|m| *m > 0.0)?;
    Some(values.iter().map(|v| (v.max(median * FLOOR) / median).ln()).collect())
}

/// Cuts off outliers, unless more than half of the logarithms are equal.
fn without_outliers(logs: &[f64]) -> Vec<f64> {
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
fn p_value(residuals: &[f64], levels: usize, contrast: f64, choices: f64) -> (f64, f64) {
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

#[cfg(test)]
mod tests;
