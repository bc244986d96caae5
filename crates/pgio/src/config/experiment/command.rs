//! `[workload]` with `kind = "command"`: what is run, and `[[workload.metric]]`: what it prints.
//!
//! A preset is a section of the same keys, which may name another preset below it: a key that is said
//! counts over the same key of the preset, while `parameters`, `env` and metrics add up by name. Every
//! text is looked through for placeholders here, so that none is left when it runs.
//!
//! Next: [`metric`]; `config::command` for what comes out.

mod metric;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::section::{Document, Section};
use crate::config::command::{CommandSpec, Line, MetricSpec, PLACEHOLDERS, PRESETS, Template};
use crate::config::error::{ConfigError, nearest};
use crate::config::keys::Layer;

/// Names the presets' file in errors, which only a mistake of ours can bring about.
const PRESETS_FILE: &str = "command-presets.toml";

const SETUP_LIMIT: Duration = Duration::from_secs(3600);

/// PostgreSQL cuts longer names.
const LONGEST_NAME: usize = 63;

pub(super) fn parse(section: &Section<'_>) -> Result<CommandSpec, ConfigError> {
    let document = Document { file: PRESETS_FILE, text: PRESETS };
    let parsed = document.parse()?;
    let presets = Section::root(&document, parsed.get_ref());
    // The section itself, then the presets from the nearest to the lowest.
    let mut layers = vec![section.clone()];
    while let Some(name) = layers[layers.len() - 1].string("preset")? {
        let below = presets.section(name)?;
        let unknown = || {
            let message = format!("`{name}` is no preset; {}", nearest(name, &presets.keys()));
            section.error("preset", message)
        };
        layers.push(below.ok_or_else(unknown)?);
    }
    let mut spec = Layers(layers).spec()?;
    let used = check_texts(section, &spec)?;
    // A preset may have made others of no use.
    spec.parameters.retain(|name, _| used.contains(name));
    Ok(spec)
}

/// The names of all presets.
#[cfg(test)]
pub(super) fn presets() -> Vec<String> {
    let document = Document { file: PRESETS_FILE, text: PRESETS };
    let parsed = document.parse().unwrap();
    Section::root(&document, parsed.get_ref()).keys().iter().map(|k| (*k).to_owned()).collect()
}

/// The uppermost first.
struct Layers<'a>(Vec<Section<'a>>);

impl<'a> Layers<'a> {
    fn section(&self) -> &Section<'a> {
        &self.0[0]
    }

    /// Where the key counts.
    fn with(&self, key: &str) -> Option<&Section<'a>> {
        self.0.iter().find(|section| section.has(key))
    }

    fn spec(&self) -> Result<CommandSpec, ConfigError> {
        let section = self.section();
        let missing = "is missing: the command, run = [\"program\", \"argument\", …], or a preset";
        let run = self.line("run")?.ok_or_else(|| section.error("run", missing))?;
        let setup = self.line("setup")?;
        let setup_once = match self.with("setup_once") {
            Some(at) => at.boolean("setup_once")?.unwrap_or(false),
            None => false,
        };
        if setup.is_none() && section.has("setup_once") {
            return Err(section.error("setup_once", "goes with setup, and there is none"));
        }
        let duration = |key: &str| match self.with(key) {
            Some(at) => at.duration(key, false),
            None => Ok(None),
        };
        Ok(CommandSpec {
            preset: section.string("preset")?.map(str::to_owned),
            warm_up: self.line("warm_up")?,
            setup_limit: duration("setup_limit")?.unwrap_or(SETUP_LIMIT),
            cleanup: self.line("cleanup")?,
            host: match self.with("host") {
                Some(at) => at.name("host")?,
                None => None,
            },
            schema: self.schema()?,
            env: self.env()?,
            parameters: self.parameters()?,
            time_limit: duration("time_limit")?,
            metrics: self.metrics()?,
            run,
            setup,
            setup_once,
        })
    }

    /// A list of words or a text for `sh`; an empty one takes the preset's away.
    fn line(&self, key: &str) -> Result<Option<Line>, ConfigError> {
        let Some(at) = self.with(key) else { return Ok(None) };
        match at.value(key)? {
            toml::Value::String(text) if text.trim().is_empty() => Ok(None),
            toml::Value::String(text) => Ok(Some(Line::Shell(Template::new(text)))),
            _ => {
                let wrong =
                    "must be a list of words, [\"program\", \"argument\"], or a text for sh";
                let words = at.strings(key).ok().flatten();
                let words = words.ok_or_else(|| at.error(key, wrong))?;
                if words.first().is_some_and(|program| program.trim().is_empty()) {
                    return Err(
                        at.error(key, "begins with an empty word in the place of a program")
                    );
                }
                let words: Vec<Template> = words.into_iter().map(Template::new).collect();
                Ok((!words.is_empty()).then_some(Line::Words(words)))
            }
        }
    }

    fn schema(&self) -> Result<Option<String>, ConfigError> {
        let Some(at) = self.with("schema") else { return Ok(None) };
        let Some(name) = at.string("schema")?.filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || !name.chars().all(plain) || name.len() > LONGEST_NAME {
            let message =
                "must be a name of at most 63 letters a-z, digits and _, such as \"pgio_command\"";
            return Err(at.error("schema", message));
        }
        if name.starts_with("pg_") || matches!(name, "public" | "information_schema") {
            let message = "is PostgreSQL's own: pgio makes the schema for the command and drops it";
            return Err(at.error("schema", message));
        }
        Ok(Some(name.to_owned()))
    }

    fn env(&self) -> Result<BTreeMap<String, Template>, ConfigError> {
        let env = self.table("env")?;
        let Some(at) = self.section().section("env")? else { return Ok(env) };
        for name in at.keys() {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if !name.chars().all(plain) || name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(at.error(name, "is no name of a variable"));
            }
            if name.starts_with("PG") {
                let message =
                    "is pgio's to set, from the target and the condition: see dsn in [target]";
                return Err(at.error(name, message));
            }
        }
        Ok(env)
    }

    fn parameters(&self) -> Result<BTreeMap<String, Template>, ConfigError> {
        let parameters = self.table("parameters")?;
        for (name, value) in &parameters {
            let at = self.section();
            if PLACEHOLDERS.contains(&name.as_str()) {
                let message = format!("`{name}` is a placeholder of pgio's own: take another name");
                return Err(at.error("parameters", message));
            }
            let strange = value.placeholders().find(|name| !PLACEHOLDERS.contains(name));
            if let Some(strange) = strange {
                let message =
                    format!("`{name}` says {{{strange}}}; {}", nearest(strange, PLACEHOLDERS));
                return Err(at.error("parameters", message));
            }
        }
        Ok(parameters)
    }

    /// Of all layers together; a number or a switch is its text.
    fn table(&self, key: &str) -> Result<BTreeMap<String, Template>, ConfigError> {
        let mut all = BTreeMap::new();
        for section in self.0.iter().rev() {
            let Some(table) = section.section(key)? else { continue };
            for name in table.keys() {
                let text = match table.value(name)? {
                    toml::Value::String(text) => text,
                    toml::Value::Integer(n) => n.to_string(),
                    toml::Value::Float(n) => n.to_string(),
                    toml::Value::Boolean(switch) => switch.to_string(),
                    _ => return Err(table.error(name, "must be a text or a number")),
                };
                all.insert(name.to_owned(), Template::new(text));
            }
        }
        Ok(all)
    }

    /// Of all layers together, by name; the primary one of the uppermost layer that has one.
    fn metrics(&self) -> Result<Vec<MetricSpec>, ConfigError> {
        let mut all: Vec<MetricSpec> = Vec::new();
        for section in self.0.iter().rev() {
            let mut here: Vec<MetricSpec> = Vec::new();
            for at in section.sections("metric")? {
                let found = metric::parse(&at)?;
                if here.iter().any(|other| other.name == found.name) {
                    let message = format!("`{}` is the name of two metrics", found.name);
                    return Err(at.error("name", message));
                }
                if found.primary && here.iter().any(|other| other.primary) {
                    return Err(at.error("primary", "is said of two metrics: one is judged"));
                }
                here.push(found);
            }
            if here.iter().any(|metric| metric.primary) {
                all.iter_mut().for_each(|metric| metric.primary = false);
            }
            all.retain(|metric| here.iter().all(|other| other.name != metric.name));
            all.extend(here);
        }
        if let [only] = all.as_mut_slice() {
            only.primary = true;
        }
        let section = self.section();
        if all.is_empty() {
            let message = "is missing: at least one [[workload.metric]] with name, unit, better, and json or regex";
            return Err(section.error("metric", message));
        }
        let Some(judged) = all.iter().find(|metric| metric.primary) else {
            let message = "none is judged: write primary = true in one [[workload.metric]]";
            return Err(section.error("metric", message));
        };
        if judged.optional {
            let message = format!(
                "`{}` is judged, and a trial without it would have no result: delete optional, or write primary = true in another",
                judged.name
            );
            return Err(section.error("metric", message));
        }
        all.sort_by_key(|metric| !metric.primary);
        Ok(all)
    }
}

/// Refuses placeholders that stand for nothing, and parameters that stand nowhere or have no value;
/// returns those that are used.
fn check_texts(section: &Section<'_>, spec: &CommandSpec) -> Result<BTreeSet<String>, ConfigError> {
    let own = spec.parameters.keys().map(String::as_str);
    let known: Vec<&str> = PLACEHOLDERS.iter().copied().chain(own).collect();
    let used: BTreeSet<&str> = spec.all_texts().flat_map(Template::placeholders).collect();
    if let Some(unknown) = used.iter().find(|name| !known.contains(name)) {
        return Err(section.error_here(format!(
            "says {{{unknown}}}, which stands for nothing; {} (parameters = {{ {unknown} = … }} makes one, {{{{{unknown}}}}} is the text itself)",
            nearest(unknown, &known)
        )));
    }
    if used.contains("schema") && spec.schema.is_none() {
        return Err(section.error_here("says {schema}, and no schema = \"…\" is to be made"));
    }
    if spec.says("warmup") && spec.warm_up.is_some() {
        let message = "warms up twice: by warm_up, and by {warmup} elsewhere; keep one of the two";
        return Err(section.error_here(message));
    }
    let empty = |name: &&&str| spec.parameters.get(**name).is_some_and(|v| v.text().is_empty());
    if let Some(name) = used.iter().find(empty) {
        let message = format!("`{name}` is missing: parameters = {{ {name} = \"…\" }}");
        return Err(section.error("parameters", message));
    }
    let said = section.section("parameters")?.map(|at| at.keys()).unwrap_or_default();
    if let Some(unused) = said.into_iter().find(|name| !used.contains(name)) {
        let message = format!("`{unused}` is used nowhere: no text says {{{unused}}}");
        return Err(section.error("parameters", message));
    }
    Ok(used.into_iter().map(str::to_owned).collect())
}

/// Keys that the command has no use for, so that saying them means nothing.
pub(super) fn check_keys(
    section: &Section<'_>,
    spec: &CommandSpec,
    layer: &Layer,
) -> Result<(), ConfigError> {
    let unheard = |key: &str, placeholder: &str| {
        section.error(key, format!("means nothing to this command: it does not say {placeholder}"))
    };
    if layer.run_time.is_some() && !spec.says("seconds") {
        return Err(unheard("run_time", "{seconds}"));
    }
    if layer.sessions.is_some() && !spec.says("sessions") {
        return Err(unheard("sessions", "{sessions}"));
    }
    if layer.warmup.is_some_and(|warmup| !warmup.is_zero()) && !spec.warms_up() {
        return Err(unheard("warmup", "{warmup}, and has no warm_up"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
