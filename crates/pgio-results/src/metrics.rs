//! All metrics that pgio reports: name, unit, and which direction is better.
//!
//! The stored JSON, the analysis (slower or faster by direction) and the documentation use this
//! table. A metric that is not in it cannot be stored, except for metrics that an experiment
//! declares for its command: the manifest defines those, and readers of its trials look there first
//! ([`all`], [`find`]).

use super::latency::{Class, Statistic, Work};

/// Defines a metric whose value is what was counted.
pub const fn def(
    name: &'static str,
    unit: &'static str,
    direction: Direction,
    help: &'static str,
) -> MetricDef<'static> {
    MetricDef { name, kind: Kind::Quantity, unit, direction, help, target: None }
}

/// The same for a metric of work that slices count.
pub const fn for_work(work: Work, def: MetricDef<'static>) -> MetricDef<'static> {
    MetricDef { kind: Kind::Work(work), ..def }
}

const fn latency(
    class: Class,
    statistic: Statistic,
    name: &'static str,
    help: &'static str,
) -> MetricDef<'static> {
    let kind = Kind::Latency(class, statistic);
    MetricDef { name, kind, unit: "s", direction: LowerIsFaster, help, target: None }
}

use Class::{Call, Commit, Delete, Delivery, Device, Insert, Lag, Read, Scan, Transaction, Update};
use Direction::{HigherIsFaster, LowerIsFaster, Neutral};
use Statistic::{Max, Mean, P50, P95, P99, P99_9};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// Those of the core; [`table`] has all.
pub const METRICS: &[MetricDef<'static>] = &[
    for_work(
        Work::BlockVisits,
        def(
            "block_visits_per_second",
            "blocks/s",
            HigherIsFaster,
            "reads × WORK_UNIT + updates × UPDATE_WORK_UNIT",
        ),
    ),
    def(
        "blocks_scanned_per_second",
        "blocks/s",
        HigherIsFaster,
        "scans × blocks of pgio_scan; not included in block visits",
    ),
    for_work(
        Work::RowsUpdated,
        def("updates_per_second", "rows/s", HigherIsFaster, "rows updated"),
    ),
    for_work(
        Work::RowsUpdated,
        def("update_calls_per_second", "calls/s", HigherIsFaster, "UPDATE statements"),
    ),
    def("inserts_per_second", "rows/s", HigherIsFaster, "rows inserted into pgio_turnover"),
    def("deletes_per_second", "rows/s", HigherIsFaster, "rows deleted from pgio_turnover"),
    for_work(
        Work::Commits,
        def(
            "commits_per_second",
            "commits/s",
            HigherIsFaster,
            "transactions committed by the workload",
        ),
    ),
    for_work(
        Work::Commits,
        def("rows_per_second", "rows/s", HigherIsFaster, "rows inserted and committed by `commit`"),
    ),
    for_work(
        Work::Commits,
        def(
            "seconds_per_10000_transactions",
            "s",
            LowerIsFaster,
            "10,000 transactions at this rate",
        ),
    ),
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
    latency(Device, Mean, "device_latency_mean", "mean latency of these operations"),
    latency(Device, P50, "device_latency_p50", "median latency of these operations"),
    latency(Device, P95, "device_latency_p95", "95th percentile of these latencies"),
    latency(Device, P99, "device_latency_p99", "99th percentile of these latencies"),
    latency(Device, P99_9, "device_latency_p99_9", "99.9th percentile of these latencies"),
    latency(Device, Max, "device_latency_max", "longest of these operations"),
    for_work(
        Work::Messages,
        def(
            "messages_per_minute",
            "messages/min",
            HigherIsFaster,
            "messages accepted for all their recipients",
        ),
    ),
    latency(
        Delivery,
        Mean,
        "delivery_latency_mean",
        "mean latency of a message, from its (intended) start to the last answer",
    ),
    latency(Delivery, P50, "delivery_latency_p50", "median latency of a message"),
    latency(Delivery, P95, "delivery_latency_p95", "95th percentile of a message's latency"),
    latency(Delivery, P99, "delivery_latency_p99", "99th percentile of a message's latency"),
    latency(Delivery, P99_9, "delivery_latency_p99_9", "99.9th percentile of a message's latency"),
    latency(Delivery, Max, "delivery_latency_max", "longest delivery of a message"),
    def("calls_per_second", "calls/s", HigherIsFaster, "answered calls of the client-side engine"),
    def("rate_reached", "%", Neutral, "share of the calls due in an open loop that were started"),
    latency(
        Lag,
        Mean,
        "schedule_lag_mean",
        "mean time from a call's intended start to its sending (open loop)",
    ),
    latency(Lag, P50, "schedule_lag_p50", "median of this lag"),
    latency(Lag, P95, "schedule_lag_p95", "95th percentile of this lag"),
    latency(Lag, P99, "schedule_lag_p99", "99th percentile of this lag"),
    latency(Lag, P99_9, "schedule_lag_p99_9", "99.9th percentile of this lag"),
    latency(Lag, Max, "schedule_lag_max", "longest such lag"),
    def(
        "degraded_time",
        "share",
        LowerIsFaster,
        "share of the window in slices whose rate was below half of the condition's median",
    ),
    def("degraded_longest", "s", LowerIsFaster, "longest run of such slices"),
    def("riops", "blocks/s", Neutral, "blocks not found in shared buffers (pg_stat_database)"),
    def("cache_hits_per_second", "blocks/s", Neutral, "blocks found in shared buffers"),
    def(
        "device_reads_per_second",
        "reads/s",
        Neutral,
        "read requests of the devices below data, WAL and tablespaces",
    ),
    def("device_writes_per_second", "writes/s", Neutral, "write requests of the same devices"),
    def(
        "device_flushes_per_second",
        "flushes/s",
        Neutral,
        "cache flushes of the same devices, counted by the disks below partitions and volumes",
    ),
    def(
        "page_cache_reads_per_second",
        "blocks/s",
        Neutral,
        "buffer misses served by the operating system's cache: riops minus device reads",
    ),
    def("wait_share_cpu", "share", Neutral, "share of the sessions' time on CPU, not waiting"),
    def(
        "wait_share_data_file_read",
        "share",
        Neutral,
        "share of the sessions' time reading blocks",
    ),
    def(
        "wait_share_data_file_write",
        "share",
        Neutral,
        "share of the sessions' time writing or extending data files",
    ),
    def(
        "wait_share_flush",
        "share",
        Neutral,
        "share of the sessions' time waiting for a WAL flush, their own or another session's",
    ),
    def(
        "wait_share_sync_rep",
        "share",
        Neutral,
        "share of the sessions' time waiting for a synchronous standby",
    ),
    def(
        "wait_share_locks",
        "share",
        Neutral,
        "share of the sessions' time waiting for locks and latches",
    ),
    def(
        "wait_share_client",
        "share",
        Neutral,
        "share of the sessions' time between two statements",
    ),
    def("wait_share_other", "share", Neutral, "share of the sessions' time in any other wait"),
    def("wal_bytes_per_second", "bytes/s", Neutral, "write-ahead log written"),
    for_work(
        Work::Commits,
        def("wal_bytes_per_commit", "bytes", Neutral, "write-ahead log written per commit"),
    ),
    def(
        "wal_bytes_per_update",
        "bytes",
        Neutral,
        "write-ahead log written per updated row, including WAL of other operations",
    ),
    def(
        "wal_fpi_share",
        "share",
        Neutral,
        "share of full-page images in the bytes of WAL (14+); estimated with whole blocks, so an upper bound if images are compressed or have holes",
    ),
    def("wal_full_page_images", "images", Neutral, "full-page images inside the window (14+)"),
    def(
        "checkpoints",
        "checkpoints",
        Neutral,
        "checkpoints started inside the window; one that only ended inside counts if none was started",
    ),
    def("update_pct_measured", "%", Neutral, "share of calls that were updates"),
    def("scan_pct_measured", "%", Neutral, "share of calls that were scans"),
    def("insert_pct_measured", "%", Neutral, "share of calls that were inserts"),
    def("delete_pct_measured", "%", Neutral, "share of calls that were deletes"),
    def(
        "hot_pct_asked",
        "%",
        Neutral,
        "share of calls that should be hot: in the hot spot; among the hottest 1 % of the keys (zipf); within one standard deviation (gaussian)",
    ),
    def("hot_pct_measured", "%", Neutral, "share of calls that were hot"),
    def("hot_table_pct_measured", "%", Neutral, "share of calls that visited the hot table"),
    def("think_pct_measured", "%", Neutral, "share of calls followed by a think time"),
    def("think_time_mean", "s", Neutral, "mean length of a think time"),
    def("think_share", "share", Neutral, "share of the sessions' time spent thinking"),
    def(
        "deadlocks",
        "deadlocks",
        Neutral,
        "deadlocks and lock timeouts; the call is rolled back, its time is in no latency, and another one is drawn",
    ),
    latency(
        Call,
        Mean,
        "call_latency_mean",
        "mean time of a call of a mix (reads, updates, scans, inserts, deletes), including its commit",
    ),
    latency(Read, Mean, "read_latency_mean", "mean latency of a read call"),
    latency(Read, P50, "read_latency_p50", "median latency of a read call"),
    latency(Read, P95, "read_latency_p95", "95th percentile of a read call's latency"),
    latency(Read, P99, "read_latency_p99", "99th percentile of a read call's latency"),
    latency(Read, P99_9, "read_latency_p99_9", "99.9th percentile of a read call's latency"),
    latency(Read, Max, "read_latency_max", "longest read call"),
    latency(
        Update,
        Mean,
        "update_latency_mean",
        "mean latency of an UPDATE; includes its commit only with engine = client",
    ),
    latency(Update, P50, "update_latency_p50", "median latency of an UPDATE"),
    latency(Update, P95, "update_latency_p95", "95th percentile of an UPDATE's latency"),
    latency(Update, P99, "update_latency_p99", "99th percentile of an UPDATE's latency"),
    latency(Update, P99_9, "update_latency_p99_9", "99.9th percentile of an UPDATE's latency"),
    latency(Update, Max, "update_latency_max", "longest UPDATE"),
    latency(Scan, Mean, "scan_latency_mean", "mean latency of a scan"),
    latency(Scan, P50, "scan_latency_p50", "median latency of a scan"),
    latency(Scan, P95, "scan_latency_p95", "95th percentile of a scan's latency"),
    latency(Scan, P99, "scan_latency_p99", "99th percentile of a scan's latency"),
    latency(Scan, P99_9, "scan_latency_p99_9", "99.9th percentile of a scan's latency"),
    latency(Scan, Max, "scan_latency_max", "longest scan"),
    latency(Insert, Mean, "insert_latency_mean", "mean latency of an INSERT, excluding its commit"),
    latency(Insert, P50, "insert_latency_p50", "median latency of an INSERT"),
    latency(Insert, P95, "insert_latency_p95", "95th percentile of an INSERT's latency"),
    latency(Insert, P99, "insert_latency_p99", "99th percentile of an INSERT's latency"),
    latency(Insert, P99_9, "insert_latency_p99_9", "99.9th percentile of an INSERT's latency"),
    latency(Insert, Max, "insert_latency_max", "longest INSERT"),
    latency(Delete, Mean, "delete_latency_mean", "mean latency of a DELETE, excluding its commit"),
    latency(Delete, P50, "delete_latency_p50", "median latency of a DELETE"),
    latency(Delete, P95, "delete_latency_p95", "95th percentile of a DELETE's latency"),
    latency(Delete, P99, "delete_latency_p99", "99th percentile of a DELETE's latency"),
    latency(Delete, P99_9, "delete_latency_p99_9", "99.9th percentile of a DELETE's latency"),
    latency(Delete, Max, "delete_latency_max", "longest DELETE"),
    latency(Commit, Mean, "commit_latency_mean", "mean latency of a COMMIT"),
    latency(Commit, P50, "commit_latency_p50", "median latency of a COMMIT"),
    latency(Commit, P95, "commit_latency_p95", "95th percentile of a COMMIT's latency"),
    latency(Commit, P99, "commit_latency_p99", "99th percentile of a COMMIT's latency"),
    latency(Commit, P99_9, "commit_latency_p99_9", "99.9th percentile of a COMMIT's latency"),
    latency(Commit, Max, "commit_latency_max", "longest COMMIT"),
    latency(
        Transaction,
        Mean,
        "transaction_latency_mean",
        "mean latency of an INSERT transaction, including its commit",
    ),
    latency(Transaction, P50, "transaction_latency_p50", "median latency of an INSERT transaction"),
    latency(
        Transaction,
        P95,
        "transaction_latency_p95",
        "95th percentile of an INSERT transaction's latency",
    ),
    latency(
        Transaction,
        P99,
        "transaction_latency_p99",
        "99th percentile of an INSERT transaction's latency",
    ),
    latency(
        Transaction,
        P99_9,
        "transaction_latency_p99_9",
        "99.9th percentile of an INSERT transaction's latency",
    ),
    latency(Transaction, Max, "transaction_latency_max", "longest INSERT transaction"),
];

/// Metrics that follow one of [`METRICS`], by its name.
pub type Group = (&'static str, &'static [MetricDef<'static>]);

static TABLE: OnceLock<Vec<MetricDef<'static>>> = OnceLock::new();

/// Adds metrics to those of this module, once for the whole program.
pub fn register(groups: &[Group]) {
    TABLE.get_or_init(|| {
        let following = |name: &'static str| {
            let groups = groups.iter().filter(move |(before, _)| *before == name);
            groups.flat_map(|(_, group)| *group)
        };
        METRICS.iter().flat_map(|m| std::iter::once(m).chain(following(m.name))).copied().collect()
    });
}

/// All metrics of the program.
pub fn table() -> &'static [MetricDef<'static>] {
    TABLE.get().map_or(METRICS, Vec::as_slice)
}

/// A metric of the built-in table.
pub fn definition(name: &str) -> Option<&'static MetricDef<'static>> {
    table().iter().find(|m| m.name == name)
}

/// The work of which the metric is a rate or the latency, where slices count it.
pub fn work(name: &str) -> Option<Work> {
    match definition(name)?.kind {
        Kind::Work(work) => Some(work),
        Kind::Latency(Commit | Transaction, _) => Some(Work::Commits),
        Kind::Latency(..) | Kind::Mean(_) | Kind::Quantity | Kind::Declared => None,
    }
}

/// The latency metric of a class and a statistic. A call of a mix has only a mean.
pub const fn latency_metric(
    class: Class,
    statistic: Statistic,
) -> Option<&'static MetricDef<'static>> {
    let mut n = 0;
    while n < METRICS.len() {
        if let Kind::Latency(c, s) = METRICS[n].kind
            && c as u8 == class as u8
            && s as u8 == statistic as u8
        {
            return Some(&METRICS[n]);
        }
        n += 1;
    }
    None
}

/// The stored name of a latency metric that must exist; in constants, the compiler finds a missing
/// one.
pub const fn latency_name(class: Class, statistic: Statistic) -> &'static str {
    latency_metric(class, statistic).expect("the table has this latency").name
}

/// All metrics that an experiment can have: declared ones first, then the built-in ones.
pub fn all(declared: &[DeclaredMetric]) -> impl Iterator<Item = MetricDef<'_>> {
    declared.iter().map(DeclaredMetric::definition).chain(table().iter().copied())
}

pub fn find<'a>(declared: &'a [DeclaredMetric], name: &str) -> Option<MetricDef<'a>> {
    all(declared).find(|m| m.name == name)
}

/// The better direction of a metric, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Direction {
    #[serde(rename = "higher")]
    HigherIsFaster,
    #[serde(rename = "lower")]
    LowerIsFaster,
    /// Neither direction is better, as for bytes of WAL.
    #[serde(rename = "neither")]
    Neutral,
}

impl Direction {
    /// The name in an experiment file, and in stored records.
    pub fn name(self) -> &'static str {
        match self {
            Self::HigherIsFaster => "higher",
            Self::LowerIsFaster => "lower",
            Self::Neutral => "neither",
        }
    }
}

/// What a metric measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A statistic of the latencies of a class of operations.
    Latency(Class, Statistic),
    /// Follows from work that the slices of a timeline count.
    Work(Work),
    /// The mean of another time of each operation of a class; a lower bound if the mean latency is.
    Mean(Class),
    /// Any other rate, share or count.
    Quantity,
    /// Whatever a command prints, or a server's share.
    Declared,
}

impl Kind {
    /// The classes of operations over which it is a mean without a histogram of its own.
    pub fn classes(&self) -> &[Class] {
        match self {
            Kind::Latency(Call, Mean) => &[Read, Update, Scan, Insert, Delete, Commit],
            Kind::Mean(class) => std::slice::from_ref(class),
            Kind::Latency(..) | Kind::Work(_) | Kind::Quantity | Kind::Declared => &[],
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct MetricDef<'a> {
    pub name: &'a str,
    pub kind: Kind,
    pub unit: &'a str,
    pub direction: Direction,
    pub help: &'a str,
    /// The server, if it is a metric of one of several servers.
    pub target: Option<&'a str>,
}

/// A metric declared by an experiment, as stored in its manifest: printed by its command, or of one of several
/// servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeclaredMetric {
    pub name: String,
    pub unit: String,
    pub better: Direction,
    /// The metric and the server, if it is one of pgio's metrics of one of several servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<OfTarget>,
}

/// Which metric of which server a declared metric is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OfTarget {
    pub metric: String,
    pub target: String,
}

impl DeclaredMetric {
    pub fn definition(&self) -> MetricDef<'_> {
        let Self { name, unit, better, of } = self;
        let help = if of.is_some() { "of one server" } else { "as printed by the command" };
        // A percentile of one server is no more reliable than the percentile of all.
        let summed = of.as_ref().and_then(|of| definition(&of.metric));
        let kind = summed.map_or(Kind::Declared, |def| def.kind);
        let target = of.as_ref().map(|of| of.target.as_str());
        MetricDef { name, kind, unit, direction: *better, help, target }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_names_of_latencies_follow_one_pattern() {
        for class in Class::ALL {
            for statistic in Statistic::ALL {
                let Some(found) = latency_metric(class, statistic) else {
                    assert_eq!(class, Call, "{statistic:?}");
                    continue;
                };
                let suffix = statistic.label().replace('.', "_");
                let expected = match class {
                    Lag => format!("schedule_lag_{suffix}"),
                    _ => format!("{}_latency_{suffix}", class.name()),
                };
                assert_eq!(found.name, expected);
            }
            assert_eq!(Class::named(class.name()), Some(class));
        }
        assert!(
            METRICS
                .iter()
                .all(|m| matches!(m.kind, Kind::Latency(..)) || !m.name.contains("_latency_"))
        );
    }

    #[test]
    fn names_are_unique() {
        for (i, m) in METRICS.iter().enumerate() {
            assert!(METRICS[i + 1..].iter().all(|other| other.name != m.name), "{}", m.name);
        }
    }

    #[test]
    fn each_metric_has_the_kind_of_work_it_counts() {
        for (name, expected) in [
            ("block_visits_per_second", Some(Work::BlockVisits)),
            ("update_calls_per_second", Some(Work::RowsUpdated)),
            ("rows_per_second", Some(Work::Commits)),
            ("commit_latency_p99", Some(Work::Commits)),
            ("transaction_latency_mean", Some(Work::Commits)),
            ("messages_per_minute", Some(Work::Messages)),
            ("read_latency_p99", None),
            ("deadlocks", None),
            ("commits_that_a_command_prints", None),
        ] {
            assert_eq!(work(name), expected, "{name}");
        }
    }

    #[test]
    fn metrics_of_one_target_have_the_kind_of_the_joint_metric() {
        let asked = ["commits_per_second", "commit_latency_p99"];
        let declared = crate::joint::declare_metrics(&asked, &["a".to_owned()]);
        let kind = |name: &str| find(&declared, name).unwrap().kind;
        assert_eq!(kind("commit_latency_p99@a"), Kind::Latency(Commit, P99));
        assert_eq!(kind("commits_per_second@a"), Kind::Work(Work::Commits));
        assert_eq!(kind("share@a"), Kind::Declared);
        assert_eq!(find(&declared, "commit_latency_p99@a").unwrap().target, Some("a"));
        assert_eq!(find(&declared, "commit_latency_p99").unwrap().target, None);
    }

    #[test]
    fn declared_metrics_come_first_and_survive_serialization() {
        let text = r#"[{"name":"tps","unit":"tx/s","better":"higher"},
                       {"name":"errors","unit":"errors","better":"neither"}]"#;
        let declared: Vec<DeclaredMetric> = serde_json::from_str(text).unwrap();
        let tps = find(&declared, "tps").unwrap();
        assert_eq!((tps.unit, tps.direction), ("tx/s", HigherIsFaster));
        for direction in [HigherIsFaster, LowerIsFaster, Neutral] {
            assert_eq!(serde_json::to_value(direction).unwrap(), direction.name());
        }
        assert_eq!(find(&declared, "errors").unwrap().direction, Neutral);
        assert_eq!(find(&declared, "riops").unwrap().unit, "blocks/s");
        assert!(find(&[], "tps").is_none());
        assert_eq!(all(&declared).count(), table().len() + 2);
    }
}
