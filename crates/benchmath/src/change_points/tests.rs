//! Known answers; false alarms, power and location by simulation.

use super::*;
use crate::test_noise::normal;
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
                && changes.iter().zip(&steps).all(|(change, (at, _))| change.at.abs_diff(*at) <= 1)
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

/// Of 30 values, around one level and around two: 0 for independent ones; that of an autoregressive process is found
/// smaller than it is.
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
