//! Analyzes a sweep: all cells, and along each axis a curve for each condition.
//!
//! Cells are compared only within their point: a condition with the baseline at the same point, by the
//! same blocks and statistics as elsewhere. The primary metric is judged at the middle point; all other
//! cells are one family (`pgio_verdict::compare_apart`), and indicative. A cell's values are means of its trials on a
//! logarithmic scale with Student's interval; unlike ratios, they include the machine's drift. Next: `tables`
//! words it.

#[cfg(test)]
#[path = "curves_tests.rs"]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use benchmath::knee::{Knee, LoadPoint, knee};
use benchmath::{student, summary};
use pgio_results::latency::{Class, Operation, Statistic};
use pgio_results::metrics::{self, DeclaredMetric, Direction};
use pgio_results::points::{Axis, Combination, Point, Varied};
use pgio_results::store::Manifest;
use pgio_results::{Metric, Trial};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use pgio_verdict::pairing::{self, ByCondition, ConditionTrials, PairedTrials, value};
use pgio_verdict::waits::{self, Predicted};
use pgio_verdict::{ALPHA, Bound, Comparison, Interval, Verdict, compare_apart, is_meaningful};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct SweepResult {
    pub(super) kind: Combination,
    pub(super) axes: Vec<Axis>,
    /// The point at which the primary metric is judged.
    pub(super) middle: Point,
    /// The class of operations whose latencies are shown, such as `transaction`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub(super) latency_class: Option<Operation>,
    /// The middle point's first, in the order of the plan.
    pub(super) cells: Vec<SweptCell>,
    /// One for each axis and condition.
    pub(super) curves: Vec<Curve>,
    /// Remarks on how to read the cells.
    pub(super) notes: Vec<String>,
}

impl SweepResult {
    pub(super) fn is_middle(&self, cell: &SweptCell) -> bool {
        cell.point == self.middle
    }

    /// Whether the predicted commit latency changes along the curve.
    pub(super) fn predicts_change(&self, curve: &Curve) -> bool {
        predicts_change(&curve.points, &self.cells)
    }

    /// The curves along an axis, by condition.
    pub(super) fn curves_along<'a>(&'a self, axis: &'a str) -> impl Iterator<Item = &'a Curve> {
        self.curves.iter().filter(move |curve| curve.axis == axis)
    }
}

pub(super) fn all(
    manifest: &Manifest,
    trials: &[Trial],
    comparisons: &[Comparison],
) -> Option<SweepResult> {
    let sweep = manifest.varied.as_ref()?;
    let operation = operation(trials);
    let names = shown_metrics(manifest, sweep, trials, operation.as_ref());
    let mut cells = Vec::new();
    let mut away = Vec::new();
    let at_points: Vec<ByCondition<'_>> =
        sweep.points.iter().map(|p| pairing::by_condition_at(manifest, trials, p)).collect();
    for (n, (point, by_condition)) in sweep.points.iter().zip(&at_points).enumerate() {
        let swept = |name: &str| n == 0 || !sweep.at_middle_only.iter().any(|c| c == name);
        for info in manifest.conditions.iter().filter(|c| swept(&c.name)) {
            let condition = &by_condition[info.name.as_str()];
            let effect = match by_condition.get(manifest.baseline.as_str()) {
                _ if info.name == manifest.baseline => None,
                _ if n == 0 => judged(&info.name, comparisons),
                Some(baseline) => {
                    away.push((cells.len(), PairedTrials::new(condition, baseline)));
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
                predicted: waits::predict(info, condition),
            });
        }
    }
    let (indexes, pairs): (Vec<usize>, Vec<PairedTrials<'_, '_>>) = away.into_iter().unzip();
    for (index, comparison) in indexes.into_iter().zip(compare_apart(manifest, &pairs)) {
        cells[index].effect = Some(effect(&comparison));
    }
    let curves = curves(manifest, sweep, trials, &cells, operation.as_ref());
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

/// At the middle point, the effect is the experiment's comparison.
fn judged(condition: &str, comparisons: &[Comparison]) -> Option<CellEffect> {
    comparisons.iter().find(|c| c.primary && c.condition == condition).map(effect)
}

/// With fewer trials an interval is too wide to be useful.
const ENOUGH_TRIALS: usize = 3;

/// A condition at a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct SweptCell {
    pub(super) condition: String,
    pub(super) point: Point,
    /// Trials on record; `valid` is the number of those that count.
    pub(super) trials: usize,
    pub(super) valid: usize,
    /// The primary metric, throughput and latencies, by name.
    pub(super) metrics: BTreeMap<String, Estimate>,
    /// Effect on the primary metric against the baseline at this point; null for the baseline itself.
    pub(super) effect: Option<CellEffect>,
    /// The predicted latency of a single commit.
    pub(super) predicted: Option<Predicted>,
}

/// A value over the trials of a cell that count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Estimate {
    pub(super) value: f64,
    /// The 95 % interval; null with fewer than three trials.
    #[serde(flatten)]
    pub(super) interval: Interval,
    pub(super) unit: String,
    /// The value is a lower bound, and there is no interval: the window's end cut off operations.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) at_least: bool,
}

/// condition / baseline within one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct CellEffect {
    pub(super) ratio: Option<f64>,
    /// The interval, from the same test as the verdict: 95 % for all cells together.
    #[serde(flatten)]
    pub(super) interval: Interval,
    pub(super) p: Option<f64>,
    /// Adjusted for all cells away from the middle point; at the middle for the conditions.
    pub(super) p_adjusted: Option<f64>,
    pub(super) verdict: Verdict,
    pub(super) blocks: usize,
    /// Whether the effect is only a bound, as in a comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bound: Option<Bound>,
}

fn estimates(
    condition: &ConditionTrials<'_>,
    names: &[String],
    declared: &[DeclaredMetric],
) -> BTreeMap<String, Estimate> {
    let one = |name: &String| {
        // A percentile below the clock's resolution is meaningless.
        if metrics::find(declared, name).is_some_and(|def| !is_meaningful(condition, &def)) {
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
pub(super) const COMMIT_MEAN: &str = metrics::latency_name(Class::Commit, Statistic::Mean);

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
    sweep: &Varied,
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

// The curve of a condition along one axis, with all other axes at their middle: its values, its knee, and the slope
// of the commit latency. Axes that increase the load have a knee. It is computed from the means over blocks, and
// from each block alone to show how certain it is. If the trials at some value do not count, as at a rate above
// capacity, only the values before are used. A lower bound of the latency makes power an upper bound, so it may lose
// but not win. Axes along which the predicted commit latency changes, such as the delay of a link, have a slope: a
// least-squares line through each block's points, with Student's interval over the blocks' slopes. A point with a
// lower bound of the latency is left out of it.

/// Predictions that differ by fewer seconds are equal.
const NO_CHANGE: f64 = 1e-7;

/// Keys of the workload whose greater values increase the load.
const LOADS: &[&str] = &[
    "sessions",
    "num_threads",
    "threads",
    "rate",
    "pipeline",
    "depth",
    "rows_per_transaction",
    "work_unit",
    "update_work_unit",
    "batch",
    "commit_every",
    "block_size",
];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Curve {
    pub(super) axis: String,
    pub(super) condition: String,
    /// The rate that latency is compared with.
    pub(super) throughput: String,
    /// Numbers in ascending order, words in the order of the file.
    pub(super) points: Vec<CurvePoint>,
    /// The load beyond which latency grows faster than throughput; null if the axis is not a load, or
    /// if fewer than three consecutive values from the first have trials that count.
    pub(super) knee: Option<CurveKnee>,
    /// The time that a step along the axis adds to a commit; null without a prediction.
    pub(super) slope: Option<Slope>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct CurvePoint {
    pub(super) value: Value,
    /// Its position on a numeric scale; null for a word.
    pub(super) at: Option<f64>,
    /// Index of its cell.
    pub(super) cell: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct CurveKnee {
    pub(super) place: KneePlace,
    /// The value of the axis at the knee, at the end of the range, or with the lower bound.
    pub(super) value: Value,
    /// Blocks with the same knee, of the blocks that contain the whole curve; 0 if it is unknown.
    pub(super) agreeing: usize,
    pub(super) blocks: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum KneePlace {
    At,
    AtOrBelowFirst,
    /// No knee within the range.
    BeyondLast,
    /// Power is greatest where only a lower bound of the latency is known.
    Unknown,
}

/// Seconds of a commit for each unit of the axis.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Slope {
    pub(super) seconds: f64,
    /// The 95 % interval over blocks; null with fewer than three.
    #[serde(flatten)]
    pub(super) interval: Interval,
    /// The predicted slope.
    pub(super) predicted: f64,
}

fn curves(
    manifest: &Manifest,
    sweep: &Varied,
    trials: &[Trial],
    cells: &[SweptCell],
    operation: Option<&Operation>,
) -> Vec<Curve> {
    let mut curves = Vec::new();
    for axis in &sweep.axes {
        let throughput = throughput(manifest, trials, &axis.name);
        let latency = operation.and_then(|operation| operation.metric(Statistic::Mean));
        let swept = |name: &str| !sweep.at_middle_only.iter().any(|c| c == name);
        for info in manifest.conditions.iter().filter(|c| swept(&c.name)) {
            let points = points(sweep, axis, &info.name, cells);
            let by_block_of =
                |points: &[CurvePoint]| by_block(manifest, trials, &info.name, points, cells);
            let knee = latency.as_ref().filter(|_| is_load(axis)).and_then(|latency| {
                let measured = measured_prefix(&points, cells, (&throughput, latency));
                let block_values = by_block_of(measured);
                find_knee(measured, cells, &block_values, (&throughput, latency))
            });
            let exact: Vec<CurvePoint> =
                points.iter().filter(|p| !is_lower_bound(p, cells, COMMIT_MEAN)).cloned().collect();
            curves.push(Curve {
                axis: axis.name.clone(),
                condition: info.name.clone(),
                throughput: throughput.clone(),
                slope: slope(&exact, cells, &by_block_of(&exact)),
                knee,
                points,
            });
        }
    }
    curves
}

fn is_load(axis: &Axis) -> bool {
    axis.of_work
        && LOADS.contains(&axis.name.as_str())
        && axis.values.iter().all(|v| v.at.is_some())
}

/// The points from the first on that have values.
fn measured_prefix<'a>(
    points: &'a [CurvePoint],
    cells: &[SweptCell],
    (throughput, latency): (&str, &str),
) -> &'a [CurvePoint] {
    let has = |point: &CurvePoint| {
        let metrics = &cells[point.cell].metrics;
        metrics.contains_key(throughput) && metrics.contains_key(latency)
    };
    let without = points.iter().position(|point| !has(point));
    &points[..without.unwrap_or(points.len())]
}

fn points(sweep: &Varied, axis: &Axis, condition: &str, cells: &[SweptCell]) -> Vec<CurvePoint> {
    let cell =
        |point: &Point| cells.iter().position(|c| c.condition == condition && c.point == *point);
    let along = sweep.along(axis).filter_map(|(value, point)| {
        Some(CurvePoint { value: value.value.clone(), at: value.at, cell: cell(&point)? })
    });
    let mut points: Vec<CurvePoint> = along.collect();
    if points.iter().all(|p| p.at.is_some()) {
        points.sort_by(|a, b| a.at.unwrap_or_default().total_cmp(&b.at.unwrap_or_default()));
    }
    points
}

/// The blocks that contain the whole curve, each with one trial that counts per point.
fn by_block<'a>(
    manifest: &'a Manifest,
    trials: &'a [Trial],
    condition: &str,
    points: &[CurvePoint],
    cells: &[SweptCell],
) -> Vec<Vec<&'a Trial>> {
    let mut blocks: BTreeMap<u32, Vec<&Trial>> = BTreeMap::new();
    for point in points {
        let by_condition = pairing::by_condition_at(manifest, trials, &cells[point.cell].point);
        for (block, trial) in
            by_condition.get(condition).iter().flat_map(|condition| condition.by_block())
        {
            blocks.entry(block).or_default().push(trial);
        }
    }
    blocks.into_values().filter(|trials| trials.len() == points.len()).collect()
}

fn find_knee(
    points: &[CurvePoint],
    cells: &[SweptCell],
    by_block: &[Vec<&Trial>],
    (throughput, latency): (&str, &str),
) -> Option<CurveKnee> {
    let mean = |point: &CurvePoint| {
        let value = |name: &str| cells[point.cell].metrics.get(name).map(|e| e.value);
        Some(LoadPoint { throughput: value(throughput)?, latency: value(latency)? })
    };
    let found = knee(&points.iter().map(mean).collect::<Option<Vec<_>>>()?)?;
    let block_values = |trials: &&Vec<&Trial>| {
        let one = |t: &&Trial| {
            Some(LoadPoint { throughput: value(t, throughput)?, latency: value(t, latency)? })
        };
        trials.iter().map(one).collect::<Option<Vec<_>>>().and_then(|all| knee(&all))
    };
    let (place, at) = match found {
        Knee::At(at) => (KneePlace::At, at),
        Knee::AtOrBelowFirst => (KneePlace::AtOrBelowFirst, 0),
        Knee::BeyondLast => (KneePlace::BeyondLast, points.len() - 1),
    };
    let is_known = !is_lower_bound(&points[at], cells, latency);
    let agrees = |block: &&Vec<&Trial>| is_known && block_values(block) == Some(found);
    Some(CurveKnee {
        place: if is_known { place } else { KneePlace::Unknown },
        value: points[at].value.clone(),
        agreeing: by_block.iter().filter(agrees).count(),
        blocks: by_block.len(),
    })
}

/// Whether only a lower bound of this latency is known at this point.
fn is_lower_bound(point: &CurvePoint, cells: &[SweptCell], latency: &str) -> bool {
    cells[point.cell].metrics.get(latency).is_some_and(|estimate| estimate.at_least)
}

fn slope(points: &[CurvePoint], cells: &[SweptCell], by_block: &[Vec<&Trial>]) -> Option<Slope> {
    let at: Vec<f64> = points.iter().map(|p| p.at).collect::<Option<_>>()?;
    let predicted = predictions(points, cells).filter(|p| changes(p))?;
    let block_values = |trials: &Vec<&Trial>| {
        let taken: Option<Vec<f64>> = trials.iter().map(|t| value(t, COMMIT_MEAN)).collect();
        least_squares(&at, &taken?)
    };
    let slopes: Vec<f64> = by_block.iter().filter_map(block_values).collect();
    let enough = slopes.len() >= ENOUGH_TRIALS;
    let interval = student::test(&slopes, ALPHA).filter(|_| enough).map(|t| t.interval);
    Some(Slope {
        seconds: summary::mean(&slopes)?,
        interval: interval.into(),
        predicted: least_squares(&at, &predicted)?,
    })
}

/// The predicted latency of a commit at each point, if there is a prediction for all.
fn predictions(points: &[CurvePoint], cells: &[SweptCell]) -> Option<Vec<f64>> {
    points.iter().map(|p| cells[p.cell].predicted.as_ref().map(|p| p.seconds)).collect()
}

fn changes(predicted: &[f64]) -> bool {
    predicted.iter().any(|seconds| (seconds - predicted[0]).abs() > NO_CHANGE)
}

/// Whether the predicted commit latency changes along the curve.
fn predicts_change(points: &[CurvePoint], cells: &[SweptCell]) -> bool {
    predictions(points, cells).is_some_and(|p| changes(&p))
}

/// The slope of the least-squares line; `None` if all points have the same x.
fn least_squares(x: &[f64], y: &[f64]) -> Option<f64> {
    let (mean_x, mean_y) = (summary::mean(x)?, summary::mean(y)?);
    let spread: f64 = x.iter().map(|x| (x - mean_x).powi(2)).sum();
    let together: f64 = x.iter().zip(y).map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (spread > 0.0).then(|| together / spread)
}
