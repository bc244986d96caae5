//! Runs one trial: prepare, read, open the window, read again, make the record.
//!
//! Never returns an error: a failure is the record's outcome. Readings lie
//! between the sessions' preparation and the window, so that only the work is inside.
//! Next: `joint` runs one trial on several servers in one window, `woven` several conditions in one.

mod combine;
mod joint;
mod observed;
mod readings;
mod record;
mod woven;

use std::sync::Arc;
use std::time::Duration;

use self::readings::Readings;
#[cfg(test)]
pub(crate) use self::record::record_totals;
use jiff::Timestamp;
use pgio_connect::{Client, ConnectParams, interrupt};
use pgio_results::change::Change;
use pgio_results::model::{DatabaseCounters, Evidence, Outcome, Trial, TrialPosition, When};
use pgio_results::telemetry::Series;
use readings::{
    EvidencePace, add_new, failed, prepare_and_read_host, prepare_server, read_counters,
    read_dataset, read_end, read_environment, read_environment_again, refuse_unproved,
};
use record::{record_program_output, record_run, session_evidence};

use super::{environment, plan, trial_checks};
use crate::config::experiment::Checkpoint;
use crate::host::Hosts;
use crate::host::stop::Stop;
use crate::pg::server::Server;
use crate::pg::words;
use crate::telemetry::{Recorder, TelemetrySources};
use crate::treatment::{AdminSession, ChangedServer, Context, InForce, Layout};
use crate::workload::ProgramOutput;
use crate::workload::clock::Opener;
use crate::workload::{
    EngineError, Generator, Participants, Progress, Setup, WindowEvent, WindowOutcome, Workload,
};

pub use self::joint::{JointTrial, RendezvousMember, run as run_joint};
pub(crate) use self::record::metrics_of;
pub use self::woven::{WovenBlock, WovenResult, run as run_woven};

/// The result of a trial.
#[derive(Debug)]
pub struct TrialResult {
    pub trial: Trial,
    /// The samples of telemetry, if any.
    pub series: Option<Series>,
    /// Output of the workload's program, if any.
    pub output: OutputFiles,
    /// The error that ended the trial, if any.
    pub error: Option<EngineError>,
}

/// Output of programs, by the ends of the names of the files that will hold it.
pub type OutputFiles = Vec<(String, String)>;

/// Returns what a program wrote; `prefix` precedes the names of the streams.
pub fn output_files(prefix: &str, stdout: &str, stderr: &str) -> OutputFiles {
    let kept = [("stderr", stderr), ("stdout", stdout)].into_iter();
    let kept = kept.filter(|(_, text)| !text.is_empty());
    kept.map(|(stream, text)| (format!("{prefix}{stream}"), text.to_owned())).collect()
}

/// Names the files with the output of a failed program in the trial of this number; empty if it wrote nothing.
pub fn full_output(files: &[(String, String)], number: usize) -> String {
    let files: Vec<String> =
        files.iter().map(|(name, _)| format!("output/{number:04}.{name}")).collect();
    match files.as_slice() {
        [] => String::new(),
        files => format!(" (full output: {})", files.join(", ")),
    }
}

/// Runs the trial. `observe` receives progress inside the window.
pub fn run(
    request: &Request<'_>,
    in_force: &mut [Box<dyn InForce>],
    admin: &mut Client,
    observe: &mut dyn FnMut(Progress),
) -> TrialResult {
    let mut kept = Measured { trial: new_record(request), series: None, program_output: None };
    let error = measure(request, in_force, admin, &mut kept, observe).err();
    let Measured { mut trial, series, program_output } = kept;
    let mut output = OutputFiles::new();
    if let Some(program) = program_output {
        output = output_files("", &program.stdout, &program.stderr);
    } else if let Some(failed) = error.as_ref().and_then(EngineError::output) {
        // A program that failed before its window has output too.
        output = output_files("", &failed.stdout, &failed.stderr);
    }
    trial.outcome = outcome_of(error.as_ref());
    if let (Some(check), Outcome::Failed { .. }) =
        (error.as_ref().and_then(EngineError::lost), &trial.outcome)
    {
        // The condition did not fail: the trial measured nothing and is repeated.
        trial.checks.push(check.clone());
        trial.outcome = Outcome::Complete;
    }
    let left_over = request.workload.after_trial(request.stop);
    // What a lost process did is unknown.
    if !trial_checks::lost_a_part(&trial) {
        trial.checks.extend(left_over);
    }
    // Treatments in force on several servers are judged by the sum of their trials, flushes with what was observed on
    // the hosts.
    let alone = request.member.is_none();
    let judged = if alone { &*in_force } else { &[] };
    let waits = alone && request.workload.commits_wait_for_flush();
    trial_checks::judge(&mut trial, series.as_ref(), request.declared, waits, judged);
    TrialResult { trial, series, output, error }
}

/// The record of a trial that could not begin.
fn not_begun(request: &Request<'_>, error: EngineError) -> TrialResult {
    let trial = Trial { outcome: outcome_of(Some(&error)), ..new_record(request) };
    TrialResult { trial, series: None, output: Vec::new(), error: Some(error) }
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
        ..Trial::new()
    };
    trial.window.warmup_seconds = request.warmup.as_secs_f64();
    trial.window.asked_seconds =
        request.workload.extent().time().map(|window| window.as_secs_f64());
    trial.warnings.extend(request.server.warnings.iter().cloned());
    trial
}

pub(crate) fn outcome_of(error: Option<&EngineError>) -> Outcome {
    match error {
        None => Outcome::Complete,
        Some(EngineError::Stopped) => Outcome::Interrupted,
        Some(_) if interrupt::was_cut() => Outcome::Interrupted,
        Some(error) => Outcome::Failed { error: words::sentence(error) },
    }
}

/// What a trial measures.
struct Measured {
    trial: Trial,
    series: Option<Series>,
    program_output: Option<Box<ProgramOutput>>,
}

/// Participants that wait for their window, and what observes them.
struct Ready<'a> {
    /// The first field, so that the samplers end before the sessions if there will be no window.
    recorder: Option<Recorder<'a>>,
    participants: Box<dyn Participants>,
}

/// The order of a trial. What it measures goes into `kept` step by step, so that a failure loses nothing.
fn measure(
    request: &Request<'_>,
    in_force: &mut [Box<dyn InForce>],
    admin: &mut Client,
    kept: &mut Measured,
    observe: &mut dyn FnMut(Progress),
) -> Result<(), EngineError> {
    let trial = &mut kept.trial;
    prepare_server(request, admin)?.record(trial);
    // If the condition is not in force, sessions that prepare may wait for a standby.
    let first = request.verify(in_force, admin, When::Before);
    if let Err(error) = refuse_unproved(&first) {
        // Record that the measurement failed, not the condition.
        trial.evidence = first;
        return Err(error);
    }
    request.member.as_ref().map_or(Ok(()), |member| member.wait_prepared())?;
    let (ready, host) = prepare_and_read_host(request, || prepare_work(request, admin))?;
    trial.settings = ready.participants.pinned();
    trial.evidence = session_evidence(request, trial);
    // Values expected before the window must still hold, even if nothing expects them now.
    trial.evidence.extend(first);
    add_new(&mut trial.evidence, request.verify(in_force, admin, When::Before));
    trial.dataset = read_dataset(request, admin)?;
    trial.environment = Arc::new(read_environment(host, admin)?);
    let before = read_counters(request, admin, When::Before)?;
    let ran = run_window(request, ready, in_force, admin, kept, observe)?;
    // After a failure, readings would not describe the trial.
    record_run(request, &mut kept.trial, ran)?;
    read_again(request, in_force, admin, &mut kept.trial, before)
}

/// Prepares the participants and starts to observe them.
fn prepare_work<'a>(request: &Request<'a>, admin: &mut Client) -> Result<Ready<'a>, EngineError> {
    let participants = Arc::clone(request.workload).prepare(request.setup(), admin)?;
    // Open the workload's sessions first: a pooler may have no more connections than they need.
    let recorder = observed::start(request, request.workload.extent().time(), admin);
    let pids = participants.pids();
    // Sessions that serve a program are known only when it runs.
    if let Some(recorder) = recorder.as_ref().filter(|_| !pids.is_empty()) {
        recorder.watch(pids);
    }
    Ok(Ready { recorder, participants })
}

/// Runs the window and records what was observed in it.
fn run_window(
    request: &Request<'_>,
    ready: Ready<'_>,
    in_force: &mut [Box<dyn InForce>],
    admin: &mut Client,
    kept: &mut Measured,
    observe: &mut dyn FnMut(Progress),
) -> Result<WindowOutcome, EngineError> {
    let Measured { trial, series, program_output } = kept;
    let Ready { mut recorder, participants } = ready;
    let member = request.member.as_ref();
    let mut pace = EvidencePace::new();
    let mut during: Vec<Evidence> = Vec::new();
    let extent = request.workload.extent();
    let ran = participants.run(admin, extent, &mut |admin, event| match event {
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
    *series = recorder.and_then(|recorder| observed::record(request, trial, recorder));
    trial.evidence.extend(during);
    if let Some(program_output) = program_output {
        record_program_output(trial, program_output);
    }
    if let (Some(member), None) = (member, &ran.error) {
        member.record_work(&ran.totals, ran.first, admin);
    }
    Ok(ran)
}

/// Reads again what was read before the window, and records what follows from both readings.
fn read_again(
    request: &Request<'_>,
    in_force: &mut [Box<dyn InForce>],
    admin: &mut Client,
    trial: &mut Trial,
    before: Readings,
) -> Result<(), EngineError> {
    let after = read_counters(request, admin, When::After)?;
    read_end(request, admin, std::slice::from_mut(trial))?;
    trial.evidence.extend(request.verify(in_force, admin, When::After));
    trial.database = Some(DatabaseCounters { before: before.row, after: after.row });
    readings::add_metrics(trial, before.counters, after.counters);
    if request.checkpoint == Checkpoint::Spread {
        let timeout = plan::cycle_seconds(admin, None).map_err(failed("reading settings"))?;
        let whole = plan::whole_cycles(request.workload.extent(), timeout);
        let cycles = whole.map_err(EngineError::NotInForce)?;
        trial.checks.push(plan::check(trial, cycles));
    }
    observed::add_metrics(trial);
    let now = read_environment_again(request, admin)?;
    trial.checks.push(environment::check_unchanged(&trial.environment, &now));
    Ok(())
}

/// The inputs of one trial.
pub struct Request<'a> {
    pub run_id: &'a str,
    pub place: Option<TrialPosition>,
    pub params: &'a ConnectParams,
    pub server: &'a Server,
    pub workload: &'a Arc<dyn Workload>,
    /// The changes of the condition.
    pub declared: &'a [Change],
    pub session_settings: Vec<(String, String)>,
    /// Whether any condition of the experiment has some.
    pub reads_settings: bool,
    pub warmup: Duration,
    pub checkpoint: Checkpoint,
    pub seed: u64,
    pub stop: &'a Stop,
    /// What telemetry observes; none disables it.
    pub sources: Option<&'a TelemetrySources>,
    /// Hosts for the treatments to read back from.
    pub hosts: &'a Hosts,
    pub server_host: Option<&'a str>,
    pub private: bool,
    /// Its part in a joint window; none: the window is its own.
    pub member: Option<Arc<RendezvousMember>>,
    /// Which processes generate the load.
    pub generator: Generator,
}

impl Request<'_> {
    /// Returns what the participants are prepared with.
    fn setup(&self) -> Setup {
        Setup {
            params: self.params.clone(),
            settings: self.session_settings.clone(),
            reads_settings: self.reads_settings,
            warmup: self.warmup,
            seed: self.seed,
            stop: self.stop.clone(),
            opener: self.member.clone().map(|member| member as Arc<dyn Opener>),
            generator: self.generator.clone(),
        }
    }

    /// Reads back everything that the condition put in force.
    fn verify(
        &self,
        in_force: &mut [Box<dyn InForce>],
        admin: &mut Client,
        when: When,
    ) -> Vec<Evidence> {
        let mut context = Context {
            params: self.params,
            session: AdminSession::Open(admin),
            changed: ChangedServer::default(),
            hosts: self.hosts,
            server_host: self.server_host,
            // Reading back changes nothing.
            control: None,
            private: self.private,
            layout: Layout::default(),
            streaming: None,
            is_renewed: false,
            stop: self.stop.clone(),
        };
        in_force.iter_mut().flat_map(|t| t.verify(&mut context, when)).collect()
    }
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("place", &self.place).finish_non_exhaustive()
    }
}
