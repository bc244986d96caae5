//! Tests whether a series is steady: a trend, a change point and an episode, with their p values.
//!
//! For values at equal time steps, such as the rate in each second of a window. The trend is the
//! Theil-Sen slope (Sen, JASA 63(324), 1968) with the Mann-Kendall test (Mann, Econometrica 13(3),
//! 1945; Kendall, Rank Correlation Methods, 1975); the change point is Pettitt's (Applied
//! Statistics 28(2), 1979) with his approximate p. Both use ranks, so a single outlier does not make a
//! trend. [`by_size`] also looks at the size of a step, and [`Episode`] at a change that ends; both cut
//! outliers off.
//!
//! The tests assume that values are independent if nothing changes. Adjacent seconds are not and
//! would raise false alarms; therefore the variance of the statistics is multiplied by n over the
//! effective sample size under lag-1 autocorrelation (Bayley and Hammersley, JRSS Supplement 8(2),
//! 1946; for Mann-Kendall: Yue and Wang, Water Resources Management 18, 2004). Slower oscillations,
//! which lag 1 does not capture, are still reported as a change. This module does not judge trials;
//! see `student` and `signed_rank`.

#[cfg(test)]
#[path = "steady_tests.rs"]
mod tests;

use std::fmt;

use statrs::distribution::{ContinuousCDF, Normal};

use crate::student::upper_tail;
use crate::summary;

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
        shift: shift(values),
        episode: clearest(values),
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
    /// The variance of the mean, relative to its square, under this autocorrelation: of several series
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
// taken from the effective number of points. Shared by steps and episodes.

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

// One step: by the order of the values and by their size. Pettitt's test uses ranks, so it needs no assumption about
// the values, but it does not see how large a step is. If the rate wanders slowly before or after the step, few
// points are effectively independent, and no order of so few is evidence, however large the step. Student's t for
// the two levels finds a step that is large beside the wandering. Each test has a share of the step's level: the
// reported p is the smaller one, divided by its share.

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

fn shift(values: &[f64]) -> Shift {
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

struct StepTest {
    at: usize,
    p: f64,
    effective_points: f64,
}

/// By Pettitt's test.
fn by_ranks(values: &[f64]) -> StepTest {
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
fn pettitt(values: &[f64]) -> (usize, f64) {
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

// An episode: a stretch of a series at another level than before and after it. Pettitt's test looks for one change
// point, so a drop that recovers half-way through hardly moves it. Here every stretch is compared with what precedes
// it and with what follows it, by Student's t on logarithms, and the smaller difference counts: a step or a trend
// differs from one side only. The clearest stretch is judged (the epidemic alternative of Levin and Kline,
// Statistics in Medicine 4, 1985). The p value is multiplied by the number of stretches to choose from (Bonferroni's
// inequality).

/// Fewest points before an episode, and after it.
const MIN_POINTS_PER_SIDE: usize = 2;

/// The stretch that differs most from both sides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Episode {
    /// Index of its first point, and of the first one after it.
    pub from: usize,
    pub to: usize,
    /// Its level relative to the nearer of those before and after it: -0.8 is a drop by 80 %. Ratio of medians;
    /// not finite if the other level is 0.
    pub change: f64,
    /// Two-sided, an upper bound.
    pub p: f64,
    pub effective_points: f64,
}

/// `None` if the series is too short for an episode, its median is not positive, or no stretch differs from
/// both sides in the same direction.
fn clearest(values: &[f64]) -> Option<Episode> {
    let logs = without_outliers(&logs(values)?);
    let points = logs.len();
    let center = summary::mean(&logs)?;
    let mut sums = vec![0.0];
    let mut sum = 0.0;
    for log in &logs {
        sum += log - center;
        sums.push(sum);
    }
    let mean = |from: usize, to: usize| (sums[to] - sums[from]) / (to - from) as f64;
    // Both differences, the nearer one first, with the error of each for points of variance 1.
    let contrast = |from: usize, to: usize| {
        let inside = mean(from, to);
        let side = |other: f64, count: usize| {
            let error = (1.0 / (to - from) as f64 + 1.0 / count as f64).sqrt();
            (inside - other, error)
        };
        let (before, after) = (side(mean(0, from), from), side(mean(to, points), points - to));
        let is_nearer = (before.0 / before.1).abs() <= (after.0 / after.1).abs();
        (before.0 * after.0 > 0.0).then_some(if is_nearer { before } else { after })
    };
    let mut best: Option<(usize, usize, f64, f64)> = None;
    for from in MIN_POINTS_PER_SIDE..points {
        for to in from + MIN_LEVEL_POINTS..(points + 1).saturating_sub(MIN_POINTS_PER_SIDE) {
            let Some((difference, error)) = contrast(from, to) else { continue };
            if best.is_none_or(|b| (difference / error).abs() > (b.2 / b.3).abs()) {
                best = Some((from, to, difference, error));
            }
        }
    }
    let (from, to, difference, error) = best?;
    let levels = [mean(0, from), mean(from, to), mean(to, points)].map(|level| level + center);
    let residuals: Vec<f64> = logs
        .iter()
        .enumerate()
        .map(|(i, log)| log - levels[usize::from(i >= from) + usize::from(i >= to)])
        .collect();
    let choices = (points * (points - 1) / 2) as f64;
    let (p, effective_points) = p_value(&residuals, levels.len(), difference / error, choices);
    Some(Episode { from, to, change: change(values, from, to), p, effective_points })
}

/// Outliers are not cut off here: that would make a large change smaller.
fn change(values: &[f64], from: usize, to: usize) -> f64 {
    let [before, inside, after] = [&values[..from], &values[from..to], &values[to..]]
        .map(|part| summary::median(part).unwrap_or(f64::NAN));
    let (early, late) = (inside / before - 1.0, inside / after - 1.0);
    if early.abs() <= late.abs() { early } else { late }
}
