//! The comparison of one metric of one condition with the baseline. `compare` computes it, `families`
//! judges it.

use super::interval::Interval;
use super::totals::Totals;
use super::verdict::{Bound, Decision, Gate, Verdict};

/// One metric of one condition, compared with the baseline. Ratios are condition / baseline.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparison {
    pub condition: String,
    pub metric: String,
    /// Whether it compares the primary metric.
    pub primary: bool,
    /// Whether it is in the family that answers the experiment's question; others are indicative.
    pub judged: bool,
    /// The typical trial of the baseline in these blocks. `value` is that times the ratio, so that
    /// the two can be shown side by side. Without a ratio, both are means.
    pub baseline_value: Option<f64>,
    pub value: Option<f64>,
    pub ratio: Option<f64>,
    /// The interval of the ratio, from the same test as the verdict: 95 % for the whole family.
    pub interval: Interval,
    /// Condition - baseline, in the metric's unit.
    pub difference: Option<f64>,
    pub difference_interval: Interval,
    /// The ratio of totals, if this is the primary metric and a rate.
    pub totals: Option<Totals>,
    /// The signed-rank test of this comparison alone.
    pub p: Option<f64>,
    /// Adjusted for its family; the verdict is decided if it is at most [`super::ALPHA`].
    pub p_adjusted: Option<f64>,
    pub verdict: Verdict,
    /// Blocks in which both sides have a valid trial with this metric.
    pub blocks: usize,
    /// Blocks that detect the planned effect with 80 % power, if an effect was planned and these
    /// blocks did not decide.
    pub blocks_needed: Option<u32>,
    /// The margin that the experiment names, as a share, and whether the effect exceeds it; only of the
    /// primary metric.
    pub margin: Option<f64>,
    pub decision: Option<Decision>,
    /// Whether the condition is worse by more than the margin.
    pub gate: Option<Gate>,
    /// Blocks that decide with 80 % power, if these did not, for an effect that is absent or twice the
    /// margin.
    pub decision_blocks: Option<u32>,
    /// Sample standard deviation of the per-block log-ratios.
    pub sd_log: Option<f64>,
    /// The ratio and the remaining side of its interval are only bounds, because trials of one side
    /// have lower bounds instead of values. `None` if both sides are known.
    pub bound: Option<Bound>,
    /// Reasons to doubt the comparison.
    pub warnings: Vec<String>,
}
