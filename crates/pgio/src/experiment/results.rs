//! The results of a workload under way: stores its trials, and decides from what is stored what the loop asks.
//!
//! Needs no server: `live` measures on real servers and keeps its trials here, as the scripted runner of the tests does
//! with trials that it makes up. Next: `judging` has the rules.

use super::event::Event;
use super::judging::{self, Judge, WidthChecks};
use super::live::LiveCell;
use super::plan::Planned;
use super::run::{Decision, Invalid};
use super::trial::OutputFiles;
use super::trial_checks;
use crate::config::experiment::Rules;
use pgio_results::checks::{self, DATA_DRIFT};
use pgio_results::model::{Outcome, Trial, TrialPosition};
use pgio_results::points::Cell;
use pgio_results::store::{Appended, Store, StoreError, StoredExperiment};
use pgio_results::telemetry::Series;
use pgio_verdict as analysis;
use pgio_verdict::resolution;

pub struct Results<'a> {
    pub experiment: String,
    pub cells: Vec<LiveCell>,
    pub rules: Rules,
    /// Created only after the checks: a refused experiment creates no directory.
    pub store: Option<Store>,
    /// Samples of the trial to be stored next.
    pub series: Option<Series>,
    /// Output of its program, and of those beside it.
    pub output: OutputFiles,
    /// Stored results, for judging.
    pub stored: StoredExperiment,
    /// The judged part of them.
    judge: Judge,
    /// Schedule for checking the intervals.
    width_checks: WidthChecks,
    pub observe: &'a mut dyn FnMut(Event<'_>),
}

impl std::fmt::Debug for Results<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Results({})", self.experiment)
    }
}

impl<'a> Results<'a> {
    /// `store` is open if the run continues an earlier one, whose results are `stored`.
    pub fn new(
        experiment: String,
        cells: Vec<LiveCell>,
        rules: Rules,
        store: Option<Store>,
        stored: StoredExperiment,
        observe: &'a mut dyn FnMut(Event<'_>),
    ) -> Results<'a> {
        let (judge, width_checks) =
            (Judge::new(&stored), WidthChecks::starting_at(rules.first_check()));
        let (series, output) = (None, Vec::new());
        Results {
            experiment,
            cells,
            rules,
            store,
            series,
            output,
            stored,
            judge,
            width_checks,
            observe,
        }
    }

    /// Names a trial by its condition, trials of a woven window by their number.
    pub fn title(&self, shared: &[Planned]) -> String {
        match shared {
            [alone] => self.cells[alone.cell].title.clone(),
            _ => format!("{} conditions", shared.len()),
        }
    }

    /// Reports that a trial begins, or all trials of a woven window.
    pub fn begin(&mut self, shared: &[Planned]) {
        let condition = self.title(shared);
        (self.observe)(Event::Begins { planned: shared, condition: &condition });
    }

    /// Adds to a record what only the experiment knows, and reports that its trial ended. `device` is what data and WAL
    /// must lie on.
    pub fn end(&mut self, planned: &Planned, trial: &mut Trial, device: Option<&str>) {
        let cell = &self.cells[planned.cell];
        let added = cell.treatments.iter().filter_map(|t| t.declared().round_trip);
        let added = added.map(|d| d.as_secs_f64()).reduce(|a, b| a + b);
        // Each server of a joint window has probes of its own, and the same treatments.
        let servers = trial.targets.values_mut().filter_map(|target| target.telemetry.as_mut());
        let all = trial.telemetry.iter_mut().chain(servers);
        all.filter_map(|t| t.probes.as_mut()).for_each(|probes| probes.link_seconds = added);
        if let (Some(device), Outcome::Complete) = (device, &trial.outcome) {
            trial.checks.push(trial_checks::storage(trial, device));
        }
        for check in &mut trial.checks {
            checks::tolerate(check, &self.rules.tolerate);
        }
        (self.observe)(Event::Ended { planned, trial });
    }

    pub fn store(&mut self, trial: &Trial) -> Result<(), StoreError> {
        let store = self.store.as_mut().expect("the loop begins only after the store is made");
        let (series, output) = (self.series.take(), std::mem::take(&mut self.output));
        let output: Vec<(&str, &str)> =
            output.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let Appended { mut trial, left_out } =
            store.append_with(trial, series.as_ref(), &output)?;
        self.judge.add(&self.stored.manifest, self.stored.trials.len(), &trial);
        let computes_intervals = self.rules.precision.is_some();
        judging::keep_judged(&mut trial, computes_intervals);
        trial.share_environment(self.stored.trials.iter().rev().take(self.cells.len()));
        // What a run keeps of its trials must not grow with their number.
        let block = |trial: &Trial| trial.place.as_ref().map(|place| place.block);
        let last = self.stored.trials.last().and_then(block);
        if !computes_intervals && last != block(&trial) {
            let over = self.stored.trials.iter_mut().rev();
            over.take_while(|trial| block(trial) == last).for_each(judging::keep_place);
        }
        self.stored.trials.push(trial);
        left_out.map_or(Ok(()), Err)
    }

    pub fn invalid_trials(&self, block: u32) -> Vec<Invalid> {
        let cells: Vec<Cell> = self.cells.iter().map(|cell| cell.cell.clone()).collect();
        self.judge.invalid(&self.stored, block, &cells)
    }

    pub fn outgrown(&self, block: u32) -> Option<String> {
        let invalid = self.invalid_trials(block).into_iter();
        invalid.filter(|i| i.checks.iter().any(|id| id == DATA_DRIFT)).map(|i| i.why).next_back()
    }

    pub fn is_precise(&mut self, last: bool) -> bool {
        let Some(precision) = self.rules.precision else { return true };
        let block = self.stored.trials.iter().rev().find_map(|t| t.place.as_ref()).map(|p| p.block);
        if !last && !self.width_checks.is_due(block.unwrap_or(0)) {
            return false;
        }
        // With one condition there is no effect to estimate.
        let Some(width) = resolution::width(&analysis::primary_comparisons(&self.stored)) else {
            return true;
        };
        self.width_checks.schedule_next(block.unwrap_or(0), &width, precision);
        (self.observe)(Event::WidthChecked { width: &width, precision });
        width.is_within(precision)
    }

    pub fn report_decision(&mut self, decision: Decision<'_>) {
        let condition = match decision {
            Decision::Repeats { planned, .. }
            | Decision::RepeatsBaseline { planned }
            | Decision::Excludes { planned, .. } => self.cells[planned.cell].title.as_str(),
            Decision::FurtherBlock { .. } => "",
        };
        (self.observe)(Event::Decided { decision, condition });
    }
}

/// Returns the place of a trial in its experiment.
pub fn place(experiment: &str, cell: &LiveCell, planned: &Planned) -> TrialPosition {
    TrialPosition {
        experiment: experiment.to_owned(),
        condition: cell.cell.condition.clone(),
        block: planned.block,
        position: planned.position,
        attempt: planned.attempt,
        point: cell.cell.point.clone(),
    }
}
