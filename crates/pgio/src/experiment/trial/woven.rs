//! Runs the conditions of one block in a woven window and makes one record for each.
//!
//! What belongs to one condition is its own: work, latencies, counted time, settings as the sessions read
//! them back. What belongs to the window is in every record: environment, telemetry, checkpoints. Rates
//! of the server's counters are left out, since they are those of all conditions together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use benchmath::carry_over::Slices;
use postgres::Client;

use super::readings::{
    EvidencePace, add_new, prepare_and_read_host, prepare_server, read_counters, read_dataset,
    read_end, read_environment, read_environment_again, refuse_unproved,
};
use super::record::{put, record_run};
use super::request::Request;
use super::{counters, new_record, observed, outcome_of};
use crate::experiment::{environment, trial_checks};
use crate::pg::server::Counters;
use crate::treatment::InForce;
use crate::workload::{
    EngineError, Generator, Participants, Progress, SessionPool, Setup, WeavePlan, WindowEvent,
    WovenCondition, WovenOutcome,
};
use pgio_results::model::{Evidence, Trial, When, Woven};
use pgio_results::series::Series;

/// The conditions of a block that take turns; all on one server with one workload.
#[derive(Debug)]
pub struct WovenBlock<'a> {
    /// At least one; of the first, all that the conditions have in common.
    pub requests: Vec<Request<'a>>,
    /// Mean counted length of a slice.
    pub slice: Duration,
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
    let error = measure(block, in_force, admin, &mut result, observe).err();
    let outcome = outcome_of(error.as_ref());
    let trials = &mut result.trials;
    for ((request, in_force), trial) in block.requests.iter().zip(in_force.iter()).zip(trials) {
        trial.outcome = outcome.clone();
        trial.checks.extend(request.workload.after_trial(request.stop));
        let waits = request.workload.commits_wait_for_flush();
        trial_checks::judge(trial, result.series.as_ref(), request.declared, waits, in_force);
    }
    result
}

/// The order of a block. What it measures goes into `kept` step by step, so that a failure loses nothing.
fn measure(
    block: &WovenBlock<'_>,
    in_force: &mut [Vec<Box<dyn InForce>>],
    admin: &mut Client,
    kept: &mut WovenResult,
    observe: &mut dyn FnMut(Progress),
) -> Result<(), EngineError> {
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
    let before = read_counters(first, admin)?.counters;
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
    let WovenOutcome { conditions, seconds, not_caught_up, error } = outcome;
    *series = recorder.and_then(|r| observed::record_woven(trials, r, &conditions));
    let end = read_again(first, admin, trials, before)?;
    let names: Vec<String> = block.requests.iter().map(condition_of).collect();
    for (at, (trial, condition)) in trials.iter_mut().zip(conditions).enumerate() {
        let request = &block.requests[at];
        let slowest = condition.slowest;
        trial.woven = Some(describe(&plan, &condition, &names, seconds));
        record_condition(request, trial, condition, std::mem::take(&mut seen[at]))?;
        trial.evidence.extend(request.verify(&mut in_force[at], admin, When::After));
        end.record(trial);
        trial.checks.extend(trial_checks::standby_lag(not_caught_up));
        trial.checks.extend(trial_checks::slow_calls(plan.slice, slowest));
    }
    error.map_or(Ok(()), Err)
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
/// window is that of one server and one process.
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
    let after = read_counters(first, admin)?.counters;
    if after.were_reset_since(&before) {
        trials.iter_mut().for_each(|trial| trial.warnings.push(counters::reset_warning()));
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

fn condition_of(request: &Request<'_>) -> String {
    request.place.as_ref().map(|p| p.condition.clone()).unwrap_or_default()
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
    let Slices { halves, after } = Slices::of(&condition.turns, names.len());
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
