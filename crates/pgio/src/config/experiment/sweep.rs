//! Axes: what is varied beside the conditions, and the cells that come of it.
//!
//! A key of `[workload]` with a list of values is an axis of the work; `[[axis]]` is one of the
//! world: treatments, with the value in the place of `{name}`, that every condition gets, the
//! baseline as well. A point has a value of every axis. The middle point is where the primary metric
//! is judged; from it one axis is followed at a time, or a grid takes every combination. A cell is a
//! condition at a point, and each block holds every cell once. How large that becomes is
//! [`super::size`]'s.

use super::Experiment;
use super::condition::{Condition, TreatmentSpec};
use super::limits;
use super::section::Section;
use super::workload::WorkloadSpec;
use crate::config::error::{ConfigError, nearest};
use crate::config::keys::{Key, Layer, Use};
use crate::config::sections;
use crate::config::value::Kind;
use crate::units;
pub use crate::units::sweep::SweepKind;

#[derive(Debug, Clone, PartialEq)]
pub struct AxisSpec {
    pub name: String,
    pub unit: Option<String>,
    /// In the order of the file, at least two.
    pub values: Vec<AxisValueSpec>,
    /// An index into the values.
    pub middle: usize,
    /// What every condition gets, with the value's place marked; none for an axis of the work.
    pub templates: Vec<TreatmentSpec>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AxisValueSpec {
    pub value: toml::Value,
    /// Where it lies on a scale: the number, or seconds or bytes; absent for a word.
    pub at: Option<f64>,
    /// The key that it sets, for an axis of the work.
    pub layer: Layer,
}

/// A value of every axis of a workload, by its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointSpec(Vec<usize>);

impl AxisSpec {
    /// Whether it changes the work; else the conditions.
    pub fn of_work(&self) -> bool {
        self.values.iter().any(|v| v.layer != Layer::default())
    }

    fn placeholder(&self) -> String {
        format!("{{{}}}", self.name)
    }

    /// Its values as they are told in errors.
    fn told(&self) -> String {
        self.values.iter().map(AxisValueSpec::text).collect::<Vec<_>>().join(", ")
    }
}

impl AxisValueSpec {
    /// As it is written in a file, without quotes.
    pub fn text(&self) -> String {
        text_of(&self.value)
    }
}

impl WorkloadSpec {
    /// The middle one first.
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

    /// How many, without making them: a grid may be too large for that.
    pub fn count_points(&self, kind: SweepKind) -> u64 {
        let values = self.axes.iter().map(|axis| axis.values.len() as u64);
        match kind {
            SweepKind::OneAtATime => 1 + values.map(|n| n - 1).sum::<u64>(),
            SweepKind::Grid => values.fold(1, u64::saturating_mul),
        }
    }

    /// Each axis with its value there.
    pub fn at<'a>(
        &'a self,
        point: &'a PointSpec,
    ) -> impl Iterator<Item = (&'a AxisSpec, &'a AxisValueSpec)> + 'a {
        self.axes.iter().zip(&point.0).map(|(axis, value)| (axis, &axis.values[*value]))
    }

    /// The workload's keys there.
    pub fn layer_at(&self, point: &PointSpec) -> Layer {
        let all = self.at(point).map(|(_, value)| value.layer.clone());
        all.fold(self.layer.clone(), |layer, value| value.over(layer))
    }

    /// What an axis alone puts in force at one of its values, all others at their middle.
    pub fn templates_at(&self, axis: usize, value: usize) -> Vec<TreatmentSpec> {
        let mut point: Vec<usize> = self.axes.iter().map(|axis| axis.middle).collect();
        point[axis] = value;
        self.filled(self.axes[axis].templates.clone(), &PointSpec(point))
    }

    /// A condition's treatments there: its own and those of the axes.
    pub fn treatments_at(&self, condition: &Condition, point: &PointSpec) -> Vec<TreatmentSpec> {
        let mut specs = condition.treatments.clone();
        for template in self.axes.iter().flat_map(|axis| &axis.templates) {
            match specs.iter_mut().find(|spec| spec.kind == template.kind) {
                // That both are tables without a common key was seen when the file was read.
                Some(own) => {
                    join(&mut own.body, &template.body);
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

/// What neither makes a curve nor leaves the trials comparable.
const NO_AXES: &[&str] = &["run_time", "warmup", "transactions", "seed"];

/// A key of `[workload]` with a list of values.
pub(super) fn of_key(section: &Section<'_>, key: &'static Key) -> Result<AxisSpec, ConfigError> {
    let name = key.name;
    // How many tables are loaded at a time changes nothing about them.
    if key.uses.contains(&Use::Load) && name != "num_threads" && name != "seed" {
        return Err(section.error(
            name,
            "cannot be a list: each value needs another data set, which is loaded once; write an experiment for each",
        ));
    }
    let is_number = matches!(key.kind, Kind::Whole(_) | Kind::Duration { .. } | Kind::Bytes);
    if NO_AXES.contains(&name) {
        let message = "cannot be a list: it says how a trial is measured, and trials of one experiment are measured alike; write an experiment for each value";
        return Err(section.error(name, message));
    }
    if !is_number {
        let message = "cannot be a list: only whole numbers, durations and sizes in bytes make a curve; write an experiment for each value, or [[axis]] where a treatment makes the difference";
        return Err(section.error(name, message));
    }
    let mut values = Vec::new();
    for value in section.items(name, limits::VALUES)? {
        let text = text_of(&value);
        if !key.kind.toml_types().contains(&value.type_str()) {
            let expected = key.kind.toml_types().join(" or ");
            return Err(section.error(name, format!("must be a list of type {expected}")));
        }
        let mut layer = Layer::default();
        key.set(&mut layer, &text).map_err(|message| section.error(name, message))?;
        let at = match &key.kind {
            Kind::Duration { .. } => units::parse_duration(&text).ok().map(|d| d.as_secs_f64()),
            Kind::Bytes => units::parse_bytes(&text).ok().map(|bytes| bytes as f64),
            _ => text.parse().ok(),
        };
        values.push(AxisValueSpec { value, at, layer });
    }
    distinct(section, name, &values)?;
    Ok(AxisSpec { name: name.to_owned(), unit: None, values, middle: 0, templates: Vec::new() })
}

/// `middle = { sessions = 4 }` in `[workload]`; an axis that it does not name begins at its first
/// value.
pub(super) fn set_middle(section: &Section<'_>, axes: &mut [AxisSpec]) -> Result<(), ConfigError> {
    let Some(middle) = section.section("middle")? else { return Ok(()) };
    for key in middle.keys() {
        let names: Vec<String> = axes.iter().map(|axis| axis.name.clone()).collect();
        let Some(axis) = axes.iter_mut().find(|axis| axis.name == key) else {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let valid = match names.as_slice() {
                [] => "no key of this workload is a list".to_owned(),
                names => nearest(key, names),
            };
            return Err(middle.error(key, format!("is no list of this workload; {valid}")));
        };
        axis.middle = index_of(&middle, key, axis)?;
    }
    Ok(())
}

fn index_of(section: &Section<'_>, key: &str, axis: &AxisSpec) -> Result<usize, ConfigError> {
    let text = text_of(&section.value(key)?);
    axis.values
        .iter()
        .position(|value| value.text() == text)
        .ok_or_else(|| section.error(key, format!("must be one of {}, not `{text}`", axis.told())))
}

/// Every `[[axis]]`.
pub(super) fn parse(
    root: &Section<'_>,
    treatments: &[&str],
    conditions: &[Condition],
) -> Result<Vec<AxisSpec>, ConfigError> {
    let mut axes: Vec<AxisSpec> = Vec::new();
    for section in root.sections_within("axis", limits::AXES)? {
        let axis = axis(&section, treatments)?;
        if axes.iter().any(|earlier| earlier.name == axis.name) {
            let message = format!("`{}` is the name of two axes", axis.name);
            return Err(section.error("name", message));
        }
        for condition in conditions {
            joins(&section, condition, &axes, &axis)?;
        }
        let own = conditions.iter().flat_map(|c| &c.treatments);
        let mark = axis.placeholder();
        if !axis.templates.iter().chain(own).any(|spec| mentions(&spec.body, &mark)) {
            let message = format!(
                "changes nothing: write a treatment here with {mark} in it, such as link = {{ relay = true, delay = \"{mark}ms\" }}"
            );
            return Err(section.error_here(message));
        }
        axes.push(axis);
    }
    Ok(axes)
}

/// Refuses a condition that is held back from a sweep where that means nothing or takes the
/// comparison away.
pub(super) fn check_conditions(
    root: &Section<'_>,
    experiment: &Experiment,
) -> Result<(), ConfigError> {
    let swept = experiment.workloads.iter().any(|w| !w.axes.is_empty());
    for section in root.sections_within("condition", limits::CONDITIONS)? {
        if section.has("sweep") && !swept {
            let message = "means nothing without an axis: write a list in [workload], or [[axis]]";
            return Err(section.error("sweep", message));
        }
        let is_baseline = section.string("name")? == Some(experiment.baseline.as_str());
        if section.boolean("sweep")? == Some(false) && is_baseline {
            let message = "cannot be false for the baseline, with which the others are compared at every point";
            return Err(section.error("sweep", message));
        }
    }
    Ok(())
}

fn axis(section: &Section<'_>, treatments: &[&str]) -> Result<AxisSpec, ConfigError> {
    let Some(name) = section.name("name")? else {
        return Err(section.error_here("has no name: write name = \"delay\" or the like"));
    };
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.chars().all(is_word) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        let message = "must be a word of a to z, digits and _, since {name} stands for its value";
        return Err(section.error("name", message));
    }
    if Key::named(&name).is_some() {
        let message = format!("`{name}` is a key of workloads: write the list in [workload]");
        return Err(section.error("name", message));
    }
    if !section.has("values") {
        return Err(section.error_here("has no values: write values = [0, 1, 5] or the like"));
    }
    let value = |value: toml::Value| match &value {
        toml::Value::Integer(n) => Ok((Some(*n as f64), value)),
        toml::Value::Float(n) if n.is_finite() => Ok((Some(*n), value)),
        toml::Value::String(text) if !text.trim().is_empty() => Ok((None, value)),
        _ => Err(section.error("values", "must be a list of numbers, or of texts")),
    };
    let items = section.items("values", limits::VALUES)?.into_iter().map(value);
    let values = items
        .map(|item| item.map(|(at, value)| AxisValueSpec { value, at, layer: Layer::default() }))
        .collect::<Result<Vec<_>, _>>()?;
    distinct(section, "values", &values)?;
    if values.iter().any(|v| v.at.is_some() != values[0].at.is_some()) {
        return Err(section.error("values", "must be all numbers or all texts"));
    }
    let mut templates = Vec::new();
    for key in section.keys().into_iter().filter(|key| !sections::AXIS.has(key)) {
        if !treatments.contains(&key) {
            let valid = [&sections::AXIS.names(), treatments].concat();
            return Err(section.error(key, format!("is an unknown key; {}", nearest(key, &valid))));
        }
        let body = section.value(key)?;
        templates.push(TreatmentSpec { kind: key.to_owned(), body, line: section.line_of(key) });
    }
    let mut axis = AxisSpec { name, unit: section.name("unit")?, values, middle: 0, templates };
    if section.has("middle") {
        axis.middle = index_of(section, "middle", &axis)?;
    }
    Ok(axis)
}

fn distinct(section: &Section<'_>, key: &str, values: &[AxisValueSpec]) -> Result<(), ConfigError> {
    if values.len() < 2 {
        let message = "is a list of fewer than two values: write at least two, or one without [ ]";
        return Err(section.error(key, message));
    }
    for (n, value) in values.iter().enumerate() {
        let same = |earlier: &AxisValueSpec| {
            earlier.text() == value.text() || earlier.at.is_some() && earlier.at == value.at
        };
        if values[..n].iter().any(same) {
            return Err(section.error(key, format!("has `{}` twice", value.text())));
        }
    }
    Ok(())
}

/// Refuses where a condition, or an axis before this one, says the same thing as a template.
fn joins(
    section: &Section<'_>,
    condition: &Condition,
    earlier: &[AxisSpec],
    axis: &AxisSpec,
) -> Result<(), ConfigError> {
    let before = earlier.iter().flat_map(|axis| &axis.templates);
    for template in &axis.templates {
        let same = |spec: &&TreatmentSpec| spec.kind == template.kind;
        let tables = |spec: &TreatmentSpec| spec.body.as_array().map_or(1, Vec::len);
        if condition.treatments.iter().filter(same).map(tables).sum::<usize>() > 1 {
            let (kind, mark) = (&template.kind, axis.placeholder());
            let message = format!(
                "which `{kind}` of condition `{}` it would join cannot be told, as that has several: write {mark} there instead",
                condition.name
            );
            return Err(section.error(kind, message));
        }
        for other in condition.treatments.iter().chain(before.clone()).filter(same) {
            if !join(&mut other.body.clone(), &template.body) {
                let message = format!(
                    "contradicts `{}` in line {}, which condition `{}` has too: no two can say the same of one thing",
                    other.kind, other.line, condition.name
                );
                return Err(section.error(&template.kind, message));
            }
        }
    }
    Ok(())
}

/// Adds the keys of a table to another; false where one of the two is no table or a key is in both.
fn join(own: &mut toml::Value, other: &toml::Value) -> bool {
    let (Some(own), Some(other)) = (own.as_table_mut(), other.as_table()) else { return false };
    if other.keys().any(|key| own.contains_key(key)) {
        return false;
    }
    own.extend(other.iter().map(|(key, value)| (key.clone(), value.clone())));
    true
}

fn mentions(body: &toml::Value, mark: &str) -> bool {
    match body {
        toml::Value::String(text) => text.contains(mark),
        toml::Value::Array(items) => items.iter().any(|item| mentions(item, mark)),
        toml::Value::Table(table) => table.values().any(|value| mentions(value, mark)),
        _ => false,
    }
}

fn fill(body: &mut toml::Value, mark: &str, value: &str) {
    match body {
        toml::Value::String(text) if text.contains(mark) => *text = text.replace(mark, value),
        toml::Value::Array(items) => items.iter_mut().for_each(|item| fill(item, mark, value)),
        toml::Value::Table(table) => {
            table.iter_mut().for_each(|(_, inner)| fill(inner, mark, value));
        }
        _ => {}
    }
}

fn text_of(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests;
