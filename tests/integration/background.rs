//! Work beside the judged one, of kinds that no recipe has, on servers of the user's.

use std::fs;
use std::os::unix::fs::symlink;

use pgio::host::stop::Stop;
use serde_json::Value;

use pgio_tests::fixture::{INSTALLED, connect, fresh_database, shared_pair, shared_primary};
use pgio_tests::workdir::{
    BETWEEN_TRIAL_CHECKS, Workdir, condition_of, failed_checks, tolerate, wait_until,
};

/// The background work of a valid trial; on a busy machine, counts of a whole window may be missing at first.
fn beside(trials: &[Value], condition: &str) -> Value {
    let is_valid = |trial: &&Value| {
        condition_of(trial) == condition && failed_checks(trial, "invalid").is_empty()
    };
    let trial = trials.iter().find(is_valid).unwrap_or_else(|| panic!("{condition}: {trials:#?}"));
    trial["background"].clone()
}

#[test]
fn programs_devices_and_commits_run_beside_the_work_and_leave_nothing() {
    let dir = Workdir::new();
    let server = shared_primary(INSTALLED);
    let (judged, other) = (fresh_database(server), fresh_database(server));
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let text = format!(
        r#"[experiment]
blocks = 1
duration = "1s"
warmup = "0s"
aa = false
telemetry = "0s"
{}

[targets.judged]
dsn = {judged:?}

[targets.other]
dsn = {other:?}

[workload]
kind = "commit"

[[condition]]
name = "alone"
target = "judged"

[[condition]]
name = "beside"
target = "judged"

[[background]]
name = "pgbench"
target = "other"
conditions = ["beside"]
kind = "command"
preset = "pgbench"
sessions = 1
run_time = "5s"
parameters = {{ scale = 1, threads = 1 }}

[[background]]
name = "fio"
target = "other"
conditions = ["beside"]
kind = "device"
path = {:?}
size = "8M"
run_time = "5s"
test = "latency"

[[background]]
name = "inserts"
target = "other"
conditions = ["beside"]
kind = "commit"
sessions = 1
"#,
        tolerate(&BETWEEN_TRIAL_CHECKS),
        place.path(),
    );
    dir.compare(&text).expect(0, &[]);
    dir.pgio(&["report", "out", "--all"]).expect(0, &["Background work"]);
    let trials = dir.trials();
    assert!(beside(&trials, "alone").is_null());
    let background = beside(&trials, "beside");
    let names: Vec<_> = background.as_object().unwrap().keys().collect();
    assert_eq!(names, ["fio", "inserts", "pgbench"]);
    for (name, metric) in [
        ("pgbench", "transactions_per_second"),
        ("fio", "device_latency_mean"),
        ("inserts", "commits_per_second"),
    ] {
        assert_eq!(background[name]["metric"], metric, "{background}");
        assert!(background[name]["value"].as_f64().unwrap() > 0.0, "{background}");
    }
    let table = "SELECT to_regclass('pgio_commit') IS NULL";
    wait_until("its table is gone", || connect(&other).query_one(table, &[]).unwrap().get(0));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    assert!(dir.journals().is_empty());
    // Without fio nothing begins.
    let others = dir.path().join("others");
    fs::create_dir(&others).unwrap();
    for program in ["/usr/bin", "/bin"].iter().flat_map(|dir| fs::read_dir(dir).unwrap()) {
        let program = program.unwrap();
        if program.file_name() != "fio" {
            let _ = symlink(program.path(), others.join(program.file_name()));
        }
    }
    let mut command = dir.command(&["compare", "experiment.toml", "--out", "again"]);
    command.env("PATH", &others);
    let refused = ["background work `fio`", "fio is not on this machine", "apt-get install fio"];
    dir.start(command).wait().expect(4, &refused);
    assert!(!dir.path().join("again").exists());
}

#[test]
fn a_standby_is_read_and_a_program_that_fails_is_quoted() {
    let pair = shared_pair(INSTALLED);
    let judged = fresh_database(pair);
    let name = judged.rsplit_once("dbname=").unwrap().1.to_owned();
    let standby = pair.standby_conninfo().unwrap();
    let replica = format!("{}dbname={name}", standby.rsplit_once("dbname=").unwrap().0);
    let dir = Workdir::new();
    dir.pgio(&["setup", "--connect-string", &judged, "--scale", "8M"]).expect(0, &[]);
    pair.wait_replayed(&Stop::new()).unwrap();
    let text = |reads: &str| {
        format!(
            r#"[experiment]
blocks = 1
duration = "1s"
warmup = "0s"
aa = false
telemetry = "0s"
repeats = 0
{}

[targets.judged]
dsn = {judged:?}

[targets.replica]
dsn = {replica:?}

[workload]
kind = "commit"
sessions = 1

[[condition]]
name = "reads"
target = "judged"

[[condition]]
name = "dump"
target = "judged"

[[background]]
name = "visits"
target = "replica"
conditions = ["reads"]
kind = "slob"
num_threads = 1
{reads}

[[background]]
name = "dump"
target = "replica"
conditions = ["dump"]
kind = "command"
run = "echo nothing; echo cannot dump >&2; sleep 3"
[[background.metric]]
name = "dumps"
unit = "dumps"
better = "higher"
regex = "([0-9]+) dumps"
"#,
            tolerate(&BETWEEN_TRIAL_CHECKS)
        )
    };
    let place =
        "background work `visits` on `replica`: it would write to a standby: set update_pct = 0";
    dir.compare(&text("update_pct = 5")).expect(4, &[place]);
    let text = text("update_pct = 0");
    dir.write("e.toml", &text);
    dir.pgio(&["compare", "e.toml", "--plan"]).expect(0, &["on `replica`"]);
    dir.pgio(&["doctor", "e.toml"]).expect(0, &["a standby"]);
    dir.compare(&text).expect(5, &["`dump` has no valid trial"]);
    let trials = dir.trials();
    let visits = &beside(&trials, "reads")["visits"];
    assert!(visits["value"].as_f64().unwrap() > 0.0, "{visits}");
    let is_dump = |trial: &&Value| condition_of(trial) == "dump";
    let number = 1 + trials.iter().position(|trial| is_dump(&trial)).unwrap();
    let checks = trials[number - 1]["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["id"] == "background").unwrap();
    let message = check["message"].as_str().unwrap();
    let file = format!("output/{number:04}.dump.stderr");
    for part in ["`dump` on `replica` failed", "end of stderr: cannot dump", &file] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(fs::read_to_string(dir.out().join(file)).unwrap(), "cannot dump\n");
}

#[test]
fn a_server_without_connections_for_both_is_refused_before_the_first_trial() {
    let dir = Workdir::new();
    let server = shared_primary(INSTALLED);
    // Two databases of one server share its connections.
    let (judged, other) = (fresh_database(server), fresh_database(server));
    let text = format!(
        r#"[experiment]
blocks = 1
duration = "200ms"
aa = false

[targets.judged]
dsn = {judged:?}

[targets.other]
dsn = {other:?}

[workload]
kind = "commit"
sessions = 90

[[condition]]
name = "noisy"
target = "judged"

[[background]]
target = "other"
conditions = ["noisy"]
kind = "commit"
sessions = 20
"#
    );
    let needed =
        ["condition `noisy`, with 21 connections for background work", "111 sessions are needed"];
    dir.write("e.toml", &text);
    dir.pgio(&["compare", "e.toml", "--plan"]).expect(4, &needed);
    dir.compare(&text).expect(4, &needed);
    assert!(!dir.out().exists() && dir.journals().is_empty());
}
