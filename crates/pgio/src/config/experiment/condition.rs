//! `[[condition]]`: a name, perhaps a target, and treatments.
//!
//! A treatment is any other key: its kind is the key, its body stays a TOML value for
//! the treatment itself to read. Conditions differ by treatments (and by the server they
//! run on) only: the work is the same under all of them, or nothing is being compared.

use std::collections::BTreeMap;

use super::limits;
use super::section::Section;
use super::target::{SINGLE_TARGET, Target};
use crate::config::error::{ConfigError, nearest};
use crate::config::keys::Key;
use crate::config::sections;

/// What the baseline's twin has after its name, so no condition may be called so.
pub const AA_SUFFIX: &str = " (A/A)";

#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub name: String,
    /// A key of the experiment's targets; absent only where it has none.
    pub target: Option<String>,
    /// In the order of the file.
    pub treatments: Vec<TreatmentSpec>,
    /// Whether it runs at every point of a sweep; else at the middle one only.
    pub sweep: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TreatmentSpec {
    pub kind: String,
    pub body: toml::Value,
    /// From 1.
    pub line: usize,
}

/// At least one.
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
        let message = "has no condition: write [[condition]] with a name and treatments";
        return Err(root.error_here(message));
    }
    Ok(conditions)
}

fn condition(
    section: &Section<'_>,
    treatments: &[&str],
    targets: &BTreeMap<String, Target>,
) -> Result<Condition, ConfigError> {
    let Some(name) = section.name("name")? else {
        return Err(
            section.error_here("has no name: write name = \"...\", as reports will call it")
        );
    };
    if name.ends_with(AA_SUFFIX.trim_start()) {
        let message = "must not end in (A/A), which is the baseline's twin that pgio adds itself";
        return Err(section.error("name", message));
    }
    let mut specs = Vec::new();
    for key in section.keys().into_iter().filter(|key| !sections::CONDITION.has(key)) {
        if !treatments.contains(&key) {
            return Err(section.error(key, unknown(key, treatments)));
        }
        let line = section.line_of(key);
        let (count, most) = (section.count(key), limits::TREATMENTS);
        if specs.len() + count > most {
            let count = specs.len() + count;
            let message = format!("makes {count} treatments, at most {most} are taken");
            return Err(section.error(key, message));
        }
        let spec = |body| TreatmentSpec { kind: key.to_owned(), body, line };
        specs.extend(one_or_several(key, section.value(key)?).into_iter().map(spec));
    }
    Ok(Condition {
        name,
        target: target(section, targets)?,
        treatments: specs,
        sweep: section.boolean("sweep")?.unwrap_or(true),
    })
}

/// Its tables are the ends of one link, and it is the treatment that knows whether they go together.
const LISTS_ITSELF: &str = "link";

/// A list of tables is as many treatments of the kind, such as a throttle on each of two hosts.
fn one_or_several(kind: &str, body: toml::Value) -> Vec<toml::Value> {
    match body {
        toml::Value::Array(items)
            if kind != LISTS_ITSELF
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
            let message = format!("needs target = one of {}", names.join(", "));
            Err(section.error_here(message))
        }
        (Some(name), _) if names.contains(&name) => Ok(Some(name.to_owned())),
        (Some(name), [] | [SINGLE_TARGET]) => {
            let message = format!("`{name}` is no target: write [targets.{name}] for it");
            Err(section.error("target", message))
        }
        (Some(name), _) => {
            let message = format!("`{name}` is no target; {}", nearest(name, &names));
            Err(section.error("target", message))
        }
    }
}

fn unknown(key: &str, treatments: &[&str]) -> String {
    if key == "workload" || Key::named(key).is_some() {
        return "is no treatment: conditions differ by treatments only, the work is the same \
                under all and stands in [workload]"
            .to_owned();
    }
    let valid = [&sections::CONDITION.names(), treatments].concat();
    format!("is an unknown key; {}", nearest(key, &valid))
}
