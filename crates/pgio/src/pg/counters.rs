//! Server-wide counters around a window, with the queries that each version needs.

use pgio_connect::Client;

/// First version with pg_stat_wal.
const STAT_WAL_SINCE: u32 = 140_000;
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
    /// Total checkpoints started, timed and requested, with those that were skipped because nothing had
    /// been written since the last one.
    pub checkpoints: Option<i64>,
    /// Total buffers written by checkpoints. A running checkpoint publishes it together with its start.
    pub checkpoint_buffers: Option<i64>,
    /// Advances with each completed checkpoint.
    pub last_checkpoint: Option<f64>,
    /// When somebody last reset statistics that are read here, the database's included; 0 for never.
    pub last_reset: Option<f64>,
}

impl Counters {
    /// Checkpoints that ran since `before`: those started since then, or one that ended although none was
    /// started. `None` if unknown, and after a reset of the statistics.
    pub fn checkpoints_since(&self, before: &Counters) -> Option<f64> {
        let started = self.checkpoints? - before.checkpoints?;
        if started < 0 || self.were_reset_since(before) {
            return None;
        }
        let started = started as f64;
        let ended = before.last_checkpoint.zip(self.last_checkpoint).map(|(was, is)| is != was);
        match ended {
            Some(true) => Some(f64::max(started, 1.0)),
            // A skipped checkpoint writes nothing.
            Some(false) if self.checkpoint_buffers == before.checkpoint_buffers => Some(0.0),
            _ => Some(started),
        }
    }

    /// Whether somebody reset the statistics: the server says so, or a counter is lower than before.
    pub fn were_reset_since(&self, before: &Counters) -> bool {
        let all = |of: &Counters| [of.wal_full_page_images, of.checkpoints, of.checkpoint_buffers];
        self.last_reset.zip(before.last_reset).is_some_and(|(now, was)| now != was)
            || all(self)
                .into_iter()
                .zip(all(before))
                .any(|(now, was)| now.zip(was).is_some_and(|(n, w)| n < w))
    }
}

/// Before version 15 counters arrive late through the statistics collector; the caller must wait.
pub fn read(client: &mut Client, version_num: u32) -> Counters {
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
            STAT_CHECKPOINTER_SINCE.. => {
                one(client, "SELECT num_timed + num_requested FROM pg_stat_checkpointer")
            }
            _ => one(client, "SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter"),
        },
        checkpoint_buffers: match version_num {
            STAT_CHECKPOINTER_SINCE.. => {
                one(client, "SELECT buffers_written FROM pg_stat_checkpointer")
            }
            _ => one(client, "SELECT buffers_checkpoint FROM pg_stat_bgwriter"),
        },
        last_checkpoint: one(
            client,
            "SELECT pg_wal_lsn_diff(checkpoint_lsn, '0/0')::float8 FROM pg_control_checkpoint()",
        ),
        last_reset: one(client, &last_reset(version_num)),
    }
}

fn last_reset(version_num: u32) -> String {
    let mut views = vec![match version_num {
        STAT_CHECKPOINTER_SINCE.. => "pg_stat_checkpointer",
        _ => "pg_stat_bgwriter",
    }];
    views.extend((version_num >= STAT_WAL_SINCE).then_some("pg_stat_wal"));
    let resets = views.iter().map(|view| format!(", (SELECT stats_reset FROM {view})"));
    format!(
        "SELECT coalesce(extract(epoch FROM greatest((SELECT stats_reset FROM pg_stat_database \
         WHERE datname = current_database()){})), 0)::float8",
        resets.collect::<String>()
    )
}

fn one<T: for<'a> pgio_connect::types::FromSql<'a>>(client: &mut Client, sql: &str) -> Option<T> {
    client.query_one(sql, &[]).ok().and_then(|row| row.try_get(0).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(checkpoints: i64, checkpoint_buffers: i64, last_checkpoint: f64) -> Counters {
        Counters {
            checkpoints: Some(checkpoints),
            checkpoint_buffers: Some(checkpoint_buffers),
            last_checkpoint: Some(last_checkpoint),
            ..Counters::default()
        }
    }

    #[test]
    fn a_checkpoint_that_runs_counts_wherever_it_begins_and_ends() {
        let before = at(10, 500, 1e6);
        let since = |now: Counters| now.checkpoints_since(&before);
        assert_eq!(since(before), Some(0.0));
        assert_eq!(since(at(11, 900, 2e6)), Some(1.0), "all of it inside");
        assert_eq!(since(at(11, 600, 1e6)), Some(1.0), "begun inside and not yet complete");
        assert_eq!(since(at(10, 700, 2e6)), Some(1.0), "begun before");
        assert_eq!(since(at(13, 900, 2e6)), Some(3.0));
        assert_eq!(since(at(12, 500, 1e6)), Some(0.0), "skipped: nothing had been written");
    }

    #[test]
    fn counters_that_were_reset_give_no_number_of_checkpoints() {
        let before = at(10, 500, 1e6);
        let after = at(1, 20, 2e6);
        assert_eq!(after.checkpoints_since(&before), None);
        assert!(after.were_reset_since(&before) && !before.were_reset_since(&before));
        let unknown = Counters::default();
        assert_eq!(unknown.checkpoints_since(&before), None);
        assert!(!unknown.were_reset_since(&before));
        let reset = |at| Counters { last_reset: Some(at), ..before };
        assert!(!reset(0.0).were_reset_since(&before) && !reset(7.0).were_reset_since(&reset(7.0)));
        assert_eq!(reset(8.5).checkpoints_since(&reset(0.0)), None, "as high as before by now");
    }
}
