//! The experiment file of `pgio compare`: workloads, targets, hosts and conditions.
//!
//! The parser keeps line numbers, so that every error names its line. It must not read the
//! environment or a pgio.conf. The bodies of treatments stay TOML values: each treatment parses its
//! own, and the caller passes the valid kinds.
//!
//! Each section of the file has its own submodule; all use the reader in `section`.

mod command;
mod condition;
mod hosts;
pub mod limits;
mod question;
mod rules;
mod section;
mod size;
mod sweep;
mod target;
mod workload;

use std::collections::BTreeMap;
use std::time::Duration;

use toml::de::DeTable;

use self::section::{Document, Section};
use super::error::{ConfigError, nearest};
use super::sections;

pub use self::condition::{AA_SUFFIX, Condition, TreatmentSpec};
pub use self::hosts::HostSpec;
pub use self::question::Question;
pub use self::rules::{Checkpoint, Reset, Rules};
pub use self::size::Size;
pub use self::sweep::{AxisSpec, AxisValueSpec, PointSpec, SweepKind};
pub use self::target::{ControlMethod, SINGLE_TARGET, Target};
pub use self::workload::{WorkloadKind, WorkloadSpec};

#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    pub name: String,
    /// Passes over all conditions.
    pub blocks: u32,
    /// For reports; each workload's layer already contains it, as well as `duration`.
    pub warmup: Duration,
    pub duration: Duration,
    /// Seed of the order of conditions. Absent: drawn and recorded.
    pub seed: Option<u64>,
    /// The name of one of the conditions.
    pub baseline: String,
    /// Whether the baseline runs twice in each block to measure the noise.
    pub aa: bool,
    /// Whether an uncounted trial of the baseline precedes block 1; absent: depends on the workload.
    pub burn_in: Option<bool>,
    /// Interval at which pgio observes server and hosts; zero: never.
    pub telemetry: Duration,
    /// The metric that is judged; absent: the workload's default.
    pub primary: Option<String>,
    /// Machines to observe, by their names in the file.
    pub hosts: BTreeMap<String, HostSpec>,
    pub rules: Rules,
    /// How the axes of a workload are combined into points.
    pub sweep: SweepKind,
    /// Empty: pgio.conf, then the PG* variables, apply.
    pub targets: BTreeMap<String, Target>,
    pub workloads: Vec<WorkloadSpec>,
    /// In the order of the file, without the A/A condition.
    pub conditions: Vec<Condition>,
}

impl Experiment {
    /// Returns the target of a condition; none if pgio.conf or the environment supplies it.
    pub fn target_of(&self, condition: &Condition) -> Option<&Target> {
        condition.target.as_ref().and_then(|name| self.targets.get(name))
    }

    /// Returns whether a burn-in trial comes first. By default it does if all trials share a data set,
    /// because the share of it that is cached differs; a command with `setup_once` counts as such.
    pub fn burns_in(&self, workload: &WorkloadSpec) -> bool {
        let prepared = workload.command.as_ref().is_some_and(|command| command.setup_once);
        self.burn_in.unwrap_or(prepared || workload.kind == WorkloadKind::Slob)
    }

    pub fn reset_of<'a>(&'a self, workload: &'a WorkloadSpec) -> &'a Reset {
        workload.reset.as_ref().unwrap_or(&self.rules.reset)
    }

    /// Returns the conditions of a workload, in the order of the file.
    pub fn conditions_of<'a>(
        &'a self,
        workload: &'a WorkloadSpec,
    ) -> impl Iterator<Item = &'a Condition> {
        self.conditions.iter().filter(|condition| workload.runs_under(&condition.name))
    }
}

const SECTIONS: &[&str] =
    &["experiment", "hosts", "target", "targets", "workload", "axis", "condition"];

/// Parses an experiment file. Errors contain the name `file`; `stem` is the default name of the
/// experiment; `treatments` are the valid kinds of treatment; `checks` are the ids that `tolerate`
/// accepts.
pub fn parse(
    text: &str,
    file: &str,
    stem: &str,
    treatments: &[&str],
    checks: &[&str],
) -> Result<Experiment, ConfigError> {
    let document = Document { file, text };
    let parsed = document.parse()?;
    let root = Section::root(&document, parsed.get_ref());
    root.only(SECTIONS)?;

    let hosts = hosts::parse(&root)?;
    let targets = target::parse(&root, &hosts)?;
    let conditions = condition::parse(&root, treatments, &targets)?;
    let nothing = DeTable::new();
    let head = root.section("experiment")?.unwrap_or_else(|| Section::root(&document, &nothing));
    head.only_keys_of(&sections::EXPERIMENT)?;
    let blocks = head.whole("blocks", 1..=limits::BLOCKS)?.unwrap_or(6);
    let blocks = u32::try_from(blocks).expect("the range above is within u32");
    let warmup = head.duration("warmup", true)?.unwrap_or(Duration::from_secs(2));
    let duration = head.duration("duration", false)?.unwrap_or(Duration::from_secs(10));
    let baseline = baseline(&head, &conditions)?;
    let mut workloads = workload::parse(&root, warmup, duration, &baseline, &conditions)?;
    let axes = sweep::parse(&root, treatments, &conditions)?;
    let others: Vec<&str> =
        conditions.iter().map(|c| c.name.as_str()).filter(|name| *name != baseline).collect();
    let rules = rules::parse(&head, blocks, targets.values(), checks, &others)?;
    workloads.iter_mut().for_each(|workload| workload.axes.extend(axes.iter().cloned()));
    let experiment = Experiment {
        name: head.name("name")?.unwrap_or_else(|| stem.to_owned()),
        blocks,
        warmup,
        duration,
        seed: head.whole("seed", 0..=u64::MAX)?,
        baseline,
        aa: head.boolean("aa")?.unwrap_or(true),
        burn_in: head.boolean("burn_in")?,
        telemetry: head.duration("telemetry", true)?.unwrap_or(Duration::from_secs(1)),
        primary: head.name("primary")?,
        hosts,
        rules,
        sweep: size::kind(&head)?,
        targets,
        workloads,
        conditions,
    };
    sweep::check_conditions(&root, &experiment)?;
    size::check(&head, &experiment)?;
    Ok(experiment)
}

/// Returns the baseline: the one that the file names, else the first condition.
fn baseline(head: &Section<'_>, conditions: &[Condition]) -> Result<String, ConfigError> {
    let Some(name) = head.name("baseline")? else { return Ok(conditions[0].name.clone()) };
    let names: Vec<&str> = conditions.iter().map(|c| c.name.as_str()).collect();
    if names.contains(&name.as_str()) {
        return Ok(name);
    }
    Err(head.error("baseline", format!("`{name}` is not a condition; {}", nearest(&name, &names))))
}

#[cfg(test)]
mod tests;
