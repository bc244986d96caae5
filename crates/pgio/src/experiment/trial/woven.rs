//! Runs the conditions of one block in a woven window and makes one record for each.
//!
//! What belongs to one condition is its own: work, latencies, counted time, settings as the sessions read
//! them back. What belongs to the window is in every record: environment, telemetry, checkpoints. Rates
//! of the server's counters are left out, since they count all conditions together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use benchmath::carry_over::Slices;
use pgio_connect::Client;

use super::readings::{
    self, EvidencePace, add_new, prepare_and_read_host, prepare_server, read_counters,
    read_dataset, read_end, read_environment, read_environment_again, refuse_unproved,
};
use super::record::{put, record_run};
use super::{Request, new_record, observed, outcome_of};
use crate::experiment::{environment, trial_checks};
use crate::pg::counters::Counters;
use crate::treatment::InForce;
use crate::workload::{
    EngineError, Generator, Participants, Progress, SessionPool, Setup, WeavePlan, WindowEvent,
    WovenCondition, WovenFailure, WovenOutcome,
};
use pgio_results::model::{Check, Evidence, Outcome, Trial, When, Woven};
use pgio_results::telemetry::Series;

/// The conditions of a block that take turns; all on one server with one workload.
#[derive(Debug)]
pub struct WovenBlock<'a> {
    /// At least one; of the first, all that the conditions have in common.
    pub requests: Vec<Request<'a>>,
    /// Mean counted length of a slice.
    pub slice: Duration,
}

impl WovenBlock<'_> {
    fn conditions(&self) -> Vec<String> {
        let name =
            |r: &Request<'_>| r.place.as_ref().map(|p| p.condition.clone()).unwrap_or_default();
        self.requests.iter().map(name).collect()
    }
}

/// The result of a block.
#[derive(Debug)]
pub struct WovenResult {
    /// In the order of the requests.
    pub trials: Vec<Trial>,
    /// The samples of telemetry of the whole window, if any.
    pub series: Option<Series>,
}

/// Runs the block. `in_force` are the treatments of each condition.
pub fn run(
    block: &WovenBlock<'_>,
    in_force: &mut [Vec<Box<dyn InForce>>],
    admin: &mut Client,
    observe: &mut dyn FnMut(Progress),
) -> WovenResult {
    let trials = block.requests.iter().map(new_record).collect();
    let mut result = WovenResult { trials, series: None };
    let failure = measure(block, in_force, admin, &mut result, observe).err();
    let outcomes = outcomes(&block.conditions(), failure);
    for (at, (trial, (outcome, check))) in result.trials.iter_mut().zip(outcomes).enumerate() {
        let (request, in_force) = (&block.requests[at], &in_force[at]);
        trial.outcome = outcome;
        trial.checks.extend(check);
        trial.checks.extend(request.workload.after_trial(request.stop));
        let waits = request.workload.commits_wait_for_flush();
        trial_checks::judge(trial, result.series.as_ref(), request.declared, waits, in_force);
    }
    result
}

/// Returns the outcome of each condition's trial, and a check if another condition failed. A failure belongs to the
/// condition whose slice it ended, if it did: the trials of the others are invalid, and their shares of failed trials
/// stay their own.
fn outcomes(conditions: &[String], failure: Option<WovenFailure>) -> Vec<(Outcome, Option<Check>)> {
    let (error, failed) = match failure {
        Some(WovenFailure { error, condition }) => (Some(error), condition),
        None => (None, None),
    };
    let outcome = outcome_of(error.as_deref());
    let one = |at: usize| match (&outcome, failed) {
        (Outcome::Failed { error }, Some(failed)) if failed != at => {
            (Outcome::Complete, Some(trial_checks::ended_by(&conditions[failed], error)))
        }
        _ => (outcome.clone(), None),
    };
    (0..conditions.len()).map(one).collect()
}

/// The order of a block. What it measures goes into `kept` step by step, so that a failure loses nothing.
fn measure(
    block: &WovenBlock<'_>,
    in_force: &mut [Vec<Box<dyn InForce>>],
    admin: &mut Client,
    kept: &mut WovenResult,
    observe: &mut dyn FnMut(Progress),
) -> Result<(), WovenFailure> {
    let WovenResult { trials, series } = kept;
    let plan = plan_of(block)?;
    let first = &block.requests[0];
    let server = prepare_server(first, admin)?;
    for (at, trial) in trials.iter_mut().enumerate() {
        server.record(trial);
        trial.evidence = block.requests[at].verify(&mut in_force[at], admin, When::Before);
    }
    trials.iter().try_for_each(|trial| refuse_unproved(&trial.evidence))?;
    let prepare = || SessionPool::for_weaving(first.workload, setup(first), admin);
    let (ready, host) = prepare_and_read_host(first, prepare)?;
    let window = Duration::try_from_secs_f64(plan.seconds()).ok();
    let mut recorder = observed::start(first, window, admin);
    if let Some(recorder) = &recorder {
        recorder.watch(ready.pids());
    }
    let dataset = read_dataset(first, admin)?;
    let environment = Arc::new(read_environment(host, admin)?);
    for trial in trials.iter_mut() {
        trial.settings = ready.pinned();
        trial.dataset.clone_from(&dataset);
        trial.environment = Arc::clone(&environment);
    }
    let before = read_counters(first, admin, When::Before)?.counters;
    let mut pace = EvidencePace::new();
    let mut seen: Vec<Vec<Evidence>> = vec![Vec::new(); trials.len()];
    let outcome = ready.weave(admin, &plan, &mut |admin, event| match event {
        WindowEvent::Opened(at) => {
            pace.restart(at);
            recorder.iter_mut().for_each(|r| r.opened(at));
        }
        WindowEvent::Closed(at) => recorder.iter_mut().for_each(|r| r.closed(at)),
        WindowEvent::Progress(progress) => {
            pace.read_if_due(|| {
                for (at, seen) in seen.iter_mut().enumerate() {
                    let found = block.requests[at].verify(&mut in_force[at], admin, When::During);
                    add_new(seen, found);
                }
            });
            observe(progress);
        }
        WindowEvent::Serving(_) | WindowEvent::Output(_) => {}
    })?;
    let WovenOutcome { conditions, seconds, not_caught_up, failure } = outcome;
    *series = recorder.and_then(|r| observed::record_woven(trials, r, &conditions));
    let end = match read_again(first, admin, trials, before) {
        Ok(end) => end,
        // A server that the window left unable to answer is the failure of that window.
        Err(error) => return Err(failure.unwrap_or_else(|| error.into())),
    };
    let names = block.conditions();
    for (at, (trial, condition)) in trials.iter_mut().zip(conditions).enumerate() {
        let request = &block.requests[at];
        let (slowest, late) = (condition.slowest, condition.late_slices);
        let slices = condition.spans.len();
        trial.woven = Some(describe(&plan, &condition, &names, seconds));
        record_condition(request, trial, condition, std::mem::take(&mut seen[at]))?;
        trial.evidence.extend(request.verify(&mut in_force[at], admin, When::After));
        end.record(trial);
        trial.checks.extend(trial_checks::standby_lag(not_caught_up));
        trial.checks.extend(trial_checks::slow_calls(plan.slice, slowest));
        trial.checks.extend(trial_checks::late_slices(late, slices));
    }
    failure.map_or(Ok(()), Err)
}

fn plan_of(block: &WovenBlock<'_>) -> Result<WeavePlan, EngineError> {
    let first = &block.requests[0];
    let Some(duration) = first.workload.extent().time() else {
        return Err(EngineError::Unsuited("a woven window needs a duration"));
    };
    Ok(WeavePlan {
        conditions: block.requests.iter().map(|r| r.session_settings.clone()).collect(),
        duration,
        slice: block.slice,
        seed: first.seed,
    })
}

/// Returns what the sessions are prepared with. They get a condition's settings with each of its slices; the
/// window belongs to one server and one process.
fn setup(first: &Request<'_>) -> Setup {
    Setup { settings: Vec::new(), opener: None, generator: Generator::Alone, ..first.setup() }
}

/// What was read at the end of the window, for every condition.
struct WindowEnd {
    checkpoints: Option<f64>,
    environment: BTreeMap<String, String>,
}

/// Reads again what was read before the window, except what belongs to one condition.
fn read_again(
    first: &Request<'_>,
    admin: &mut Client,
    trials: &mut [Trial],
    before: Counters,
) -> Result<WindowEnd, EngineError> {
    let after = read_counters(first, admin, When::After)?.counters;
    if after.were_reset_since(&before) {
        trials.iter_mut().for_each(|trial| trial.warnings.push(readings::reset_warning()));
    }
    read_end(first, admin, trials)?;
    let checkpoints = after.checkpoints_since(&before);
    let environment = read_environment_again(first, admin)?;
    Ok(WindowEnd { checkpoints, environment })
}

impl WindowEnd {
    fn record(&self, trial: &mut Trial) {
        put(&mut trial.metrics, "checkpoints", self.checkpoints);
        observed::add_metrics(trial);
        let unchanged = environment::check_unchanged(&trial.environment, &self.environment);
        trial.checks.push(unchanged);
    }
}

/// Moves the work of one condition into its record. `during` is the evidence from inside the window.
fn record_condition(
    request: &Request<'_>,
    trial: &mut Trial,
    condition: WovenCondition,
    during: Vec<Evidence>,
) -> Result<(), EngineError> {
    prove(trial, &condition);
    trial.evidence.extend(during);
    let mut ran = condition.outcome;
    // They are evidence already.
    ran.readings.clear();
    record_run(request, trial, ran)
}

/// Every slice read all settings back after they were switched and at its end: a condition whose setting
/// had two values was not in force throughout.
fn prove(trial: &mut Trial, condition: &WovenCondition) {
    for (name, found) in &condition.outcome.readings {
        let what = slice_setting(name);
        let expected = match trial.evidence.iter().find(|e| e.what == what) {
            Some(earlier) => earlier.found.clone(),
            None => {
                trial.settings.insert(name.clone(), found.clone());
                found.clone()
            }
        };
        trial.evidence.extend([When::Before, When::During, When::After].map(|when| Evidence {
            when,
            what: what.clone(),
            found: found.clone(),
            expected: Some(expected.clone()),
        }));
    }
}

fn slice_setting(name: &str) -> String {
    format!("{name} (sessions, each slice)")
}

fn describe(plan: &WeavePlan, condition: &WovenCondition, names: &[String], seconds: f64) -> Woven {
    let Slices { halves, after } = Slices::new(&condition.slices, names.len());
    let mut woven = Woven {
        slice_seconds: plan.slice.as_secs_f64(),
        guard_seconds: plan.guard(),
        slices: u32::try_from(condition.spans.len()).unwrap_or(u32::MAX),
        window_seconds: seconds,
        halves: halves.map(|found| found.estimate.exp()),
        halves_error: halves.map(|found| found.error),
        ..Woven::default()
    };
    for (name, found) in names.iter().zip(after) {
        if let Some(found) = found {
            woven.after.insert(name.clone(), found.estimate.exp());
            woven.after_errors.insert(name.clone(), found.error);
        }
    }
    woven
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each trial failed, and the checks that make others invalid.
    fn found(error: EngineError, condition: Option<usize>) -> (Vec<bool>, Vec<String>) {
        let names = ["local", "on"].map(str::to_owned);
        let all = outcomes(&names, Some(WovenFailure { error: Box::new(error), condition }));
        let failed = all.iter().map(|(outcome, _)| matches!(outcome, Outcome::Failed { .. }));
        let checks = all.iter().filter_map(|(_, check)| Some(check.as_ref()?.message.clone()));
        (failed.collect(), checks.collect())
    }

    #[test]
    fn a_failure_is_that_of_the_condition_whose_slice_it_ended() {
        let overdue = || EngineError::Overdue("2 sessions did not end".to_owned());
        let (failed, checks) = found(overdue(), Some(1));
        assert_eq!(failed, [false, true]);
        let [check] = checks.as_slice() else { panic!("{checks:?}") };
        assert!(check.starts_with("the window ended in a slice of `on`: 2 sessions"), "{check}");
        // Before the first slice, it is everyone's.
        assert_eq!(found(overdue(), None), (vec![true, true], Vec::new()));
        let stopped = outcomes(&["local".to_owned()], Some(EngineError::Stopped.into()));
        assert_eq!(stopped, [(Outcome::Interrupted, None)]);
    }
}
