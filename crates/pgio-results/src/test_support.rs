//! Test data: a trial with all fields set, a manifest, and a device record.

use std::collections::BTreeMap;

use super::joint::ClockOffset;
use super::model::{
    Check, DatabaseCounters, DatabaseRow, DatasetInfo, DevicePlace, DeviceRecord, DeviceRun,
    DeviceTest, Evidence, Metric, ServerInfo, SessionTotals, Slice, TargetResult, Trial,
    TrialPosition, Warning, When, Window, WorkloadInfo,
};
use super::store::{ConditionInfo, MANIFEST_SCHEMA, Manifest, Rules};
use crate::change::Change;
use crate::histogram::Histogram;
use crate::units::Layout;

/// A trial with all fields set. Its numbers have an exact decimal form.
pub fn full_trial() -> Trial {
    let mut commits = Histogram::default();
    for ns in [1000.0, 1000.0, 2000.0] {
        commits.record(ns);
    }
    let commit_rate = Metric::new(Some(2919.5), "commits/s");
    let unknown = Metric::new(None, "s");
    Trial {
        run_id: "20180602T050946Z-1".to_owned(),
        place: Some(TrialPosition {
            experiment: "test".to_owned(),
            condition: "local".to_owned(),
            block: 1,
            position: 1,
            ..TrialPosition::default()
        }),
        started_at: "2018-06-02T05:09:46Z".to_owned(),
        window: Window { asked_seconds: Some(120.0), seconds: 120.0, warmup_seconds: 0.0 },
        workload: WorkloadInfo {
            kind: "slob".to_owned(),
            primary_metric: "commits_per_second".to_owned(),
            keys: BTreeMap::from([("update_pct".to_owned(), serde_json::json!(10))]),
        },
        dataset: Some(DatasetInfo {
            tables: 1,
            scale: "200M".to_owned(),
            blocks_per_table: 25_600,
            seed: 1,
            layout: Layout::default(),
            bytes_before: 231 << 20,
            bytes_after: 231 << 20,
            ..DatasetInfo::default()
        }),
        seed: 1,
        server: ServerInfo {
            version: "15.14".to_owned(),
            version_num: 150_014,
            database: "pgio".to_owned(),
            shared_buffers: "128MB".to_owned(),
            target: "local socket".to_owned(),
            fsync: "on".to_owned(),
            full_page_writes: "on".to_owned(),
            ..ServerInfo::default()
        },
        settings: BTreeMap::from([("synchronous_commit".to_owned(), "local".to_owned())]),
        sessions: vec![SessionTotals { pid: 10_058, ..SessionTotals::default() }],
        timeline: vec![Slice { at: 1.0, seconds: 1.0, commits: 2919, ..Slice::default() }],
        histograms: BTreeMap::from([("commit".to_owned(), commits)]),
        metrics: BTreeMap::from([
            ("commits_per_second".to_owned(), commit_rate),
            ("read_latency_p50".to_owned(), unknown),
        ]),
        database: Some(DatabaseCounters {
            before: DatabaseRow {
                blks_hit: 98_053,
                blks_read: 34_640,
                tup_returned: 34_309,
                tup_fetched: 6_780,
                tup_updated: 8,
            },
            after: DatabaseRow {
                blks_hit: 19_467_796,
                blks_read: 11_956_992,
                tup_returned: 30_807_460,
                tup_fetched: 29_665_212,
                tup_updated: 115_478,
            },
        }),
        evidence: vec![Evidence {
            when: When::During,
            what: "synchronous_commit".to_owned(),
            found: "local".to_owned(),
            expected: Some("local".to_owned()),
        }],
        checks: vec![Check::ok("treatment-in-force", "read back before and after")],
        warnings: vec![Warning::new("a short window", "one checkpoint moves it", "lengthen it")],
        ..Trial::new()
    }
}

pub fn manifest() -> Manifest {
    let condition = |name: &str| ConditionInfo {
        name: name.to_owned(),
        changes: vec![Change::server("synchronous_commit", name)],
    };
    Manifest {
        schema: MANIFEST_SCHEMA.to_owned(),
        pgio: "2.0.0".to_owned(),
        name: "sync-commit".to_owned(),
        created_at: "2026-11-20T12:00:00Z".to_owned(),
        seed: 7,
        blocks: 6,
        baseline: "local".to_owned(),
        own_baseline: None,
        aa: None,
        primary_metric: "commits_per_second".to_owned(),
        conditions: vec![condition("local"), condition("on")],
        metrics: Vec::new(),
        built: BTreeMap::new(),
        environment: BTreeMap::from([("server_version".to_owned(), "15.14".to_owned())]),
        rules: Rules::default(),
        resumed: Vec::new(),
        varied: None,
        design: None,
        weave: None,
    }
}

/// Two tests at two places; the first place has `ratio` times the speed of the second.
pub fn device_record(rounds: u32, ratio: f64) -> DeviceRecord {
    let place = |name: &str| DevicePlace {
        name: name.to_owned(),
        kind: "block device".to_owned(),
        path: name.to_owned(),
        sector_bytes: Some(512),
    };
    let test = |kind: &str, block_bytes: u64, metric: &str| DeviceTest {
        name: format!("{kind}-{block_bytes}"),
        kind: kind.to_owned(),
        block_bytes,
        depth: 1,
        metric: metric.to_owned(),
    };
    let tests = vec![
        test("throughput", 1 << 20, "device_bytes_per_second"),
        test("latency", 4096, "device_latency_mean"),
    ];
    let mut runs = Vec::new();
    for round in 1..=rounds {
        for test in &tests {
            for (place, speed) in [(0, ratio), (1, 1.0)] {
                let drift = 1.0 + 0.01 * f64::from(round - 1);
                let noise = if place == 0 { 1.0 + 0.002 * f64::from(round % 3) } else { 1.0 };
                let rate = 1e8 * drift * noise * speed;
                let mean = test.block_bytes as f64 / rate;
                let metrics = [
                    ("device_bytes_per_second", rate),
                    ("device_operations_per_second", 1.0 / mean),
                    ("device_latency_mean", mean),
                    ("device_latency_p50", mean * 0.9),
                    ("device_latency_p95", mean * 1.5),
                    ("device_latency_p99", mean * 3.0),
                ];
                runs.push(DeviceRun {
                    round,
                    test: test.name.clone(),
                    place,
                    seconds: 1.0,
                    operations: (1.0 / mean) as u64,
                    bytes: rate as u64,
                    metrics: metrics.map(|(name, value)| (name.to_owned(), value)).into(),
                });
            }
        }
    }
    DeviceRecord {
        fio: "fio-3.33".to_owned(),
        started_at: "2018-06-02T05:09:46Z".to_owned(),
        seed: 42,
        rounds,
        region_bytes: 512 << 20,
        places: vec![place("/dev/drbd0"), place("/dev/vg/plain")],
        tests,
        runs,
    }
}

/// A server's part of a joint window, with nothing but its clock.
pub fn target_result(clock: Option<ClockOffset>) -> TargetResult {
    TargetResult { server: full_trial().server, seconds: 10.0, clock, ..TargetResult::default() }
}

/// Asserts that a page of docs/ contains a sentence, wherever its lines break.
pub fn assert_documented(page: &str, sentence: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(sentence), "{page} does not say: {sentence}");
}

/// A number as the documents write it.
pub fn in_words(n: u64) -> String {
    const WORDS: [&str; 17] = [
        "none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
        "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen",
    ];
    WORDS.get(n as usize).map_or_else(|| n.to_string(), |word| (*word).to_owned())
}
