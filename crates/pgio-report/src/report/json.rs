//! `pgio.analysis/1`: an analysis for other programs.
//!
//! Readers ignore fields they do not know; a change that breaks them gets a new number. A number
//! that does not exist is null, never 0. The JSON schema in docs/schema/ is generated from these
//! types.

pub mod across;
pub mod device;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::analysis::reconcile::Reconciliation;
use crate::analysis::replica::Replica;
use crate::analysis::sweep::Swept;
use crate::analysis::waits::{Decomposition, DecompositionDifference};
use crate::analysis::{
    ALPHA, Analysis, Bound, Comparison, Condition, Finding, Interval, NoiseFloor, Totals, Verdict,
};

pub const ANALYSIS_SCHEMA: &str = "pgio.analysis/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AnalysisV1 {
    /// Always `pgio.analysis/1`.
    pub schema: String,
    pub experiment: String,
    pub baseline: String,
    /// The experiment's original baseline, if another one is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_baseline: Option<String>,
    /// The A/A twin of the baseline, if there is one.
    pub aa: Option<String>,
    pub primary_metric: String,
    /// The level of all tests; intervals hold 1 - alpha.
    pub alpha: f64,
    pub conditions: Vec<Condition>,
    pub comparisons: Vec<ComparisonV1>,
    /// The noise floor from the A/A twin, by metric.
    pub noise_floor: BTreeMap<String, NoiseFloor>,
    /// Where the time went, by condition and class of operation; empty without samples.
    #[serde(default)]
    pub decompositions: Vec<Decomposition>,
    #[serde(default)]
    pub decomposition_differences: Vec<DecompositionDifference>,
    /// Reads requested from the system and read from the device, by condition.
    #[serde(default)]
    pub reconciliation: Vec<Reconciliation>,
    /// The disks of primary and secondary, by condition.
    #[serde(default)]
    pub replicas: Vec<Replica>,
    /// All cells of a sweep and the curves along its axes; everything else is for the middle point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Swept>,
    pub checks: Vec<Finding>,
    pub warnings: Vec<WarningV1>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparisonV1 {
    pub condition: String,
    pub metric: String,
    pub primary: bool,
    /// Whether it is in the family of comparisons that answers the experiment's question.
    #[serde(default)]
    pub judged: bool,
    /// The baseline's typical trial, and that times the ratio; means without a ratio.
    #[serde(default)]
    pub baseline_value: Option<f64>,
    #[serde(default)]
    pub value: Option<f64>,
    /// condition / baseline, with the interval that the verdict came from: 95 % for its family.
    pub ratio: Option<f64>,
    #[serde(flatten)]
    pub interval: Interval,
    /// condition - baseline in the metric's unit, with its 95 % interval.
    pub difference: Option<f64>,
    pub difference_low: Option<f64>,
    pub difference_high: Option<f64>,
    /// The ratio of totals, if this is the primary metric and a rate.
    #[serde(default)]
    pub totals: Option<Totals>,
    /// The signed-rank test of this comparison alone.
    pub p: Option<f64>,
    /// Adjusted for its family: the judged comparisons, or all others.
    pub p_adjusted: Option<f64>,
    pub verdict: Verdict,
    pub blocks: usize,
    /// Blocks that detect the planned effect with 80 % power, if these did not decide; with too few
    /// blocks, the fewest that can decide.
    pub blocks_needed: Option<u32>,
    /// Ratio and difference are only bounds, and one side of each interval is null, because the
    /// window's end cut off operations. Absent if they are estimates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WarningV1 {
    pub what: String,
    pub why: String,
    #[serde(rename = "try")]
    pub try_: String,
    /// Number of trials with this warning.
    pub trials: usize,
}

/// The analysis as indented JSON, ended by a newline.
pub fn render(analysis: &Analysis) -> String {
    let text = serde_json::to_string_pretty(&stored(analysis))
        .expect("plain data with string keys always serializes");
    printable::json(&text).into_owned() + "\n"
}

pub fn stored(analysis: &Analysis) -> AnalysisV1 {
    let a = analysis.clone();
    AnalysisV1 {
        schema: ANALYSIS_SCHEMA.to_owned(),
        experiment: a.experiment,
        baseline: a.baseline,
        own_baseline: a.own_baseline,
        aa: a.aa,
        primary_metric: a.primary_metric,
        alpha: ALPHA,
        conditions: a.conditions,
        comparisons: a.comparisons.into_iter().map(ComparisonV1::from).collect(),
        noise_floor: a.noise_floor,
        decompositions: a.decompositions,
        decomposition_differences: a.decomposition_differences,
        reconciliation: a.reconciliation,
        replicas: a.replicas,
        sweep: a.sweep,
        checks: a.checks,
        warnings: a
            .warnings
            .into_iter()
            .map(|(w, trials)| WarningV1 { what: w.what, why: w.why, try_: w.try_this, trials })
            .collect(),
        notes: a.notes,
    }
}

impl From<Comparison> for ComparisonV1 {
    fn from(c: Comparison) -> Self {
        ComparisonV1 {
            condition: c.condition,
            metric: c.metric,
            primary: c.primary,
            judged: c.judged,
            baseline_value: c.baseline_value,
            value: c.value,
            ratio: c.ratio,
            interval: c.interval,
            difference: c.difference,
            difference_low: c.difference_interval.low,
            difference_high: c.difference_interval.high,
            totals: c.totals,
            p: c.p,
            p_adjusted: c.p_adjusted,
            verdict: c.verdict,
            blocks: c.blocks,
            blocks_needed: c.blocks_needed,
            bound: c.bound,
            warnings: c.warnings,
        }
    }
}
