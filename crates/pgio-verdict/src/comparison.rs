//! The comparison of one metric of one condition with the baseline. `compare` computes it, `families`
//! judges it.

use benchmath::effect;
use serde::{Deserialize, Serialize};

use super::totals::Totals;
use pgio_results::metrics::Direction;

/// One metric of one condition, compared with the baseline. Ratios are condition / baseline.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    pub condition: String,
    pub metric: String,
    /// Whether it compares the primary metric.
    pub primary: bool,
    /// Whether it is in the family that answers the experiment's question; others are indicative.
    #[serde(default)]
    pub judged: bool,
    /// Whether it is the mean time of the operation that is shown beside the answer. Those that are not `judged`
    /// are a family.
    #[serde(default)]
    pub explains: bool,
    /// The typical trial of the baseline in these blocks. `value` is that times the ratio, so that
    /// the two can be shown side by side. Without a ratio, both are means; of the mean time of the operation that
    /// explains the answer, both are means over all operations, and `difference` is theirs.
    #[serde(default)]
    pub baseline_value: Option<f64>,
    /// The condition's typical trial.
    #[serde(default)]
    pub value: Option<f64>,
    /// condition / baseline, with the interval that the verdict came from: 95 % for its family.
    pub ratio: Option<f64>,
    #[serde(flatten)]
    pub interval: Interval,
    /// condition - baseline in the metric's unit, with its 95 % interval. Of the mean time of the operation that
    /// explains the answer, the difference of the means over all operations, as `decomposition_differences` divides
    /// it; its interval holds for all conditions together.
    pub difference: Option<f64>,
    pub difference_low: Option<f64>,
    pub difference_high: Option<f64>,
    /// The ratio of totals, if this is the primary metric; a percentile has none.
    #[serde(default)]
    pub totals: Option<Totals>,
    /// The signed-rank test of this comparison alone.
    pub p: Option<f64>,
    /// Adjusted for its family; the verdict is decided if it is at most alpha.
    pub p_adjusted: Option<f64>,
    pub verdict: Verdict,
    /// Blocks in which both sides have a valid trial with this metric.
    pub blocks: usize,
    /// Blocks that detect the planned effect with 80 % power, if these did not decide; with too few
    /// blocks, the fewest that can decide.
    pub blocks_needed: Option<u32>,
    /// The margin that the experiment names, as a share, and whether the effect exceeds it; only of the
    /// primary metric.
    #[serde(default)]
    pub margin: Option<f64>,
    /// `matters`: the interval lies beyond the margin; `does_not_matter`: both one-sided tests exclude that, and the
    /// bounds of `totals` lie within the margin as well.
    #[serde(default)]
    pub decision: Option<Decision>,
    /// The interval that decides that an effect does not matter, if it lies within the margin: the interval of the two
    /// one-sided tests, 90 % for this comparison alone, widened to `totals.at_least` and `totals.at_most`. Of an
    /// interaction, the interval of its whole ratio; of a factor that depends on others, the interval at all their levels.
    #[serde(default)]
    pub within_low: Option<f64>,
    /// Its upper end.
    #[serde(default)]
    pub within_high: Option<f64>,
    /// `fail`: the condition is worse by more than the margin, or failed in more trials than the baseline (Fisher's
    /// exact p at most 0.05); `pass`: the former is excluded, and its share of failed trials is not larger.
    #[serde(default)]
    pub gate: Option<Gate>,
    /// The typical block alone would have decided, or passed the gate, but all work over all time may lie beyond
    /// the margin.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open_by_totals: bool,
    /// Blocks that decide with 80 % power, if these did not, for an effect that is absent or twice the
    /// margin.
    #[serde(default)]
    pub decision_blocks: Option<u32>,
    /// `gate` by the margin alone, without the failures.
    #[serde(skip)]
    pub gate_by_margin: Option<Gate>,
    /// Sample standard deviation of the per-block log-ratios.
    #[serde(skip)]
    pub sd_log: Option<f64>,
    /// Ratio and difference are only bounds, and one side of each interval is null, because the
    /// window's end cut off operations. Absent if they are estimates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Reasons to doubt the comparison.
    pub warnings: Vec<String>,
}

/// The metric from which stalls are told.
pub(super) const DEGRADED_TIME: &str = "degraded_time";

/// The comparisons that are judged together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FamilyKind {
    /// Answers the experiment's question.
    Question,
    /// The primary metric of conditions that `judge` leaves out, such as the A/A twin. Among all secondary metrics they
    /// would have no intervals, and the noise would be unknown.
    LeftOut,
    /// The mean time of the operation that is shown beside the answer. Among all secondary metrics, chance would
    /// decide whether it agrees with the answer.
    OperationTime,
    /// The degraded time, from which stalls are told.
    DegradedTime,
    Secondary,
}

impl FamilyKind {
    pub(super) const ALL: [FamilyKind; 5] = [
        FamilyKind::Question,
        FamilyKind::LeftOut,
        FamilyKind::OperationTime,
        FamilyKind::DegradedTime,
        FamilyKind::Secondary,
    ];
}

impl Comparison {
    pub(super) fn family(&self) -> FamilyKind {
        if self.judged {
            FamilyKind::Question
        } else if self.primary {
            FamilyKind::LeftOut
        } else if self.explains {
            FamilyKind::OperationTime
        } else if self.metric == DEGRADED_TIME {
            FamilyKind::DegradedTime
        } else {
            FamilyKind::Secondary
        }
    }

    /// The ratio, unless it is only a bound: for readers that cannot show the mark.
    pub fn estimated_ratio(&self) -> Option<f64> {
        self.ratio.filter(|_| self.bound.is_none())
    }

    /// The interval of the difference.
    pub fn difference_interval(&self) -> Interval {
        Interval { low: self.difference_low, high: self.difference_high }
    }
}

// The interval of an estimate, within which the true value is expected.
//
// Both sides are null if there are too few values; one side is null if only a bound is known. An end of a ratio's
// interval that is further than a factor of 100 from no change is no bound, and null. In stored JSON both sides are
// beside the estimate, so the type itself has no description there.

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interval {
    /// The 95 % interval; of what is judged in a family, at the level that the family leaves it. Null with too
    /// few values, and on the side that a bound leaves open.
    /// A ratio's end beyond a factor of 100 is null as well.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
}

/// An end of a ratio's interval beyond this factor bounds nothing, and a ratio beyond it is not written in digits.
pub const MAX_FACTOR: f64 = 100.0;

impl Interval {
    pub const UNKNOWN: Interval = Interval { low: None, high: None };

    pub fn new(low: f64, high: f64) -> Interval {
        Interval { low: Some(low), high: Some(high) }
    }

    /// The interval of a ratio.
    pub fn from_ratio(low: impl Into<Option<f64>>, high: impl Into<Option<f64>>) -> Interval {
        let is_bound = |low: &f64| low.is_finite() && *low >= 1.0 / MAX_FACTOR;
        Interval {
            low: low.into().filter(is_bound),
            high: high.into().filter(|high| *high <= MAX_FACTOR),
        }
    }

    /// Both sides, if both are known.
    pub fn sides(self) -> Option<(f64, f64)> {
        self.low.zip(self.high)
    }

    /// Whether the value is known to be outside.
    pub fn excludes(self, value: f64) -> bool {
        self.low.is_some_and(|low| value < low) || self.high.is_some_and(|high| value > high)
    }
}

impl From<Option<benchmath::summary::Interval>> for Interval {
    fn from(found: Option<benchmath::summary::Interval>) -> Interval {
        found.map_or(Interval::UNKNOWN, |i| Interval::new(i.low, i.high))
    }
}

impl From<Option<(f64, f64)>> for Interval {
    fn from(sides: Option<(f64, f64)>) -> Interval {
        sides.map_or(Interval::UNKNOWN, |(low, high)| Interval::new(low, high))
    }
}

/// The level of every test and interval: 0.05, for 95 % intervals. It is constant, because a level
/// chosen after seeing the data is meaningless.
pub const ALPHA: f64 = 0.05;

/// The kind of bound of an effect, if the window's end cut off operations of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    AtLeast,
    AtMost,
}

/// The outcome of a comparison, in the direction of its metric.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Slower,
    Faster,
    /// More of a quantity without a preferred direction.
    Higher,
    Lower,
    /// No difference detected, which does not prove that there is none.
    NoDifference,
    #[default]
    TooFewBlocks,
    /// A value of 0 or below has no ratio, and a percentile of too few operations is not compared.
    NotApplicable,
    /// Too few runs to judge what changed between two dates.
    NotJudged,
}

/// Whether an effect exceeds the margin, in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Matters,
    DoesNotMatter,
    Undecided,
}

/// Whether a condition is worse than the baseline by more than the margin, or failed in more trials. For
/// a metric without a preferred direction, both directions are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    Pass,
    Fail,
    Undecided,
}

impl Verdict {
    /// Whether a difference was detected.
    pub fn is_decided(self) -> bool {
        matches!(self, Verdict::Slower | Verdict::Faster | Verdict::Higher | Verdict::Lower)
    }
}

pub(super) fn directed_decision(decision: effect::Decision, direction: Direction) -> Verdict {
    match decision {
        effect::Decision::Above => directed(true, direction),
        effect::Decision::Below => directed(false, direction),
        effect::Decision::NoDifference => Verdict::NoDifference,
        effect::Decision::TooFewBlocks => Verdict::TooFewBlocks,
        effect::Decision::NotApplicable => Verdict::NotApplicable,
    }
}

/// The verdict for more or less of a metric.
pub(super) fn directed(above: bool, direction: Direction) -> Verdict {
    match (above, direction) {
        (true, Direction::HigherIsFaster) | (false, Direction::LowerIsFaster) => Verdict::Faster,
        (false, Direction::HigherIsFaster) | (true, Direction::LowerIsFaster) => Verdict::Slower,
        (true, Direction::Neutral) => Verdict::Higher,
        (false, Direction::Neutral) => Verdict::Lower,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_beyond_a_factor_of_100_is_no_bound() {
        assert_eq!(Interval::from_ratio(0.5, 2.0), Interval::new(0.5, 2.0));
        assert_eq!(Interval::from_ratio(5.3e-171, 1.2e170), Interval::UNKNOWN);
        assert_eq!(
            Interval::from_ratio(0.5, f64::INFINITY),
            Interval { low: Some(0.5), high: None }
        );
        assert_eq!(Interval::from_ratio(f64::NAN, None), Interval::UNKNOWN);
    }

    #[test]
    fn a_bound_excludes_one_side_alone() {
        let at_least = Interval { low: Some(1.0), high: None };
        assert!(at_least.excludes(0.9) && !at_least.excludes(9.0));
        assert!(!Interval::UNKNOWN.excludes(0.0));
        assert_eq!(Interval::new(1.0, 2.0).sides(), Some((1.0, 2.0)));
        assert_eq!(at_least.sides(), None);
    }
}
