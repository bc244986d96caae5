//! `[[factor]]`: something that is either low or high, in place of conditions.
//!
//! `low` and `high` are tables of treatments, as a condition has them; an empty table leaves everything
//! as it is. `setting = [0, 100]` is short for two values of the PostgreSQL setting that the factor is
//! named after. Next: [`super::screening`] combines factors into conditions.

use super::condition::{self, TreatmentSpec};
use super::limits;
use super::section::Section;
use crate::config::error::ConfigError;
use crate::config::sections;

#[derive(Debug, Clone, PartialEq)]
pub struct FactorSpec {
    pub name: String,
    /// Treatments of the level that is in force now; empty if nothing changes.
    pub low: Vec<TreatmentSpec>,
    pub high: Vec<TreatmentSpec>,
    /// Line of the section, counted from 1.
    pub line: usize,
}

/// The treatment that `setting` is short for, and in which two factors could meet.
const POSTGRES: &str = "postgres";

/// Parses every `[[factor]]`; an experiment with conditions has none.
pub(super) fn parse(
    root: &Section<'_>,
    treatments: &[&str],
) -> Result<Vec<FactorSpec>, ConfigError> {
    let mut factors: Vec<FactorSpec> = Vec::new();
    for section in root.sections_within("factor", limits::FACTORS)? {
        let factor = factor(&section, treatments)?;
        if factors.iter().any(|earlier| earlier.name == factor.name) {
            let message = format!("`{}` is the name of two factors", factor.name);
            return Err(section.error("name", message));
        }
        for earlier in &factors {
            if let Some(setting) = common_setting(earlier, &factor) {
                let message = format!(
                    "changes `{setting}`, as factor `{}` in line {} does; a setting belongs to one factor",
                    earlier.name, earlier.line
                );
                return Err(section.header_error(message));
            }
        }
        factors.push(factor);
    }
    Ok(factors)
}

fn factor(section: &Section<'_>, treatments: &[&str]) -> Result<FactorSpec, ConfigError> {
    section.refuse_keys_outside(&sections::FACTOR)?;
    let name = condition::name(section)?;
    let (low, high) = if section.has("setting") {
        setting(section, &name)?
    } else {
        (level(section, "low", treatments)?, level(section, "high", treatments)?)
    };
    let bodies = |specs: &[TreatmentSpec]| -> Vec<(String, toml::Value)> {
        specs.iter().map(|spec| (spec.kind.clone(), spec.body.clone())).collect()
    };
    if bodies(&low) == bodies(&high) {
        let key = if section.has("setting") { "setting" } else { "high" };
        let message = "has the same level twice; write two different levels";
        return Err(section.error(key, message));
    }
    Ok(FactorSpec { name, low, high, line: section.line() })
}

/// Parses `setting = [low, high]`.
fn setting(
    section: &Section<'_>,
    name: &str,
) -> Result<(Vec<TreatmentSpec>, Vec<TreatmentSpec>), ConfigError> {
    if let Some(other) = ["low", "high"].into_iter().find(|key| section.has(key)) {
        let message = format!("conflicts with {other}; keep either setting or low and high");
        return Err(section.error("setting", message));
    }
    let example = "write the present and the other value, such as setting = [0, 100]";
    let values = if section.is_list("setting") {
        section.items("setting", limits::VALUES)?
    } else {
        return Err(section.error("setting", format!("is not a list; {example}")));
    };
    let [low, high] = <[toml::Value; 2]>::try_from(values).map_err(|values| {
        let count = match values.len() {
            1 => "one level".to_owned(),
            n => format!("{n} levels"),
        };
        section.error("setting", format!("has {count} instead of two; {example}"))
    })?;
    let line = section.line_of("setting");
    let spec = |value: toml::Value| {
        let body = toml::Value::Table([(name.to_owned(), value)].into_iter().collect());
        vec![TreatmentSpec { kind: POSTGRES.to_owned(), body, line }]
    };
    Ok((spec(low), spec(high)))
}

fn level(
    section: &Section<'_>,
    key: &str,
    treatments: &[&str],
) -> Result<Vec<TreatmentSpec>, ConfigError> {
    let Some(table) = section.section(key)? else {
        let message = format!(
            "has no {key} level; write {key} = {{ postgres = {{ ... }} }}, or {key} = {{}} to change nothing"
        );
        return Err(section.header_error(message));
    };
    condition::treatments(&table, treatments, &[])
}

/// A PostgreSQL setting that both factors change. `experiment::application` compares other treatments,
/// by what they declare.
fn common_setting<'a>(one: &'a FactorSpec, other: &FactorSpec) -> Option<&'a str> {
    let names = |factor: &FactorSpec| -> Vec<String> {
        settings(factor).map(str::to_ascii_lowercase).collect()
    };
    let others = names(other);
    settings(one).find(|name| others.contains(&name.to_ascii_lowercase()))
}

fn settings(factor: &FactorSpec) -> impl Iterator<Item = &str> {
    let of_server = factor.low.iter().chain(&factor.high).filter(|spec| spec.kind == POSTGRES);
    of_server
        .filter_map(|spec| spec.body.as_table())
        .flat_map(|body| body.keys().map(String::as_str))
}
