//! Several drivers on one real server: the sum is the server's count, a lost driver costs one trial, and
//! nothing is left of anything that is killed.

mod engines;
mod kubernetes;
mod mail;
mod moments;
mod network;
mod programs;
mod targets;

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use pgio::rng::SplitMix64;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use pgio_tests::fixture::{INSTALLED, connect, fresh_database, own_primary, shared_primary};
use pgio_tests::workdir::{
    BETWEEN_TRIAL_CHECKS, CommandResult, Running, Workdir, experiment, pgio_sessions, tolerate,
    wait_until,
};

/// Moments at which the coordinator is killed.
const KILLS: u64 = 4;
const LATEST_MS: u64 = 2500;

/// Windows of a loaded machine open further apart than those of an idle one.
const APART: &str = "participants-apart";

fn quiet() -> String {
    tolerate(&[&BETWEEN_TRIAL_CHECKS[..], &[APART]].concat())
}

fn commits(conninfo: &str, keys: &str, sessions: u32) -> String {
    let keys = format!("aa = false\nblocks = 1\ntelemetry = \"0s\"\n{keys}\n{}", quiet());
    let workload = format!("engine = \"client\"\nsessions = {sessions}");
    let conditions = [("on", ""), ("off", "synchronous_commit = \"off\"")];
    experiment(conninfo, &keys, &workload, &conditions)
}

fn start(dir: &Workdir, experiment: &str, drivers: &str) -> Running {
    dir.write("experiment.toml", experiment);
    let args = ["compare", "experiment.toml", "--out", "out", "--drivers", drivers];
    dir.start(dir.command(&args))
}

/// The processes of `pgio drive` that this pgio started, with their ranks.
fn drivers_of(pgio: i32) -> BTreeMap<u32, i32> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let status = String::from_utf8_lossy(&read("status")).into_owned();
        if !status.contains(&format!("PPid:\t{pgio}\n")) {
            continue;
        }
        let environment = String::from_utf8_lossy(&read("environ")).into_owned();
        let mut variables = environment.split('\0');
        let rank = variables.find_map(|v| v.strip_prefix("PGIO_DRIVE_RANKS=")?.parse().ok());
        let is_driver = read("cmdline").ends_with(b"\0drive\0");
        if let (Some(rank), true) = (rank, is_driver) {
            found.insert(rank, pid);
        }
    }
    found
}

/// Whether that many sessions of drivers are inserting.
fn are_working(conninfo: &str, sessions: i64) -> bool {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgio:% driver %' \
               AND datname = current_database() AND query LIKE 'INSERT INTO%'";
    connect(conninfo).query_one(sql, &[]).unwrap().get::<_, i64>(0) >= sessions
}

fn check<'a>(trial: &'a Value, id: &str) -> Option<&'a Value> {
    trial["checks"].as_array().unwrap().iter().find(|check| check["id"] == id)
}

/// The histograms of all drivers added up here, bucket by bucket, are those of the trial. Returns the calls of
/// all drivers.
fn recounted(trial: &Value, drivers: usize) -> u64 {
    let parts = trial["drivers"].as_array().unwrap_or_else(|| panic!("{trial:#}"));
    assert_eq!(parts.len(), drivers, "{trial:#}");
    for (class, merged) in trial["histograms"].as_object().unwrap() {
        let (mut buckets, mut count) = (BTreeMap::new(), 0);
        for histogram in parts.iter().filter_map(|part| part["histograms"].get(class)) {
            count += histogram["count"].as_u64().unwrap();
            for pair in histogram["buckets"].as_array().unwrap() {
                let (bucket, n) = (pair[0].as_u64().unwrap(), pair[1].as_u64().unwrap());
                *buckets.entry(bucket).or_insert(0) += n;
            }
        }
        let merged_buckets = merged["buckets"].as_array().unwrap().iter();
        let merged_buckets: BTreeMap<u64, u64> =
            merged_buckets.map(|p| (p[0].as_u64().unwrap(), p[1].as_u64().unwrap())).collect();
        assert_eq!((merged["count"].as_u64(), merged_buckets), (Some(count), buckets), "{class}");
    }
    parts.iter().map(|part| part["calls"].as_u64().unwrap()).sum()
}

/// All drivers together counted what the server counted.
fn assert_recounted(trial: &Value, drivers: usize) {
    let calls = recounted(trial, drivers);
    let sum = check(trial, "driver-sum").unwrap_or_else(|| panic!("{trial:#}"));
    let same = format!("the drivers counted {calls} calls, the server {calls}");
    assert_eq!((sum["verdict"].as_str(), sum["message"].as_str()), (Some("ok"), Some(&*same)));
    let seconds = trial["window"]["seconds"].as_f64().unwrap();
    let rate = trial["metrics"]["calls_per_second"]["value"].as_f64().unwrap();
    assert!((rate * seconds / calls as f64 - 1.0).abs() < 1e-9, "{rate} {seconds} {calls}");
}

/// Every trial is complete with all drivers, or says that it lost one.
fn lost_and_whole(dir: &Workdir, drivers: usize) -> (usize, usize) {
    let (mut lost, mut whole) = (0, 0);
    for trial in dir.trials() {
        match check(&trial, "driver-lost") {
            Some(check) => {
                assert_eq!(check["verdict"], "invalid");
                // It has no counts, and no privilege is blamed for that.
                assert!(self::check(&trial, "checkpoints").is_none(), "{trial:#}");
                lost += 1;
            }
            None => {
                assert_recounted(&trial, drivers);
                whole += 1;
            }
        }
    }
    (lost, whole)
}

#[test]
fn three_drivers_share_the_sessions_and_the_server_counts_the_same() {
    let conninfo = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let keys = "duration = \"800ms\"\nwarmup = \"100ms\"";
    let text = commits(&conninfo, keys, 4).replacen("warmup = \"0s\"\n", "", 1);
    let mut pgio = start(&dir, &text, "local:3");
    pgio.wait_until("at work", || are_working(&conninfo, 4));
    assert_eq!(drivers_of(pgio.pid()).into_keys().collect::<Vec<_>>(), [0, 1, 2]);
    pgio.wait().expect(0, &[]);
    let trials = dir.trials();
    assert_eq!(trials.len(), 2);
    for trial in &trials {
        assert_recounted(trial, 3);
        let parts = trial["drivers"].as_array().unwrap();
        let ranges: Vec<_> =
            parts.iter().map(|p| (p["first_session"].as_u64(), p["sessions"].as_u64())).collect();
        assert_eq!(ranges, [(Some(0), Some(2)), (Some(2), Some(1)), (Some(3), Some(1))]);
        assert_eq!(trial["sessions"].as_array().unwrap().len(), 4);
        assert!(check(trial, APART).is_some());
    }
    wait_until("no session is left", || pgio_sessions(&conninfo) == 0);

    // Reads and updates of slob.
    let load = ["setup", "--connect-string", &conninfo, "--scale", "8M", "--num-schemas", "2"];
    dir.pgio(&load).expect(0, &[]);
    let work = "engine = \"client\"\nsessions = 4\nnum_schemas = 2\nscale = \"8M\"\nupdate_pct = 50\n\
                work_unit = 4";
    let keys = format!(
        "aa = false\nburn_in = false\nblocks = 1\nduration = \"500ms\"\ntelemetry = \"0s\"\n{}",
        quiet()
    );
    let text = experiment(&conninfo, &keys, work, &[("a", "")]);
    let text = text.replace("kind = \"commit\"", "kind = \"slob\"").replace("\"out\"", "\"slob\"");
    fs::remove_dir_all(dir.out()).unwrap();
    start(&dir, &text, "local:2").wait().expect(0, &[]);
    let trials = dir.trials();
    assert_recounted(&trials[0], 2);
}

#[test]
fn a_driver_that_is_lost_in_the_window_costs_one_trial_and_is_replaced() {
    let conninfo = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let mut pgio = start(&dir, &commits(&conninfo, "duration = \"1s\"\nrepeats = 6", 6), "local:3");
    let coordinator = pgio.pid();
    // One is killed, one of a later trial is stopped: its sockets stay open. One ends by itself, as in a pod that is
    // deleted.
    for (signal, rank) in [(Signal::KILL, 1), (Signal::STOP, 2), (Signal::TERM, 0)] {
        pgio.wait_until("at work", || are_working(&conninfo, 6));
        let driver = drivers_of(coordinator)[&rank];
        kill_process(Pid::from_raw(driver).unwrap(), signal).unwrap();
        pgio.wait_until("lost", || drivers_of(coordinator).get(&rank) != Some(&driver));
    }
    pgio.wait().expect(0, &["driver-lost"]);
    let (lost, whole) = lost_and_whole(&dir, 3);
    assert!((1..=3).contains(&lost), "{lost}");
    assert!(whole >= 2, "{whole}");
    wait_until("no session is left", || pgio_sessions(&conninfo) == 0);
    assert!(drivers_of(coordinator).is_empty());
}

#[test]
fn nothing_is_left_of_a_coordinator_that_is_killed_at_any_moment() {
    let server = own_primary(INSTALLED);
    let conninfo = fresh_database(&server);
    let mut random = SplitMix64::new(5);
    for kill in 0..KILLS {
        let dir = Workdir::new();
        let text = commits(&conninfo, "duration = \"60s\"", 4)
            .replace("synchronous_commit = \"off\"", "wal_writer_delay = \"100ms\"");
        let mut pgio = start(&dir, &text, "local:2");
        match kill {
            // One inside a window, whatever the others are.
            0 => pgio.wait_until("at work", || are_working(&conninfo, 4)),
            _ => thread::sleep(Duration::from_millis(random.next_u64() % LATEST_MS)),
        }
        let drivers = drivers_of(pgio.pid());
        assert!(kill > 0 || drivers.len() == 2);
        pgio.kill();
        wait_until("no session is left", || pgio_sessions(&conninfo) == 0);
        let gone = |pid: &i32| !fs::exists(format!("/proc/{pid}/exe")).unwrap_or(false);
        wait_until("no driver is left", || drivers.values().all(gone));
        dir.pgio(&["undo"]).expect(0, &[]);
        assert_eq!(dir.pgio(&["undo"]).expect(0, &[]).out, dir.nothing_to_undo());
        let sql = "SELECT to_regclass('pgio_commit') IS NULL AND setting = '200' FROM pg_settings \
                   WHERE name = 'wal_writer_delay'";
        assert!(connect(&conninfo).query_one(sql, &[]).unwrap().get::<_, bool>(0));
    }
}

fn refused(dir: &Workdir, text: &str, args: &[&str], code: i32, expected: &str) -> CommandResult {
    dir.write("experiment.toml", text);
    let all = [&["compare", "experiment.toml", "--out", "out"], args].concat();
    let result = dir.pgio(&all).expect(code, &[expected]);
    // Drivers that were started say it on the same stream.
    let last = result.err.trim_end().lines().last().unwrap();
    assert!(last.starts_with("pgio: ") && last.contains(expected), "{result}");
    assert!(!dir.out().exists(), "{result}");
    result
}

#[test]
fn drivers_that_cannot_work_are_refused_before_anything_changes() {
    let conninfo = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let good = commits(&conninfo, "duration = \"1s\"", 2);
    let server = good.replace("engine = \"client\"\n", "");
    for (text, drivers, code, expected) in [
        (&good, "local:3", 4, "3 drivers are more than the workload has sessions (2)"),
        (&good, "local:0", 2, "`0` is not a number of drivers"),
        (&good, "mesos:2", 2, "valid engines: local, slurm, kubernetes, run"),
        (&good, "run:no-such-launcher {drive}", 2, "run: does not say how many drivers"),
        (&good, "run:2:no-such-launcher {drive}", 4, "`no-such-launcher` is not installed here"),
        (&good, "kubernetes:2", 2, "needs an image"),
        (&good, "run:1:env PGIO_DRIVE_TOKEN= {drive}", 4, "0 of 1 drivers have connected"),
        (&server, "local:2", 4, "the server engine gains nothing from drivers on one target"),
    ] {
        refused(&dir, text, &["--drivers", drivers], code, expected);
    }
    // A plan refuses what the last of several workloads would refuse after all others.
    let planned = ["--drivers", "local:3", "--plan"];
    refused(&dir, &good, &planned, 4, "3 drivers are more than the workload has sessions (2)");
    let listed = "Drivers that generate the load: 2; engine local; ";
    dir.pgio(&["compare", "experiment.toml", "--drivers", "local:2", "--plan"])
        .expect(0, &[listed, "each trial "]);
    // Neither of the two may be dropped silently.
    let both = ["--drivers", "kubernetes:2", "--image", "i", "--plan", "--dry-run"];
    dir.pgio(&[&["compare", "experiment.toml"], &both[..]].concat())
        .expect(2, &["--dry-run", "cannot be used with", "--plan"]);
    // Without the engine's programs.
    dir.write("experiment.toml", &good);
    for (args, expected) in [
        (&["--drivers", "slurm:2"][..], "install slurm-client"),
        (&["--drivers", "kubernetes:2", "--image", "i"], "configure access to the cluster"),
    ] {
        let all = [&["compare", "experiment.toml", "--out", "out"], args].concat();
        let mut command = dir.command(&all);
        command.env("PATH", dir.path());
        dir.start(command).wait().expect(4, &["is not installed here", expected]);
        assert!(!dir.out().exists());
    }
    // A driver with another token is refused, and the user sees its host.
    let other = format!("run:1:env PGIO_DRIVE_TOKEN={} {{drive}}", "ab".repeat(32));
    refused(&dir, &good, &["--drivers", &other], 4, "its token is not this run's");
    // A driver that finds no way to the server: libpq's own variable limits it to one that is not there.
    let apart = "run:1:env PGSSLMODE=disable PGOPTIONS=-c\\ no_such_setting=1 {drive}";
    let result = refused(&dir, &good, &["--drivers", apart], 3, "driver 0 on ");
    assert!(result.err.contains("no_such_setting"), "{result}");
    let manifest = dir.pgio(&[
        "compare",
        "experiment.toml",
        "--drivers",
        "kubernetes:4",
        "--image",
        "i",
        "--dry-run",
    ]);
    manifest.expect(0, &["completionMode: Indexed", "completions: 4"]);
    let drive = |variables: &[(&str, &str)]| {
        let mut command = dir.command(&["drive", "--within", "0"]);
        command.envs(variables.iter().copied());
        dir.start(command).wait()
    };
    let token = ("PGIO_DRIVE_TOKEN", &*"ab".repeat(32));
    drive(&[]).expect(2, &["PGIO_COORDINATOR is not set"]);
    drive(&[("PGIO_COORDINATOR", "127.0.0.1:1")]).expect(2, &["PGIO_DRIVE_TOKEN is not set"]);
    drive(&[("PGIO_COORDINATOR", "127.0.0.1:1"), ("PGIO_DRIVE_TOKEN", "x")])
        .expect(2, &["a token is 32 to 128 characters"]);
    drive(&[("PGIO_COORDINATOR", "127.0.0.1:1"), token])
        .expect(3, &["no coordinator answers at 127.0.0.1:1"]);
    wait_until("no session is left", || pgio_sessions(&conninfo) == 0);
}
