//! A synchronous standby that is lost for good: a trial fails after a while and leaves nothing.
//!
//! One test, whose waits of up to a minute run beside each other; by its name it starts first, so that
//! the suite does not wait for it alone in the end. A standby lost for less: `sync_rep`.

use std::thread;

use crate::sync_rep::{WAITS, has_table, pair, stop_standby_once};
use pgio_tests::timing;
use pgio_tests::workdir::{Workdir, condition_of, experiment, pgio_sessions, wait_until};

/// Work of a fixed time.
fn fails_and_the_next_is_tried() {
    let cluster = pair();
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let keys = "blocks = 2\nduration = \"2s\"\naa = false\nseed = 1";
    let conditions =
        [("local", "synchronous_commit = \"local\""), ("on", "synchronous_commit = \"on\"")];
    let mut running = dir.start_compare(&experiment(&dsn, keys, "", &conditions));
    stop_standby_once(&cluster, &mut running, WAITS);
    running.wait().expect(5, &["standby", "FAILED"]);
    let trials = dir.trials();
    assert_eq!(trials.len(), 4, "a failed trial is a record, and the next is tried");
    for trial in &trials {
        let complete = trial["outcome"]["state"] == "complete";
        assert_eq!(complete, condition_of(trial) == "local", "{}", trial["outcome"]);
    }
    for comparison in dir.analysis()["comparisons"].as_array().unwrap() {
        assert_eq!(comparison["blocks"], 0, "{comparison}");
    }
    wait_until("no session of ours", || pgio_sessions(&dsn) == 0);
}

/// Work of a fixed amount has no end time by which a wait would be too long.
fn stalls(engine: &str) {
    let cluster = pair();
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let keys = "blocks = 1\naa = false\ntelemetry = \"0s\"";
    let workload = format!("sessions = 2\ntransactions = 100000000\nengine = {engine:?}");
    let conditions = [("on", "synchronous_commit = \"on\"")];
    let mut running = dir.start_compare(&experiment(&dsn, keys, &workload, &conditions));
    stop_standby_once(&cluster, &mut running, WAITS);
    running.wait().expect(5, &["standby", "FAILED"]);
    let trials = dir.trials();
    assert_eq!(trials.len(), 1);
    let error = trials[0]["outcome"]["error"].as_str().unwrap();
    assert!(
        error.contains("made no progress for a minute") && error.contains("standby"),
        "{error}"
    );
    wait_until("no session of ours", || pgio_sessions(&dsn) == 0);
    assert!(!has_table(&dsn));
}

#[test]
fn a_standby_lost_for_good_fails_the_trial() {
    timing::begin();
    // They wait for up to a minute each, beside each other.
    thread::scope(|all| {
        all.spawn(fails_and_the_next_is_tried);
        for engine in ["server", "client"] {
            all.spawn(move || stalls(engine));
        }
    });
}
