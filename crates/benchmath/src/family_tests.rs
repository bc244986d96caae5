//! Tests that a family of one member is the signed-rank test, that decision and interval agree,
//! that false alarms are rare for any noise, and that large effects are detected among many
//! metrics.

use super::*;
use crate::holm;
use crate::power;
use crate::rng::SplitMix64;
use crate::rng::normal;
use crate::signed_rank;
use proptest::prelude::*;

const ALPHA: f64 = 0.05;

fn series(kind: usize, logs: &[f64]) -> Series {
    Series { kind, blocks: (1..).take(logs.len()).collect(), logs: logs.to_vec() }
}

fn decided(judged: &MemberResult) -> bool {
    judged.p <= ALPHA
}

#[test]
fn a_large_effect_is_detected_with_six_blocks_among_eight_others() {
    let mut rng = SplitMix64::new(1);
    let mut noise = |center: f64| -> Series {
        series(0, &(0..6).map(|_| center + 0.03 * normal(&mut rng)).collect::<Vec<_>>())
    };
    let mut all = vec![noise(-0.7)];
    all.extend((0..8).map(|_| noise(0.0)));
    let judged = judge(&all, ALPHA);
    assert_eq!(judged[0].p, 2.0 / 64.0);
    let (low, high) = judged[0].bounds.unwrap();
    assert!(low < -0.7 && -0.7 < high && high < -0.5, "{low} {high}");
    assert!(judged[1..].iter().all(|j| !decided(j)));
}

/// One condition has a metric that the others lack.
#[test]
fn a_large_effect_on_a_kind_of_its_own_is_detected_beside_other_kinds() {
    let mut rng = SplitMix64::new(2);
    let mut noise = |kind: usize| -> Series {
        series(kind, &(0..6).map(|_| 0.03 * normal(&mut rng)).collect::<Vec<_>>())
    };
    let mut all = vec![series(1, &[0.30, 0.31, 0.29, 0.30, 0.32, 0.30])];
    all.extend((0..5).map(|_| noise(0)));
    let judged = judge(&all, ALPHA);
    assert_eq!(judged[0].p, 2.0 / 64.0);
    let (low, high) = judged[0].bounds.unwrap();
    assert!(low > 0.2 && high < 0.4, "{low} {high}");
}

#[test]
fn missing_blocks_affect_only_their_member() {
    let whole = series(0, &[0.5, 0.52, 0.48, 0.51, 0.49, 0.5, 0.53, 0.5]);
    let part = Series {
        kind: 0,
        blocks: vec![2, 3, 5, 6, 7, 8],
        logs: vec![0.01, -0.02, 0.015, -0.005, 0.02, -0.01],
    };
    let judged = judge(&[part.clone(), whole, Series::default()], ALPHA);
    assert!(decided(&judged[1]) && !decided(&judged[0]));
    assert_eq!(judged[2], MemberResult { p: 1.0, bounds: None });
    let five = Series { blocks: vec![1, 2, 3, 4, 5], logs: vec![1.0; 5], ..part };
    assert_eq!(judge(&[five], ALPHA)[0].bounds, None);
}

#[test]
fn members_without_spread_or_effect_have_bounds() {
    let judged = judge(&[series(0, &[0.0; 6]), series(0, &[0.1; 6]), series(1, &[0.2; 6])], ALPHA);
    assert!(!decided(&judged[0]) && judged[0].bounds.unwrap().0 <= 0.0);
    assert!(decided(&judged[1]) && judged[1].bounds.unwrap().0 > 0.0, "{judged:?}");
}

fn noisy() -> impl Strategy<Value = Vec<Series>> {
    let member = (0usize..3, -0.5..0.5f64, prop::collection::vec(-1.0..1.0f64, 1..15)).prop_map(
        |(kind, center, noise)| {
            series(kind, &noise.iter().map(|n| center + 0.3 * n).collect::<Vec<_>>())
        },
    );
    prop::collection::vec(member, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn verdict_and_interval_agree(all in noisy()) {
        for (judged, series) in judge(&all, ALPHA).iter().zip(&all) {
            let own = signed_rank::test(&series.logs, ALPHA).unwrap();
            prop_assert!(judged.p >= own.p);
            prop_assert_eq!(judged.bounds.is_some(), own.bounds.is_some());
            if let (Some((low, high)), Some((own_low, own_high))) = (judged.bounds, own.bounds) {
                prop_assert_eq!(decided(judged), low > 0.0 || high < 0.0);
                prop_assert!(low <= own_low && own_high <= high);
            }
        }
    }

    /// With many blocks, the share of the others is added to the member's own p.
    #[test]
    fn verdict_and_interval_agree_with_many_blocks(
        center in -0.1..0.1f64,
        noise in prop::collection::vec(prop::collection::vec(-1.0..1.0f64, 101..130), 2..5),
    ) {
        let member = |noise: &Vec<f64>| {
            series(0, &noise.iter().map(|n| center + 0.3 * n).collect::<Vec<_>>())
        };
        let all: Vec<Series> = noise.iter().map(member).collect();
        for (judged, series) in judge(&all, ALPHA).iter().zip(&all) {
            let own = signed_rank::test(&series.logs, ALPHA).unwrap();
            let ((low, high), (own_low, own_high)) = (judged.bounds.unwrap(), own.bounds.unwrap());
            prop_assert!(judged.p >= own.p);
            prop_assert_eq!(decided(judged), low > 0.0 || high < 0.0);
            prop_assert!(low <= own_low && own_high <= high);
            prop_assert!(high - low < 1.6 * (own_high - own_low), "{low} {high}");
        }
    }

    #[test]
    fn a_family_of_one_is_the_signed_rank_test(logs in prop::collection::vec(-1.0..2.0f64, 1..20)) {
        let own = signed_rank::test(&logs, ALPHA).unwrap();
        let judged = judge(&[series(0, &logs)], ALPHA)[0];
        prop_assert_eq!((judged.p, judged.bounds), (own.p, own.bounds));
    }

    /// The denominator of a ratio and the numbers of the blocks are arbitrary, also where log-ratios are 0.
    #[test]
    fn inverting_the_ratios_or_renumbering_the_blocks_changes_no_p(
        all in prop::collection::vec(prop::collection::vec(-3..6i32, 8..11), 2..5),
    ) {
        let with = |sign: f64, number: fn(u32) -> u32| -> Vec<f64> {
            let member = |values: &Vec<i32>| Series {
                kind: 0,
                blocks: (1..).take(values.len()).map(number).collect(),
                logs: values.iter().map(|v| sign * f64::from(*v) / 16.0).collect(),
            };
            judge(&all.iter().map(member).collect::<Vec<_>>(), ALPHA).iter().map(|j| j.p).collect()
        };
        let p = with(1.0, |block| block);
        prop_assert_eq!(&p, &with(-1.0, |block| block), "inverted");
        prop_assert_eq!(&p, &with(1.0, |block| 100 - block), "in reverse order");
        prop_assert_eq!(&p, &with(1.0, |block| block * 7 % 11), "in another order");
    }

    #[test]
    fn the_order_of_members_does_not_matter(all in noisy()) {
        let mut mirrored = all.clone();
        mirrored.reverse();
        let mut back = judge(&mirrored, ALPHA);
        back.reverse();
        for (there, back) in judge(&all, ALPHA).iter().zip(&back) {
            prop_assert!((there.p - back.p).abs() < 1e-12);
        }
    }
}

type Noise = fn(&mut SplitMix64) -> f64;

const NOISES: [(&str, Noise); 4] = [
    ("normal", normal),
    ("exponential", |rng| -(1.0 - rng.next_f64()).ln()),
    ("log-normal", |rng| normal(rng).exp()),
    ("stalls", |rng| 0.02 * normal(rng) - if rng.next_f64() < 0.15 { 0.5 } else { 0.0 }),
];

/// Equal conditions, each compared with the same baseline.
fn equal_conditions(
    rng: &mut SplitMix64,
    conditions: usize,
    n: usize,
    noise: Noise,
) -> Vec<Series> {
    let baseline: Vec<f64> = (0..n).map(|_| noise(rng)).collect();
    let against = |rng: &mut SplitMix64| {
        series(0, &baseline.iter().map(|b| noise(rng) - b).collect::<Vec<_>>())
    };
    (0..conditions).map(|_| against(rng)).collect()
}

/// At most 5 % of experiments (plus simulation error) have a false alarm, while unadjusted tests
/// would raise one in up to 28 %. With 6,000 experiments of three and seven conditions and ten
/// blocks: 4.5 and 4.6 % with normal noise, 4.7 and 4.9 % with exponential noise. With noise as
/// skewed as log-normal, joint symmetry fails and the rate is one percentage point higher.
#[test]
fn false_alarms_of_a_family_stay_below_the_level() {
    let experiments = 400u32;
    let mut rng = SplitMix64::new(7);
    for (name, noise) in NOISES {
        for (conditions, n) in [(2, 6), (3, 10), (7, 10), (3, 110)] {
            let mut alarms = (0, 0);
            // Fewer if each takes long.
            let experiments = if n > 100 { experiments / 2 } else { experiments };
            for _ in 0..experiments {
                let all = equal_conditions(&mut rng, conditions, n, noise);
                alarms.0 += u32::from(adjusted(&all).iter().any(|p| *p <= ALPHA));
                alarms.1 += u32::from(all.iter().any(|s| own_p(s) <= ALPHA));
            }
            let skewed = if name == "log-normal" { 0.01 } else { 0.0 };
            let limit = 0.05 + skewed + 2.5 * (0.05 * 0.95 / f64::from(experiments)).sqrt();
            let share = |n: u32| f64::from(n) / f64::from(experiments);
            println!("{name} {conditions} {n}: {} unadjusted {}", share(alarms.0), share(alarms.1));
            assert!(share(alarms.0) <= limit, "{name} {conditions} {n}: {alarms:?}");
            assert!(conditions < 7 || share(alarms.1) > 0.1, "{name}: {alarms:?}");
        }
    }
}

/// Adjusted p values without the intervals, which take most of the time.
fn adjusted(all: &[Series]) -> Vec<f64> {
    let members = members(all);
    let mut adjusted = vec![1.0; members.len()];
    step_down(all, &members, ALPHA, |i, p, _, _| adjusted[i] = p);
    adjusted
}

fn own_p(series: &Series) -> f64 {
    signed_rank::test(&series.logs, ALPHA).unwrap().p
}

/// Each interval covers the truth in 95 % of experiments, and all intervals together in 93 %: after
/// large effects are detected, stepping down uses the 5 % again for the remaining decisions (see
/// the methodology).
#[test]
fn intervals_cover_simultaneously() {
    let experiments = 600u32;
    let mut rng = SplitMix64::new(8);
    let truths = [0.0, -0.05, 0.2];
    let mut held = [0u32; 4];
    for _ in 0..experiments {
        let mut all = equal_conditions(&mut rng, 3, 8, |rng| 0.05 * normal(rng));
        for (s, truth) in all.iter_mut().zip(truths) {
            s.logs.iter_mut().for_each(|d| *d += truth);
        }
        let judged = judge(&all, ALPHA);
        let holds: Vec<bool> = judged
            .iter()
            .zip(truths)
            .map(|(j, truth)| j.bounds.is_some_and(|(low, high)| low <= truth && truth <= high))
            .collect();
        (0..3).for_each(|i| held[i] += u32::from(holds[i]));
        held[3] += u32::from(holds.iter().all(|h| *h));
    }
    let share = held.map(|h| f64::from(h) / f64::from(experiments));
    println!("{share:?}");
    let error = 2.5 * (0.05f64 * 0.95 / f64::from(experiments)).sqrt();
    assert!(share[..3].iter().all(|s| *s >= 0.95 - error), "{share:?}");
    assert!(share[3] >= 0.93 - error, "{share:?}");
}

/// Forty metrics of one condition with six blocks; fifteen of them change by 30 %. Holm's method
/// detects none.
#[test]
fn large_effects_are_detected_among_many_metrics() {
    let experiments = 100;
    let mut rng = SplitMix64::new(9);
    let (mut found, mut alarms, mut holm_found) = (0, 0, 0);
    for _ in 0..experiments {
        let all: Vec<Series> = (0..40)
            .map(|metric| {
                let effect = if metric < 15 { 0.3 } else { 0.0 };
                let logs: Vec<f64> = (0..6).map(|_| effect + 0.03 * normal(&mut rng)).collect();
                series(metric, &logs)
            })
            .collect();
        let p = adjusted(&all);
        found += p[..15].iter().filter(|p| **p <= ALPHA).count();
        alarms += usize::from(p[15..].iter().any(|p| *p <= ALPHA));
        let own: Vec<f64> = all.iter().map(own_p).collect();
        holm_found += holm::adjust(&own).iter().filter(|p| **p <= ALPHA).count();
    }
    let power = found as f64 / (15 * experiments) as f64;
    println!("power {power}, experiments with a false alarm {alarms} of {experiments}");
    assert!(power > 0.9 && alarms <= 10 && holm_found == 0, "{power} {alarms} {holm_found}");
}

/// Four comparisons with noise of 0.5 % in each trial: the twin, effects of -10 % and -3 %, and one member with noise
/// of 50 %. Shares of experiments that find the two effects, each with an interval narrower than 6 %.
fn found_beside_noise(blocks: usize) -> [f64; 2] {
    let experiments = 200;
    let mut rng = SplitMix64::new(11);
    let mut found = [0u32; 2];
    for _ in 0..experiments {
        let baseline: Vec<f64> = (0..blocks).map(|_| 0.005 * normal(&mut rng)).collect();
        let mut member = |center: f64, noise: f64| {
            series(
                0,
                &baseline.iter().map(|b| center + noise * normal(&mut rng) - b).collect::<Vec<_>>(),
            )
        };
        let all =
            [member(-0.105, 0.005), member(-0.03, 0.005), member(0.0, 0.005), member(0.0, 0.5)];
        for (found, judged) in found.iter_mut().zip(judge(&all, ALPHA)) {
            let is_narrow = judged.bounds.is_some_and(|(low, high)| high - low < 0.06);
            *found += u32::from(decided(&judged) && is_narrow);
        }
    }
    found.map(|n| f64::from(n) / f64::from(experiments))
}

/// With six blocks p ties, sizes decide, and the noisy member has the largest.
#[test]
fn a_noisy_neighbor_is_harmless_with_enough_blocks() {
    let enough = power::blocks_without_ties(ALPHA, 4);
    let found = found_beside_noise(enough);
    assert!(enough == 8 && found.iter().all(|share| *share > 0.95), "{enough} {found:?}");
    let few = found_beside_noise(6);
    assert!(few[0] < 0.05, "{few:?}");
}

#[test]
fn the_member_in_the_way_of_another_is_named() {
    let quiet = |center: f64| {
        series(0, &[0.004, -0.002, 0.001, -0.003, 0.002, 0.0].map(|noise| center + noise))
    };
    let wild = series(0, &[0.6, -0.4, 0.9, 0.5, -0.7, 0.3]);
    let all = [quiet(-0.1), quiet(0.0), wild, quiet(-0.03)];
    let p = |all: &[Series]| judge(all, ALPHA)[0].p;
    assert!(p(&all) > ALPHA && p(&[all[0].clone(), all[1].clone(), all[3].clone()]) <= ALPHA);
    assert_eq!((in_the_way(&all, 0, ALPHA), in_the_way(&all, 3, ALPHA)), (Some(2), Some(2)));
    // No other member keeps this one from being told from 0.
    assert_eq!(in_the_way(&all, 1, ALPHA), None);
}

/// Ties that are lost cost power: in 600 experiments each, 0.81 remained with two members, 0.79 with three, 0.76 with
/// ten and 0.72 with 31.
#[test]
fn the_planned_power_is_nearly_reached_where_sizes_break_ties() {
    let experiments = 400;
    for (members, blocks, least) in [(3, 6, 0.74), (31, 6, 0.65), (4, 8, 0.77), (10, 9, 0.72)] {
        let change =
            power::minimum_detectable_in_family(1.0, blocks, 0.05, members, power::PLANNED_POWER);
        let effect = change.unwrap().ln_1p();
        let mut rng = SplitMix64::new(members as u64);
        let detected = (0..experiments).filter(|_| {
            let baseline: Vec<f64> = (0..blocks).map(|_| normal(&mut rng)).collect();
            let all: Vec<Series> = (0..members)
                .map(|member| {
                    let shift = if member == 0 { effect } else { 0.0 };
                    let log = |base: &f64| shift + (normal(&mut rng) - base) / 2f64.sqrt();
                    let logs: Vec<f64> = baseline.iter().map(log).collect();
                    series(0, &logs)
                })
                .collect();
            decided(&judge(&all, 0.05)[0])
        });
        let found = detected.count() as f64 / f64::from(experiments);
        // Three standard errors are 0.06 to 0.07.
        assert!((least..0.9).contains(&found), "{members} members: {found}");
    }
}
