//! Tests published answers, enumerates all sign patterns, and checks the properties that reports
//! rely on.

use super::*;
use crate::rng::SplitMix64;
use crate::test_noise::normal;
use proptest::prelude::*;

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
    let values: Vec<f64> = (0..10_000).map(|_| 0.1 + normal(&mut rng)).collect();
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
        for noise in [normal, |rng: &mut SplitMix64| normal(rng).powi(3)] {
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
    let as_small = (0..1u32 << n).filter(|signs| lesser(&|k| signs >> k & 1 == 1) <= seen).count();
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
    (kept.len() < values.len() * (values.len() + 1) / 2).then(|| (kept[0], kept[kept.len() - 1]))
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
