//! A parsed and checked experiment file with its seed.
//!
//! Looks at the text only, so that a mistake in the file is refused before anything else happens.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use pgio_results::{joint, metrics};
use rustix::process::Signal;

use super::error::RunError;
use super::file_changes;
use super::workloads::{OTHER_METRIC, obstacle};
use crate::config::experiment::section::Section;
use crate::config::experiment::{self, Experiment, WorkloadSpec};
use crate::config::inventory::expand;
use crate::config::{ConfigError, Layer, nearest};
use crate::exit_code::{HasExitCode, USAGE};
use crate::experiment::generators::Generators;
use crate::experiment::live::LiveError;
use crate::experiment::state;
use crate::experiment::target::ConnectionKeys;
use crate::feature;
use crate::host::exec::{CommandLine, Exec, Tied};
use crate::pg::words;
use crate::treatment::{self, Parsed, TreatmentError};
use crate::workload::command;

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{file}: workload.metric: `{name}` is a built-in metric: choose another name")]
    OwnMetric { file: String, name: String },
    #[error("{file}: {key}: unknown metric `{metric}`; {hint}")]
    NoMetric { file: String, key: &'static str, metric: String, hint: String },
    #[error("{file}: {key}: the workload `{workload}` does not measure `{metric}`{hint}")]
    NotMeasured {
        file: String,
        key: &'static str,
        metric: String,
        workload: String,
        hint: &'static str,
    },
    #[error("{file}")]
    Treatment { file: String, source: Box<TreatmentError> },
}

impl HasExitCode for JobError {
    fn code(&self) -> u8 {
        match self {
            JobError::Config(source) => source.code(),
            JobError::OwnMetric { .. }
            | JobError::NoMetric { .. }
            | JobError::NotMeasured { .. } => USAGE,
            JobError::Treatment { source, .. } => source.code(),
        }
    }
}

/// An experiment file, ready to be run.
#[derive(Debug)]
pub struct Job {
    pub experiment: Experiment,
    pub(super) text: String,
    pub seed: u64,
    pub treatments: Parsed,
    /// Keys of ./pgio.conf, below the file's.
    pub base_keys: ConnectionKeys,
    /// The processes that generate the load; absent: this one alone.
    pub generators: Option<Rc<dyn Generators>>,
}

impl Job {
    /// `file` is the name for errors, `stem` the experiment's name if the text has none. A seed is drawn if
    /// the text has none.
    pub fn parse(
        text: &str,
        file: &str,
        stem: &str,
        base_keys: ConnectionKeys,
    ) -> Result<Job, JobError> {
        let experiment =
            experiment::parse(text, file, stem, &treatment::names(), &feature::tolerable())?;
        check_metrics(&experiment, &base_keys.layer, file)?;
        let treatments = parse_treatments(&experiment).map_err(|source| JobError::Treatment {
            file: file.to_owned(),
            source: source.into(),
        })?;
        let seed = experiment.seed.unwrap_or_else(state::new_seed);
        let text = text.to_owned();
        Ok(Job { experiment, text, seed, treatments, base_keys, generators: None })
    }

    /// Reads more of the file.
    pub(crate) fn read_again<T>(
        &self,
        read: impl FnOnce(&Section<'_>) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        experiment::part::read_again(&self.text, read)
    }

    /// Refuses, before a server is started, other processes that cannot generate the load.
    pub(super) fn check_generators(&self) -> Result<(), RunError> {
        let checked = self.generators.as_ref().map_or(Ok(()), |generators| generators.check(self));
        Ok(checked.map_err(LiveError::from)?)
    }

    /// Returns the directory of a workload's results.
    pub fn dir_of(&self, out: &Path, workload: &WorkloadSpec) -> PathBuf {
        match self.experiment.workloads.len() {
            1 => out.to_owned(),
            _ => out.join(&workload.name),
        }
    }

    /// Returns the experiment's name; with several workloads, each is an experiment with its own name.
    pub fn name_of(&self, spec: &WorkloadSpec) -> String {
        match self.experiment.workloads.len() {
            1 => self.experiment.name.clone(),
            _ => format!("{} {}", self.experiment.name, spec.name),
        }
    }
}

/// Returns the text of an experiment file with another value for a key of `[experiment]`, such as `5%`
/// for `matters`. `None` if the file has no such section to which one line can be added.
pub fn with_value(text: &str, key: &str, value: &str) -> Option<String> {
    let value = match value {
        "false" => toml::Value::Boolean(false),
        text => toml::Value::String(text.to_owned()),
    };
    file_changes::with_key(text, key, &value.to_string())
}

/// As [`with_value`], for a number.
pub fn with_number(text: &str, key: &str, value: u32) -> Option<String> {
    file_changes::with_key(text, key, &value.to_string())
}

/// Parses every treatment of the file, at every point.
fn parse_treatments(e: &Experiment) -> Result<Parsed, TreatmentError> {
    let mut parsed = Parsed::default();
    for workload in &e.workloads {
        for point in workload.points(e.combination) {
            for condition in &e.conditions {
                parsed.add(workload.treatments_at(condition, &point))?;
            }
        }
    }
    Ok(parsed)
}

fn check_metrics(experiment: &Experiment, base_keys: &Layer, file: &str) -> Result<(), JobError> {
    let mut declared = Vec::new();
    for spec in experiment.workloads.iter().filter_map(|w| w.command.as_ref()) {
        declared.extend(command::declared(spec));
    }
    if let Some(taken) = declared.iter().find(|m| metrics::definition(&m.name).is_some()) {
        return Err(JobError::OwnMetric { file: file.to_owned(), name: taken.name.clone() });
    }
    let primary = experiment.primary.as_deref().unwrap_or_default();
    let asked = joint::judged_metrics(primary, &experiment.rules.question.also_judge);
    for workload in &experiment.workloads {
        declared.extend(joint::declare_metrics(&asked, &experiment.compared_targets(workload)));
    }
    let also = experiment.rules.question.also_judge.iter().map(|name| ("also_judge", name));
    let named = experiment.primary.iter().map(|name| ("primary", name)).chain(also);
    for (key, metric) in named {
        if metrics::find(&declared, metric).is_none() {
            let names: Vec<&str> = metrics::all(&declared).map(|m| m.name).collect();
            let hint = nearest(metric, &names);
            let (file, metric) = (file.to_owned(), metric.clone());
            return Err(JobError::NoMetric { file, key, metric, hint });
        }
        for workload in &experiment.workloads {
            let points = workload.points(experiment.combination);
            let layers =
                points.iter().map(|point| workload.layer_at(point).over(base_keys.clone()));
            let layers: Vec<Layer> = layers.collect();
            let hint = unmeasured(workload, &layers, metric);
            if let Some(hint) = hint.or_else(|| uncompared(experiment, workload, metric)) {
                let (file, workload) = (file.to_owned(), workload.name.clone());
                let metric = metric.clone();
                return Err(JobError::NotMeasured { file, key, metric, workload, hint });
            }
        }
    }
    Ok(())
}

/// Returns why a workload cannot have a metric, its command's own included.
fn unmeasured(workload: &WorkloadSpec, layers: &[Layer], metric: &str) -> Option<&'static str> {
    // A single server's metric is measured as the sum is.
    let metric = joint::base_metric(metric);
    match metrics::definition(metric) {
        Some(metric) => obstacle(workload.kind, layers, metric),
        None => {
            let own = workload.command.as_ref().map(command::declared).unwrap_or_default();
            let has = metric == joint::SHARE || own.iter().any(|own| own.name == metric);
            (!has).then_some(OTHER_METRIC)
        }
    }
}

/// Returns why a workload cannot compare a metric of a single server: a trial has it for each server that it runs on,
/// if some condition of the workload has several.
fn uncompared(
    experiment: &Experiment,
    workload: &WorkloadSpec,
    metric: &str,
) -> Option<&'static str> {
    let (_, target) = joint::split_name(metric)?;
    if experiment.compared_targets(workload).iter().all(|name| name != target) {
        return Some(", because its conditions compare no such target; name the metric without it");
    }
    let mut baseline = experiment.conditions.iter().filter(|c| c.name == experiment.baseline);
    let has_target = baseline.any(|c| c.targets().any(|name| name == target));
    (!has_target).then_some(
        " under the baseline, with which the others are compared; name a target of the baseline",
    )
}

/// A command that asks a cluster's controller may wait for it.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the text of an experiment file with the nodes of its inventories; without one, the text as it is.
pub fn with_nodes(text: String, file: &str) -> Result<String, ConfigError> {
    // Hosts and targets usually have the same inventory.
    let mut known: BTreeMap<String, Result<String, String>> = BTreeMap::new();
    let mut run = |command: &str| {
        known.entry(command.to_owned()).or_insert_with(|| printed_by(command)).clone()
    };
    Ok(expand(&text, file, &mut run)?.unwrap_or(text))
}

/// Ends a command with all that it started when pgio ends, by Ctrl-C or kill -9.
const ENDED_WITH_PGIO: &str = "trap 'kill -KILL 0' TERM; sh -c \"$1\" & wait $!";

fn printed_by(command: &str) -> Result<String, String> {
    let line = CommandLine::new("sh").args(["-c", ENDED_WITH_PGIO, "sh", command]).timeout(LIMIT);
    let output = Tied(Signal::TERM).output(&line).map_err(|error| match error.without_words() {
        Some(why) => format!("the command {why}"),
        None => words::sentence(&error),
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = output.stderr.lines().map(str::trim).find(|line| !line.is_empty());
    let said = said.map_or_else(String::new, |line| format!(": {line}"));
    Err(format!("the command failed with {}{said}", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::scripted::{COMMITS, job, try_job};

    #[test]
    fn the_seed_is_read_from_the_file_or_drawn() {
        assert_eq!(job(COMMITS).seed, 7);
        let drawn = job(&COMMITS.replace("seed = 7", ""));
        assert!(drawn.seed < 1 << 53);
    }

    #[test]
    #[cfg(feature = "sweep")]
    fn a_metric_must_exist_and_a_program_may_not_take_its_name() {
        let error = try_job(&COMMITS.replace("seed = 7", "primary = 'speed'")).unwrap_err();
        let text = error.to_string();
        // More than a message can hold.
        let expected =
            "x.toml: primary: unknown metric `speed`; docs/KEYS.md lists the valid names";
        assert_eq!(text, expected);
        let also = COMMITS.replace("seed = 7", "also_judge = ['commit_latency_p99', 'speed']");
        let text = try_job(&also).unwrap_err().to_string();
        assert!(text.starts_with("x.toml: also_judge: unknown metric `speed`"), "{text}");
        for (key, metric) in
            [("primary", "block_visits_per_second"), ("also_judge", "read_latency_p99")]
        {
            let value =
                if key == "primary" { format!("'{metric}'") } else { format!("['{metric}']") };
            let text = COMMITS.replace("seed = 7", &format!("{key} = {value}"));
            let expected = format!(
                "x.toml: {key}: the workload `commit` does not measure `{metric}`; choose a metric that it measures (docs/KEYS.md)"
            );
            assert_eq!(try_job(&text).unwrap_err().to_string(), expected);
        }
        let reads = "[target]\nprivate = true\n[workload]\nkind = 'slob'\n\
                     [experiment]\nprimary = 'commits_per_second'\n[[condition]]\nname = 'a'\n";
        assert_eq!(
            try_job(reads).unwrap_err().to_string(),
            "x.toml: primary: the workload `slob` does not measure `commits_per_second`, because it changes nothing: set update_pct above 0"
        );
        try_job(&reads.replace("'slob'", "'slob'\nupdate_pct = [0, 20]")).unwrap();
        let command = "[target]\nprivate = true\n[workload]\nkind = 'command'\nrun = ['true']\n\
                       [[workload.metric]]\nname = 'commits_per_second'\nregex = '(\\d+)'\nunit = '/s'\nbetter = 'higher'\n";
        let error = try_job(command).unwrap_err();
        assert!(matches!(error, JobError::OwnMetric { .. }), "{error}");
    }

    #[test]
    fn a_metric_of_one_server_is_judged_where_the_baseline_has_it() {
        let with = |metric: &str, more: &str| {
            let text = format!(
                "[experiment]\nalso_judge = ['{metric}']\n[targets.a]\nprivate = true\n[targets.b]\nprivate = true\n\
                 [[workload]]\nkind = 'commit'\n{more}[[condition]]\nname = 'alone'\ntarget = 'a'\n\
                 [[condition]]\nname = 'other'\ntarget = 'b'\n[[condition]]\nname = 'both'\ntarget = ['a', 'b']\n"
            );
            let job = Job::parse(&text, "x.toml", "x", ConnectionKeys::default());
            job.map(drop).map_err(|error| error.to_string())
        };
        with("commits_per_second@a", "").unwrap();
        assert_eq!(
            with("commits_per_second@b", "").unwrap_err(),
            "x.toml: also_judge: the workload `commit` does not measure `commits_per_second@b` under the baseline, with \
             which the others are compared; name a target of the baseline"
        );
        let apart =
            "[[workload]]\nname = 'apart'\nkind = 'commit'\nconditions = ['alone', 'other']\n";
        assert_eq!(
            with("commits_per_second@a", apart).unwrap_err(),
            "x.toml: also_judge: the workload `apart` does not measure `commits_per_second@a`, because its conditions \
             compare no such target; name the metric without it"
        );
        with("commits_per_second", apart).unwrap();
    }

    #[test]
    fn a_judged_metric_of_a_command_is_not_optional() {
        let are_optional = |head: &str| {
            let metric = |name: &str| {
                format!(
                    "name = '{name}'\nregex = '{name}=(\\d+)'\nunit = '/s'\nbetter = 'higher'\n"
                )
            };
            let job = try_job(&format!(
                "[target]\nprivate = true\n[experiment]\n{head}\n[workload]\nkind = 'command'\nrun = ['true']\n\
                 [[workload.metric]]\n{}primary = true\n[[workload.metric]]\n{}optional = true\n\
                 [[workload.metric]]\n{}optional = true\n",
                metric("rows"),
                metric("tps"),
                metric("p99")
            ));
            let workload = job.unwrap().experiment.workloads.remove(0);
            workload.command.unwrap().metrics.iter().map(|m| m.optional).collect::<Vec<bool>>()
        };
        assert_eq!(are_optional(""), [false, true, true]);
        assert_eq!(are_optional("primary = 'tps'"), [false, false, true]);
        assert_eq!(are_optional("also_judge = ['p99']"), [false, true, false]);
    }

    #[test]
    fn a_treatment_that_cannot_be_read_is_an_error_of_the_file() {
        let before = "[[condition]]\nname = 'slow'\npostgres = 'long'";
        let error = try_job(&format!("{COMMITS}{before}")).unwrap_err();
        assert!(matches!(error, JobError::Treatment { .. }), "{error}");
        assert_eq!(error.to_string(), "x.toml");
    }

    #[test]
    fn several_workloads_have_a_directory_and_a_name_each() {
        let one = job(COMMITS);
        let spec = &one.experiment.workloads[0];
        assert_eq!(one.dir_of(Path::new("out"), spec), Path::new("out"));
        assert_eq!(one.name_of(spec), "x");
        let two = COMMITS.replace("[workload]\n", "[[workload]]\nname = 'a'\n")
            + "[[workload]]\nname = 'b'\nkind = 'commit'\n";
        let two = job(&two);
        let spec = &two.experiment.workloads[1];
        assert_eq!(two.dir_of(Path::new("out"), spec), Path::new("out/b"));
        assert_eq!(two.name_of(spec), "x b");
    }

    #[test]
    fn fuzzed_files_are_parsed_or_refused() {
        macro_rules! example {
            ($name:literal) => {
                include_str!(concat!("../../../../../examples/", $name, ".toml"))
            };
        }
        let samples = [
            example!("archive"),
            example!("background-work"),
            example!("backup"),
            example!("ci-gate"),
            example!("command-presets"),
            example!("demo"),
            example!("device"),
            example!("drbd-arms"),
            example!("ext4-options"),
            example!("hot-spot"),
            example!("io-throttle"),
            example!("link-delay"),
            example!("mail-drbd"),
            example!("my-tables"),
            example!("page-cache"),
            example!("screening"),
            example!("two-servers"),
            example!("two-standbys"),
            example!("versions"),
            example!("wal-device"),
            "[experiment]\nblocks = 6\nseed = 0x7\nweave = 'auto'\n[targets.é]\ndsn = 'x'\n[[workload]]\nkind = 'slob'\nscale = '1M'\n\
             [[axis]]\nkey = 'num_threads'\nvalues = [1, 2]\n[[condition]]\nname = 'a'\n[[condition]]\nname = 'b'\nshell = {}\n",
        ];
        // Comments are most of an example and of no interest.
        let samples = samples.map(|text| {
            let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
            lines.collect::<Vec<_>>().join("\n")
        });
        pgio_fuzz::fuzz(&samples, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            if let Err(error) = Job::parse(&text, "x.toml", "x", ConnectionKeys::default()) {
                pgio_fuzz::print(&error);
            }
        });
    }

    fn file(command: &str) -> String {
        format!("[targets]\ninventory = '{command}'\nprivate = true\n")
    }

    #[test]
    fn a_command_prints_the_nodes() {
        let text = with_nodes(file("printf \"a\\nb\\n\""), "x.toml").unwrap();
        assert!(text.contains("[targets.\"a\"]\nprivate = true\n[targets.\"b\"]"), "{text}");
        let plain = "[target]\nprivate = true\n".to_owned();
        assert_eq!(with_nodes(plain.clone(), "x.toml").unwrap(), plain);
    }

    #[test]
    fn a_command_that_fails_is_an_error_of_its_line() {
        let error = with_nodes(file("echo n1; echo no controller >&2; exit 3"), "x.toml");
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with("x.toml:2: targets.inventory: the command failed"), "{text}");
        assert!(text.ends_with("failed with exit status: 3: no controller"), "{text}");
    }
}
