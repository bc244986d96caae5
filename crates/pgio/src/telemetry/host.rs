//! Samples a machine's counters at a fixed cadence, with one thread and one shell per host.
//!
//! All timestamps come from this machine's clock, so the hosts need no common time: a sample is dated
//! between request and answer, there by the host's uptime. Missed ticks are counted, and so is the CPU
//! time of the sampling. [`Sampler::mark`] requests an immediate snapshot with all processes; it is
//! used at both ends of the window. A host that stops answering loses its data and raises a warning; the
//! trial continues.
//!
//! Next: [`window`] for the sums, [`processes`] for foreign load, [`super::observer`] for what features add.

mod io;
mod processes;
mod window;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

pub use self::processes::Watch;
use self::window::{Snapshot, Span, date_by_uptime, distance};
use crate::feature;
use crate::host::exec::ExecError;
use crate::host::{Host, Shell};
use pgio_results::Warning;
use pgio_results::telemetry::HostUse;
use pgio_results::telemetry::Track;

static PRELUDE: LazyLock<String> = LazyLock::new(|| {
    let mut all = vec![include_str!("receivers.sh"), include_str!("host/sample.sh")];
    all.extend(feature::observers().map(|observer| observer.sampling));
    all.push(include_str!("host/answer.sh"));
    all.concat()
});

/// Timeout for one answer; after it the tick counts as missed.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// How long `finish` waits for an outstanding answer.
const END_LIMIT: Duration = Duration::from_secs(4);

/// Clock probes per host; the fastest round trip sets the offset.
const CLOCK_ROUNDS: u32 = 3;

#[derive(Debug)]
pub struct Sampler {
    host: Arc<Host>,
    watch: Watch,
    cadence: Duration,
    setup: Setup,
    record: Arc<Mutex<Record>>,
    /// Sends one message per mark; dropping it ends the thread.
    marks: Sender<()>,
    /// Number of marks requested so far.
    requested: Cell<usize>,
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

/// Environment variable with process ids on this machine that belong to the measured system, such
/// as virtual hosts; their descendants belong to it too.
const OWN_PIDS_VARIABLE: &str = "PGIO_OURS";

/// Whether [`OWN_PIDS_VARIABLE`] names processes of this host.
pub(super) fn has_own_pids(host: &Host) -> bool {
    host.shares_pids_with_this_process() && std::env::var_os(OWN_PIDS_VARIABLE).is_some()
}

fn parse_pids(text: &str) -> impl Iterator<Item = i32> {
    text.split_whitespace().filter_map(|word| word.parse().ok())
}

/// Facts about the host, read once at the start.
#[derive(Debug)]
struct Setup {
    hertz: f64,
    /// Processes of pgio: this program, the sampling shell and its sshd.
    ours: BTreeSet<i32>,
    clock: Option<Clock>,
    greeting: String,
}

#[derive(Debug, Clone, Copy)]
struct Clock {
    offset_seconds: f64,
    error_seconds: f64,
}

#[derive(Debug, Default)]
struct Record {
    snapshots: Vec<Snapshot>,
    ticks: Vec<Instant>,
    /// Marks that were answered or failed.
    marked: usize,
    missed: Vec<Instant>,
    failure: Option<String>,
}

impl Sampler {
    /// Starts sampling immediately. Fails if the host cannot run a shell.
    pub fn start(host: Arc<Host>, cadence: Duration, watch: Watch) -> Result<Sampler, ExecError> {
        let mut shell = Shell::start(&host, &PRELUDE, "answer $ask")?;
        let setup = Setup::new(&host, &mut shell);
        let record = Arc::new(Mutex::new(Record::default()));
        let (marks, requests) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let shared = Arc::clone(&record);
        let thread = thread::Builder::new()
            .name(format!("pgio-{}", host.name()))
            .spawn(move || {
                sample(&mut shell, cadence, &requests, &shared);
                // The receiver is gone if `finish` timed out.
                let _ = end.send(());
            })
            .map_err(|source| ExecError::Start { command: "a thread".to_owned(), source })?;
        Ok(Sampler {
            host,
            watch,
            cadence,
            setup,
            record,
            marks,
            requested: Cell::new(0),
            ended,
            thread,
        })
    }

    /// Requests an immediate snapshot that includes all processes; returns without waiting for it.
    pub fn mark(&self) {
        self.requested.set(self.requested.get() + 1);
        // The thread ends early only if the host is lost; `finish` reports that.
        let _ = self.marks.send(());
    }

    /// Whether a requested mark is still outstanding.
    pub fn has_pending_mark(&self) -> bool {
        lock_record(&self.record).marked < self.requested.get() && !self.thread.is_finished()
    }

    /// Sets the processes of others' sessions on the servers, if these run on this host.
    pub fn watch_foreign(&mut self, pids: &BTreeSet<i32>) {
        if !self.watch.backend_pids.is_empty() {
            self.watch.foreign_pids.clone_from(pids);
        }
    }

    /// Number of snapshots so far. If it grew after a mark, the new one is that mark or an earlier
    /// tick.
    pub fn snapshot_count(&self) -> usize {
        lock_record(&self.record).snapshots.len()
    }

    /// Summarizes the window between two moments of this machine's clock.
    pub fn finish(self, opened: Instant, closed: Instant) -> (HostUse, Vec<Track>, Vec<Warning>) {
        let Sampler { host, watch, cadence, setup, record, marks, ended, .. } = self;
        drop(marks);
        let _ = ended.recv_timeout(END_LIMIT);
        let mut record = lock_record(&record);
        date_by_uptime(&mut record.snapshots);
        let name = host.name();
        let inside = |moments: &[Instant]| {
            moments.iter().filter(|at| (opened..=closed).contains(at)).count() as u64
        };
        let mut usage = HostUse {
            cadence_seconds: cadence.as_secs_f64(),
            ticks: inside(&record.ticks),
            missed: inside(&record.missed),
            clock_offset_seconds: setup.clock.map(|clock| clock.offset_seconds),
            clock_error_seconds: setup.clock.map(|clock| clock.error_seconds),
            ..HostUse::default()
        };
        let mut warnings = Vec::new();
        warnings.extend(record.failure.as_ref().map(|why| {
            Warning::new(
                format!("host {name} was not observed throughout"),
                why.clone(),
                "check the host and the connection, then repeat",
            )
        }));
        let all: Vec<&Snapshot> = record.snapshots.iter().collect();
        match Span::nearest(&all, opened, closed) {
            None => warnings.push(no_samples(name)),
            Some(span) => {
                span.fill_usage(&mut usage, setup.hertz);
                let samples = span.samples(name, &setup.greeting, &all);
                let observers = feature::observers();
                warnings.extend(observers.flat_map(|o| (o.summarize)(&samples, &mut usage)));
                warnings.extend(check_span(name, span, opened, closed, cadence));
            }
        }
        let mut marks = all;
        marks.retain(|snapshot| snapshot.processes.is_some());
        let span = Span::nearest(&marks, opened, closed);
        let foreign = span.and_then(|span| {
            if span.hides_processes() {
                Some(Err(processes_hidden(name)))
            } else {
                let load = span.foreign_load(&watch, &setup.ours, setup.hertz)?;
                Some(load.map_err(|pid| not_postgres(name, pid)))
            }
        });
        match foreign {
            Some(Ok(load)) => {
                usage.foreign_cores = Some(load.cores);
                usage.foreign_session_cores = load.session_cores;
                usage.run_delay = load.run_delay;
                usage.process_io = load.io;
            }
            Some(Err(unknown)) => warnings.push(unknown),
            None => {}
        }
        (usage, window::tracks(name, &record.snapshots, opened), warnings)
    }
}

impl Setup {
    fn new(host: &Host, shell: &mut Shell) -> Setup {
        let greeting = shell.greeting().to_owned();
        let number_after = |prefix: &str| {
            let line = greeting.lines().find_map(|line| line.strip_prefix(prefix))?;
            line.trim().parse::<i32>().ok()
        };
        let mut ours: BTreeSet<i32> =
            [number_after("self "), number_after("sshd ")].into_iter().flatten().collect();
        if host.shares_pids_with_this_process() {
            ours.extend(i32::try_from(std::process::id()));
            ours.extend(std::env::var(OWN_PIDS_VARIABLE).iter().flat_map(|pids| parse_pids(pids)));
        }
        let rounds = (0..CLOCK_ROUNDS).filter_map(|_| Clock::ask(shell));
        let clock = rounds.min_by(|a, b| a.error_seconds.total_cmp(&b.error_seconds));
        Setup {
            hertz: number_after("hertz ").filter(|n| *n > 0).map_or(100.0, f64::from),
            ours,
            clock,
            greeting,
        }
    }
}

impl Clock {
    fn ask(shell: &mut Shell) -> Option<Clock> {
        let before = SystemTime::now();
        let answer = shell.ask("clock", ANSWER_LIMIT).ok()?;
        let local = before.duration_since(SystemTime::UNIX_EPOCH).ok()? + answer.error();
        let remote: f64 = answer.text.trim().parse().ok()?;
        Some(Clock {
            offset_seconds: remote - local.as_secs_f64(),
            error_seconds: answer.error().as_secs_f64(),
        })
    }
}

/// Samples until the sender of marks is dropped or the host is lost.
fn sample(shell: &mut Shell, cadence: Duration, marks: &Receiver<()>, record: &Mutex<Record>) {
    let mut due = Instant::now();
    loop {
        let left = due.saturating_duration_since(Instant::now());
        let mark = match marks.recv_timeout(left) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let answer = shell.ask(if mark { "mark" } else { "tick" }, ANSWER_LIMIT);
        let mut record = lock_record(record);
        record.marked += usize::from(mark);
        match answer {
            Ok(answer) => {
                let at = answer.middle();
                let snapshot = Snapshot::parse(&answer.text, at);
                record.snapshots.extend(snapshot.map(|s| s.with_error(answer.error())));
                if !mark {
                    record.ticks.push(at);
                }
            }
            Err(error) => {
                record.failure = Some(error.to_string());
                // A host that timed out may answer again; other errors are final.
                if !matches!(error, ExecError::Host(crate::host::HostError::Silent { .. })) {
                    return;
                }
                if !mark {
                    record.missed.push(due);
                }
            }
        }
        if !mark {
            due += cadence;
        }
        let now = Instant::now();
        while due + cadence <= now {
            record.missed.push(due);
            due += cadence;
        }
    }
}

/// Samples stay valid after a panic of the thread.
fn lock_record(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_samples(host: &str) -> Warning {
    Warning::new(
        format!("host {host} was not observed"),
        "it did not answer twice during the window",
        "use a longer window or a shorter cadence, and check that /proc is readable on the host",
    )
}

/// Rates over a span other than the window are still useful, but need a warning.
fn check_span(
    host: &str,
    span: Span<'_>,
    opened: Instant,
    closed: Instant,
    cadence: Duration,
) -> Option<Warning> {
    let off = distance(span.from.at, opened).max(distance(span.to.at, closed));
    (off > cadence.max(Duration::from_millis(100))).then(|| {
        Warning::new(
            format!("rates of host {host} cover more or less than the window"),
            format!("the nearest sample is {:.1} s away from its end", off.as_secs_f64()),
            "the host is overloaded or far away; use a longer window",
        )
    })
}

fn processes_hidden(host: &str) -> Warning {
    Warning::new(
        format!("the foreign load on host {host} is unknown"),
        "/proc shows pgio only its own user's processes there (hidepid)",
        "run pgio as root there, or add its user to the group in gid= of the mount options of /proc",
    )
}

fn not_postgres(host: &str, pid: i32) -> Warning {
    Warning::new(
        format!("the foreign load on host {host} is unknown"),
        format!("process {pid}, the server's backend for pgio, is not a PostgreSQL process there"),
        "check [target] host; a server in a container has its own process ids",
    )
}

#[cfg(test)]
mod tests;
