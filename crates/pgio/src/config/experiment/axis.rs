//! Axes: parameters that a sweep varies in addition to the conditions.
//!
//! A key of `[workload]` with a list of values is an axis of the workload. `[[axis]]` is an axis of
//! the environment: treatments that contain `{name}` in place of the value and that apply to every
//! condition, the baseline included. Next: [`super::points`] combines the axes into points and
//! fills the values in.

use super::condition::{Condition, TreatmentSpec};
use super::key::section;
use super::limits;
use super::section::Section;
use super::workload;
use crate::config::keys::{Key, Layer, Use, names};
use crate::config::value::{ConfigError, Kind, nearest};
use pgio_results::units;

section! { keys, "[[axis]]",
    "An axis of a sweep over treatments. Any other key is a treatment in which {name} is replaced by the value.";
    name: Parsed<String>("a word of a to z, digits and _", label) or "required", "name of the axis and of its placeholder";
    unit: Parsed<String>("one line of text", label), "unit of its values";
    values: Raw("an array of numbers or of strings") or "required", "values of the axis";
    middle: Raw("one of the values") or "the first value", "value of this axis while other axes are varied";
}

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

    pub(super) fn placeholder(&self) -> String {
        format!("{{{}}}", self.name)
    }

    /// Returns the list of values for error messages.
    fn values_text(&self) -> String {
        self.values.iter().map(AxisValueSpec::text).collect::<Vec<_>>().join(", ")
    }
}

impl AxisValueSpec {
    /// Returns the value as written in a file, without quotes.
    pub fn text(&self) -> String {
        text_of(&self.value)
    }
}

/// Keys that cannot be an axis: they make no curve and leave the trials incomparable.
const NOT_SWEEPABLE: &[&str] = names! { run_time warmup transactions seed };

/// Parses a key of `[workload]` with a list of values.
pub(super) fn parse_key(section: &Section<'_>, key: &'static Key) -> Result<AxisSpec, ConfigError> {
    let name = key.name;
    // The number of tables loaded in parallel does not change the data set.
    if key.is_used_by(Use::Load) && ![names::num_threads, names::seed].contains(&name) {
        return Err(section.error(
            name,
            "cannot be a list, because each value needs another data set; write a separate experiment for each value",
        ));
    }
    let is_number = matches!(key.kind, Kind::Whole(_) | Kind::Duration { .. } | Kind::Bytes);
    if NOT_SWEEPABLE.contains(&name) {
        let message = "cannot be a list, because all trials of an experiment must be measured in the same way; write a separate experiment for each value";
        return Err(section.error(name, message));
    }
    if !is_number {
        let message = "cannot be a list, because only whole numbers, durations and sizes in bytes make a curve; write a separate experiment for each value, or use [[axis]] with a treatment";
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
    check_distinct(section, name, &values)?;
    Ok(AxisSpec { name: name.to_owned(), unit: None, values, middle: 0, templates: Vec::new() })
}

/// Applies `middle = { sessions = 4 }` of `[workload]`; the middle of other axes is their first value.
pub(super) fn set_middle(section: &Section<'_>, axes: &mut [AxisSpec]) -> Result<(), ConfigError> {
    let Some(middle) = section.section(&workload::keys::middle)? else { return Ok(()) };
    for key in middle.keys() {
        let names: Vec<String> = axes.iter().map(|axis| axis.name.clone()).collect();
        let Some(axis) = axes.iter_mut().find(|axis| axis.name == key) else {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let valid = match names.as_slice() {
                [] => "no key of this workload has a list".to_owned(),
                names => nearest(key, names),
            };
            return Err(middle.error(key, format!("is not a list of this workload; {valid}")));
        };
        axis.middle = index_of(&middle, key, axis)?;
    }
    Ok(())
}

fn index_of(section: &Section<'_>, key: &str, axis: &AxisSpec) -> Result<usize, ConfigError> {
    let text = text_of(&section.value(key)?);
    axis.values.iter().position(|value| value.text() == text).ok_or_else(|| {
        section.error(key, format!("must be one of {}, not `{text}`", axis.values_text()))
    })
}

/// Parses every `[[axis]]`.
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
            return Err(section.error(&keys::name, message));
        }
        for condition in conditions {
            check_conflicts(&section, condition, &axes, &axis)?;
        }
        let own = conditions.iter().flat_map(|c| &c.treatments);
        let placeholder = axis.placeholder();
        if !axis.templates.iter().chain(own).any(|spec| contains(&spec.body, &placeholder)) {
            let message = format!(
                "has no effect; add a treatment that contains {placeholder}, such as link = {{ relay = true, delay = \"{placeholder}ms\" }}"
            );
            return Err(section.header_error(message));
        }
        axes.push(axis);
    }
    Ok(axes)
}

fn axis(section: &Section<'_>, treatments: &[&str]) -> Result<AxisSpec, ConfigError> {
    let Some(name) = section.read(&keys::name)? else {
        return Err(section.header_error("has no name; write for example name = \"delay\""));
    };
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.chars().all(is_word) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        let message = "must be a word of a to z, digits and _, because {name} is its placeholder";
        return Err(section.error(&keys::name, message));
    }
    if Key::named(&name).is_some() {
        let message = format!("`{name}` is a workload key; write the list in [workload]");
        return Err(section.error(&keys::name, message));
    }
    if !section.has(&keys::values) {
        return Err(section.header_error("has no values; write for example values = [0, 1, 5]"));
    }
    let value = |value: toml::Value| match &value {
        toml::Value::Integer(n) => Ok((Some(*n as f64), value)),
        toml::Value::Float(n) if n.is_finite() => Ok((Some(*n), value)),
        toml::Value::String(text) if !text.trim().is_empty() => Ok((None, value)),
        _ => Err(section.error(&keys::values, "must be a list of numbers or of strings")),
    };
    let items = section.items(&keys::values, limits::VALUES)?.into_iter().map(value);
    let values = items
        .map(|item| item.map(|(at, value)| AxisValueSpec { value, at, layer: Layer::default() }))
        .collect::<Result<Vec<_>, _>>()?;
    check_distinct(section, &keys::values, &values)?;
    if values.iter().any(|v| v.at.is_some() != values[0].at.is_some()) {
        return Err(section.error(&keys::values, "must be all numbers or all strings"));
    }
    let mut templates = Vec::new();
    for key in section.keys().into_iter().filter(|key| !keys::SECTION.names.contains(key)) {
        if !treatments.contains(&key) {
            let valid = [keys::SECTION.names, treatments].concat();
            return Err(section.error(key, format!("is an unknown key; {}", nearest(key, &valid))));
        }
        let body = section.value(key)?;
        templates.push(TreatmentSpec { kind: key.to_owned(), body, line: section.line_of(key) });
    }
    let mut axis =
        AxisSpec { name, unit: section.read(&keys::unit)?, values, middle: 0, templates };
    if section.has(&keys::middle) {
        axis.middle = index_of(section, &keys::middle, &axis)?;
    }
    Ok(axis)
}

fn check_distinct(
    section: &Section<'_>,
    key: &str,
    values: &[AxisValueSpec],
) -> Result<(), ConfigError> {
    if values.len() < 2 {
        let message =
            "has fewer than two values; write at least two, or a single value without [ ]";
        return Err(section.error(key, message));
    }
    for (n, value) in values.iter().enumerate() {
        let same = |earlier: &AxisValueSpec| {
            earlier.text() == value.text() || earlier.at.is_some() && earlier.at == value.at
        };
        if values[..n].iter().any(same) {
            return Err(section.error(key, format!("contains `{}` twice", value.text())));
        }
    }
    Ok(())
}

/// Refuses a template that conflicts with a condition or with an earlier axis.
fn check_conflicts(
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
            let (kind, placeholder) = (&template.kind, axis.placeholder());
            let message = format!(
                "is ambiguous, because condition `{}` has several treatments `{kind}`; write {placeholder} there instead",
                condition.name
            );
            return Err(section.error(kind, message));
        }
        for other in condition.treatments.iter().chain(before.clone()).filter(same) {
            if !merge(&mut other.body.clone(), &template.body) {
                let message = format!(
                    "conflicts with `{}` in line {}, which also applies to condition `{}`; set each key only once",
                    other.kind, other.line, condition.name
                );
                return Err(section.error(&template.kind, message));
            }
        }
    }
    Ok(())
}

fn text_of(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Merges a table into another; returns false if either is not a table or if both have a key.
pub(super) fn merge(own: &mut toml::Value, other: &toml::Value) -> bool {
    let (Some(own), Some(other)) = (own.as_table_mut(), other.as_table()) else { return false };
    if other.keys().any(|key| own.contains_key(key)) {
        return false;
    }
    own.extend(other.iter().map(|(key, value)| (key.clone(), value.clone())));
    true
}

/// Returns whether any string contains the placeholder.
pub(super) fn contains(body: &toml::Value, placeholder: &str) -> bool {
    match body {
        toml::Value::String(text) => text.contains(placeholder),
        toml::Value::Array(items) => items.iter().any(|item| contains(item, placeholder)),
        toml::Value::Table(table) => table.values().any(|value| contains(value, placeholder)),
        _ => false,
    }
}

/// Replaces the placeholder in every string.
pub(super) fn fill(body: &mut toml::Value, placeholder: &str, value: &str) {
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
