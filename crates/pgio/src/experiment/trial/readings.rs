//! The readings around a window and the evidence inside it, for plain and for woven trials.
//!
//! Each function reads one thing and says in its error which, so that the caller keeps what was read before.
//! Their order is the trial's: see `measure` in `trial` and in `woven`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::{panic, thread};

use pgio_connect::Client;
use pgio_results::model::{DatabaseRow, DatasetInfo, Evidence, ServerInfo, Trial, Warning, When};

use super::Request;
use super::record::put;
use crate::config::experiment::Checkpoint;
use crate::experiment::environment;
use crate::pg::counters::{self, Counters};
use crate::pg::server::{self, FORCE_FLUSH_SINCE};
use crate::telemetry::Standbys;
use crate::workload::EngineError;

/// Interval of reading evidence inside the window; longer where reading takes more than [`EVIDENCE_SHARE`].
const EVIDENCE_EVERY: Duration = Duration::from_millis(250);
/// Reading evidence takes at most this fraction (1/n) of the time: it is work on the measured hosts, and
/// some conditions need more of it than others.
const EVIDENCE_SHARE: u32 = 20;

/// A server that is prepared for a trial.
pub(super) struct PreparedServer {
    settings: ServerSettings,
    /// Why the checkpoint that was asked for failed.
    warning: Option<Warning>,
}

/// What a record says of the server and a condition may change.
struct ServerSettings {
    shared_buffers: String,
    fsync: String,
    full_page_writes: String,
    started: i64,
}

impl PreparedServer {
    pub(super) fn record(&self, trial: &mut Trial) {
        let ServerSettings { shared_buffers, fsync, full_page_writes, started } = &self.settings;
        trial.server.started = Some(*started);
        trial.server.shared_buffers.clone_from(shared_buffers);
        trial.server.fsync.clone_from(fsync);
        trial.server.full_page_writes.clone_from(full_page_writes);
        trial.warnings.extend(self.warning.clone());
    }
}

/// Prepares the server before any session connects: first the workload's data, last the checkpoint.
pub(super) fn prepare_server(
    request: &Request<'_>,
    admin: &mut Client,
) -> Result<PreparedServer, EngineError> {
    request.workload.before_trial(admin).map_err(failed("preparing the trial"))?;
    let settings = read_server_settings(admin)?;
    let warning = if request.checkpoint == Checkpoint::None {
        None
    } else {
        server::checkpoint(admin, request.server).err()
    };
    Ok(PreparedServer { settings, warning })
}

/// Reads the size of the data, where the workload has a data set.
pub(super) fn read_dataset(
    request: &Request<'_>,
    admin: &mut Client,
) -> Result<Option<DatasetInfo>, EngineError> {
    request.workload.dataset(admin).map_err(failed("measuring the data set"))
}

/// Facts of hosts, by name.
pub(super) type HostFacts = BTreeMap<String, String>;

/// Prepares the work and meanwhile reads the facts of hosts and standbys. One after the other, the sessions would
/// stand still between warm-up and window, and a short trial would take a twentieth longer.
pub(super) fn prepare_and_read_host<T>(
    request: &Request<'_>,
    prepare: impl FnOnce() -> Result<T, EngineError>,
) -> Result<(T, HostFacts), EngineError> {
    let sources = request.sources;
    thread::scope(|scope| {
        let read = || environment::read_host(sources, Standbys::Read);
        let reading = thread::Builder::new().spawn_scoped(scope, read);
        let prepared = prepare();
        let facts = match reading {
            Ok(reading) => reading.join().unwrap_or_else(|panic| panic::resume_unwind(panic)),
            // No more threads may start.
            Err(_) => read(),
        };
        Ok((prepared?, facts))
    })
}

/// Adds the server's settings to the facts of hosts.
pub(super) fn read_environment(
    host: HostFacts,
    admin: &mut Client,
) -> Result<BTreeMap<String, String>, EngineError> {
    let mut found = environment::read_settings(admin).map_err(failed("reading settings"))?;
    found.extend(host);
    Ok(found)
}

/// Reads again what may not change inside the window.
pub(super) fn read_environment_again(
    request: &Request<'_>,
    admin: &mut Client,
) -> Result<BTreeMap<String, String>, EngineError> {
    read_environment(environment::read_host(request.sources, Standbys::Skip), admin)
}

pub(super) fn read_counters(
    request: &Request<'_>,
    admin: &mut Client,
    when: When,
) -> Result<Readings, EngineError> {
    Ok(readings(request.server.info.version_num, admin, when)?)
}

/// Reads durability and the size of the data at the end of a window into the records of all its trials.
pub(super) fn read_end(
    request: &Request<'_>,
    admin: &mut Client,
    trials: &mut [Trial],
) -> Result<(), EngineError> {
    let ServerSettings { fsync, full_page_writes, .. } = read_server_settings(admin)?;
    let now = read_dataset(request, admin)?;
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

/// Reads them anew for each trial: its condition may have restarted the server.
fn read_server_settings(admin: &mut Client) -> Result<ServerSettings, EngineError> {
    let row = admin
        .query_one(
            "SELECT current_setting('shared_buffers'), current_setting('fsync'), \
                    current_setting('full_page_writes'), \
                    extract(epoch FROM pg_postmaster_start_time())::bigint",
            &[],
        )
        .map_err(failed("reading settings"))?;
    Ok(ServerSettings {
        shared_buffers: row.try_get(0)?,
        fsync: row.try_get(1)?,
        full_page_writes: row.try_get(2)?,
        started: row.try_get(3)?,
    })
}

/// Makes the error of what was being done, for `map_err`.
pub(super) fn failed(doing: &'static str) -> impl Fn(pgio_connect::Error) -> EngineError {
    move |source| EngineError::Postgres { doing, source }
}

/// When evidence is read inside a window.
pub(super) struct EvidencePace(Instant);

impl EvidencePace {
    pub(super) fn new() -> EvidencePace {
        EvidencePace(Instant::now())
    }

    pub(super) fn restart(&mut self, at: Instant) {
        self.0 = at;
    }

    /// Reads if it is time; the next time depends on how long that takes.
    pub(super) fn read_if_due(&mut self, read: impl FnOnce()) {
        let now = Instant::now();
        if self.0 <= now {
            read();
            self.0 = now + EVIDENCE_EVERY.max(now.elapsed() * EVIDENCE_SHARE);
        }
    }
}

/// Adds what is not yet known.
pub(super) fn add_new(known: &mut Vec<Evidence>, found: Vec<Evidence>) {
    for evidence in found {
        if !known.contains(&evidence) {
            known.push(evidence);
        }
    }
}

/// Returns the error of a condition that is not in force before its window.
pub(super) fn refuse_unproved(evidence: &[Evidence]) -> Result<(), EngineError> {
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

/// Before 15 the collector may return values that are half a second old: readings that are
/// closer together agree by chance.
const STALE: Duration = Duration::from_millis(600);

/// The counters of the server and of the database.
pub(super) struct Readings {
    pub(super) counters: Counters,
    pub(super) row: DatabaseRow,
}

impl Readings {
    fn take(version: u32, admin: &mut Client) -> Result<Readings, server::ServerError> {
        let counters = counters::read(admin, version);
        let row = server::database_row(admin)?;
        Ok(Readings { counters, row })
    }
}

/// Reads counters before or after the window.
pub(super) fn readings(
    version: u32,
    admin: &mut Client,
    when: When,
) -> Result<Readings, server::ServerError> {
    if version >= FORCE_FLUSH_SINCE {
        return Readings::take(version, admin);
    }
    agreed(when, STALE, || Readings::take(version, admin))
}

/// Reads until two readings agree: before 15 counters arrive through a collector. The position of the WAL does
/// not, and autovacuum and others go on writing meanwhile: after a window, the position of the first reading counts.
fn agreed<E>(
    when: When,
    stale: Duration,
    mut take: impl FnMut() -> Result<Readings, E>,
) -> Result<Readings, E> {
    let mut found = take()?;
    let first_position = found.counters.wal_bytes;
    // Our own queries add a little to hits and tuples returned; updates are the workload's alone.
    // A checkpoint that runs goes on writing.
    let telling = |Readings { counters, row }: &Readings| {
        let collected = Counters { wal_bytes: None, checkpoint_buffers: None, ..*counters };
        (collected, row.blks_read, row.tup_updated)
    };
    for _ in 0..5 {
        thread::sleep(stale);
        let again = take()?;
        let agree = telling(&again) == telling(&found);
        found = again;
        if agree {
            break;
        }
    }
    if when == When::After {
        found.counters.wal_bytes = first_position;
    }
    Ok(found)
}

pub(super) fn add_metrics(trial: &mut Trial, before: Counters, after: Counters) {
    let seconds = trial.window.seconds;
    let mut was_reset = after.were_reset_since(&before);
    if let Some(d) = &trial.database {
        let read = difference(Some(d.before.blks_read as f64), Some(d.after.blks_read as f64));
        let hit = difference(Some(d.before.blks_hit as f64), Some(d.after.blks_hit as f64));
        was_reset |= read.is_none() || hit.is_none();
        let rate = |n: Option<f64>| n.filter(|_| !was_reset).map(|n| n / seconds);
        put(&mut trial.metrics, "riops", rate(read));
        put(&mut trial.metrics, "cache_hits_per_second", rate(hit));
    }
    if was_reset {
        trial.warnings.push(reset_warning());
    }
    let wal = difference(before.wal_bytes, after.wal_bytes);
    put(&mut trial.metrics, "wal_bytes_per_second", wal.map(|w| w / seconds));
    if let (Some(wal), Some(h)) = (wal, trial.histograms.get("commit")) {
        let per_commit = wal / h.count() as f64;
        put(&mut trial.metrics, "wal_bytes_per_commit", Some(per_commit));
    }
    let updated: u64 = trial.sessions.iter().map(|s| s.rows_updated).sum();
    if let (Some(wal), true) = (wal, updated > 0) {
        put(&mut trial.metrics, "wal_bytes_per_update", Some(wal / updated as f64));
    }
    let images = difference(
        before.wal_full_page_images.map(|n| n as f64),
        after.wal_full_page_images.map(|n| n as f64),
    );
    let images = images.filter(|_| !was_reset);
    if images.is_some() {
        put(&mut trial.metrics, "wal_full_page_images", images);
    }
    if let (Some(images), Some(block), Some(wal)) = (images, after.block_bytes, wal) {
        // An upper bound: images may be compressed, and omit the hole in a page.
        let share = (images * block / wal).min(1.0);
        put(&mut trial.metrics, "wal_fpi_share", Some(share).filter(|_| wal > 0.0));
    }
    put(&mut trial.metrics, "checkpoints", after.checkpoints_since(&before));
}

/// Says why metrics are missing.
pub(super) fn reset_warning() -> Warning {
    Warning::new(
        "metrics of the server's counters are missing",
        "somebody reset the server's statistics inside the window",
        "run no pg_stat_reset…() during an experiment",
    )
}

/// `None` also if the counter is lower than before, because it was reset.
fn difference(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    Some(after? - before?).filter(|n| *n >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::model::DatabaseCounters;
    use pgio_results::test_support::full_trial;

    #[test]
    fn a_record_has_the_settings_that_its_condition_gave_the_server() {
        let mut trial = full_trial();
        let settings = ServerSettings {
            shared_buffers: "4GB".to_owned(),
            fsync: "off".to_owned(),
            full_page_writes: "on".to_owned(),
            started: 1_764_000_000,
        };
        PreparedServer { settings, warning: None }.record(&mut trial);
        let found = &trial.server;
        assert_eq!(
            [&found.shared_buffers, &found.fsync, &found.full_page_writes],
            ["4GB", "off", "on"]
        );
        assert_eq!(found.started, Some(1_764_000_000));
    }

    fn counters(wal: f64, images: i64, checkpoints: i64) -> Counters {
        Counters {
            wal_bytes: Some(wal),
            wal_full_page_images: Some(images),
            checkpoints: Some(checkpoints),
            ..Counters::default()
        }
    }

    #[test]
    fn counters_reset_inside_the_window_give_no_metrics() {
        let mut trial = Trial::new();
        trial.window.seconds = 2.0;
        let row =
            |blks_read, blks_hit| DatabaseRow { blks_read, blks_hit, ..DatabaseRow::default() };
        let (before, after) = (row(1000, 9000), row(10, 90));
        trial.database = Some(DatabaseCounters { before: before.clone(), after });
        add_metrics(&mut trial, counters(1e6, 50, 7), counters(3e6, 5, 0));
        let value = |name: &str| trial.metrics.get(name).and_then(|m| m.value);
        for name in ["riops", "cache_hits_per_second", "wal_full_page_images", "checkpoints"] {
            assert_eq!(value(name), None, "{name}");
        }
        assert_eq!(value("wal_bytes_per_second"), Some(1e6), "a position, which nobody resets");
        // As high as before by now.
        let reset = |at| Counters { last_reset: Some(at), ..counters(1e6, 50, 7) };
        trial.warnings.clear();
        trial.database = Some(DatabaseCounters { before: before.clone(), after: before });
        add_metrics(&mut trial, reset(1.0), reset(2.0));
        assert_eq!(trial.metrics["riops"].value, None);
        let [warning] = trial.warnings.as_slice() else { panic!("{:?}", trial.warnings) };
        assert!(warning.why.contains("reset the server's statistics"), "{warning}");
    }

    /// Updates arrive through the collector with the second reading, and autovacuum writes WAL all the time.
    #[test]
    fn the_position_after_a_window_is_not_that_of_a_later_reading() {
        let read = |when| {
            let mut taken = 0;
            let found = agreed(when, Duration::ZERO, || {
                taken += 1;
                let row = DatabaseRow { tup_updated: i64::min(taken, 2), ..DatabaseRow::default() };
                Ok::<_, ()>(Readings { counters: counters(1e6 * taken as f64, 0, 0), row })
            });
            let found = found.unwrap();
            (taken, found.row.tup_updated, found.counters.wal_bytes)
        };
        assert_eq!(read(When::After), (3, 2, Some(1e6)));
        assert_eq!(read(When::Before), (3, 2, Some(3e6)), "nearest to the start of the window");
    }
}
