//! Sweeps: the points of a workload's axes, and what runs at each.
//!
//! A point has one value of every axis. The primary metric is judged at the middle point; a sweep
//! varies one axis at a time from there, or a grid runs every combination. A cell is a condition at a
//! point, and each block contains every cell once. [`super::size`] computes the size of a sweep.

use super::axis::{AxisSpec, AxisValueSpec, fill, merge};
use super::condition::{Condition, TreatmentSpec};
use super::limits;
use super::section::Section;
use super::spec::Experiment;
use super::workload::WorkloadSpec;
use crate::config::error::ConfigError;
use crate::config::keys::Layer;
pub use pgio_results::sweep::SweepKind;

/// A point: the index of a value for every axis of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointSpec(Vec<usize>);

impl WorkloadSpec {
    /// Returns all points, the middle point first.
    pub fn points(&self, kind: SweepKind) -> Vec<PointSpec> {
        let middle: Vec<usize> = self.axes.iter().map(|axis| axis.middle).collect();
        let mut points = vec![middle.clone()];
        match kind {
            SweepKind::OneAtATime => {
                for (n, axis) in self.axes.iter().enumerate() {
                    for value in (0..axis.values.len()).filter(|v| *v != axis.middle) {
                        let mut point = middle.clone();
                        point[n] = value;
                        points.push(point);
                    }
                }
            }
            SweepKind::Grid => {
                let mut grid = vec![Vec::new()];
                for axis in &self.axes {
                    let with = |point: &Vec<usize>| {
                        let longer = |value| [point.as_slice(), &[value]].concat();
                        (0..axis.values.len()).map(longer).collect::<Vec<_>>()
                    };
                    grid = grid.iter().flat_map(with).collect();
                }
                points.extend(grid.into_iter().filter(|point| *point != middle));
            }
        }
        points.into_iter().map(PointSpec).collect()
    }

    /// Counts the points without creating them: a grid may be too large.
    pub fn count_points(&self, kind: SweepKind) -> u64 {
        let values = self.axes.iter().map(|axis| axis.values.len() as u64);
        match kind {
            SweepKind::OneAtATime => 1 + values.map(|n| n - 1).sum::<u64>(),
            SweepKind::Grid => values.fold(1, u64::saturating_mul),
        }
    }

    /// Returns each axis with its value at the point.
    pub fn at<'a>(
        &'a self,
        point: &'a PointSpec,
    ) -> impl Iterator<Item = (&'a AxisSpec, &'a AxisValueSpec)> + 'a {
        self.axes.iter().zip(&point.0).map(|(axis, value)| (axis, &axis.values[*value]))
    }

    /// Returns the workload's keys at the point.
    pub fn layer_at(&self, point: &PointSpec) -> Layer {
        let all = self.at(point).map(|(_, value)| value.layer.clone());
        all.fold(self.layer.clone(), |layer, value| value.over(layer))
    }

    /// Returns the treatments of a single axis at one of its values, with all other axes at their middle.
    pub fn templates_at(&self, axis: usize, value: usize) -> Vec<TreatmentSpec> {
        let mut point: Vec<usize> = self.axes.iter().map(|axis| axis.middle).collect();
        point[axis] = value;
        self.filled(self.axes[axis].templates.clone(), &PointSpec(point))
    }

    /// Returns the treatments of a condition at a point: its own and those of the axes.
    pub fn treatments_at(&self, condition: &Condition, point: &PointSpec) -> Vec<TreatmentSpec> {
        let mut specs = condition.treatments.clone();
        for template in self.axes.iter().flat_map(|axis| &axis.templates) {
            match specs.iter_mut().find(|spec| spec.kind == template.kind) {
                // The parser has checked that both are tables without a common key.
                Some(own) => {
                    merge(&mut own.body, &template.body);
                }
                None => specs.push(template.clone()),
            }
        }
        self.filled(specs, point)
    }

    fn filled(&self, mut specs: Vec<TreatmentSpec>, point: &PointSpec) -> Vec<TreatmentSpec> {
        for spec in &mut specs {
            for (axis, value) in self.at(point) {
                fill(&mut spec.body, &axis.placeholder(), &value.text());
            }
        }
        specs
    }
}

/// Refuses `sweep` in a condition if there is no sweep, and `sweep = false` for the baseline.
pub(super) fn check_conditions(
    root: &Section<'_>,
    experiment: &Experiment,
) -> Result<(), ConfigError> {
    let swept = experiment.workloads.iter().any(|w| !w.axes.is_empty());
    for section in root.sections_within("condition", limits::CONDITIONS)? {
        if section.has("sweep") && !swept {
            let message = "requires an axis; write a list in [workload], or [[axis]]";
            return Err(section.error("sweep", message));
        }
        let is_baseline = section.string("name")? == Some(experiment.baseline.as_str());
        if section.boolean("sweep")? == Some(false) && is_baseline {
            let message = "cannot be false for the baseline, because the others are compared with it at every point";
            return Err(section.error("sweep", message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
