//! The loop beyond its plan: repeats, further blocks, tolerance; and the output of --plan.

use std::collections::{BTreeMap, BTreeSet};

use pgio_tests::fixture::{INSTALLED, OwnPrimary, fresh_database, own_primary, shared_primary};
use pgio_tests::workdir::{
    Workdir, alter_system, condition_of, experiment, experiment_on, failed_checks, show, tolerate,
    wait_until,
};

/// fsync is off but no condition sets it: every trial is invalid.
fn without_fsync() -> OwnPrimary {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    alter_system(&dsn, "fsync", Some("off"));
    wait_until("off", || show(&dsn, "fsync") == "off");
    cluster
}

#[test]
fn invalid_trials_are_repeated_with_their_baseline_or_tolerated() {
    let cluster = without_fsync();
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let keys = "blocks = 2\nduration = \"100ms\"\naa = false\nrepeats = 1";
    let conditions = [("declared", "fsync = \"off\""), ("not", "")];
    let result = dir.compare(&experiment(&dsn, keys, "", &conditions)).expect(
        5,
        &[
            "not: invalid (durability: fsync is off",
            "; repeat 1",
            "excluded",
            "pgio: `not` has no valid trial among 4 trials (durability)",
        ],
    );
    assert!(!result.err.contains("declared: invalid"), "{result}");
    let trials = dir.trials();
    let places: Vec<_> = trials
        .iter()
        .map(|t| {
            (
                t["place"]["block"].as_u64().unwrap(),
                condition_of(t),
                t["place"]["attempt"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(places.len(), 8, "{places:?}");
    for (block, round) in [(1, &places[2..4]), (2, &places[6..8])] {
        let mut round = round.to_vec();
        round.sort_unstable();
        assert_eq!(round, [(block, "declared", 1), (block, "not", 1)], "{places:?}");
    }

    let dir = Workdir::new();
    let tolerant = format!("{keys}\n{}", tolerate(&["durability"]));
    dir.compare(&experiment(&dsn, &tolerant, "", &conditions)).expect(0, &["tolerated"]);
    let trials = dir.trials();
    assert_eq!(trials.len(), 4);
    for trial in trials.iter().filter(|t| condition_of(t) == "not") {
        assert_eq!(failed_checks(trial, "invalid"), [""; 0]);
        assert!(failed_checks(trial, "warning").contains(&"durability".to_owned()));
    }
    assert_eq!(dir.manifest()["rules"]["tolerate"][0], "durability");

    let slip = experiment(&dsn, &tolerant.replace("durability", "durabilty"), "", &conditions);
    dir.write("slip.toml", &slip);
    dir.pgio(&["compare", "slip.toml"])
        .expect(2, &["slip.toml:8", "the nearest valid one is `durability`"]);
}

#[test]
fn a_run_without_any_valid_trial_ends_after_two_blocks() {
    let cluster = without_fsync();
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let keys = "blocks = 6\nduration = \"100ms\"\naa = false\nrepeats = 1";
    let text = experiment(&dsn, keys, "", &[("a", ""), ("b", "commit_delay = 10")]);
    let messages = [
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

/// The conditions of the planned trials, in order; on a busy machine some are repeated.
fn planned(dir: &Workdir) -> Vec<String> {
    let trials = dir.trials();
    let planned = trials.iter().filter(|t| t["place"]["attempt"] == 0);
    planned.map(|t| condition_of(t).to_owned()).collect()
}

#[test]
fn blocks_are_added_until_the_intervals_are_narrow_or_the_limit_is_reached() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    // The wait is the server's own, so that no disk and no neighbor makes the intervals wide.
    let delay = "commit_delay = 10000, commit_siblings = 0";
    let conditions = [("a", delay), ("b", delay)];
    let run = |keys: &str| {
        let dir = Workdir::new();
        // Other tests' dirty pages would make each CHECKPOINT longer than the windows.
        let keys =
            format!("duration = \"300ms\"\naa = false\nseed = 5\ncheckpoint = \"none\"\n{keys}");
        let result = dir.compare(&experiment(&dsn, &keys, "", &conditions));
        (dir, result)
    };
    // A precision of 99 %: the intervals are checked from eight blocks on. On a busy machine a block may lack a
    // valid trial, or a window that stalled makes the interval too wide, and one more follows.
    let (dir, result) = run("blocks = 2\nprecision = \"99%\"");
    result.expect(0, &["within the requested"]);
    let mut valid: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for trial in dir.trials().iter().filter(|t| failed_checks(t, "invalid").is_empty()) {
        let block = trial["place"]["block"].as_u64().unwrap();
        valid.entry(block).or_default().insert(condition_of(trial).to_owned());
    }
    let whole = valid.values().filter(|conditions| conditions.len() == 2).count();
    assert!((7..=10).contains(&whole), "{valid:?}");
    assert_eq!(dir.manifest()["rules"]["precision"], 0.99);

    let (dir, result) = run("blocks = 2\nprecision = \"0.1%\"\nmax_blocks = 4");
    result.expect(0, &["limit of 4 blocks", "has no interval yet"]);
    let order = planned(&dir);
    assert_eq!(order.len(), 8);
    // More blocks of the same seed begin with the same order.
    let (plain, result) = run("blocks = 4");
    result.expect(0, &[]);
    assert_eq!(order, planned(&plain));
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
