//! Every metric pgio reports: name, unit, and which direction is better.
//!
//! The one table behind the stored JSON, the analysis (slower or faster by direction) and the
//! documentation. A metric that is not here cannot be stored.

/// Which way a metric is better, where one way is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    HigherIsFaster,
    LowerIsFaster,
    /// A plain quantity, such as bytes of WAL.
    Neutral,
}

#[derive(Debug, Clone, Copy)]
pub struct MetricDef {
    pub name: &'static str,
    pub unit: &'static str,
    pub direction: Direction,
    pub help: &'static str,
}

const fn def(
    name: &'static str,
    unit: &'static str,
    direction: Direction,
    help: &'static str,
) -> MetricDef {
    MetricDef { name, unit, direction, help }
}

use Direction::{HigherIsFaster, LowerIsFaster, Neutral};

pub const METRICS: &[MetricDef] = &[
    def(
        "block_visits_per_second",
        "blocks/s",
        HigherIsFaster,
        "reads × WORK_UNIT + updates × UPDATE_WORK_UNIT",
    ),
    def("updates_per_second", "rows/s", HigherIsFaster, "rows updated"),
    def("update_calls_per_second", "calls/s", HigherIsFaster, "UPDATE statements"),
    def(
        "commits_per_second",
        "commits/s",
        HigherIsFaster,
        "transactions committed by the workload",
    ),
    def("seconds_per_10000_transactions", "s", LowerIsFaster, "10,000 transactions at this rate"),
    def(
        "device_bytes_per_second",
        "bytes/s",
        HigherIsFaster,
        "read or written by the workload `device`",
    ),
    def(
        "device_operations_per_second",
        "operations/s",
        HigherIsFaster,
        "reads or writes of the workload `device`",
    ),
    def("device_latency_mean", "s", LowerIsFaster, "mean latency of one of these operations"),
    def("device_latency_p50", "s", LowerIsFaster, "median latency of one of these operations"),
    def("device_latency_p95", "s", LowerIsFaster, "95th percentile of such an operation's latency"),
    def("device_latency_p99", "s", LowerIsFaster, "99th percentile of such an operation's latency"),
    def("device_latency_max", "s", LowerIsFaster, "longest of these operations"),
    def(
        "calls_per_second",
        "calls/s",
        HigherIsFaster,
        "calls of the client-side engine that were answered",
    ),
    def("rate_reached", "%", Neutral, "of the calls due in an open loop, those that were begun"),
    def(
        "schedule_lag_mean",
        "s",
        LowerIsFaster,
        "mean time from a call's intended start to its sending (open loop)",
    ),
    def("schedule_lag_p50", "s", LowerIsFaster, "median of this lag"),
    def("schedule_lag_p95", "s", LowerIsFaster, "95th percentile of this lag"),
    def("schedule_lag_p99", "s", LowerIsFaster, "99th percentile of this lag"),
    def("schedule_lag_max", "s", LowerIsFaster, "longest such lag"),
    def("riops", "blocks/s", Neutral, "blocks not found in shared buffers (pg_stat_database)"),
    def("cache_hits_per_second", "blocks/s", Neutral, "blocks found in shared buffers"),
    def(
        "device_reads_per_second",
        "reads/s",
        Neutral,
        "read requests of the devices under data, WAL and tablespaces",
    ),
    def("device_writes_per_second", "writes/s", Neutral, "write requests of the same devices"),
    def("device_flushes_per_second", "flushes/s", Neutral, "cache flushes of the same devices"),
    def(
        "page_cache_reads_per_second",
        "blocks/s",
        Neutral,
        "buffer misses that the operating system's cache answered: riops less what the devices read",
    ),
    def("wait_share_cpu", "share", Neutral, "of the sessions' time: at work, waiting for nothing"),
    def("wait_share_data_file_read", "share", Neutral, "of the sessions' time: reading blocks"),
    def(
        "wait_share_data_file_write",
        "share",
        Neutral,
        "of the sessions' time: writing or extending data files",
    ),
    def(
        "wait_share_flush",
        "share",
        Neutral,
        "of the sessions' time: flushing WAL, own or another's",
    ),
    def("wait_share_sync_rep", "share", Neutral, "of the sessions' time: a synchronous standby"),
    def("wait_share_locks", "share", Neutral, "of the sessions' time: locks and latches"),
    def("wait_share_client", "share", Neutral, "of the sessions' time: between two statements"),
    def("wait_share_other", "share", Neutral, "of the sessions' time: any other wait"),
    def("wal_bytes_per_second", "bytes/s", Neutral, "write-ahead log written"),
    def("wal_bytes_per_commit", "bytes", Neutral, "write-ahead log written per commit"),
    def("wal_full_page_images", "images", Neutral, "full-page images inside the window (14+)"),
    def("checkpoints", "checkpoints", Neutral, "checkpoints begun inside the window"),
    def("update_pct_measured", "%", Neutral, "share of calls that were updates"),
    def("deadlocks", "deadlocks", Neutral, "deadlocks met and retried"),
    def("read_latency_mean", "s", LowerIsFaster, "mean latency of a read call"),
    def("read_latency_p50", "s", LowerIsFaster, "median latency of a read call"),
    def("read_latency_p95", "s", LowerIsFaster, "95th percentile of a read call's latency"),
    def("read_latency_p99", "s", LowerIsFaster, "99th percentile of a read call's latency"),
    def("read_latency_max", "s", LowerIsFaster, "longest read call"),
    def(
        "update_latency_mean",
        "s",
        LowerIsFaster,
        "mean latency of an UPDATE, without its commit; with engine = client, with it",
    ),
    def("update_latency_p50", "s", LowerIsFaster, "median latency of an UPDATE"),
    def("update_latency_p95", "s", LowerIsFaster, "95th percentile of an UPDATE's latency"),
    def("update_latency_p99", "s", LowerIsFaster, "99th percentile of an UPDATE's latency"),
    def("update_latency_max", "s", LowerIsFaster, "longest UPDATE"),
    def("commit_latency_mean", "s", LowerIsFaster, "mean latency of a COMMIT"),
    def("commit_latency_p50", "s", LowerIsFaster, "median latency of a COMMIT"),
    def("commit_latency_p95", "s", LowerIsFaster, "95th percentile of a COMMIT's latency"),
    def("commit_latency_p99", "s", LowerIsFaster, "99th percentile of a COMMIT's latency"),
    def("commit_latency_max", "s", LowerIsFaster, "longest COMMIT"),
    def(
        "transaction_latency_mean",
        "s",
        LowerIsFaster,
        "mean latency of an INSERT transaction, its commit included",
    ),
    def("transaction_latency_p50", "s", LowerIsFaster, "median latency of an INSERT transaction"),
    def(
        "transaction_latency_p95",
        "s",
        LowerIsFaster,
        "95th percentile of an INSERT transaction's latency",
    ),
    def(
        "transaction_latency_p99",
        "s",
        LowerIsFaster,
        "99th percentile of an INSERT transaction's latency",
    ),
    def("transaction_latency_max", "s", LowerIsFaster, "longest INSERT transaction"),
];

pub fn definition(name: &str) -> Option<&'static MetricDef> {
    METRICS.iter().find(|m| m.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (i, m) in METRICS.iter().enumerate() {
            assert!(METRICS[i + 1..].iter().all(|other| other.name != m.name), "{}", m.name);
        }
    }
}
