//! Stored experiments and trials made up for tests: of verdicts here and of `report`.

use std::path::{Path, PathBuf};

use benchmath::factorial::Design;
use benchmath::rng::SplitMix64;
use jiff::{Timestamp, ToSpan};
use pgio_results::change::{Change, Subject};
use pgio_results::factors::{DesignCell, DesignKind, Factor, FactorDesign};
use pgio_results::histogram::Histogram;
use pgio_results::latency::{Class, Statistic};
use pgio_results::metrics::{self, DeclaredMetric, Direction};
use pgio_results::model::Woven;
use pgio_results::points::{Axis, AxisValue, Combination, Point, Varied};
use pgio_results::store::{ConditionInfo, Manifest, Store, StoreError, StoredExperiment};
use pgio_results::telemetry::{Probes, StandbyLag, Telemetry, Waits};
use pgio_results::test_support::{full_trial, manifest};
use pgio_results::{Check, Metric, Outcome, Trial, TrialPosition};

/// The mean latency of a commit.
pub const COMMIT_MEAN: &str = metrics::latency_name(Class::Commit, Statistic::Mean);

/// The trial of the published example: 120 s, one session, 200M.
pub fn classic_trial() -> Trial {
    let full = full_trial();
    Trial {
        run_id: full.run_id,
        started_at: full.started_at,
        window: full.window,
        workload: full.workload,
        dataset: full.dataset,
        seed: full.seed,
        server: full.server,
        sessions: full.sessions,
        database: full.database,
        ..Trial::new()
    }
}

/// A trial of an experiment, complete and with one passed check.
pub fn trial(condition: &str, block: u32, metrics: &[(&str, f64)]) -> Trial {
    let mut trial = classic_trial();
    trial.place = Some(TrialPosition {
        experiment: "test".to_owned(),
        condition: condition.to_owned(),
        block,
        position: 1,
        ..TrialPosition::default()
    });
    trial.checks = vec![Check::ok("treatment-in-force", "read back before and after")];
    for (name, value) in metrics {
        set(&mut trial, name, *value);
    }
    trial
}

pub fn set(trial: &mut Trial, name: &str, value: f64) {
    let unit = metrics::definition(name).expect("a metric of the table").unit.to_owned();
    trial.metrics.insert(name.to_owned(), Metric::new(Some(value), unit));
}

/// A histogram of `n` latencies around `milliseconds`, the longest ten times as long.
pub fn latencies(milliseconds: f64, n: u32) -> Histogram {
    let mut h = Histogram::default();
    for i in 1..=n {
        let longer = if i == n { 10.0 } else { 0.8 + 0.4 * f64::from(i) / f64::from(n) };
        h.record(milliseconds * 1e6 * longer);
    }
    h
}

/// A second factor.
pub fn throttled() -> Change {
    let device = Subject::Device { path: "/dev/sdb".to_owned() };
    Change::new(None, device, "write_iops", "500")
}

/// An experiment that compares by commits/s with `local`; each condition sets synchronous_commit
/// to its own name, one that ends in `-aa` is the baseline's twin.
pub fn experiment(conditions: &[&str], trials: Vec<Trial>) -> StoredExperiment {
    let info = |name: &&str| ConditionInfo {
        name: (*name).to_owned(),
        changes: vec![Change::server("synchronous_commit", name.trim_end_matches("-aa"))],
    };
    StoredExperiment {
        manifest: Manifest {
            aa: conditions.iter().find(|c| c.ends_with("-aa")).map(|c| (*c).to_owned()),
            conditions: conditions.iter().map(info).collect(),
            ..manifest()
        },
        trials,
        torn: false,
        judged: false,
    }
}

/// Twelve blocks with a margin of 5 %: `x` runs at `level` of the baseline's rate and fails in some blocks.
pub fn failing(level: f64, fails: impl Fn(u32) -> bool) -> StoredExperiment {
    let mut trials = Vec::new();
    for block in 1..=12u32 {
        for (name, step, level, fails) in [("local", 7, 1.0, false), ("x", 5, level, fails(block))]
        {
            let noise = f64::from((block * step + 3) % 11);
            let rate = level * (1000.0 + noise);
            let mut t = trial(name, block, &[("commits_per_second", rate)]);
            if fails {
                t.outcome = Outcome::Failed { error: "server closed the connection".to_owned() };
            }
            trials.push(t);
        }
    }
    let mut stored = experiment(&["local", "x"], trials);
    stored.manifest.blocks = 12;
    stored.manifest.rules.matters = Some(0.05);
    stored
}

/// What a demo stores: local, its twin, and two levels of synchronous replication, six blocks.
pub fn demo() -> StoredExperiment {
    let noise = [1.0, 1.03, 0.98, 1.01, 0.97, 1.02];
    let other_noise = [1.01, 0.99, 1.02, 0.97, 1.0, 1.03];
    let levels = [
        ("local", 1.0, noise),
        ("local-aa", 1.003, other_noise),
        ("remote_write", 0.985, [0.99, 1.02, 1.0, 1.03, 0.98, 1.0]),
        ("on", 0.465, other_noise),
    ];
    let mut trials = Vec::new();
    for block in 1..=6u32 {
        for (condition, level, noise) in levels {
            let rate = 2919.0 * level * noise[block as usize - 1];
            let milliseconds = 1300.0 / rate;
            let mut t = trial(
                condition,
                block,
                &[
                    ("commits_per_second", rate),
                    ("block_visits_per_second", rate * 9.0),
                    ("wal_bytes_per_commit", 312.0 + f64::from(block)),
                    ("wal_bytes_per_second", rate * 312.0),
                    ("checkpoints", 0.0),
                    ("commit_latency_mean", milliseconds / 1e3),
                    ("commit_latency_p50", milliseconds / 1e3),
                ],
            );
            t.histograms.insert("commit".to_owned(), latencies(milliseconds, 500));
            trials.push(t);
        }
    }
    for t in &mut trials {
        for name in ["commit_latency_p95", "commit_latency_p99"] {
            let value = t.histograms["commit"].quantile_ns(0.95).expect("not empty") / 1e9;
            set(t, name, value);
        }
    }
    experiment(&["local", "local-aa", "remote_write", "on"], trials)
}

/// 1000 operations of each class with these mean milliseconds.
pub fn timed(trial: &mut Trial, classes: &[(&str, f64)]) {
    for (class, milliseconds) in classes {
        let mut h = Histogram::default();
        (0..1000).for_each(|_| h.record(milliseconds * 1e6));
        trial.histograms.insert((*class).to_owned(), h);
    }
}

/// One session, a window of 10 s, a thousand sightings: each is 10 ms.
pub fn sampled(condition: &str, block: u32, sightings: &[(&str, u64)]) -> Trial {
    let mut t = trial(condition, block, &[]);
    t.window.seconds = 10.0;
    t.telemetry = Some(Telemetry {
        waits: Some(Waits {
            rounds: 1000,
            sessions: 1,
            sightings: sightings.iter().map(|(e, n)| ((*e).to_owned(), *n)).collect(),
            ..Waits::default()
        }),
        ..Telemetry::default()
    });
    t
}

/// `local`, its twin and `on` along sessions 1, 4, 16, 64 and a delay of 0, 1, 5 ms around four
/// sessions and 1 ms. At `local` each session adds as much again; under `on` no more than the first
/// sixteen do, and a commit takes two flushes and twice the delay.
pub fn swept(blocks: u32) -> StoredExperiment {
    let value = |v: u64| AxisValue { at: Some(v as f64), value: v.into(), treatments: Vec::new() };
    let axis = |name: &str, unit: Option<&str>, values: &[u64]| Axis {
        name: name.to_owned(),
        unit: unit.map(str::to_owned),
        values: values.iter().copied().map(value).collect(),
        of_work: unit.is_none(),
    };
    let point = |sessions: u64, delay: u64| {
        Point::from([("sessions".to_owned(), sessions.into()), ("delay".to_owned(), delay.into())])
    };
    let at = [(4, 1), (1, 1), (16, 1), (64, 1), (4, 0), (4, 5)];
    let mut trials = Vec::new();
    for block in 1..=blocks {
        for (n, (sessions, delay)) in at.into_iter().enumerate() {
            for condition in ["local", "on", "local-aa"] {
                if condition == "local-aa" && n > 0 {
                    continue;
                }
                let noise = 1.0 + 0.001 * f64::from((block * 7 + u32::from(condition == "on")) % 5);
                // local: 1000 a session; on: at the middle a quarter of it.
                let rate = 1000.0
                    * noise
                    * match condition {
                        "on" if delay == 0 => 2.0,
                        "on" if delay == 5 => 0.5,
                        "on" => sessions.min(16) as f64 / 4.0,
                        _ => sessions as f64,
                    };
                let commit = match condition {
                    "on" => 0.0018 + 0.002 * delay as f64 * noise,
                    _ => 0.0009 * noise,
                };
                // What a session waits for is longer where several stand in line.
                let line = if condition == "on" && sessions > 16 { 4.0 } else { 1.0 };
                let mut t = trial(
                    condition,
                    block,
                    &[
                        ("commits_per_second", rate),
                        ("commit_latency_mean", commit * line),
                        ("commit_latency_p50", commit * line),
                        ("commit_latency_p95", commit * line * 2.0),
                        ("commit_latency_p99", commit * line * 3.0),
                    ],
                );
                t.place.as_mut().expect("trial() gives it one").point = point(sessions, delay);
                let standby = StandbyLag { sync_state: "sync".to_owned(), ..StandbyLag::default() };
                t.telemetry = Some(Telemetry {
                    probes: Some(Probes {
                        flush_seconds: Some(0.0009),
                        standby_flush_seconds: Some(0.0008),
                        round_trip_seconds: Some(0.0001),
                        link_seconds: Some(0.002 * delay as f64),
                        ..Probes::default()
                    }),
                    standbys: [("s1".to_owned(), standby)].into(),
                    ..Telemetry::default()
                });
                trials.push(t);
            }
        }
    }
    let mut stored = experiment(&["local", "local-aa", "on"], trials);
    stored.manifest.varied = Some(Varied {
        kind: Combination::OneAtATime,
        axes: vec![axis("sessions", None, &[1, 4, 16, 64]), axis("delay", Some("ms"), &[0, 1, 5])],
        points: at.into_iter().map(|(sessions, delay)| point(sessions, delay)).collect(),
        at_middle_only: vec!["local-aa".to_owned()],
    });
    stored
}

/// `on` waits for the standby 1 ms longer, give or take a little by block.
pub fn replicated(blocks: u32) -> StoredExperiment {
    let mut trials = Vec::new();
    for block in 1..=blocks {
        let mut local = sampled("local", block, &[("IO:WALSync", 100), ("CPU", 900)]);
        timed(&mut local, &[("commit", 1.2)]);
        let wait = 100 + u64::from(block % 3);
        let mut on = sampled(
            "on",
            block,
            &[("IO:WALSync", 100), ("IPC:SyncRep", wait), ("CPU", 900 - wait)],
        );
        timed(&mut on, &[("commit", 2.2 + 0.01 * f64::from(block % 2))]);
        trials.extend([local, on]);
    }
    for t in &mut trials {
        let telemetry = t.telemetry.as_mut().expect("every trial here has telemetry");
        telemetry.probes = Some(Probes {
            flush_seconds: Some(0.0009),
            standby_flush_seconds: Some(0.0008),
            round_trip_seconds: Some(0.0001),
            ..Probes::default()
        });
        let standby = StandbyLag { sync_state: "sync".to_owned(), ..StandbyLag::default() };
        telemetry.standbys.insert("s1".to_owned(), standby);
    }
    experiment(&["local", "on"], trials)
}

/// The factors of [`screened`].
pub const FACTORS: [&str; 6] =
    ["commit_delay", "synchronous_commit", "wal_compression", "jit", "work_mem", "geqo"];

/// Six factors in 16 cells: high `synchronous_commit` doubles the rate, and high `commit_delay` costs a
/// third of it, but only while `synchronous_commit` is low. The others do nothing. Noise of 2 %.
pub fn screened(blocks: u32) -> StoredExperiment {
    let effect = |high: &[bool]| match (high[0], high[1]) {
        (_, true) => 2.0,
        (true, false) => 2.0 / 3.0,
        (false, false) => 1.0,
    };
    screened_as(blocks, 0.02, 7, effect)
}

/// An experiment of the factors with noise of this relative size; `rate` gives the rate of a cell.
pub fn screened_as(
    blocks: u32,
    noise: f64,
    seed: u64,
    rate: impl Fn(&[bool]) -> f64,
) -> StoredExperiment {
    let design = Design::fractional(FACTORS.len()).expect("there is one for six factors");
    screened_in(&design, DesignKind::Fractional, (blocks, noise, seed), rate)
}

/// The same for another design of at most as many factors.
pub fn screened_in(
    design: &Design,
    kind: DesignKind,
    (blocks, noise, seed): (u32, f64, u64),
    rate: impl Fn(&[bool]) -> f64,
) -> StoredExperiment {
    let level = |name: &str, value: &str| vec![Change::server(name, value)];
    let factor = |name: &&str| Factor {
        name: (*name).to_owned(),
        low: level(name, "low"),
        high: level(name, "high"),
    };
    let cell = |(n, levels): (usize, &Vec<bool>)| DesignCell {
        condition: if n == 0 { "all low".to_owned() } else { format!("cell {}", n + 1) },
        high: FACTORS
            .iter()
            .zip(levels)
            .filter(|(_, high)| **high)
            .map(|(f, _)| (*f).to_owned())
            .collect(),
    };
    let made = FactorDesign {
        kind,
        factors: FACTORS[..design.factors()].iter().map(factor).collect(),
        cells: design.cells().iter().enumerate().map(cell).collect(),
    };
    let mut rng = SplitMix64::new(seed);
    let mut trials = Vec::new();
    for block in 1..=blocks {
        for (cell, levels) in made.cells.iter().zip(design.cells()) {
            let uniform = (0..4).map(|_| rng.next_f64() - 0.5).sum::<f64>();
            let value = 1000.0 * rate(levels) * (noise * uniform * 3f64.sqrt()).exp();
            trials.push(trial(&cell.condition, block, &[("commits_per_second", value)]));
        }
    }
    let names: Vec<&str> = made.cells.iter().map(|cell| cell.condition.as_str()).collect();
    let mut stored = experiment(&names, trials);
    for (info, levels) in stored.manifest.conditions.iter_mut().zip(design.cells()) {
        let changes = made.factors.iter().zip(levels);
        info.changes =
            changes.flat_map(|(f, high)| if *high { &f.high } else { &f.low }).cloned().collect();
    }
    stored.manifest.blocks = blocks;
    stored.manifest.baseline = "all low".to_owned();
    stored.manifest.design = Some(made);
    stored
}

/// Two factors, each high alone, in six blocks: high `fsync` triples the rate, high `jit` does nothing.
pub fn one_at_a_time() -> StoredExperiment {
    const NAMES: [&str; 2] = ["jit", "fsync"];
    let rates = [("all low", 1000.0), ("jit", 1001.0), ("fsync", 3000.0)];
    let trials = (1..=6u32).flat_map(|block| {
        rates.map(|(name, rate)| {
            let noise = 1.0 + 0.001 * f64::from((block * 7 + name.len() as u32) % 5);
            trial(name, block, &[("commits_per_second", rate * noise)])
        })
    });
    let conditions = rates.map(|(name, _)| name);
    let mut stored = experiment(&conditions, trials.collect());
    let level = |name: &str, high: bool| Change::server(name, if high { "high" } else { "low" });
    for info in &mut stored.manifest.conditions {
        info.changes = NAMES.map(|factor| level(factor, factor == info.name)).to_vec();
    }
    let factor = |name: &str| Factor {
        name: name.to_owned(),
        low: vec![level(name, false)],
        high: vec![level(name, true)],
    };
    let cell = |name: &str| DesignCell {
        condition: name.to_owned(),
        high: NAMES.iter().filter(|f| **f == name).map(|f| (*f).to_owned()).collect(),
    };
    stored.manifest.baseline = "all low".to_owned();
    stored.manifest.design = Some(FactorDesign {
        kind: DesignKind::OneAtATime,
        factors: NAMES.map(factor).to_vec(),
        cells: conditions.map(cell).to_vec(),
    });
    stored
}

/// Blocks of each run.
const BLOCKS: u32 = 4;
/// The conditions and their rates.
const CONDITIONS: [(&str, f64); 3] = [("local", 2900.0), ("on", 1350.0), ("remote_apply", 1200.0)];

/// Forty blocks; `x` runs at 0.4 of its rate in seven of them, and its neighbor is noisy.
pub fn stalling(metric: &str, value: impl Fn(f64) -> f64) -> StoredExperiment {
    let block = |n: u32| {
        let noise = |at: u32| 1.0 + 0.001 * f64::from((n * 7 + at * 5) % 11);
        let stalled = if n % 6 == 1 { 0.4 } else { 1.0 };
        let wild = 1.0 + 0.9 * f64::from(n * 5 % 13) / 13.0;
        [("local", 1.0), ("x", stalled), ("y", 1.0), ("wild", wild)]
            .map(|(name, rate)| (name, 1000.0 * rate * noise(rate.to_bits() as u32 % 97)))
            .map(|(name, rate)| {
                let mut t = trial(name, n, &[]);
                let measured = Metric::new(Some(value(rate)), "s".to_owned());
                t.metrics.insert(metric.to_owned(), measured);
                let timed = latencies(1000.0 / rate, (rate / 2.0) as u32);
                t.histograms.insert("commit".to_owned(), timed);
                t
            })
    };
    let mut stored = experiment(&["local", "x", "y", "wild"], (1..=40).flat_map(block).collect());
    stored.manifest.rules.matters = Some(0.05);
    stored.manifest.primary_metric = metric.to_owned();
    let (unit, better) = ("s".to_owned(), Direction::LowerIsFaster);
    let seconds = DeclaredMetric { name: "seconds".to_owned(), unit, better, of: None };
    stored.manifest.metrics = vec![seconds];
    stored
}

/// Twelve blocks of two conditions; the second has these true values.
pub fn woven(halves: f64, after: f64) -> StoredExperiment {
    let mut random = SplitMix64::new(5);
    let mut trials = Vec::new();
    for block in 1..=12 {
        for (condition, halves, after) in [("local", 1.02, 1.0), ("b", halves * 1.02, after)] {
            let mut noise = || 1.0 + 0.01 * (random.next_f64() - 0.5);
            let mut t = trial(condition, block, &[("commits_per_second", 100.0)]);
            t.woven = Some(Woven {
                slices: 50,
                halves: Some(halves * noise()),
                halves_error: Some(0.003),
                after: [("local".to_owned(), after * noise()), ("b".to_owned(), noise())].into(),
                after_errors: [("local".to_owned(), 0.003), ("b".to_owned(), 0.003)].into(),
                ..Woven::default()
            });
            trials.push(t);
        }
    }
    experiment(&["local", "b"], trials)
}

/// One value of a standard normal distribution, nearly: the sum of twelve uniform ones.
pub fn unit_noise(rng: &mut SplitMix64) -> f64 {
    (0..12).map(|_| rng.next_f64()).sum::<f64>() - 6.0
}

/// So many runs, one a night from 1 October 2026 on. All rates of a run are multiplied by `level(run)`, with
/// the runs numbered from 1; trials vary by 1 % beside that.
pub fn stored_runs(runs: u32, mut level: impl FnMut(u32) -> f64) -> Vec<StoredExperiment> {
    let first: Timestamp = "2026-10-01T02:00:00Z".parse().expect("a valid time");
    let names = CONDITIONS.map(|(name, _)| name);
    (1..=runs)
        .map(|run| {
            let at = first + (24 * (i64::from(run) - 1)).hours();
            let level = level(run);
            let mut rng = SplitMix64::new(u64::from(run));
            let blocks =
                (1..=BLOCKS).flat_map(|block| CONDITIONS.map(|(name, rate)| (block, name, rate)));
            let trials = blocks.map(|(block, name, rate)| {
                let rate = rate * level * (0.01 * unit_noise(&mut rng)).exp();
                let mut trial = trial(name, block, &[("commits_per_second", rate)]);
                trial.run_id = format!("{}-1", at.strftime("%Y%m%dT%H%M%SZ"));
                trial.started_at = at.to_string();
                trial
            });
            let mut stored = experiment(&names, trials.collect());
            stored.manifest.blocks = BLOCKS;
            stored.manifest.created_at = at.to_string();
            stored
        })
        .collect()
}

/// Thirty runs: the machine changes at run 11; `on` alone, against the baseline, at run 21.
pub fn changing_runs() -> Vec<StoredExperiment> {
    let mut rng = SplitMix64::new(6);
    let mut stored = stored_runs(30, |run| {
        let machine = if run < 11 { 0.8 } else { 1.0 };
        // The machine varies by much more than the ratio changes.
        machine * (0.08 * unit_noise(&mut rng)).exp()
    });
    for run in &mut stored[20..] {
        for t in run.trials.iter_mut().filter(|t| t.is_of("on")) {
            let metric = t.metrics.get_mut("commits_per_second").expect("each trial has a rate");
            metric.value = metric.value.map(|v| v * 0.95);
        }
    }
    stored
}

/// Writes runs as `compare` does, each into a directory of its own below `dir`.
pub fn write_runs(dir: &Path, runs: &[StoredExperiment]) -> Result<Vec<PathBuf>, StoreError> {
    (1..)
        .zip(runs)
        .map(|(number, run)| {
            let own = dir.join(format!("run-{number:04}"));
            let mut store = Store::create(&own, "# made up for a test\n", &run.manifest)?;
            run.trials.iter().try_for_each(|trial| store.append(trial))?;
            Ok(own)
        })
        .collect()
}
