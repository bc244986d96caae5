//! Counters of the server over time: a thread with a session of its own.
//!
//! What is read is in [`sources`], what becomes of it in [`tracks`]. A source that the role may not
//! read is left out with a warning; nothing here fails a trial. A session's own counts become
//! visible when its slice ends, so the beat begins a little after the window: then a second holds a
//! slice, not parts of two.

mod replication;
mod sources;
mod tracks;

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use postgres::error::SqlState;
use postgres::{Client, Statement};

use super::beat::Beat;
use super::session::{self, SessionError};
use super::{PATIENCE, Span, Watched, lost};
use crate::pg::{quote, words};
use crate::results::Warning;
use crate::results::series::{Moment, Track};
use crate::results::telemetry::StandbyLag;
use sources::Source;

/// After the end of a slice its counts are visible within this time, unless the server is starved.
const AFTER_SLICE: Duration = Duration::from_millis(20);

pub(super) struct Sampler {
    /// Dropped, it ends the thread.
    mark: Sender<()>,
    found: Receiver<Found>,
}

/// What a window leaves.
#[derive(Debug, Default)]
pub(super) struct ServerUse {
    pub(super) tracks: Vec<Track>,
    pub(super) moments: Vec<Moment>,
    pub(super) standbys: BTreeMap<String, StandbyLag>,
    pub(super) warnings: Vec<Warning>,
}

/// What the thread brings back.
struct Found {
    logs: Vec<Log>,
    standbys: Vec<(Instant, Vec<replication::Standby>)>,
    warnings: Vec<Warning>,
}

/// The readings of one source.
struct Log {
    source: &'static Source,
    names: Vec<String>,
    rows: Vec<(Instant, Vec<Option<f64>>)>,
}

impl Sampler {
    pub(super) fn start(watched: Watched, cadence: Duration) -> Sampler {
        let (mark, marks) = mpsc::channel();
        let (tell, found) = mpsc::channel();
        // Without a thread `found` is closed, which `finish` reports.
        let _ = thread::Builder::new().name("pgio-server".to_owned()).spawn(move || {
            let _ = tell.send(sample(&watched, cadence, &marks));
        });
        Sampler { mark, found }
    }

    /// Reads now, and takes up the beat from here.
    pub(super) fn mark(&self) {
        let _ = self.mark.send(());
    }

    pub(super) fn finish(self, span: Span) -> ServerUse {
        drop(self.mark);
        match self.found.recv_timeout(PATIENCE) {
            Ok(found) => found.sum_up(span),
            Err(_) => ServerUse {
                warnings: vec![lost("the server's counters", "its sampler does not answer")],
                ..ServerUse::default()
            },
        }
    }
}

impl Found {
    fn sum_up(self, span: Span) -> ServerUse {
        let mut found = ServerUse { warnings: self.warnings, ..ServerUse::default() };
        for log in &self.logs {
            tracks::add(log, span, &mut found);
        }
        (found.standbys, found.tracks) = {
            let (lags, more) = replication::sum_up(&self.standbys, span);
            (lags, [found.tracks, more].concat())
        };
        found
    }
}

fn sample(watched: &Watched, cadence: Duration, marks: &Receiver<()>) -> Found {
    let mut found = Found { logs: Vec::new(), standbys: Vec::new(), warnings: Vec::new() };
    if let Err(error) = sample_into(&mut found, watched, cadence, marks) {
        found.warnings.push(lost("the server's counters", &words::sentence(&error)));
    }
    found
}

fn sample_into(
    found: &mut Found,
    watched: &Watched,
    cadence: Duration,
    marks: &Receiver<()>,
) -> Result<(), SessionError> {
    let mut client = session::open(&watched.params)?;
    let mut reading = prepare(&mut client, watched, found);
    let replication = client.prepare(replication::SQL)?;
    let mut beat = Beat::new(Instant::now(), cadence);
    loop {
        read_all(&mut client, watched, &mut reading, found);
        let (rows, at) = timed(|| client.query(&replication, &[]));
        if let Ok(rows) = rows {
            let seen = rows.iter().filter_map(replication::Standby::of).collect();
            found.standbys.push((at, seen));
        }
        if client.is_closed() {
            found.warnings.push(lost("the server's counters", "the connection was lost"));
            return Ok(());
        }
        let now = Instant::now();
        beat.used(now);
        match marks.recv_timeout(beat.due().saturating_duration_since(now)) {
            Ok(()) => beat = Beat::new(Instant::now() + AFTER_SLICE, cadence),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// The statements of those sources that can be read.
fn prepare(client: &mut Client, watched: &Watched, found: &mut Found) -> Vec<Statement> {
    let mut statements = Vec::new();
    for source in sources::of_version(watched.version_num) {
        match client.prepare(source.sql) {
            Ok(statement) => {
                let names = statement.columns().iter().map(|c| c.name().to_owned()).collect();
                found.logs.push(Log { source, names, rows: Vec::new() });
                statements.push(statement);
            }
            Err(error) => found.warnings.push(Warning::new(
                format!("{} cannot be read", source.what),
                words::said(&error),
                "look for a newer pgio, if the server is newer",
            )),
        }
    }
    statements
}

/// One round; a source that is refused is asked no more.
fn read_all(
    client: &mut Client,
    watched: &Watched,
    reading: &mut Vec<Statement>,
    found: &mut Found,
) {
    let mut i = 0;
    while i < reading.len() {
        let log = &mut found.logs[i];
        let (row, at) = timed(|| match log.source.of_database {
            true => client.query_one(&reading[i], &[&watched.database]),
            false => client.query_one(&reading[i], &[]),
        });
        let values: Result<Vec<Option<f64>>, _> =
            row.and_then(|row| (0..log.names.len()).map(|i| row.try_get(i)).collect());
        let refused = match &values {
            Ok(values) => log.source.hidden_is_null && values.iter().all(Option::is_none),
            Err(error) => error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE),
        };
        if refused {
            found.warnings.push(Warning::new(
                format!("{} cannot be read", log.source.what),
                "the role may not see it",
                format!("GRANT pg_monitor TO {}", quote::identifier(&watched.params.user)),
            ));
            // What it has read so far stays, behind those that are still read.
            let log = found.logs.remove(i);
            found.logs.push(log);
            drop(reading.remove(i));
        } else {
            // Whatever else failed, such as a statement that took too long, is a gap.
            log.rows.push((at, values.unwrap_or_else(|_| vec![None; log.names.len()])));
            i += 1;
        }
    }
}

/// The result with the middle between question and answer.
fn timed<T>(ask: impl FnOnce() -> T) -> (T, Instant) {
    let asked = Instant::now();
    let result = ask();
    (result, asked + asked.elapsed() / 2)
}
