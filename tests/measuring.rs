//! What is true only of a machine that does nothing else: one test at a time, apart from `integration`.

// clippy.toml excuses only the test functions, not what they call.
#![allow(clippy::unwrap_used)]

#[path = "demo.rs"]
mod demo;
#[allow(dead_code)]
#[path = "integration/disk.rs"]
mod disk;

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use pgio::host::blkio::{self, Version};
use pgio::host::exec::Local;
use pgio_bench::BusyLoop;
use pgio_bench::loop_disk::LoopDisk;
use serde_json::Value;

use disk::{is_inside, is_root, lock_free_devices, run_inside};
use pgio_tests::command::TestDatabase;
use pgio_tests::fixture::{INSTALLED, own_primary};
use pgio_tests::workdir::{Workdir, check, condition_of, experiment, failed_checks, tolerate};

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has_blkio() -> bool {
    let found = blkio::find(&Local).unwrap();
    let has_it = found.is_some_and(|found| found.version == Version::V1 && found.at_root);
    if !has_it {
        pgio_tests::skipped("cgroup v1's blkio is not mounted here");
    }
    has_it
}

/// One more than there are cores, so that they get their part whatever else runs.
fn busy_loops_on_all_cores() -> Vec<BusyLoop> {
    let cores = thread::available_parallelism().unwrap().get();
    (0..=cores).map(|_| BusyLoop::start().unwrap()).collect()
}

#[test]
fn foreign_load_makes_a_compared_trial_invalid_and_a_single_one_only_if_strict() {
    let _alone = alone();
    let cluster = own_primary(INSTALLED);
    let db = TestDatabase::at(&cluster.primary_conninfo());
    db.load(1, "8M");
    let dir = Workdir::new();
    let keys = "blocks = 1\nduration = \"3s\"\naa = false\nrepeats = 0\ntelemetry = \"500ms\"\ntolerate = []";
    let text = experiment(&cluster.primary_conninfo(), keys, "", &[("a", "")]);
    let foreign = busy_loops_on_all_cores();
    dir.compare(&text).expect(5, &["`a` has no valid trial among 1 trial (foreign-load"]);
    let run = |more: &[&str]| {
        let keys = ["run", "--run-time", "3s", "--telemetry", "500ms", "--json", "trial.json"];
        db.pgio(&[&keys, more].concat())
    };
    let single = run(&[]);
    assert_eq!(single.code, Some(0), "{single:?}");
    assert!(failed_checks(&db.record("trial.json"), "warning").contains(&"foreign-load".into()));
    let strict = run(&["--strict"]);
    assert_eq!(strict.code, Some(5), "{strict:?}");
    assert!(strict.err.contains("the trial is invalid: foreign-load"), "{strict:?}");
    drop(foreign);
    let trial = &dir.trials()[0];
    assert!(failed_checks(trial, "invalid").contains(&"foreign-load".to_owned()), "{trial:#}");
    assert_eq!(trial["outcome"]["state"], "complete");
}

/// The limit of the example.
const LIMIT: f64 = 500.0;

/// Three servers on one limited disk, alone and together: the shipped example, shortened.
#[test]
fn throttled_neighbors_share_the_limit_of_the_disk() {
    let test = "throttled_neighbors_share_the_limit_of_the_disk";
    if !is_inside(test) {
        let alone = alone();
        if is_root(test) && has_blkio() {
            run_inside(test);
        }
        drop(alone);
        return;
    }
    let disk = {
        let _lock = lock_free_devices();
        LoopDisk::create(&format!("pgio-test-{}-", std::process::id()), 2 << 30).unwrap()
    };
    let node = fs::canonicalize(format!("/sys/dev/block/{}", disk.number())).unwrap();
    let name = node.file_name().unwrap().to_str().unwrap().to_owned();
    let mut text = include_str!("../examples/noisy-neighbor.toml").to_owned();
    for (shipped, here) in [
        ("\"/dev/loop7\"", format!("\"/dev/{name}\"")),
        ("\"/mnt/pgio-neighbor\"", format!("{:?}", disk.path())),
        ("blocks = 8", format!("blocks = 1\n{}", tolerate(&["participants-apart"]))),
        ("warmup = \"3s\"", "warmup = \"500ms\"".to_owned()),
        ("duration = \"10s\"", "duration = \"3s\"".to_owned()),
        ("aa = true", "aa = false".to_owned()),
    ] {
        assert!(text.contains(shipped), "{shipped}");
        text = text.replace(shipped, &here);
    }
    let dir = Workdir::new();
    dir.compare(&text).expect(0, &[]);
    dir.pgio(&["report", "out", "--all"]).expect(0, &["Each server"]);
    let device = |trial: &Value, what: &str| {
        trial["telemetry"]["hosts"]["local"]["devices"][&name][what].as_f64().unwrap()
    };
    let trials = dir.trials();
    for trial in &trials {
        assert_eq!(failed_checks(trial, "invalid"), [""; 0], "{trial}");
        // The disk did what it is allowed to, whatever number of servers asked: the check compares the device's
        // own counters with the limit, and would warn below four fifths of it.
        let throttle = check(trial, "throttle");
        assert_eq!(throttle["verdict"], "ok", "{throttle}");
        let writes = device(trial, "writes_per_second");
        assert!(writes <= 1.2 * LIMIT, "{writes}");
    }
    let together = trials.iter().find(|trial| condition_of(trial) == "together").unwrap();
    let targets = together["targets"].as_object().unwrap();
    assert_eq!(targets.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    // Windows of servers end a little apart; the sum's is the longest.
    let number = |value: &Value| value.as_f64().unwrap();
    let shares =
        targets.values().map(|target| number(&target["share"]) * number(&target["seconds"]));
    let sum = shares.sum::<f64>() / number(&together["window"]["seconds"]);
    assert!((sum - 1.0).abs() < 1e-6, "{sum}: {together}");
    let limits = fs::read_to_string("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device");
    let prefix = format!("{} ", disk.number());
    assert!(!limits.unwrap_or_default().lines().any(|line| line.starts_with(&prefix)));
}
