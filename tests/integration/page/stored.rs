//! A rich stored experiment, made up: four conditions, eight blocks, a minute each, with telemetry,
//! waits, samples, checkpoints, an invalid trial that was repeated and one that failed.
//!
//! Plausible figures, always the same ones; nothing was measured.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use pgio::rng::SplitMix64;
use pgio_results::change::{Change, Subject};
use pgio_results::histogram::Histogram;
use pgio_results::metrics::definition;
use pgio_results::model::{
    DatasetInfo, ServerInfo, SessionTotals, Slice, TRIAL_SCHEMA, When, Window, WorkloadInfo,
};
use pgio_results::store::{ConditionInfo, MANIFEST_SCHEMA, Manifest, Store};
use pgio_results::telemetry::{
    Device, DeviceUse, HostUse, Probes, StandbyLag, Storage, Telemetry, Waits,
};
use pgio_results::telemetry::{Moment, Series, Track};
use pgio_results::units::Layout;
use pgio_results::waits::{GROUPS, group_of};
use pgio_results::{Check, Evidence, Metric, Outcome, Trial, TrialPosition, Warning};

pub(crate) const EXPERIMENT: &str = "\
[experiment]
name = \"drbd <b>&amp;\"      # a name that a page must not take for its own text
blocks = 8
duration = \"60s\"

[[condition]]
name = \"local\"
postgres = { synchronous_commit = \"local\" }
";

const WINDOW: f64 = 60.0;
const BLOCKS: u32 = 8;
const SESSIONS: f64 = 4.0;

pub(super) struct Arm {
    pub(super) name: &'static str,
    setting: &'static str,
    commits: f64,
    /// Times of a commit, in seconds: WAL flush, standby.
    flush: f64,
    standby: f64,
}

impl Arm {
    /// A loop of one session: half a read, half an update, and their commit.
    fn looped(&self) -> f64 {
        0.36e-3 * 0.5 + 0.55e-3 * 0.5 + self.flush + self.standby + 0.05e-3
    }
}

pub(super) const ARMS: [Arm; 5] = [
    Arm { name: "local", setting: "local", commits: 2920.0, flush: 0.9e-3, standby: 0.0 },
    Arm { name: "local (A/A)", setting: "local", commits: 2931.0, flush: 0.9e-3, standby: 0.0 },
    Arm {
        name: "remote_write",
        setting: "remote_write",
        commits: 2700.0,
        flush: 0.9e-3,
        standby: 0.16e-3,
    },
    Arm { name: "on", setting: "on", commits: 1580.0, flush: 0.9e-3, standby: 1.15e-3 },
    Arm {
        name: "on, standby's disk limited to 500 IOPS",
        setting: "on",
        commits: 455.0,
        flush: 0.9e-3,
        standby: 7.4e-3,
    },
];

/// Uniform noise around 1.
fn noise(rng: &mut SplitMix64, width: f64) -> f64 {
    1.0 + width * ((rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0)
}

pub(crate) fn write(dir: &Path) {
    let mut store = Store::create(dir, EXPERIMENT, &manifest()).unwrap();
    let mut rng = SplitMix64::new(20_261_120);
    for block in 1..=BLOCKS {
        for at in 0..ARMS.len() {
            let which = (at + block as usize * 3) % ARMS.len();
            let mut made = trial(&ARMS[which], block, at as u32 + 1, &mut rng);
            match (block, ARMS[which].name) {
                (3, "on") => {
                    invalidate(&mut made.0);
                    append(&mut store, made);
                    made = trial(&ARMS[which], block, 6, &mut rng);
                    made.0.place.as_mut().unwrap().attempt = 1;
                }
                (5, "remote_write") => {
                    let error = "session 3 of 8: the server closed the connection".to_owned();
                    made.0.outcome = Outcome::Failed { error };
                }
                _ => {}
            }
            append(&mut store, made);
        }
    }
}

fn append(store: &mut Store, (mut trial, series): (Trial, Series)) {
    trial.series = Some(store.write_series(&series).unwrap());
    store.append(&trial).unwrap();
}

fn invalidate(trial: &mut Trial) {
    trial.checks.push(Check::invalid(
        "standby",
        "the standby was `async` for 3.0 s of the window, from second 31 on",
        "look into the standby's log; a walreceiver that reconnects is async until it caught up",
    ));
    let lost = Evidence {
        when: When::During,
        what: "sync_state of pgio_standby".to_owned(),
        found: "async".to_owned(),
        expected: Some("sync".to_owned()),
    };
    trial.evidence.push(lost);
}

pub(super) fn manifest() -> Manifest {
    let condition = |arm: &Arm| {
        let mut changes = vec![Change::server("synchronous_commit", arm.setting)];
        if arm.name.contains("limited") {
            let device = Subject::Device { path: "/dev/vdb".to_owned() };
            changes.push(Change::new(Some("standby"), device, "write_iops", "500"));
        }
        ConditionInfo { name: arm.name.to_owned(), changes }
    };
    let found = [
        ("driver.cores", "8"),
        ("driver.hostname", "bench1"),
        ("driver.kernel", "6.12.0"),
        ("server_version", "18.1"),
        ("setting.checkpoint_timeout", "5min"),
        ("setting.fsync", "on"),
        ("setting.full_page_writes", "on"),
        ("setting.max_wal_size", "16GB"),
        ("setting.shared_buffers", "8GB"),
        ("setting.synchronous_standby_names", "FIRST 1 (pgio_standby)"),
        ("target", "pgio on db1.example:5432 as bench"),
    ];
    Manifest {
        schema: MANIFEST_SCHEMA.to_owned(),
        pgio: "2.0.0".to_owned(),
        name: "drbd <b>&amp; latency".to_owned(),
        created_at: "2026-11-20T12:00:00Z".to_owned(),
        seed: 7_641_792_054_073_047,
        blocks: BLOCKS,
        baseline: "local".to_owned(),
        own_baseline: None,
        aa: Some("local (A/A)".to_owned()),
        primary_metric: "commits_per_second".to_owned(),
        conditions: ARMS.iter().map(condition).collect(),
        metrics: Vec::new(),
        built: BTreeMap::new(),
        environment: found.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        rules: Default::default(),
        resumed: Vec::new(),
        varied: None,
        design: None,
        weave: None,
    }
}

pub(super) fn trial(arm: &Arm, block: u32, position: u32, rng: &mut SplitMix64) -> (Trial, Series) {
    let rate = arm.commits * noise(rng, 0.03);
    let timeline: Vec<Slice> = (1..=60)
        .map(|second| {
            let dip = if second > 40 && second < 46 { 0.75 } else { 1.0 };
            let commits = rate * dip * noise(rng, 0.05);
            Slice {
                at: f64::from(second),
                seconds: 1.0,
                commits: commits as u64,
                block_visits: commits as u64 * 16,
                rows_updated: commits as u64 * 8,
                ..Slice::default()
            }
        })
        .collect();
    let commits: u64 = timeline.iter().map(|s| s.commits).sum();
    let series = samples(&timeline, arm, block, rng);
    let loops = (SESSIONS * WINDOW / arm.looped()) as u64;
    let latency = |rng: &mut SplitMix64, typical: f64, n: u64| {
        let mut h = Histogram::default();
        for i in 0..n {
            let tail = if i % 100 == 0 { 1.0 + 2.0 * noise(rng, 1.0).powi(3) } else { 1.0 };
            h.record(typical * 1e9 * noise(rng, 0.25) * tail);
        }
        h
    };
    let commit = latency(rng, arm.flush + arm.standby + 0.05e-3, loops);
    let read = latency(rng, 0.36e-3, loops / 2);
    let update = latency(rng, 0.55e-3, loops / 2);
    let rate = commits as f64 / WINDOW;
    let mut values = vec![
        ("commits_per_second", rate),
        ("block_visits_per_second", rate * 16.0),
        ("updates_per_second", rate * 8.0),
        ("wal_bytes_per_commit", 812.0 * noise(rng, 0.01)),
        ("wal_bytes_per_second", rate * 812.0),
        ("riops", rate * 3.4),
        ("cache_hits_per_second", rate * 40.0),
        ("device_reads_per_second", rate * 3.3),
        ("device_writes_per_second", rate * 1.1),
        ("device_flushes_per_second", rate * 0.6),
        ("page_cache_reads_per_second", rate * 0.1),
        ("checkpoints", f64::from(u8::from(block == 6))),
        ("seconds_per_10000_transactions", 1e4 / rate),
    ];
    let total: u64 = sightings(arm).iter().map(|(_, n)| n).sum();
    for group in GROUPS {
        let n: u64 =
            sightings(arm).iter().filter(|(e, _)| group_of(e) == *group).map(|(_, n)| n).sum();
        values.push((group.metric(), n as f64 / total as f64));
    }
    for (class, h) in [("read", &read), ("update", &update), ("commit", &commit)] {
        for (name, q) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
            let metric = METRICS.iter().find(|m| **m == format!("{class}_latency_{name}"));
            values.push((metric.unwrap(), h.quantile_ns(q).unwrap() / 1e9));
        }
        let metric = METRICS.iter().find(|m| **m == format!("{class}_latency_mean"));
        values.push((metric.unwrap(), h.answered_mean_ns().unwrap() / 1e9));
    }
    let metrics = values.into_iter().map(|(name, value)| {
        let unit = definition(name).unwrap().unit.to_owned();
        (name.to_owned(), Metric::new(Some(value), unit))
    });
    let metrics = metrics.collect();
    let histograms = BTreeMap::from(
        [("read", read), ("update", update), ("commit", commit)].map(|(c, h)| (c.to_owned(), h)),
    );
    let read_back = |when, what: &str, found: &str| Evidence {
        when,
        what: what.to_owned(),
        found: found.to_owned(),
        expected: Some(found.to_owned()),
    };
    let mut evidence = Vec::new();
    for when in [When::Before, When::During, When::After] {
        evidence.push(read_back(when, "synchronous_commit", arm.setting));
        evidence.push(read_back(when, "sync_state of pgio_standby", "sync"));
    }
    let mut checks = vec![
        Check::ok("treatment-in-force", "read back before, during and after"),
        Check::ok("standby", "in `sync` at every reading"),
        Check::ok("data-size", "the data kept its size"),
        Check::ok("foreign-load", "0.02 cores used by others"),
    ];
    let mut warnings = Vec::new();
    if block == 6 {
        let found = "1 checkpoint began inside the window";
        checks.push(Check::warning(
            "checkpoint",
            found,
            "raise max_wal_size and checkpoint_timeout",
        ));
        warnings.push(Warning::new(
            "the WAL device reports no write cache",
            "flushes may cost less than on another device of this kind",
            "compare with pg_test_fsync",
        ));
    }
    let trial = Trial {
        generators: Vec::new(),
        schema: TRIAL_SCHEMA.to_owned(),
        pgio: env!("CARGO_PKG_VERSION").to_owned(),
        run_id: "20261120T120000Z-1".to_owned(),
        place: Some(TrialPosition {
            experiment: "drbd".to_owned(),
            condition: arm.name.to_owned(),
            block,
            position,
            attempt: 0,
            point: Default::default(),
        }),
        outcome: Outcome::Complete,
        started_at: format!("2026-11-20T12:{:02}:{:02}.5Z", block * 6, position * 7),
        window: Window { asked_seconds: Some(WINDOW), seconds: WINDOW, warmup_seconds: 5.0 },
        workload: WorkloadInfo {
            kind: "slob".to_owned(),
            primary_metric: "commits_per_second".to_owned(),
            keys: BTreeMap::from([
                ("update_pct".to_owned(), 50.into()),
                ("work_unit".to_owned(), 8.into()),
                ("threads".to_owned(), 4.into()),
            ]),
        },
        dataset: Some(DatasetInfo {
            tables: 2,
            scale: "32G".to_owned(),
            blocks_per_table: 4_194_304,
            seed: 1,
            layout: Layout::default(),
            bytes_before: 71 << 30,
            bytes_after: 71 << 30,
            bytes_used: None,
        }),
        seed: u64::from(block),
        server: ServerInfo {
            version: "18.1 (Debian 18.1-1)".to_owned(),
            version_num: 180_001,
            database: "pgio".to_owned(),
            shared_buffers: "8GB".to_owned(),
            target: "pgio on db1.example:5432 as bench".to_owned(),
            fsync: "on".to_owned(),
            full_page_writes: "on".to_owned(),
            started: None,
        },
        settings: BTreeMap::from([("synchronous_commit".to_owned(), arm.setting.to_owned())]),
        sessions: (0..SESSIONS as i32)
            .map(|n| SessionTotals { pid: 1000 + n, ..SessionTotals::default() })
            .collect(),
        timeline,
        woven: None,
        targets: BTreeMap::new(),
        histograms,
        metrics,
        database: None,
        telemetry: Some(telemetry(arm, rate)),
        companions: BTreeMap::new(),
        series: None,
        environment: Arc::new(BTreeMap::from([("host.kernel".to_owned(), "6.12.0".to_owned())])),
        evidence,
        checks,
        warnings,
    };
    (trial, series)
}

/// Names that live as long as the program, as the metric table's do.
const METRICS: [&str; 12] = [
    "read_latency_mean",
    "read_latency_p50",
    "read_latency_p95",
    "read_latency_p99",
    "update_latency_mean",
    "update_latency_p50",
    "update_latency_p95",
    "update_latency_p99",
    "commit_latency_mean",
    "commit_latency_p50",
    "commit_latency_p95",
    "commit_latency_p99",
];

fn samples(timeline: &[Slice], arm: &Arm, block: u32, rng: &mut SplitMix64) -> Series {
    let mut series = Series::new(WINDOW);
    let mut track = |source: &str, subject: &str, name: &str, unit: &str, per_commit: f64| {
        let values = timeline.iter().map(|s| {
            let missing = s.at == 20.0;
            (!missing).then(|| s.commits as f64 * per_commit * noise(rng, 0.06))
        });
        series.tracks.push(Track {
            source: source.to_owned(),
            subject: subject.to_owned(),
            name: name.to_owned(),
            unit: unit.to_owned(),
            at: timeline.iter().map(|s| s.at + 0.02).collect(),
            values: values.collect(),
        });
    };
    track("local", "vda", "reads_per_second", "reads/s", 3.3);
    track("local", "vda", "writes_per_second", "writes/s", 1.1);
    track("local", "vda", "flushes_per_second", "flushes/s", 0.6);
    track("local", "vda", "utilisation", "share", 0.000_31);
    track("local", "", "busy_share", "share", 0.000_12);
    track("local", "sr0", "reads_per_second", "reads/s", 1.0);
    track("server", "", "wal_bytes_per_second", "bytes/s", 812.0);
    // As the server reports each standby; the second one has no lag in flushing.
    for (standby, times) in [("pgio_standby", 1.0), ("second", 3.0)] {
        for name in ["sent_bytes_behind", "flush_bytes_behind", "replay_bytes_behind"] {
            track("server", standby, name, "bytes", arm.standby * 4e5 * times);
        }
        for name in ["write_lag", "flush_lag", "replay_lag"] {
            let still = standby == "second" && name == "flush_lag";
            track("server", standby, name, "s", if still { 0.0 } else { arm.standby * times });
        }
    }
    if block == 6 {
        series.moments.push(Moment { at: 39.8, what: "checkpoint".to_owned() });
    }
    if block == 4 {
        series.moments.push(Moment { at: 12.2, what: "autovacuum".to_owned() });
    }
    series
}

fn telemetry(arm: &Arm, rate: f64) -> Telemetry {
    let map = |pairs: &[(&str, f64)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
    let device = DeviceUse {
        reads_per_second: rate * 3.3,
        writes_per_second: rate * 1.1,
        flushes_per_second: Some(rate * 0.6),
        read_bytes_per_second: rate * 3.3 * 8192.0,
        utilisation: 0.9,
        ..DeviceUse::default()
    };
    let host = HostUse {
        cadence_seconds: 1.0,
        ticks: 60,
        missed: 1,
        sampling_cpu_seconds: Some(0.11),
        clock_offset_seconds: Some(0.0),
        clock_error_seconds: Some(0.0),
        cores: Some(8),
        cpu: map(&[("user", 0.2), ("system", 0.1), ("iowait", 0.3), ("steal", 0.0), ("idle", 0.4)]),
        foreign_cores: Some(0.02),
        foreign_session_cores: None,
        run_delay: Some(0.002),
        process_io: None,
        memory: BTreeMap::from([("total".to_owned(), 64 << 30), ("free".to_owned(), 2 << 30)]),
        pressure: map(&[("cpu", 0.01), ("io", 0.4), ("memory", 0.0)]),
        devices: BTreeMap::from([("vda".to_owned(), device)]),
        network: BTreeMap::new(),
        drbd: BTreeMap::new(),
    };
    let storage = |role: &str, directory: &str| Storage {
        role: role.to_owned(),
        host: "local".to_owned(),
        directory: directory.to_owned(),
        mount_point: "/srv".to_owned(),
        file_system: "xfs".to_owned(),
        mount_options: "rw,noatime".to_owned(),
        devices: vec![Device {
            name: "vda".to_owned(),
            kind: "disk".to_owned(),
            queue: [("scheduler", "none"), ("write_cache", "write back")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
            ..Device::default()
        }],
    };
    Telemetry {
        hosts: BTreeMap::from([("local".to_owned(), host)]),
        storage: vec![storage("data", "/srv/pg/18"), storage("wal", "/srv/pg/18/pg_wal")],
        waits: Some(Waits {
            rounds: 3000,
            missed_rounds: 4,
            hertz: 49.9,
            sessions: SESSIONS as u32,
            sightings: sightings(arm).map(|(k, n)| (k.to_owned(), n)).into(),
        }),
        foreign_sessions: None,
        standbys: BTreeMap::from([(
            "pgio_standby".to_owned(),
            StandbyLag { sync_state: "sync".to_owned(), ..StandbyLag::default() },
        )]),
        probes: Some(Probes {
            flush_error_seconds: None,
            standby_flush_error_seconds: None,
            shared_flush: false,
            flush_seconds: Some(0.85e-3),
            standby_flush_seconds: Some(0.9e-3),
            round_trip_seconds: Some(0.17e-3),
            link_seconds: None,
            notes: vec!["200 writes of 8 kB each".to_owned()],
        }),
        driver_cpu_seconds: Some(1.1),
        sampling_cpu_seconds: Some(0.2),
    }
}

fn sightings(arm: &Arm) -> [(&'static str, u64); 7] {
    // Sampled 50 times a second.
    let seen = |seconds: f64| (3000.0 * SESSIONS * seconds / arm.looped()) as u64;
    [
        ("CPU", seen(0.25e-3)),
        ("IO:DataFileRead", seen(0.2e-3)),
        ("LWLock:WALWrite", seen(arm.flush * 0.6)),
        ("IO:WalSync", seen(arm.flush * 0.4)),
        ("IPC:SyncRep", seen(arm.standby)),
        ("Lock:transactionid", seen(0.02e-3)),
        ("Client", seen(0.03e-3)),
    ]
}
