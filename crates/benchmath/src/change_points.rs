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

use crate::rng::{SplitMix64, derive};
use crate::summary;
use crate::summary::assert_probability;

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

/// The smallest p that this many distinct values can have: the p of a step in the middle without any
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
pub const MIN_VALUES_OF_AUTOCORRELATION: usize = 10;

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
mod tests {
    use super::*;
    use crate::rng::normal;
    use proptest::prelude::*;

    /// Logs of the values of runs: noise of this standard deviation, and a step from run `at` on.
    fn runs(n: usize, noise: f64, steps: &[(usize, f64)], rng: &mut SplitMix64) -> Vec<f64> {
        let level = |i: usize| steps.iter().filter(|(at, _)| i >= *at).map(|(_, s)| s).sum::<f64>();
        (0..n).map(|i| level(i) + noise * normal(rng)).collect()
    }

    #[test]
    fn a_clean_step_has_the_p_of_its_permutations() {
        // There are 70 ways to choose the first four of eight; two separate them as clearly.
        let found = find(&[1.0, 2.0, 3.0, 4.0, 11.0, 12.0, 13.0, 14.0], 0.05, 1);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].at, 4);
        assert!((found[0].p - 2.0 / 70.0).abs() < 0.012, "{found:?}");
        assert!((smallest_p(8) - 2.0 / 70.0).abs() < 1e-12);
        assert!(smallest_p(7) > 0.05 && smallest_p(5) == 1.0);
    }

    /// All orders of this many values: the smallest p is the share that reaches the largest statistic.
    #[test]
    fn the_smallest_p_is_that_of_all_permutations() {
        /// Visits all orders of the first `n` values (Heap's algorithm).
        fn permute(values: &mut [f64], n: usize, visit: &mut dyn FnMut(&[f64])) {
            if n <= 1 {
                return visit(values);
            }
            for i in 0..n {
                permute(values, n - 1, visit);
                values.swap(if n.is_multiple_of(2) { i } else { 0 }, n - 1);
            }
        }
        for n in 6..=9 {
            let values: Vec<f64> = (0..n).map(f64::from).collect();
            let mut scores = scores(&values);
            let (mut all, mut most, mut reached) = (0u32, 0.0, 0u32);
            let length = scores.len();
            permute(&mut scores, length, &mut |order| {
                let statistic = best_split(order).map_or(0.0, |(_, statistic)| statistic);
                all += 1;
                if statistic > most + 1e-9 {
                    (most, reached) = (statistic, 0);
                }
                reached += u32::from(statistic > most - 1e-9);
            });
            let p = f64::from(reached) / f64::from(all);
            assert!((smallest_p(length) - p).abs() < 1e-12, "{n}: {} not {p}", smallest_p(length));
        }
        let fewest = |alpha: f64| (0..).find(|n| smallest_p(*n) <= alpha).unwrap();
        assert_eq!([1.0, 2.0, 3.0].map(|conditions| fewest(0.05 / conditions)), [8, 10, 10]);
    }

    #[test]
    fn constant_and_short_sequences_have_no_change() {
        assert!(find(&[], 0.05, 1).is_empty());
        assert!(find(&[1.0; 40], 0.05, 1).is_empty());
        assert!(find(&[1.0, 2.0, 3.0, 9.0, 9.5], 0.05, 1).is_empty());
        // One wild run is not a new level.
        let mut values: Vec<f64> = (0..30).map(|i| f64::from(i % 3)).collect();
        values[20] = 1e6;
        assert!(find(&values, 0.05, 1).is_empty());
    }

    #[test]
    fn one_in_twenty_sequences_without_a_change_has_one_at_most() {
        let mut rng = SplitMix64::new(11);
        for n in [10, 30, 100] {
            let heavy = |rng: &mut SplitMix64| normal(rng) / normal(rng).abs().max(1e-9);
            for kind in ["normal", "heavy tails"] {
                let alarms = (0..1000u64)
                    .filter(|seed| {
                        let noise: Vec<f64> = match kind {
                            "normal" => runs(n, 0.02, &[], &mut rng),
                            _ => (0..n).map(|_| heavy(&mut rng)).collect(),
                        };
                        !find(&noise, 0.05, *seed).is_empty()
                    })
                    .count();
                // 50 expected at most; three standard errors are 21.
                assert!(alarms <= 71, "{alarms} of 1000 with {n} runs of {kind}");
            }
        }
    }

    /// The step that a user wants to see: 5 % from the twentieth of 30 runs on, whose spread is 1.5 to 2.5 %.
    #[test]
    fn a_step_of_five_per_cent_is_found_where_it_is() {
        let mut rng = SplitMix64::new(12);
        for (noise, found_at_least, near_at_least) in
            [(0.015, 198, 190), (0.02, 195, 178), (0.025, 185, 155)]
        {
            let (mut found, mut near) = (0, 0);
            for seed in 0..200u64 {
                let values = runs(30, noise, &[(19, -0.0513)], &mut rng);
                let changes = find(&values, 0.05, seed);
                found += usize::from(!changes.is_empty());
                near += usize::from(changes.iter().any(|change| change.at.abs_diff(19) <= 1));
            }
            assert!(found >= found_at_least, "noise {noise}: found {found} of 200");
            assert!(near >= near_at_least, "noise {noise}: near {near} of 200");
        }
    }

    #[test]
    fn several_changes_are_told_apart() {
        let mut rng = SplitMix64::new(13);
        let steps = [(20, -0.10), (35, 0.16), (50, -0.08)];
        let exact = (0..100u64)
            .filter(|seed| {
                let changes = find(&runs(70, 0.02, &steps, &mut rng), 0.05, *seed);
                changes.len() == 3
                    && changes
                        .iter()
                        .zip(&steps)
                        .all(|(change, (at, _))| change.at.abs_diff(*at) <= 1)
            })
            .count();
        assert!(exact >= 78, "{exact} of 100");
    }

    proptest! {
        /// Ranks: the answer is the same for rates, times and their logs.
        #[test]
        fn a_monotonic_scale_changes_nothing(values in prop::collection::vec(-3.0f64..3.0, 0..40)) {
            let scaled: Vec<f64> = values.iter().map(|v| v.exp()).collect();
            prop_assert_eq!(find(&values, 0.2, 7), find(&scaled, 0.2, 7));
        }

        #[test]
        fn change_points_leave_enough_runs_on_each_side(values in prop::collection::vec(0u8..4, 0..60)) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let mut before = 0;
            for change in find(&values, 0.5, 3) {
                prop_assert!(change.at >= before + MIN_RUNS_PER_SIDE);
                prop_assert!(change.at + MIN_RUNS_PER_SIDE <= values.len());
                prop_assert!(change.p > 0.0 && change.p <= change.level);
                before = change.at;
            }
        }
    }

    /// The estimate from 30 values, around one level and around two, is 0 for independent values, and too small for an
    /// autoregressive process.
    #[test]
    fn the_autocorrelation_within_levels_is_not_that_of_a_step() {
        let mut rng = SplitMix64::new(12);
        let mut mean = |rho: f64, split: usize| -> f64 {
            let experiments = 1_000;
            let one = |_| {
                let mut last = normal(&mut rng);
                let values: Vec<f64> = (0..30)
                    .map(|n| {
                        last = rho * last + (1.0 - rho * rho).sqrt() * normal(&mut rng);
                        if n < split { last } else { last + 5.0 }
                    })
                    .collect();
                autocorrelation(&[&values[..split], &values[split..]]).unwrap()
            };
            (0..experiments).map(one).sum::<f64>() / f64::from(experiments)
        };
        assert!(mean(0.0, 20).abs() < 0.03, "{}", mean(0.0, 20));
        assert!((0.35..0.5).contains(&mean(0.5, 20)), "{}", mean(0.5, 20));
        assert_eq!(autocorrelation(&[&[1.0, 2.0, 3.0]]), None);
        assert_eq!(autocorrelation(&[&[1.0; 20]]), None);
    }
}
