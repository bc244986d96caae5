//! `[workload]` with `kind = "command"`, and its metrics `[[workload.metric]]`.
//!
//! A preset is a section with the same keys and may itself name a preset. A key overrides the same
//! key of the preset, while `parameters`, `env` and metrics are merged by name. The parser checks all
//! placeholders, so that none is left unfilled when the command runs.
//!
//! Next: `config::command` for the resulting types.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::key::{Key, Takes, Texts, WithDefault, section};
use super::limits;
use super::section::{Document, Section};
use crate::config::command::{CommandSpec, Line, MetricSpec, PLACEHOLDERS, PRESETS, Template};
use crate::config::keys::{Layer, names};
use crate::config::value::{ConfigError, MAX_IDENTIFIER, nearest};
use pgio_results::units::exact_duration;

section! { keys, "[workload] with kind = \"command\"",
    "A program to run as the workload. Texts may contain placeholders in braces.";
    preset: Parsed<String>("the name of a preset", text), "settings of a known benchmark; other keys override them";
    run: Raw(LINE) or "required", "program to measure";
    warm_up: Raw(LINE), "run before the window for the warm-up time";
    setup: Raw(LINE), "run before each trial";
    setup_once: Switch = false, "run setup before the first trial only";
    setup_limit: Time(ABOVE_ZERO) = Duration::from_secs(3600), "maximum time for setup";
    cleanup: Raw(LINE), "run after each trial";
    host: Parsed<String>("local or a NAME of [hosts]", label) or "this machine", "machine that runs the command";
    schema: Parsed<String>("a name", text), "schema to create for the command and to drop at the end";
    env: Raw("a table of strings"), "environment variables";
    parameters: Raw("a table of strings"), "user-defined placeholders";
    time_limit: Time(ABOVE_ZERO) or "3 times run_time and warmup, and 1 min", "maximum time for run";
    metric: Raw("[[workload.metric]]") or "required",
        "metrics in the output; at least one, but background work needs none";
}

const LINE: &str = "a command line for sh, or an array of words";

/// Name of the presets' file in errors, which only a bug in pgio can cause.
const PRESETS_FILE: &str = "command-presets.toml";

pub(super) fn parse(section: &Section<'_>) -> Result<CommandSpec, ConfigError> {
    let document = Document { file: PRESETS_FILE, text: PRESETS };
    let parsed = document.parse()?;
    let presets = Section::root(&document, parsed.get_ref());
    // The section itself, then its preset, then the preset of that preset, and so on.
    let mut layers = vec![section.clone()];
    while let Some(name) = layers[layers.len() - 1].read(&keys::preset)? {
        let below = presets.section(&name)?;
        let unknown = || {
            let message = format!("`{name}` is not a preset; {}", nearest(&name, &presets.keys()));
            section.error(&keys::preset, message)
        };
        layers.push(below.ok_or_else(unknown)?);
    }
    let mut spec = Layers(layers).spec()?;
    let used = check_texts(section, &spec)?;
    // Parameters of a preset may be unused after keys are overridden.
    spec.parameters.retain(|name, _| used.contains(name));
    Ok(spec)
}

/// Returns the names of all presets.
#[cfg(test)]
pub(super) fn presets() -> Vec<String> {
    let document = Document { file: PRESETS_FILE, text: PRESETS };
    let parsed = document.parse().unwrap();
    Section::root(&document, parsed.get_ref()).keys().iter().map(|k| (*k).to_owned()).collect()
}

/// Sections in order of precedence, the highest first.
struct Layers<'a>(Vec<Section<'a>>);

impl<'a> Layers<'a> {
    fn section(&self) -> &Section<'a> {
        &self.0[0]
    }

    /// Returns the section whose value of the key takes effect.
    fn find(&self, key: &str) -> Option<&Section<'a>> {
        self.0.iter().find(|section| section.has(key))
    }

    /// Reads the value that takes effect.
    fn read<K: Takes>(&self, key: &Key<K>) -> Result<Option<K::Value>, ConfigError> {
        self.find(key).map_or(Ok(None), |at| at.read(key))
    }

    fn get<K: Takes<Value: Clone>>(&self, key: &WithDefault<K>) -> Result<K::Value, ConfigError> {
        self.find(key).unwrap_or(self.section()).get(key)
    }

    fn spec(&self) -> Result<CommandSpec, ConfigError> {
        let section = self.section();
        let missing = "is missing; set run = [\"program\", \"argument\", …] or a preset";
        let run = self.line(&keys::run)?.ok_or_else(|| section.error(&keys::run, missing))?;
        let setup = self.line(&keys::setup)?;
        let setup_once = self.get(&keys::setup_once)?;
        if setup.is_none() && section.has(&keys::setup_once) {
            return Err(section.error(&keys::setup_once, "requires setup"));
        }
        Ok(CommandSpec {
            preset: section.read(&keys::preset)?,
            warm_up: self.line(&keys::warm_up)?,
            setup_limit: self.get(&keys::setup_limit)?,
            cleanup: self.line(&keys::cleanup)?,
            host: self.read(&keys::host)?,
            schema: self.schema()?,
            env: self.env()?,
            parameters: self.parameters()?,
            time_limit: self.read(&keys::time_limit)?,
            metrics: self.metrics()?,
            run,
            setup,
            setup_once,
        })
    }

    /// Reads a list of words or a text for `sh`; an empty one removes the preset's.
    fn line(&self, key: &str) -> Result<Option<Line>, ConfigError> {
        let Some(at) = self.find(key) else { return Ok(None) };
        match at.value(key)? {
            toml::Value::String(text) if text.trim().is_empty() => Ok(None),
            toml::Value::String(text) => Ok(Some(Line::Shell(Template::new(text)))),
            _ => {
                let wrong = "must be a list of words, [\"program\", \"argument\"], or a command line for sh";
                let words = at.read_as(key, &Texts("")).ok().flatten();
                let words = words.ok_or_else(|| at.error(key, wrong))?;
                if words.first().is_some_and(|program| program.trim().is_empty()) {
                    return Err(at.error(key, "begins with an empty word instead of a program"));
                }
                let words: Vec<Template> = words.into_iter().map(Template::new).collect();
                Ok((!words.is_empty()).then_some(Line::Words(words)))
            }
        }
    }

    fn schema(&self) -> Result<Option<String>, ConfigError> {
        let Some(at) = self.find(&keys::schema) else { return Ok(None) };
        let Some(name) = at.read(&keys::schema)?.filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || !name.chars().all(plain) || name.len() > MAX_IDENTIFIER {
            let message =
                "must be a name of at most 63 letters a-z, digits and _, such as \"pgio_command\"";
            return Err(at.error(&keys::schema, message));
        }
        if name.starts_with("pg_") || matches!(name.as_str(), "public" | "information_schema") {
            let message = "is a system schema; choose another name, because pgio creates and drops the schema";
            return Err(at.error(&keys::schema, message));
        }
        Ok(Some(name))
    }

    fn env(&self) -> Result<BTreeMap<String, Template>, ConfigError> {
        let env = self.table(&keys::env)?;
        let Some(at) = self.section().section(&keys::env)? else { return Ok(env) };
        for name in at.keys() {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if !name.chars().all(plain) || name.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(at.error(name, "is not a valid variable name"));
            }
            if name.starts_with("PG") {
                let message = "cannot be set, because pgio sets it from the target and the condition; see dsn in [target]";
                return Err(at.error(name, message));
            }
        }
        Ok(env)
    }

    fn parameters(&self) -> Result<BTreeMap<String, Template>, ConfigError> {
        let parameters = self.table(&keys::parameters)?;
        for (name, value) in &parameters {
            let at = self.section();
            if PLACEHOLDERS.contains(&name.as_str()) {
                let message = format!("`{name}` is a predefined placeholder; choose another name");
                return Err(at.error(&keys::parameters, message));
            }
            let unknown = value.placeholders().find(|name| !PLACEHOLDERS.contains(name));
            if let Some(unknown) = unknown {
                let nearest = nearest(unknown, PLACEHOLDERS);
                let message =
                    format!("`{name}` contains unknown placeholder {{{unknown}}}; {nearest}");
                return Err(at.error(&keys::parameters, message));
            }
        }
        Ok(parameters)
    }

    /// Merges a table over all layers; numbers and switches are converted to text.
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
                    _ => return Err(table.error(name, "must be a string or a number")),
                };
                all.insert(name.to_owned(), Template::new(text));
            }
        }
        Ok(all)
    }

    /// Merges metrics over all layers by name. The highest layer that has a primary metric sets it.
    fn metrics(&self) -> Result<Vec<MetricSpec>, ConfigError> {
        let mut all: Vec<MetricSpec> = Vec::new();
        for section in self.0.iter().rev() {
            let mut here: Vec<MetricSpec> = Vec::new();
            for at in section.sections(&keys::metric)? {
                let metric = limits::parse(&at)?;
                if here.iter().any(|other| other.name == metric.name) {
                    let message = format!("`{}` is the name of two metrics", metric.name);
                    return Err(at.error(&limits::keys::name, message));
                }
                if metric.primary && here.iter().any(|other| other.primary) {
                    return Err(at.error(
                        &limits::keys::primary,
                        "is set for two metrics; only one is judged",
                    ));
                }
                here.push(metric);
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
            return Ok(all);
        }
        let Some(judged) = all.iter().find(|metric| metric.primary) else {
            let message = "has no primary metric; write primary = true in one [[workload.metric]]";
            return Err(section.error(&keys::metric, message));
        };
        if judged.optional {
            let message = format!(
                "`{}` is the primary metric and cannot be optional; delete optional, or write primary = true in another metric",
                judged.name
            );
            return Err(section.error(&keys::metric, message));
        }
        all.sort_by_key(|metric| !metric.primary);
        Ok(all)
    }
}

/// Refuses unknown placeholders, and parameters that are unused or have no value; returns the
/// placeholders that are used.
fn check_texts(section: &Section<'_>, spec: &CommandSpec) -> Result<BTreeSet<String>, ConfigError> {
    let own = spec.parameters.keys().map(String::as_str);
    let known: Vec<&str> = PLACEHOLDERS.iter().copied().chain(own).collect();
    let used: BTreeSet<&str> = spec.all_texts().flat_map(Template::placeholders).collect();
    if let Some(unknown) = used.iter().find(|name| !known.contains(name)) {
        return Err(section.header_error(format!(
            "contains unknown placeholder {{{unknown}}}; {} (parameters = {{ {unknown} = … }} defines it, {{{{{unknown}}}}} is literal text)",
            nearest(unknown, &known)
        )));
    }
    if used.contains("schema") && spec.schema.is_none() {
        return Err(section.header_error("contains {schema}; set schema = \"…\""));
    }
    if spec.uses_placeholder("warmup") && spec.warm_up.is_some() {
        let message = "has both warm_up and {warmup} in another line; keep only one of them";
        return Err(section.header_error(message));
    }
    let empty = |name: &&&str| spec.parameters.get(**name).is_some_and(|v| v.text().is_empty());
    if let Some(name) = used.iter().find(empty) {
        let message = format!("`{name}` is missing; set parameters = {{ {name} = \"…\" }}");
        return Err(section.error(&keys::parameters, message));
    }
    let own = section.section(&keys::parameters)?.map(|at| at.keys()).unwrap_or_default();
    if let Some(unused) = own.into_iter().find(|name| !used.contains(name)) {
        let message = format!("`{unused}` is unused; no text contains {{{unused}}}");
        return Err(section.error(&keys::parameters, message));
    }
    Ok(used.into_iter().map(str::to_owned).collect())
}

/// Refuses a command without a metric, by which its trials would be compared.
pub(super) fn require_metric(section: &Section<'_>, spec: &CommandSpec) -> Result<(), ConfigError> {
    if spec.metrics.is_empty() {
        let message = "is missing; add at least one [[workload.metric]] with name, unit, better, and json or regex";
        return Err(section.error(&keys::metric, message));
    }
    Ok(())
}

/// Refuses keys that would have no effect on the command.
pub(super) fn check_keys(
    section: &Section<'_>,
    spec: &CommandSpec,
    layer: &Layer,
) -> Result<(), ConfigError> {
    let unused = |key: &str, placeholder: &str| {
        section.error(key, format!("has no effect; the command does not contain {placeholder}"))
    };
    if layer.run_time.is_some() && !spec.uses_placeholder("seconds") {
        return Err(unused(names::run_time, "{seconds}"));
    }
    if layer.sessions.is_some() && !spec.uses_placeholder("sessions") {
        return Err(unused(names::sessions, "{sessions}"));
    }
    if layer.warmup.is_some_and(|warmup| !warmup.is_zero()) && !spec.warms_up() {
        return Err(unused(names::warmup, "{warmup} and has no warm_up"));
    }
    Ok(())
}

/// Programs that count whole seconds; sysbench takes less than one as no limit.
const WHOLE_SECONDS: [&str; 2] = ["pgbench", "sysbench"];

/// Refuses times that a known program does not take.
pub(crate) fn check_times(
    section: &Section<'_>,
    spec: &CommandSpec,
    layer: &Layer,
) -> Result<(), ConfigError> {
    let program = |placeholder: &str| {
        let lines = [Some(&spec.run), spec.warm_up.as_ref()].into_iter().flatten();
        let takes_it = |line: &&Line| {
            line.texts().any(|text| text.placeholders().any(|name| name == placeholder))
        };
        let words = lines.filter(takes_it).flat_map(Line::texts).map(Template::text);
        let mut words = words.flat_map(str::split_whitespace).filter_map(|w| w.rsplit('/').next());
        words.find(|word| WHOLE_SECONDS.contains(word))
    };
    for (what, placeholder, time) in
        [("window", "seconds", layer.run_time), ("warm-up", "warmup", layer.warmup)]
    {
        let Some(time) = time.filter(|time| time.subsec_nanos() > 0) else { continue };
        let Some(program) = program(placeholder) else { continue };
        return Err(section.header_error(format!(
            "has a {what} of {}, and {program} counts whole seconds: write whole seconds, such as 1s",
            exact_duration(time)
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Experiment, WorkloadSpec, parse as parse_file};
    use super::*;
    use crate::config::command::{
        Better, Combine, CommandSettings, Extractor, MatchChoice, OutputSource,
    };

    const METRIC: &str = "[[workload.metric]]\nname = 'tps'\nunit = 'tx/s'\nbetter = 'higher'\nregex = 'tps = ([0-9.]+)'\n";

    fn read(workload: &str) -> Result<Experiment, ConfigError> {
        let text = format!("[workload]\nkind = 'command'\n{workload}[[condition]]\nname = 'a'\n");
        parse_file(&text, "x.toml", "x", &[], &[])
    }

    fn only(workload: &str) -> WorkloadSpec {
        read(workload).unwrap_or_else(|e| panic!("{e}")).workloads.remove(0)
    }

    fn spec(workload: &str) -> CommandSpec {
        only(workload).command.unwrap()
    }

    fn refused(workload: &str) -> String {
        read(workload).unwrap_err().to_string()
    }

    fn words(line: &Line) -> Vec<&str> {
        line.texts().map(Template::text).collect()
    }

    #[test]
    fn a_command_with_all_keys() {
        let workload = only(
            "run = ['prog', '-c', '{sessions}', '-T', '{seconds}', '{n}']\nwarm_up = ['prog', '{warmup}']\n\
             setup = 'prog init | grep ok'\nsetup_once = true\nsetup_limit = '5m'\ncleanup = ['rm', '{dir}/x']\n\
             host = 'client'\nschema = 'mine'\nenv = { A = '{seed}' }\nparameters = { n = 4 }\n\
             time_limit = '90s'\nsessions = 8\nrun_time = '30s'\nwarmup = '5s'\n\
             metric = [{ name = 'a', unit = 's', better = 'lower', json = ['/a', '/b'], file = '{dir}/x', scale = 1, optional = true, combine = 'max' },\n\
                       { name = 'b', unit = 'x', better = 'neither', regex = 'x', from = 'stderr', take = 'sum', skip = 2, primary = true }]\n",
        );
        let spec = workload.command.clone().unwrap();
        assert_eq!(words(&spec.run), ["prog", "-c", "{sessions}", "-T", "{seconds}", "{n}"]);
        assert_eq!(spec.setup, Some(Line::Shell(Template::new("prog init | grep ok"))));
        assert!(spec.setup_once);
        assert_eq!(spec.setup_limit, Duration::from_secs(300));
        assert_eq!((spec.host.as_deref(), spec.schema.as_deref()), (Some("client"), Some("mine")));
        assert_eq!(spec.parameters["n"].text(), "4");
        let [primary, other] = spec.metrics.as_slice() else { panic!("two") };
        assert_eq!(
            (primary.name.as_str(), primary.better, &primary.source),
            ("b", Better::Neither, &OutputSource::Stderr)
        );
        let Extractor::Regex { take, skip, .. } = &primary.extractor else { panic!("a regex") };
        assert_eq!((*take, *skip), (MatchChoice::Sum, 2));
        assert_eq!((primary.optional, other.optional), (false, true));
        assert_eq!((primary.combine, other.combine), (None, Some(Combine::Max)));
        assert_eq!(other.extractor, Extractor::Json(vec!["/a".to_owned(), "/b".to_owned()]));
        assert_eq!(other.source, OutputSource::File(Template::new("{dir}/x")));

        let settings = CommandSettings::resolve(spec, workload.layer);
        assert_eq!(settings.run_time, Some(Duration::from_secs(30)));
        assert_eq!(settings.time_limit, Duration::from_secs(90));
        assert_eq!((settings.sessions, settings.warmup), (8, Duration::from_secs(5)));
    }

    #[test]
    fn a_time_that_the_program_does_not_take_is_refused() {
        for (keys, message) in [
            ("preset = 'pgbench'\nrun_time = '500ms'\n", "window of 500ms, and pgbench counts"),
            ("preset = 'pgbench'\nwarmup = '1500ms'\n", "warm-up of 1500ms, and pgbench"),
            ("preset = 'sysbench-oltp_insert'\nrun_time = '2500ms'\n", "2500ms, and sysbench"),
        ] {
            assert!(refused(keys).contains(message), "{}", refused(keys));
        }
        let own = format!(
            "run = 'cd x && /usr/bin/pgbench -T {{seconds}}'\nrun_time = '1500ms'\n{METRIC}"
        );
        assert!(
            refused(&own).contains("window of 1500ms, and pgbench counts"),
            "{}",
            refused(&own)
        );
        only(&format!("run = 'prog {{seconds}}'\nrun_time = '1500ms'\n{METRIC}"));
    }

    #[test]
    fn a_command_without_seconds_has_no_run_time() {
        let workload = only(&format!("run = 'prog'\n{METRIC}"));
        assert_eq!(workload.layer.warmup, Some(Duration::ZERO), "the experiment's does not apply");
        let settings = CommandSettings::resolve(workload.command.unwrap(), workload.layer);
        assert_eq!(settings.run_time, None);
        // Derived from the experiment's duration of 10 s.
        assert_eq!(settings.time_limit, Duration::from_secs(90));
        assert!(settings.spec.metrics[0].primary, "the only metric is primary");
    }

    #[test]
    fn every_preset_parses() {
        let names = presets();
        assert!(names.len() > 10, "{names:?}");
        for name in names {
            let parameters = match name.as_str() {
                "pgbench-script" => "script = 'x.sql'",
                "fio" => "job = 'x.fio'",
                "postal" => "server = 'localhost', users = 'list'",
                _ => "",
            };
            let spec = spec(&format!("preset = '{name}'\nparameters = {{ {parameters} }}\n"));
            assert_eq!(spec.preset.as_deref(), Some(name.as_str()));
            assert!(
                spec.primary().unwrap().primary
                    && spec.primary().unwrap().better != Better::Neither,
                "{name}"
            );
            assert_eq!(
                spec.primary().unwrap().combine,
                Some(Combine::Sum),
                "{name}: several drivers can run it"
            );
        }
    }

    #[test]
    fn keys_override_the_preset() {
        let spec = spec(
            "preset = 'pgbench-S'\nsetup = []\nschema = ''\nparameters = { threads = 4 }\n\
             metric = [{ name = 'mine', unit = 's', better = 'lower', regex = 'x', primary = true }]\n",
        );
        assert_eq!((spec.setup.is_none(), spec.schema.is_none()), (true, true));
        assert_eq!(spec.parameters["threads"].text(), "4");
        assert_eq!(spec.parameters["builtin"].text(), "select-only");
        assert_eq!(spec.primary().unwrap().name, "mine");
        assert_eq!(spec.metrics.iter().filter(|m| m.primary).count(), 1);
        assert!(spec.metrics.len() > 2, "the preset's metrics are included");
    }

    #[test]
    fn errors_name_line_and_key() {
        let with = |keys: &str| refused(&format!("{keys}\n{METRIC}"));
        insta::assert_snapshot!(with(""), @"x.toml:1: workload.run: is missing; set run = [\"program\", \"argument\", …] or a preset");
        insta::assert_snapshot!(with("run = 3"), @"x.toml:3: workload.run: must be a list of words, [\"program\", \"argument\"], or a command line for sh");
        insta::assert_snapshot!(with("run = ['']"), @"x.toml:3: workload.run: begins with an empty word instead of a program");
        insta::assert_snapshot!(with("rum = 'x'"), @"x.toml:3: workload.rum: is an unknown key; the nearest valid one is `run`");
        insta::assert_snapshot!(with("preset = 'pgbensh'"), @"x.toml:3: workload.preset: `pgbensh` is not a preset; the nearest valid one is `pgbench`");
        insta::assert_snapshot!(with("run = 'p {secs}'"), @"x.toml:1: workload: contains unknown placeholder {secs}; the nearest valid one is `seed` (parameters = { secs = … } defines it, {{secs}} is literal text)");
        insta::assert_snapshot!(with("run = 'p {schema}'"), @"x.toml:1: workload: contains {schema}; set schema = \"…\"");
        insta::assert_snapshot!(with("run = 'p {warmup}'\nwarm_up = 'p'"), @"x.toml:1: workload: has both warm_up and {warmup} in another line; keep only one of them");
        insta::assert_snapshot!(with("run = 'p'\nrun_time = 5"), @"x.toml:4: workload.run_time: has no effect; the command does not contain {seconds}");
        insta::assert_snapshot!(with("run = 'p'\nsessions = 5"), @"x.toml:4: workload.sessions: has no effect; the command does not contain {sessions}");
        insta::assert_snapshot!(with("run = 'p'\nwarmup = 5"), @"x.toml:4: workload.warmup: has no effect; the command does not contain {warmup} and has no warm_up");
        insta::assert_snapshot!(with("run = 'p'\nscale = 5"), @"x.toml:4: workload.scale: does not apply to the workload `command`; delete it");
        insta::assert_snapshot!(with("run = 'p'\nsetup_once = true"), @"x.toml:4: workload.setup_once: requires setup");
        insta::assert_snapshot!(with("run = 'p'\nschema = 'public'"), @"x.toml:4: workload.schema: is a system schema; choose another name, because pgio creates and drops the schema");
        insta::assert_snapshot!(with("run = 'p'\nschema = 'My Schema'"), @"x.toml:4: workload.schema: must be a name of at most 63 letters a-z, digits and _, such as \"pgio_command\"");
        insta::assert_snapshot!(with("run = 'p'\nenv = { PGHOST = 'x' }"), @"x.toml:4: workload.env.PGHOST: cannot be set, because pgio sets it from the target and the condition; see dsn in [target]");
        insta::assert_snapshot!(with("run = 'p'\nparameters = { n = 1 }"), @"x.toml:4: workload.parameters: `n` is unused; no text contains {n}");
        insta::assert_snapshot!(with("run = 'p'\nparameters = { seed = 1 }"), @"x.toml:4: workload.parameters: `seed` is a predefined placeholder; choose another name");
        insta::assert_snapshot!(refused("preset = 'pgbench-script'\n"), @"x.toml:1: workload.parameters: `script` is missing; set parameters = { script = \"…\" }");
        insta::assert_snapshot!(with("run = 'p'\ntime_limit = 0"), @"x.toml:4: workload.time_limit: must be above zero");
        insta::assert_snapshot!(
            parse_file(&format!("[workload]\nkind = 'commit'\nrun = 'p'\n{METRIC}[[condition]]\nname = 'a'\n"), "x.toml", "x", &[], &[]).unwrap_err(),
            @"x.toml:3: workload.run: does not apply to the workload `commit`; delete it"
        );
    }

    #[test]
    fn errors_in_metrics_name_line_and_key() {
        let with = |keys: &str| refused(&format!("run = 'p'\n[[workload.metric]]\n{keys}\n"));
        let named = |keys: &str| with(&format!("name = 'm'\nunit = 's'\nbetter = 'lower'\n{keys}"));
        insta::assert_snapshot!(refused("run = 'p'\n"), @"x.toml:1: workload.metric: is missing; add at least one [[workload.metric]] with name, unit, better, and json or regex");
        insta::assert_snapshot!(with("unit = 's'"), @"x.toml:4: workload.metric.name: is missing; set name = \"transactions_per_second\"");
        insta::assert_snapshot!(with("name = 'My TPS'\nunit = 's'"), @"x.toml:5: workload.metric.name: must consist of letters a-z, digits and _");
        insta::assert_snapshot!(with("name = 'm'\nunit = 's'"), @"x.toml:4: workload.metric.better: is missing; set higher, lower or neither");
        insta::assert_snapshot!(with("name = 'm'\nunit = 's'\nbetter = 'hihger'"), @"x.toml:7: workload.metric.better: cannot be `hihger`; the nearest valid one is `higher`");
        insta::assert_snapshot!(named("regex = 'x'\ncombine = 'add'"), @"x.toml:9: workload.metric.combine: cannot be `add`; valid names: sum, mean, max, min");
        insta::assert_snapshot!(named(""), @"x.toml:4: workload.metric.regex: and json are missing; set for example regex = \"tps = ([0-9.]+)\" or json = \"/a/b\"");
        insta::assert_snapshot!(named("regex = 'x'\njson = '/x'"), @"x.toml:8: workload.metric.regex: conflicts with json; keep only one of them");
        insta::assert_snapshot!(named("json = 'x'"), @"x.toml:8: workload.metric.json: `x` is not a JSON pointer, because it does not begin with `/`");
        insta::assert_snapshot!(named("json = '/x'\ntake = 'sum'"), @"x.toml:9: workload.metric.take: requires regex");
        insta::assert_snapshot!(named("regex = 'x'\nscale = 0"), @"x.toml:9: workload.metric.scale: must be a number above 0, such as 0.001");
        insta::assert_snapshot!(named("regex = 'x'\nfile = 'a'\nfrom = 'stdout'"), @"x.toml:10: workload.metric.from: conflicts with file; keep only one of them");
        assert!(
            named("regex = 'tps = ([0-9'").starts_with(
                "x.toml:8: workload.metric.regex: is not a valid regular expression: "
            )
        );
        let two = |more: &str| {
            refused(&format!("run = 'p'\n{METRIC}{more}{}", METRIC.replace("tps'", "tps2'")))
        };
        insta::assert_snapshot!(two(""), @"x.toml:4: workload.metric: has no primary metric; write primary = true in one [[workload.metric]]");
        let optional = |more: &str| refused(&format!("run = 'p'\n{METRIC}optional = true\n{more}"));
        insta::assert_snapshot!(optional("primary = true\n"), @"x.toml:4: workload.metric: `tps` is the primary metric and cannot be optional; delete optional, or write primary = true in another metric");
        // A single metric is primary even if the file does not mark it.
        assert_eq!(optional(""), optional("primary = true\n"));
        let same = refused(&format!("run = 'p'\n{METRIC}{METRIC}"));
        insta::assert_snapshot!(same, @"x.toml:10: workload.metric.name: `tps` is the name of two metrics");
    }

    #[test]
    fn the_experiment_may_name_another_primary_metric() {
        let own = METRIC.replace("'tps'", "'rows'").replace("regex", "primary = true\nregex");
        let text = format!(
            "[experiment]\nprimary = 'tps'\n[workload]\nkind = 'command'\nrun = 'p'\n{METRIC}{own}\
             [[condition]]\nname = 'a'\n"
        );
        let mut experiment = parse_file(&text, "x.toml", "x", &[], &[]).unwrap();
        let spec = experiment.workloads.remove(0).command.unwrap();
        assert_eq!(
            spec.primary().unwrap().name,
            "rows",
            "drivers are weighted by the workload's own"
        );
        let primary: Vec<(&str, bool, bool)> = spec
            .metrics
            .iter()
            .map(|m| (m.name.as_str(), m.named_primary, m.is_primary()))
            .collect();
        assert_eq!(primary, [("rows", false, true), ("tps", true, true)]);
    }
}
