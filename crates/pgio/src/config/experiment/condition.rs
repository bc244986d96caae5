//! `[[condition]]`: a name, an optional target, and treatments.
//!
//! Any other key is a treatment: the key is its kind, and its body stays a TOML value that the
//! treatment parses. Conditions differ only in treatments and in the server: a comparison requires
//! that all conditions run the same workload.

use std::collections::BTreeMap;

use super::condition_targets;
use super::limits;
use super::section::Section;
use super::target::Target;
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
    /// Further targets, which share its window.
    pub further_targets: Vec<String>,
    /// In the order of the file.
    pub treatments: Vec<TreatmentSpec>,
    /// Whether the condition runs at every point of a sweep; otherwise only at the middle point.
    pub sweep: bool,
}

impl Condition {
    /// Returns all its targets; none if pgio.conf or the environment names the server.
    pub fn targets(&self) -> impl Iterator<Item = &String> {
        self.target.iter().chain(&self.further_targets)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct TreatmentSpec {
    pub kind: String,
    pub body: toml::Value,
    /// Counted from 1.
    pub line: usize,
}

/// Parses all conditions; at least one is required. With `together`, a condition that names no target runs on all.
pub(super) fn parse(
    root: &Section<'_>,
    treatments: &[&str],
    targets: &BTreeMap<String, Target>,
    together: bool,
) -> Result<Vec<Condition>, ConfigError> {
    let mut conditions: Vec<Condition> = Vec::new();
    for section in root.sections_within("condition", limits::CONDITIONS)? {
        let condition = condition(&section, treatments, targets, together)?;
        if conditions.iter().any(|earlier| earlier.name == condition.name) {
            let message = format!("`{}` is the name of two conditions", condition.name);
            return Err(section.error("name", message));
        }
        conditions.push(condition);
    }
    if conditions.is_empty() {
        let message = "has no condition; write [[condition]] with a name and treatments";
        return Err(root.header_error(message));
    }
    Ok(conditions)
}

fn condition(
    section: &Section<'_>,
    treatments: &[&str],
    targets: &BTreeMap<String, Target>,
    together: bool,
) -> Result<Condition, ConfigError> {
    let mut on = condition_targets::parse(section, targets, together)?.into_iter();
    Ok(Condition {
        name: name(section)?,
        target: on.next(),
        further_targets: on.collect(),
        treatments: self::treatments(section, treatments, &sections::CONDITION.names())?,
        sweep: section.boolean("sweep")?.unwrap_or(true),
    })
}

/// Reads a name that reports show as that of a condition.
pub(super) fn name(section: &Section<'_>) -> Result<String, ConfigError> {
    let Some(name) = section.name("name")? else {
        return Err(section.header_error("has no name; write name = \"...\""));
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

fn unknown(key: &str, treatments: &[&str], own: &[&str]) -> String {
    if key == "workload" || Key::named(key).is_some() {
        return "is not a treatment; conditions differ only in treatments, so write workload keys \
                in [workload]"
            .to_owned();
    }
    let valid = [own, treatments].concat();
    format!("is an unknown key; {}", nearest(key, &valid))
}
