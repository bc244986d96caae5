//! The entry point: compares one metric under a condition with the same metric under the baseline.
//!
//! Assumption: one value per trial, paired by block; blocks are independent. The compared values
//! are the logs of the per-block ratios, because a storage choice multiplies a rate and because
//! noise common to a block cancels in its ratio. Only the signed-rank test decides; the other
//! fields of a [`Comparison`] help to assess that decision and to plan the next experiment. The
//! difference in the metric's own unit is a second view with its own interval; near the border it
//! may disagree with the ratio. `holm` adjusts for several metrics.

use std::fmt;

use crate::interval::assert_probability;
use crate::signed_rank::{self, SignedRank};
use crate::summary;
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
/// that of the difference, and `family` judges the differences.
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
mod tests;
