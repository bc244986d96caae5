//! The runner on real servers: targets, treatments, journal and store of an experiment.
//!
//! Next: [`check`] prepares the cells; `forcing` applies conditions; `joint` runs cells of several servers; `calibrate`
//! chooses the length of woven slices; `session` renews admin sessions, and journals and drops tables
//! of the workloads.

mod calibrate;
mod check;
mod forcing;
mod joint;
mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use pgio_connect::{ConnectError, interrupt};
use pgio_results::Warning;
use pgio_results::change::Change;
use pgio_results::model::{Outcome, Trial};
use pgio_results::store::StoreError;

use self::session::{Controlled, context, renew_session};
use super::admin::beside_warning;
use super::companion::{self, Companion, Reservation, WindowStart};
use super::event::Event;
use super::plan::{Planned, trial_seed};
use super::reset::{self, ResetEvent};
use super::results::{Results, place};
use super::run::{Decision, Invalid, Runner};
use super::target::{ResetPlan, Target};
use super::trial::{self, Request, WovenBlock};
use crate::config::experiment::HostSpec;
use crate::dataset::DatasetError;
use crate::exit_code::{CONNECT, FILES, HasExitCode, REFUSED, TRIAL, UNFINISHED};
use crate::host::Hosts;
use crate::host::stop::Stop;
use crate::pg::leftovers::LiveRun;
use crate::pg::server::ServerError;
use crate::treatment::journal::Journal;
use crate::treatment::{self, InForce, Resource, TreatmentError};
use crate::workload::{EngineError, Generator};

pub use self::check::{CheckedCells, LiveCell, check, touched, touched_before_check};
pub use self::forcing::FurtherServers;
pub(crate) use self::session::{end_table_journal, table_journal};

/// An experiment on real servers.
pub struct Live<'a> {
    pub run_id: String,
    pub targets: BTreeMap<String, Target>,
    /// Connected hosts.
    pub hosts: Hosts,
    /// How hosts are reached, for the journal.
    pub host_specs: BTreeMap<String, HostSpec>,
    /// Filled by [`Live::check`].
    pub checked: CheckedCells,
    /// Treatments in force during the current trial.
    pub in_force: Vec<Box<dyn InForce>>,
    /// What runs beside the trials.
    pub companions: Vec<Box<dyn Companion>>,
    /// Treatments in force on further servers of the condition, with their journals.
    pub further_servers: FurtherServers,
    /// The workload's name in the file and the experiment's seed, from which each trial's seed is derived.
    pub workload: String,
    pub seed: u64,
    pub warmup: Duration,
    pub journal: Journal,
    /// Tables that workloads create in a database of the user's, by target.
    pub table_journals: BTreeMap<String, Journal>,
    /// The directory of such journals.
    pub table_journal_dir: PathBuf,
    pub stop: Stop,
    /// Which processes generate the load of each target; those not named: this one alone.
    pub generators: BTreeMap<String, Generator>,
    /// What the loop stores and decides; needs no server.
    pub results: Results<'a>,
}

impl std::fmt::Debug for Live<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Live({})", self.results.experiment)
    }
}

impl Live<'_> {
    /// Returns resources that may be changed, as far as known before the checks.
    pub fn touched_before_check(&mut self) -> BTreeSet<Resource> {
        touched_before_check(&self.results.cells, &mut self.targets, &self.hosts, &self.stop)
    }

    /// Runs [`check`] for all cells. Returns the resources whose changes must be undone even
    /// after a kill.
    pub fn check(&mut self) -> Result<BTreeSet<Resource>, LiveError> {
        let reserved: Vec<Reservation> =
            self.companions.iter().flat_map(|companion| companion.reservations()).collect();
        let (hosts, rules, stop) = (&self.hosts, &self.results.rules, &self.stop);
        self.checked =
            check(&self.results.cells, &mut self.targets, hosts, rules, &reserved, stop)?;
        Ok(touched(&self.targets))
    }

    /// Refuses other runs where one of the two changes the server. Returns warnings about the others.
    pub fn refuse_other_runs(&mut self) -> Result<Vec<Warning>, LiveError> {
        let mut warnings = Vec::new();
        for target in self.targets.values_mut() {
            let beside = target.refuse_other_runs(&self.run_id)?;
            warnings.extend(beside_warning(&beside, &target.params.describe()));
        }
        Ok(warnings)
    }

    /// Notes the tables that workloads will create, for `undo`, before they are created.
    pub fn journal_tables(&mut self) -> Result<(), LiveError> {
        let (dir, run_id, experiment) =
            (&self.table_journal_dir, &self.run_id, &self.results.experiment);
        session::journal_tables(&self.targets, dir, run_id, experiment, &mut self.table_journals)?;
        let mut companions = self.companions.iter_mut();
        companions.try_for_each(|companion| companion.journal(dir, experiment))
    }

    /// Removes tables that the workloads and their companions created.
    pub fn clean_up(&mut self) {
        session::drop_tables(&mut self.targets, &mut self.table_journals, &self.run_id, &self.stop);
        self.companions.iter_mut().for_each(|companion| companion.clean_up());
    }

    /// Removes the journal unless changes are still in place.
    pub fn finish(&mut self) -> Result<(), LiveError> {
        let journal = std::mem::replace(&mut self.journal, Journal::in_memory(&self.run_id));
        let mut all = Ok(());
        for journal in std::iter::once(journal).chain(self.further_servers.take_journals()) {
            all = all.and(journal.finish());
        }
        all.map_err(|source| LiveError::Treatment {
            condition: self.results.experiment.clone(),
            source: Box::new(source.into()),
        })
    }

    /// Runs planned trials, several of them in a woven window; keeps samples and output for the next
    /// [`Runner::store`].
    fn measure(
        &mut self,
        shared: &[Planned],
        mut in_force: Vec<Vec<Box<dyn InForce>>>,
    ) -> Vec<Trial> {
        let title = self.results.title(shared);
        let cells = &self.results.cells;
        let first = &cells[shared[0].cell];
        let target = self.targets.get_mut(&first.target).expect("conditions name known targets");
        let declared: Vec<Vec<Change>> =
            shared.iter().map(|p| treatment::changes(&cells[p.cell].treatments)).collect();
        // In a woven window all sessions work through all conditions: there is one stream of work.
        let Planned { block, attempt, .. } = shared[0];
        let seed = trial_seed(self.seed, &self.workload, &first.cell, block, attempt);
        let condition = &first.cell.condition;
        let beside = companion::begin(&self.companions, condition, seed, &self.stop);
        if let Some(sources) = &mut target.sources {
            sources.watch_neighbors(companion::backends(&beside));
        }
        let mut window = WindowStart::default();
        let requests = shared.iter().zip(&declared).map(|(planned, declared)| {
            let cell = &cells[planned.cell];
            let prepared = self.checked.prepared[planned.cell].iter();
            Request {
                run_id: &self.run_id,
                place: Some(place(&self.results.experiment, cell, planned)),
                params: &target.params,
                server: &target.server,
                workload: &target.workloads[cell.work],
                declared,
                reads_settings: self.checked.any_session_settings,
                session_settings: prepared.flat_map(|p| p.session_settings()).collect(),
                warmup: self.warmup,
                checkpoint: self.results.rules.checkpoint,
                seed,
                stop: &self.stop,
                sources: target.sources.as_ref(),
                hosts: &self.hosts,
                server_host: target.host.as_deref(),
                private: target.cluster.is_some(),
                member: None,
                generator: self.generators.get(&first.target).cloned().unwrap_or_default(),
            }
        });
        let requests: Vec<Request<'_>> = requests.collect();
        let observe = &mut *self.results.observe;
        let mut progress = |progress| {
            window.note(&progress);
            observe(Event::Progress { condition: &title, progress });
        };
        let admin = &mut target.admin;
        let mut trials = match requests.as_slice() {
            [request] => {
                let measured = trial::run(request, &mut in_force[0], admin, &mut progress);
                (self.results.series, self.results.output) = (measured.series, measured.output);
                vec![measured.trial]
            }
            _ => {
                let slice = self.checked.weave.expect("only woven trials share a window");
                let block = WovenBlock { requests, slice };
                let measured = trial::run_woven(&block, &mut in_force, admin, &mut progress);
                self.results.series = measured.series;
                measured.trials
            }
        };
        if let [trial] = trials.as_mut_slice() {
            let number = self.results.stored.trials.len() + 1;
            if let Outcome::Failed { error } = &mut trial.outcome {
                error.push_str(&trial::full_output(&self.results.output, number));
            }
            let output = companion::end(beside, window, &self.stop, number, trial);
            self.results.output.extend(output);
        }
        for (planned, trial) in shared.iter().zip(&mut trials) {
            self.results.end(planned, trial, target.device.as_deref());
        }
        // What is in force lasts until it is undone.
        self.in_force = in_force.into_iter().flatten().collect();
        trials
    }

    fn reconnect(&mut self, name: &str) -> Result<(), LiveError> {
        let target = self.targets.get_mut(name).expect("conditions name known targets");
        if target.admin.is_closed() { renew_session(target, &self.run_id) } else { Ok(()) }
    }
}

impl Runner for Live<'_> {
    type Error = LiveError;

    fn reset(&mut self, planned: &Planned) -> Result<(), LiveError> {
        let cell = &self.results.cells[planned.cell];
        let title = cell.title.clone();
        let names: Vec<String> = cell.targets().cloned().collect();
        for name in &names {
            self.reconnect(name)?;
            let target = self.targets.get_mut(name).expect("conditions name known targets");
            if matches!(target.reset, ResetPlan::Checkpoint) {
                continue;
            }
            (self.results.observe)(Event::Resets { planned, condition: &title });
            let (dir, run_id) = (&self.table_journal_dir, &self.run_id);
            let journal = session::reset_journal(dir, run_id, name, target)?;
            let observe = &mut *self.results.observe;
            reset::perform(target, run_id, journal, &self.stop, &mut |event| match event {
                ResetEvent::Loads => observe(Event::Resets { planned, condition: &title }),
                ResetEvent::Warns(warning) => observe(Event::Warns(&warning)),
            })?;
        }
        Ok(())
    }

    fn put_in_force(&mut self, planned: &Planned) -> Result<(), LiveError> {
        let names: Vec<String> = self.results.cells[planned.cell].targets().cloned().collect();
        names.iter().try_for_each(|name| self.reconnect(name))?;
        self.results.begin(std::slice::from_ref(planned));
        names.iter().try_for_each(|name| self.force(planned.cell, name))
    }

    fn weaves(&self) -> bool {
        self.checked.weave.is_some()
    }

    fn weave(&mut self, shared: &[Planned]) -> Result<Vec<Trial>, LiveError> {
        let name = self.results.cells[shared[0].cell].target.clone();
        self.reconnect(&name)?;
        let target = self.targets.get_mut(&name).expect("conditions name known targets");
        self.results.begin(shared);
        let mut in_force = Vec::new();
        for planned in shared {
            let mut control = Controlled::new(target);
            let mut context = context(target, &mut control, &self.hosts, &self.stop);
            let prepared = &self.checked.prepared[planned.cell];
            let mut own = Vec::new();
            // These treatments change nothing but settings of sessions: there are no steps to undo.
            treatment::put_in_force(prepared, &mut context, &mut self.journal, &mut own).map_err(
                |source| LiveError::Treatment {
                    condition: self.results.cells[planned.cell].title.clone(),
                    source: Box::new(source),
                },
            )?;
            in_force.push(own);
        }
        Ok(self.measure(shared, in_force))
    }

    fn run_trial(&mut self, planned: &Planned) -> Trial {
        if !self.results.cells[planned.cell].further_targets.is_empty() {
            return self.joint_trial(planned);
        }
        let in_force = std::mem::take(&mut self.in_force);
        let mut trials = self.measure(&[*planned], vec![in_force]);
        let mut trial = trials.pop().expect("one trial was planned");
        if self.compares_servers() {
            self.add_own_metrics(&mut trial, &self.results.cells[planned.cell].target);
        }
        trial
    }

    fn store(&mut self, trial: &Trial) -> Result<(), LiveError> {
        Ok(self.results.store(trial)?)
    }

    fn undo(&mut self, planned: &Planned) -> Result<(), LiveError> {
        let names: Vec<String> = self.results.cells[planned.cell].targets().cloned().collect();
        let mut all = Ok(());
        // Undo on the first server last: it holds what all of them share. After an error, the others are still
        // undone.
        for name in names.iter().rev() {
            all = all.and(self.release(planned.cell, name));
        }
        all
    }

    fn stop_requested(&self) -> bool {
        self.stop.requested()
    }

    fn is_stop(error: &LiveError) -> bool {
        match error {
            LiveError::Treatment { source, .. } if matches!(**source, TreatmentError::Stopped) => {
                true
            }
            LiveError::Store(_) => false,
            // The error of a session that was cut off counts as a stop.
            _ => interrupt::was_cut(),
        }
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

#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    #[error("condition `{condition}`")]
    Treatment { condition: String, source: Box<TreatmentError> },
    #[error("condition `{condition}`")]
    Settings { condition: String, source: Box<EngineError> },
    /// `beside` names the companions that need connections as well, if any.
    #[error("condition `{condition}`{beside}")]
    Room { condition: String, beside: String, source: Box<EngineError> },
    #[error("condition `{condition}`: {why}")]
    Cycles { condition: String, why: String },
    #[error("condition `{condition}` cannot run on its targets in one window: {why}")]
    Joint { condition: String, why: String },
    #[error("cannot weave the conditions: {0}; set weave = false")]
    Weave(String),
    #[error("cannot weave the conditions: {0}; name a longer slice, or use \"auto\" or false")]
    ShortSlices(String),
    #[error(
        "manifest.json is damaged: slice_seconds is not a valid duration; start a new run in another directory"
    )]
    StoredSlice,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("lost the connection to the server")]
    ConnectionLost(#[source] ConnectError),
    #[error("a new session leads to another server")]
    OtherServer(#[source] Box<TreatmentError>),
    #[error(
        "the server came back as PostgreSQL {found} in place of {before}: its program was replaced during the run, so start a new experiment"
    )]
    OtherVersion { before: String, found: String },
    #[error("{}: wait until it ends, or interrupt it (Ctrl-C, `kill -INT`)", listed(.0))]
    OtherRuns(Vec<LiveRun>),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error("cannot prepare the server")]
    Postgres(#[from] pgio_connect::Error),
}

impl HasExitCode for LiveError {
    fn code(&self) -> u8 {
        match self {
            LiveError::Treatment { source, .. } | LiveError::OtherServer(source) => source.code(),
            LiveError::Store(_) => FILES,
            LiveError::Connect(source) => source.code(),
            LiveError::ConnectionLost(_) => CONNECT,
            LiveError::OtherRuns(runs) if runs.iter().any(|run| run.changes_server) => UNFINISHED,
            LiveError::OtherRuns(_) => REFUSED,
            LiveError::StoredSlice => FILES,
            LiveError::Server(_)
            | LiveError::OtherVersion { .. }
            | LiveError::Cycles { .. }
            | LiveError::Joint { .. }
            | LiveError::Weave(_)
            | LiveError::ShortSlices(_) => REFUSED,
            LiveError::Engine(source) => source.code(),
            LiveError::Settings { source, .. } | LiveError::Room { source, .. } => source.code(),
            LiveError::Dataset(source) => source.code(),
            LiveError::Postgres(_) => TRIAL,
        }
    }
}

fn listed(runs: &[LiveRun]) -> String {
    runs.iter().map(LiveRun::to_string).collect::<Vec<_>>().join("; ")
}
