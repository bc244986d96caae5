//! A synchronous standby that is lost for good: a trial fails after a while and leaves nothing.
//!
//! One test, whose waits of up to a minute run beside each other; by its name it starts first, so that
//! the suite does not wait for it alone in the end. A standby lost for less: `sync_rep`.

use crate::sync_rep::{WAITS, has_table, pair, stop_standby_once};
use pgio_tests::fixture::fresh_database;
use pgio_tests::workdir::{
    Running, Workdir, condition_of, experiment, pgio_sessions, sessions_waiting_for_standby,
    wait_until,
};

/// Work of a fixed amount has no end time by which a wait would be too long.
fn start_fixed_work(dir: &Workdir, dsn: &str, engine: &str) -> Running {
    let keys = "blocks = 1\naa = false\ntelemetry = \"0s\"";
    let workload = format!("sessions = 2\ntransactions = 100000000\nengine = {engine:?}");
    let conditions = [("on", "synchronous_commit = \"on\"")];
    let mut running = dir.start_compare(&experiment(dsn, keys, &workload, &conditions));
    running.wait_until("in the window", || sessions_waiting_for_standby(dsn) > 0);
    running
}

#[test]
fn a_standby_lost_for_good_fails_the_trial() {
    let cluster = pair();
    let endless = ["server", "client"].map(|engine| {
        let (dsn, dir) = (fresh_database(&cluster), Workdir::new());
        let running = start_fixed_work(&dir, &dsn, engine);
        (dsn, dir, running)
    });
    // Work of a fixed time, of which the next trial is tried.
    let (dsn, dir) = (fresh_database(&cluster), Workdir::new());
    let keys = "blocks = 2\nduration = \"2s\"\naa = false\nseed = 1\nrepeats = 0";
    let conditions =
        [("local", "synchronous_commit = \"local\""), ("on", "synchronous_commit = \"on\"")];
    let mut running = dir.start_compare(&experiment(&dsn, keys, "", &conditions));
    let (_, database) = dsn.rsplit_once("dbname=").unwrap();
    let here = format!("datname = '{database}' AND {WAITS}");
    stop_standby_once(&cluster, &mut running, &here);
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

    for (dsn, dir, running) in endless {
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
}
