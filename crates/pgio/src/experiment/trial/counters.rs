//! Reads the server's counters around a window and computes rates.

use std::time::Duration;

use postgres::Client;

use super::record::put;
use crate::pg::server::{self, Counters, FORCE_FLUSH_SINCE};
use pgio_results::model::{DatabaseRow, Trial};

/// Before 15 the collector may return values that are half a second old: readings that are
/// closer together agree by chance.
const STALE: Duration = Duration::from_millis(600);

/// Reads counters; before 15 they arrive through a collector, so this reads until two readings agree.
pub(super) fn readings(
    version: u32,
    admin: &mut Client,
) -> Result<(Counters, DatabaseRow), server::ServerError> {
    let mut found = (server::counters(admin, version), server::database_row(admin)?);
    if version >= FORCE_FLUSH_SINCE {
        return Ok(found);
    }
    // Our own queries add a little to hits and tuples returned; updates are the workload's alone.
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

/// Reads fsync and full_page_writes.
pub(super) fn durability(admin: &mut Client) -> Result<(String, String), postgres::Error> {
    let row = admin
        .query_one("SELECT current_setting('fsync'), current_setting('full_page_writes')", &[])?;
    Ok((row.get(0), row.get(1)))
}

pub(super) fn add_metrics(trial: &mut Trial, before: Counters, after: Counters) {
    let seconds = trial.window.seconds;
    if let Some(d) = &trial.database {
        let (read, hit) =
            (d.after.blks_read - d.before.blks_read, d.after.blks_hit - d.before.blks_hit);
        put(&mut trial.metrics, "riops", Some(read as f64 / seconds));
        put(&mut trial.metrics, "cache_hits_per_second", Some(hit as f64 / seconds));
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

fn difference(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    Some(after? - before?)
}
