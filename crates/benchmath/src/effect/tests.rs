//! Tests the decisions in simple cases, and the symmetries of a comparison.

use super::*;
use proptest::prelude::*;

const ALPHA: f64 = 0.05;

fn compared(condition: &[f64], baseline: &[f64]) -> Comparison {
    compare(Paired::new(condition, baseline).unwrap(), ALPHA)
}

fn scaled(values: &[f64], factor: f64) -> Vec<f64> {
    values.iter().map(|v| v * factor).collect()
}

fn near(got: Option<f64>, wanted: f64) -> bool {
    got.is_some_and(|g| (g / wanted - 1.0).abs() < 1e-8)
}

const BASELINE: [f64; 6] = [1000.0, 1040.0, 990.0, 1010.0, 1025.0, 980.0];

#[test]
fn half_the_rate_is_below() {
    let condition = [510.0, 515.0, 500.0, 490.0, 520.0, 485.0];
    let result = compared(&condition, &BASELINE);
    assert_eq!((result.decision, result.blocks, result.p), (Decision::Below, 6, Some(0.03125)));
    assert!(near(result.low, 490.0 / 1010.0) && near(result.high, 510.0 / 1000.0));
    assert!((result.ratio.unwrap() - 0.5).abs() < 0.01);
    assert_eq!((result.difference_low, result.difference_high), (Some(-525.0), Some(-490.0)));
    assert_eq!((result.logs.len(), result.warnings), (6, vec![]));
}

#[test]
fn noise_is_no_difference() {
    let condition = [1020.0, 1000.0, 1004.0, 1003.0, 1010.0, 1001.0];
    let result = compared(&condition, &BASELINE);
    assert_eq!(result.decision, Decision::NoDifference);
    assert!(result.low.unwrap() < 1.0 && result.high.unwrap() > 1.0);
}

#[test]
fn identical_arms_are_no_difference() {
    let result = compared(&BASELINE, &BASELINE);
    assert_eq!(
        (result.decision, result.ratio, result.p),
        (Decision::NoDifference, Some(1.0), Some(1.0))
    );
    assert_eq!((result.low, result.high), (Some(1.0), Some(1.0)));
    assert_eq!(result.warnings, [Warning::NoSpread]);
}

#[test]
fn equal_ratios_in_all_blocks_are_decided() {
    let result = compared(&scaled(&BASELINE, 1.1), &BASELINE);
    assert_eq!(
        (result.decision, result.p, result.sd_log),
        (Decision::Above, Some(0.03125), Some(0.0))
    );
    assert_eq!(result.low, result.high);
    assert_eq!(result.warnings, [Warning::NoSpread]);
}

#[test]
fn too_few_blocks_have_a_ratio_and_no_interval() {
    let result = compared(&[50.0, 51.0, 49.0], &[100.0, 100.0, 100.0]);
    assert_eq!((result.decision, result.p), (Decision::TooFewBlocks, Some(0.25)));
    assert!((result.ratio.unwrap() - 0.5).abs() < 1e-3);
    assert_eq!((result.low, result.high, result.difference_low), (None, None, None));
    assert_eq!(result.warnings, [Warning::TooFewBlocks { blocks: 3, fewest: 6 }]);

    let one = compared(&[50.0], &[100.0]);
    assert_eq!((one.decision, one.sd_log), (Decision::TooFewBlocks, None));
    let none = compared(&[], &[]);
    assert_eq!((none.decision, none.ratio, none.p), (Decision::TooFewBlocks, None, None));
    assert_eq!(none.difference, None);
}

#[test]
fn zero_has_no_ratio_but_a_difference() {
    let against_nothing = compared(&[3.0, 4.0, 5.0, 4.0, 3.0, 4.0], &[0.0; 6]);
    assert_eq!(against_nothing.decision, Decision::NotApplicable);
    assert_eq!((against_nothing.ratio, against_nothing.p), (None, None));
    assert_eq!(against_nothing.difference, Some(4.0));
    assert_eq!(against_nothing.difference_low, Some(3.0));
    let warning = Warning::NotPositive { block: 1, condition: 3.0, baseline: 0.0 };
    assert_eq!(against_nothing.warnings, [warning]);

    let once_nothing = compared(&[3.0, 4.0, 0.0, 4.0, 3.0, 4.0], &[1.0; 6]);
    assert_eq!(once_nothing.decision, Decision::NotApplicable);
    assert!(once_nothing.difference.is_some() && once_nothing.logs.is_empty());
    assert_eq!(compared(&[-1.0], &[1.0]).decision, Decision::NotApplicable);
    assert_eq!(compared(&[0.0], &[0.0]).decision, Decision::NotApplicable);
}

#[test]
fn a_value_that_is_not_finite_has_no_ratio_and_no_difference() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let result = compared(&[1.0, bad], &[1.0, 1.0]);
        assert_eq!((result.decision, result.difference), (Decision::NotApplicable, None));
        assert_eq!(result.warnings, [Warning::NotFinite { block: 2 }]);
    }
}

#[test]
fn one_outlier_block_is_reported_and_does_not_change_the_decision() {
    let mut condition = scaled(&BASELINE, 1.2);
    for (k, value) in condition.iter_mut().enumerate() {
        *value *= 1.0 + 0.01 * k as f64;
    }
    condition[3] *= 9.0;
    let result = compared(&condition, &BASELINE);
    assert_eq!(result.decision, Decision::Above);
    assert!(result.ratio.unwrap() < 1.3);
    assert_eq!(result.warnings, [Warning::OutlierBlock { block: 4 }]);
}

#[test]
fn ties_are_ties_in_any_unit() {
    // ln(4/3) + ln(6/8) is 0, but floats differ in the last bits.
    let (condition, baseline) = ([4.0, 6.0, 4.0, 6.0, 4.0, 6.0], [3.0, 8.0, 3.0, 8.0, 3.0, 8.0]);
    let p = compared(&condition, &baseline).p;
    assert_eq!(p, Some(1.0));
    for factor in [0.1, 1.0 / 3.0, 1e-3, 7.7e9] {
        let result = compared(&scaled(&condition, factor), &scaled(&baseline, factor));
        assert_eq!((result.p, result.ratio), (p, Some(1.0)));
    }
}

#[test]
fn incomplete_blocks_are_refused() {
    let refused = Paired::new(&[1.0, 2.0], &[1.0]).unwrap_err();
    assert_eq!(refused, LengthsDiffer { condition: 2, baseline: 1 });
}

/// Realistic rates, or small counts with ties; with or without an effect.
fn pairs() -> impl Strategy<Value = (Vec<f64>, Vec<f64>)> {
    let smooth = prop::collection::vec((500.0..2000.0f64, 500.0..2000.0f64), 1..16);
    let counts = prop::collection::vec((1..9i32, 1..9i32), 1..16)
        .prop_map(|v| v.into_iter().map(|(a, b)| (f64::from(a), f64::from(b))).collect());
    (prop_oneof![smooth, counts], prop_oneof![Just(1.0), 0.3..3.0f64]).prop_map(
        |(pairs, effect): (Vec<(f64, f64)>, f64)| {
            pairs.into_iter().map(|(c, b)| (c * effect, b)).unzip()
        },
    )
}

proptest! {
    #[test]
    fn exchanging_condition_and_baseline_inverts_the_effect((condition, baseline) in pairs()) {
        let there = compared(&condition, &baseline);
        let back = compared(&baseline, &condition);
        prop_assert!(near(there.ratio, 1.0 / back.ratio.unwrap()));
        prop_assert_eq!(there.low.is_some(), back.high.is_some());
        if let (Some(low), Some(high)) = (back.low, back.high) {
            prop_assert!(near(there.low, 1.0 / high) && near(there.high, 1.0 / low));
        }
        prop_assert_eq!(there.p, back.p);
        let mirrored = match back.decision {
            Decision::Above => Decision::Below,
            Decision::Below => Decision::Above,
            same => same,
        };
        prop_assert_eq!(there.decision, mirrored);
        prop_assert_eq!(there.difference, back.difference.map(|d| -d));
        prop_assert_eq!(there.difference_low, back.difference_high.map(|d| -d));
    }

    #[test]
    fn the_unit_does_not_matter((condition, baseline) in pairs(), factor in 1e-3..1e3f64) {
        let there = compared(&condition, &baseline);
        let other = compared(&scaled(&condition, factor), &scaled(&baseline, factor));
        prop_assert!(near(other.ratio, there.ratio.unwrap()));
        prop_assert_eq!((other.p, other.decision), (there.p, there.decision));
        if let (Some(low), Some(high)) = (there.low, there.high) {
            prop_assert!(near(other.low, low) && near(other.high, high));
        }
        let unit = (there.difference.unwrap() * factor - other.difference.unwrap()).abs();
        prop_assert!(unit <= 1e-9 * factor * 6000.0);
    }

    #[test]
    fn verdict_p_and_interval_agree((condition, baseline) in pairs(), alpha in 0.001..0.6f64) {
        let result = compare(Paired::new(&condition, &baseline).unwrap(), alpha);
        let decided = matches!(result.decision, Decision::Above | Decision::Below);
        prop_assert_eq!(result.p.unwrap() <= alpha, decided);
        if let (Some(low), Some(high)) = (result.low, result.high) {
            let ratio = result.ratio.unwrap();
            prop_assert!(low <= ratio && ratio <= high);
            prop_assert_eq!(low > 1.0, result.decision == Decision::Above);
            prop_assert_eq!(high < 1.0, result.decision == Decision::Below);
            let difference = result.difference.unwrap();
            prop_assert!(result.difference_low.unwrap() <= difference);
            prop_assert!(difference <= result.difference_high.unwrap());
        } else {
            prop_assert_eq!(result.decision, Decision::TooFewBlocks);
        }
    }
}

/// Six blocks of which all differences are positive: the smallest p that six blocks can have.
#[test]
fn values_of_zero_are_compared_by_their_difference() {
    let condition = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let found = compare_differences(Paired::new(&condition, &[0.0; 6]).unwrap(), 0.05);
    assert_eq!((found.decision, found.p), (Decision::Above, Some(2.0 / 64.0)));
    assert_eq!((found.ratio, found.difference), (None, Some(3.5)));
    assert_eq!((found.difference_low, found.difference_high), (Some(1.0), Some(6.0)));
    assert_eq!(found.logs, condition);
    let few = compare_differences(Paired::new(&[1.0], &[0.0]).unwrap(), 0.05);
    assert_eq!((few.decision, few.difference_low), (Decision::TooFewBlocks, None));
}
