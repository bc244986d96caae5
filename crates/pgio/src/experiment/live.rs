//! The stage on real servers: an experiment's targets, treatments, journal and store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::admin::open_admin;
use super::controlled::Controlled;
use super::cycles;
use super::error::LiveError;
use super::event::Event;
use super::judging;
use super::plan::{Planned, trial_seed};
use super::reset;
use super::run::{Decision, Invalid, Stage};
use super::target::{ResetPlan, Target};
use super::trial::{self, Request};
use super::trial_checks;
use crate::analysis;
use crate::analysis::width;
use crate::config::experiment::{Checkpoint, HostSpec, Rules};
use crate::host::Hosts;
use crate::host::stop::Stop;
use crate::pg::interrupt;
use crate::results::checks;
use crate::results::model::{Outcome, Trial, TrialPosition, Warning};
use crate::results::series::Series;
use crate::results::store::{Store, StoredExperiment};
use crate::results::sweep::Cell;
use crate::treatment::journal::{Journal, UndoTarget};
use crate::treatment::{
    self, AdminSession, Context, Control, InForce, Layout, OnConflict, Prepared, Record, Resource,
    Restored, TreatmentError, Treatments, Undone, workload_table,
};
use crate::workload;
use crate::workload::command::ProgramOutput;

/// For a server to say at the end that it is still there.
const CLEAN_UP: Duration = Duration::from_secs(10);
const CLEAN_UP_STOPPED: Duration = Duration::from_secs(2);

/// A condition at a point of the sweep, ready to be run; the A/A twin is one of its own.
#[derive(Debug)]
pub struct LiveCell {
    pub cell: Cell,
    /// What people call it: the condition, and where the point is not the middle one.
    pub title: String,
    pub target: String,
    pub treatments: Treatments,
    /// Index into the target's workloads.
    pub work: usize,
}

/// What [`check`] leaves for the trials.
#[derive(Debug, Default)]
pub struct CheckedCells {
    /// Of each cell.
    prepared: Vec<Vec<Box<dyn Prepared>>>,
    /// A tablespace comes and goes without a restart.
    any_tablespace: bool,
}

pub struct Live<'a> {
    pub run_id: String,
    pub experiment: String,
    pub targets: BTreeMap<String, Target>,
    /// Reached.
    pub hosts: Hosts,
    /// How, for the journal.
    pub host_specs: BTreeMap<String, HostSpec>,
    pub cells: Vec<LiveCell>,
    /// Filled by [`Live::check`].
    pub checked: CheckedCells,
    /// What the present trial put in force.
    pub in_force: Vec<Box<dyn InForce>>,
    /// The workload's name in the file, and the experiment's seed: of these each trial's is made.
    pub workload: String,
    pub seed: u64,
    pub warmup: Duration,
    pub rules: Rules,
    pub journal: Journal,
    /// By target: what the workloads make for themselves in a database of the user's.
    pub made: BTreeMap<String, Journal>,
    /// Made only after `check`: a refused experiment leaves no directory.
    pub store: Option<Store>,
    /// The samples of the trial that is stored next.
    pub series: Option<Series>,
    /// What its program wrote.
    pub left: Option<Box<ProgramOutput>>,
    /// What is in the store, for judging.
    pub stored: StoredExperiment,
    /// The same, as far as it has been judged.
    pub judge: judging::Judge,
    /// When the intervals are looked at next.
    pub looks: judging::Looks,
    pub stop: Stop,
    pub observe: &'a mut dyn FnMut(Event<'_>),
}

impl std::fmt::Debug for Live<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Live({})", self.experiment)
    }
}

/// Refuses, before anything is changed, what could not work; cells of targets that are not among these
/// are passed over. Notes with each target what may be changed that has to be put back even after a kill.
pub fn check(
    cells: &[LiveCell],
    targets: &mut BTreeMap<String, Target>,
    hosts: &Hosts,
    rules: &Rules,
    stop: &Stop,
) -> Result<CheckedCells, LiveError> {
    let mut all = CheckedCells::default();
    for cell in cells {
        let Some(target) = targets.get_mut(&cell.target) else {
            all.prepared.push(Vec::new());
            continue;
        };
        let mut control = Controlled::of(target);
        let mut context = context(target, &mut control, hosts, stop);
        let checked = treatment::check_all(&cell.treatments, &mut context);
        all.any_tablespace |= context.layout.moved.iter().any(|moved| moved.is_tablespace);
        let checked = checked.map_err(|source| LiveError::Treatment {
            condition: cell.title.clone(),
            source: Box::new(source),
        })?;
        target.note(checked.touches);
        all.prepared.push(checked.prepared);
        // What a condition of its own number has room for is known in its trials only.
        if !treatment::declares(&cell.treatments, "max_connections") {
            let needed = target.workloads[cell.work].connections();
            let room = workload::wait_for_room(&mut target.admin, needed, stop);
            room.map_err(|source| LiveError::Room {
                condition: cell.title.clone(),
                source: Box::new(source),
            })?;
        }
        if rules.checkpoint == Checkpoint::Spread {
            let declared = treatment::declared_value(&cell.treatments, "checkpoint_timeout");
            let timeout = cycles::timeout(&mut target.admin, declared.as_deref())?;
            cycles::whole(target.workloads[cell.work].extent(), timeout)
                .map_err(|why| LiveError::Cycles { condition: cell.title.clone(), why })?;
        }
    }
    for target in targets.values_mut() {
        target.reset = reset::prepare(&rules.reset, target)?;
    }
    Ok(all)
}

impl Live<'_> {
    /// What may be changed, as far as it is known before anything is checked.
    pub fn touched_before_check(&mut self) -> BTreeSet<Resource> {
        for cell in &self.cells {
            let target = self.targets.get_mut(&cell.target).expect("conditions name known targets");
            let mut control = Controlled::of(target);
            let mut context = context(target, &mut control, &self.hosts, &self.stop);
            let touches = treatment::touched_before_check(&cell.treatments, &mut context);
            target.note(touches);
        }
        self.touched()
    }

    fn touched(&self) -> BTreeSet<Resource> {
        self.targets.values().flat_map(|target| target.touches.iter().cloned()).collect()
    }

    /// As [`check`], for all that is to be run. Returns what may be changed that has to be put back even
    /// after a kill.
    pub fn check(&mut self) -> Result<BTreeSet<Resource>, LiveError> {
        self.checked = check(&self.cells, &mut self.targets, &self.hosts, &self.rules, &self.stop)?;
        Ok(self.touched())
    }

    /// Before anything is made: notes what the workloads make for themselves, for `undo`.
    pub fn note_made(&mut self, dir: &Path) -> Result<(), LiveError> {
        for (at, (name, target)) in self.targets.iter().enumerate() {
            let makes = target.workloads.first().and_then(|workload| workload.makes());
            let Some((schema, table, mark)) = makes.filter(|_| target.cluster.is_none()) else {
                continue;
            };
            let mut journal = Journal::new(dir, &format!("{}-{at}", self.run_id));
            let connect = target.params.without_secrets();
            let touches = vec![target.identity.clone()];
            let experiment = self.experiment.clone();
            let noted = journal
                .set_target(UndoTarget { connect, experiment, touches, ..UndoTarget::default() })
                .and_then(|()| journal.intent(&workload_table::step(&schema, table, mark)));
            noted.map_err(|source| LiveError::Treatment {
                condition: self.experiment.clone(),
                source: Box::new(source.into()),
            })?;
            self.made.insert(name.clone(), journal);
        }
        Ok(())
    }

    /// Removes what the workloads made for themselves.
    pub fn clean_up(&mut self) {
        let _restoring = self.stop.restoring();
        interrupt::settle(|| self.stop.urgent());
        let limit = if self.stop.requested() { CLEAN_UP_STOPPED } else { CLEAN_UP };
        for (name, target) in &mut self.targets {
            if !interrupt::within(limit, || answers(target, &self.run_id, limit)) {
                continue;
            }
            // A server that is gone keeps a table with our mark, which `undo` and `destroy` find.
            let mut gone = true;
            for workload in &target.workloads {
                gone &= workload.clean_up(&mut target.admin).is_ok();
            }
            if let Some(mut journal) = self.made.remove(name).filter(|_| gone) {
                // An undo finds nothing of it, and that is no harm.
                let steps = journal.open_steps().into_iter();
                steps.for_each(|(number, _)| drop(journal.undone(number)));
                let _ = journal.finish();
            }
        }
    }

    /// Removes the journal, unless something is left to be taken back.
    pub fn finish(&mut self) -> Result<(), LiveError> {
        let journal = std::mem::replace(&mut self.journal, Journal::in_memory(&self.run_id));
        journal.finish().map_err(|source| LiveError::Treatment {
            condition: self.experiment.clone(),
            source: Box::new(source.into()),
        })
    }

    fn reconnect(&mut self, name: &str) -> Result<(), LiveError> {
        let target = self.targets.get_mut(name).expect("conditions name known targets");
        match target.admin.is_closed() {
            true => renew(target, &self.run_id),
            false => Ok(()),
        }
    }
}

/// Whether the server can be asked for something now, by a new session where the former one ended.
fn answers(target: &mut Target, run_id: &str, limit: Duration) -> bool {
    if !target.admin.is_closed() && target.admin.is_valid(limit).is_ok() {
        return true;
    }
    // Or dropping the session would wait for the answer that does not come.
    interrupt::cut_all();
    renew(target, run_id).is_ok()
}

/// A session in place of one that ended, which says again that the run lives.
fn renew(target: &mut Target, run_id: &str) -> Result<(), LiveError> {
    let (admin, _) = open_admin(&target.params, run_id).map_err(|error| match error {
        LiveError::Connect(source) => LiveError::Gone(source),
        other => other,
    })?;
    target.admin = admin;
    refresh_storage(target);
    Ok(())
}

fn refresh_storage(target: &mut Target) {
    if let Some(sources) = &mut target.sources {
        sources.refresh_storage(&mut target.admin);
    }
}

/// Where all is that a failed program wrote; nothing where it wrote nothing.
fn where_it_is(left: &ProgramOutput, number: usize) -> String {
    let streams = [("stderr", &left.stderr), ("stdout", &left.stdout)];
    let kept = streams.iter().filter(|(_, text)| !text.is_empty());
    let files: Vec<String> =
        kept.map(|(stream, _)| format!("output/{number:04}.{stream}")).collect();
    match files.as_slice() {
        [] => String::new(),
        files => format!(" (all that it wrote: {})", files.join(", ")),
    }
}

fn not_awaited(step: &Record) -> Warning {
    Warning::new(
        format!("{step} was restored; pgio did not wait for follow-up work such as a resync"),
        "pgio was asked to leave at once",
        "see that it is as it was before, such as by the program that shows its state",
    )
}

fn rewritten(step: &Record) -> Warning {
    Warning::new(
        format!("{step} is put back, and its file is not byte for byte as it was"),
        treatment::REWRITTEN,
        "write the comments again where they are wanted",
    )
}

fn context<'a>(
    target: &'a mut Target,
    control: &'a mut Option<Controlled>,
    hosts: &'a Hosts,
    stop: &Stop,
) -> Context<'a> {
    Context {
        params: &target.params,
        session: AdminSession::Open(&mut target.admin),
        hosts,
        server_host: target.host.as_deref(),
        private: target.cluster.is_some(),
        control: control.as_mut().map(|c| c as &mut dyn Control),
        layout: Layout::default(),
        stop: stop.clone(),
    }
}

impl Stage for Live<'_> {
    type Error = LiveError;

    fn reset(&mut self, planned: &Planned) -> Result<(), LiveError> {
        let cell = &self.cells[planned.cell];
        let (name, title) = (cell.target.clone(), cell.title.clone());
        self.reconnect(&name)?;
        let target = self.targets.get_mut(&name).expect("conditions name known targets");
        if matches!(target.reset, ResetPlan::Checkpoint) {
            return Ok(());
        }
        (self.observe)(Event::Resets { planned, condition: &title });
        let observe = &mut *self.observe;
        let mut tick = || observe(Event::Resets { planned, condition: &title });
        for warning in reset::perform(target, &self.run_id, &self.stop, &mut tick)? {
            (self.observe)(Event::Warns(&warning));
        }
        Ok(())
    }

    fn put_in_force(&mut self, planned: &Planned) -> Result<(), LiveError> {
        let name = self.cells[planned.cell].target.clone();
        self.reconnect(&name)?;
        let cell = &self.cells[planned.cell];
        (self.observe)(Event::Begins { planned, condition: &cell.title });
        let target = self.targets.get_mut(&name).expect("conditions name known targets");
        let mut control = Controlled::of(target);
        let private = target.cluster.is_some();
        let undo_target = UndoTarget {
            connect: if private { String::new() } else { target.params.without_secrets() },
            private,
            hosts: self
                .host_specs
                .iter()
                .map(|(name, spec)| (name.clone(), spec.absolute()))
                .collect(),
            control: target.control.as_ref().map(|c| c.plan().clone()),
            experiment: self.experiment.clone(),
            touches: target.touches.iter().cloned().collect(),
        };
        let mut context = context(target, &mut control, &self.hosts, &self.stop);
        let turned = self.journal.set_target(undo_target).map_err(TreatmentError::from);
        let prepared = &self.checked.prepared[planned.cell];
        let (journal, in_force) = (&mut self.journal, &mut self.in_force);
        let put = |()| treatment::put_in_force(prepared, &mut context, journal, in_force);
        turned.and_then(put).map_err(|source| LiveError::Treatment {
            condition: cell.title.clone(),
            source: Box::new(source),
        })?;
        if Controlled::restarted(control.as_ref()) {
            return renew(target, &self.run_id);
        }
        // The trial before this one may have had a tablespace.
        if self.checked.any_tablespace {
            refresh_storage(target);
        }
        Ok(())
    }

    fn trial(&mut self, planned: &Planned) -> Trial {
        let cell = &self.cells[planned.cell];
        let target = self.targets.get_mut(&cell.target).expect("conditions name known targets");
        let place = TrialPosition {
            experiment: self.experiment.clone(),
            condition: cell.cell.condition.clone(),
            block: planned.block,
            position: planned.position,
            attempt: planned.attempt,
            point: cell.cell.point.clone(),
        };
        let prepared = self.checked.prepared[planned.cell].iter();
        let session_settings = prepared.flat_map(|p| p.session_settings()).collect();
        let declared = treatment::changes(&cell.treatments);
        let request = Request {
            run_id: &self.run_id,
            place: Some(place),
            params: &target.params,
            server: &target.server,
            workload: &target.workloads[cell.work],
            declared: &declared,
            session_settings,
            warmup: self.warmup,
            checkpoint: self.rules.checkpoint,
            seed: trial_seed(self.seed, &self.workload, &cell.cell, planned.block, planned.attempt),
            stop: &self.stop,
            sources: target.sources.as_ref(),
            hosts: &self.hosts,
            server_host: target.host.as_deref(),
            private: target.cluster.is_some(),
        };
        let observe = &mut *self.observe;
        let mut observe = |progress| {
            observe(Event::Progress { condition: &cell.title, progress });
        };
        let (in_force, admin) = (&mut self.in_force[..], &mut target.admin);
        let measured = trial::run(&request, in_force, admin, &mut observe);
        self.series = measured.series;
        self.left = measured.left;
        let mut trial = measured.trial;
        if let (Outcome::Failed { error }, Some(left)) = (&mut trial.outcome, &self.left) {
            let number = self.stored.trials.len() + 1;
            error.push_str(&where_it_is(left, number));
        }
        let added = cell.treatments.iter().filter_map(|t| t.declared().round_trip);
        if let Some(probes) = trial.telemetry.as_mut().and_then(|t| t.probes.as_mut()) {
            probes.link_seconds = added.map(|d| d.as_secs_f64()).reduce(|a, b| a + b);
        }
        if let (Some(device), Outcome::Complete) = (&target.device, &trial.outcome) {
            trial.checks.push(trial_checks::storage(&trial, device));
        }
        for check in &mut trial.checks {
            checks::tolerate(check, &self.rules.tolerate);
        }
        (self.observe)(Event::Ended { planned, trial: &trial });
        trial
    }

    fn store(&mut self, trial: &Trial) -> Result<(), LiveError> {
        let store = self.store.as_mut().expect("the loop begins only after the store is made");
        let series = self.series.take().map(|series| store.write_series(&series)).transpose()?;
        if let Some(left) = self.left.take() {
            store.write_output("stdout", &left.stdout)?;
            store.write_output("stderr", &left.stderr)?;
        }
        let trial = Trial { series, ..trial.clone() };
        store.append(&trial)?;
        self.judge.add(&self.stored.manifest, self.stored.trials.len(), &trial);
        self.stored.trials.push(trial);
        Ok(())
    }

    fn take_back(&mut self, planned: &Planned) -> Result<(), LiveError> {
        if self.journal.open_steps().is_empty() {
            self.in_force.clear();
            return Ok(());
        }
        let name = self.cells[planned.cell].target.clone();
        let _restoring = self.stop.restoring();
        let target = self.targets.get_mut(&name).expect("conditions name known targets");
        let mut control = Controlled::of(target);
        // Not connected first: the server may be down until a step below starts it.
        let mut context = context(target, &mut control, &self.hosts, &self.stop);
        // All hosts are connected; a step on one that is lost meanwhile fails by itself.
        let unreachable = treatment::Unreachable::new();
        let report =
            treatment::undo_all(&mut context, &mut self.journal, OnConflict::Ask, &unreachable);
        let cell = &self.cells[planned.cell];
        let undone = report.complete().map_err(|source| LiveError::Treatment {
            condition: cell.title.clone(),
            source: Box::new(source),
        })?;
        for Restored { step, undone, .. } in &undone {
            match undone {
                Undone::RestoredNotAwaited => (self.observe)(Event::Warns(&not_awaited(step))),
                Undone::Rewritten => (self.observe)(Event::Warns(&rewritten(step))),
                Undone::Restored | Undone::Kept => {}
            }
        }
        self.in_force.clear();
        match Controlled::restarted(control.as_ref()) {
            true => renew(target, &self.run_id),
            false => Ok(()),
        }
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
            // Whatever a session said that was cut off.
            _ => interrupt::was_cut(),
        }
    }

    fn invalid(&mut self, block: u32) -> Vec<Invalid> {
        let cells: Vec<Cell> = self.cells.iter().map(|cell| cell.cell.clone()).collect();
        self.judge.invalid(&self.stored, block, &cells)
    }

    fn is_precise(&mut self, last: bool) -> bool {
        let Some(precision) = self.rules.precision else { return true };
        let block = self.stored.trials.iter().rev().find_map(|t| t.place.as_ref()).map(|p| p.block);
        if !last && !self.looks.is_due(block.unwrap_or(0)) {
            return false;
        }
        // With one condition there is nothing to be precise about.
        let Some(width) = width::width(&analysis::primary_comparisons(&self.stored)) else {
            return true;
        };
        self.looks.looked(block.unwrap_or(0), &width, precision);
        (self.observe)(Event::Looked { width: &width, precision });
        width.is_within(precision)
    }

    fn decided(&mut self, decision: Decision<'_>) {
        let condition = match decision {
            Decision::Repeats { planned, .. }
            | Decision::Beside { planned }
            | Decision::GivesUp { planned, .. } => self.cells[planned.cell].title.as_str(),
            Decision::FurtherBlock { .. } => "",
        };
        (self.observe)(Event::Decided { decision, condition });
    }
}
