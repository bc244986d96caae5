//! Analyzes a sweep: all cells, and along each axis a curve for each condition.
//!
//! Cells are compared only within their point: a condition with the baseline at the same point, by the
//! same blocks and statistics as elsewhere. The primary metric is judged at the middle point; all other
//! cells are one family (`families`), and indicative. A cell's values are means of its trials on a
//! logarithmic scale with Student's interval; unlike ratios, they include the machine's drift. Next:
//! [`curve`] for the curves and the knee.

mod cell;
mod curve;
mod measured;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::candidate::Candidate;
use super::compare::paired;
use super::comparison::Comparison;
use super::families;
use super::pairing::{self, ConditionTrials, PairedTrials};
use super::waits::predicted::alone;
use pgio_results::Trial;
use pgio_results::latency::Operation;
use pgio_results::metrics;
use pgio_results::store::Manifest;
use pgio_results::sweep::{Axis, Point, SweepKind};

pub(crate) use self::measured::COMMIT_MEAN;
pub use cell::{CellEffect, Estimate, SweptCell};
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
    let operation = measured::operation(trials);
    let names = measured::shown_metrics(manifest, sweep, trials, operation.as_ref());
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
                metrics: cell::estimates(condition, &names, &manifest.metrics),
                effect,
                predicted: alone(info, condition),
            });
        }
    }
    let mut family: Vec<&mut Candidate> =
        away.iter_mut().map(|(_, c)| c).filter(|c| !c.logs.is_empty()).collect();
    families::judge_together(&mut family);
    for (index, candidate) in &away {
        cells[*index].effect = Some(cell::effect(&candidate.comparison));
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
    comparisons.iter().find(|c| c.primary && c.condition == condition).map(cell::effect)
}

fn candidate(
    manifest: &Manifest,
    condition: &ConditionTrials<'_>,
    baseline: &ConditionTrials<'_>,
) -> Option<Candidate> {
    let def = metrics::find(&manifest.metrics, &manifest.primary_metric)?;
    Some(paired(&def, &PairedTrials::new(condition, baseline)))
}
