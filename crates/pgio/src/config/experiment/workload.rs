//! `[workload]`, or several `[[workload]]`: the workloads.
//!
//! `config::keys` defines the keys and `config::kinds` which kind takes which key; this module decides which
//! conditions run the workload. `config::resolve` makes settings of it, above a pgio.conf and below
//! the flags.

use std::time::Duration;

use super::condition::Condition;
use super::key::section;
use super::points::AxisSpec;
use super::rules::{self, Reset};
use super::section::Section;
use super::{command, limits, part};
use crate::config::command::CommandSpec;
use crate::config::keys::{self as work_keys, Key as WorkKey, Layer, Use, names};
use crate::config::kinds::{SLOB, WorkloadKind};
use crate::config::value::{self, ConfigError, nearest};

section! { keys, "[workload], [[workload]]",
    "The workload. It also takes the keys of its kind (table Keys above).";
    kind: Parsed<WorkloadKind>("one of the workloads listed below", kind_named) or "slob", "kind of workload";
    name: Parsed<String>("the name of a directory, at most 64 characters", file_name) or "the kind", "name of the workload in reports; must be unique in the file";
    conditions: Texts("an array of condition names") or "all", "conditions that run this workload";
    reset: OneOf<Reset>(Reset::OF_WORKLOAD) or "as in [experiment]",
        "what is made equal before each trial of this workload";
}

#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadSpec {
    /// Unique in the file; by default the name of the kind.
    pub name: String,
    pub kind: WorkloadKind,
    /// The workload's keys, with the experiment's warm-up and duration as defaults; for a list, the
    /// middle value.
    pub layer: Layer,
    /// The axes of the workload's keys, followed by the experiment's.
    pub axes: Vec<AxisSpec>,
    /// Present for a kind that runs a program.
    pub command: Option<CommandSpec>,
    /// Absent: all conditions.
    pub conditions: Option<Vec<String>>,
    /// Absent: the experiment's.
    pub reset: Option<Reset>,
}

impl WorkloadSpec {
    pub fn runs_under(&self, condition: &str) -> bool {
        self.conditions.as_ref().is_none_or(|names| names.iter().any(|name| name == condition))
    }
}

/// Returns whether `[workload]` of this kind takes a key: one of its own, or one of its data set.
fn takes(kind: WorkloadKind, key: &WorkKey) -> bool {
    kind.uses(key.name) || kind.def().data_set && key.is_used_by(Use::Load)
}

/// Keys of the section that are not workload keys.
fn own_keys(kind: WorkloadKind) -> Vec<&'static str> {
    let program = if kind.def().program { command::keys::SECTION.names } else { &[] };
    [part::names(&keys::SECTION).as_slice(), program].concat()
}

pub(super) fn parse(
    root: &Section<'_>,
    warmup: Duration,
    duration: Duration,
    baseline: &str,
    conditions: &[Condition],
) -> Result<Vec<WorkloadSpec>, ConfigError> {
    let sections = root.sections_within("workload", limits::WORKLOADS)?;
    let mut workloads: Vec<WorkloadSpec> = Vec::new();
    for section in &sections {
        let mut workload = workload(section, &[])?;
        if let Some(spec) = &workload.command {
            command::require_metric(section, spec)?;
        }
        check_conditions(section, &workload, baseline, conditions)?;
        if workload.command.as_ref().is_some_and(|command| !command.warms_up()) {
            // The experiment's warm-up does not apply, and the record must show that.
            workload.layer.warmup = Some(Duration::ZERO);
        }
        fill_in(&mut workload.layer, warmup, duration);
        if let Some(spec) = &workload.command {
            command::check_times(section, spec, &workload.layer)?;
        }
        // After the split, because each part has a name of its own.
        for workload in split(workload) {
            if workloads.iter().any(|earlier| earlier.name == workload.name) {
                let message = format!(
                    "`{}` is the name of two workloads; use different names",
                    workload.name
                );
                return Err(section.error(&keys::name, message));
            }
            workloads.push(workload);
        }
    }
    if workloads.is_empty() {
        let mut layer = Layer::default();
        fill_in(&mut layer, warmup, duration);
        let kind = SLOB;
        workloads.push(WorkloadSpec {
            name: kind.name().to_owned(),
            kind,
            layer,
            axes: Vec::new(),
            command: None,
            conditions: None,
            reset: None,
        });
    }
    Ok(workloads)
}

/// Splits a section that is several workloads.
fn split(workload: WorkloadSpec) -> Vec<WorkloadSpec> {
    let parts = workload.kind.def().parts.as_ref().map(|parts| (parts.split)(&workload.layer));
    let Some(parts) = parts.filter(|parts| !parts.is_empty()) else { return vec![workload] };
    let part = |(name, layer)| WorkloadSpec {
        name: format!("{}-{name}", workload.name),
        layer,
        ..workload.clone()
    };
    parts.into_iter().map(part).collect()
}

/// Sets the experiment's warm-up and duration. They are not among the defaults, because they have
/// precedence over a pgio.conf.
fn fill_in(layer: &mut Layer, warmup: Duration, duration: Duration) {
    layer.warmup.get_or_insert(warmup);
    if layer.transactions.is_none() && layer.work_loop.is_none() {
        layer.run_time.get_or_insert(duration);
    }
}

/// `more`: keys that the section has beside a workload's.
pub(crate) fn workload(
    section: &Section<'_>,
    more: &[&'static str],
) -> Result<WorkloadSpec, ConfigError> {
    let kind = section.read(&keys::kind)?.unwrap_or(SLOB);
    let mut layer = Layer::default();
    let (read_lists, mut lists) = (part::lists(), Vec::new());
    let own_keys = [own_keys(kind).as_slice(), more].concat();
    for name in section.keys() {
        match WorkKey::named(name) {
            _ if own_keys.contains(&name) => {}
            Some(key) if takes(kind, key) && read_lists.is_some() && section.is_list(name) => {
                lists.push(key);
            }
            Some(key) if takes(kind, key) => section.set(key, &mut layer)?,
            Some(key) => return Err(section.error(name, misplaced(key, kind))),
            None if command::keys::SECTION.names.contains(&name) => {
                return Err(section.error(name, not_applicable(kind)));
            }
            None => {
                let keys = work_keys::all().filter(|key| takes(kind, key)).map(|key| key.name);
                let valid: Vec<&str> = own_keys.iter().copied().chain(keys).collect();
                let message = format!("is an unknown key; {}", nearest(name, &valid));
                return Err(section.error(name, message));
            }
        }
    }
    // `layer` holds no list yet, and the values of a list of `work_loop` would replace the time.
    for key in [names::transactions, names::work_loop] {
        if section.has(names::run_time) && section.has(key) {
            return Err(section.error(key, "conflicts with run_time; keep only one of them"));
        }
    }
    let axes = read_lists.map(|read| read(section, &lists)).transpose()?.unwrap_or_default();
    let middle = axes.iter().map(|axis| axis.values[axis.middle].layer.clone());
    let layer = middle.fold(layer, |layer, value| value.over(layer));
    let command = kind.def().program.then(|| command::parse(section)).transpose()?;
    if let Some(command) = &command {
        command::check_keys(section, command, &layer)?;
    }
    Ok(WorkloadSpec {
        name: section.read(&keys::name)?.unwrap_or_else(|| kind.name().to_owned()),
        kind,
        layer,
        axes,
        command,
        conditions: section.read(&keys::conditions)?,
        reset: rules::reset_of_workload(section)?,
    })
}

fn kind_named(name: &str) -> Result<WorkloadKind, String> {
    let found = WorkloadKind::all().find(|kind| kind.name() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = WorkloadKind::all().map(WorkloadKind::name).collect();
        format!("`{name}` is not a workload; valid names: {}", names.join(", "))
    })
}

fn file_name(text: &str) -> Result<String, String> {
    value::check_name(text).map(|()| text.to_owned())
}

fn misplaced(key: &WorkKey, kind: WorkloadKind) -> String {
    if key.is_used_by(Use::Connect) {
        return "belongs to the target; write dsn = \"...\" in [target]".to_owned();
    }
    not_applicable(kind)
}

fn not_applicable(kind: WorkloadKind) -> String {
    format!("does not apply to the workload `{}`; delete it", kind.name())
}

/// Refuses a workload that could answer nothing, because it runs none of the conditions that `judge` names. `others`
/// are the conditions other than the baseline; a workload that runs none of them compares nothing anyway.
pub(super) fn check_judged(
    head: &Section<'_>,
    judge: &[String],
    workloads: &[WorkloadSpec],
    others: &[&str],
) -> Result<(), ConfigError> {
    if judge.is_empty() {
        return Ok(());
    }
    for workload in workloads {
        let compared: Vec<&str> =
            others.iter().copied().filter(|name| workload.runs_under(name)).collect();
        if compared.is_empty() || judge.iter().any(|name| compared.contains(&name.as_str())) {
            continue;
        }
        let message = format!(
            "names no condition of the workload `{}`; name one that it runs ({}), or add `{}` to its conditions",
            workload.name,
            compared.join(", "),
            judge[0]
        );
        return Err(head.error(&super::keys::judge, message));
    }
    Ok(())
}

fn check_conditions(
    section: &Section<'_>,
    workload: &WorkloadSpec,
    baseline: &str,
    conditions: &[Condition],
) -> Result<(), ConfigError> {
    let Some(chosen) = &workload.conditions else { return Ok(()) };
    let names: Vec<&str> = conditions.iter().map(|c| c.name.as_str()).collect();
    if let Some(name) = chosen.iter().find(|name| !names.contains(&name.as_str())) {
        let message = format!("`{name}` is not a condition; {}", nearest(name, &names));
        return Err(section.error(&keys::conditions, message));
    }
    if !workload.runs_under(baseline) {
        let message = format!(
            "must include the baseline `{baseline}`, because the others are compared with it"
        );
        return Err(section.error(&keys::conditions, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::experiment::tests::{error_of, read};
    use crate::config::experiment::{Reset, WorkloadKind, parse};

    #[test]
    #[cfg(feature = "sweep")]
    fn faulty_workloads_are_refused_with_line_and_key() {
        let names: Vec<&str> = WorkloadKind::all().map(WorkloadKind::name).collect();
        assert_eq!(
            error_of("[workload]\nkind = 'tpcc'"),
            format!(
                "x.toml:2: workload.kind: `tpcc` is not a workload; valid names: {}",
                names.join(", ")
            )
        );
        for (lines, message) in cases! {
            "[workload]\nkind = 'commit'\nupdate_pct = 10"
                => "3: workload.update_pct: does not apply to the workload `commit`; delete it";
            "[workload]\nconnect_string = 'x'"
                => "2: workload.connect_string: belongs to the target; write dsn = \"...\" in [target]";
            "[workload]\nkind = 'commit'\nrun_time = 10\ntransactions = 5"
                => "4: workload.transactions: conflicts with run_time; keep only one of them";
            "[workload]\nrun_time = \"10s\"\nwork_loop = 100"
                => "3: workload.work_loop: conflicts with run_time; keep only one of them";
            "[workload]\nrun_time = \"10s\"\nwork_loop = [100, 1000]"
                => "3: workload.work_loop: conflicts with run_time; keep only one of them";
            "[[workload]]\nkind = 'slob'\n[[workload]]\nkind = 'slob'"
                => "3: workload.name: `slob` is the name of two workloads; use different names";
            "[workload]\nname = '../../x'"
                => "2: workload.name: must be usable as a directory name: letters a to z and A to Z, digits, `_`, `-`, `.` and inner spaces, at most 64 characters, not beginning with `.` or `-`";
            "[workload]\nconditions = ['a', 'c']"
                => "2: workload.conditions: `c` is not a condition; the nearest valid one is `a`";
            "[workload]\nconditions = ['b']"
                => "2: workload.conditions: must include the baseline `a`, because the others are compared with it";
        } {
            assert_eq!(error_of(lines), format!("x.toml:{message}"));
        }
    }

    #[test]
    fn shares_of_the_calls_are_at_most_100_percent() {
        assert_eq!(
            error_of("[workload]\nscan_pct = 101"),
            "x.toml:2: workload.scan_pct: must be a number from 0 to 100 with at most three decimals, \
             not `101`"
        );
    }

    #[test]
    fn a_hot_spot_is_at_most_the_whole_table() {
        assert_eq!(
            error_of("[workload]\nhot_spot = \"110%\""),
            "x.toml:2: workload.hot_spot: must be a part of each table such as 5%, 1024 (8 kB blocks) \
             or 8M, not `110%`"
        );
    }

    #[test]
    fn a_number_of_transactions_replaces_the_duration() {
        let text = "[experiment]\nduration = 5\n[workload]\nkind = 'commit'\ntransactions = 10\n\
                    [[condition]]\nname = 'a'\n";
        assert_eq!(read(text).workloads[0].layer.run_time, None);
    }

    #[test]
    fn workloads_may_override_the_reset() {
        let text = |reset: &str| {
            format!(
                "[experiment]\nreset = 'reload'\n[[workload]]\nname = 'x'\nreset = '{reset}'\n\
                 [[workload]]\nkind = 'commit'\n[[condition]]\nname = 'a'\n"
            )
        };
        for (name, own) in [("checkpoint", Reset::Checkpoint), ("vacuum", Reset::Vacuum)] {
            let experiment = read(&text(name));
            let resets: Vec<_> =
                experiment.workloads.iter().map(|w| experiment.reset_of(w)).collect();
            assert_eq!(resets, [&own, &Reset::Reload]);
        }
        let error = |reset| parse(&text(reset), "x.toml", "x", &[], &[]).unwrap_err().to_string();
        assert!(error("recreate").contains("x.toml:5: workload.reset: recreate is valid only in"));
        assert!(
            error("relaod").contains("the nearest valid one is `reload`"),
            "{}",
            error("relaod")
        );
    }
}
