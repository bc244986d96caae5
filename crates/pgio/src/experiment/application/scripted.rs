//! Runs experiment files in-process: a test says what each trial measures.
//!
//! All but the measuring is the code of a run: the file is parsed, trials are decided on, stored, judged, repeated, and an
//! interrupted run continues. Also holds the files of this module's other tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::BlockLimits;
use super::cells::{cells, layers, varied};
use super::error::{ResumeError, RunError};
use super::job::{Job, JobError};
use super::manifest::{manifest, stored_text};
use super::resume::{self, CurrentTarget};
use super::workload_run::{WorkloadPlan, begin_results};
use crate::config::experiment::{Target, Weave, WorkloadSpec};
use crate::experiment::event::Event;
use crate::experiment::live::{LiveCell, LiveError};
use crate::experiment::plan::{Planned, trial_seed};
use crate::experiment::results::{Results, place};
use crate::experiment::run::{Decision, Invalid, Runner};
use crate::experiment::target::ConnectionKeys;
use pgio_report::directories::{self, LoadedReport};
use pgio_report::report;
use pgio_results::Check;
use pgio_results::model::{Outcome, Trial, TrialPosition, WorkloadInfo};
use pgio_results::store::{self, Store, StoredExperiment};
use pgio_verdict::Analysis;
use pgio_verdict::test_support::{set, trial};

/// Two conditions on a private server; `before` stands above them.
pub(super) fn try_job(before: &str) -> Result<Job, JobError> {
    let text = format!(
        "{before}\n[[condition]]\nname = 'local'\npostgres = {{ synchronous_commit = 'local' }}\n\
         [[condition]]\nname = 'on'\npostgres = {{ synchronous_commit = 'on' }}\n"
    );
    Job::parse(&text, "x.toml", "x", ConnectionKeys::default())
}

pub(crate) fn job(before: &str) -> Job {
    try_job(before).unwrap_or_else(|error| panic!("{error}"))
}

/// Six blocks of commits, with A/A and burn-in.
pub(crate) const COMMITS: &str = "[experiment]\nblocks = 6\nduration = '10s'\nwarmup = '2s'\nseed = 7\n\
                                  [target]\nprivate = true\n[workload]\nkind = 'commit'\n";

pub(super) fn first(job: &Job) -> (&WorkloadSpec, Vec<LiveCell>) {
    let spec = &job.experiment.workloads[0];
    (spec, cells(job, spec).unwrap())
}

/// An experiment on a server of the user's: `head` goes to [experiment], `conditions` are pairs of a name and the
/// body of `postgres`, empty for a condition that changes nothing.
pub(crate) fn experiment(head: &str, workload: &str, conditions: &[(&str, &str)]) -> String {
    let mut text = format!(
        "[experiment]\n{head}\n[target]\ndsn = 'host=h dbname=d'\n[workload]\nkind = 'commit'\n{workload}\n"
    );
    for (name, postgres) in conditions {
        text += &format!("[[condition]]\nname = '{name}'\npostgres = {{ {postgres} }}\n");
    }
    text
}

/// What a trial measures.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Measured {
    /// The value of the primary metric.
    Value(f64),
    /// The same, with a check of this id that finds it invalid.
    Invalid(f64, &'static str),
    Failed,
    /// Stopped in its window.
    Interrupted,
}

/// Returns what the trial at this place measures; trials of a run are counted from 1.
pub(crate) type Script<'a> = dyn FnMut(&TrialPosition, usize) -> Measured + 'a;

/// A results directory, and the server that is said to be measured.
#[derive(Debug)]
pub(crate) struct Scripted {
    dir: TempDir,
    pub(crate) base_keys: ConnectionKeys,
    /// The run is stopped after so many trials.
    pub(crate) stop_after: Option<usize>,
    /// Decisions and warnings of all runs, in words.
    pub(crate) log: Vec<String>,
}

impl Scripted {
    pub(crate) fn new() -> Scripted {
        let dir = tempfile::tempdir().unwrap();
        let (base_keys, log) = (ConnectionKeys::default(), Vec::new());
        Scripted { dir, base_keys, stop_after: None, log }
    }

    /// Runs a new experiment.
    pub(crate) fn compare(&mut self, text: &str, script: &mut Script<'_>) -> Result<(), RunError> {
        let job = Job::parse(text, "x.toml", "x", self.base_keys.clone());
        self.perform(&job.map_err(ResumeError::from)?, false, script)
    }

    /// Continues an interrupted experiment, from this file or from the stored one.
    pub(crate) fn resume(
        &mut self,
        text: Option<&str>,
        larger: BlockLimits,
        script: &mut Script<'_>,
    ) -> Result<(), RunError> {
        let file = self.dir.path().join("x.toml");
        text.iter().for_each(|text| fs::write(&file, text).unwrap());
        let file = text.map(|_| file.as_path());
        let job = resume::job(&self.out(), file, larger, self.base_keys.clone())?;
        self.perform(&job, true, script)
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.out().join(name)).unwrap()
    }

    pub(crate) fn stored(&self) -> StoredExperiment {
        store::read(&self.out()).unwrap()
    }

    pub(crate) fn analysis(&self) -> Analysis {
        self.loaded().analysis
    }

    pub(crate) fn loaded(&self) -> LoadedReport {
        directories::load(&self.out(), &crate::feature::findings()).unwrap()
    }

    /// What `pgio report --all` prints.
    pub(crate) fn report(&self) -> String {
        report::text::render(&report::document(self.loaded().report()))
    }

    fn perform(
        &mut self,
        job: &Job,
        resumes: bool,
        script: &mut Script<'_>,
    ) -> Result<(), RunError> {
        for spec in &job.experiment.workloads {
            let dir = job.dir_of(&self.out(), spec);
            if resumes {
                resume::check_file(job, &dir, &BTreeMap::new())?;
            } else {
                Store::check_free(&dir)?;
            }
            self.run_workload(job, spec, &dir, resumes, script)?;
        }
        Ok(())
    }

    /// The same steps as [`super::workload_run::SharedRun::run_workload`].
    fn run_workload(
        &mut self,
        job: &Job,
        spec: &WorkloadSpec,
        dir: &Path,
        resumes: bool,
        script: &mut Script<'_>,
    ) -> Result<(), RunError> {
        let cells = cells(job, spec)?;
        let earlier = if resumes { resume::open(dir)? } else { None };
        let stored = earlier.as_ref().map(|(_, stored)| stored);
        let plan = WorkloadPlan::new(job, spec, dir, &cells, stored);
        let log = &mut self.log;
        let mut observe = |event: Event<'_>| log.extend(in_words(&event));
        if stored.is_some() && plan.schedule.is_complete() {
            observe(Event::NothingLeft { dir });
            return Ok(());
        }
        let works = works(job, spec);
        let primary = works[0].primary_metric.clone();
        let facts = [("server_version", "15.4"), ("system_identifier", "1")];
        let found = facts.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let axes = varied(&job.experiment, spec)?;
        let manifest = manifest(job, spec, &cells, axes, &plan.rules, found, primary);
        let targets = current_targets(job, &works);
        let (store, stored, remarks) =
            resume::continue_or_begin(earlier, manifest, &targets, &cells)?;
        plan.announce(job, &cells, &stored, &mut observe);
        let mut runner = ScriptedRunner {
            results: plan.results(job, cells, store, stored, &mut observe),
            works,
            job,
            workload: &spec.name,
            stop_after: self.stop_after,
            begun: 0,
            script,
        };
        let text = stored_text(job, &BTreeMap::new());
        begin_results(job, &mut runner.results, dir, &text, remarks)?;
        let ended = plan.run_trials(&mut runner)?;
        plan.judge_end(ended, &mut observe)
    }
}

/// The work of each layer of the sweep, with the keys that these tests change.
fn works(job: &Job, spec: &WorkloadSpec) -> Vec<WorkloadInfo> {
    let default = match spec.kind.name() {
        "slob" => "block_visits_per_second",
        _ => "commits_per_second",
    };
    let primary = job.experiment.primary.clone().unwrap_or_else(|| default.to_owned());
    let layers = layers(spec, job.experiment.combination).into_iter();
    let info = layers.map(|layer| {
        let sessions = layer.over(job.base_keys.layer.clone()).sessions.unwrap_or(1);
        WorkloadInfo {
            kind: spec.kind.name().to_owned(),
            primary_metric: primary.clone(),
            keys: [("sessions".to_owned(), sessions.into())].into(),
        }
    });
    info.collect()
}

fn current_targets(job: &Job, works: &[WorkloadInfo]) -> Vec<CurrentTarget> {
    let target = |(name, target): (&String, &Target)| CurrentTarget {
        name: name.clone(),
        private: matches!(target, Target::Private(_)),
        version: "15.4".to_owned(),
        works: works.to_vec(),
    };
    job.experiment.targets.iter().map(target).collect()
}

struct ScriptedRunner<'a> {
    results: Results<'a>,
    works: Vec<WorkloadInfo>,
    job: &'a Job,
    workload: &'a str,
    stop_after: Option<usize>,
    /// Trials of this run.
    begun: usize,
    script: &'a mut Script<'a>,
}

impl ScriptedRunner<'_> {
    fn trial(&mut self, planned: &Planned) -> Trial {
        self.begun += 1;
        let cell = &self.results.cells[planned.cell];
        let Planned { block, attempt, .. } = *planned;
        let mut trial = trial(&cell.cell.condition, block, &[]);
        let place = place(&self.results.experiment, cell, planned);
        let measured = (self.script)(&place, self.begun);
        trial.place = Some(place);
        trial.seed = trial_seed(self.job.seed, self.workload, &cell.cell, block, attempt);
        trial.workload = self.works[cell.work].clone();
        let metric = trial.workload.primary_metric.clone();
        match measured {
            Measured::Value(value) => set(&mut trial, &metric, value),
            Measured::Invalid(value, check) => {
                set(&mut trial, &metric, value);
                trial.checks.push(Check::invalid(check, "as the script says", "change it"));
            }
            Measured::Failed => trial.outcome = Outcome::Failed { error: "gone".to_owned() },
            Measured::Interrupted => trial.outcome = Outcome::Interrupted,
        }
        self.results.end(planned, &mut trial, None);
        trial
    }
}

impl Runner for ScriptedRunner<'_> {
    type Error = LiveError;

    fn reset(&mut self, _: &Planned) -> Result<(), LiveError> {
        Ok(())
    }

    fn put_in_force(&mut self, planned: &Planned) -> Result<(), LiveError> {
        self.results.begin(std::slice::from_ref(planned));
        Ok(())
    }

    fn run_trial(&mut self, planned: &Planned) -> Trial {
        self.trial(planned)
    }

    fn weaves(&self) -> bool {
        matches!(self.results.rules.weave, Weave::Slices(_))
    }

    fn weave(&mut self, shared: &[Planned]) -> Result<Vec<Trial>, LiveError> {
        self.results.begin(shared);
        Ok(shared.iter().map(|planned| self.trial(planned)).collect())
    }

    fn store(&mut self, trial: &Trial) -> Result<(), LiveError> {
        Ok(self.results.store(trial)?)
    }

    fn undo(&mut self, _: &Planned) -> Result<(), LiveError> {
        Ok(())
    }

    fn stop_requested(&self) -> bool {
        self.stop_after.is_some_and(|trials| self.begun >= trials)
    }

    fn invalid_trials(&mut self, block: u32) -> Vec<Invalid> {
        self.results.invalid_trials(block)
    }

    fn outgrown(&mut self, block: u32) -> Option<String> {
        self.results.outgrown(block)
    }

    fn is_precise(&mut self, last: bool) -> bool {
        self.results.is_precise(last)
    }

    fn report_decision(&mut self, decision: Decision<'_>) {
        self.results.report_decision(decision);
    }
}

fn in_words(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::NothingLeft { .. } => "nothing left".to_owned(),
        Event::WorkloadBegins(begins) => format!("{} trials", begins.pace.trials()),
        Event::BlockLimit { blocks } => format!("limit of {blocks} blocks"),
        Event::Begins { planned, condition } if planned.len() > 1 => format!("weave {condition}"),
        Event::Warns(warning) => warning.to_string(),
        Event::WidthChecked { width, precision } => width.describe(*precision),
        Event::Decided { decision, condition } => match decision {
            Decision::Repeats { why, .. } => format!("repeat {condition}: {why}"),
            Decision::RepeatsBaseline { .. } => format!("repeat {condition} beside it"),
            Decision::Excludes { why, .. } => format!("exclude {condition}: {why}"),
            Decision::FurtherBlock { block, .. } => format!("block {block}"),
        },
        _ => return None,
    })
}
