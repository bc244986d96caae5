//! One trial: prepare, read, open the window, read again, and make a record of it.
//!
//! Never fails as a function: whatever goes wrong is the record's outcome. The readings lie
//! between the sessions' preparation and the window, so that nothing but the work is inside.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use postgres::Client;

use super::trial_checks;
use crate::config::resolve::Extent;
use crate::histogram::Histogram;
use crate::host::stop::Stop;
use crate::pg::connect::ConnectParams;
use crate::pg::server::{self, Counters, FORCE_FLUSH_SINCE, Server};
use crate::pg::words;
use crate::results::metrics;
use crate::results::model::{
    DatabaseCounters, DatabaseRow, DatasetInfo, Evidence, Metric, Outcome, Place, ServerInfo,
    Trial, Warning, When, Window, WorkloadInfo,
};
use crate::treatment::Treatment;
use crate::workload::{EngineError, Gang, Progress, Ran, Setup, WindowEvent, Workload};

/// Evidence is read this often inside the window.
const EVIDENCE_EVERY: Duration = Duration::from_millis(250);

/// Before 15 the collector may answer with what it wrote half a second ago: readings that are
/// nearer to each other agree without meaning it.
const STALE: Duration = Duration::from_millis(600);

/// What a trial needs to know.
pub struct Request<'a> {
    pub run_id: &'a str,
    pub place: Option<Place>,
    pub params: &'a ConnectParams,
    pub server: &'a Server,
    pub workload: &'a Arc<dyn Workload>,
    pub treatments: &'a [Box<dyn Treatment>],
    pub session_settings: Vec<(String, String)>,
    pub warmup: Duration,
    pub seed: u64,
    pub stop: &'a Stop,
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Runs it. `observe` hears of progress inside the window.
pub fn run(request: &Request<'_>, admin: &mut Client, observe: &mut dyn FnMut(Progress)) -> Trial {
    attempt(request, admin, observe).0
}

/// As [`run`], with the error that the record tells in words.
pub fn attempt(
    request: &Request<'_>,
    admin: &mut Client,
    observe: &mut dyn FnMut(Progress),
) -> (Trial, Option<EngineError>) {
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
    if let Extent::Time(window) = request.workload.extent() {
        trial.window.asked_seconds = Some(window.as_secs_f64());
    }
    trial.warnings.extend(request.server.warnings.iter().cloned());
    let error = measure(request, admin, &mut trial, observe).err();
    trial.outcome = match &error {
        None => Outcome::Complete,
        Some(EngineError::Stopped) => Outcome::Interrupted,
        Some(error) => Outcome::Failed { error: words::sentence(error) },
    };
    trial_checks::judge(&mut trial, request.treatments);
    (trial, error)
}

fn measure(
    request: &Request<'_>,
    admin: &mut Client,
    trial: &mut Trial,
    observe: &mut dyn FnMut(Progress),
) -> Result<(), EngineError> {
    let pg = |doing: &'static str| move |source| EngineError::Postgres { doing, source };
    let read = |e: server::ServerError| EngineError::Stuck(words::sentence(&e));
    request.workload.before_trial(admin).map_err(pg("preparing the trial"))?;
    (trial.server.fsync, trial.server.full_page_writes) =
        durability(admin).map_err(pg("reading settings"))?;
    if let Err(warning) = server::checkpoint(admin, request.server) {
        trial.warnings.push(warning);
    }
    // Sessions that are made ready without it would wait for the standby already.
    for e in request.treatments.iter().flat_map(|t| t.verify(admin, When::Before)) {
        if let (false, Some(expected)) = (e.holds(), &e.expected) {
            return Err(EngineError::NotInForce(format!(
                "{} was {} instead of {expected}",
                e.what, e.found
            )));
        }
    }
    let gang = Gang::assemble(
        Setup {
            params: request.params.clone(),
            workload: Arc::clone(request.workload),
            settings: request.session_settings.clone(),
            warmup: request.warmup,
            seed: request.seed,
            stop: request.stop.clone(),
        },
        admin,
    )?;
    trial.settings = gang.pinned.clone();
    trial.evidence = session_evidence(request, trial);
    trial.evidence.extend(request.treatments.iter().flat_map(|t| t.verify(admin, When::Before)));

    trial.dataset = request.workload.dataset(admin).map_err(pg("measuring the data set"))?;
    let version = request.server.info.version_num;
    let (counters_before, before) = readings(version, admin).map_err(read)?;
    let mut next_evidence = Instant::now();
    let mut during: Vec<Evidence> = Vec::new();
    let ran = gang.run(admin, request.workload.extent(), &mut |admin, event| {
        let WindowEvent::Progress(progress) = event else { return };
        if next_evidence <= Instant::now() {
            next_evidence = Instant::now() + EVIDENCE_EVERY;
            for e in request.treatments.iter().flat_map(|t| t.verify(admin, When::During)) {
                if !during.contains(&e) {
                    during.push(e);
                }
            }
        }
        observe(progress);
    })?;
    trial.evidence.extend(during);
    // After a failure there is nothing to read: it would be of something else.
    record_run(request, trial, ran)?;
    let (counters_after, after) = readings(version, admin).map_err(read)?;
    // What was off at either end was not on throughout.
    let (fsync, full_page_writes) = durability(admin).map_err(pg("reading settings"))?;
    for (found, after) in
        [(&mut trial.server.fsync, fsync), (&mut trial.server.full_page_writes, full_page_writes)]
    {
        if after == "off" {
            *found = after;
        }
    }
    trial.evidence.extend(request.treatments.iter().flat_map(|t| t.verify(admin, When::After)));
    if let (Some(info), Some(now)) =
        (&mut trial.dataset, request.workload.dataset(admin).map_err(pg("measuring the data set"))?)
    {
        info.bytes_after = now.bytes_after;
    }
    trial.database = Some(DatabaseCounters { before, after });
    add_counter_metrics(trial, counters_before, counters_after);
    Ok(())
}

/// fsync and full_page_writes as they are now.
fn durability(admin: &mut Client) -> Result<(String, String), postgres::Error> {
    let row = admin
        .query_one("SELECT current_setting('fsync'), current_setting('full_page_writes')", &[])?;
    Ok((row.get(0), row.get(1)))
}

/// What the sessions read back of the condition's settings when they were made ready.
fn session_evidence(request: &Request<'_>, trial: &Trial) -> Vec<Evidence> {
    request
        .session_settings
        .iter()
        .map(|(name, _)| {
            let found = trial.settings.get(name).cloned().unwrap_or_default();
            // The server took the value when it was set: what it then shows is what was asked.
            Evidence {
                when: When::Before,
                what: format!("{name} (sessions)"),
                expected: Some(found.clone()),
                found,
            }
        })
        .collect()
}

/// Moves what the engine returns into the record; its error, if any, is the trial's.
fn record_run(request: &Request<'_>, trial: &mut Trial, ran: Ran) -> Result<(), EngineError> {
    trial.window.seconds = ran.seconds;
    if let Ok(started) = Timestamp::from_microsecond((ran.started * 1e6) as i64) {
        trial.started_at = started.to_string();
    }
    for (name, found) in &ran.readings {
        let expected = trial.settings.get(name).cloned();
        let what = format!("{name} (sessions)");
        for when in [When::During, When::After] {
            let evidence = Evidence {
                when,
                what: what.clone(),
                found: found.clone(),
                expected: expected.clone(),
            };
            trial.evidence.push(evidence);
        }
    }
    trial.sessions = ran.sessions;
    trial.timeline = ran.timeline;
    for (name, value) in request.workload.metrics(&ran.totals, ran.seconds) {
        put(trial, name, value);
    }
    let commits = ran.totals.count("commit");
    if commits > 0 {
        put(trial, "commits_per_second", Some(commits as f64 / ran.seconds));
    }
    for (class, h) in &ran.totals.histograms {
        put_latencies(trial, class, h);
    }
    trial.histograms = ran.totals.histograms.into_iter().filter(|(_, h)| h.count() > 0).collect();
    trial.checks.push(trial_checks::common_start(ran.late, ran.seconds));
    if ran.cancelled_sync_rep > 0 {
        trial.checks.push(trial_checks::cancelled_sync_rep(ran.cancelled_sync_rep));
    }
    match ran.error {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn put_latencies(trial: &mut Trial, class: &str, h: &Histogram) {
    if h.count() == 0 {
        return;
    }
    let seconds = |ns: Option<f64>| ns.map(|ns| ns / 1e9);
    let values = [
        ("mean", h.mean_ns()),
        ("p50", h.quantile_ns(0.50)),
        ("p95", h.quantile_ns(0.95)),
        ("p99", h.quantile_ns(0.99)),
        ("max", h.max_ns()),
    ];
    for (suffix, ns) in values {
        put(trial, &format!("{class}_latency_{suffix}"), seconds(ns));
    }
}

fn put(trial: &mut Trial, name: &str, value: Option<f64>) {
    // A name that is not in the table would have no unit and no direction: a mistake of ours that
    // the test over all workloads' metrics finds.
    if let Some(definition) = metrics::definition(name) {
        trial.metrics.insert(name.to_owned(), Metric { value, unit: definition.unit.to_owned() });
    } else {
        debug_assert!(false, "metric `{name}` is not in the table");
    }
}

fn add_counter_metrics(trial: &mut Trial, before: Counters, after: Counters) {
    let seconds = trial.window.seconds;
    if let Some(d) = &trial.database {
        let (read, hit) =
            (d.after.blks_read - d.before.blks_read, d.after.blks_hit - d.before.blks_hit);
        put(trial, "riops", Some(read as f64 / seconds));
        put(trial, "cache_hits_per_second", Some(hit as f64 / seconds));
    }
    let wal = difference(before.wal_bytes, after.wal_bytes);
    put(trial, "wal_bytes_per_second", wal.map(|w| w / seconds));
    if let (Some(wal), Some(h)) = (wal, trial.histograms.get("commit")) {
        let per_commit = wal / h.count() as f64;
        put(trial, "wal_bytes_per_commit", Some(per_commit));
    }
    let images = difference(
        before.wal_full_page_images.map(|n| n as f64),
        after.wal_full_page_images.map(|n| n as f64),
    );
    if images.is_some() {
        put(trial, "wal_full_page_images", images);
    }
    let checkpoints =
        difference(before.checkpoints.map(|n| n as f64), after.checkpoints.map(|n| n as f64));
    put(trial, "checkpoints", checkpoints);
}

fn difference(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    Some(after? - before?)
}

/// Before 15 counters arrive through a collector: read until two readings agree.
fn readings(
    version: u32,
    admin: &mut Client,
) -> Result<(Counters, DatabaseRow), server::ServerError> {
    let mut found = (server::counters(admin, version), server::database_row(admin)?);
    if version >= FORCE_FLUSH_SINCE {
        return Ok(found);
    }
    // Our own reading adds a little to hits and tuples returned; updates are the workload's.
    let telling = |(all, row): &(Counters, DatabaseRow)| (*all, row.blks_read, row.tup_updated);
    for _ in 0..5 {
        std::thread::sleep(STALE);
        let again = (server::counters(admin, version), server::database_row(admin)?);
        let agree = telling(&again) == telling(&found);
        found = again;
        if agree {
            break;
        }
    }
    Ok(found)
}

/// A record of nothing yet.
pub fn blank() -> Trial {
    Trial {
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
        histograms: BTreeMap::new(),
        metrics: BTreeMap::new(),
        database: None,
        telemetry: None,
        series: None,
        environment: BTreeMap::new(),
        evidence: Vec::new(),
        checks: Vec::new(),
        warnings: Vec::<Warning>::new(),
    }
}
