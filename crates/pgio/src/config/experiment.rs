//! The experiment file of `pgio compare`: workloads, targets, hosts and conditions, or
//! the factors that conditions are made of.
//!
//! The parser keeps line numbers, so that every error names its line. It must not read the
//! environment or a pgio.conf. The bodies of treatments stay TOML values: each treatment parses its
//! own, and the caller passes the valid kinds.
//!
//! Each section of the file has its own submodule; all use the reader in `section`.

mod axis;
mod background;
mod command;
mod condition;
mod condition_targets;
mod drivers;
mod factor;
mod hosts;
mod initdb;
mod joint;
pub mod limits;
mod private;
mod rules;
mod screening;
mod section;
mod size;
mod spec;
mod sweep;
mod target;
mod workload;

use std::time::Duration;

use toml::de::DeTable;

use self::section::{Document, Section};
use super::error::{ConfigError, nearest};
use super::sections;

pub use self::axis::{AxisSpec, AxisValueSpec};
pub use self::background::BackgroundSpec;
pub use self::condition::{AA_SUFFIX, Condition, TreatmentSpec};
pub use self::drivers::DriverKeys;
pub use self::factor::FactorSpec;
pub use self::hosts::HostSpec;
pub use self::initdb::option_name;
pub use self::private::{PrivateTarget, RESERVED_NAMES, StandbyTarget};
pub use self::rules::{Checkpoint, Question, Reset, Rules, Weave};
pub use self::screening::{DesignKind, ScreeningSpec};
pub use self::size::Size;
pub use self::spec::Experiment;
pub use self::sweep::{PointSpec, SweepKind};
pub use self::target::{ControlMethod, SINGLE_TARGET, Target};
pub use self::workload::WorkloadSpec;
pub use super::kinds::WorkloadKind;

const SECTIONS: &[&str] = &[
    "experiment",
    "hosts",
    "target",
    "targets",
    "workload",
    "background",
    "axis",
    "condition",
    "factor",
    "drivers",
];

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
    root.refuse_unknown_keys(SECTIONS)?;

    let hosts = hosts::parse(&root)?;
    let targets = target::parse(&root, &hosts)?;
    let nothing = DeTable::new();
    let head = root.section("experiment")?.unwrap_or_else(|| Section::root(&document, &nothing));
    head.refuse_keys_outside(&sections::EXPERIMENT)?;
    let screening = screening::parse(&root, &head, treatments, &targets)?;
    let conditions = match &screening {
        Some(screening) => screening.conditions(&targets),
        None => {
            condition::parse(&root, treatments, &targets, joint::together(&head, targets.len())?)?
        }
    };
    let warmup = head.duration("warmup", true)?.unwrap_or(Duration::from_secs(2));
    let duration = head.duration("duration", false)?.unwrap_or(Duration::from_secs(10));
    let baseline = baseline(&head, &conditions)?;
    if let Some(screening) = &screening {
        screening.check_baseline(&head, &baseline)?;
    }
    let mut workloads = workload::parse(&root, warmup, duration, &baseline, &conditions)?;
    if screening.is_some() {
        screening::check_workloads(&root, &workloads)?;
    }
    joint::check_workloads(&root, &workloads, &conditions)?;
    let axes = axis::parse(&root, treatments, &conditions)?;
    let others: Vec<&str> =
        conditions.iter().map(|c| c.name.as_str()).filter(|name| *name != baseline).collect();
    // In a factorial design, factors without an effect show the noise.
    let is_factorial = screening.as_ref().is_some_and(|s| s.kind.is_factorial());
    let aa = head.boolean("aa")?.unwrap_or(!is_factorial);
    let compared = match &screening {
        // Each effect is one of all cells, so none is noisier than another.
        Some(_) if is_factorial => 1,
        _ => others.len() + usize::from(aa),
    };
    let (blocks, rules) = rules::parse(&head, compared, targets.values(), checks, &others)?;
    workload::check_judged(&head, &rules.question.judge, &workloads, &others)?;
    let others = background::Others {
        targets: &targets,
        conditions: &conditions,
        workloads: &workloads,
        rules: &rules,
        trial: workloads
            .iter()
            .map(|w| w.layer.warmup.unwrap_or(warmup) + w.layer.run_time.unwrap_or(duration))
            .max()
            .unwrap_or_default(),
    };
    let background = background::parse(&root, others)?;
    workloads.iter_mut().for_each(|workload| workload.axes.extend(axes.iter().cloned()));
    let primary = head.name("primary")?;
    let commands = workloads.iter_mut().filter_map(|workload| workload.command.as_mut());
    commands.for_each(|command| {
        command.note_judged(primary.as_deref(), &rules.question.also_judge);
    });
    let experiment = Experiment {
        name: head.name("name")?.unwrap_or_else(|| stem.to_owned()),
        blocks,
        warmup,
        duration,
        seed: head.whole_number("seed", 0..=u64::MAX)?,
        baseline,
        aa,
        burn_in: head.boolean("burn_in")?,
        telemetry: head.duration("telemetry", true)?.unwrap_or(Duration::from_secs(1)),
        primary,
        hosts,
        rules,
        sweep: size::kind(&head)?,
        targets,
        workloads,
        background,
        conditions,
        screening,
        drivers: drivers::parse(&root)?,
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
