//! Runs one workload: prepares it on its servers, begins its results, runs its trials, and cleans up.
//!
//! What can refuse the workload comes first: other runs, other servers than in the interrupted run, each
//! condition, other processes, the length of slices. The directory of the results is created last. Next:
//! `experiment::run` runs the trials.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::cells::{cells, varied};
use super::error::RunError;
use super::estimate;
use super::job::Job;
use super::manifest::{built_servers, environment_of, manifest, primary_of, stored_text};
use super::resume::{self, CurrentTarget};
use super::schedule::Schedule;
use super::servers::{Purpose, TargetServer, open_target, params_of};
use crate::config::experiment::{Rules, WorkloadSpec};
use crate::experiment::companion::{Accompanied, Companion};
use crate::experiment::event::{Event, Observer, WorkloadBegins};
use crate::experiment::live::{CheckedCells, FurtherServers, Live, LiveCell, LiveError};
use crate::experiment::pace::Pace;
use crate::experiment::results::Results;
use crate::experiment::run::{Ended, Runner, run as run_plan};
use crate::experiment::target::Target;
use crate::experiment::{admin, state};
use crate::feature;
use crate::host::lock::LockFile;
use crate::host::stop::Stop;
use crate::treatment::journal::{self, Claims, Journal};
use crate::workload::{Coordinator, EngineError, Generator};
use pgio_results::store::{Manifest, Store, StoredExperiment};

/// State shared by the workloads of a run.
pub(super) struct SharedRun<'a> {
    pub(super) job: &'a Job,
    pub(super) run_id: &'a str,
    /// Whether an interrupted run continues.
    pub(super) resumes: bool,
    pub(super) stop: &'a Stop,
    pub(super) servers: &'a BTreeMap<String, TargetServer>,
    /// The processes that generate the load, started by the first workload for all.
    pub(super) generators: OnceCell<Vec<Arc<dyn Coordinator>>>,
}

/// What an interrupted run left of a workload.
struct Earlier {
    /// None if the workload had not begun.
    results: Option<(Store, StoredExperiment)>,
    /// Keeps others from continuing it.
    lock: Option<LockFile>,
}

/// A workload and its trials, as far as known without a server.
pub(super) struct WorkloadPlan<'a> {
    spec: &'a WorkloadSpec,
    /// The directory of its results.
    dir: &'a Path,
    /// The file's rules with the workload's own reset.
    pub(super) rules: Rules,
    pub(super) schedule: Schedule,
}

impl<'a> WorkloadPlan<'a> {
    /// `earlier` holds the results of an interrupted run.
    pub(super) fn new(
        job: &Job,
        spec: &'a WorkloadSpec,
        dir: &'a Path,
        cells: &[LiveCell],
        earlier: Option<&StoredExperiment>,
    ) -> WorkloadPlan<'a> {
        let mut rules = job.experiment.rules.clone();
        rules.reset = job.experiment.reset_of(spec).clone();
        let schedule = Schedule::new(job, spec, &rules, cells, earlier);
        WorkloadPlan { spec, dir, rules, schedule }
    }

    /// Reports that the workload begins, and the time that its trials are expected to take. `stored` is what an
    /// interrupted run left.
    pub(super) fn announce(
        &self,
        job: &Job,
        cells: &[LiveCell],
        stored: &StoredExperiment,
        observe: &mut Observer<'_>,
    ) {
        let time =
            |cell| estimate::estimate_trial(job, self.spec, cell).map(|estimate| estimate.total());
        let estimates = cells.iter().map(time).collect();
        observe(Event::WorkloadBegins(WorkloadBegins {
            workload: self.spec,
            dir: self.dir,
            earlier: stored,
            pace: Pace::new(estimates, &self.schedule.remaining),
            // An interrupted run has the same, or was refused.
            primary: &stored.manifest.primary_metric,
            open_ended: self.schedule.rules.until_precise,
        }));
    }

    /// Returns the results to which the trials are added.
    pub(super) fn results<'o>(
        &self,
        job: &Job,
        cells: Vec<LiveCell>,
        store: Option<Store>,
        stored: StoredExperiment,
        observe: &'o mut Observer<'_>,
    ) -> Results<'o> {
        let (name, rules) = (job.name_of(self.spec), self.rules.clone());
        Results::new(name, cells, rules, store, stored, &mut *observe)
    }

    /// Runs the trials that are left.
    pub(super) fn run_trials<R: Runner>(&self, runner: &mut R) -> Result<Ended, R::Error> {
        let Schedule { plan, baselines, rules, done, .. } = &self.schedule;
        run_plan(plan, baselines, *rules, done, runner)
    }

    pub(super) fn judge_end(
        &self,
        ended: Ended,
        observe: &mut Observer<'_>,
    ) -> Result<(), RunError> {
        match ended {
            Ended::BlockLimit => {
                observe(Event::BlockLimit { blocks: self.rules.max_blocks });
                Ok(())
            }
            Ended::Complete | Ended::Precise => Ok(()),
            Ended::Interrupted => Err(RunError::Interrupted),
            Ended::Failing(error) => Err(RunError::Failing(error)),
            Ended::Outgrown(why) => Err(RunError::Outgrown(why)),
            Ended::NoneValid(found) => Err(RunError::NoneValid(found)),
        }
    }
}

/// A workload made ready on its servers. Its conditions are not checked yet, and nothing is claimed.
struct Prepared {
    cells: Vec<LiveCell>,
    targets: BTreeMap<String, Target>,
    companions: Vec<Box<dyn Companion>>,
    /// The open results of an interrupted run; a new run has none yet.
    store: Option<Store>,
    /// The same results, read; a new run has a manifest alone.
    stored: StoredExperiment,
}

impl SharedRun<'_> {
    /// Prepares the workload on its servers, begins its results, runs its trials, and cleans up.
    pub(super) fn run_workload(
        &self,
        spec: &WorkloadSpec,
        dir: &Path,
        claims: &mut Claims,
        observe: &mut Observer<'_>,
    ) -> Result<(), RunError> {
        let cells = cells(self.job, spec)?;
        let Earlier { results, mut lock } = self.earlier(dir)?;
        let stored = results.as_ref().map(|(_, stored)| stored);
        let plan = WorkloadPlan::new(self.job, spec, dir, &cells, stored);
        if results.is_some() && plan.schedule.is_complete() {
            observe(Event::NothingLeft { dir });
            return Ok(());
        }
        let (prepared, remarks) = self.prepare(&plan, cells, results, claims, observe)?;
        plan.announce(self.job, &prepared.cells, &prepared.stored, observe);
        let journal_dir = state::journal_dir()?;
        let mut runner = self.runner(&plan, prepared, &journal_dir, observe)?;
        claim_and_check(&mut runner, claims)?;
        self.start_generators(&mut runner)?;
        runner.journal_tables()?;
        let ran = match self.begin(&mut runner, dir, remarks) {
            Ok(new) => {
                lock = new.or(lock);
                Ok(plan.run_trials(&mut runner))
            }
            Err(error) => Err(error),
        };
        close(runner)?;
        let ended = ran?;
        drop(lock);
        observe(Event::WorkloadEnds { dir });
        let ended = ended.map_err(|source| self.name_remaining_changes(source, &journal_dir))?;
        plan.judge_end(ended, observe)
    }

    /// Workloads after the interruption have no results yet.
    fn earlier(&self, dir: &Path) -> Result<Earlier, RunError> {
        if !self.resumes {
            return Ok(Earlier { results: None, lock: None });
        }
        let lock = dir.exists().then(|| state::lock_results(dir)).transpose()?;
        Ok(Earlier { results: resume::open(dir)?, lock })
    }

    /// Makes the work ready on its servers, and refuses servers that others changed. Also returns remarks on
    /// what differs from the interrupted run, whose results are `earlier`.
    fn prepare(
        &self,
        plan: &WorkloadPlan<'_>,
        cells: Vec<LiveCell>,
        earlier: Option<(Store, StoredExperiment)>,
        claims: &Claims,
        observe: &mut Observer<'_>,
    ) -> Result<(Prepared, Vec<String>), RunError> {
        let (job, stop) = (self.job, self.stop);
        let mut targets = self.open_targets(plan.spec, &cells, claims, observe)?;
        let (workload, servers, run_id) = (plan.spec, self.servers, self.run_id);
        let run = Accompanied { job, workload, cells: &cells, servers, run_id, stop };
        let companions = feature::companions(job).map(|all| all.prepare(&run, observe));
        let companions = companions.collect::<Result<_, _>>()?;
        let manifest = self.describe(plan, &cells, &mut targets)?;
        let now = CurrentTarget::new(&targets);
        let (store, stored, remarks) = resume::continue_or_begin(earlier, manifest, &now, &cells)?;
        Ok((Prepared { cells, targets, companions, store, stored }, remarks))
    }

    /// Opens the targets of these cells.
    fn open_targets(
        &self,
        spec: &WorkloadSpec,
        cells: &[LiveCell],
        claims: &Claims,
        observe: &mut Observer<'_>,
    ) -> Result<BTreeMap<String, Target>, RunError> {
        let used = self
            .servers
            .iter()
            .filter(|(name, _)| cells.iter().any(|c| c.targets().any(|target| target == *name)));
        let mut targets = BTreeMap::new();
        for (name, server) in used {
            let purpose = Purpose::Run { run_id: self.run_id, claims };
            let target = open_target(self.job, spec, server, purpose, self.stop, observe)?;
            targets.insert(name.clone(), target);
        }
        Ok(targets)
    }

    /// Makes the manifest, with the environment that is found on the targets.
    fn describe(
        &self,
        plan: &WorkloadPlan<'_>,
        cells: &[LiveCell],
        targets: &mut BTreeMap<String, Target>,
    ) -> Result<Manifest, RunError> {
        let job = self.job;
        let primary = primary_of(job, targets);
        let axes = varied(&job.experiment, plan.spec)?;
        let found = environment_of(targets);
        let built = built_servers(cells, &job.experiment, targets);
        let manifest = manifest(job, plan.spec, cells, axes, &plan.rules, found, primary);
        Ok(Manifest { built, ..manifest })
    }

    /// Makes the runner of the trials.
    fn runner<'o>(
        &self,
        plan: &WorkloadPlan<'_>,
        prepared: Prepared,
        journal_dir: &Path,
        observe: &'o mut Observer<'_>,
    ) -> Result<Live<'o>, RunError> {
        let (job, spec) = (self.job, plan.spec);
        let Prepared { cells, targets, companions, store, stored } = prepared;
        Ok(Live {
            run_id: self.run_id.to_owned(),
            targets,
            hosts: self.servers.values().next().map(|r| r.hosts.clone()).unwrap_or_default(),
            host_specs: job.experiment.hosts.clone(),
            checked: CheckedCells::default(),
            in_force: Vec::new(),
            companions,
            further_servers: FurtherServers::new(journal_dir),
            workload: spec.name.clone(),
            seed: job.seed,
            warmup: spec.layer.warmup.unwrap_or(job.experiment.warmup),
            journal: Journal::new(journal_dir, self.run_id),
            table_journals: BTreeMap::new(),
            table_journal_dir: state::table_journal_dir()?,
            stop: self.stop.clone(),
            generators: BTreeMap::new(),
            results: plan.results(job, cells, store, stored, observe),
        })
    }

    /// Has the processes that generate the load, if others shall, reach their servers; starts them unless an earlier
    /// workload has.
    fn start_generators(&self, runner: &mut Live<'_>) -> Result<(), RunError> {
        let Some(generators) = &self.job.generators else { return Ok(()) };
        let names: Vec<&String> = self.servers.keys().collect();
        let failed = |error: EngineError| RunError::from(LiveError::from(error));
        generators.check_work(names.len(), &runner.targets).map_err(failed)?;
        let groups = match self.generators.get() {
            Some(groups) => groups,
            None => {
                let started = generators.start(names.len(), self.run_id, self.stop);
                let started = started.map_err(failed)?;
                self.generators.get_or_init(|| started)
            }
        };
        for (name, target) in &mut runner.targets {
            let position = names.iter().position(|known| *known == name).unwrap_or(0);
            let group = Arc::clone(&groups[position % groups.len()]);
            group.reach(&target.params, &mut target.admin, self.stop).map_err(failed)?;
            for workload in &target.workloads {
                workload.check_others(&*group, self.stop).map_err(failed)?;
            }
            runner.generators.insert(name.clone(), Generator::Others(group));
        }
        Ok(())
    }

    /// Settles the length of woven slices, the last step that can refuse the run. Then creates the directory
    /// of the results, or notes in it that the run continues. Returns the lock of a new one.
    fn begin(
        &self,
        runner: &mut Live<'_>,
        dir: &Path,
        remarks: Vec<String>,
    ) -> Result<Option<LockFile>, RunError> {
        let continues = runner.results.store.is_some();
        runner.settle_slice_length(continues)?;
        let text = stored_text(self.job, &params_of(self.servers));
        begin_results(self.job, &mut runner.results, dir, &text, remarks)?;
        if continues { Ok(None) } else { Ok(Some(state::lock_results(dir)?)) }
    }

    /// Returns the error of trials, with the journal of this run if changes are still in place.
    fn name_remaining_changes(&self, source: LiveError, journal_dir: &Path) -> RunError {
        match journal::unfinished_journal_of(journal_dir, self.run_id) {
            Some(journal) => RunError::ChangesRemain { journal, source: Box::new(source) },
            None => source.into(),
        }
    }
}

/// Creates the directory of the results, or notes in it that the run continues.
pub(super) fn begin_results(
    job: &Job,
    results: &mut Results<'_>,
    dir: &Path,
    text: &str,
    remarks: Vec<String>,
) -> Result<(), RunError> {
    if let Some(store) = &mut results.store {
        let warnings = resume::record_resumption(job, store, &mut results.stored, text, remarks)?;
        warnings.iter().for_each(|warning| (results.observe)(Event::Warns(warning)));
        return Ok(());
    }
    results.store = Some(Store::create(dir, text, &results.stored.manifest)?);
    Ok(())
}

/// Removes what the workload created, and the journals unless changes are still in place.
fn close(mut runner: Live<'_>) -> Result<(), RunError> {
    runner.clean_up();
    runner.finish()?;
    Ok(())
}

/// Claims known resources before the checks, which would refuse another experiment's changes without naming
/// it.
fn claim_and_check(runner: &mut Live<'_>, claims: &mut Claims) -> Result<(), RunError> {
    let touched = runner.touched_before_check();
    admin::claim(&touched, claims, &runner.run_id, &runner.results.experiment)?;
    let touched = runner.check()?;
    admin::claim(&touched, claims, &runner.run_id, &runner.results.experiment)?;
    for warning in runner.refuse_other_runs()? {
        (runner.results.observe)(Event::Warns(&warning));
    }
    Ok(())
}
