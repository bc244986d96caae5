//! One `[[workload.metric]]`: where to find a number in a command's output, and its meaning.

use regex_lite::RegexBuilder;

use super::section::Section;
use crate::config::command::{
    Better, Combine, Extractor, MatchChoice, MetricSpec, OutputSource, Template,
};
use crate::config::error::{ConfigError, nearest};
use crate::config::sections;

pub(super) fn parse(section: &Section<'_>) -> Result<MetricSpec, ConfigError> {
    section.refuse_keys_outside(&sections::METRIC)?;
    let name = required(section, "name", "\"transactions_per_second\"")?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
        return Err(section.error("name", "must consist of letters a-z, digits and _"));
    }
    Ok(MetricSpec {
        name,
        unit: required(section, "unit", "\"s\", \"bytes/s\" or \"transactions/s\"")?,
        better: one_of(section, "better", Better::ALL)?
            .ok_or_else(|| section.error("better", "is missing; set higher, lower or neither"))?,
        extractor: extractor(section)?,
        source: source(section)?,
        scale: scale(section)?,
        primary: section.boolean("primary")?.unwrap_or(false),
        named_primary: false,
        optional: section.boolean("optional")?.unwrap_or(false),
        combine: one_of(section, "combine", Combine::ALL)?,
    })
}

fn required(section: &Section<'_>, key: &str, example: &str) -> Result<String, ConfigError> {
    section
        .name(key)?
        .ok_or_else(|| section.error(key, format!("is missing; set {key} = {example}")))
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
        None => Err(section.error(key, format!("cannot be `{text}`; {}", nearest(text, &names)))),
    }
}

fn extractor(section: &Section<'_>) -> Result<Extractor, ConfigError> {
    match (section.has("json"), section.has("regex")) {
        (true, true) => Err(section.error("regex", "conflicts with json; keep only one of them")),
        (false, false) => Err(section.error(
            "regex",
            "and json are missing; set for example regex = \"tps = ([0-9.]+)\" or json = \"/a/b\"",
        )),
        (false, true) => regex(section),
        (true, false) => json(section),
    }
}

fn json(section: &Section<'_>) -> Result<Extractor, ConfigError> {
    if let Some(key) = ["take", "skip"].into_iter().find(|key| section.has(key)) {
        return Err(section.error(key, "requires regex"));
    }
    let pointers = match section.value("json")? {
        toml::Value::String(pointer) => vec![pointer],
        _ => section.strings("json").ok().flatten().unwrap_or_default(),
    };
    if pointers.is_empty() {
        let message =
            "must be a pointer such as \"/jobs/0/read/iops\", or a list of pointers to add up";
        return Err(section.error("json", message));
    }
    match pointers.iter().find(|p| !p.is_empty() && !p.starts_with('/')) {
        Some(pointer) => Err(section.error(
            "json",
            format!("`{pointer}` is not a JSON pointer, because it does not begin with `/`"),
        )),
        None => Ok(Extractor::Json(pointers)),
    }
}

fn regex(section: &Section<'_>) -> Result<Extractor, ConfigError> {
    let pattern = section.string("regex")?.unwrap_or_default().to_owned();
    if let Err(error) = RegexBuilder::new(&pattern).multi_line(true).build() {
        return Err(section.error("regex", format!("is not a valid regular expression: {error}")));
    }
    Ok(Extractor::Regex {
        pattern,
        take: one_of(section, "take", MatchChoice::ALL)?.unwrap_or(MatchChoice::Last),
        skip: section.whole_number("skip", 0..=u64::from(u32::MAX))?.unwrap_or(0),
    })
}

fn source(section: &Section<'_>) -> Result<OutputSource, ConfigError> {
    const STREAMS: &[(&str, bool)] = &[("stdout", true), ("stderr", false)];
    match (section.string("file")?, one_of(section, "from", STREAMS)?) {
        (Some(_), Some(_)) => {
            Err(section.error("from", "conflicts with file; keep only one of them"))
        }
        (Some(""), None) => Err(section.error("file", "is empty")),
        (Some(path), None) => Ok(OutputSource::File(Template::new(path))),
        (None, Some(false)) => Ok(OutputSource::Stderr),
        (None, _) => Ok(OutputSource::Stdout),
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
    if scale.is_finite() && scale > 0.0 {
        Ok(scale)
    } else {
        Err(section.error("scale", "must be a number above 0, such as 0.001"))
    }
}
