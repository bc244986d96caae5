//! Telemetry on real servers: that it is present, that it is true, and
//! that it is absent with a word where it cannot be.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pgio::pg::private::{PrivateCluster, Spec};
use serde_json::Value;

use crate::sshd::Sshd;
use pgio_tests::command::{CommandResult, TestDatabase, wait_until};
use pgio_tests::fixture::{
    INSTALLED, NEWEST, connect, fresh_database, own_primary, shared_pair, shared_primary, spec,
};
use pgio_tests::timing::run_in_parallel;
use pgio_tests::workdir::{
    SAMPLED, Workdir, active_sessions, alter_system, experiment, experiment_on, failed_checks,
    tolerate,
};

const OLDEST: u32 = 13;
const LOCAL: (&str, &str) = ("local", "synchronous_commit = \"local\"");
const ON: (&str, &str) = ("on", "synchronous_commit = \"on\"");

fn on_both_versions(test: impl Fn(u32) + Sync) {
    run_in_parallel([INSTALLED, NEWEST], test);
}

fn series(dir: &Workdir, trial: &Value) -> Value {
    let name = trial["series"].as_str().unwrap_or_else(|| panic!("no series in {trial:#}"));
    serde_json::from_str(&fs::read_to_string(dir.out().join(name)).unwrap()).unwrap()
}

fn track<'a>(series: &'a Value, subject: &str, name: &str) -> &'a Value {
    let mut tracks = series["tracks"].as_array().unwrap().iter();
    let found =
        tracks.find(|t| t["source"] == "server" && t["subject"] == subject && t["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {series:#}"))
}

fn numbers(values: &Value) -> Vec<f64> {
    values.as_array().unwrap().iter().filter_map(Value::as_f64).collect()
}

fn share(trial: &Value, group: &str) -> f64 {
    trial["metrics"][format!("wait_share_{group}")]["value"].as_f64().unwrap()
}

fn warnings(trial: &Value) -> String {
    trial["warnings"].to_string()
}

/// A rate over the whole window by its track agrees with the counters around it.
fn assert_wal_adds_up(trial: &Value, series: &Value) {
    let wal = track(series, "", "wal_bytes_per_second");
    let (at, values) = (numbers(&wal["at"]), numbers(&wal["values"]));
    assert_eq!(at.len(), values.len());
    let end = series["window_seconds"].as_f64().unwrap();
    let mut grown = 0.0;
    for i in 0..at.len() {
        // Intervals that begin inside the window, the last of which ends with the mark at its end,
        // however late; the first begins with the mark at its start.
        let from = if i == 0 { 0.0 } else { at[i - 1] };
        if at[i] > 0.05 && from < end {
            grown += values[i] * (at[i] - from);
        }
    }
    let counted = trial["metrics"]["wal_bytes_per_second"]["value"].as_f64().unwrap()
        * trial["window"]["seconds"].as_f64().unwrap();
    // The counters are read a little before and after: a few full-page images may lie between.
    let off = (grown - counted).abs();
    assert!(off < 0.1 * counted || off < 65_536.0, "{grown} by the track, {counted} counted");
}

fn observed(major: u32) {
    // The WAL of a server is that of all its databases: other tests would add theirs.
    let cluster = PrivateCluster::start(&Spec { standby: true, ..spec(major) }).unwrap();
    let dir = Workdir::new();
    let keys = format!("blocks = 1\nduration = \"1500ms\"\naa = false\n{SAMPLED}");
    let text = experiment(&cluster.primary_conninfo(), &keys, "sessions = 2", &[LOCAL, ON]);
    dir.compare(&text).expect(0, &[]);
    for trial in dir.trials() {
        let telemetry = &trial["telemetry"];
        let waits = &telemetry["waits"];
        assert_eq!(waits["sessions"], 2, "{telemetry:#}");
        let rounds = waits["rounds"].as_u64().unwrap();
        let seen: u64 =
            waits["sightings"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        // A finished session may end before the other's last operation, which is late
        // on a busy machine, and at the window's opening one may still be asleep.
        let seconds = trial["window"]["seconds"].as_f64().unwrap();
        let late = (2.0 * 20.0 * (seconds - 1.5).max(0.0)) as u64;
        let least = (2 * rounds).saturating_sub(4 + late);
        assert!((least..=2 * rounds).contains(&seen), "{waits} in {seconds} s");
        let missed = waits["missed_rounds"].as_u64().unwrap();
        // 20 a second, and those of intervals that lie inside the window in part.
        let due = rounds + missed;
        let least = ((seconds - 1e-6) * 20.0).floor() as u64;
        assert!((least..=least + 3).contains(&due), "{waits} in {seconds} s");
        assert!(telemetry["driver_cpu_seconds"].as_f64().unwrap() > 0.0);
        assert!(telemetry["sampling_cpu_seconds"].as_f64().unwrap() > 0.0);

        let host = &telemetry["hosts"]["local"];
        assert!(host["ticks"].as_u64().unwrap() > 0, "{host:#}");
        // In steps of 10 ms.
        assert!(host["sampling_cpu_seconds"].is_f64(), "{host:#}");
        assert!(host["foreign_cores"].as_f64().is_some(), "{host:#}");
        let roles: Vec<&str> = telemetry["storage"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["role"].as_str().unwrap())
            .collect();
        assert_eq!(roles, ["data", "wal"]);
        assert!(trial["environment"]["host.kernel"].is_string(), "{}", trial["environment"]);
        assert!(trial["environment"]["wal.mount"].is_string(), "{}", trial["environment"]);
        let device = |name: &str| trial["metrics"][name]["value"].as_f64().unwrap();
        assert!(device("device_writes_per_second") > 0.0, "every commit is flushed");
        assert!(device("device_reads_per_second") >= 0.0);
        assert!(device("page_cache_reads_per_second") >= 0.0);

        let standby = &telemetry["standbys"]["standby"];
        assert_eq!(standby["sync_state"], "sync", "{telemetry:#}");
        assert!(standby["max_bytes_behind"].as_f64().unwrap() >= 0.0);

        let series = series(&dir, &trial);
        assert_eq!(series["schema"], "pgio.series/1");
        assert_wal_adds_up(&trial, &series);
        track(&series, "", "blocks_hit_per_second");
        track(&series, "standby", "flush_bytes_behind");
        if major >= 16 {
            track(&series, "", "client_reads_per_second");
        }
        if major >= 14 {
            let fsyncs = numbers(&track(&series, "", "wal_fsyncs_per_second")["values"]);
            assert!(fsyncs.iter().any(|n| *n > 0.0), "{fsyncs:?}");
        }
        assert!(trial["environment"]["setting.synchronous_standby_names"].is_string());
        assert_eq!(failed_checks(&trial, "invalid"), [""; 0]);
    }
    let trials = dir.trials();
    let of = |name: &str| trials.iter().find(|t| t["place"]["condition"] == name).unwrap();
    assert!(share(of("local"), "sync_rep") < 0.01, "nobody waits for a standby");
    assert!(share(of("on"), "sync_rep") > 0.1, "{}", of("on")["telemetry"]["waits"]);
    let groups = [
        "cpu",
        "data_file_read",
        "data_file_write",
        "flush",
        "sync_rep",
        "locks",
        "client",
        "other",
    ];
    let all: f64 = groups.iter().map(|g| share(of("on"), g)).sum();
    assert!((all - 1.0).abs() < 1e-9, "{all}");
}

#[test]
fn a_commit_workload_is_observed() {
    observed(INSTALLED);
}

#[test]
fn a_commit_workload_is_observed_on_the_newest() {
    observed(NEWEST);
}

#[test]
fn a_commit_workload_is_observed_on_the_oldest() {
    observed(OLDEST);
}

/// Sampling is no work: the database's own counters see nothing of it.
#[test]
fn sampling_does_not_count_for_the_workloads_database() {
    on_both_versions(|major| {
        let db = TestDatabase::new(major);
        db.load(1, "8M");
        let others = |telemetry: &str| {
            // The same number of visits on any machine. So many that the some 3,000 blocks which an
            // autovacuum worker of this database reads in one of the runs do not matter.
            let arguments = ["--work-loop", "20000", "--work-unit", "10", "--telemetry", telemetry];
            let trial = db.trial(&arguments);
            assert_eq!(trial["telemetry"].is_null(), telemetry == "0");
            let hits = |when: &str| trial["database"][when]["blks_hit"].as_i64().unwrap();
            let reads = |when: &str| trial["database"][when]["blks_read"].as_i64().unwrap();
            let visits: u64 = trial["sessions"].as_array().unwrap()[0]["reads"].as_u64().unwrap();
            let all = hits("after") - hits("before") + reads("after") - reads("before");
            all as f64 / visits as f64
        };
        // A visit reads as many blocks of the index and the table with sampling as without.
        let (with, without) = (others("200ms"), others("0"));
        assert!((with / without - 1.0).abs() < 0.02, "{with} and {without}");
    });
}

#[test]
fn a_role_without_pg_monitor_gets_a_warning() {
    on_both_versions(|major| {
        let owner = TestDatabase::at(&fresh_database(shared_pair(major)));
        let db = owner.new_role("plain", "");
        let grant = format!("GRANT ALL ON SCHEMA public TO {}", db.user);
        owner.client().batch_execute(&grant).unwrap();
        db.load(1, "8M");
        let trial = db.trial(&["--run-time", "500ms"]);
        let result = warnings(&trial);
        assert!(result.contains("autovacuum"), "{result}");
        assert!(result.contains(&format!("GRANT pg_monitor TO \\\"{}\\\"", db.user)), "{result}");
        // Its own sessions it may see.
        assert_eq!(trial["telemetry"]["waits"]["sessions"], 1);
        assert!(share(&trial, "cpu") > 0.0);
        assert!(
            result.contains(&format!("GRANT pg_read_all_settings TO \\\"{}", db.user)),
            "{result}"
        );
        assert!(trial["metrics"]["device_reads_per_second"].is_null());
        assert!(trial["telemetry"]["standbys"].as_object().is_none_or(|s| s.is_empty()));
        owner.client().batch_execute(&format!("GRANT pg_monitor TO {}", db.user)).unwrap();
        let trial = db.trial(&["--run-time", "500ms"]);
        assert!(!warnings(&trial).contains("autovacuum"), "{}", warnings(&trial));
        assert_eq!(trial["telemetry"]["standbys"]["standby"]["sync_state"], "sync");
    });
}

/// Process numbers of the server mean nothing here, as with a server in a container.
#[test]
fn devices_of_this_machine_are_not_taken_for_those_of_a_server_elsewhere() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let pgio = db.command(&["run", "--run-time", "500ms", "--json", "trial.json"]);
    let mut apart = Command::new("unshare");
    apart.args(["--pid", "--fork", "--mount-proc"]).arg(pgio.get_program()).args(pgio.get_args());
    apart.env_clear().current_dir(db.dir.path()).env("PATH", "/usr/bin:/bin");
    apart.envs(pgio.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let result = CommandResult::from_output(apart.output().unwrap());
    assert_eq!(result.code, Some(0), "{result:?}");
    let trial = db.record("trial.json");
    assert_eq!(trial["telemetry"]["storage"], Value::Array(Vec::new()));
    assert!(trial["metrics"]["device_reads_per_second"].is_null());
    assert!(warnings(&trial).contains("set host in [target]"), "{}", warnings(&trial));
    assert!(trial["telemetry"]["waits"]["rounds"].as_u64().unwrap() > 0);
}

#[test]
fn an_unreachable_host_is_reported_before_anything_is_created() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let text = experiment(&dsn, &format!("blocks = 1\n{SAMPLED}"), "", &[("a", "")])
        + "\n[hosts.db]\nssh = \"no-such-host.invalid\"\n";
    dir.compare(&text).expect(3, &["no-such-host.invalid"]);
    assert!(!dir.out().exists());
}

/// An experiment whose server is on the host `box`, which is this machine over ssh.
fn over_ssh(sshd: &Sshd, dsn: &str, duration: &str) -> String {
    let target = format!("dsn = {dsn:?}\nhost = \"box\"");
    let keys = format!("blocks = 2\nduration = \"{duration}\"\naa = false");
    let config = sshd.config();
    experiment_on(&target, &keys, "", &[("a", "")])
        + &format!("\n[hosts.box]\nssh = \"box\"\nssh_config = {config:?}\n")
}

#[test]
fn a_servers_host_is_observed_over_ssh() {
    let (sshd, dir) = (Sshd::start(), Workdir::new());
    let dsn = fresh_database(shared_primary(INSTALLED));
    dir.compare(&over_ssh(&sshd, &dsn, "1s")).expect(0, &[]);
    for trial in dir.trials() {
        let telemetry = &trial["telemetry"];
        let hosts = telemetry["hosts"].as_object().unwrap();
        assert_eq!(hosts.keys().collect::<Vec<_>>(), ["box", "local"]);
        assert!(hosts["box"]["clock_offset_seconds"].as_f64().unwrap().abs() < 0.5);
        assert_eq!(telemetry["storage"][0]["host"], "box");
        assert!(trial["metrics"]["device_writes_per_second"]["value"].as_f64().unwrap() > 0.0);
        let series = series(&dir, &trial);
        assert!(series["tracks"].as_array().unwrap().iter().any(|t| t["source"] == "box"));
    }
    sshd.wait_until_idle();
}

#[test]
fn an_ssh_connection_that_breaks_costs_the_hosts_data_and_nothing_else() {
    let (sshd, dir) = (Sshd::start(), Workdir::new());
    let dsn = fresh_database(shared_primary(INSTALLED));
    let mut running = dir.start_compare(&over_ssh(&sshd, &dsn, "2s"));
    running.wait_until("in the window", || active_sessions(&dsn) == 1);
    thread::sleep(Duration::from_millis(500));
    sshd.drop_connections();
    running.wait().expect(0, &[]);
    let trials = dir.trials();
    assert_eq!(trials.len(), 2);
    assert!(trials.iter().all(|t| t["outcome"]["state"] == "complete"));
    let result = warnings(&trials[0]);
    assert!(result.contains("host box"), "{result}");
    assert!(trials[0]["metrics"]["commits_per_second"]["value"].as_f64().unwrap() > 0.0);
    assert!(trials[0]["telemetry"]["waits"]["rounds"].as_u64().unwrap() > 0);
    assert_eq!(failed_checks(&trials[0], "invalid"), [""; 0]);
    sshd.wait_until_idle();
}

#[test]
fn wait_sampling_is_skipped_if_no_connection_is_to_spare() {
    let server = TestDatabase::new(INSTALLED);
    server.load(1, "8M");
    // One is pgio's own.
    let db = server.new_role("few", "CONNECTION LIMIT 3");
    let grant = format!("GRANT SELECT, UPDATE ON pgio1 TO {0}; GRANT pg_monitor TO {0}", db.user);
    server.client().batch_execute(&grant).unwrap();
    let trial = db.trial(&["--run-time", "300ms", "--num-threads", "2"]);
    assert!(trial["telemetry"]["waits"].is_null());
    assert!(warnings(&trial).contains("connections to spare"), "{}", warnings(&trial));
}

fn has_its_moment(major: u32) {
    let cluster = own_primary(major);
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let keys = "blocks = 1\nduration = \"2s\"\naa = false\ntelemetry = \"250ms\"";
    let mut running = dir.start_compare(&experiment(&dsn, keys, "", &[("a", "")]));
    running.wait_until("in the window", || active_sessions(&dsn) == 1);
    thread::sleep(Duration::from_millis(300));
    connect(&dsn).batch_execute("CHECKPOINT").unwrap();
    running.wait().expect(0, &[]);
    let series = series(&dir, &dir.trials()[0]);
    let moments = series["moments"].as_array().unwrap();
    let inside =
        |m: &&Value| m["what"] == "checkpoint" && (0.1..2.1).contains(&m["at"].as_f64().unwrap());
    assert_eq!(moments.iter().filter(inside).count(), 1, "{moments:?}");
}

#[test]
fn a_checkpoint_in_the_window_is_recorded_as_a_moment() {
    on_both_versions(has_its_moment);
}

/// A setting that no condition declares, changed inside the window.
#[test]
fn a_setting_changed_by_someone_else_makes_the_trial_invalid() {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let keys = format!(
        "blocks = 1\nduration = \"2s\"\naa = false\nrepeats = 0\n{SAMPLED}\n{}",
        tolerate(&[])
    );
    let mut running = dir.start_compare(&experiment(&dsn, &keys, "", &[("a", "")]));
    running.wait_until("in the window", || active_sessions(&dsn) == 1);
    alter_system(&dsn, "bgwriter_delay", Some("123ms"));
    running.wait().expect(5, &["environment-changed"]);
    let trial = &dir.trials()[0];
    assert_eq!(failed_checks(trial, "invalid"), ["environment-changed"]);
    let text = trial["checks"].to_string();
    assert!(text.contains("setting.bgwriter_delay was its default and then 123ms"), "{text}");
}

/// Processes of these programs that write to files in this directory.
fn monitors_in(dir: &Path) -> usize {
    let writes_there = |pid: &fs::DirEntry| {
        fs::read_link(pid.path().join("fd/1")).is_ok_and(|out| out.parent() == Some(dir))
    };
    fs::read_dir("/proc").unwrap().flatten().filter(writes_there).count()
}

const RUNNING: &str = "Running iostat, vmstat and mpstat on current host--in background.\n";

#[test]
fn a_run_writes_the_originals_monitor_files() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let begun = Instant::now();
    // It leaves the processors to others.
    let rests = ["--think-pct", "100", "--think-min", "20ms", "--think-max", "20ms"];
    let run = ["run", "--run-time", "5", "--classic-files", "files"];
    let result = db.succeed(&[&run[..], &rests].concat());
    let most = 1 + begun.elapsed().as_secs() as usize / 3;
    assert!(result.out.contains(RUNNING), "{result:?}");
    assert_eq!(monitors_in(&db.file("files")), 0);
    let text = |name: &str| db.read(&format!("files/{name}"));
    // One report since the machine started, one of every three seconds.
    let reports = text("iostat.out").matches("avg-cpu:").count();
    assert!((2..=most).contains(&reports), "{reports} of at most {most}");
    // Below two lines of headings.
    let reports = text("vmstat.out").lines().count() - 2;
    assert!((2..=most).contains(&reports), "{reports} of at most {most}");
    assert!(text("mpstat.out").contains(" all "));
    assert!(!text("mpstat.out").contains("Average"), "the original kills it");
    let diskstats = text("pgio_diskstats.out");
    assert_eq!(diskstats.matches("\n\n").count(), 2, "{diskstats}");

    // Without --classic-files they are not written.
    let result = db.succeed(&["run", "--run-time", "100ms"]);
    assert!(!result.out.contains(RUNNING), "{result:?}");
}

#[test]
fn monitors_end_with_a_pgio_that_is_killed() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let mut pgio = db
        .command(&["run", "--run-time", "60", "--classic-files", "files"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let dir = db.file("files");
    wait_until("the monitors run", || dir.exists() && monitors_in(&dir) == 3);
    pgio.kill().unwrap();
    pgio.wait().unwrap();
    wait_until("they are gone", || monitors_in(&dir) == 0);
}

#[test]
fn without_sysstat_a_run_names_the_package() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "8M");
    let mut command = db.command(&["run", "--run-time", "100ms", "--classic-files", "files"]);
    let result = CommandResult::from_output(command.env("PATH", "/nonexistent").output().unwrap());
    assert_eq!(result.code, Some(0), "{result:?}");
    assert!(
        result.err.contains("iostat, vmstat, mpstat") && result.err.contains("sysstat"),
        "{result:?}"
    );
    assert!(!result.out.contains(RUNNING), "{result:?}");
    assert!(!db.file("files/iostat.out").exists());
    assert!(db.file("files/pgio_diskstats.out").exists());
}
