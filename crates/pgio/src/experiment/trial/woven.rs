//! Runs the conditions of one block in a woven window and makes one record for each.
//!
//! What belongs to one condition is its own: work, latencies, counted time, settings as the sessions read
//! them back. What belongs to the window is in every record: environment, telemetry, checkpoints. Rates
//! of the server's counters are left out, since they are those of all conditions together.

use std::sync::Arc;
use std::time::Duration;

use benchmath::carry_over::Slices;
use postgres::Client;

use super::record::{put, record_run};
use super::request::Request;
use super::{EvidencePace, add_new, new_record, outcome_of, read_end, refuse_unproved};
use super::{counters, observed};
use crate::config::experiment::Checkpoint;
use crate::experiment::{environment, trial_checks};
use crate::pg::{server, words};
use crate::telemetry::Standbys;
use crate::treatment::InForce;
use crate::workload::{
    EngineError, Participants, Progress, SessionPool, Setup, WeavePlan, WindowEvent,
    WovenCondition, WovenOutcome,
};
use pgio_results::model::{Evidence, Trial, When, Woven};
use pgio_results::series::Series;
use pgio_results::telemetry::Telemetry;

/// The conditions of a block that take turns; all on one server with one workload.
#[derive(Debug)]
pub struct WovenBlock<'a> {
    /// At least one; of the first, all that the conditions have in common.
    pub requests: Vec<Request<'a>>,
    /// Mean counted length of a slice.
    pub slice: Duration,
}

/// Runs the block. `in_force` are the treatments of each condition. The samples of telemetry are those of
/// the whole window. Returns the records in the order of the requests.
pub fn run(
    block: &WovenBlock<'_>,
    in_force: &mut [Vec<Box<dyn InForce>>],
    admin: &mut Client,
    observe: &mut dyn FnMut(Progress),
) -> (Vec<Trial>, Option<Series>) {
    let mut trials: Vec<Trial> = block.requests.iter().map(new_record).collect();
    let mut series = None;
    let error = measure(block, in_force, admin, &mut trials, &mut series, observe).err();
    let outcome = outcome_of(error.as_ref());
    for ((request, in_force), trial) in block.requests.iter().zip(in_force.iter()).zip(&mut trials)
    {
        trial.outcome = outcome.clone();
        trial.checks.extend(request.workload.after_trial(request.stop));
        let waits = request.workload.commits_wait_for_flush();
        trial_checks::judge(trial, series.as_ref(), request.declared, waits, in_force);
    }
    (trials, series)
}

fn measure(
    block: &WovenBlock<'_>,
    in_force: &mut [Vec<Box<dyn InForce>>],
    admin: &mut Client,
    trials: &mut [Trial],
    series: &mut Option<Series>,
    observe: &mut dyn FnMut(Progress),
) -> Result<(), EngineError> {
    let pg = |doing: &'static str| move |source| EngineError::Postgres { doing, source };
    let read = |e: server::ServerError| EngineError::Other(words::sentence(&e));
    let first = &block.requests[0];
    let Some(duration) = first.workload.extent().time() else {
        return Err(EngineError::Other("a woven window needs a duration".to_owned()));
    };
    let plan = WeavePlan {
        conditions: block.requests.iter().map(|r| r.session_settings.clone()).collect(),
        duration,
        slice: block.slice,
        seed: first.seed,
    };
    first.workload.before_trial(admin).map_err(pg("preparing the trial"))?;
    let durability = counters::durability(admin).map_err(pg("reading settings"))?;
    if first.checkpoint != Checkpoint::None {
        let warning = server::checkpoint(admin, first.server).err();
        trials.iter_mut().for_each(|t| t.warnings.extend(warning.clone()));
    }
    for (at, trial) in trials.iter_mut().enumerate() {
        (trial.server.fsync, trial.server.full_page_writes) = durability.clone();
        trial.evidence = block.requests[at].verify(&mut in_force[at], admin, When::Before);
    }
    trials.iter().try_for_each(|trial| refuse_unproved(&trial.evidence))?;
    let setup = Setup {
        generator: Default::default(),
        params: first.params.clone(),
        settings: Vec::new(),
        warmup: first.warmup,
        seed: first.seed,
        stop: first.stop.clone(),
        opener: None,
    };
    let ready = SessionPool::for_weaving(first.workload, setup, admin)?;
    let window = Duration::try_from_secs_f64(plan.seconds()).ok();
    let mut recorder = observed::start(first, window, admin);
    if let Some(recorder) = &recorder {
        recorder.watch(ready.pids());
    }
    let dataset = first.workload.dataset(admin).map_err(pg("measuring the data set"))?;
    let environment = Arc::new(
        environment::read_for_trial(admin, first.sources, Standbys::Read)
            .map_err(pg("reading settings"))?,
    );
    for trial in trials.iter_mut() {
        trial.settings = ready.pinned();
        trial.dataset.clone_from(&dataset);
        trial.environment = Arc::clone(&environment);
    }
    let version = first.server.info.version_num;
    let (counters_before, _) = counters::readings(version, admin).map_err(read)?;
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
    let spans: Vec<_> = outcome.conditions.iter().map(|c| c.spans.clone()).collect();
    let observed_by = recorder.and_then(|recorder| recorder.finish_woven(&spans));
    if let Some((telemetry, tracks, warnings, waits)) = observed_by {
        *series = Some(tracks);
        for (trial, waits) in trials.iter_mut().zip(waits) {
            trial.telemetry = Some(Telemetry { waits, ..telemetry.clone() });
            trial.warnings.extend(warnings.iter().cloned());
        }
    }
    let (counters_after, _) = counters::readings(version, admin).map_err(read)?;
    let checkpoints = counters_after.checkpoints_since(&counters_before);
    if counters_after.were_reset_since(&counters_before) {
        trials.iter_mut().for_each(|trial| trial.warnings.push(counters::reset_warning()));
    }
    read_end(first, admin, trials)?;
    let names: Vec<String> = block.requests.iter().map(condition_of).collect();
    let WovenOutcome { conditions, seconds, not_caught_up, error } = outcome;
    let now = environment::read_for_trial(admin, first.sources, Standbys::Skip)
        .map_err(pg("reading settings"))?;
    for (at, (trial, condition)) in trials.iter_mut().zip(conditions).enumerate() {
        let request = &block.requests[at];
        let slowest = condition.slowest;
        trial.woven = Some(describe(&plan, &condition, &names, seconds));
        prove(trial, &condition);
        trial.evidence.append(&mut seen[at]);
        let mut ran = condition.outcome;
        // They are evidence already.
        ran.readings.clear();
        record_run(request, trial, ran)?;
        trial.evidence.extend(request.verify(&mut in_force[at], admin, When::After));
        put(&mut trial.metrics, "checkpoints", checkpoints);
        observed::add_metrics(trial);
        trial.checks.push(environment::check_unchanged(&trial.environment, &now));
        trial.checks.extend(trial_checks::standby_lag(not_caught_up));
        trial.checks.extend(trial_checks::slow_calls(plan.slice, slowest));
    }
    error.map_or(Ok(()), Err)
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
