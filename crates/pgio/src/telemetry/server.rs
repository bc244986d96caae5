//! Samples the server's counters on a separate thread and session.
//!
//! [`sources`] lists the statements; [`tracks`] turns their readings into series. A source that the
//! role may not read is skipped with a warning; nothing here fails a trial. A session publishes its
//! own counts when its time slice ends, so the schedule starts shortly after the window: each
//! reading then covers one slice, not parts of two.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::counters::{Log, ServerUse};
use pgio_connect::{Client, ConnectParams, Row, Statement};
use pgio_results::Warning;
use pgio_results::telemetry::{DatabaseUse, StandbyLag, Track};

use super::sampling::{self, SAMPLER_TIMEOUT, SessionError, Span, WatchedServer, not_observed};
use crate::pg;
use crate::pg::words::{self, Shown};

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
    standbys: Vec<(Instant, Vec<Standby>)>,
    databases: Vec<Reading>,
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
            super::counters::add(log, span, &mut usage);
        }
        let (lags, lag_tracks) = summarize_lags(&self.standbys, span);
        usage.standbys = lags;
        usage.tracks.extend(lag_tracks);
        usage.databases = summarize_databases(&self.databases, span);
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
    let replication = client.prepare(REPLICATION)?;
    let others = client.prepare(OTHER_DATABASES)?;
    let own = [&watched.database, &watched.params.dbname];
    let mut upstreams = open_upstreams(upstreams, samples);
    let mut schedule = SampleSchedule::new(Instant::now(), cadence);
    loop {
        read_all(&mut client, watched, &mut statements, samples);
        read_standbys(&mut client, &replication, samples);
        let (rows, at) = timed(|| client.query(&others, &[&own.as_slice()]));
        samples.databases.extend(rows.ok().map(|rows| Reading::new(at, &rows)));
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
    let statement = client.prepare(REPLICATION)?;
    Ok((client, statement))
}

/// Reads the standbys that stream from a server; a failure leaves a gap.
fn read_standbys(client: &mut Client, statement: &Statement, samples: &mut Samples) {
    let (rows, at) = timed(|| client.query(statement, &[]));
    if let Ok(rows) = rows {
        let standbys = rows.iter().filter_map(Standby::from_row).collect();
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
    for source in super::counters::for_version(watched.version_num) {
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
                format!("GRANT pg_monitor TO {}", pg::identifier(&watched.params.user)),
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

/// The databases of the parameter are left out.
const OTHER_DATABASES: &str = include_str!("sql/other_databases.sql");

// Work that the server counted for databases which are not the workload's. Pure. A session publishes its counts when
// it is idle, at most once a second, so two readings that are closer together may hold none of its work, or the work
// of two seconds.

/// Shortest time between two readings, if there are earlier ones.
const MIN_SPAN: Duration = Duration::from_secs(3);

#[derive(Debug)]
struct Reading {
    at: Instant,
    counts: BTreeMap<String, [f64; 3]>,
}

impl Reading {
    fn new(at: Instant, rows: &[Row]) -> Reading {
        let count = |row: &Row| -> Result<_, pgio_connect::Error> {
            let counts = [row.try_get(1)?, row.try_get(2)?, row.try_get(3)?];
            Ok((row.try_get::<_, Shown>(0)?.into(), counts))
        };
        Reading { at, counts: rows.iter().flat_map(count).collect() }
    }
}

/// Returns the rates of the databases in which something was done.
fn summarize_databases(readings: &[Reading], span: Span) -> BTreeMap<String, DatabaseUse> {
    let Some(last) = readings.iter().min_by_key(|reading| {
        let (at, closed) = (reading.at, span.closed);
        at.saturating_duration_since(closed).max(closed.saturating_duration_since(at))
    }) else {
        return BTreeMap::new();
    };
    let latest = span.opened.min(last.at.checked_sub(MIN_SPAN).unwrap_or(span.opened));
    let before = readings.iter().take_while(|reading| reading.at <= latest).last();
    let Some(first) = before.or(readings.first()) else { return BTreeMap::new() };
    let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
    let rates = last.counts.iter().filter_map(|(name, now)| {
        let then = first.counts.get(name)?;
        let [transactions, tuples, blocks] = std::array::from_fn(|i| (now[i] - then[i]) / seconds);
        // Less than before: somebody reset the statistics.
        let is_work = seconds > 0.0 && transactions >= 0.0 && transactions + tuples + blocks > 0.0;
        is_work.then(|| (name.clone(), DatabaseUse { transactions, tuples, blocks }))
    });
    rates.collect()
}

const REPLICATION: &str = include_str!("sql/replication.sql");

/// Tracks made from the columns after the first two.
const COLUMNS: [(&str, &str); 6] = [
    ("sent_bytes_behind", "bytes"),
    ("flush_bytes_behind", "bytes"),
    ("replay_bytes_behind", "bytes"),
    ("write_lag", "s"),
    ("flush_lag", "s"),
    ("replay_lag", "s"),
];
const REPLAY_BYTES: usize = 2;
const WRITE_LAG: usize = 3;

/// One row of pg_stat_replication.
#[derive(Debug, Clone, PartialEq)]
struct Standby {
    name: String,
    sync_state: String,
    values: [Option<f64>; 6],
}

impl Standby {
    /// `None` if the role sees only that the standby exists; another source warns about that.
    fn from_row(row: &Row) -> Option<Standby> {
        Some(Standby {
            name: row.try_get(0).ok()?,
            sync_state: row.try_get::<_, Option<String>>(1).ok()??,
            values: std::array::from_fn(|i| row.try_get(i + 2).ok().flatten()),
        })
    }
}

fn summarize_lags(
    readings: &[(Instant, Vec<Standby>)],
    span: Span,
) -> (BTreeMap<String, StandbyLag>, Vec<Track>) {
    let mut by_name: BTreeMap<String, Vec<(Instant, &Standby)>> = BTreeMap::new();
    for (at, standbys) in readings {
        for (i, standby) in standbys.iter().enumerate() {
            let namesakes = standbys[..i].iter().filter(|s| s.name == standby.name).count();
            let name = match namesakes {
                0 => standby.name.clone(),
                n => format!("{} {}", standby.name, n + 1),
            };
            by_name.entry(name).or_default().push((*at, standby));
        }
    }
    let mut lags = BTreeMap::new();
    let mut tracks = Vec::new();
    for (name, readings) in by_name {
        let at: Vec<f64> = readings.iter().map(|(at, _)| span.seconds_at(*at)).collect();
        for (i, (quantity, unit)) in COLUMNS.into_iter().enumerate() {
            let values: Vec<_> = readings.iter().map(|(_, s)| s.values[i]).collect();
            if values.iter().any(Option::is_some) {
                tracks.push(Track {
                    source: "server".to_owned(),
                    subject: name.clone(),
                    name: quantity.to_owned(),
                    unit: unit.to_owned(),
                    at: at.clone(),
                    values,
                });
            }
        }
        let inside: Vec<&Standby> =
            readings.iter().filter(|(at, _)| span.contains(*at)).map(|(_, s)| *s).collect();
        if !inside.is_empty() {
            lags.insert(name, lag(&inside));
        }
    }
    (lags, tracks)
}

fn lag(inside: &[&Standby]) -> StandbyLag {
    let values = |column: usize| inside.iter().filter_map(move |s| s.values[column]);
    let mean = |column| {
        let n = values(column).count();
        (n > 0).then(|| values(column).sum::<f64>() / n as f64)
    };
    let mut states: Vec<&str> = inside.iter().map(|s| s.sync_state.as_str()).collect();
    states.dedup();
    StandbyLag {
        sync_state: StandbyLag::join_states(&states),
        mean_bytes_behind: mean(REPLAY_BYTES),
        max_bytes_behind: values(REPLAY_BYTES).reduce(f64::max),
        write_seconds: mean(WRITE_LAG),
        flush_seconds: mean(WRITE_LAG + 1),
        replay_seconds: mean(WRITE_LAG + 2),
        ..StandbyLag::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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

    #[test]
    fn a_short_window_is_judged_by_the_seconds_before_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let reading = |ms, work: f64| Reading {
            at: at(ms),
            counts: [("busy", work), ("idle", 7.0)]
                .map(|(name, n)| (name.to_owned(), [n, 2.0 * n, 10.0 * n]))
                .into(),
        };
        let all =
            [reading(0, 0.0), reading(1000, 100.0), reading(5000, 500.0), reading(5300, 500.0)];
        let span = Span { opened: at(5000), closed: at(5300) };
        let found = summarize_databases(&all, span);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["busy"]);
        let DatabaseUse { transactions, tuples, blocks } = found["busy"];
        assert!((transactions - 400.0 / 4.3).abs() < 1e-9, "{transactions}");
        assert!((tuples - 800.0 / 4.3).abs() < 1e-9 && (blocks - 4000.0 / 4.3).abs() < 1e-9);
        assert!(
            summarize_databases(&all[..1], span).is_empty()
                && summarize_databases(&[], span).is_empty()
        );
    }

    fn standby(name: &str, sync_state: &str, replay: f64, lag: Option<f64>) -> Standby {
        let values = [Some(0.0), Some(1.0), Some(replay), None, None, lag];
        Standby { name: name.to_owned(), sync_state: sync_state.to_owned(), values }
    }

    #[test]
    fn readings_outside_the_window_are_in_the_track_but_not_in_the_summary() {
        let opened = Instant::now();
        let second = Duration::from_secs(1);
        let span = Span { opened, closed: opened + 2 * second };
        let readings = [
            (opened - second, vec![standby("s1", "async", 9e9, Some(9.0))]),
            (opened + second / 2, vec![standby("s1", "sync", 10.0, Some(0.5))]),
            (
                opened + second,
                vec![standby("s1", "sync", 30.0, None), standby("s1", "async", 5.0, None)],
            ),
        ];
        let (lags, tracks) = summarize_lags(&readings, span);
        let lag = &lags["s1"];
        assert_eq!(lag.sync_state, "sync");
        assert_eq!((lag.mean_bytes_behind, lag.max_bytes_behind), (Some(20.0), Some(30.0)));
        assert_eq!((lag.replay_seconds, lag.write_seconds), (Some(0.5), None));
        assert_eq!(lags["s1 2"].max_bytes_behind, Some(5.0));
        let lag_track = tracks.iter().find(|t| t.name == "replay_lag").unwrap();
        assert_eq!(
            (&lag_track.at, &lag_track.values),
            (&vec![-1.0, 0.5, 1.0], &vec![Some(9.0), Some(0.5), None])
        );
        assert!(tracks.iter().all(|t| t.name != "flush_lag"), "the server never reported it");
    }

    #[test]
    fn a_standby_that_was_promoted_to_sync_was_synchronous() {
        let [potential, sync] = ["potential", "sync"].map(|state| standby("s1", state, 0.0, None));
        let changed = lag(&[&potential, &potential, &sync]);
        assert_eq!(changed.sync_state, "potential, then sync");
        assert!(changed.was_synchronous() && !lag(&[&potential]).was_synchronous());
    }
}
