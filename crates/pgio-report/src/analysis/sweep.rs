//! Analyzes a sweep: all cells, and along each axis a curve for each condition.
//!
//! Cells are compared only within their point: a condition with the baseline at the same point, by the
//! same blocks and statistics as elsewhere. The primary metric is judged at the middle point; all other
//! cells are one family (`families`), and indicative. A cell's values are means of its trials on a
//! logarithmic scale with Student's interval; unlike ratios, they include the machine's drift. Next:
//! [`curve`] for the curves and the knee.

mod curve;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use benchmath::{student, summary};
use serde::{Deserialize, Serialize};

use super::compare::{Candidate, has, paired};
use super::comparison::{ALPHA, Bound, Comparison, Interval, Verdict};
use super::families;
use super::pairing::{self, ConditionTrials, PairedTrials, value};
use super::waits::Predicted;
use super::waits::predicted::alone;
use pgio_results::latency::Operation;
use pgio_results::metrics::{self, DeclaredMetric, Direction};
use pgio_results::operation::{Class, Statistic};
use pgio_results::store::Manifest;
use pgio_results::sweep::{Axis, Point, Sweep, SweepKind};
use pgio_results::{Metric, Trial};

pub use curve::{Curve, CurveKnee, CurvePoint, KneePlace, Slope};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepResult {
    pub kind: SweepKind,
    pub axes: Vec<Axis>,
    /// The point at which the primary metric is judged.
    pub middle: Point,
    /// The class of operations whose latencies are shown, such as `transaction`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub latency_class: Option<Operation>,
    /// The middle point's first, in the order of the plan.
    pub cells: Vec<SweptCell>,
    /// One for each axis and condition.
    pub curves: Vec<Curve>,
    /// Remarks on how to read the cells.
    pub notes: Vec<String>,
}

impl SweepResult {
    pub fn is_middle(&self, cell: &SweptCell) -> bool {
        cell.point == self.middle
    }

    /// Whether the predicted commit latency changes along the curve.
    pub fn predicts_change(&self, curve: &Curve) -> bool {
        curve::predicts_change(&curve.points, &self.cells)
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
) -> Option<SweepResult> {
    let sweep = manifest.sweep.as_ref()?;
    let operation = operation(trials);
    let names = shown_metrics(manifest, sweep, trials, operation.as_ref());
    let mut cells = Vec::new();
    let mut away = Vec::new();
    for (n, point) in sweep.points.iter().enumerate() {
        let by_condition = pairing::by_condition_at(manifest, trials, point);
        let swept = |name: &str| n == 0 || !sweep.at_middle_only.iter().any(|c| c == name);
        for info in manifest.conditions.iter().filter(|c| swept(&c.name)) {
            let condition = &by_condition[info.name.as_str()];
            let effect = match by_condition.get(manifest.baseline.as_str()) {
                _ if info.name == manifest.baseline => None,
                _ if n == 0 => judged(&info.name, comparisons),
                Some(baseline) => {
                    away.extend(candidate(manifest, condition, baseline).map(|c| (cells.len(), c)));
                    None
                }
                None => None,
            };
            cells.push(SweptCell {
                condition: info.name.clone(),
                point: point.clone(),
                trials: condition.all.len(),
                valid: condition.valid().count(),
                metrics: estimates(condition, &names, &manifest.metrics),
                effect,
                predicted: alone(info, condition),
            });
        }
    }
    let mut family: Vec<&mut Candidate> =
        away.iter_mut().map(|(_, c)| c).filter(|c| !c.logs.is_empty()).collect();
    families::judge_together(&mut family);
    for (index, candidate) in &away {
        cells[*index].effect = Some(effect(&candidate.comparison));
    }
    let curves = curve::all(manifest, sweep, trials, &cells, operation.as_ref());
    Some(SweepResult {
        kind: sweep.kind,
        axes: sweep.axes.clone(),
        middle: sweep.middle().clone(),
        latency_class: operation,
        cells,
        curves,
        notes: Vec::new(),
    })
}

/// At the middle point, the effect is that of the experiment's comparison.
fn judged(condition: &str, comparisons: &[Comparison]) -> Option<CellEffect> {
    comparisons.iter().find(|c| c.primary && c.condition == condition).map(effect)
}

fn candidate(
    manifest: &Manifest,
    condition: &ConditionTrials<'_>,
    baseline: &ConditionTrials<'_>,
) -> Option<Candidate> {
    let def = metrics::find(&manifest.metrics, &manifest.primary_metric)?;
    Some(paired(&def, &PairedTrials::new(condition, baseline)))
}

/// With fewer trials an interval is too wide to be useful.
const ENOUGH_TRIALS: usize = 3;

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

fn estimates(
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

fn estimate(values: &[f64], unit: String) -> Option<Estimate> {
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

fn effect(c: &Comparison) -> CellEffect {
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

/// Statistics of the class of operations that a session waits for.
const STATISTICS: [Statistic; 5] =
    [Statistic::Mean, Statistic::P50, Statistic::P95, Statistic::P99, Statistic::P99_9];

/// Every cell shows the mean commit latency, because there is a prediction for it.
pub(crate) const COMMIT_MEAN: &str = metrics::latency_name(Class::Commit, Statistic::Mean);

/// The timed operation that a session waits for from end to end; for a command, any operation whose mean
/// it reports.
fn operation(trials: &[Trial]) -> Option<Operation> {
    const KNOWN: [Class; 6] =
        [Class::Transaction, Class::Call, Class::Commit, Class::Update, Class::Read, Class::Device];
    let timed = |class: &Class| {
        let mean = metrics::latency_name(*class, Statistic::Mean);
        trials.iter().any(|t| value(t, mean).is_some())
    };
    KNOWN.into_iter().find(timed).map(Operation::Ours).or_else(|| {
        let measured = trials.iter().flat_map(|t| &t.metrics).filter(|(_, m)| m.value.is_some());
        let operations = measured.filter_map(|(name, _)| Operation::from_mean(name));
        operations.min_by(|a, b| a.name().cmp(b.name()))
    })
}

/// The metrics that every cell shows.
fn shown_metrics(
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
    // The metrics that a command declares.
    names.extend(manifest.metrics.iter().map(|declared| declared.name.clone()));
    names.sort();
    names.dedup();
    names
}

/// Axes along which an operation does more work, with the metric that counts this work.
const BY_AMOUNT: &[(&str, &str)] = &[
    ("rows_per_transaction", "rows_per_second"),
    ("work_unit", "block_visits_per_second"),
    ("update_work_unit", "block_visits_per_second"),
    ("batch", "block_visits_per_second"),
    ("commit_every", "block_visits_per_second"),
    ("block_size", "device_bytes_per_second"),
];

/// The rate that is plotted against latency along an axis.
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
    // With a given rate, the workload's own primary metric is a latency as well.
    let own = trials.first().map(|t| t.workload.primary_metric.as_str());
    let counted = ["calls_per_second", "messages_per_minute"].into_iter().filter(|n| measured(n));
    let known = [Some(primary.as_str()), own].into_iter().flatten().chain(counted);
    known.into_iter().find(|name| is_rate(name)).unwrap_or(primary).to_owned()
}
