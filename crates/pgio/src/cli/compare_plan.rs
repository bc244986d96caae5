//! `--plan`: prints what each condition changes, the number of trials and the time that they take.
//!
//! `experiment::application` collects the facts; this file queries no server.

use std::fmt::Write;
use std::path::Path;

use crate::cli::exit::Failure;
use crate::cli::progress::{few_blocks_text, seconds, size_text};
use crate::config::command::{CommandSpec, Line};
use crate::config::experiment::{
    AA_SUFFIX, Checkpoint, Experiment, Reset, Target, Weave, WorkloadSpec,
};
use crate::config::resolve::Extent;
use crate::experiment::application::estimate;
use crate::experiment::application::{
    ConditionChange, Job, PlanNote, PlannedChange, Preview, Unchecked, WorkloadPreview, cells,
};
use crate::experiment::live::LiveCell;
use crate::experiment::plan::plan;
use crate::experiment::state;
use crate::feature;
use crate::host::{LOCAL, called};
use crate::treatment;
use pgio_results::change::Change;
use pgio_results::points::{Axis, AxisValue, Varied, value_text};
use pgio_results::units::exact_duration;

/// `order`: whether to list the trials in their order.
pub(super) fn text(
    job: &Job,
    preview: &Preview<'_>,
    out: &Path,
    order: bool,
) -> Result<String, Failure> {
    let e = &job.experiment;
    let mut text = format!(
        "Experiment {}: {} blocks, seed {}, baseline {}.\n",
        e.name, e.blocks, job.seed, e.baseline
    );
    for line in feature::plan(job, preview).chain(few_blocks_text(e)) {
        add(&mut text, &line);
    }
    for note in &preview.notes {
        let line = match note {
            PlanNote::ValuesUnknown(why) => format!("Current values are not shown: {why}."),
            PlanNote::Refused(why) => format!("A run would be refused: {why}."),
        };
        add(&mut text, &line);
    }
    for workload in &preview.workloads {
        add_workload(&mut text, job, workload, order);
    }
    text.push('\n');
    for line in servers_and_output(job, out)? {
        add(&mut text, &line);
    }
    Ok(text)
}

/// Describes what a plan could not check.
pub(super) fn unchecked_text(Unchecked { target, installed }: &Unchecked) -> String {
    let programs = match installed {
        Some(version) => format!("PostgreSQL {version}"),
        None => "a PostgreSQL to be downloaded".to_owned(),
    };
    format!(
        "[{target}] is {programs}, not started for the plan: errors that only a running server can detect, such as an unknown setting, appear when the experiment begins."
    )
}

/// The A/A twin does what the baseline does.
fn is_twin(condition: &str) -> bool {
    condition.ends_with(AA_SUFFIX)
}

/// What conditions endanger, once for each of them, also by the settings of their private servers.
fn dangers(cells: &[LiveCell], e: &Experiment) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for cell in cells.iter().filter(|c| !is_twin(&c.cell.condition)) {
        let changes = treatment::changes(&cell.treatments);
        let settings = cell.targets().flat_map(|name| match &e.targets[name] {
            Target::Private(private) => private.settings.as_slice(),
            _ => &[],
        });
        let built = settings.map(|(name, value)| Change::server(name, value));
        let built = built.filter(|b| !changes.iter().any(|change| change.sets(&b.setting)));
        let danger = changes.iter().cloned().chain(built).filter_map(|c| c.danger()).max();
        let condition = &cell.cell.condition;
        let line = danger.map(|danger| format!("{condition} is {danger}"));
        lines.extend(line.filter(|line| !lines.contains(line)));
    }
    lines
}

fn add_workload(text: &mut String, job: &Job, preview: &WorkloadPreview<'_>, order: bool) {
    let e = &job.experiment;
    let (workload, cells) = (preview.spec, preview.cells.as_slice());
    let length = match e.window_of(workload) {
        Some(Extent::Time(window)) => format!("a window of {}", exact_duration(window)),
        Some(Extent::Transactions(n)) => format!("{n} transactions"),
        Some(Extent::Calls(n)) => format!("{n} calls per session"),
        None => "until the command ends".to_owned(),
    };
    let trial = e.size_of(workload).trial;
    let (name, kind) = (&workload.name, workload.kind.name());
    let warm = exact_duration(e.warmup_of(workload));
    add(text, &format!("\nWorkload {name} ({kind}): {warm} of warm-up, then {length}."));
    if let Some(message) = size_text(e, workload) {
        add(text, &format!("  {message}"));
    }
    add(text, &format!("  before each trial: {}", reset_text(e, workload)));
    if e.rules.checkpoint == Checkpoint::Spread {
        add(text, "  windows hold whole checkpoint cycles (checkpoint = \"spread\")");
    }
    match e.rules.weave {
        Weave::Off => {}
        Weave::Slices(slice) => {
            let slice = exact_duration(slice);
            let slices = format!("in slices of about {slice} (weave)");
            add(text, &format!("  the conditions of a block take turns {slices}"));
        }
        Weave::Auto => add(
            text,
            "  the conditions of a block take turns in slices, if they can and the slices agree (weave = \"auto\")",
        ),
    }
    for line in workload.command.iter().flat_map(command_lines) {
        add(text, &format!("  {line}"));
    }
    for condition in e.conditions_of(workload).filter(|c| !c.further_targets.is_empty()) {
        let names: Vec<&str> = condition.targets().map(String::as_str).collect();
        let on = names.join(", ");
        let name = &condition.name;
        add(text, &format!("  {name} runs on {on} in one window; its changes are made on each"));
    }
    let changes: Vec<String> = match job.experiment.design {
        // Cells make the same changes over and over.
        Some(_) => distinct_changes(&preview.changes, change_text),
        None => {
            let text =
                |c: &ConditionChange| format!("{} changes {}", c.condition, change_text(&c.change));
            preview.changes.iter().filter(|c| !is_twin(&c.condition)).map(text).collect()
        }
    };
    for line in changes
        .into_iter()
        .chain(dangers(cells, e))
        .chain(preview.varied.iter().flat_map(axes_text))
    {
        add(text, &format!("  {line}"));
    }
    let each = trial.map_or_else(|| "unknown duration".to_owned(), seconds);
    if e.burns_in(workload) {
        let title = &cells[cells::baseline_cell(e, cells)].title;
        add(
            text,
            &format!("  burn-in first, {each}: {title}, never counted (burn_in = false skips it)"),
        );
    }
    let per_block = u32::try_from(cells.len()).unwrap_or(u32::MAX);
    let (blocks, trials) = (e.blocks, per_block.saturating_mul(e.blocks));
    if order {
        for p in plan(cells.len(), blocks, job.seed) {
            let title = &cells[p.cell].title;
            add(text, &format!("  block {:2}, trial {}, {each}: {title}", p.block, p.position));
        }
    } else {
        add(
            text,
            &format!(
                "  {blocks} blocks of {per_block} trials in random order, each trial {each} (--order lists them)"
            ),
        );
    }
    let burn_in = u32::from(e.burns_in(workload));
    let and_burn_in = if burn_in > 0 { " and the burn-in" } else { "" };
    // Repeats count like whole blocks.
    let time_for =
        |trials: u32| estimate::estimate_workload(job, workload, cells, trials / per_block.max(1));
    let total = |trials: u32| match trial.zip(time_for(trials)) {
        Some((trial, estimate)) => format!(
            "{trials} trials{and_burn_in}, {} of warm-up and windows, about {} in all",
            seconds(trial.saturating_mul(trials.saturating_add(burn_in))),
            seconds(estimate.total())
        ),
        None => format!("{trials} trials{and_burn_in}"),
    };
    add(text, &format!("  {}", total(trials)));
    if let Some(estimate) = time_for(trials) {
        add(text, &format!("  outside the windows: {}", estimate.basis()));
    }
    for (why, most) in trial_limits(e, trials) {
        add(text, &format!("  at most {} {why}", total(most)));
    }
}

fn change_text(change: &PlannedChange) -> String {
    match change {
        PlannedChange::Nothing => "nothing".to_owned(),
        PlannedChange::Intent(intent) => intent.clone(),
        PlannedChange::Unknown { intent, why } => format!("{intent}; current value unknown: {why}"),
        PlannedChange::Known(o) => format!("{} = {} {}; now {}", o.what, o.then, o.how, o.now),
    }
}

/// Additional trials that rules of the experiment allow: the reason, and the total number of trials.
fn trial_limits(e: &Experiment, trials: u32) -> Vec<(String, u32)> {
    let mut limits = Vec::new();
    let mut most = trials;
    if let Some(precision) = e.rules.precision {
        most = most / e.blocks * e.rules.max_blocks;
        limits.push((
            format!(
                "(blocks are added up to {}, until every interval is within ±{} %)",
                e.rules.max_blocks,
                precision * 100.0
            ),
            most,
        ));
    }
    if e.rules.repeats > 0 {
        limits.push((
            format!(
                "(invalid trials are repeated up to {} times, each with its baseline beside it)",
                e.rules.repeats
            ),
            most.saturating_mul(1 + e.rules.repeats),
        ));
    }
    limits
}

fn reset_text(e: &Experiment, workload: &WorkloadSpec) -> String {
    let def = workload.kind.def();
    let again = def.reset;
    let checkpoint = match e.rules.checkpoint {
        Checkpoint::Before | Checkpoint::Spread => "CHECKPOINT",
        Checkpoint::None => "no CHECKPOINT",
    };
    match e.reset_of(workload) {
        Reset::Checkpoint if def.data_set => checkpoint.to_owned(),
        Reset::Vacuum if def.data_set => {
            format!("VACUUM of the data set's tables, then {checkpoint}")
        }
        Reset::Checkpoint | Reset::Vacuum | Reset::Reload => {
            format!("{again}, then {checkpoint}")
        }
        Reset::Recreate { named } => format!(
            "DROP DATABASE and CREATE DATABASE{}, {again}, then {checkpoint}",
            named.as_ref().map_or(String::new(), |n| format!(" {n}"))
        ),
    }
}

/// Describes files, directories, servers and connections that a run would use.
fn servers_and_output(job: &Job, out: &Path) -> Result<Vec<String>, Failure> {
    let e = &job.experiment;
    let mut lines = vec![format!(
        "Results go to {} (experiment.toml, manifest.json, trials.jsonl, series/).",
        out.display()
    )];
    let mut conditions = e.conditions.iter();
    if conditions.any(|c| !c.treatments.is_empty()) {
        lines.push(format!(
            "Changes that would survive a killed run are journaled in {} before they are made.",
            state::journal_dir()?.display()
        ));
    }
    for (name, target) in &e.targets {
        if let Target::Private(private) = target {
            let below = private.directory.as_ref();
            let mut below = below.map_or(String::new(), |d| format!(" below {}", d.display()));
            if let Some(wal) = &private.wal_directory {
                below += &format!(", its WAL below {}", wal.display());
            }
            for standby in &private.standbys {
                if let Some(directory) = &standby.directory {
                    below += &format!(", standby {} below {}", standby.name, directory.display());
                }
            }
            let mut workloads = e.workloads.iter();
            let data = if workloads.any(|w| w.kind.def().data_set) {
                "; the data set is loaded into it"
            } else {
                ""
            };
            lines.push(format!(
                "[{name}] is a private PostgreSQL in a temporary directory{below}, removed at the end{data}."
            ));
        }
    }
    lines.extend(feature::companions(job).flat_map(|companions| companions.plan_lines()));
    lines.extend(job.generators.as_ref().map(|generators| generators.plan_line()));
    for name in e.hosts.keys() {
        lines.push(format!("On host {name}, one shell reads /proc; it ends with pgio."));
    }
    if !e.telemetry.is_zero() {
        lines.push(
            "pgio measures the time of a flush once, with a temporary file in the WAL's directory."
                .to_owned(),
        );
    }
    lines.push(
        "On each server pgio opens one admin session, a few telemetry sessions, and during a trial \
         the workload's sessions; their application_name begins with pgio."
            .to_owned(),
    );
    Ok(lines)
}

/// Describes each axis: its values and the changes they make.
fn axes_text(varied: &Varied) -> Vec<String> {
    let one = |axis: &Axis| {
        let middle = varied.middle().get(&axis.name);
        let value = |v: &AxisValue| {
            let is_middle = if Some(&v.value) == middle { " (middle)" } else { "" };
            let does = match v.treatments.as_slice() {
                [] => String::new(),
                some => format!(": {}", some.join(", ")),
            };
            format!("{}{is_middle}{does}", value_text(&v.value))
        };
        let unit = axis.unit.as_ref().map_or_else(String::new, |u| format!(" ({u})"));
        let values: Vec<String> = axis.values.iter().map(value).collect();
        format!("axis {}{unit} = {}", axis.name, values.join("; "))
    };
    varied.axes.iter().map(one).collect()
}

/// Shows commands as written; some placeholders have no value before the trial.
fn command_lines(command: &CommandSpec) -> Vec<String> {
    let host = called(command.host.as_deref().unwrap_or(LOCAL));
    let line = |key: &str, line: &Line| format!("{key} on {host}: {}", line.shown());
    let mut lines = vec![line("run", &command.run)];
    lines.extend(command.warm_up.as_ref().map(|l| line("warm_up", l)));
    let often = if command.setup_once { "setup, once" } else { "setup" };
    lines.extend(command.setup.as_ref().map(|l| line(often, l)));
    lines.extend(command.cleanup.as_ref().map(|l| line("cleanup", l)));
    let schema = command.schema.as_ref();
    lines.extend(
        schema.map(|name| {
            format!("the schema {name} is created for it, and dropped with its contents")
        }),
    );
    lines
}

fn add(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a String cannot fail");
}

/// The distinct changes, without the cells that make them.
fn distinct_changes(
    changes: &[ConditionChange],
    text: impl Fn(&PlannedChange) -> String,
) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for change in changes {
        let line = format!("changes {}", text(&change.change));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}
