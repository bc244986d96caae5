//! Work beside the judged one, of kinds that no recipe has, on servers of the user's.

use serde_json::Value;

use crate::fixture::{INSTALLED, connect, fresh_database, shared_primary};
use crate::workdir::{
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
name = "program"
target = "judged"

[[condition]]
name = "device"
target = "judged"

[[condition]]
name = "commits"
target = "judged"

[[background]]
name = "pgbench"
target = "other"
conditions = ["program"]
kind = "command"
preset = "pgbench"
sessions = 1
run_time = "5s"
parameters = {{ scale = 1, threads = 1 }}

[[background]]
name = "fio"
target = "other"
conditions = ["device"]
kind = "device"
path = {:?}
size = "8M"
run_time = "5s"
test = "latency"

[[background]]
name = "inserts"
target = "other"
conditions = ["commits"]
kind = "commit"
sessions = 1
"#,
        tolerate(&BETWEEN_TRIAL_CHECKS),
        place.path(),
    );
    dir.compare(&text).expect(0, &["Background work"]);
    let trials = dir.trials();
    assert!(beside(&trials, "alone").is_null());
    for (condition, name, metric) in [
        ("program", "pgbench", "transactions_per_second"),
        ("device", "fio", "device_latency_mean"),
        ("commits", "inserts", "commits_per_second"),
    ] {
        let background = beside(&trials, condition);
        assert_eq!(background.as_object().unwrap().keys().collect::<Vec<_>>(), [name]);
        assert_eq!(background[name]["metric"], metric, "{background}");
        assert!(background[name]["value"].as_f64().unwrap() > 0.0, "{background}");
    }
    let table = "SELECT to_regclass('pgio_commit') IS NULL";
    wait_until("its table is gone", || connect(&other).query_one(table, &[]).unwrap().get(0));
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    assert!(dir.journals().is_empty());
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
