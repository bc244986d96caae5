//! The deciding test: Wilcoxon's signed-rank test, with the Hodges-Lehmann estimate and the
//! interval obtained by inverting the test.
//!
//! Sources: Wilcoxon, Biometrics Bulletin 1(6), 1945; Hodges and Lehmann, Annals of Mathematical
//! Statistics 34(2), 1963; Tukey's identity of the statistic and the count of Walsh averages in
//! Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd ed., chapter 3. Assumption:
//! the values are independent and symmetric about their center. Randomized blocks give this
//! symmetry under the null hypothesis: without an effect, exchanging condition and baseline only
//! changes the sign.
//!
//! Reasons for this test: it is the exact sign-flip test, applied to ranks. It is exact for any n;
//! the estimate is always inside the interval; an outlier changes it by one rank instead of by its
//! size; and at n = 6, where only "all blocks on one side" can reject at 5 %, it equals the
//! sign-flip test of the mean.

use crate::summary::assert_probability;

use crate::summary;
use statrs::distribution::{ContinuousCDF, Normal};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The result for "the center is 0", in the unit of the values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignedRank {
    /// Hodges-Lehmann: the median of the Walsh averages.
    pub estimate: f64,
    /// Closed interval of level at least 1 - alpha; `None` with too few values for a test at that
    /// level. It excludes 0 exactly if `p <= alpha`.
    pub bounds: Option<(f64, f64)>,
    /// Two-sided.
    pub p: f64,
}

/// Tests whether `values` are symmetric about 0. `None` without values, or if one is not finite.
/// The run time is O(n log n): 10,000 values take milliseconds.
///
/// # Panics
///
/// Unless alpha is between 0 and 1.
pub fn test(values: &[f64], alpha: f64) -> Option<SignedRank> {
    assert_probability("alpha", alpha);
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let walsh = Walsh::new(values);
    let null = Null::new(values.len());
    let bounds = null
        .largest_rejecting(alpha)
        .map(|count| (walsh.smallest(count), walsh.smallest(walsh.len() - 1 - count)));
    Some(SignedRank {
        estimate: walsh.median(),
        bounds,
        p: null.two_sided(walsh.lesser_count(0.0)),
    })
}

/// Only the Hodges-Lehmann estimate: the median of the Walsh averages. `None` without values, or if
/// one is not finite.
pub fn estimate(values: &[f64]) -> Option<f64> {
    let usable = !values.is_empty() && values.iter().all(|v| v.is_finite());
    usable.then(|| Walsh::new(values).median())
}

/// The smallest possible two-sided p with `n` values: all on one side, 2 of the 2^n sign patterns.
pub fn smallest_p(n: usize) -> f64 {
    2.0f64.powi(1 - n.min(2_000) as i32).min(1.0)
}

/// The minimum number of values for a test at level alpha: 6 at 0.05, 8 at 0.01.
///
/// # Panics
///
/// Unless alpha is between 0 and 1.
pub fn min_values(alpha: f64) -> usize {
    assert_probability("alpha", alpha);
    (1..).find(|n| smallest_p(*n) <= alpha).expect("smallest_p approaches 0")
}

/// The rejection region of the test at level alpha with `n` values: the largest count of Walsh
/// averages on the lesser side, and the attained level. `None` if no such test exists.
pub(crate) fn rejection(n: usize, alpha: f64) -> Option<(usize, f64)> {
    let null = Null::new(n);
    null.largest_rejecting(alpha).map(|count| (count, null.two_sided(count)))
}

// The null distribution of the signed-rank statistic.
//
// T sums a random subset of the ranks 1..n, each included with probability 1/2. Up to
// [`EXACT_UP_TO`] values its distribution is computed exactly, rank by rank, and cached for the
// next comparison with the same number of blocks. With more values, the normal distribution with
// continuity correction replaces it, which is then within 1 % of a tail of 2.5 % (verified by a
// test).

/// The table for this many values has 45,151 numbers and takes about ten milliseconds to compute.
const EXACT_UP_TO: usize = 300;

#[derive(Debug, Clone)]
pub(crate) struct Null {
    n: usize,
    /// P(T <= t) for t = 0, 1, .. n (n + 1) / 2; `None` above [`EXACT_UP_TO`].
    tail: Option<Arc<[f64]>>,
}

impl Null {
    pub(crate) fn new(n: usize) -> Null {
        static TABLES: Mutex<BTreeMap<usize, Arc<[f64]>>> = Mutex::new(BTreeMap::new());
        let tail = (n <= EXACT_UP_TO).then(|| {
            // A panic cannot leave an incomplete table, because tables are inserted complete.
            let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
            tables.entry(n).or_insert_with(|| exact(n).into()).clone()
        });
        Null { n, tail }
    }

    /// Both p and interval use this function, so that rounding cannot make them disagree.
    pub(crate) fn two_sided(&self, lesser: usize) -> f64 {
        (2.0 * self.at_most(lesser)).min(1.0)
    }

    /// The largest lesser count that rejects at level alpha.
    pub(crate) fn largest_rejecting(&self, alpha: f64) -> Option<usize> {
        let (mut rejecting, mut beyond) = (0, self.n * (self.n + 1) / 2 + 1);
        while rejecting < beyond {
            let middle = rejecting.midpoint(beyond);
            if self.two_sided(middle) <= alpha { rejecting = middle + 1 } else { beyond = middle }
        }
        rejecting.checked_sub(1)
    }

    /// One-sided p: the probability of a count of at most `t` on one side.
    pub(crate) fn at_most(&self, t: usize) -> f64 {
        match &self.tail {
            Some(tail) => tail[t.min(tail.len() - 1)],
            None => normal(self.n, t),
        }
    }
}

/// Exact while 2^n fits the 53 bits of an f64; with rounding errors beyond.
fn exact(n: usize) -> Vec<f64> {
    let mut chance = vec![0.0; n * (n + 1) / 2 + 1];
    chance[0] = 1.0;
    let mut highest = 0;
    for rank in 1..=n {
        highest += rank;
        for t in (0..=highest).rev() {
            let with_rank = if t >= rank { chance[t - rank] } else { 0.0 };
            chance[t] = 0.5 * (chance[t] + with_rank);
        }
    }
    let mut sum = 0.0;
    for probability in &mut chance {
        sum += *probability;
        *probability = sum;
    }
    chance
}

fn normal(n: usize, t: usize) -> f64 {
    let n = n as f64;
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0;
    let z = (t as f64 + 0.5 - n * (n + 1.0) / 4.0) / variance.sqrt();
    Normal::standard().cdf(z)
}

// Walsh averages: the averages of all pairs of values, including each value with itself, without
// listing them.
//
// The number of averages above 0 equals the rank sum of the positive values (Tukey), which makes
// test and interval two views of the same list. The n (n + 1) / 2 averages are never listed: on
// sorted values, two pointers count those below a bound in n steps, and bisection over the floats
// finds the k-th (the idea of Johnson and Mizoguchi, SIAM Journal on Computing 7(2), 1978, with
// bisection in place of their partial sorting).

#[derive(Debug)]
pub(crate) struct Walsh {
    /// Ascending, finite.
    values: Vec<f64>,
}

impl Walsh {
    /// The values must be finite.
    pub(crate) fn new(values: &[f64]) -> Walsh {
        Walsh { values: summary::sorted(values) }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len() * (self.values.len() + 1) / 2
    }

    /// Number of averages that satisfy `holds`, which must be true up to some bound and false
    /// above.
    fn count(&self, holds: impl Fn(f64) -> bool) -> usize {
        let mut count = 0;
        let mut partners = self.values.len();
        for (i, a) in self.values.iter().enumerate() {
            while partners > i && !holds(f64::midpoint(*a, self.values[partners - 1])) {
                partners -= 1;
            }
            if partners <= i {
                break;
            }
            count += partners - i;
        }
        count
    }

    /// The count on the side of `center` that has fewer averages. An average equal to `center`
    /// counts on both sides, because it supports neither and must not help to reject. Breaking such
    /// ties in any way gives a count that is not larger, so the level holds; the closed interval
    /// treats its ends the same way.
    pub(crate) fn lesser_count(&self, center: f64) -> usize {
        self.count_up_to(center).min(self.count_from(center))
    }

    /// Number of averages that are at most `bound`.
    pub(crate) fn count_up_to(&self, bound: f64) -> usize {
        self.count(|w| w <= bound)
    }

    /// Number of averages that are at least `bound`.
    pub(crate) fn count_from(&self, bound: f64) -> usize {
        self.len() - self.count(|w| w < bound)
    }

    /// The k-th smallest average, numbered from 0.
    pub(crate) fn smallest(&self, k: usize) -> f64 {
        let (first, last) = (self.values[0], self.values[self.values.len() - 1]);
        let (mut low, mut high) = (ordered(first), ordered(last));
        while low < high {
            let middle = low + (high - low) / 2;
            let bound = from_ordered(middle);
            if self.count(|w| w <= bound) > k { high = middle } else { low = middle + 1 }
        }
        from_ordered(low)
    }

    /// The Hodges-Lehmann estimate.
    pub(crate) fn median(&self) -> f64 {
        let upper = self.smallest(self.len() / 2);
        if self.len() % 2 == 1 {
            return upper;
        }
        f64::midpoint(self.smallest(self.len() / 2 - 1), upper)
    }
}

/// Maps finite floats to integers in the same order, with -0 directly below 0.
fn ordered(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn from_ordered(number: u64) -> f64 {
    f64::from_bits(if number >> 63 == 1 { number & !(1 << 63) } else { !number })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;
    use crate::rng::SplitMix64;
    use proptest::prelude::*;

    #[test]
    fn the_table_is_accurate_with_many_values() {
        let tail = exact(200);
        assert!((tail[tail.len() - 1] - 1.0).abs() < 1e-12);
        // Symmetric about 200 * 201 / 4, with an atom there.
        let middle = 200 * 201 / 4;
        assert!((tail[middle] + tail[middle - 1] - 1.0).abs() < 1e-12);
        assert!(tail.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn the_normal_approximation_is_accurate_where_it_is_used() {
        let n = EXACT_UP_TO;
        let tail = exact(n);
        for level in [0.01, 0.025, 0.25, 0.5] {
            let t = tail.partition_point(|p| *p <= level);
            assert!((normal(n, t) / tail[t] - 1.0).abs() < 0.01, "{level}");
        }
        let counts = [n, n + 1].map(|n| Null::new(n).largest_rejecting(0.05).unwrap());
        assert!(counts[1] > counts[0] && counts[1] < counts[0] + n, "{counts:?}");
    }

    fn listed(values: &[f64]) -> Vec<f64> {
        let mut all = Vec::new();
        for (i, a) in values.iter().enumerate() {
            all.extend(values[i..].iter().map(|b| f64::midpoint(*a, *b)));
        }
        summary::sorted(&all)
    }

    proptest! {
        #[test]
        fn walsh_averages_match_the_sorted_list(
            values in prop_oneof![
                prop::collection::vec(-1.0..2.0f64, 1..20),
                prop::collection::vec((-4..5i32).prop_map(|v| f64::from(v) / 4.0), 1..20),
            ],
            center in prop_oneof![Just(0.0), -1.0..1.0f64],
        ) {
            let (walsh, listed) = (Walsh::new(&values), listed(&values));
            prop_assert_eq!(walsh.len(), listed.len());
            for (k, wanted) in listed.iter().enumerate() {
                prop_assert!(walsh.smallest(k) == *wanted, "{k}");
            }
            let below = listed.partition_point(|w| *w < center);
            let not_above = listed.partition_point(|w| *w <= center);
            prop_assert_eq!(walsh.lesser_count(center), not_above.min(listed.len() - below));
            prop_assert!(Some(walsh.median()) == summary::median_of_sorted(&listed));
        }
    }

    fn close(got: f64, wanted: f64) {
        assert!((got - wanted).abs() < 1e-12, "{got} is not {wanted}");
    }

    /// Hollander and Wolfe's depression data, the example of R's `wilcox.test`: V = 40 (5 on the other
    /// side), p = 0.03906, and at the attained 96.1 % estimate 0.46, interval (0.010, 0.786).
    #[test]
    fn signed_rank_test_matches_r_on_the_depression_data() {
        let differences = [0.952, -0.147, 1.022, 0.43, 0.62, 0.59, 0.49, -0.08, 0.01];
        let result = test(&differences, 0.05).unwrap();
        close(result.p, 20.0 / 512.0);
        close(result.estimate, 0.46);
        let (low, high) = result.bounds.unwrap();
        close(low, 0.010);
        close(high, 0.786);
    }

    /// Two-sided 5 % critical values from published tables of the signed-rank statistic.
    #[test]
    fn critical_values_match_published_tables() {
        let tabled = [
            (6, 0),
            (7, 2),
            (8, 3),
            (9, 5),
            (10, 8),
            (11, 10),
            (12, 13),
            (13, 17),
            (14, 21),
            (15, 25),
            (20, 52),
            (25, 89),
            (30, 137),
        ];
        for (n, count) in tabled {
            assert_eq!(rejection(n, 0.05).map(|r| r.0), Some(count), "n = {n}");
        }
        assert_eq!(rejection(5, 0.05), None);
        assert_eq!(rejection(8, 0.01), Some((0, 2.0 / 256.0)));
    }

    #[test]
    fn too_few_values_have_a_p_but_no_interval() {
        let result = test(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.05).unwrap();
        assert_eq!((result.p, result.bounds), (2.0 / 32.0, None));
        assert!(test(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.0625).unwrap().bounds.is_some());
        assert_eq!(test(&[7.0], 0.05).unwrap(), SignedRank { estimate: 7.0, bounds: None, p: 1.0 });
        assert_eq!(test(&[], 0.05), None);
        assert_eq!(test(&[1.0, f64::NAN], 0.05), None);
        assert_eq!((min_values(0.05), min_values(0.01), min_values(0.5)), (6, 8, 2));
        assert_eq!((smallest_p(0), smallest_p(1), smallest_p(6)), (1.0, 1.0, 0.03125));
    }

    #[test]
    fn equal_values_are_decided_unless_they_are_zero() {
        let same = test(&[0.1; 6], 0.05).unwrap();
        assert_eq!(same, SignedRank { estimate: 0.1, bounds: Some((0.1, 0.1)), p: 0.03125 });
        let none = test(&[0.0; 6], 0.05).unwrap();
        assert_eq!(none, SignedRank { estimate: 0.0, bounds: Some((0.0, 0.0)), p: 1.0 });
    }

    /// With six values the interval is the range: an outlier widens it but cannot change its sign.
    #[test]
    fn the_interval_of_six_values_is_their_range() {
        let result = test(&[0.3, 0.1, 0.2, 0.6, 0.5, 40.0], 0.05).unwrap();
        assert_eq!((result.bounds, result.p), (Some((0.1, 40.0)), 0.03125));
        assert!(result.estimate < 1.0);
    }

    /// Too many values to list all Walsh averages.
    #[test]
    fn ten_thousand_values_are_tested_without_listing_walsh_averages() {
        let mut rng = SplitMix64::new(3);
        let values: Vec<f64> = (0..10_000).map(|_| 0.1 + rng::normal(&mut rng)).collect();
        let result = test(&values, 0.05).unwrap();
        let (low, high) = result.bounds.unwrap();
        assert!(low > 0.0 && low < 0.1 && high > 0.1 && high < 0.14, "{result:?}");
        assert!(result.p < 1e-6 && (result.estimate - 0.1).abs() < 0.02);
    }

    /// The interval has its nominal coverage, also for noise that is not normal.
    #[test]
    fn coverage_is_nominal() {
        let experiments = 2_000u32;
        let mut rng = SplitMix64::new(6);
        for n in [6, 10] {
            for noise in [rng::normal, |rng: &mut SplitMix64| rng::normal(rng).powi(3)] {
                let covered = (0..experiments)
                    .filter(|_| {
                        let values: Vec<f64> = (0..n).map(|_| 0.3 + noise(&mut rng)).collect();
                        let (low, high) = test(&values, 0.05).unwrap().bounds.unwrap();
                        low <= 0.3 && 0.3 <= high
                    })
                    .count();
                let coverage = covered as f64 / f64::from(experiments);
                let wanted = 1.0 - rejection(n, 0.05).unwrap().1;
                let error = (wanted * (1.0 - wanted) / f64::from(experiments)).sqrt();
                assert!((coverage - wanted).abs() < 3.5 * error, "{n}: {coverage} not {wanted}");
                assert!(coverage >= 0.95 - 3.0 * error);
            }
        }
    }

    /// p by its definition: the share of all 2^n sign patterns whose lesser side is at most as large.
    fn enumerated_p(values: &[f64]) -> f64 {
        let n = values.len();
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| values[*a].abs().total_cmp(&values[*b].abs()));
        let total = n * (n + 1) / 2;
        let lesser = |positive: &dyn Fn(usize) -> bool| {
            let sum: usize = (1..=n).filter(|rank| positive(rank - 1)).sum();
            sum.min(total - sum)
        };
        let seen = lesser(&|k| values[order[k]] > 0.0);
        let as_small =
            (0..1u32 << n).filter(|signs| lesser(&|k| signs >> k & 1 == 1) <= seen).count();
        as_small as f64 / f64::from(1u32 << n)
    }

    /// The interval by its definition: the shifts that the test does not reject. The decision can only
    /// change at a Walsh average, so it suffices to try those.
    fn enumerated_interval(values: &[f64], alpha: f64) -> Option<(f64, f64)> {
        let walsh = Walsh::new(values);
        let kept: Vec<f64> = (0..walsh.len())
            .map(|k| walsh.smallest(k))
            .filter(|shift| {
                let shifted: Vec<f64> = values.iter().map(|v| v - shift).collect();
                test(&shifted, alpha).unwrap().p > alpha
            })
            .collect();
        (kept.len() < values.len() * (values.len() + 1) / 2)
            .then(|| (kept[0], kept[kept.len() - 1]))
    }

    /// Values with many ties, many zeros and exact arithmetic: quarters from -2 to 3.
    fn tied(sizes: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec((-8..13i32).prop_map(|v| f64::from(v) / 4.0), sizes)
    }

    fn smooth(sizes: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(-1.0..2.0f64, sizes)
    }

    fn any_kind() -> impl Strategy<Value = Vec<f64>> {
        prop_oneof![
            tied(1..30),
            smooth(1..30),
            (1usize..20, -2..3i32).prop_map(|(n, v)| vec![f64::from(v); n])
        ]
    }

    fn any_level() -> impl Strategy<Value = f64> {
        // Attained p values can equal powers of two exactly.
        prop_oneof![Just(0.05), 0.001..0.999f64, (1..10i32).prop_map(|k| 0.5f64.powi(k))]
    }

    proptest! {
        #[test]
        fn p_equals_the_enumeration_of_all_sign_patterns(values in smooth(1..11)) {
            prop_assert_eq!(test(&values, 0.05).unwrap().p, enumerated_p(&values));
        }

        #[test]
        fn interval_is_the_inverted_test(values in tied(1..9), alpha in any_level()) {
            let result = test(&values, alpha).unwrap();
            if let Some(wanted) = enumerated_interval(&values, alpha) {
                prop_assert_eq!(result.bounds, Some(wanted));
            }
        }

        /// Decision and interval never contradict each other.
        #[test]
        fn p_and_interval_agree(values in any_kind(), alpha in any_level()) {
            let result = test(&values, alpha).unwrap();
            let zero_outside = result.bounds.is_some_and(|(low, high)| low > 0.0 || high < 0.0);
            prop_assert_eq!(result.p <= alpha, zero_outside);
            prop_assert_eq!(result.bounds.is_some(), values.len() >= min_values(alpha));
        }

        #[test]
        fn the_estimate_is_inside_the_interval(values in any_kind(), alpha in any_level()) {
            let result = test(&values, alpha).unwrap();
            if let Some((low, high)) = result.bounds {
                prop_assert!(low <= result.estimate && result.estimate <= high);
            }
        }

        #[test]
        fn negated_values_give_the_same_p_and_mirrored_bounds(values in any_kind(), alpha in any_level()) {
            let there = test(&values, alpha).unwrap();
            let negated: Vec<f64> = values.iter().map(|v| -v).collect();
            let back = test(&negated, alpha).unwrap();
            prop_assert_eq!(there.p, back.p);
            prop_assert_eq!(there.estimate, -back.estimate);
            prop_assert_eq!(there.bounds, back.bounds.map(|(low, high)| (-high, -low)));
        }

        /// Breaking a tie at 0 by moving zeros slightly can only lower p: ties are treated in favor of
        /// the null hypothesis.
        #[test]
        fn ties_never_help_to_reject(values in tied(1..12), seed: u64) {
            let mut rng = SplitMix64::new(seed);
            let broken: Vec<f64> = values.iter().map(|v| v + 1e-6 * (rng.next_f64() - 0.5)).collect();
            prop_assert!(test(&broken, 0.05).unwrap().p <= test(&values, 0.05).unwrap().p);
        }
    }
}
