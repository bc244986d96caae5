//! Runs an experiment file: one experiment for each workload, one after the other.
//!
//! Everything that can refuse runs before the first change: unfinished runs, the results directory, the servers,
//! other runs, each condition. Events go to one observer; results are in the store.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::agenda::Agenda;
use super::cells::{cells, sweep};
use super::drivers;
use super::error::RunError;
use super::estimate;
use super::job::Job;
use super::manifest::{environment_of, manifest, primary_of, stored_text};
use super::opening::{self, Purpose};
use super::resume::{self, CurrentTarget};
use super::servers::{self, TargetServer, params_of};
use super::{background, built};
use crate::config::experiment::WorkloadSpec;
use crate::experiment::event::{Event, Observer, WorkloadBegins};
use crate::experiment::judging::{Judge, WidthChecks};
use crate::experiment::live::{CheckedCells, FurtherServers, Live};
use crate::experiment::pace::Pace;
use crate::experiment::run::{Ended, run as run_plan};
use crate::experiment::target::Target;
use crate::experiment::{clusters, conflicts, environment, state};
use crate::host::lock::LockFile;
use crate::host::stop::Stop;
use crate::pg::private::VersionRequest;
use crate::treatment::journal::{self, Claims, Journal};
use crate::workload::drivers::coordinator::Drivers;
use pgio_results::store::{Manifest, Store, StoredExperiment};

/// Whether the directory is new or holds an interrupted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    New,
    Resume,
}

/// The results directory and the stop flag of a run.
#[derive(Debug)]
pub struct Run<'a> {
    pub out: &'a Path,
    pub start: Start,
    pub stop: &'a Stop,
    /// Version of private servers whose target names none.
    pub pg: Option<VersionRequest>,
}

/// Runs every workload and returns the directories of their results.
pub fn perform(
    job: &Job,
    run: &Run<'_>,
    observe: &mut Observer<'_>,
) -> Result<Vec<PathBuf>, RunError> {
    let dirs = workloads(job, run, observe);
    // Private servers are removed by now, whatever the outcome.
    clusters::forget_removed();
    dirs
}

fn workloads(
    job: &Job,
    run: &Run<'_>,
    observe: &mut Observer<'_>,
) -> Result<Vec<PathBuf>, RunError> {
    drivers::check(job)?;
    let run_id = state::new_run_id();
    let params = servers::params(job, &run_id, observe)?;
    for other in conflicts::refuse_unfinished(params.values())? {
        observe(Event::OtherInterrupted(&other));
    }
    if let Some(held) = environment::held_ballast() {
        observe(Event::Warns(&environment::ballast_warning(held)));
    }
    // Check rights before a server is started and a data set is loaded.
    for workload in &job.experiment.workloads {
        let dir = job.dir_of(run.out, workload);
        match run.start {
            Start::New => Store::check_free(&dir)?,
            Start::Resume => resume::check_file(job, &dir, &params)?,
        }
    }
    let servers = servers::open(job, params, &run_id, run.pg, observe)?;
    let mut dirs = Vec::new();
    // Claims are held to the end, also between two workloads.
    let mut claims = Claims::default();
    let drivers = OnceCell::new();
    let shared = SharedRun { job, run, run_id: &run_id, servers: &servers, drivers };
    for workload in &job.experiment.workloads {
        let dir = job.dir_of(run.out, workload);
        shared.workload(workload, &dir, &mut claims, observe)?;
        dirs.push(dir);
        if run.stop.requested() {
            break;
        }
    }
    Ok(dirs)
}

/// State shared by the workloads of a run.
struct SharedRun<'a> {
    job: &'a Job,
    run: &'a Run<'a>,
    run_id: &'a str,
    servers: &'a BTreeMap<String, TargetServer>,
    /// Started by the first workload, for all.
    drivers: OnceCell<Vec<Arc<Drivers>>>,
}

/// A workload's results from an interrupted run, and the lock that keeps others from continuing it.
type Earlier = (Option<(Store, StoredExperiment)>, Option<LockFile>);

impl SharedRun<'_> {
    fn workload(
        &self,
        spec: &WorkloadSpec,
        dir: &Path,
        claims: &mut Claims,
        observe: &mut Observer<'_>,
    ) -> Result<(), RunError> {
        let (job, stop) = (self.job, self.run.stop);
        let mut rules = job.experiment.rules.clone();
        rules.reset = job.experiment.reset_of(spec).clone();
        let cells = cells(job, spec)?;
        let (earlier, mut lock) = self.earlier(dir)?;
        let known = earlier.as_ref().map(|(_, stored)| stored);
        let agenda = Agenda::new(job, spec, &rules, &cells, known);
        if earlier.is_some() && agenda.is_complete() {
            observe(Event::NothingLeft { dir });
            return Ok(());
        }
        let used = self
            .servers
            .iter()
            .filter(|(name, _)| cells.iter().any(|c| c.targets().any(|target| target == *name)));
        let mut targets = BTreeMap::new();
        for (name, server) in used {
            let purpose = Purpose::Run { run_id: self.run_id };
            let target = opening::open(job, spec, server, purpose, stop, observe)?;
            targets.insert(name.clone(), target);
        }
        let beside = (self.run_id, stop);
        let background = background::prepare(job, (spec, &cells), self.servers, beside, observe)?;
        let of_users = targets.values().filter(|target: &&Target| target.cluster.is_none());
        let measured = of_users.map(|target| target.identity.clone()).collect();
        conflicts::refuse_changed(&measured, claims)?;
        let primary = primary_of(job, &targets);
        let manifest = {
            let of_work = (spec, cells.as_slice(), sweep(&job.experiment, spec)?);
            let found = environment_of(&mut targets);
            let built = built::of_conditions(&cells, &job.experiment, &targets);
            Manifest { built, ..manifest(job, of_work, &rules, found, primary.clone()) }
        };
        let (store, stored, remarks) = match earlier {
            None => (None, empty_experiment(manifest), Vec::new()),
            Some((store, stored)) => {
                let now = CurrentTarget::new(&targets);
                let remarks = resume::remarks(&stored, &manifest, &now, &cells)?;
                (Some(store), stored, remarks)
            }
        };
        let time =
            |cell| estimate::estimate_trial(job, spec, cell).map(|estimate| estimate.total());
        let pace = Pace::new(cells.iter().map(time).collect(), &agenda.remaining);
        let open_ended = agenda.rules.until_precise;
        let earlier = &stored;
        let begins =
            WorkloadBegins { workload: spec, dir, earlier, pace, primary: &primary, open_ended };
        observe(Event::WorkloadBegins(begins));
        let journal_dir = state::journal_dir()?;
        let mut stage = Live {
            run_id: self.run_id.to_owned(),
            experiment: job.name_of(spec),
            targets,
            hosts: self.servers.values().next().map(|r| r.hosts.clone()).unwrap_or_default(),
            host_specs: job.experiment.hosts.clone(),
            cells,
            checked: CheckedCells::default(),
            in_force: Vec::new(),
            background,
            further_servers: FurtherServers::new(&journal_dir),
            workload: spec.name.clone(),
            seed: job.seed,
            warmup: spec.layer.warmup.unwrap_or(job.experiment.warmup),
            rules: rules.clone(),
            journal: Journal::new(&journal_dir, self.run_id),
            table_journals: BTreeMap::new(),
            table_journal_dir: state::table_journal_dir()?,
            store,
            judge: Judge::new(&stored),
            width_checks: WidthChecks::default(),
            stored,
            series: None,
            program_output: None,
            stop: stop.clone(),
            generators: BTreeMap::new(),
            observe: &mut *observe,
        };
        claim_and_check(&mut stage, claims)?;
        if let Some(drivers) = &job.drivers {
            let all = self.servers.keys().map(String::as_str).collect::<Vec<_>>();
            stage.generators =
                drivers::start((drivers, &all), &mut stage, self.run_id, &self.drivers)?;
        }
        stage.journal_tables()?;
        let continues = stage.store.is_some();
        let begun = stage.settle_slice_length(continues).map_err(RunError::from);
        match begun.and_then(|()| self.begin_store(&mut stage, dir, remarks)) {
            Ok(new) => lock = new.or(lock),
            Err(error) => {
                stage.clean_up();
                stage.finish()?;
                return Err(error);
            }
        }
        let Agenda { plan, baselines, rules: of_loop, done, .. } = &agenda;
        let ended = run_plan(plan, baselines, *of_loop, done, &mut stage);
        stage.clean_up();
        stage.finish()?;
        drop(stage);
        drop(lock);
        observe(Event::WorkloadEnds { dir });
        let ended = ended.map_err(|source| {
            match journal::unfinished_journal_of(&journal_dir, self.run_id) {
                Some(journal) => RunError::ChangesRemain { journal, source: Box::new(source) },
                None => source.into(),
            }
        })?;
        if ended == Ended::BlockLimit {
            observe(Event::BlockLimit { blocks: rules.max_blocks });
        }
        judge_end(ended)
    }

    /// Workloads after the interruption have no results yet.
    fn earlier(&self, dir: &Path) -> Result<Earlier, RunError> {
        match self.run.start {
            Start::New => Ok((None, None)),
            Start::Resume => {
                let lock = dir.exists().then(|| state::lock_results(dir)).transpose()?;
                Ok((resume::open(dir)?, lock))
            }
        }
    }

    /// Creates the directory, or notes in it that the run continues. Returns the lock of a new one.
    fn begin_store(
        &self,
        stage: &mut Live<'_>,
        dir: &Path,
        remarks: Vec<String>,
    ) -> Result<Option<LockFile>, RunError> {
        let text = stored_text(self.job, &params_of(self.servers));
        if let Some(store) = &mut stage.store {
            let warnings =
                resume::record_resumption(self.job, store, &mut stage.stored, &text, remarks)?;
            warnings.iter().for_each(|warning| (stage.observe)(Event::Warns(warning)));
            return Ok(None);
        }
        stage.store = Some(Store::create(dir, &text, &stage.stored.manifest)?);
        Ok(Some(state::lock_results(dir)?))
    }
}

/// Claims known resources before the checks, which would refuse another experiment's changes without naming it.
fn claim_and_check(stage: &mut Live<'_>, claims: &mut Claims) -> Result<(), RunError> {
    let touched = stage.touched_before_check();
    conflicts::claim(&touched, claims, &stage.run_id, &stage.experiment)?;
    let touched = stage.check()?;
    conflicts::claim(&touched, claims, &stage.run_id, &stage.experiment)?;
    Ok(())
}

fn empty_experiment(manifest: Manifest) -> StoredExperiment {
    StoredExperiment { manifest, trials: Vec::new(), torn: false, judged: false }
}

fn judge_end(ended: Ended) -> Result<(), RunError> {
    match ended {
        Ended::Complete | Ended::Precise | Ended::BlockLimit => Ok(()),
        Ended::Interrupted => Err(RunError::Interrupted),
        Ended::Failing(error) => Err(RunError::Failing(error)),
        Ended::NoneValid(found) => Err(RunError::NoneValid(found)),
    }
}
