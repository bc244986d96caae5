//! An experiment file on its way to being run: parsed, then one experiment for each workload.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::pace::Pace;
use super::targets::{Reached, params_of};
use super::telling::Teller;
use super::{cells, resume};
use crate::cli::exit::{Failure, TRIAL, UNFINISHED, USAGE};
use crate::cli::output;
use crate::cli::{Outcome, ballast, connection, journals, report, signals, state};
use crate::config::experiment::{self, Experiment, WorkloadSpec};
use crate::experiment::judging::{self, Judge};
use crate::experiment::live::{CheckedCells, Happening, Live, Target};
use crate::experiment::plan::{burn_in, plan};
use crate::experiment::run::{Done, Ended, Rules, run as run_plan};
use crate::host::stop::Stop;
use crate::pg::private::VersionRequest;
use crate::results::store::{Store, Stored};
use crate::results::sweep::Cell;
use crate::results::{checks, metrics};
use crate::treatment::journal::{self, Claims, Journal};
use crate::treatment::{self, Parsed};
use crate::workload::command;

/// Whether the directory is new or holds what an interrupted run left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Start {
    New,
    Resume,
}

/// Whoever could not put something back says so now, and not when the next run refuses to start.
fn and_what_is_left(error: Failure, journals: &Path, run_id: &str) -> Failure {
    match journal::left_by(journals, run_id) {
        Some(left) if error.code() != UNFINISHED => {
            Failure::message(UNFINISHED, format!("{}; {left}", error.sentence()))
        }
        _ => error,
    }
}

/// An experiment file on its way to being run.
#[derive(Debug)]
pub(in crate::cli) struct Job {
    pub(in crate::cli) experiment: Experiment,
    pub(super) text: String,
    pub(super) seed: u64,
    pub(in crate::cli) treatments: Parsed,
    /// ./pgio.conf, below the file's own keys.
    pub(in crate::cli) below: connection::Given,
}

impl Job {
    pub(in crate::cli) fn parse(text: &str, file: &str, stem: &str) -> Result<Job, Failure> {
        let experiment =
            experiment::parse(text, file, stem, &treatment::names(), &checks::tolerable())?;
        let mut declared = Vec::new();
        for spec in experiment.workloads.iter().filter_map(|w| w.command.as_ref()) {
            declared.extend(command::declared(spec));
        }
        if let Some(taken) = declared.iter().find(|m| metrics::definition(&m.name).is_some()) {
            return Err(Failure::message(
                USAGE,
                format!(
                    "{file}: workload.metric: `{}` is a metric of pgio's own: take another name",
                    taken.name
                ),
            ));
        }
        let also = experiment.rules.question.also_judge.iter().map(|name| ("also_judge", name));
        let named = experiment.primary.iter().map(|name| ("primary", name)).chain(also);
        for (key, metric) in named {
            if metrics::find(&declared, metric).is_none() {
                let names: Vec<&str> = metrics::all(&declared).map(|m| m.name).collect();
                let names = names.join(", ");
                return Err(Failure::message(
                    USAGE,
                    format!("{file}: {key}: no metric `{metric}`; there are {names}"),
                ));
            }
        }
        let seed = experiment.seed.unwrap_or_else(state::new_seed);
        let below = connection::conf_only()?;
        let parsed = cells::parse_treatments(&experiment);
        let treatments = parsed.map_err(|e| Failure::from(e).context(file))?;
        Ok(Job { experiment, text: text.to_owned(), seed, treatments, below })
    }

    /// Runs every workload and returns the directories of their results.
    pub(in crate::cli) fn run(
        &self,
        out: &Path,
        start: Start,
        stop: &Stop,
        pg: Option<VersionRequest>,
    ) -> Result<Vec<PathBuf>, Failure> {
        self.run_heard(out, start, stop, pg, &mut |_| {})
    }

    /// The same; `hear` may do something of its own whenever something happens.
    pub(in crate::cli) fn run_heard(
        &self,
        out: &Path,
        start: Start,
        stop: &Stop,
        pg: Option<VersionRequest>,
        hear: &mut dyn FnMut(&Happening<'_>),
    ) -> Result<Vec<PathBuf>, Failure> {
        let run_id = state::new_run_id();
        let params = self.params(&run_id)?;
        journals::refuse_unfinished(params.values())?;
        ballast::warn_if_held(ballast::held().as_deref());
        // Before a server is started and a data set loaded for nothing.
        for workload in &self.experiment.workloads {
            let dir = self.dir_of(out, workload);
            match start {
                Start::New => Store::check_free(&dir)?,
                Start::Resume => resume::check_file(self, &dir, &params)?,
            }
        }
        let servers = self.open_servers(params, &run_id, pg)?;
        let mut dirs = Vec::new();
        // Held to the end, also between two workloads.
        let mut claims = Claims::default();
        for workload in &self.experiment.workloads {
            let dir = self.dir_of(out, workload);
            let there = (run_id.as_str(), &servers, &mut claims);
            self.run_workload(workload, &dir, start, there, stop, hear)
                .map_err(signals::stopped)?;
            dirs.push(dir);
            if stop.requested() {
                break;
            }
        }
        if self.experiment.workloads.len() > 1 {
            report::leave_index(out, &self.experiment.name, &dirs);
        }
        Ok(dirs)
    }

    /// Where a workload's results are.
    pub(super) fn dir_of(&self, out: &Path, workload: &WorkloadSpec) -> PathBuf {
        match self.experiment.workloads.len() {
            1 => out.to_owned(),
            _ => out.join(&workload.name),
        }
    }

    fn run_workload(
        &self,
        spec: &WorkloadSpec,
        dir: &Path,
        start: Start,
        (run_id, servers, claims): (&str, &BTreeMap<String, Reached>, &mut Claims),
        stop: &Stop,
        hear: &mut dyn FnMut(&Happening<'_>),
    ) -> Outcome {
        let mut rules = self.experiment.rules.clone();
        rules.reset = self.experiment.reset_of(spec).clone();
        let cells = self.cells(spec)?;
        let ids: Vec<Cell> = cells.iter().map(|c| c.cell.clone()).collect();
        let mut plan = plan(cells.len(), rules.max_blocks, self.seed);
        if self.experiment.burns_in(spec) {
            plan.insert(0, burn_in(self.baseline_cell(&cells)));
        }
        let (earlier, mut lock) = match start {
            Start::New => (None, None),
            Start::Resume => {
                // Of several workloads those after the interruption have none yet.
                let lock = dir.exists().then(|| state::lock_results(dir)).transpose()?;
                (resume::open(dir)?, lock)
            }
        };
        let done = match &earlier {
            Some((_, stored)) => judging::done(&stored.trials, &ids),
            None => Done::default(),
        };
        let baselines = judging::baselines(&ids, &self.experiment.baseline);
        let left = done.left(&plan, &baselines, self.experiment.blocks);
        if earlier.is_some() && left.is_empty() && rules.precision.is_none() {
            output::note(&format!("nothing is left to do in {}", dir.display()));
            return Ok(());
        }
        let mut targets = BTreeMap::new();
        for (name, reached) in servers {
            if cells.iter().any(|c| c.target == *name) {
                targets.insert(name.clone(), self.target(spec, reached, run_id, stop)?);
            }
        }
        let users = || targets.values().filter(|t: &&Target| t.cluster.is_none());
        let measured = users().map(|target| target.identity.clone()).collect();
        journals::refuse_changed(&measured, claims)?;
        let name = self.name_of(spec);
        let mut manifest = self.manifest(&name, &cells, &rules, self.sweep(spec)?, &mut targets);
        manifest.metrics = spec.command.as_ref().map(command::declared).unwrap_or_default();
        let (store, stored, remarks) = match earlier {
            None => (
                None,
                Stored {
                    manifest,
                    trials: Vec::new(),
                    torn: false,
                    own_baseline: None,
                    judged: false,
                },
                Vec::new(),
            ),
            Some((store, stored)) => {
                let remarks = resume::remarks(&stored, &manifest, &targets, &cells)?;
                (Some(store), stored, remarks)
            }
        };
        if let Some(told) = self.size_text(spec) {
            output::note(&format!("{}: {told}", spec.name));
        }
        let time = |cell| self.estimate(spec, cell).map(|estimate| estimate.total());
        let pace = Pace::new(cells.iter().map(time).collect(), &left);
        let primary = primary_of(&self.experiment, &targets);
        let mut teller = Teller::new(pace, primary, rules.precision.is_some());
        let mut observe = |happening: Happening<'_>| {
            teller.tell(&happening);
            hear(&happening);
        };
        let journal_dir = state::journal_dir()?;
        let mut stage = Live {
            run_id: run_id.to_owned(),
            experiment: name,
            targets,
            hosts: servers.values().next().map(|r| r.hosts.clone()).unwrap_or_default(),
            host_specs: self.experiment.hosts.clone(),
            cells,
            checked: CheckedCells::default(),
            in_force: Vec::new(),
            workload: spec.name.clone(),
            seed: self.seed,
            warmup: spec.layer.warmup.unwrap_or(self.experiment.warmup),
            rules: rules.clone(),
            journal: Journal::new(&journal_dir, run_id),
            made: BTreeMap::new(),
            store,
            judge: Judge::of(&stored),
            looks: judging::Looks::default(),
            stored,
            series: None,
            left: None,
            stop: stop.clone(),
            observe: &mut observe,
        };
        // Before the checks as far as it is known: they refuse what another experiment has in force,
        // and do not name it.
        let touched = stage.touched_before_check();
        journals::claim(&touched, claims, run_id, &stage.experiment)?;
        let touched = stage.check()?;
        journals::claim(&touched, claims, run_id, &stage.experiment)?;
        match &mut stage.store {
            Some(store) => {
                let text = self.stored_text(&params_of(servers));
                resume::note(self, store, &mut stage.stored, &text, remarks)?;
            }
            None => {
                let text = self.stored_text(&params_of(servers));
                stage.store = Some(Store::create(dir, &text, &stage.stored.manifest)?);
                lock = Some(state::lock_results(dir)?);
            }
        }
        stage.note_made(&state::made_dir()?)?;
        let of_loop = Rules {
            blocks: self.experiment.blocks,
            repeats: rules.repeats,
            until_precise: rules.precision.is_some(),
            seed: self.seed,
        };
        let ended = run_plan(&plan, &baselines, of_loop, &done, &mut stage);
        stage.clean_up();
        stage.finish()?;
        drop(lock);
        report::leave_page(dir);
        match ended.map_err(|e| and_what_is_left(e.into(), &journal_dir, run_id))? {
            Ended::Complete | Ended::Precise => Ok(()),
            Ended::BlockLimit => {
                eprintln!(
                    "pgio: the limit of {} blocks is reached and the intervals are wider than asked for",
                    rules.max_blocks
                );
                Ok(())
            }
            Ended::Interrupted => Err(Failure::interrupted()),
            Ended::Failing(error) => {
                Err(Failure::message(TRIAL, error).context("three trials failed in a row"))
            }
        }
    }

    /// One experiment a workload: several in a file are told apart by their names.
    fn name_of(&self, spec: &WorkloadSpec) -> String {
        match self.experiment.workloads.len() {
            1 => self.experiment.name.clone(),
            _ => format!("{} {}", self.experiment.name, spec.name),
        }
    }
}

/// The metric that is judged: the file's, else the workload's own.
fn primary_of(experiment: &Experiment, targets: &BTreeMap<String, Target>) -> String {
    let of_workload = || {
        let target = targets.values().next()?;
        Some(target.workloads.first()?.info().primary_metric)
    };
    experiment.primary.clone().or_else(of_workload).unwrap_or_default()
}
