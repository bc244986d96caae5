//! Runs one trial: prepare, read, open the window, read again, make the record.
//!
//! Never returns an error: a failure is the record's outcome. Readings lie
//! between the sessions' preparation and the window, so that only the work is inside.
//! Next: `joint` runs one trial on several servers in one window, `woven` several conditions in one.

mod combine;
mod counters;
mod joint;
mod observed;
mod record;
mod rendezvous;
mod request;
mod woven;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use postgres::Client;

pub use self::joint::{JointTrial, run as run_joint};
pub(super) use self::record::metrics_of;
pub use self::rendezvous::Member;
pub use self::request::Request;
pub use self::woven::{WovenBlock, run as run_woven};
use super::{cycles, environment, trial_checks};
use crate::config::experiment::Checkpoint;
use crate::pg::server;
use crate::pg::words;
use crate::telemetry::Standbys;
use crate::treatment::InForce;
use crate::workload::clock::Opener;
use crate::workload::command::ProgramOutput;
use crate::workload::drivers::coordinator::lost_driver_check;
use crate::workload::{EngineError, Progress, Setup, WindowEvent};
use counters::{durability, readings};
use pgio_connect::interrupt;
use pgio_results::model::{
    DatabaseCounters, DatasetInfo, Evidence, Outcome, ServerInfo, TRIAL_SCHEMA, Trial, Warning,
    When, Window, WorkloadInfo,
};
use pgio_results::series::Series;
use record::{record_program_output, record_run, session_evidence};

/// Interval of reading evidence inside the window; longer where reading takes more than [`EVIDENCE_SHARE`].
const EVIDENCE_EVERY: Duration = Duration::from_millis(250);
/// Reading evidence takes at most this fraction (1/n) of the time: it is work on the measured hosts, and
/// some conditions need more of it than others.
const EVIDENCE_SHARE: u32 = 20;

/// The result of a trial.
#[derive(Debug)]
pub struct TrialResult {
    pub trial: Trial,
    /// The samples of telemetry, if any.
    pub series: Option<Series>,
    /// Output of the workload's program, if any.
    pub program_output: Option<Box<ProgramOutput>>,
    /// The error that ended the trial, if any.
    pub error: Option<EngineError>,
}

/// Runs the trial. `observe` receives progress inside the window.
pub fn run(
    request: &Request<'_>,
    in_force: &mut [Box<dyn InForce>],
    admin: &mut Client,
    observe: &mut dyn FnMut(Progress),
) -> TrialResult {
    let mut trial = new_record(request);
    let (mut series, mut program_output) = (None, None);
    let measured =
        measure(request, in_force, admin, &mut trial, &mut series, &mut program_output, observe);
    let error = measured.err();
    // A program that failed before its window has output too.
    if let Some(EngineError::Command(failed)) = &error
        && program_output.is_none()
    {
        program_output = failed.output().map(|output| {
            let (stdout, stderr) = (output.stdout.clone(), output.stderr.clone());
            Box::new(ProgramOutput { stdout, stderr, ..ProgramOutput::default() })
        });
    }
    trial.outcome = outcome_of(error.as_ref());
    if let (Some(check), Outcome::Failed { .. }) =
        (error.as_ref().and_then(lost_driver_check), &trial.outcome)
    {
        // The condition did not fail: the trial measured nothing and is repeated.
        trial.checks.push(check);
        trial.outcome = Outcome::Complete;
    }
    let left_over = request.workload.after_trial(request.stop);
    // What a lost driver did is unknown.
    if !trial_checks::lost_a_driver(&trial) {
        trial.checks.extend(left_over);
    }
    // Treatments in force on several servers are judged by the sum of their trials.
    let judged = if request.member.is_none() { &*in_force } else { &[] };
    let waits = request.workload.commits_wait_for_flush();
    trial_checks::judge(&mut trial, series.as_ref(), request.declared, waits, judged);
    TrialResult { trial, series, program_output, error }
}

/// Returns the record of a trial that begins.
fn new_record(request: &Request<'_>) -> Trial {
    let mut trial = Trial {
        run_id: request.run_id.to_owned(),
        place: request.place.clone(),
        workload: request.workload.info(),
        seed: request.seed,
        server: request.server.info.clone(),
        started_at: Timestamp::now().to_string(),
        ..blank()
    };
    trial.window.warmup_seconds = request.warmup.as_secs_f64();
    trial.window.asked_seconds =
        request.workload.extent().time().map(|window| window.as_secs_f64());
    trial.warnings.extend(request.server.warnings.iter().cloned());
    trial
}

fn outcome_of(error: Option<&EngineError>) -> Outcome {
    match error {
        None => Outcome::Complete,
        Some(EngineError::Stopped) => Outcome::Interrupted,
        Some(_) if interrupt::was_cut() => Outcome::Interrupted,
        Some(error) => Outcome::Failed { error: words::sentence(error) },
    }
}

/// Reads durability and the size of the data at the end of a window into the records of all its trials.
fn read_end(
    request: &Request<'_>,
    admin: &mut Client,
    trials: &mut [Trial],
) -> Result<(), EngineError> {
    let pg = |doing: &'static str| move |source| EngineError::Postgres { doing, source };
    let (fsync, full_page_writes) = durability(admin).map_err(pg("reading settings"))?;
    let now = request.workload.dataset(admin).map_err(pg("measuring the data set"))?;
    for trial in trials {
        let ServerInfo { fsync: first, full_page_writes: second, .. } = &mut trial.server;
        // A setting that was off at either end was not on throughout.
        for (found, after) in [(first, &fsync), (second, &full_page_writes)] {
            if after == "off" {
                found.clone_from(after);
            }
        }
        if let (Some(info), Some(now)) = (&mut trial.dataset, &now) {
            info.bytes_after = now.bytes_after;
        }
    }
    Ok(())
}

/// When evidence is read inside a window.
struct EvidencePace(Instant);

impl EvidencePace {
    fn new() -> EvidencePace {
        EvidencePace(Instant::now())
    }

    fn restart(&mut self, at: Instant) {
        self.0 = at;
    }

    /// Reads if it is time; the next time depends on how long that takes.
    fn read_if_due(&mut self, read: impl FnOnce()) {
        let now = Instant::now();
        if self.0 <= now {
            read();
            self.0 = now + EVIDENCE_EVERY.max(now.elapsed() * EVIDENCE_SHARE);
        }
    }
}

/// Adds what is not yet known.
fn add_new(known: &mut Vec<Evidence>, found: Vec<Evidence>) {
    for evidence in found {
        if !known.contains(&evidence) {
            known.push(evidence);
        }
    }
}

/// Returns the error of a condition that is not in force before its window.
fn refuse_unproved(evidence: &[Evidence]) -> Result<(), EngineError> {
    for e in evidence {
        if let (false, Some(expected)) = (e.holds(), &e.expected) {
            return Err(EngineError::NotInForce(format!(
                "{} was {} instead of {expected}",
                e.what, e.found
            )));
        }
    }
    Ok(())
}

fn measure(
    request: &Request<'_>,
    in_force: &mut [Box<dyn InForce>],
    admin: &mut Client,
    trial: &mut Trial,
    series: &mut Option<Series>,
    program_output: &mut Option<Box<ProgramOutput>>,
    observe: &mut dyn FnMut(Progress),
) -> Result<(), EngineError> {
    let pg = |doing: &'static str| move |source| EngineError::Postgres { doing, source };
    let read = |e: server::ServerError| EngineError::Other(words::sentence(&e));
    request.workload.before_trial(admin).map_err(pg("preparing the trial"))?;
    (trial.server.fsync, trial.server.full_page_writes) =
        durability(admin).map_err(pg("reading settings"))?;
    if request.checkpoint != Checkpoint::None {
        trial.warnings.extend(server::checkpoint(admin, request.server).err());
    }
    // If the condition is not in force, sessions that prepare may wait for a standby.
    let first = request.verify(in_force, admin, When::Before);
    if let Err(error) = refuse_unproved(&first) {
        // Record that the measurement failed, not the condition.
        trial.evidence = first;
        return Err(error);
    }
    let member = request.member.as_ref();
    member.map_or(Ok(()), |member| member.wait_prepared())?;
    let setup = Setup {
        params: request.params.clone(),
        settings: request.session_settings.clone(),
        warmup: request.warmup,
        seed: request.seed,
        stop: request.stop.clone(),
        opener: request.member.clone().map(|member| member as Arc<dyn Opener>),
        generator: request.generator.clone(),
    };
    let ready = Arc::clone(request.workload).prepare(setup, admin)?;
    // Open the workload's sessions first: a pooler may have no more connections than they need.
    let mut recorder = observed::start(request, request.workload.extent().time(), admin);
    let pids = ready.pids();
    // Sessions that serve a program are known only when it runs.
    if let Some(recorder) = recorder.as_ref().filter(|_| !pids.is_empty()) {
        recorder.watch(pids);
    }
    trial.settings = ready.pinned();
    trial.evidence = session_evidence(request, trial);
    // Values expected before the window must still hold, even if nothing expects them now.
    trial.evidence.extend(first);
    add_new(&mut trial.evidence, request.verify(in_force, admin, When::Before));

    trial.dataset = request.workload.dataset(admin).map_err(pg("measuring the data set"))?;
    trial.environment = Arc::new(
        environment::read_for_trial(admin, request.sources, Standbys::Read)
            .map_err(pg("reading settings"))?,
    );
    let version = request.server.info.version_num;
    let (counters_before, before) = readings(version, admin).map_err(read)?;
    let mut pace = EvidencePace::new();
    let mut during: Vec<Evidence> = Vec::new();
    let ran = ready.run(admin, request.workload.extent(), &mut |admin, event| match event {
        WindowEvent::Opened(at) => {
            pace.restart(at);
            recorder.iter_mut().for_each(|r| r.opened(at));
        }
        WindowEvent::Serving(pids) => recorder.iter().for_each(|r| r.watch(pids.clone())),
        WindowEvent::Closed(at) => {
            recorder.iter_mut().for_each(|r| r.closed(at));
            member.into_iter().for_each(|member| member.wait_closed(at));
        }
        WindowEvent::Output(output) => *program_output = Some(output),
        WindowEvent::Progress(progress) => {
            pace.read_if_due(|| {
                add_new(&mut during, request.verify(in_force, admin, When::During));
            });
            observe(progress);
        }
    })?;
    *series = recorder.and_then(|recorder| observed::record(trial, recorder));
    if let (Some(_), Some(telemetry)) = (member, &mut trial.telemetry) {
        // pgio's own work and the probes belong to all servers together.
        (telemetry.driver_cpu_seconds, telemetry.sampling_cpu_seconds) = (None, None);
        telemetry.probes = None;
    }
    trial.evidence.extend(during);
    if let Some(program_output) = program_output {
        record_program_output(trial, program_output);
    }
    if let (Some(member), None) = (member, &ran.error) {
        member.record_work(&ran.totals, ran.first, admin);
    }
    // After a failure, readings would not describe the trial.
    record_run(request, trial, ran)?;
    let (counters_after, after) = readings(version, admin).map_err(read)?;
    read_end(request, admin, std::slice::from_mut(trial))?;
    trial.evidence.extend(request.verify(in_force, admin, When::After));
    trial.database = Some(DatabaseCounters { before, after });
    counters::add_metrics(trial, counters_before, counters_after);
    if request.checkpoint == Checkpoint::Spread {
        let timeout = cycles::cycle_seconds(admin, None).map_err(pg("reading settings"))?;
        let whole = cycles::whole_cycles(request.workload.extent(), timeout);
        let cycles = whole.map_err(EngineError::NotInForce)?;
        trial.checks.push(cycles::check(trial, cycles));
    }
    observed::add_metrics(trial);
    let now = environment::read_for_trial(admin, request.sources, Standbys::Skip)
        .map_err(pg("reading settings"))?;
    trial.checks.push(environment::check_unchanged(&trial.environment, &now));
    Ok(())
}

/// Returns an empty record.
pub fn blank() -> Trial {
    Trial {
        schema: TRIAL_SCHEMA.to_owned(),
        pgio: env!("CARGO_PKG_VERSION").to_owned(),
        run_id: String::new(),
        place: None,
        outcome: Outcome::Complete,
        started_at: String::new(),
        window: Window { asked_seconds: None, seconds: 0.0, warmup_seconds: 0.0 },
        workload: WorkloadInfo {
            kind: String::new(),
            primary_metric: String::new(),
            keys: BTreeMap::new(),
        },
        dataset: None::<DatasetInfo>,
        seed: 0,
        server: ServerInfo {
            version: String::new(),
            version_num: 0,
            database: String::new(),
            shared_buffers: String::new(),
            target: String::new(),
            fsync: String::new(),
            full_page_writes: String::new(),
        },
        settings: BTreeMap::new(),
        sessions: Vec::new(),
        timeline: Vec::new(),
        woven: None,
        targets: BTreeMap::new(),
        drivers: Vec::new(),
        histograms: BTreeMap::new(),
        metrics: BTreeMap::new(),
        database: None,
        telemetry: None,
        background: BTreeMap::new(),
        series: None,
        environment: Arc::default(),
        evidence: Vec::new(),
        checks: Vec::new(),
        warnings: Vec::<Warning>::new(),
        rejudged: false,
    }
}
