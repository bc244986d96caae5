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
//! see `student` and `signed_rank`. Next: [`dependence`] for the effective sample size.

use std::fmt;

use statrs::distribution::{ContinuousCDF, Normal};

use self::dependence::{MAX_AUTOCORRELATION, autocorrelation, effective_size, effective_under};
pub use self::episode::Episode;
pub use self::step::{MIN_LOG_STEP, Shift};
use crate::summary;

mod dependence;
mod episode;
mod levels;
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

#[cfg(test)]
mod tests;
