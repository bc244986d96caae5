//! Reads the server's counters around a window and computes rates.

use std::time::Duration;

use pgio_connect::Client;

use super::record::put;
use crate::pg::server::{self, Counters, FORCE_FLUSH_SINCE};
use pgio_results::model::{DatabaseRow, Trial, Warning, When};

/// Before 15 the collector may return values that are half a second old: readings that are
/// closer together agree by chance.
const STALE: Duration = Duration::from_millis(600);

/// The counters of the server, and those of the database.
pub(super) struct Readings {
    pub(super) counters: Counters,
    pub(super) row: DatabaseRow,
}

impl Readings {
    fn take(version: u32, admin: &mut Client) -> Result<Readings, server::ServerError> {
        let counters = server::counters(admin, version);
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
/// not, and autovacuum and others go on writing meanwhile: after a window, that of the first reading counts.
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
        std::thread::sleep(stale);
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
