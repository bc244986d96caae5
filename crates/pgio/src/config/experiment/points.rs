//! The points of a workload's axes, and what runs at each. Without axes there is one.
//!
//! A point has one value of every axis. The primary metric is judged at the middle point; one axis at a time is varied
//! from there, or a grid has every combination. Features bring the axes ([`super::part`]). A cell is a condition at a
//! point, and each block contains every cell once. [`super::size`] computes the size of a sweep.

use super::condition::{Condition, TreatmentSpec};
use super::workload::WorkloadSpec;
use crate::config::keys::Layer;

use pgio_results::points::Combination;

#[derive(Debug, Clone, PartialEq)]
pub struct AxisSpec {
    pub name: String,
    pub unit: Option<String>,
    /// At least two values, in the order of the file.
    pub values: Vec<AxisValueSpec>,
    /// Index of the middle value.
    pub middle: usize,
    /// Treatments for every condition, with a placeholder for the value; empty for an axis of the
    /// workload.
    pub templates: Vec<TreatmentSpec>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AxisValueSpec {
    pub value: toml::Value,
    /// The value as a number (seconds for durations, bytes for sizes); absent for text.
    pub at: Option<f64>,
    /// The key that the value sets, for an axis of the workload.
    pub layer: Layer,
}

impl AxisSpec {
    /// Returns whether the axis varies the workload; otherwise it varies the environment.
    pub fn varies_workload(&self) -> bool {
        self.values.iter().any(|v| v.layer != Layer::default())
    }

    pub(crate) fn placeholder(&self) -> String {
        format!("{{{}}}", self.name)
    }
}

impl AxisValueSpec {
    /// Returns the value as written in a file, without quotes.
    pub fn text(&self) -> String {
        value_text(&self.value)
    }
}

/// A point: the index of a value for every axis of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointSpec(Vec<usize>);

impl WorkloadSpec {
    /// Returns all points, the middle point first.
    pub fn points(&self, kind: Combination) -> Vec<PointSpec> {
        let middle: Vec<usize> = self.axes.iter().map(|axis| axis.middle).collect();
        let mut points = vec![middle.clone()];
        match kind {
            Combination::OneAtATime => {
                for (n, axis) in self.axes.iter().enumerate() {
                    for value in (0..axis.values.len()).filter(|v| *v != axis.middle) {
                        let mut point = middle.clone();
                        point[n] = value;
                        points.push(point);
                    }
                }
            }
            Combination::Grid => {
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
    pub fn count_points(&self, kind: Combination) -> u64 {
        let values = self.axes.iter().map(|axis| axis.values.len() as u64);
        match kind {
            Combination::OneAtATime => 1 + values.map(|n| n - 1).sum::<u64>(),
            Combination::Grid => values.fold(1, u64::saturating_mul),
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

    /// Returns the treatments of a condition at a point: its own and the axes'.
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

pub(crate) fn value_text(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Merges a table into another; returns false if either is not a table or if both have a key.
pub(crate) fn merge(own: &mut toml::Value, other: &toml::Value) -> bool {
    let (Some(own), Some(other)) = (own.as_table_mut(), other.as_table()) else { return false };
    if other.keys().any(|key| own.contains_key(key)) {
        return false;
    }
    own.extend(other.iter().map(|(key, value)| (key.clone(), value.clone())));
    true
}

/// Replaces the placeholder in every string.
fn fill(body: &mut toml::Value, placeholder: &str, value: &str) {
    match body {
        toml::Value::String(text) if text.contains(placeholder) => {
            *text = text.replace(placeholder, value);
        }
        toml::Value::Array(items) => {
            items.iter_mut().for_each(|item| fill(item, placeholder, value));
        }
        toml::Value::Table(table) => {
            table.iter_mut().for_each(|(_, inner)| fill(inner, placeholder, value));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::config::experiment::tests::read;

    proptest! {
        #[test]
        fn a_grid_has_every_combination_once_and_contains_the_star(
            lengths in prop::collection::vec(2usize..5, 1..4), middles in prop::collection::vec(0usize..5, 3),
        ) {
            let axis = |(n, (length, middle)): (usize, (&usize, &usize))| AxisSpec {
                name: format!("a{n}"),
                unit: None,
                values: (0..*length)
                    .map(|v| AxisValueSpec {
                        value: toml::Value::Integer(v as i64),
                        at: Some(v as f64),
                        layer: Layer::default(),
                    })
                    .collect(),
                middle: middle % length,
                templates: Vec::new(),
            };
            let mut workload = read("[[condition]]\nname = 'a'\n").workloads.remove(0);
            workload.axes = lengths.iter().zip(&middles).enumerate().map(axis).collect();
            let set = |kind| -> (usize, BTreeSet<Vec<usize>>) {
                let points = workload.points(kind);
                (points.len(), points.into_iter().map(|p| p.0).collect())
            };
            let (grid_length, grid) = set(Combination::Grid);
            let (star_length, star) = set(Combination::OneAtATime);
            prop_assert_eq!(grid_length, lengths.iter().product::<usize>());
            prop_assert_eq!(grid.len(), grid_length);
            prop_assert_eq!(star.len(), star_length);
            prop_assert!(star.is_subset(&grid));
            for kind in [Combination::Grid, Combination::OneAtATime] {
                prop_assert_eq!(workload.count_points(kind), workload.points(kind).len() as u64);
                let middle: Vec<usize> = workload.axes.iter().map(|a| a.middle).collect();
                prop_assert_eq!(&workload.points(kind)[0].0, &middle);
            }
        }
    }
}
