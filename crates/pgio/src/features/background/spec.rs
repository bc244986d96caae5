//! `[[background]]`: work beside the judged workload, in named conditions.
//!
//! A section takes the keys of a workload and a few of its own: the server that it works on, which may be a standby
//! of a private one, and the conditions in which it does. It runs as long as the trial and is not judged.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::experiment::key::section;
use crate::config::experiment::part::{self, File, FilePart};
use crate::config::experiment::section::Section;
use crate::config::experiment::{
    Condition, Experiment, Target, Weave, WorkloadSpec, command, limits, workload,
};
use crate::config::keys::names;
use crate::config::kinds::Things;
use crate::config::value::{ConfigError, nearest};
use crate::experiment::companion;

section! { keys, "[[background]]",
    "Work beside the judged workload, in named conditions. It takes the keys of a workload as well, runs as long as the trial, is not judged, and is not taken for foreign load.";
    target: Parsed<String>("a NAME of [targets]", text) or "required",
        "server that it works on; it may be a standby, for work that only reads";
    standby: Parsed<String>("the name of a standby", text),
        "standby of a private target, instead of its primary, for work that only reads; standby = true names it standby, standbys = 2 names them standby1 and standby2";
    conditions: Texts("an array of condition names") or "required", "conditions in which it runs";
}

/// A program that reports only at its end runs longer than the trial by this much.
const MARGIN: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct BackgroundSpec {
    /// A name of the file's targets.
    pub target: String,
    /// A standby of that target, which is private, instead of its primary.
    pub standby: Option<String>,
    /// `work.conditions` are those in which it runs.
    pub work: WorkloadSpec,
}

impl BackgroundSpec {
    /// Returns the server that it works on, for messages.
    pub(super) fn place(&self) -> String {
        match &self.standby {
            Some(standby) => format!("standby `{standby}` of `{}`", self.target),
            None => format!("`{}`", self.target),
        }
    }

    pub(super) fn runs_beside(&self, condition: &str) -> bool {
        companion::is_beside(self.conditions(), condition)
    }

    pub(super) fn conditions(&self) -> &[String] {
        self.work.conditions.as_deref().unwrap_or_default()
    }
}

pub(super) static PART: FilePart = FilePart {
    sections: &[keys::SECTION],
    complete: |file: &File<'_>, experiment| parse(file.root, experiment).map(drop),
    ..FilePart::NONE
};

/// Reads the sections of a file, of which the core has read the rest.
pub(super) fn parse(
    root: &Section<'_>,
    others: &Experiment,
) -> Result<Vec<BackgroundSpec>, ConfigError> {
    let mut all: Vec<BackgroundSpec> = Vec::new();
    for section in root.sections_within(super::NAME, limits::WORKLOADS)? {
        let background = background(&section, others)?;
        let name = &background.work.name;
        if all.iter().any(|earlier| earlier.work.name == *name) {
            let message =
                format!("`{name}` is the name of two background workloads; use different names");
            return Err(section.error(&workload::keys::name, message));
        }
        if let Some(other) = find_sharer(&background, &all, others) {
            let refusal = background.work.kind.def().exclusive.refusal;
            let other = other.map(|other| other.work.name.as_str());
            return Err(section.error(&workload::keys::kind, refusal(other, &background.target)));
        }
        all.push(background);
    }
    Ok(all)
}

fn background(section: &Section<'_>, others: &Experiment) -> Result<BackgroundSpec, ConfigError> {
    let mut work = workload::workload(section, keys::SECTION.names)?;
    let target = target(section, &others.targets)?;
    let standby = standby(section, &target, &others.targets)?;
    check_conditions(section, &work, &others.conditions)?;
    let def = work.kind.def();
    // Only a program takes them; sessions work until they are stopped.
    let times =
        [names::run_time, names::warmup].into_iter().filter(|_| !def.program && !def.tests_device);
    let own = [names::transactions, names::work_loop, workload::keys::reset.name];
    let added = part::added(&workload::keys::SECTION);
    for key in own.into_iter().chain(added).chain(times) {
        if section.has(key) {
            let message = "does not apply: background work runs as long as the trial";
            return Err(section.error(key, message));
        }
    }
    if let Some(axis) = work.axes.first() {
        return Err(section.error(&axis.name, "must be a single value for background work"));
    }
    if let Some(parts) = def.parts.as_ref().filter(|parts| !(parts.split)(&work.layer).is_empty()) {
        let message = format!("must name one {} for background work", parts.key);
        return Err(section.error(parts.key, message));
    }
    if others.rules.weave != Weave::Off {
        let message = "cannot run beside woven conditions, which share one window; remove weave";
        return Err(section.header_error(message));
    }
    work.layer.warmup.get_or_insert(Duration::ZERO);
    // Some programs count whole seconds.
    let whole = (longest_trial(others) + MARGIN).as_secs_f64().ceil();
    work.layer.run_time.get_or_insert(Duration::from_secs(whole as u64));
    if let Some(spec) = &work.command {
        command::check_times(section, spec, &work.layer)?;
    }
    Ok(BackgroundSpec { target, standby, work })
}

/// Returns the warm-up and window of the longest trial.
fn longest_trial(experiment: &Experiment) -> Duration {
    let trials = experiment.workloads.iter().map(|w| {
        let window = w.layer.run_time.unwrap_or(experiment.duration);
        w.layer.warmup.unwrap_or(experiment.warmup) + window
    });
    trials.max().unwrap_or_default()
}

/// Returns what has something at the same time that only one work of its kind can have: the judged workload (none) or
/// another.
fn find_sharer<'a>(
    background: &BackgroundSpec,
    earlier: &'a [BackgroundSpec],
    others: &Experiment,
) -> Option<Option<&'a BackgroundSpec>> {
    let own = exclusive(&background.work, &background.target, &others.targets);
    let shares = |work: &WorkloadSpec, target: &str| {
        work.kind == background.work.kind
            && !own.is_disjoint(&exclusive(work, target, &others.targets))
    };
    for condition in others.conditions.iter().filter(|c| background.runs_beside(&c.name)) {
        let mut judged = others.workloads.iter().filter(|w| w.runs_under(&condition.name));
        if judged.any(|work| condition.targets().any(|target| shares(work, target))) {
            return Some(None);
        }
        let mut beside = earlier.iter().filter(|other| other.runs_beside(&condition.name));
        if let Some(other) = beside.find(|other| shares(&other.work, &other.target)) {
            return Some(Some(other));
        }
    }
    None
}

/// Returns what only one work of its kind can have on this target.
fn exclusive(work: &WorkloadSpec, target: &str, targets: &BTreeMap<String, Target>) -> Things {
    let host = match targets.get(target) {
        Some(Target::Server { host, .. }) => host.as_deref(),
        Some(Target::Private(_)) | None => None,
    };
    (work.kind.def().exclusive.things)(work, target, host)
}

fn target(
    section: &Section<'_>,
    targets: &BTreeMap<String, Target>,
) -> Result<String, ConfigError> {
    let Some(name) = section.read(&keys::target)? else {
        return Err(section.header_error("requires target = \"NAME\", the server that it works on"));
    };
    if targets.contains_key(&name) {
        return Ok(name);
    }
    let names: Vec<&str> = targets.keys().map(String::as_str).collect();
    let hint =
        if names.is_empty() { format!("add [targets.{name}]") } else { nearest(&name, &names) };
    Err(section.error(&keys::target, format!("`{name}` is not a target; {hint}")))
}

fn standby(
    section: &Section<'_>,
    target: &str,
    targets: &BTreeMap<String, Target>,
) -> Result<Option<String>, ConfigError> {
    let Some(name) = section.read(&keys::standby)? else { return Ok(None) };
    let Some(Target::Private(private)) = targets.get(target) else {
        let message = format!(
            "names a standby of a private server, but `{target}` is none; for a standby of yours add [targets.NAME] with its dsn and write target = \"NAME\""
        );
        return Err(section.error(&keys::standby, message));
    };
    let names: Vec<&str> = private.standbys.iter().map(|s| s.name.as_str()).collect();
    if names.contains(&name.as_str()) {
        return Ok(Some(name));
    }
    let hint = if names.is_empty() {
        format!("write standby = true in [targets.{target}]")
    } else {
        nearest(&name, &names)
    };
    Err(section.error(&keys::standby, format!("`{name}` is not a standby of `{target}`; {hint}")))
}

fn check_conditions(
    section: &Section<'_>,
    work: &WorkloadSpec,
    conditions: &[Condition],
) -> Result<(), ConfigError> {
    let names: Vec<&str> = conditions.iter().map(|c| c.name.as_str()).collect();
    let chosen = work.conditions.as_deref().unwrap_or_default();
    if chosen.is_empty() {
        let message = "requires conditions = [\"NAME\"], those in which it runs";
        return Err(section.header_error(message));
    }
    match chosen.iter().find(|name| !names.contains(&name.as_str())) {
        Some(name) => {
            let message = format!("`{name}` is not a condition; {}", nearest(name, &names));
            Err(section.error(&keys::conditions, message))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse;
    use crate::config::experiment::part::read_again as again;
    use crate::config::experiment::tests::{error, read};
    use crate::config::kinds::SLOB;

    const HEAD: &str = "[experiment]\nwarmup = '1s'\nduration = '4s'\n[targets.n1]\nprivate = true\n\
                        [targets.judged]\nprivate = true\n[workload]\nkind = 'commit'\n\
                        [[condition]]\nname = 'quiet'\ntarget = 'judged'\n\
                        [[condition]]\nname = 'noisy'\ntarget = 'judged'\n[[background]]\n";

    #[test]
    fn a_neighbor_takes_the_keys_of_its_workload() {
        let text = format!(
            "{HEAD}target = 'n1'\nconditions = ['noisy']\nkind = 'slob'\nscale = '64M'\nnum_threads = 2\n\
             [[background]]\nname = 'quiet too'\ntarget = 'judged'\nconditions = ['quiet']\nkind = 'slob'\n"
        );
        let experiment = read(&text);
        let specs = again(&text, |root| parse(root, &experiment)).unwrap();
        let [slob, second] = specs.as_slice() else { panic!() };
        assert_eq!((slob.target.as_str(), slob.work.kind), ("n1", SLOB));
        assert_eq!(
            slob.work.layer.run_time,
            Some(Duration::from_secs(7)),
            "the trial and a margin"
        );
        assert_eq!(slob.work.layer.warmup, Some(Duration::ZERO));
        assert!(slob.runs_beside("noisy") && !slob.runs_beside("quiet"));
        assert!(second.runs_beside("quiet (A/A)"), "as its first copy");
        assert_eq!(experiment.workloads.len(), 1, "it is not judged");
    }

    #[test]
    #[cfg(feature = "sweep")]
    fn errors_name_the_line_and_the_remedy() {
        const WHERE: &str = "target = 'n1'\nconditions = ['noisy']\n";
        for (lines, expected) in cases! {
            "conditions = ['noisy']\n" => "16: background: requires target = \"NAME\"";
            "target = 'n2'\nconditions = ['noisy']\n"
                => "17: background.target: `n2` is not a target; the nearest valid one is `n1`";
            "target = 'n1'\n" => "16: background: requires conditions = [\"NAME\"]";
            "target = 'n1'\nconditions = ['nosy']\n"
                => "18: background.conditions: `nosy` is not a condition; the nearest valid one is `noisy`";
            &format!("{WHERE}kind = 'commit'\ntransactions = 5\n")
                => "20: background.transactions: does not apply: background work runs as long as the trial";
            &format!("{WHERE}num_threads = [1, 2]\n") => "19: background.num_threads: must be a single value";
            &format!("{WHERE}speed = 1\n") => "19: background.speed: is an unknown key";
            &format!("{WHERE}[[background]]\n{WHERE}")
                => "19: background.name: `slob` is the name of two background workloads";
            "target = 'judged'\nconditions = ['noisy']\nkind = 'commit'\n"
                => "19: background.kind: `commit` would share its table with the judged workload on `judged`";
            &format!("{WHERE}kind = 'commit'\n[[background]]\n{WHERE}name = 'b'\nkind = 'commit'\n")
                => "24: background.kind: `commit` would share its table with `commit` on `n1`";
            &format!("{WHERE}run_time = '5s'\n")
                => "19: background.run_time: does not apply: background work runs as long as the trial";
        } {
            let error = error(&format!("{HEAD}{lines}"));
            assert!(error.starts_with(&format!("x.toml:{expected}")), "{lines}: {error}");
        }
        let joint = HEAD.replace(
            "name = 'noisy'\ntarget = 'judged'",
            "name = 'noisy'\ntarget = ['judged', 'n1']",
        );
        let refused = error(&format!("{joint}{WHERE}kind = 'commit'\n"));
        assert!(refused.contains("with the judged workload on `n1`"), "{refused}");
        let apart = "conditions = ['quiet']\nkind = 'commit'\n";
        read(&format!(
            "{HEAD}{WHERE}kind = 'commit'\n[[background]]\ntarget = 'n1'\nname = 'b'\n{apart}"
        ));
        let woven = HEAD.replace("warmup", "weave = '20ms'\nwarmup");
        let error = error(&format!("{woven}{WHERE}"));
        assert!(error.contains("cannot run beside woven conditions"), "{error}");
    }
}
