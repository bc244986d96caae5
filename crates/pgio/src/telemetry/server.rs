//! Samples the server's counters on a separate thread and session.
//!
//! [`sources`] lists the statements; [`tracks`] turns their readings into series. A source that the
//! role may not read is skipped with a warning; nothing here fails a trial. A session publishes its
//! own counts when its time slice ends, so the schedule starts shortly after the window: each
//! reading then covers one slice, not parts of two.

mod counters;
mod databases;
mod replication;

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::{Client, Statement};

use super::sampling::{self, SAMPLER_TIMEOUT, SessionError, Span, WatchedServer, not_observed};
use crate::pg::{quote, words};
use counters::{Log, ServerUse};
use pgio_connect::ConnectParams;
use pgio_results::Warning;

/// Delay after the end of a slice until its counts are visible, unless the server is overloaded.
const AFTER_SLICE: Duration = Duration::from_millis(20);

pub(super) struct Sampler {
    /// Dropping it ends the thread.
    mark: Sender<()>,
    samples: Receiver<Samples>,
}

/// Everything the thread sampled.
#[derive(Default)]
struct Samples {
    logs: Vec<Log>,
    standbys: Vec<(Instant, Vec<replication::Standby>)>,
    databases: Vec<databases::Reading>,
    warnings: Vec<Warning>,
}

impl Sampler {
    /// `upstreams`: standbys that other standbys stream from.
    pub(super) fn start(
        watched: WatchedServer,
        upstreams: Vec<ConnectParams>,
        cadence: Duration,
    ) -> Sampler {
        let (mark, marks) = mpsc::channel();
        let (sender, samples) = mpsc::channel();
        // If the thread cannot start, `samples` is closed, which `finish` reports.
        let _ = thread::Builder::new().name("pgio-server".to_owned()).spawn(move || {
            let _ = sender.send(sample(&watched, &upstreams, cadence, &marks));
        });
        Sampler { mark, samples }
    }

    /// Requests a reading now and restarts the schedule from here.
    pub(super) fn mark(&self) {
        let _ = self.mark.send(());
    }

    pub(super) fn finish(self, span: Span) -> ServerUse {
        drop(self.mark);
        match self.samples.recv_timeout(SAMPLER_TIMEOUT) {
            Ok(samples) => samples.summarize(span),
            Err(_) => ServerUse {
                warnings: vec![not_observed(
                    "the server's counters",
                    "the sampler does not answer",
                )],
                ..ServerUse::default()
            },
        }
    }
}

impl Samples {
    fn summarize(self, span: Span) -> ServerUse {
        let mut usage = ServerUse { warnings: self.warnings, ..ServerUse::default() };
        for log in &self.logs {
            counters::add(log, span, &mut usage);
        }
        let (lags, lag_tracks) = replication::summarize(&self.standbys, span);
        usage.standbys = lags;
        usage.tracks.extend(lag_tracks);
        usage.databases = databases::summarize(&self.databases, span);
        usage
    }
}

fn sample(
    watched: &WatchedServer,
    upstreams: &[ConnectParams],
    cadence: Duration,
    marks: &Receiver<()>,
) -> Samples {
    let mut samples = Samples::default();
    if let Err(error) = sample_into(&mut samples, (watched, upstreams), cadence, marks) {
        let warning = not_observed("the server's counters", &words::sentence(&error));
        samples.warnings.push(warning);
    }
    samples
}

fn sample_into(
    samples: &mut Samples,
    (watched, upstreams): (&WatchedServer, &[ConnectParams]),
    cadence: Duration,
    marks: &Receiver<()>,
) -> Result<(), SessionError> {
    let mut client = sampling::open(&watched.params)?;
    let mut statements = prepare_sources(&mut client, watched, samples);
    let replication = client.prepare(replication::SQL)?;
    let others = client.prepare(databases::SQL)?;
    let own = [&watched.database, &watched.params.dbname];
    let mut upstreams = open_upstreams(upstreams, samples);
    let mut schedule = SampleSchedule::new(Instant::now(), cadence);
    loop {
        read_all(&mut client, watched, &mut statements, samples);
        read_standbys(&mut client, &replication, samples);
        let (rows, at) = timed(|| client.query(&others, &[&own.as_slice()]));
        samples.databases.extend(rows.ok().map(|rows| databases::Reading::new(at, &rows)));
        for (upstream, statement) in &mut upstreams {
            read_standbys(upstream, statement, samples);
        }
        if client.is_closed() {
            let warning = not_observed("the server's counters", "the connection was lost");
            samples.warnings.push(warning);
            return Ok(());
        }
        let now = Instant::now();
        schedule.advance(now);
        match marks.recv_timeout(schedule.due().saturating_duration_since(now)) {
            Ok(()) => schedule = SampleSchedule::new(Instant::now() + AFTER_SLICE, cadence),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// A standby that cannot be reached leaves out the standbys that stream from it, and nothing else.
fn open_upstreams(upstreams: &[ConnectParams], samples: &mut Samples) -> Vec<(Client, Statement)> {
    let open = |params: &ConnectParams| match open_upstream(params) {
        Ok(opened) => Some(opened),
        Err(error) => {
            let what = format!("the standbys of {}", params.describe());
            samples.warnings.push(not_observed(&what, &words::sentence(&error)));
            None
        }
    };
    upstreams.iter().filter_map(open).collect()
}

fn open_upstream(params: &ConnectParams) -> Result<(Client, Statement), SessionError> {
    let mut client = sampling::open(params)?;
    let statement = client.prepare(replication::SQL)?;
    Ok((client, statement))
}

/// Reads the standbys that stream from a server; a failure leaves a gap.
fn read_standbys(client: &mut Client, statement: &Statement, samples: &mut Samples) {
    let (rows, at) = timed(|| client.query(statement, &[]));
    if let Ok(rows) = rows {
        let standbys = rows.iter().filter_map(replication::Standby::from_row).collect();
        samples.standbys.push((at, standbys));
    }
}

/// Prepares a statement for each source that can be read.
fn prepare_sources(
    client: &mut Client,
    watched: &WatchedServer,
    samples: &mut Samples,
) -> Vec<Statement> {
    let mut statements = Vec::new();
    for source in counters::for_version(watched.version_num) {
        match client.prepare(source.sql) {
            Ok(statement) => {
                let names = statement.columns().iter().map(|c| c.name().to_owned()).collect();
                samples.logs.push(Log { source, names, rows: Vec::new() });
                statements.push(statement);
            }
            Err(error) => samples.warnings.push(Warning::new(
                format!("{} cannot be read", source.what),
                words::message(&error),
                "if the server is newer than pgio, upgrade pgio",
            )),
        }
    }
    statements
}

/// Reads every source once and drops the sources that the role may not read.
fn read_all(
    client: &mut Client,
    watched: &WatchedServer,
    statements: &mut Vec<Statement>,
    samples: &mut Samples,
) {
    let mut i = 0;
    while i < statements.len() {
        let log = &mut samples.logs[i];
        let (row, at) = timed(|| {
            if log.source.of_database {
                client.query_one(&statements[i], &[&watched.database])
            } else {
                client.query_one(&statements[i], &[])
            }
        });
        let values: Result<Vec<Option<f64>>, _> =
            row.and_then(|row| (0..log.names.len()).map(|i| row.try_get(i)).collect());
        let refused = match &values {
            Ok(values) => log.source.hidden_is_null && values.iter().all(Option::is_none),
            Err(error) => words::is_denied(error),
        };
        if refused {
            samples.warnings.push(Warning::new(
                format!("{} cannot be read", log.source.what),
                "the role lacks the privilege",
                format!("GRANT pg_monitor TO {}", quote::identifier(&watched.params.user)),
            ));
            // Keep its readings; move it behind the sources that are still read.
            let log = samples.logs.remove(i);
            samples.logs.push(log);
            drop(statements.remove(i));
        } else {
            // Any other failure, such as a statement timeout, leaves a gap.
            log.rows.push((at, values.unwrap_or_else(|_| vec![None; log.names.len()])));
            i += 1;
        }
    }
}

/// The result and the moment halfway between request and answer.
fn timed<T>(query: impl FnOnce() -> T) -> (T, Instant) {
    let start = Instant::now();
    let result = query();
    (result, start + start.elapsed() / 2)
}

#[derive(Debug, Clone)]
struct SampleSchedule {
    first: Instant,
    every: Duration,
    /// Index of the tick that is due next.
    next: u32,
    missed: u64,
}

impl SampleSchedule {
    fn new(first: Instant, every: Duration) -> SampleSchedule {
        SampleSchedule { first, every, next: 0, missed: 0 }
    }

    /// When the next tick is due.
    fn due(&self) -> Instant {
        self.first + self.every * self.next
    }

    /// Marks the due tick as used and skips the ticks that passed meanwhile. They count as missed:
    /// making up for them would measure the same moment several times.
    fn advance(&mut self, now: Instant) {
        self.next += 1;
        while self.due() + self.every <= now {
            self.next += 1;
            self.missed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_that_cannot_be_opened_is_a_warning() {
        let nowhere = |name: &str| {
            let text = format!("host=/nonexistent/{name} user=u dbname=d");
            pgio_connect::resolve(&text, &pgio_connect::Env::default()).unwrap()
        };
        let mut samples = Samples::default();
        let opened = open_upstreams(&[nowhere("a"), nowhere("b")], &mut samples);
        assert!(opened.is_empty());
        let what: Vec<&str> = samples.warnings.iter().map(|w| w.what.as_str()).collect();
        assert_eq!(what.len(), 2, "each by itself: {what:?}");
        assert!(what[0].contains("/nonexistent/a"), "{what:?}");
    }

    #[test]
    fn late_samples_count_missed_ticks_and_keep_the_schedule() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut schedule = SampleSchedule::new(start, second);
        schedule.advance(start);
        assert_eq!((schedule.due(), schedule.missed), (start + second, 0));
        // Late, but the next tick is not over yet.
        schedule.advance(start + second * 2);
        assert_eq!((schedule.due(), schedule.missed), (start + second * 2, 0));
        schedule.advance(start + second * 5 + second / 2);
        assert_eq!((schedule.due(), schedule.missed), (start + second * 5, 2));
    }
}
