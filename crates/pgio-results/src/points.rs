//! What is varied beside the conditions: axes, the points that they make, and cells.
//!
//! Stored unchanged in the manifest; each trial records its point. The first point is the middle
//! one: each axis is varied from it with all others fixed, and the primary metric is judged at it.
//! An experiment without axes has one point, which is empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A value for each axis, by the axis's name; empty without axes.
pub type Point = BTreeMap<String, Value>;

/// The only point of an experiment without axes.
pub(super) static ONLY_POINT: Point = Point::new();

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Sweep"))]
pub struct Varied {
    pub kind: Combination,
    pub axes: Vec<Axis>,
    /// In execution order, the middle one first.
    pub points: Vec<Point>,
    /// Conditions that run only at the middle point, such as the A/A twin.
    #[serde(default)]
    pub at_middle_only: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Axis {
    pub name: String,
    pub unit: Option<String>,
    /// In the order of the experiment file.
    pub values: Vec<AxisValue>,
    /// Whether it changes the workload; otherwise it changes all conditions, including the
    /// baseline.
    pub of_work: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AxisValue {
    /// As written in the experiment file.
    pub value: Value,
    /// Its position on a numeric scale: the number, seconds or bytes; null for a word.
    pub at: Option<f64>,
    /// Changes, as text, that this axis value applies to every condition.
    #[serde(default)]
    pub treatments: Vec<String>,
}

/// A condition at a point; each block has one trial of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    pub condition: String,
    pub point: Point,
}

impl Varied {
    pub fn middle(&self) -> &Point {
        self.points.first().unwrap_or(&ONLY_POINT)
    }

    /// The middle point and the points that differ from it only in this axis, each with its value,
    /// in the order of the axis's values.
    pub fn along<'a>(
        &'a self,
        axis: &'a Axis,
    ) -> impl Iterator<Item = (&'a AxisValue, Point)> + 'a {
        let at = |value: &'a AxisValue| {
            let mut point = self.middle().clone();
            point.insert(axis.name.clone(), value.value.clone());
            (value, point)
        };
        axis.values.iter().map(at).filter(|(_, point)| self.points.contains(point))
    }

    /// The differences from the middle point, such as `sessions = 16, delay = 5 ms`.
    pub fn describe_difference(&self, point: &Point) -> String {
        let differs = |axis: &&Axis| point.get(&axis.name) != self.middle().get(&axis.name);
        self.describe(point, self.axes.iter().filter(differs))
    }

    /// The values of all axes.
    pub fn describe_point(&self, point: &Point) -> String {
        self.describe(point, self.axes.iter())
    }

    fn describe<'a>(&self, point: &Point, axes: impl Iterator<Item = &'a Axis>) -> String {
        let text = |axis: &Axis| {
            let value = value_text(point.get(&axis.name)?);
            let unit = axis.unit.as_ref().map_or_else(String::new, |u| format!(" {u}"));
            Some(format!("{} = {value}{unit}", axis.name))
        };
        axes.filter_map(text).collect::<Vec<_>>().join(", ")
    }
}

/// A value as text, without JSON quotes.
pub fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "SweepKind"))]
#[serde(rename_all = "kebab-case")]
pub enum Combination {
    /// From the middle point along each axis.
    OneAtATime,
    /// Every combination of values.
    Grid,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn varied() -> Varied {
        let value = |v: Value| AxisValue { at: v.as_f64(), value: v, treatments: Vec::new() };
        let axis = |name: &str, unit: Option<&str>, values: &[Value]| Axis {
            name: name.to_owned(),
            unit: unit.map(str::to_owned),
            values: values.iter().cloned().map(value).collect(),
            of_work: unit.is_none(),
        };
        let point = |sessions: u64, delay: u64| {
            Point::from([
                ("sessions".to_owned(), json!(sessions)),
                ("delay".to_owned(), json!(delay)),
            ])
        };
        Varied {
            kind: Combination::OneAtATime,
            axes: vec![
                axis("sessions", None, &[json!(1), json!(4)]),
                axis("delay", Some("ms"), &[json!(0), json!(5)]),
            ],
            points: vec![point(4, 0), point(1, 0), point(4, 5)],
            at_middle_only: Vec::new(),
        }
    }

    #[test]
    fn a_point_is_described_by_its_differences_from_the_middle() {
        let s = varied();
        let texts: Vec<String> = s.points.iter().map(|p| s.describe_difference(p)).collect();
        assert_eq!(texts, ["", "sessions = 1", "delay = 5 ms"]);
        assert_eq!(s.describe_point(s.middle()), "sessions = 4, delay = 0 ms");
    }

    #[test]
    fn along_an_axis_the_others_are_fixed() {
        let s = varied();
        let along = |n: usize| -> Vec<Point> { s.along(&s.axes[n]).map(|(_, p)| p).collect() };
        assert_eq!(along(0), [s.points[1].clone(), s.points[0].clone()]);
        assert_eq!(along(1), [s.points[0].clone(), s.points[2].clone()]);
    }

    #[test]
    fn axes_and_points_survive_serialization() {
        let text = serde_json::to_string(&varied()).unwrap();
        assert!(text.contains("\"one-at-a-time\""), "{text}");
        assert_eq!(serde_json::from_str::<Varied>(&text).unwrap(), varied());
    }
}
