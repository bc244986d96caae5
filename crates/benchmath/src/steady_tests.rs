//! Tests known answers, properties of any series, and the rate of false alarms.

use proptest::prelude::*;

use super::*;
use crate::rng::{SplitMix64, normal};

/// Annual flow of the Nile at Aswan from 1871 on, R's `Nile`: the textbook change point is 1898.
const NILE: [f64; 100] = [
    1120.0, 1160.0, 963.0, 1210.0, 1160.0, 1160.0, 813.0, 1230.0, 1370.0, 1140.0, 995.0, 935.0,
    1110.0, 994.0, 1020.0, 960.0, 1180.0, 799.0, 958.0, 1140.0, 1100.0, 1210.0, 1150.0, 1250.0,
    1260.0, 1220.0, 1030.0, 1100.0, 774.0, 840.0, 874.0, 694.0, 940.0, 833.0, 701.0, 916.0, 692.0,
    1020.0, 1050.0, 969.0, 831.0, 726.0, 456.0, 824.0, 702.0, 1120.0, 1100.0, 832.0, 764.0, 821.0,
    768.0, 845.0, 864.0, 862.0, 698.0, 845.0, 744.0, 796.0, 1040.0, 759.0, 781.0, 865.0, 845.0,
    944.0, 984.0, 897.0, 822.0, 1010.0, 771.0, 676.0, 649.0, 846.0, 812.0, 742.0, 801.0, 1040.0,
    860.0, 874.0, 848.0, 890.0, 744.0, 749.0, 838.0, 1050.0, 918.0, 986.0, 797.0, 923.0, 975.0,
    815.0, 1020.0, 906.0, 901.0, 1170.0, 912.0, 746.0, 919.0, 718.0, 714.0, 740.0,
];

fn rising(n: u32) -> Vec<f64> {
    (0..n).map(|i| 100.0 + f64::from(i)).collect()
}

/// Autocorrelated noise: each value contains `memory` times the previous one.
fn noise(n: usize, memory: f64, rng: &mut SplitMix64) -> Vec<f64> {
    let mut last = normal(rng) / (1.0 - memory * memory).sqrt();
    let mut next = || {
        last = memory * last + normal(rng);
        last
    };
    (0..n).map(|_| 100.0 + next()).collect()
}

#[test]
fn the_nile_changed_in_1898() {
    let shift = judge(&NILE).unwrap().shift;
    assert_eq!(1870 + shift.at, 1898, "the last year before the change");
    assert!(shift.p < 1e-4, "{}", shift.p);
    assert_eq!(summary::mean(&NILE[..shift.at]), Some(1097.75), "as published");
}

/// By the published formulas: ten rising values have S = 45, Var(S) = 125.
#[test]
fn mann_kendall_of_a_rise() {
    let values = rising(10);
    assert_eq!((mann_kendall(&values), mann_kendall_variance(&values)), (45.0, 125.0));
    assert!((two_sided(44.0 / 125f64.sqrt()) - 8.303e-5).abs() < 1e-8);
    // Two ties of two: each takes 2 * 1 * 9 / 18 = 1 from 8 * 7 * 21 / 18.
    let tied = [1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 5.0, 6.0];
    assert_eq!(mann_kendall(&tied), 26.0);
    assert!((mann_kendall_variance(&tied) - (196.0 / 3.0 - 2.0)).abs() < 1e-12);
}

#[test]
fn theil_sen_is_robust_against_an_outlier() {
    let mut values = rising(11);
    values[3] = 1e6;
    assert_eq!(theil_sen(&values), 1.0);
    let trend = judge(&values).unwrap().trend;
    assert!((trend.change.unwrap() - 10.0 / 106.0).abs() < 1e-9, "{trend:?}");
}

#[test]
fn pettitt_finds_a_step_and_its_statistic() {
    let values: Vec<f64> = (0..20).map(|i| if i < 8 { 10.0 } else { 5.0 }).collect();
    // All 8 × 12 pairs agree.
    assert_eq!(pettitt(&values), (8, 96.0));
    assert_eq!(judge(&values).unwrap().shift.change, Some(-0.5));
}

#[test]
fn the_effective_size_follows_bayley_and_hammersley() {
    // An alternating series has no positive autocorrelation; a smooth wave has much.
    let alternating: Vec<f64> = (0..40).map(|i| f64::from(i % 2)).collect();
    assert_eq!(effective_size(&alternating), 40.0);
    let wave: Vec<f64> = (0..100).map(|i| (f64::from(i) / 8.0).sin()).collect();
    let effective = effective_size(&wave);
    assert!((5.0..9.0).contains(&effective), "{effective}");
}

#[test]
fn a_short_series_is_an_error() {
    assert_eq!(judge(&[1.0; 7]), Err(TooShort { points: 7 }));
    let text = TooShort { points: 7 }.to_string();
    assert_eq!(text, "7 points are too few to judge; lengthen the window to at least 8");
    assert!(judge(&[1.0; 8]).is_ok());
}

#[test]
fn a_constant_series_is_steady_and_zero_has_no_relative_change() {
    let level = judge(&[5.0; 30]).unwrap();
    assert_eq!((level.trend.p, level.trend.change, level.shift.p), (1.0, Some(0.0), 1.0));
    let nothing = judge(&[0.0; 30]).unwrap();
    assert_eq!((nothing.trend.change, nothing.shift.change), (None, None));
}

/// Rate of false alarms of each test at the 5 % level.
fn alarms(n: usize, memory: f64) -> (f64, f64) {
    let mut rng = SplitMix64::new(n as u64);
    let (mut trends, mut shifts) = (0, 0);
    const SERIES: i32 = 1000;
    for _ in 0..SERIES {
        let found = judge(&noise(n, memory, &mut rng)).unwrap();
        trends += i32::from(found.trend.p <= 0.05);
        shifts += i32::from(found.shift.p <= 0.05);
    }
    (f64::from(trends) / f64::from(SERIES), f64::from(shifts) / f64::from(SERIES))
}

#[test]
fn autocorrelated_seconds_raise_few_false_alarms() {
    for (n, memory, most) in [
        (9, 0.0, 0.05),
        (30, 0.0, 0.05),
        (60, 0.0, 0.06),
        (30, 0.5, 0.10),
        (60, 0.5, 0.10),
        (60, 0.7, 0.12),
    ] {
        let (trends, shifts) = alarms(n, memory);
        assert!(
            trends <= most && shifts <= most,
            "{n} points, memory {memory}: {trends}, {shifts}"
        );
    }
}

/// An episode is judged at a fifth of the level, and trend and step at two fifths each. The measure are the two
/// tests that use ranks alone, each at one half.
#[test]
fn all_tests_raise_no_more_false_alarms_than_two_of_ranks() {
    const LEVEL: f64 = 0.01;
    for (n, memory) in [(9, 0.3), (16, 0.5), (30, 0.0), (30, 0.5), (30, 0.7), (60, 0.5)] {
        let mut rng = SplitMix64::new(n as u64);
        let (mut two, mut three) = (0, 0);
        for _ in 0..1500 {
            let mut values = noise(n, memory, &mut rng);
            // 5 % of the level.
            let scale = 0.05 * (1.0 - memory * memory).sqrt();
            values.iter_mut().for_each(|v| *v = 100.0 * ((*v - 100.0) * scale).exp());
            let found = judge(&values).unwrap();
            let ranks = by_ranks(&values).p.min(found.trend.p);
            let either = found.trend.p.min(found.shift.p) <= LEVEL * 0.4;
            let episode = found.episode.is_some_and(|e| e.p <= LEVEL / 5.0);
            two += i32::from(ranks <= LEVEL / 2.0);
            three += i32::from(either || episode);
        }
        assert!(three <= two + 2, "{n} points, memory {memory}: {three}, {two}");
    }
}

#[test]
fn trends_and_steps_are_detected() {
    let mut rng = SplitMix64::new(1);
    let (mut trends, mut shifts) = (0, 0);
    for _ in 0..200 {
        let mut falling = noise(30, 0.3, &mut rng);
        for (i, v) in (0..).zip(&mut falling) {
            *v -= 6.0 * f64::from(i) / 29.0;
        }
        trends += i32::from(judge(&falling).unwrap().trend.p <= 0.05);
        let mut stepped = noise(60, 0.3, &mut rng);
        stepped[..25].iter_mut().for_each(|v| *v -= 4.0);
        shifts += i32::from(judge(&stepped).unwrap().shift.p <= 0.05);
    }
    assert!(trends >= 180 && shifts >= 180, "{trends}, {shifts}");
}

/// Updates in each second of a window in which, from half of it on, each took four times as long. The order of the
/// values is no evidence: before the step they resemble their neighbors too much.
#[test]
fn a_step_is_found_in_strongly_autocorrelated_rates() {
    let before = [
        375.0, 360.0, 347.0, 332.0, 327.0, 321.0, 336.0, 338.0, 390.0, 385.0, 386.0, 376.0, 347.0,
        345.0, 387.0, 380.0, 380.0, 375.0, 364.0, 363.0, 365.0, 365.0, 383.0, 368.0, 369.0, 364.0,
        354.0, 351.0, 332.0, 325.0,
    ];
    let after = [
        116.0, 97.0, 97.0, 98.0, 96.0, 97.0, 98.0, 96.0, 98.0, 96.0, 98.0, 98.0, 96.0, 96.0, 97.0,
        99.0, 97.0, 98.0, 96.0, 98.0, 99.0, 97.0, 97.0, 97.0, 97.0, 96.0, 98.0, 97.0, 95.0, 96.0,
    ];
    for seconds in [30, 10] {
        let shift = judge(&[&before[..], &after[..seconds]].concat()).unwrap().shift;
        assert!(shift.at == 30 && shift.p < 1e-3, "{shift:?}");
    }
}

/// A speed that wanders slowly by some per cent, and falls to a third.
#[test]
fn a_large_step_is_found_where_neighbors_depend_on_each_other() {
    let mut rng = SplitMix64::new(7);
    let found = |_: &u32| {
        let mut values = noise(60, 0.9, &mut rng);
        values[30..].iter_mut().for_each(|v| *v *= 0.3);
        judge(&values).unwrap().shift.p <= 0.004
    };
    let share = (0..300u32).filter(found).count();
    assert!(share >= 290, "{share} of 300");
}

proptest! {
    /// The unit does not matter, and reversing the series reverses the trend.
    #[test]
    fn units_do_not_matter_and_reversal_negates_the_trend(
        values in prop::collection::vec(1u32..1000, 8..60),
        unit in 1u32..1000,
    ) {
        let values: Vec<f64> = values.into_iter().map(f64::from).collect();
        let scaled: Vec<f64> = values.iter().map(|v| v * f64::from(unit)).collect();
        let (a, b) = (judge(&values).unwrap(), judge(&scaled).unwrap());
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + a.abs());
        prop_assert!(near(a.trend.p, b.trend.p) && near(a.shift.p, b.shift.p));
        prop_assert!(near(a.trend.slope * f64::from(unit), b.trend.slope));
        prop_assert_eq!(a.shift.at, b.shift.at);
        let mut backwards = values.clone();
        backwards.reverse();
        let c = judge(&backwards).unwrap();
        prop_assert!(near(a.trend.slope, -c.trend.slope));
        prop_assert!(near(a.trend.p, c.trend.p));
        // If two change points are equally likely, the first is returned, so only the statistic is the
        // same.
        prop_assert_eq!(pettitt(&values).1, pettitt(&backwards).1);
    }

    #[test]
    fn probabilities_and_change_point_are_in_range(
        values in prop::collection::vec(0.0f64..1e9, 8..80)
    ) {
        let found = judge(&values).unwrap();
        let episode = found.episode.map_or(1.0, |e| e.p);
        for p in [found.trend.p, found.shift.p, episode] {
            prop_assert!((0.0..=1.0).contains(&p), "{}", p);
        }
        if let Some(episode) = found.episode {
            prop_assert!(episode.from >= 2 && episode.to + 2 <= values.len());
            prop_assert!(episode.from + 3 <= episode.to);
        }
        prop_assert!((1..values.len()).contains(&found.shift.at));
        prop_assert!(found.trend.effective_points <= values.len() as f64 + 1e-9);
        prop_assert!(found.shift.effective_points >= 1.0 - 1e-9);
    }
}

/// Noise of 5 % around 100, of which each value contains `memory` times the previous one.
fn wide_noise(n: usize, memory: f64, rng: &mut SplitMix64) -> Vec<f64> {
    let mut last = 5.0 * normal(rng);
    let mut next = || {
        last = memory * last + 5.0 * (1.0 - memory * memory).sqrt() * normal(rng);
        100.0 + last
    };
    (0..n).map(|_| next()).collect()
}

fn with_drop(mut values: Vec<f64>, from: usize, to: usize, left: f64) -> Vec<f64> {
    values[from..to].iter_mut().for_each(|v| *v *= left);
    values
}

#[test]
fn an_episode_has_its_ends_and_its_size() {
    let mut rng = SplitMix64::new(1);
    let found = clearest(&with_drop(wide_noise(60, 0.0, &mut rng), 20, 40, 0.7)).unwrap();
    assert_eq!((found.from, found.to), (20, 40));
    assert!((found.change + 0.3).abs() < 0.03 && found.p < 1e-6, "{found:?}");
    // Without any scatter, and down to nothing.
    let found = clearest(&with_drop(vec![100.0; 20], 5, 9, 0.0)).unwrap();
    assert_eq!((found.from, found.to), (5, 9));
    assert!(found.p < 1e-9, "{found:?}");
    assert_eq!(clearest(&[0.0; 20]), None);
    assert_eq!(clearest(&[5.0; 20]), None);
}

#[test]
fn drops_that_recover_are_found() {
    for (n, from, to, left, memory, least) in [
        (30, 8, 22, 0.2, 0.3, 0.95),
        (30, 8, 22, 0.2, 0.6, 0.85),
        (30, 14, 28, 0.2, 0.3, 0.90),
        (60, 20, 40, 0.8, 0.3, 0.90),
    ] {
        let mut rng = SplitMix64::new(3);
        let is_found = |_: &i32| {
            let values = with_drop(wide_noise(n, memory, &mut rng), from, to, left);
            clearest(&values).is_some_and(|e| e.p <= 0.002)
        };
        let found = f64::from((0..300).filter(is_found).count() as u32) / 300.0;
        assert!(found >= least, "{n}, {from} to {to}, {left}, memory {memory}: {found}");
    }
}

#[test]
fn a_step_a_trend_and_outliers_are_no_episodes() {
    let mut rng = SplitMix64::new(5);
    let mut accused = [0; 3];
    for _ in 0..200 {
        let step = with_drop(wide_noise(30, 0.3, &mut rng), 14, 30, 0.5);
        let mut trend = wide_noise(30, 0.3, &mut rng);
        (0..).zip(&mut trend).for_each(|(i, v)| *v -= 2.0 * f64::from(i));
        let outliers = with_drop(wide_noise(30, 0.3, &mut rng), 11, 13, 0.1);
        for (count, values) in accused.iter_mut().zip([step, trend, outliers]) {
            *count += i32::from(clearest(&values).is_some_and(|e| e.p <= 0.002));
        }
    }
    // Two outliers beside a low value are three low values.
    assert!(accused.iter().all(|count| *count <= 4), "{accused:?} of 200");
}
