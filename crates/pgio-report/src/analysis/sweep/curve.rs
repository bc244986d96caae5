//! The curve of a condition along one axis, with all other axes at their middle: its values, its knee,
//! and the slope of the commit latency.
//!
//! Axes that increase the load have a knee. It is computed from the means over blocks, and from each
//! block alone to show how certain it is. If the trials at some value do not count, as at a rate above
//! capacity, only the values before are used. A lower bound of the latency makes power an upper bound, so
//! it may lose but not win. Axes along which the predicted commit latency changes, such as the delay of a
//! link, have a slope: a least-squares line through each block's points, with Student's interval over the
//! blocks' slopes. A point with a lower bound of the latency is left out of it.

use std::collections::BTreeMap;

use benchmath::knee::{Knee, LoadPoint, knee};
use benchmath::{student, summary};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{COMMIT_MEAN, ENOUGH_TRIALS, SweptCell, throughput};
use crate::analysis::comparison::{ALPHA, Interval};
use crate::analysis::pairing::{self, value};
use pgio_results::Trial;
use pgio_results::latency::Operation;
use pgio_results::operation::Statistic;
use pgio_results::store::Manifest;
use pgio_results::sweep::{Axis, Point, Sweep};

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
pub struct Curve {
    pub axis: String,
    pub condition: String,
    /// The rate that latency is compared with.
    pub throughput: String,
    /// Numbers in ascending order, words in the order of the file.
    pub points: Vec<CurvePoint>,
    /// The load beyond which latency grows faster than throughput; null if the axis is not a load, or
    /// if fewer than three consecutive values from the first have trials that count.
    pub knee: Option<CurveKnee>,
    /// The time that a step along the axis adds to a commit; null without a prediction.
    pub slope: Option<Slope>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CurvePoint {
    pub value: Value,
    /// Its position on a numeric scale; null for a word.
    pub at: Option<f64>,
    /// Index of its cell.
    pub cell: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CurveKnee {
    pub place: KneePlace,
    /// The value of the axis at the knee, at the end of the range, or with the lower bound.
    pub value: Value,
    /// Blocks with the same knee, of the blocks that contain the whole curve; 0 if it is unknown.
    pub agreeing: usize,
    pub blocks: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KneePlace {
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
pub struct Slope {
    pub seconds: f64,
    /// The 95 % interval over blocks; null with fewer than three.
    #[serde(flatten)]
    pub interval: Interval,
    /// The predicted slope.
    pub predicted: f64,
}

pub(super) fn all(
    manifest: &Manifest,
    sweep: &Sweep,
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

fn points(sweep: &Sweep, axis: &Axis, condition: &str, cells: &[SweptCell]) -> Vec<CurvePoint> {
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
pub(super) fn predicts_change(points: &[CurvePoint], cells: &[SweptCell]) -> bool {
    predictions(points, cells).is_some_and(|p| changes(&p))
}

/// The slope of the least-squares line; `None` if all points have the same x.
fn least_squares(x: &[f64], y: &[f64]) -> Option<f64> {
    let (mean_x, mean_y) = (summary::mean(x)?, summary::mean(y)?);
    let spread: f64 = x.iter().map(|x| (x - mean_x).powi(2)).sum();
    let together: f64 = x.iter().zip(y).map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (spread > 0.0).then(|| together / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_squares_finds_the_slope_of_a_line() {
        let found = least_squares(&[0.0, 1.0, 5.0], &[3.0, 5.0, 13.0]).unwrap();
        assert!((found - 2.0).abs() < 1e-12);
        assert_eq!(least_squares(&[1.0, 1.0], &[3.0, 5.0]), None);
    }
}
