//! Known components are recovered from simulated experiments.

use super::*;
use crate::rng::SplitMix64;
use crate::steady::scatter;
use crate::test_noise::normal;

const SLICES: usize = 30;

/// Standard deviations between blocks, between trials, and of one slice, whose neighbors correlate by `r`.
struct Truth {
    block: f64,
    trial: f64,
    slice: f64,
    r: f64,
}

fn experiment(
    rng: &mut SplitMix64,
    conditions: usize,
    blocks: u32,
    truth: &Truth,
) -> Vec<Vec<Observation>> {
    let drift: Vec<f64> = (0..blocks).map(|_| truth.block * normal(rng)).collect();
    let mut trial = |level: f64, block: u32| {
        let log = level + drift[block as usize - 1] + truth.trial * normal(rng);
        let mut last = normal(rng);
        let slices: Vec<f64> = (0..SLICES)
            .map(|_| {
                last = truth.r * last + (1.0 - truth.r * truth.r).sqrt() * normal(rng);
                (log + truth.slice * last).exp()
            })
            .collect();
        let window = scatter(&slices).unwrap();
        Observation { block, log: mean(&slices).unwrap().ln(), window }
    };
    let arm = |c: usize| (1..=blocks).map(|b| (c as f64, b)).collect::<Vec<_>>();
    (0..conditions)
        .map(|c| arm(c).into_iter().map(|(level, block)| trial(level, block)).collect())
        .collect()
}

/// Mean estimates over many experiments.
fn estimated(truth: &Truth) -> Components {
    let mut rng = SplitMix64::new(4);
    let mut sum = Components { block: 0.0, trial: 0.0, window: 0.0, freedom: 0 };
    for _ in 0..400 {
        let found = estimate(&experiment(&mut rng, 4, 8, truth)).unwrap();
        sum.block += found.block / 400.0;
        sum.trial += found.trial / 400.0;
        sum.window += found.window / 400.0;
        sum.freedom = found.freedom;
    }
    sum
}

fn is_within(found: f64, truth: f64, share: f64) -> bool {
    (found / truth - 1.0).abs() < share
}

#[test]
fn the_components_are_recovered() {
    let truth = Truth { block: 0.03, trial: 0.02, slice: 0.08, r: 0.0 };
    let found = estimated(&truth);
    assert_eq!(found.freedom, 21);
    assert!(is_within(found.block, 0.03f64.powi(2), 0.12), "{found:?}");
    assert!(is_within(found.trial, 0.02f64.powi(2), 0.12), "{found:?}");
    // Independent slices: a thirtieth of a slice's variance, a little more for the corrected bias.
    assert!(is_within(found.window, 0.08f64.powi(2) / 30.0, 0.25), "{found:?}");
}

#[test]
fn slices_that_depend_on_their_neighbors_are_not_taken_for_independent() {
    let truth = Truth { block: 0.0, trial: 0.02, slice: 0.04, r: 0.6 };
    let found = estimated(&truth);
    // The variance of the mean of an autocorrelated series of this length.
    let weights: f64 = (1..SLICES).map(|k| (1.0 - k as f64 / 30.0) * 0.6f64.powi(k as i32)).sum();
    let window = 0.04f64.powi(2) / 30.0 * (1.0 + 2.0 * weights);
    assert!(is_within(found.window, window, 0.25), "{found:?} {window}");
    assert!(is_within(found.trial, 0.02f64.powi(2), 0.2), "{found:?}");
    assert!(found.block < 0.1 * 0.02f64.powi(2), "{found:?}");
}

#[test]
fn share_between_trials_follows_the_variance_between_trials() {
    let none = estimated(&Truth { block: 0.0, trial: 0.0, slice: 0.1, r: 0.0 });
    assert!(none.share_between_trials() < 0.25, "{none:?}");
    let all = estimated(&Truth { block: 0.0, trial: 0.05, slice: 0.02, r: 0.0 });
    assert!(all.share_between_trials() > 0.98, "{all:?}");
}

#[test]
fn too_few_trials_have_no_components() {
    let window = Scatter { points: 30, variance: 3e-3, autocorrelation: 0.0 };
    let one = |block, log| Observation { block, log, window };
    assert_eq!(estimate(&[]), None);
    assert_eq!(estimate(&[vec![one(1, 1.0), one(2, 1.1)]]), None);
    let nan = Observation { window: Scatter { variance: f64::NAN, ..window }, ..one(1, 1.0) };
    assert_eq!(estimate(&[vec![nan, one(2, 1.1)], vec![one(1, 2.0), one(2, 2.0)]]), None);
}

#[test]
fn the_best_window_is_the_cheapest() {
    // Kalibera and Jones: sqrt(outside * variance of a second / variance of a trial).
    let c = Components { block: 0.0, trial: 4e-4, window: 1e-4, freedom: 10 };
    let best = c.best_window(60.0, 15.0, 1.0).unwrap();
    assert!((best.seconds - (15.0 * 60.0 / 4.0f64).sqrt()).abs() < 1e-9, "{best:?}");
    let cost = |s: f64| (15.0 + s) * (4e-4 + 1e-4 * 60.0 / s) / (75.0 * 5e-4);
    assert!((best.time - cost(15.0)).abs() < 1e-12 && best.time < 1.0);
    assert!(cost(10.0) > best.time && cost(25.0) > best.time);
    assert_eq!(
        c.best_window(60.0, 15.0, 20.0).map(|b| (b.seconds, b.time)),
        Some((20.0, cost(20.0)))
    );
    assert_eq!(Components { trial: 0.0, ..c }.best_window(60.0, 15.0, 1.0), None);
}

/// 1 % between layouts against 2 % between trials: 20 blocks cover 60 %.
#[test]
fn a_layout_drawn_once_is_not_in_the_interval() {
    assert!((coverage(0.0, 0.02, 6).unwrap() - 0.95).abs() < 1e-9);
    assert!((coverage(0.01, 0.02, 20).unwrap() - 0.60).abs() < 0.005);
    assert_eq!(coverage(0.01, 0.02, 1), None);
    assert_eq!(coverage(0.01, 0.0, 6), None);
    let mut rng = SplitMix64::new(9);
    for (layout, blocks) in [(0.01, 20usize), (0.01, 6), (0.02, 10)] {
        let truth = coverage(layout, 0.02, blocks).unwrap();
        let covers = |_: &u32| {
            let constant = layout * (normal(&mut rng) - normal(&mut rng));
            let pairs: Vec<f64> = (0..blocks)
                .map(|_| constant + 0.02 * (normal(&mut rng) - normal(&mut rng)))
                .collect();
            let center = mean(&pairs).unwrap();
            let variance =
                pairs.iter().map(|p| (p - center).powi(2)).sum::<f64>() / (blocks - 1) as f64;
            let student = StudentsT::new(0.0, 1.0, (blocks - 1) as f64).unwrap();
            center.abs() <= student.inverse_cdf(0.975) * (variance / blocks as f64).sqrt()
        };
        let found = (0..4_000u32).filter(covers).count() as f64 / 4_000.0;
        assert!((found - truth).abs() < 0.025, "{layout} {blocks}: {found} {truth}");
    }
}
