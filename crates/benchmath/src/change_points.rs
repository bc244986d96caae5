//! Change points in a sequence of runs: where the level changed for good, and whether that can be chance.
//!
//! The statistic of a segment is the largest standardized rank sum over all its splits, which is the
//! two-sample test of Wilcoxon with an unknown split (Pettitt, Applied Statistics 28(2), 1979; the
//! standardized form: James, James and Siegmund, Biometrika 74(1), 1987). Its p comes from permuting the
//! segment, as in E-divisive (Matteson and James, JASA 109(505), 2014), which Daly et al. (ICPE 2020) use
//! for the nightly results of a database. Ranks in place of distances: one bad run then moves little, and
//! a permutation takes linear time. Permutations stop early where the answer is clear (Besag and Clifford,
//! Biometrika 78(2), 1991). Several changes are found by binary segmentation, and each is located once more
//! between its neighbors (Bai, Econometric Theory 13(3), 1997).
//!
//! A segment of n of all N values is tested at the level alpha n / N. The segments that remain cover the
//! values once, so the probability of any false change is at most alpha, apart from what a badly located
//! change leaves in the segments beside it.
//!
//! Assumption: without a change, runs are exchangeable. A slow drift or dependence between neighboring
//! runs is reported as changes; [`autocorrelation`] measures the latter. Next: [`crate::drift`] tests for a trend between two changes.

use crate::interval::assert_probability;
use crate::rng::{SplitMix64, derive};
use crate::summary;

/// Fewest runs on each side of a change. One or two deviating runs are not a new level.
pub const MIN_RUNS_PER_SIDE: usize = 3;

/// Permutations at most.
const PERMUTATIONS: u32 = 4999;
/// Permutations that reach the statistic; more would not make the answer clearer.
const ENOUGH_HITS: u32 = 40;

/// Rounds of locating changes between their neighbors.
const MAX_RELOCATIONS: usize = 3;

/// A change of the level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// Index of the first value after the change.
    pub at: usize,
    /// Two-sided p of the segment in which it was found, at the level `level`.
    pub p: f64,
    /// The level of that test: the part of alpha that the segment gets.
    pub level: f64,
}

/// Finds the change points of a sequence of finite values in their order, at the level `alpha` for all
/// of them together. The seed draws the permutations, so that the same values give the same answer.
///
/// # Panics
///
/// Unless alpha is between 0 and 1.
pub fn find(values: &[f64], alpha: f64, seed: u64) -> Vec<ChangePoint> {
    assert_probability("alpha", alpha);
    let mut found = Vec::new();
    let mut open = vec![(0, values.len())];
    while let Some((start, end)) = open.pop() {
        let segment = &values[start..end];
        let level = alpha * segment.len() as f64 / values.len() as f64;
        let seed = derive(seed, "change points", (start as u64) << 32 | end as u64);
        let Some((at, p)) = split(segment, level, seed).filter(|(_, p)| *p <= level) else {
            continue;
        };
        found.push(ChangePoint { at: start + at, p, level });
        open.extend([(start, start + at), (start + at, end)]);
    }
    found.sort_by_key(|change| change.at);
    locate(values, &mut found);
    found
}

/// The smallest p that this many distinct values can have: that of a step in the middle without any
/// overlap. An odd number has two middle splits with the same statistic, and a permutation reaches it
/// at either.
pub fn smallest_p(values: usize) -> f64 {
    if values < 2 * MIN_RUNS_PER_SIDE {
        return 1.0;
    }
    let half = values / 2;
    // The number of ways to choose half of the values. Two separate them: the lowest, the highest.
    let ways = (1..=half).fold(1.0, |ways, k| ways * (values - half + k) as f64 / k as f64);
    let splits = match values % 2 {
        0 => 1.0,
        // Two splits, less what separates at both: the next value then has to be the next in order.
        _ => 2.0 - 1.0 / (half + 1) as f64,
    };
    (2.0 * splits / ways).min(1.0)
}

/// With fewer values, the autocorrelation is not known well enough to be of use.
const MIN_VALUES_OF_AUTOCORRELATION: usize = 10;

/// The lag-1 autocorrelation of values around their levels: `segments` are the values between two changes, in their
/// order. `None` for fewer than ten values, or without spread.
///
/// Subtracting the mean of a segment of n values makes each product of neighbors smaller by 1/n of the variance
/// (Marriott and Pope, Biometrika 41, 1954), which is added again: of independent values it is 0 on average.
pub fn autocorrelation(segments: &[&[f64]]) -> Option<f64> {
    let values: usize = segments.iter().map(|s| s.len()).sum();
    let (mut squares, mut products, mut pairs, mut lost) = (0.0, 0.0, 0.0, 0.0);
    for segment in segments {
        let center = summary::mean(segment)?;
        squares += segment.iter().map(|v| (v - center).powi(2)).sum::<f64>();
        products += segment.windows(2).map(|w| (w[0] - center) * (w[1] - center)).sum::<f64>();
        pairs += (segment.len() - 1) as f64;
        lost += (segment.len() - 1) as f64 / segment.len() as f64;
    }
    let variance = squares / values.checked_sub(segments.len())? as f64;
    let known = values >= MIN_VALUES_OF_AUTOCORRELATION && variance > 0.0;
    known.then(|| (products / variance + lost) / pairs)
}

/// Moves each change to the best split between its neighbors, which the first division did not know.
fn locate(values: &[f64], changes: &mut [ChangePoint]) {
    for _ in 0..MAX_RELOCATIONS {
        let mut moved = false;
        for i in 0..changes.len() {
            let start = if i == 0 { 0 } else { changes[i - 1].at };
            let end = changes.get(i + 1).map_or(values.len(), |next| next.at);
            let Some((at, _)) = best_split(&scores(&values[start..end])) else { continue };
            moved |= changes[i].at != start + at;
            changes[i].at = start + at;
        }
        if !moved {
            break;
        }
    }
}

/// The best split of a segment with its p; `None` for a segment that is too short or constant.
fn split(segment: &[f64], level: f64, seed: u64) -> Option<(usize, f64)> {
    let mut scores = scores(segment);
    let (at, observed) = best_split(&scores)?;
    let mut rng = SplitMix64::new(seed);
    // Enough for a p that is clearly below the level, or clearly not.
    let most = PERMUTATIONS.max((f64::from(ENOUGH_HITS) / level).min(1e6) as u32);
    let mut reached = 0;
    for drawn in 1..=most {
        rng.shuffle(&mut scores);
        if best_split(&scores).is_some_and(|(_, statistic)| statistic >= observed * (1.0 - 1e-12)) {
            reached += 1;
            if reached == ENOUGH_HITS {
                return Some((at, f64::from(reached) / f64::from(drawn)));
            }
        }
    }
    Some((at, f64::from(reached + 1) / f64::from(most + 1)))
}

/// Mid-ranks around 0, so that tied values share a rank.
fn scores(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let center = (values.len() as f64 + 1.0) / 2.0;
    let mut scores = vec![0.0; values.len()];
    let mut rank = 0;
    for tied in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let shared = rank as f64 + (tied.len() as f64 + 1.0) / 2.0 - center;
        tied.iter().for_each(|index| scores[*index] = shared);
        rank += tied.len();
    }
    scores
}

/// The split at which the rank sum is farthest from its expectation, in its standard deviations up to a
/// constant factor; `None` without a split, or if all values are equal.
fn best_split(scores: &[f64]) -> Option<(usize, f64)> {
    let n = scores.len();
    let (mut sum, mut widest) = (0.0f64, (0, 0.0f64));
    for (before, score) in (1..).zip(scores) {
        sum += score;
        if before < MIN_RUNS_PER_SIDE || before + MIN_RUNS_PER_SIDE > n {
            continue;
        }
        let statistic = sum * sum / (before as f64 * (n - before) as f64);
        if statistic > widest.1 {
            widest = (before, statistic);
        }
    }
    (widest.0 > 0).then_some(widest)
}

#[cfg(test)]
mod tests;
