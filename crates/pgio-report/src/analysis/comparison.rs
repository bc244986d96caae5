//! The comparison of one metric of one condition with the baseline. `compare` computes it, `families`
//! judges it.

use serde::{Deserialize, Serialize};

use super::interval::Interval;
use super::totals::Totals;
use super::verdict::{Bound, Decision, Gate, Verdict};

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
    /// The interval that decides that an effect does not matter, if it lies within the margin: that of the two
    /// one-sided tests, 90 % for this comparison alone, widened to `totals.at_least` and `totals.at_most`. Of an
    /// interaction, that of its whole ratio; of a factor that depends on others, that at all their levels.
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
