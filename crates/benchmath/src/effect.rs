//! The entry point: compares one metric under a condition with the same metric under the baseline.
//!
//! Assumption: one value per trial, paired by block; blocks are independent. The compared values
//! are the logs of the per-block ratios, because a storage choice multiplies a rate and because
//! noise common to a block cancels in its ratio. Only the signed-rank test decides; the other
//! fields of a [`Comparison`] help to assess that decision and to plan the next experiment. The
//! difference in the metric's own unit is a second view with its own interval; near the border it
//! may disagree with the ratio. `holm` adjusts for several metrics.

use std::fmt;

use crate::signed_rank::{self, SignedRank};
use crate::summary;
use crate::summary::assert_probability;
pub use crate::warning::Warning;

/// A metric's values by block, in one unit; the n-th values of both sides are from the same block.
#[derive(Debug, Clone, Copy)]
pub struct Paired<'a> {
    condition: &'a [f64],
    baseline: &'a [f64],
}

impl<'a> Paired<'a> {
    pub fn new(condition: &'a [f64], baseline: &'a [f64]) -> Result<Self, LengthsDiffer> {
        if condition.len() == baseline.len() {
            Ok(Self { condition, baseline })
        } else {
            Err(LengthsDiffer { condition: condition.len(), baseline: baseline.len() })
        }
    }

    fn blocks(self) -> impl Iterator<Item = (f64, f64)> {
        self.condition.iter().copied().zip(self.baseline.iter().copied())
    }
}

/// Some block lacks one of its two values; omit it on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthsDiffer {
    pub condition: usize,
    pub baseline: usize,
}

impl fmt::Display for LengthsDiffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { condition, baseline } = self;
        write!(
            f,
            "cannot pair {condition} values of the condition with {baseline} of the baseline; omit \
                         incomplete blocks on both sides"
        )
    }
}

impl std::error::Error for LengthsDiffer {}

/// The verdict of the signed-rank test on the ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The condition's metric is higher than the baseline's, which may be better or worse.
    Above,
    /// The condition's metric is lower.
    Below,
    /// No difference was detected, which does not prove that there is none.
    NoDifference,
    /// With so few blocks, no test at this level exists.
    TooFewBlocks,
    /// A value is not positive or not finite, so it has no log-ratio.
    NotApplicable,
}

/// The result of one comparison. Ratios are condition / baseline; `None` means that a value does
/// not exist, never 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub decision: Decision,
    /// Pairs compared.
    pub blocks: usize,
    /// The Hodges-Lehmann estimate.
    pub ratio: Option<f64>,
    /// The closed interval that belongs to `p`: it excludes 1 exactly if p <= alpha.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Two-sided, not adjusted for other metrics.
    pub p: Option<f64>,
    /// Sample standard deviation of the log-ratios.
    pub sd_log: Option<f64>,
    /// The log-ratios by block, if there is a ratio, or the differences if only these are compared;
    /// `family` judges them.
    pub logs: Vec<f64>,
    /// Condition - baseline in the metric's unit, with its own signed-rank interval.
    pub difference: Option<f64>,
    pub difference_low: Option<f64>,
    pub difference_high: Option<f64>,
    pub warnings: Vec<Warning>,
}

/// Compares at level `alpha`, without adjustment for other comparisons.
///
/// # Panics
///
/// Unless alpha is between 0 and 1.
pub fn compare(paired: Paired<'_>, alpha: f64) -> Comparison {
    assert_probability("alpha", alpha);
    let mut comparison = difference(paired, alpha);
    if let Some(warning) = undefined_ratio(paired) {
        comparison.decision = Decision::NotApplicable;
        comparison.warnings.push(warning);
        return comparison;
    }

    let logs = log_ratios(paired);
    comparison.sd_log = summary::sd(&logs);
    if let Some(ranks) = signed_rank::test(&logs, alpha) {
        comparison.ratio = Some(ranks.estimate.exp());
        comparison.low = ranks.bounds.map(|(low, _)| low.exp());
        comparison.high = ranks.bounds.map(|(_, high)| high.exp());
        comparison.p = Some(ranks.p);
        comparison.decision = decide(ranks.bounds);
    }
    comparison.warnings = warnings(&comparison, &logs, alpha);
    comparison.logs = logs;
    comparison
}

/// Compares by the difference alone, for metrics that may be 0 and therefore have no ratio. `p` is
/// the interval of the difference, and `family` judges the differences.
///
/// # Panics
///
/// Unless alpha lies between 0 and 1.
pub fn compare_differences(paired: Paired<'_>, alpha: f64) -> Comparison {
    assert_probability("alpha", alpha);
    let differences: Vec<f64> = paired.blocks().map(|(c, b)| c - b).collect();
    let ranks = signed_rank::test(&differences, alpha);
    Comparison {
        decision: decide(ranks.and_then(|r| r.bounds)),
        p: ranks.map(|r| r.p),
        logs: differences,
        ..difference(paired, alpha)
    }
}

/// A comparison with only the difference computed.
fn difference(paired: Paired<'_>, alpha: f64) -> Comparison {
    let differences: Vec<f64> = paired.blocks().map(|(c, b)| c - b).collect();
    let ranks: Option<SignedRank> = signed_rank::test(&differences, alpha);
    let bounds = ranks.and_then(|r| r.bounds);
    Comparison {
        decision: Decision::TooFewBlocks,
        blocks: differences.len(),
        ratio: None,
        low: None,
        high: None,
        p: None,
        sd_log: None,
        logs: Vec::new(),
        difference: ranks.map(|r| r.estimate),
        difference_low: bounds.map(|(low, _)| low),
        difference_high: bounds.map(|(_, high)| high),
        warnings: Vec::new(),
    }
}

fn undefined_ratio(paired: Paired<'_>) -> Option<Warning> {
    (1..).zip(paired.blocks()).find_map(|(block, (condition, baseline))| {
        if !(condition.is_finite() && baseline.is_finite()) {
            Some(Warning::NotFinite { block })
        } else if condition <= 0.0 || baseline <= 0.0 {
            Some(Warning::NotPositive { block, condition, baseline })
        } else {
            None
        }
    })
}

/// Log-ratios rounded to 2^-30, about a billionth. No measurement is that precise, and rounding
/// makes ties exact: ln(4/3) and -ln(6/8) differ in the last bits, which would otherwise decide on
/// which side of 0 their average counts, depending on the unit. It also makes sums of log-ratios
/// exact, so that equal ones have exactly no spread.
fn log_ratios(paired: Paired<'_>) -> Vec<f64> {
    const STEPS: f64 = (1u64 << 30) as f64;
    paired.blocks().map(|(c, b)| ((c.ln() - b.ln()) * STEPS).round() / STEPS).collect()
}

/// The decision for an interval on the log scale.
pub fn decide(bounds: Option<(f64, f64)>) -> Decision {
    match bounds {
        None => Decision::TooFewBlocks,
        Some((low, _)) if low > 0.0 => Decision::Above,
        Some((_, high)) if high < 0.0 => Decision::Below,
        Some(_) => Decision::NoDifference,
    }
}

fn warnings(comparison: &Comparison, logs: &[f64], alpha: f64) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if comparison.decision == Decision::TooFewBlocks {
        let fewest = signed_rank::min_values(alpha);
        warnings.push(Warning::TooFewBlocks { blocks: comparison.blocks, fewest });
    }
    if comparison.sd_log == Some(0.0) {
        warnings.push(Warning::NoSpread);
    }
    warnings.extend(outlier_blocks(logs).map(|block| Warning::OutlierBlock { block }));
    warnings
}

/// Numbers of the blocks more than ten robust standard deviations (1.4826 times the median absolute
/// deviation: Hampel, JASA 69(346), 1974) from the median. Ten, because six blocks estimate their
/// spread poorly: with normal noise this warns in 1 of 100 experiments; a limit of five would warn
/// in 1 of 16.
fn outlier_blocks(logs: &[f64]) -> impl Iterator<Item = usize> {
    let median = summary::median(logs).unwrap_or(0.0);
    let distances: Vec<f64> = logs.iter().map(|d| (d - median).abs()).collect();
    let deviation = 1.4826 * summary::median(&distances).unwrap_or(0.0);
    let judged = logs.len() >= 6 && deviation > 0.0;
    (1..)
        .zip(distances)
        .filter(move |(_, d)| judged && *d > 10.0 * deviation)
        .map(|(block, _)| block)
}

#[cfg(test)]
mod tests {
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
        let (condition, baseline) =
            ([4.0, 6.0, 4.0, 6.0, 4.0, 6.0], [3.0, 8.0, 3.0, 8.0, 3.0, 8.0]);
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
}
