//! One `[[workload.metric]]`: a number that a command leaves, where it stands and what it means.

use regex_lite::RegexBuilder;

use super::super::section::Section;
use crate::config::command::{Better, Find, MetricSpec, Place, Take, Template};
use crate::config::error::{ConfigError, nearest};
use crate::config::sections;

pub(super) fn parse(section: &Section<'_>) -> Result<MetricSpec, ConfigError> {
    section.only_keys_of(&sections::METRIC)?;
    let name = required(section, "name", "what it is called, such as \"transactions_per_second\"")?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
        return Err(section.error("name", "must be of letters a-z, digits and _"));
    }
    Ok(MetricSpec {
        name,
        unit: required(section, "unit", "such as \"s\", \"bytes/s\" or \"transactions/s\"")?,
        better: one_of(section, "better", Better::ALL)?
            .ok_or_else(|| section.error("better", "is missing: higher, lower or neither"))?,
        find: find(section)?,
        from: from(section)?,
        scale: scale(section)?,
        primary: section.boolean("primary")?.unwrap_or(false),
        optional: section.boolean("optional")?.unwrap_or(false),
    })
}

fn required(section: &Section<'_>, key: &str, what: &str) -> Result<String, ConfigError> {
    section.name(key)?.ok_or_else(|| section.error(key, format!("is missing: {what}")))
}

fn one_of<T: Copy>(
    section: &Section<'_>,
    key: &str,
    all: &[(&str, T)],
) -> Result<Option<T>, ConfigError> {
    let Some(text) = section.string(key)? else { return Ok(None) };
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    match all.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(Some(*value)),
        None => Err(section.error(key, format!("`{text}` is none; {}", nearest(text, &names)))),
    }
}

fn find(section: &Section<'_>) -> Result<Find, ConfigError> {
    match (section.has("json"), section.has("regex")) {
        (true, true) => Err(section.error("regex", "contradicts json: keep one of the two")),
        (false, false) => Err(section.error(
            "regex",
            "is missing, and so is json: where is the number? regex = \"tps = ([0-9.]+)\" or json = \"/a/b\"",
        )),
        (false, true) => regex(section),
        (true, false) => json(section),
    }
}

fn json(section: &Section<'_>) -> Result<Find, ConfigError> {
    if let Some(key) = ["take", "skip"].into_iter().find(|key| section.has(key)) {
        return Err(section.error(key, "goes with regex only"));
    }
    let pointers = match section.value("json")? {
        toml::Value::String(pointer) => vec![pointer],
        _ => section.strings("json").ok().flatten().unwrap_or_default(),
    };
    if pointers.is_empty() {
        let message =
            "must be a pointer such as \"/jobs/0/read/iops\", or a list of them to be added up";
        return Err(section.error("json", message));
    }
    match pointers.iter().find(|p| !p.is_empty() && !p.starts_with('/')) {
        Some(pointer) => {
            Err(section
                .error("json", format!("`{pointer}` is no JSON pointer: they begin with a `/`")))
        }
        None => Ok(Find::Json(pointers)),
    }
}

fn regex(section: &Section<'_>) -> Result<Find, ConfigError> {
    let pattern = section.string("regex")?.unwrap_or_default().to_owned();
    if let Err(error) = RegexBuilder::new(&pattern).multi_line(true).build() {
        return Err(section.error("regex", format!("cannot be read: {error}")));
    }
    Ok(Find::Regex {
        pattern,
        take: one_of(section, "take", Take::ALL)?.unwrap_or(Take::Last),
        skip: section.whole("skip", 0..=u64::from(u32::MAX))?.unwrap_or(0),
    })
}

fn from(section: &Section<'_>) -> Result<Place, ConfigError> {
    const STREAMS: &[(&str, bool)] = &[("stdout", true), ("stderr", false)];
    match (section.string("file")?, one_of(section, "from", STREAMS)?) {
        (Some(_), Some(_)) => Err(section.error("from", "contradicts file: keep one of the two")),
        (Some(""), None) => Err(section.error("file", "is empty")),
        (Some(path), None) => Ok(Place::File(Template::new(path))),
        (None, Some(false)) => Ok(Place::Stderr),
        (None, _) => Ok(Place::Stdout),
    }
}

fn scale(section: &Section<'_>) -> Result<f64, ConfigError> {
    if !section.has("scale") {
        return Ok(1.0);
    }
    let scale = match section.value("scale")? {
        toml::Value::Float(scale) => scale,
        toml::Value::Integer(scale) => scale as f64,
        _ => f64::NAN,
    };
    match scale.is_finite() && scale > 0.0 {
        true => Ok(scale),
        false => Err(section.error("scale", "must be a number above 0, such as 0.001")),
    }
}
