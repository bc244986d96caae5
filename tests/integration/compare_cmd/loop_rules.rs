//! The loop beyond its plan, and the output of --plan. `application::loop_tests` has repeats, tolerance and further
//! blocks without a server.

use pgio_tests::fixture::{INSTALLED, OwnPrimary, fresh_database, own_primary, shared_primary};
use pgio_tests::workdir::{Workdir, alter_system, experiment, experiment_on, show, wait_until};

/// fsync is off but no condition sets it: every trial is invalid.
fn without_fsync() -> OwnPrimary {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    alter_system(&dsn, "fsync", Some("off"));
    wait_until("off", || show(&dsn, "fsync") == "off");
    cluster
}

#[test]
fn a_run_without_any_valid_trial_ends_after_two_blocks() {
    let cluster = without_fsync();
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let keys = "blocks = 6\nduration = \"100ms\"\naa = false\nrepeats = 1";
    let text = experiment(&dsn, keys, "", &[("a", ""), ("b", "commit_delay = 10")]);
    let messages = [
        "b: invalid (durability: fsync is off",
        "; repeat 1",
        "excluded",
        "no trial of 2 blocks is valid: 8 of 8 are invalid (durability 8)",
        "tolerate = [\"durability\"]",
        "continue with --resume out",
    ];
    dir.compare(&text).expect(5, &messages);
    assert_eq!(dir.trials().len(), 2 * 2 * 2);
    assert!(dir.journals().is_empty());
    let report = dir.pgio(&["report", "out"]).expect(0, &["`a` has no valid trial", "durability"]);
    assert!(report.out.contains("`b` has no valid trial"), "{report}");

    // The cause is gone: the experiment goes on to its end.
    alter_system(&dsn, "fsync", None);
    wait_until("on", || show(&dsn, "fsync") == "on");
    dir.pgio(&["compare", "experiment.toml", "--resume", "out"]).expect(0, &["Results: out"]);
    assert_eq!(dir.trials().iter().filter(|t| t["place"]["attempt"] == 0).count(), 12);
}

#[test]
fn a_plan_shows_durations_limits_and_changes() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let keys =
        "blocks = 6\nduration = \"10s\"\nprecision = \"5%\"\nmax_blocks = 12\nreset = \"reload\"";
    let body = "wal_writer_delay = \"1s\", synchronous_commit = \"off\"";
    dir.write("e.toml", &experiment(&dsn, keys, "", &[("a", ""), ("b", body)]));
    let result = dir.pgio(&["compare", "e.toml", "--plan", "--out", "there"]).expect(
        0,
        &[
            "6 blocks of 3 trials in random order, each trial 10.0 s",
            "18 trials, 3.0 min",
            "at most 36 trials, 6.0 min of warm-up and windows, about 6.6 min in all (blocks are added up to 12, until every interval is within ±5 %)",
            "at most 108 trials",
            "b changes wal_writer_delay = 1s by ALTER SYSTEM and a reload; now ",
            "b changes synchronous_commit = off in the workload's sessions; now on",
            "dropped and created again, then CHECKPOINT",
            "Results go to there ",
            "journal",
        ],
    );
    assert_eq!(result.err, "");
    assert!(!dir.path().join("there").exists());
    assert!(!dir.path().join("state").exists());

    let private = format!("private = true\npg = {INSTALLED}");
    dir.write("p.toml", &experiment_on(&private, "reset = \"recreate\"", "", &[("a", body)]));
    dir.pgio(&["compare", "p.toml", "--plan"])
        .expect(0, &["private PostgreSQL", "DROP DATABASE and CREATE DATABASE", "a changes "]);
}
