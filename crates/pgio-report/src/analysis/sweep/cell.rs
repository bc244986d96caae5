//! One cell of a sweep: its trials' values with their intervals, and its effect against the baseline at
//! the same point.

use std::collections::BTreeMap;

use benchmath::{student, summary};
use pgio_results::Metric;
use pgio_results::metrics::{self, DeclaredMetric};
use pgio_results::sweep::Point;
use serde::{Deserialize, Serialize};

use crate::analysis::compare::has;
use crate::analysis::comparison::Comparison;
use crate::analysis::interval::Interval;
use crate::analysis::pairing::ConditionTrials;
use crate::analysis::verdict::{ALPHA, Bound, Verdict};
use crate::analysis::waits::Predicted;

/// With fewer trials an interval is too wide to be useful.
pub(super) const ENOUGH_TRIALS: usize = 3;

/// A condition at a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweptCell {
    pub condition: String,
    pub point: Point,
    /// Trials on record; `valid` is the number of those that count.
    pub trials: usize,
    pub valid: usize,
    /// The primary metric, throughput and latencies, by name.
    pub metrics: BTreeMap<String, Estimate>,
    /// Effect on the primary metric against the baseline at this point; null for the baseline itself.
    pub effect: Option<CellEffect>,
    /// The predicted latency of a single commit.
    pub predicted: Option<Predicted>,
}

/// A value over the trials of a cell that count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Estimate {
    pub value: f64,
    /// The 95 % interval; null with fewer than three trials.
    #[serde(flatten)]
    pub interval: Interval,
    pub unit: String,
    /// The value is a lower bound, and there is no interval: the window's end cut off operations.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
}

/// condition / baseline within one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellEffect {
    pub ratio: Option<f64>,
    /// The interval, from the same test as the verdict: 95 % for all cells together.
    #[serde(flatten)]
    pub interval: Interval,
    pub p: Option<f64>,
    /// Adjusted for all cells away from the middle point; at the middle for the conditions.
    pub p_adjusted: Option<f64>,
    pub verdict: Verdict,
    pub blocks: usize,
    /// Whether the effect is only a bound, as in a comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
}

pub(super) fn estimates(
    condition: &ConditionTrials<'_>,
    names: &[String],
    declared: &[DeclaredMetric],
) -> BTreeMap<String, Estimate> {
    let one = |name: &String| {
        // A percentile below the clock's resolution is meaningless.
        if metrics::find(declared, name).is_some_and(|def| !has(condition, &def)) {
            return None;
        }
        let values = condition.values(name);
        let unit =
            condition.valid().find_map(|t| t.metrics.get(name).map(|m: &Metric| m.unit.clone()));
        let mut estimate = estimate(&values, unit.unwrap_or_default())?;
        if condition.is_bounded(name) {
            (estimate.at_least, estimate.interval) = (true, Interval::UNKNOWN);
        }
        Some((name.clone(), estimate))
    };
    names.iter().filter_map(one).collect()
}

pub(super) fn estimate(values: &[f64], unit: String) -> Option<Estimate> {
    // Rates and latencies vary by ratios, so use logarithms unless a value is zero.
    let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
    let positive = values.iter().all(|v| *v > 0.0);
    let (scaled, back): (&[f64], fn(f64) -> f64) =
        if positive { (&logs, f64::exp) } else { (values, |v| v) };
    let enough = values.len() >= ENOUGH_TRIALS;
    let interval = student::test(scaled, ALPHA).filter(|_| enough).map(|t| t.interval);
    Some(Estimate {
        value: back(summary::mean(scaled)?),
        interval: Interval::from(interval.map(|i| (back(i.low), back(i.high)))),
        unit,
        at_least: false,
    })
}

pub(super) fn effect(c: &Comparison) -> CellEffect {
    CellEffect {
        ratio: c.ratio,
        interval: c.interval,
        p: c.p,
        p_adjusted: c.p_adjusted,
        verdict: c.verdict,
        blocks: c.blocks,
        bound: c.bound,
    }
}
