//! `[[condition]]`: a name, an optional target, and treatments.
//!
//! Any other key is a treatment: the key is its kind, and its body stays a TOML value that the
//! treatment parses. Conditions differ only in treatments and in the server: a comparison requires
//! that all conditions run the same workload.

use std::collections::BTreeMap;

use super::limits;
use super::section::Section;
use super::target::{SINGLE_TARGET, Target};
use crate::config::error::{ConfigError, nearest};
use crate::config::keys::Key;
use crate::config::sections;

/// Suffix of the A/A condition's name; the name of a condition must not end with it.
pub const AA_SUFFIX: &str = " (A/A)";

#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub name: String,
    /// A key of the experiment's targets; absent only if the experiment has no targets.
    pub target: Option<String>,
    /// In the order of the file.
    pub treatments: Vec<TreatmentSpec>,
    /// Whether the condition runs at every point of a sweep; otherwise only at the middle point.
    pub sweep: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TreatmentSpec {
    pub kind: String,
    pub body: toml::Value,
    /// Counted from 1.
    pub line: usize,
}

/// Parses all conditions; at least one is required.
pub(super) fn parse(
    root: &Section<'_>,
    treatments: &[&str],
    targets: &BTreeMap<String, Target>,
) -> Result<Vec<Condition>, ConfigError> {
    let mut conditions: Vec<Condition> = Vec::new();
    for section in root.sections_within("condition", limits::CONDITIONS)? {
        let condition = condition(&section, treatments, targets)?;
        if conditions.iter().any(|earlier| earlier.name == condition.name) {
            let message = format!("`{}` is the name of two conditions", condition.name);
            return Err(section.error("name", message));
        }
        conditions.push(condition);
    }
    if conditions.is_empty() {
        let message = "has no condition; write [[condition]] with a name and treatments";
        return Err(root.error_here(message));
    }
    Ok(conditions)
}

fn condition(
    section: &Section<'_>,
    treatments: &[&str],
    targets: &BTreeMap<String, Target>,
) -> Result<Condition, ConfigError> {
    Ok(Condition {
        name: name(section)?,
        target: target(section, targets)?,
        treatments: self::treatments(section, treatments, &sections::CONDITION.names())?,
        sweep: section.boolean("sweep")?.unwrap_or(true),
    })
}

/// Reads a name that reports show as that of a condition.
pub(super) fn name(section: &Section<'_>) -> Result<String, ConfigError> {
    let Some(name) = section.name("name")? else {
        return Err(section.error_here("has no name; write name = \"...\""));
    };
    if name.ends_with(AA_SUFFIX.trim_start()) {
        let message = "must not end with (A/A), which is the name of the condition that pgio adds";
        return Err(section.error("name", message));
    }
    Ok(name)
}

/// Parses the treatments of a section: all keys but its own.
pub(super) fn treatments(
    section: &Section<'_>,
    treatments: &[&str],
    own: &[&str],
) -> Result<Vec<TreatmentSpec>, ConfigError> {
    let mut specs = Vec::new();
    for key in section.keys().into_iter().filter(|key| !own.contains(key)) {
        if !treatments.contains(&key) {
            return Err(section.error(key, unknown(key, treatments, own)));
        }
        let line = section.line_of(key);
        let (count, limit) = (section.count(key), limits::TREATMENTS);
        if specs.len() + count > limit {
            let count = specs.len() + count;
            let message = format!("makes {count} treatments; the maximum is {limit}");
            return Err(section.error(key, message));
        }
        let spec = |body| TreatmentSpec { kind: key.to_owned(), body, line };
        specs.extend(split_list(key, section.value(key)?).into_iter().map(spec));
    }
    Ok(specs)
}

/// The treatment whose body may be a list: the tables are the ends of one link, and the treatment
/// checks whether they match.
const TREATMENT_WITH_LIST: &str = "link";

/// Splits a list of tables into one treatment each, such as a throttle on each of two hosts.
fn split_list(kind: &str, body: toml::Value) -> Vec<toml::Value> {
    match body {
        toml::Value::Array(items)
            if kind != TREATMENT_WITH_LIST
                && !items.is_empty()
                && items.iter().all(toml::Value::is_table) =>
        {
            items
        }
        one => vec![one],
    }
}

fn target(
    section: &Section<'_>,
    targets: &BTreeMap<String, Target>,
) -> Result<Option<String>, ConfigError> {
    let names: Vec<&str> = targets.keys().map(String::as_str).collect();
    match (section.string("target")?, names.as_slice()) {
        (None, [] | [_]) => Ok(names.first().map(|name| (*name).to_owned())),
        (None, _) => {
            let message = format!("has no target; set target to one of {}", names.join(", "));
            Err(section.error_here(message))
        }
        (Some(name), _) if names.contains(&name) => Ok(Some(name.to_owned())),
        (Some(name), [] | [SINGLE_TARGET]) => {
            let message = format!("`{name}` is not a target; add [targets.{name}]");
            Err(section.error("target", message))
        }
        (Some(name), _) => {
            let message = format!("`{name}` is not a target; {}", nearest(name, &names));
            Err(section.error("target", message))
        }
    }
}

fn unknown(key: &str, treatments: &[&str], own: &[&str]) -> String {
    if key == "workload" || Key::named(key).is_some() {
        return "is not a treatment; conditions differ only in treatments, so write workload keys \
                in [workload]"
            .to_owned();
    }
    let valid = [own, treatments].concat();
    format!("is an unknown key; {}", nearest(key, &valid))
}
