//! What a sweep shows: every cell, and along each axis a curve for each condition.
//!
//! Cells are compared within their point only: a condition against the baseline at the same point,
//! by the same blocks and the same statistics as everything else. What is judged is the primary
//! metric at the middle point; all other cells are one family (`families`), and indicative. Values of a cell are means of its trials on a logarithmic scale with Student's
//! interval: they carry the machine's drift, which ratios do not. Next: [`curve`] for what stands
//! along an axis, and the knee.

mod curve;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use benchmath::{student, summary};
use serde::{Deserialize, Serialize};

use super::compare::{has, paired};
use super::families::{self, Candidate};
use super::pairing::{self, Arm, Beside, value};
use super::waits::Predicted;
use super::waits::predicted::alone;
use super::{ALPHA, Bound, Comparison, Interval, Verdict};
use pgio_results::latency::Operation;
use pgio_results::metrics::{self, Direction, definition};
use pgio_results::operation::{Class, Statistic};
use pgio_results::store::Manifest;
use pgio_results::sweep::{Axis, Point, Sweep, SweepKind};
use pgio_results::{Metric, Trial};

pub use curve::{Curve, CurveKnee, CurvePoint, KneePlace, Slope};

/// Of the class of operations that a session waits for.
const STATISTICS: [Statistic; 5] =
    [Statistic::Mean, Statistic::P50, Statistic::P95, Statistic::P99, Statistic::P99_9];

/// With fewer trials an interval says next to nothing.
pub(super) const ENOUGH_TRIALS: usize = 3;

/// What a commit waits for is foretold, so its mean is told of every cell.
pub(crate) const COMMIT_MEAN: &str = metrics::latency_name(Class::Commit, Statistic::Mean);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Swept {
    pub kind: SweepKind,
    pub axes: Vec<Axis>,
    /// Where the primary metric is judged.
    pub middle: Point,
    /// The class of operations whose latencies are told, such as `transaction`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub latency_class: Option<Operation>,
    /// The middle point's first, in the order of the plan.
    pub cells: Vec<SweptCell>,
    /// By axis and condition.
    pub curves: Vec<Curve>,
    /// How the cells must be read.
    pub notes: Vec<String>,
}

/// A condition at a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweptCell {
    pub condition: String,
    pub point: Point,
    /// On record, and of these those that count.
    pub trials: usize,
    pub valid: usize,
    /// The primary metric, throughput and latencies, by name.
    pub metrics: BTreeMap<String, Estimate>,
    /// On the primary metric, against the baseline at this point; null for the baseline itself.
    pub effect: Option<CellEffect>,
    /// What a commit alone should take there from first principles.
    pub predicted: Option<Predicted>,
}

/// Over the trials of a cell that count.
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
    /// The interval that the verdict came from: 95 % for all cells together.
    #[serde(flatten)]
    pub interval: Interval,
    pub p: Option<f64>,
    /// Adjusted for all cells away from the middle point; at the middle for the conditions.
    pub p_adjusted: Option<f64>,
    pub verdict: Verdict,
    pub blocks: usize,
    /// As in a comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
}

impl Swept {
    pub fn is_middle(&self, cell: &SweptCell) -> bool {
        cell.point == self.middle
    }

    /// The curves along an axis, by condition.
    pub fn curves_along<'a>(&'a self, axis: &'a str) -> impl Iterator<Item = &'a Curve> {
        self.curves.iter().filter(move |curve| curve.axis == axis)
    }
}

pub(super) fn all(
    manifest: &Manifest,
    trials: &[Trial],
    comparisons: &[Comparison],
) -> Option<Swept> {
    let sweep = manifest.sweep.as_ref()?;
    let operation = operation(trials);
    let told = told(manifest, sweep, trials, operation.as_ref());
    let mut cells = Vec::new();
    let mut away = Vec::new();
    for (n, point) in sweep.points.iter().enumerate() {
        let arms = pairing::arms_at(manifest, trials, point);
        let swept = |name: &str| n == 0 || !sweep.at_middle_only.iter().any(|c| c == name);
        for info in manifest.conditions.iter().filter(|c| swept(&c.name)) {
            let arm = &arms[info.name.as_str()];
            let effect = match arms.get(manifest.baseline.as_str()) {
                _ if info.name == manifest.baseline => None,
                _ if n == 0 => judged(&info.name, comparisons),
                Some(baseline) => {
                    away.extend(candidate(manifest, arm, baseline).map(|c| (cells.len(), c)));
                    None
                }
                None => None,
            };
            cells.push(SweptCell {
                condition: info.name.clone(),
                point: point.clone(),
                trials: arm.all.len(),
                valid: arm.valid().count(),
                metrics: metrics(arm, &told),
                effect,
                predicted: alone(info, arm),
            });
        }
    }
    let mut family: Vec<&mut Candidate> =
        away.iter_mut().map(|(_, c)| c).filter(|c| !c.logs.is_empty()).collect();
    families::together(&mut family);
    for (cell, candidate) in &away {
        cells[*cell].effect = Some(as_effect(&candidate.comparison));
    }
    let curves = curve::all(manifest, sweep, trials, &cells, operation.as_ref());
    Some(Swept {
        kind: sweep.kind,
        axes: sweep.axes.clone(),
        middle: sweep.middle().clone(),
        latency_class: operation,
        cells,
        curves,
        notes: Vec::new(),
    })
}

/// The operation that a session waits for from end to end, as far as it is timed; a command's own is
/// any whose mean it reports.
fn operation(trials: &[Trial]) -> Option<Operation> {
    const KNOWN: [Class; 6] =
        [Class::Transaction, Class::Call, Class::Commit, Class::Update, Class::Read, Class::Device];
    let timed = |class: &Class| {
        let mean = metrics::latency_name(*class, Statistic::Mean);
        trials.iter().any(|t| value(t, mean).is_some())
    };
    KNOWN.into_iter().find(timed).map(Operation::Ours).or_else(|| {
        let measured = trials.iter().flat_map(|t| &t.metrics).filter(|(_, m)| m.value.is_some());
        let operations = measured.filter_map(|(name, _)| Operation::of_mean(name));
        operations.min_by(|a, b| a.name().cmp(b.name()))
    })
}

/// The metrics that are told of every cell.
fn told(
    manifest: &Manifest,
    sweep: &Sweep,
    trials: &[Trial],
    operation: Option<&Operation>,
) -> Vec<String> {
    let mut names = vec![manifest.primary_metric.clone()];
    names.extend(sweep.axes.iter().map(|axis| throughput(manifest, trials, &axis.name)));
    names.extend(
        operation
            .iter()
            .flat_map(|o| STATISTICS.into_iter().filter_map(|s| o.metric(s)))
            .map(Cow::into_owned),
    );
    names.push(COMMIT_MEAN.to_owned());
    // What a command prints beside its result is as little known in advance as the result.
    names.extend(manifest.metrics.iter().map(|declared| declared.name.clone()));
    names.sort();
    names.dedup();
    names
}

/// Axes along which an operation does more, and what counts all that it does.
const BY_AMOUNT: &[(&str, &str)] = &[
    ("rows_per_transaction", "rows_per_second"),
    ("work_unit", "block_visits_per_second"),
    ("update_work_unit", "block_visits_per_second"),
    ("batch", "block_visits_per_second"),
    ("commit_every", "block_visits_per_second"),
    ("block_size", "device_bytes_per_second"),
];

/// The rate that is held against latency along an axis.
fn throughput(manifest: &Manifest, trials: &[Trial], axis: &str) -> String {
    let measured = |name: &str| trials.iter().any(|t| value(t, name).is_some());
    let by_amount = BY_AMOUNT.iter().find(|(name, _)| *name == axis).map(|(_, metric)| *metric);
    if let Some(metric) = by_amount.filter(|metric| measured(metric)) {
        return metric.to_owned();
    }
    let is_rate = |name: &str| {
        let found = metrics::find(&manifest.metrics, name);
        found.is_none_or(|d| d.direction == Direction::HigherIsFaster)
    };
    let primary = &manifest.primary_metric;
    // Where a rate is given, what the workload is judged by is a latency as well.
    let own = trials.first().map(|t| t.workload.primary_metric.as_str());
    let counted = ["calls_per_second", "messages_per_minute"].into_iter().filter(|n| measured(n));
    let known = [Some(primary.as_str()), own].into_iter().flatten().chain(counted);
    known.into_iter().find(|name| is_rate(name)).unwrap_or(primary).to_owned()
}

fn metrics(arm: &Arm<'_>, told: &[String]) -> BTreeMap<String, Estimate> {
    let one = |name: &String| {
        // A percentile under the clock's resolution means nothing.
        if definition(name).is_some_and(|def| !has(arm, def)) {
            return None;
        }
        let values = arm.values(name);
        let unit = arm.valid().find_map(|t| t.metrics.get(name).map(|m: &Metric| m.unit.clone()));
        let mut estimate = estimate(&values, unit.unwrap_or_default())?;
        if arm.is_bounded(name) {
            (estimate.at_least, estimate.interval) = (true, Interval::UNKNOWN);
        }
        Some((name.clone(), estimate))
    };
    told.iter().filter_map(one).collect()
}

fn estimate(values: &[f64], unit: String) -> Option<Estimate> {
    // Rates and latencies vary by shares; what may be zero does not.
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

/// At the middle point the comparison is the experiment's own.
fn judged(condition: &str, comparisons: &[Comparison]) -> Option<CellEffect> {
    comparisons.iter().find(|c| c.primary && c.condition == condition).map(as_effect)
}

fn candidate(manifest: &Manifest, arm: &Arm<'_>, baseline: &Arm<'_>) -> Option<Candidate> {
    let def = metrics::find(&manifest.metrics, &manifest.primary_metric)?;
    Some(paired(&def, &Beside::new(arm, baseline)))
}

fn as_effect(c: &Comparison) -> CellEffect {
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
