//! `--plan`: every trial in its order, how long it takes, and every change it will make.
//!
//! Read from the files alone, but for present values: these are asked of a server that answers within a
//! few seconds, in a session that can only read, and of the hosts. Where one does not answer, or is
//! not there before the experiment starts it, each change is told as the file has it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postgres::Client;

use super::estimate::Estimate;
use super::job::Job;
use crate::cli::exit::Failure;
use crate::cli::state;
use crate::config::command::{CommandSpec, Line};
use crate::config::experiment::{Checkpoint, Reset, Target, WorkloadKind, WorkloadSpec};
use crate::config::resolve::Extent;
use crate::experiment::live::LiveCell;
use crate::experiment::plan::plan;
use crate::host::stop::Stop;
use crate::host::{self, Host, Hosts, LOCAL};
use crate::pg::connect::{self, ConnectParams};
use crate::pg::leftovers;
use crate::pg::words;
use crate::results::sweep::{Axis, AxisValue, Sweep, shown};
use crate::treatment::{Door, Outlook, Treatment, TreatmentError, World};
use crate::units::exact_duration;

/// A server that does not answer by then is not asked.
const PATIENCE: Duration = Duration::from_secs(3);

impl Job {
    pub(super) fn plan_text(&self, out: &Path) -> Result<String, Failure> {
        let e = &self.experiment;
        let params = self.params("plan")?;
        let mut servers = self.ask(&params);

        let mut text = format!(
            "Experiment {}: {} blocks, seed {}, baseline {}.\n",
            e.name, e.blocks, self.seed, e.baseline
        );
        for server in servers.values() {
            if let Err(why) = server {
                add(&mut text, &format!("Present values are not shown: {why}."));
            }
        }
        let hosts = self.reachable(&mut text);
        for workload in &e.workloads {
            let cells = self.cells(workload)?;
            let sweep = self.sweep(workload)?;
            let mut lines = Vec::new();
            // What an axis changes beyond that is told of the axis.
            let middle = |c: &&LiveCell| sweep.as_ref().is_none_or(|s| c.cell.point == *s.middle());
            for cell in cells.iter().filter(middle) {
                let server = servers.get_mut(&cell.target).and_then(|s| s.as_mut().ok());
                let server = params.get(&cell.target).zip(server);
                lines.extend(self.changes(cell, server, &hosts)?);
            }
            lines.extend(sweep.iter().flat_map(axes_text));
            self.add_workload(&mut text, workload, &cells, &lines);
        }
        text.push('\n');
        for line in self.surroundings(out)? {
            add(&mut text, &line);
        }
        Ok(text)
    }

    fn add_workload(
        &self,
        text: &mut String,
        workload: &WorkloadSpec,
        cells: &[LiveCell],
        changes: &[String],
    ) {
        let e = &self.experiment;
        let length = match e.window_of(workload) {
            Some(Extent::Time(window)) => format!("a window of {}", exact_duration(window)),
            Some(Extent::Transactions(n)) => format!("{n} transactions"),
            Some(Extent::Calls(n)) => format!("{n} calls of each session"),
            None => "as long as the command takes".to_owned(),
        };
        let trial = e.size_of(workload).trial;
        let (name, kind) = (&workload.name, workload.kind.name());
        let warm = exact_duration(e.warmup_of(workload));
        add(text, &format!("\nWorkload {name} ({kind}): {warm} of warm-up, then {length}."));
        if let Some(told) = self.size_text(workload) {
            add(text, &format!("  {told}"));
        }
        add(text, &format!("  before each trial: {}", self.reset_text(workload)));
        if e.rules.checkpoint == Checkpoint::Spread {
            add(text, "  windows hold whole checkpoint cycles (checkpoint = \"spread\")");
        }
        for line in workload.command.iter().flat_map(command_lines) {
            add(text, &format!("  {line}"));
        }
        for change in changes {
            add(text, &format!("  {change}"));
        }
        let each = trial.map_or_else(|| "as long as it takes".to_owned(), seconds);
        if e.burns_in(workload) {
            let title = &cells[self.baseline_cell(cells)].title;
            add(
                text,
                &format!(
                    "  burn-in first, {each}: {title}, never counted (burn_in = false leaves it out)"
                ),
            );
        }
        for p in plan(cells.len(), e.blocks, self.seed) {
            let title = &cells[p.cell].title;
            add(text, &format!("  block {:2}, trial {}, {each}: {title}", p.block, p.position));
        }
        let of_block: Option<Vec<Estimate>> =
            cells.iter().map(|cell| self.estimate(workload, cell)).collect();
        let of_baseline = of_block.as_ref().and_then(|all| all.first().copied());
        let of_block =
            of_block.map(|all| all.into_iter().fold(Estimate::default(), Estimate::plus));
        let cells = u32::try_from(cells.len()).unwrap_or(u32::MAX);
        let trials = cells.saturating_mul(e.blocks);
        let burn_in = u32::from(e.burns_in(workload));
        let and_burn_in = if burn_in > 0 { " and the burn-in" } else { "" };
        let start = self.estimate_start(workload);
        // Whole blocks, and repeats as if they were; the burn-in trial as the first cell's.
        let of = |trials: u32| {
            let all = of_block?.times(trials / cells.max(1)).plus(start);
            Some(if burn_in > 0 { all.plus(of_baseline?) } else { all })
        };
        let total = |trials: u32| match trial.zip(of(trials)) {
            Some((trial, estimate)) => format!(
                "{trials} trials{and_burn_in}, {} of warm-up and windows, about {} in all",
                seconds(trial.saturating_mul(trials.saturating_add(burn_in))),
                seconds(estimate.total())
            ),
            None => format!("{trials} trials{and_burn_in}"),
        };
        add(text, &format!("  {}", total(trials)));
        if let Some(estimate) = of(trials) {
            add(text, &format!("  beside the windows: {}", estimate.basis()));
        }
        for (why, most) in self.limits(trials) {
            add(text, &format!("  at most {} {why}", total(most)));
        }
    }

    /// How large a sweep is, said before anything is run; none without axes.
    pub(super) fn size_text(&self, workload: &WorkloadSpec) -> Option<String> {
        let e = &self.experiment;
        if workload.axes.is_empty() {
            return None;
        }
        let size = e.size_of(workload);
        let lasts = size
            .lasts(e.blocks)
            .map_or_else(String::new, |time| format!(", {} of warm-up and windows", seconds(time)));
        Some(format!(
            "{} cells ({} conditions, {} points){}, in {} blocks: {} trials{lasts}",
            size.cells,
            e.conditions_of(workload).count(),
            workload.count_points(e.sweep),
            if e.aa { " and the A/A twin" } else { "" },
            e.blocks,
            size.trials_of_a_block * u64::from(e.blocks),
        ))
    }

    /// Each with the present value and the way where these can be asked for, else as the file has it.
    fn changes(
        &self,
        condition: &LiveCell,
        server: Option<(&ConnectParams, &mut Client)>,
        hosts: &Hosts,
    ) -> Result<Vec<String>, Failure> {
        let line = |change: &str| format!("{} changes {change}", condition.cell.condition);
        let intents = |treatment: &dyn Treatment| -> Vec<String> {
            treatment.intents().iter().map(|intent| line(intent)).collect()
        };
        let Some((params, client)) = server else {
            let all: Vec<String> =
                condition.treatments.iter().flat_map(|t| intents(t.as_ref())).collect();
            return Ok(if all.is_empty() { vec![line("nothing")] } else { all });
        };
        let named = match self.experiment.targets.get(&condition.target) {
            Some(Target::Server { host, .. }) => host.as_deref(),
            _ => None,
        };
        let mut world = World {
            params,
            door: Door::Open(client),
            hosts,
            // A session that came over a socket shows that the server is here.
            server_host: named.or(params.is_by_socket().then_some(LOCAL)),
            control: None,
            private: false,
            moved: Vec::new(),
            replicas: Vec::new(),
            stop: Stop::new(),
        };
        let mut all = Vec::new();
        for treatment in &condition.treatments {
            match treatment.outlook(&mut world) {
                Ok(changes) => {
                    let told = |o: Outlook| {
                        line(&format!("{} = {} {}; now {}", o.what, o.then, o.how, o.now))
                    };
                    all.extend(changes.into_iter().map(told));
                }
                // A mistake in the file is one here, too.
                Err(error @ TreatmentError::Config(_)) => return Err(error.into()),
                Err(error) => {
                    let why = words::sentence(&error);
                    let unknown = |change| format!("{change}; now unknown: {why}");
                    all.extend(intents(treatment.as_ref()).into_iter().map(unknown));
                }
            }
        }
        Ok(if all.is_empty() { vec![line("nothing")] } else { all })
    }

    /// The hosts that can be asked at this moment.
    fn reachable(&self, text: &mut String) -> Hosts {
        let mut hosts = Hosts::from([(LOCAL.to_owned(), Arc::new(Host::local()))]);
        for (name, spec) in &self.experiment.hosts {
            match Host::connect(name, spec) {
                Ok(host) => drop(hosts.insert(name.clone(), Arc::new(host))),
                Err(why) => {
                    add(text, &format!("Present values are not shown: {}.", words::sentence(&why)));
                }
            }
        }
        if let Err(why) = host::refuse_duplicates(&self.experiment.hosts, &hosts) {
            add(text, &format!("It would be refused: {}.", words::sentence(&why)));
        }
        hosts
    }

    /// What may come on top, each with the number of trials that it can lead to.
    fn limits(&self, trials: u32) -> Vec<(String, u32)> {
        let e = &self.experiment;
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

    fn reset_text(&self, workload: &WorkloadSpec) -> String {
        let kind = workload.kind;
        let again = match kind {
            WorkloadKind::Slob => {
                "the data set is loaded again as it was (DROP and CREATE of its tables)"
            }
            WorkloadKind::Commit => "its own table is dropped and made again",
            WorkloadKind::Device => "all of its place is written once, where it may be",
            WorkloadKind::Command => {
                "its setup, where it has one, in a new schema where it names one"
            }
            WorkloadKind::Mail => "messages of an earlier trial are removed",
        };
        let checkpoint = match self.experiment.rules.checkpoint {
            Checkpoint::Before | Checkpoint::Spread => "CHECKPOINT",
            Checkpoint::None => "no CHECKPOINT",
        };
        match self.experiment.reset_of(workload) {
            Reset::Checkpoint if kind == WorkloadKind::Slob => checkpoint.to_owned(),
            Reset::Vacuum if kind == WorkloadKind::Slob => {
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

    /// Files, directories and connections.
    fn surroundings(&self, out: &Path) -> Result<Vec<String>, Failure> {
        let mut lines = vec![format!(
            "Results go to {} (experiment.toml, manifest.json, trials.jsonl, series/).",
            out.display()
        )];
        let mut conditions = self.experiment.conditions.iter();
        if conditions.any(|c| !c.treatments.is_empty()) {
            lines.push(format!(
                "Changes that outlive a killed run are journaled in {} before they are made.",
                state::journal_dir()?.display()
            ));
        }
        for (name, target) in &self.experiment.targets {
            if let Target::Private { directory, .. } = target {
                let below =
                    directory.as_ref().map_or(String::new(), |d| format!(" below {}", d.display()));
                let mut workloads = self.experiment.workloads.iter();
                let data = match workloads.any(|w| w.kind == WorkloadKind::Slob) {
                    true => "; the data set is loaded into it",
                    false => "",
                };
                lines.push(format!(
                    "[{name}] is a PostgreSQL of pgio's own in a temporary directory{below}, removed at the end{data}."
                ));
            }
        }
        for name in self.experiment.hosts.keys() {
            lines.push(format!("Host {name} gets one shell that reads /proc and ends with pgio."));
        }
        if !self.experiment.telemetry.is_zero() {
            lines.push(
                "The time of a flush is probed once in the WAL's directory, in a file that is \
                 removed again."
                    .to_owned(),
            );
        }
        lines.push(
            "Each server gets one session that coordinates, a few that watch, and during a trial \
             those of the workload, all with an application_name that begins with pgio."
                .to_owned(),
        );
        Ok(lines)
    }

    /// A reading session to each server that answers.
    fn ask(
        &self,
        params: &BTreeMap<String, ConnectParams>,
    ) -> BTreeMap<String, Result<Client, String>> {
        let asked = params.iter().filter(|(name, _)| {
            let names = |target: Option<&String>| target.is_none_or(|t| t == *name);
            self.experiment.conditions.iter().any(|c| names(c.target.as_ref()))
        });
        asked.map(|(name, params)| (name.clone(), reader(params))).collect()
    }
}

/// Each axis with its values, and what it puts in force.
fn axes_text(sweep: &Sweep) -> Vec<String> {
    let one = |axis: &Axis| {
        let middle = sweep.middle().get(&axis.name);
        let value = |v: &AxisValue| {
            let is_middle = if Some(&v.value) == middle { " (middle)" } else { "" };
            let does = match v.treatments.as_slice() {
                [] => String::new(),
                some => format!(": {}", some.join(", ")),
            };
            format!("{}{is_middle}{does}", shown(&v.value))
        };
        let unit = axis.unit.as_ref().map_or_else(String::new, |u| format!(" ({u})"));
        let values: Vec<String> = axis.values.iter().map(value).collect();
        format!("axis {}{unit} = {}", axis.name, values.join("; "))
    };
    sweep.axes.iter().map(one).collect()
}

/// As they are written: what placeholders stand for may be known only then.
fn command_lines(command: &CommandSpec) -> Vec<String> {
    let host = command.host.as_deref().unwrap_or(LOCAL);
    let line = |key: &str, line: &Line| format!("{key} on {host}: {}", line.shown());
    let mut lines = vec![line("run", &command.run)];
    lines.extend(command.warm_up.as_ref().map(|l| line("warm_up", l)));
    let often = if command.setup_once { "setup, once" } else { "setup" };
    lines.extend(command.setup.as_ref().map(|l| line(often, l)));
    lines.extend(command.cleanup.as_ref().map(|l| line("cleanup", l)));
    let schema = command.schema.as_ref();
    lines.extend(schema.map(|name| {
        format!("the schema {name} is made for it (CREATE SCHEMA), and dropped with all in it")
    }));
    lines
}

fn reader(params: &ConnectParams) -> Result<Client, String> {
    let mut params = params.clone().with_application_name(leftovers::UNANNOUNCED);
    params.connect_timeout = Some(params.connect_timeout.map_or(PATIENCE, |t| t.min(PATIENCE)));
    let mut client = connect::connect(&params).map_err(|e| words::sentence(&e))?;
    client
        .batch_execute("SET default_transaction_read_only = on")
        .map_err(|e| words::sentence(&e))?;
    Ok(client)
}

fn seconds(duration: Duration) -> String {
    let s = duration.as_secs_f64();
    if s < 120.0 { format!("{s:.1} s") } else { format!("{:.1} min", s / 60.0) }
}

fn add(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a String cannot fail");
}
