//! One metric of one condition compared with the baseline. `compare` computes it, `families`
//! judges it.

use super::interval::Interval;
use super::totals::Totals;
use super::verdict::{Bound, Verdict};

/// One metric of one condition against the baseline's. Ratios are condition / baseline.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparison {
    pub condition: String,
    pub metric: String,
    /// Of the primary metric.
    pub primary: bool,
    /// In the family that answers the experiment's question; all others are indicative.
    pub judged: bool,
    /// The typical trial of the baseline in these blocks, and that times the ratio: what may stand
    /// side by side. Where there is no ratio, the means.
    pub baseline_value: Option<f64>,
    pub value: Option<f64>,
    pub ratio: Option<f64>,
    /// The interval of the ratio that the verdict came from: 95 % for the whole family.
    pub interval: Interval,
    /// Condition - baseline, in the metric's unit.
    pub difference: Option<f64>,
    pub difference_interval: Interval,
    /// All work over all time, of the primary metric where that is a rate.
    pub totals: Option<Totals>,
    /// The signed-rank test of this comparison alone.
    pub p: Option<f64>,
    /// Adjusted for its family; the verdict is decided where it is at most [`ALPHA`].
    pub p_adjusted: Option<f64>,
    pub verdict: Verdict,
    /// Blocks in which both sides have a valid trial with this metric.
    pub blocks: usize,
    /// Blocks that detect the effect that the user named, with 80 % power; only where one was named
    /// and these blocks did not decide.
    pub blocks_needed: Option<u32>,
    /// Sample standard deviation of the per-block log-ratios.
    pub sd_log: Option<f64>,
    /// The ratio and the one bound of its interval that is left are no more than this: trials of
    /// one side have lower bounds in place of values. `None`: both sides are known.
    pub bound: Option<Bound>,
    /// What to doubt.
    pub warnings: Vec<String>,
}
