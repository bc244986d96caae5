//! One step: by the order of the values and by their size.
//!
//! Pettitt's test uses ranks, so it needs no assumption about the values, but it does not see how large a step is.
//! If the rate wanders slowly before or after the step, few points are effectively independent, and no order of so
//! few is evidence, however large the step. Student's t for the two levels finds a step that is large beside the
//! wandering. Each test has a share of the step's level: the reported p is the smaller one, divided by its share.

use super::{MIN_LEVEL_POINTS, effective_size, logs, p_value, without_outliers};
use crate::summary;

/// Pettitt's test has this share of the level. The test by size has the rest, because it assumes more and finds
/// large steps anyway.
const SHARE_OF_RANKS: f64 = 0.9;

/// Smaller differences of logarithms are left to the ranks: where points depend on their neighbors, this test
/// accuses more steady series than its level says.
pub const MIN_LOG_STEP: f64 = 0.25;

/// A shorter level, as a share of the points, may be a few outliers at an end.
const LEVEL_DIVISOR: usize = 8;

/// The most likely change point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// Index of the first point after the change.
    pub at: usize,
    /// Medians of the two parts.
    pub before: f64,
    pub after: f64,
    /// `after / before - 1`; `None` if `before` is 0.
    pub change: Option<f64>,
    /// Two-sided, of the clearer test, divided by its share; an upper bound for short series.
    pub p: f64,
    pub effective_points: f64,
}

pub(super) fn shift(values: &[f64]) -> Shift {
    let share = |found: StepTest, share: f64| StepTest { p: (found.p / share).min(1.0), ..found };
    let ranks = share(by_ranks(values), SHARE_OF_RANKS);
    let size = by_size(values).map(|size| share(size, 1.0 - SHARE_OF_RANKS));
    let clearer = size.filter(|size| size.p < ranks.p);
    let StepTest { at, p, effective_points } = clearer.unwrap_or(ranks);
    let (first, second) = values.split_at(at);
    let median = |part| summary::median(part).expect("both parts have a point");
    let (before, after) = (median(first), median(second));
    let change = (before != 0.0).then(|| after / before - 1.0);
    Shift { at, before, after, change, p, effective_points }
}

pub(super) struct StepTest {
    at: usize,
    pub(super) p: f64,
    effective_points: f64,
}

/// By Pettitt's test.
pub(super) fn by_ranks(values: &[f64]) -> StepTest {
    let n = values.len() as f64;
    let (at, k) = pettitt(values);
    let (first, second) = values.split_at(at);
    let effective_points = effective_size(&residuals(first, second));
    let variance = (n.powi(3) + n.powi(2)) * n / effective_points;
    let p = (2.0 * (-6.0 * k * k / variance).exp()).min(1.0);
    StepTest { at, p, effective_points }
}

/// `None` if the median is not positive, the step is small, or there are too few points for two levels.
fn by_size(values: &[f64]) -> Option<StepTest> {
    let logs = logs(values)?;
    let points = logs.len();
    let least = MIN_LEVEL_POINTS.max(points / LEVEL_DIVISOR);
    let error = |at: usize| (1.0 / at as f64 + 1.0 / (points - at) as f64).sqrt();
    let contrast = |at: usize| {
        let (first, second) = logs.split_at(at);
        (mean(second) - mean(first)).abs() / error(at)
    };
    let places = least..=points.saturating_sub(least);
    let at = places.max_by(|a, b| contrast(*a).total_cmp(&contrast(*b)))?;
    let (first, second) = logs.split_at(at);
    let (first, second) = (without_outliers(first), without_outliers(second));
    let difference = Some(mean(&second) - mean(&first)).filter(|d| d.abs() >= MIN_LOG_STEP)?;
    let residuals = residuals(&first, &second);
    let (p, effective_points) = p_value(&residuals, 2, difference / error(at), (points - 1) as f64);
    Some(StepTest { at, p, effective_points })
}

fn mean(part: &[f64]) -> f64 {
    summary::mean(part).expect("both parts have a point")
}

/// The distances of all values from the mean of their part.
fn residuals(first: &[f64], second: &[f64]) -> Vec<f64> {
    [first, second]
        .into_iter()
        .flat_map(|part| {
            let mean = mean(part);
            part.iter().map(move |value| value - mean)
        })
        .collect()
}

/// The index at which the two parts differ most by the Mann-Whitney statistic, and that statistic.
pub(super) fn pettitt(values: &[f64]) -> (usize, f64) {
    let n = values.len() as f64;
    let sorted = summary::sorted(values);
    // Twice the mid-rank, so that tied values share a rank.
    let twice_rank = |v: f64| {
        (sorted.partition_point(|s| *s < v) + sorted.partition_point(|s| *s <= v) + 1) as f64
    };
    let mut u = 0.0;
    let mut widest = (1, 0.0f64);
    for (t, v) in (1..values.len()).zip(values) {
        u += twice_rank(*v) - (n + 1.0);
        if u.abs() > widest.1 {
            widest = (t, u.abs());
        }
    }
    widest
}
