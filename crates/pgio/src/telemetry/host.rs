//! A machine's counters at a fixed cadence, one thread and one shell per host.
//!
//! This program sets the pace and the clock: a tick is placed in the middle of asking and answer,
//! so hosts need no common time. Ticks that cannot be kept are counted, and so is what the sampling
//! costs there. [`Sampler::mark`] asks for a snapshot now, with all processes, at the window's
//! ends. A host that falls silent costs its data and makes a warning, never the trial.
//!
//! Next: [`window`] for the sums, [`processes`] for foreign load, [`drbd`].

mod drbd;
mod processes;
mod snapshot;
mod tracks;
mod window;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use self::snapshot::Snapshot;
use self::window::{Span, distance};
use crate::host::exec::ExecError;
use crate::host::{Host, Shell};
use crate::results::series::Track;
use crate::results::telemetry::HostUse;
use crate::warning::Warning;

const PRELUDE: &str = include_str!("host/sample.sh");

/// A host that takes longer is left out of this tick.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// How long the end waits for an answer that is under way.
const END_LIMIT: Duration = Duration::from_secs(4);

/// Of which the quickest tells the clock.
const CLOCK_ROUNDS: u32 = 3;

/// Whose processes are not foreign on this host.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Any backends of each server under test that is said to be on this host. Servers that
    /// replicate from another are found without.
    pub backend_pids: Vec<i32>,
}

#[derive(Debug)]
pub struct Sampler {
    host: Arc<Host>,
    watch: Watch,
    cadence: Duration,
    setup: Setup,
    record: Arc<Mutex<Record>>,
    /// One mark each. Closed to end the thread.
    marks: Sender<()>,
    /// Of these.
    asked: Cell<usize>,
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

/// Processes on this machine that belong to what is measured, with all below them: virtual hosts.
const OURS: &str = "PGIO_OURS";

fn numbers(text: &str) -> impl Iterator<Item = i32> {
    text.split_whitespace().filter_map(|word| word.parse().ok())
}

/// What the host says of itself at the start.
#[derive(Debug)]
struct Setup {
    hertz: f64,
    /// Processes that work for us.
    ours: BTreeSet<i32>,
    clock: Option<Clock>,
    drbd: drbd::Disks,
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
    /// Marks that were answered, or refused.
    marked: usize,
    missed: Vec<Instant>,
    failure: Option<String>,
}

impl Sampler {
    /// Begins to sample at once. Fails if the host cannot run a shell.
    pub fn start(host: Arc<Host>, cadence: Duration, watch: Watch) -> Result<Sampler, ExecError> {
        let mut shell = Shell::start(&host, PRELUDE, "answer $ask")?;
        let setup = Setup::of(&host, &mut shell);
        let record = Arc::new(Mutex::new(Record::default()));
        let (marks, asked) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let to = Arc::clone(&record);
        let thread = thread::Builder::new()
            .name(format!("pgio-{}", host.name()))
            .spawn(move || {
                sample(&mut shell, cadence, &asked, &to);
                // Nobody listens any more if the end came late.
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
            asked: Cell::new(0),
            ended,
            thread,
        })
    }

    /// A snapshot as soon as the host answers, all processes included; returns at once.
    pub fn mark(&self) {
        self.asked.set(self.asked.get() + 1);
        // The thread is gone only where the host is, which the end tells.
        let _ = self.marks.send(());
    }

    /// Whether a mark that was asked for is still to come.
    pub fn is_marking(&self) -> bool {
        locked(&self.record).marked < self.asked.get() && !self.thread.is_finished()
    }

    /// How many snapshots there are: one that grew after a mark has that mark, or a tick before it.
    pub fn answers(&self) -> usize {
        locked(&self.record).snapshots.len()
    }

    /// Sums up for the window between two moments of this machine's clock.
    pub fn finish(self, opened: Instant, closed: Instant) -> (HostUse, Vec<Track>, Vec<Warning>) {
        let Sampler { host, watch, cadence, setup, record, marks, ended, .. } = self;
        drop(marks);
        let _ = ended.recv_timeout(END_LIMIT);
        let record = locked(&record);
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
                "see to the host or the connection, and repeat",
            )
        }));
        let all: Vec<&Snapshot> = record.snapshots.iter().collect();
        match Span::nearest(&all, opened, closed) {
            None => warnings.push(nothing_seen(name)),
            Some(span) => {
                span.fill(&mut usage, setup.hertz);
                usage.drbd = drbd::used(&all, span, &setup.drbd);
                warnings.extend(off_the_window(name, span, opened, closed, cadence));
            }
        }
        let mut marks = all;
        marks.retain(|snapshot| snapshot.processes.is_some());
        let span = Span::nearest(&marks, opened, closed);
        match span.and_then(|span| span.foreign_cores(&watch, &setup.ours, setup.hertz)) {
            Some(Ok(cores)) => usage.foreign_cores = Some(cores),
            Some(Err(pid)) => warnings.push(no_postgres(name, pid)),
            None => {}
        }
        (usage, tracks::tracks(name, &record.snapshots, opened), warnings)
    }
}

impl Setup {
    fn of(host: &Host, shell: &mut Shell) -> Setup {
        let greeting = shell.greeting().to_owned();
        let said = |what: &str| {
            let line = greeting.lines().find_map(|line| line.strip_prefix(what))?;
            line.trim().parse::<i32>().ok()
        };
        let mut ours: BTreeSet<i32> =
            [said("self "), said("sshd ")].into_iter().flatten().collect();
        if host.shares_pids_with_this_process() {
            ours.extend(i32::try_from(std::process::id()));
            ours.extend(std::env::var(OURS).iter().flat_map(|pids| numbers(pids)));
        }
        let rounds = (0..CLOCK_ROUNDS).filter_map(|_| Clock::ask(shell));
        let clock = rounds.min_by(|a, b| a.error_seconds.total_cmp(&b.error_seconds));
        Setup {
            hertz: said("hertz ").filter(|n| *n > 0).map_or(100.0, f64::from),
            ours,
            clock,
            drbd: drbd::Disks::parse(&greeting),
        }
    }
}

impl Clock {
    fn ask(shell: &mut Shell) -> Option<Clock> {
        let before = SystemTime::now();
        let answer = shell.ask("clock", ANSWER_LIMIT).ok()?;
        let here = before.duration_since(SystemTime::UNIX_EPOCH).ok()? + answer.error();
        let there: f64 = answer.text.trim().parse().ok()?;
        Some(Clock {
            offset_seconds: there - here.as_secs_f64(),
            error_seconds: answer.error().as_secs_f64(),
        })
    }
}

/// Until nobody can ask for marks any more, or the host is lost.
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
        let mut record = locked(record);
        record.marked += usize::from(mark);
        match answer {
            Ok(answer) => {
                let at = answer.middle();
                record.snapshots.extend(Snapshot::parse(&answer.text, at));
                if !mark {
                    record.ticks.push(at);
                }
            }
            Err(error) => {
                record.failure = Some(error.to_string());
                // Only the silent may speak again.
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

/// What a thread that died left is as good as before.
fn locked(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nothing_seen(host: &str) -> Warning {
    Warning::new(
        format!("host {host} was not observed"),
        "it gave no two answers around the window",
        "take a longer window or a shorter cadence, or see whether /proc can be read there",
    )
}

/// Rates of another span than the window's are still worth telling, but not silently.
fn off_the_window(
    host: &str,
    span: Span<'_>,
    opened: Instant,
    closed: Instant,
    cadence: Duration,
) -> Option<Warning> {
    let off = distance(span.from.at, opened).max(distance(span.to.at, closed));
    (off > cadence.max(Duration::from_millis(100))).then(|| {
        Warning::new(
            format!("rates of host {host} are not of the window alone"),
            format!("the nearest answer came {:.1} s off", off.as_secs_f64()),
            "the host is overloaded or far away: take a longer window",
        )
    })
}

fn no_postgres(host: &str, pid: i32) -> Warning {
    Warning::new(
        format!("load of others on host {host} is unknown"),
        format!("process {pid}, our session there by the server's word, is none of PostgreSQL's"),
        "check [target] host; where the server runs in a container, its process numbers are its own",
    )
}

#[cfg(test)]
mod tests;
