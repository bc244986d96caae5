//! The experiment file of `pgio compare`: what is run, where, under which conditions.
//!
//! Parsed with lines, so that every error names its place; nothing is looked up in the
//! environment and no pgio.conf is read. The bodies of treatments stay TOML values here:
//! each treatment reads its own, the caller passes in which kinds there are.
//!
//! One section of the file is one file below; `section` is the reader they share.

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
pub use self::target::{ControlWay, SINGLE_TARGET, Target};
pub use self::workload::{WorkloadKind, WorkloadSpec};

#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    pub name: String,
    /// Passes over all conditions.
    pub blocks: u32,
    /// Already in each workload's layer, as is `duration`; here for telling.
    pub warmup: Duration,
    pub duration: Duration,
    /// Of the order of conditions. Absent: to be drawn and recorded.
    pub seed: Option<u64>,
    /// The name of one of the conditions.
    pub baseline: String,
    /// Whether the baseline runs twice in each block, to show the noise.
    pub aa: bool,
    /// Whether an uncounted trial of the baseline comes before block 1; absent: where it is of use.
    pub burn_in: Option<bool>,
    /// Server and hosts are observed this often; zero: not at all.
    pub telemetry: Duration,
    /// The metric that is judged; absent: each workload's own.
    pub primary: Option<String>,
    /// Machines to watch, by the file's names.
    pub hosts: BTreeMap<String, HostSpec>,
    pub rules: Rules,
    /// Which points the axes of a workload make.
    pub sweep: SweepKind,
    /// Empty: pgio.conf, then the PG* variables, say where.
    pub targets: BTreeMap<String, Target>,
    pub workloads: Vec<WorkloadSpec>,
    /// As in the file; the A/A twin of the baseline is not among them.
    pub conditions: Vec<Condition>,
}

impl Experiment {
    /// Where a condition runs; none where pgio.conf or the environment says.
    pub fn target_of(&self, condition: &Condition) -> Option<&Target> {
        condition.target.as_ref().and_then(|name| self.targets.get(name))
    }

    /// Whether a burn-in trial comes first: unless the file says, where trials share a data set that they
    /// find more or less of in memory. What a command prepares once is such a one.
    pub fn burns_in(&self, workload: &WorkloadSpec) -> bool {
        let prepared = workload.command.as_ref().is_some_and(|command| command.setup_once);
        self.burn_in.unwrap_or(prepared || workload.kind == WorkloadKind::Slob)
    }

    pub fn reset_of<'a>(&'a self, workload: &'a WorkloadSpec) -> &'a Reset {
        workload.reset.as_ref().unwrap_or(&self.rules.reset)
    }

    /// The conditions that a workload runs under, in the order of the file.
    pub fn conditions_of<'a>(
        &'a self,
        workload: &'a WorkloadSpec,
    ) -> impl Iterator<Item = &'a Condition> {
        self.conditions.iter().filter(|condition| workload.runs_under(&condition.name))
    }
}

const SECTIONS: &[&str] =
    &["experiment", "hosts", "target", "targets", "workload", "axis", "condition"];

/// Reads an experiment file. `file` names it in errors, `stem` is the experiment's name
/// where it gives itself none, `treatments` are the kinds that a condition may have, `checks` the
/// ids that may be tolerated.
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

/// As the file says, else the first condition.
fn baseline(head: &Section<'_>, conditions: &[Condition]) -> Result<String, ConfigError> {
    let Some(name) = head.name("baseline")? else { return Ok(conditions[0].name.clone()) };
    let names: Vec<&str> = conditions.iter().map(|c| c.name.as_str()).collect();
    if names.contains(&name.as_str()) {
        return Ok(name);
    }
    Err(head.error("baseline", format!("`{name}` is no condition; {}", nearest(&name, &names))))
}

#[cfg(test)]
mod tests;
