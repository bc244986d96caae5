//! Server-wide counters around a window, with the queries that each version needs.

use postgres::GenericClient;

/// First version with pg_stat_wal.
const STAT_WAL_SINCE: u32 = 140_000;
/// First version with num_done in pg_stat_checkpointer.
const CHECKPOINTS_DONE_SINCE: u32 = 180_000;
/// First version with pg_stat_checkpointer; older ones have pg_stat_bgwriter.
const STAT_CHECKPOINTER_SINCE: u32 = 170_000;

/// Server-wide counters, read before and after a window; `None` if the role may not read one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counters {
    /// Total bytes of WAL: the insert position.
    pub wal_bytes: Option<f64>,
    pub wal_full_page_images: Option<i64>,
    /// Page size: the size of a full-page image without compression and without a hole.
    pub block_bytes: Option<f64>,
    /// Total checkpoints started, timed and requested; completed ones since version 18.
    pub checkpoints: Option<i64>,
    /// Advances with each completed checkpoint. The counters of 17 include checkpoints that were
    /// skipped because nothing had been written.
    pub last_checkpoint: Option<f64>,
}

impl Counters {
    /// Checkpoints since `before`.
    pub fn checkpoints_since(&self, before: &Counters) -> Option<f64> {
        if self.last_checkpoint.is_some() && self.last_checkpoint == before.last_checkpoint {
            return Some(0.0);
        }
        Some((self.checkpoints? - before.checkpoints?) as f64)
    }
}

/// Before version 15 counters arrive late through the statistics collector; the caller must wait.
pub fn counters(client: &mut impl GenericClient, version_num: u32) -> Counters {
    Counters {
        wal_bytes: one(
            client,
            "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8",
        ),
        wal_full_page_images: match version_num {
            STAT_WAL_SINCE.. => one(client, "SELECT wal_fpi FROM pg_stat_wal"),
            _ => None,
        },
        block_bytes: one(client, "SELECT current_setting('block_size')::float8"),
        checkpoints: match version_num {
            CHECKPOINTS_DONE_SINCE.. => one(client, "SELECT num_done FROM pg_stat_checkpointer"),
            STAT_CHECKPOINTER_SINCE.. => {
                one(client, "SELECT num_timed + num_requested FROM pg_stat_checkpointer")
            }
            _ => one(client, "SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter"),
        },
        last_checkpoint: one(
            client,
            "SELECT pg_wal_lsn_diff(checkpoint_lsn, '0/0')::float8 FROM pg_control_checkpoint()",
        ),
    }
}

fn one<T: for<'a> postgres::types::FromSql<'a>>(
    client: &mut impl GenericClient,
    sql: &str,
) -> Option<T> {
    client.query_one(sql, &[]).ok().and_then(|row| row.try_get(0).ok())
}
