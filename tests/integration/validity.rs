//! Faults brought about on purpose, and the check that must see each: INVALID, kept, never compared.
//!
//! Elsewhere: a standby demoted or lost (`sync_rep`), a treatment's setting changed, fsync off
//! undeclared (`compare_cmd::evidence`), an undeclared setting changed (`telemetry`), foreign load
//! (`tests/measuring.rs`).

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use pgio_tests::command::TestDatabase;
use pgio_tests::fixture::{INSTALLED, connect, fresh_database, own_primary, shared_primary};
use pgio_tests::workdir::{
    Workdir, active_sessions, alter_system, condition_of, experiment, failed_checks, show,
    tolerate, wait_until,
};

/// Trials, by their lines, that this check of the analysis makes invalid.
fn invalid(analysis: &Value, id: &str) -> Vec<u64> {
    judged(analysis, id, "invalid")
}

fn judged(analysis: &Value, id: &str, verdict: &str) -> Vec<u64> {
    let found = analysis["checks"].as_array().unwrap().iter();
    let found = found.filter(|c| c["id"] == id && c["verdict"] == verdict);
    found.filter_map(|c| c["trial"].as_u64()).collect()
}

fn found_id() -> Value {
    "checkpoint-in-one-condition".into()
}

fn conditions_of(dir: &Workdir, lines: &[u64]) -> Vec<String> {
    let trials = dir.trials();
    let condition = |line: &u64| condition_of(&trials[*line as usize - 1]).into();
    lines.iter().map(condition).collect()
}

fn trials_so_far(dir: &Workdir) -> usize {
    fs::read_to_string(dir.out().join("trials.jsonl")).map_or(0, |text| text.lines().count())
}

#[test]
fn a_checkpoint_in_only_one_condition_is_reported_and_its_trials_count() {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    let keys =
        format!("blocks = 2\nduration = \"1500ms\"\naa = false\nrepeats = 0\n{}", tolerate(&[]));
    let conditions = [("a", ""), ("disturbed", "wal_writer_delay = \"150ms\"")];
    let mut running = dir.start_compare(&experiment(&dsn, &keys, "", &conditions));
    for _ in 0..2 {
        running.wait_until("disturbed", || {
            show(&dsn, "wal_writer_delay") == "150ms" && active_sessions(&dsn) > 0
        });
        let before = trials_so_far(&dir);
        connect(&dsn).batch_execute("CHECKPOINT").unwrap();
        if trials_so_far(&dir) == before {
            running.wait_until("stored", || trials_so_far(&dir) > before);
        }
    }
    running.wait().expect(0, &["checkpoint-in-one-condition"]);
    let analysis = dir.analysis();
    let found = judged(&analysis, "checkpoint-in-one-condition", "warning");
    assert_eq!(conditions_of(&dir, &found), ["disturbed", "disturbed"]);
    let conditions = analysis["conditions"].as_array().unwrap();
    let disturbed = conditions.iter().find(|c| c["name"] == "disturbed").unwrap();
    assert_eq!((&disturbed["valid"], &disturbed["invalid"]), (&2.into(), &0.into()));
    let share = &disturbed["shares"][0];
    assert_eq!((&share["what"], &share["trials"]), (&found_id(), &2.into()));
}

#[test]
fn a_table_bloated_between_trials_ends_the_run() {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let dir = Workdir::new();
    dir.pgio(&["setup", "--connect-string", &dsn, "--scale", "1024"]).expect(0, &[]);
    let text = format!(
        "[experiment]\nblocks = 3\nwarmup = \"0s\"\nduration = \"1s\"\naa = false\nburn_in = false\n{}\n\
         [target]\ndsn = {dsn:?}\n[workload]\nwork_unit = 8\n\
         [[condition]]\nname = \"a\"\n[[condition]]\nname = \"b\"\n",
        tolerate(&[])
    );
    let mut running = dir.start_compare(&text);
    // A block before it, so that each condition keeps a valid trial.
    running.wait_until("a block is stored", || trials_so_far(&dir) == 2);
    // Dead rows at the end of the table, under keys that no session asks for.
    connect(&dsn)
        .batch_execute(
            "ALTER TABLE pgio1 SET (autovacuum_enabled = off); \
             INSERT INTO pgio1 SELECT mykey + 1000000, scratch, filler FROM pgio1 WHERE mykey <= 200; \
             DELETE FROM pgio1 WHERE mykey > 1000000",
        )
        .unwrap();
    // No repeat can mend that: the first such trial is the last.
    let remedy = "start a new run with reset = \"vacuum\" (or \"reload\")";
    running.wait().expect(5, &["data-drift", remedy]);
    let found = invalid(&dir.analysis(), "data-drift");
    let last = dir.trials().len() as u64;
    assert!(found == [last] && (3..=4).contains(&last), "{found:?} of {last}");
}

/// What the sessions of a client wait for a process that is stopped is no stall of the server.
#[test]
fn a_generator_that_is_stopped_in_the_window_makes_the_trial_invalid() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    for workload in ["engine = \"client\"", ""] {
        let dir = Workdir::new();
        let keys = "blocks = 1\nduration = \"3s\"\naa = false\nburn_in = false\nrepeats = 0\n\
                    tolerate = [\"foreign-load\", \"foreign-sessions\", \"steal\"]";
        let mut running = dir.start_compare(&experiment(&dsn, keys, workload, &[("a", "")]));
        let begun = "SELECT coalesce(pg_relation_size(to_regclass('pgio_commit')), 0) > 8192";
        running.wait_until("committing", || connect(&dsn).query_one(begun, &[]).unwrap().get(0));
        running.signal(Signal::STOP);
        thread::sleep(Duration::from_millis(1500));
        running.signal(Signal::CONT);
        running.wait().expect(5, &["generator-stalled"]);
        assert!(
            failed_checks(&dir.trials()[0], "invalid").contains(&"generator-stalled".to_owned())
        );
    }
}

#[test]
fn a_single_invalid_trial_decides_the_exit_code_unless_its_check_is_tolerated() {
    let cluster = own_primary(INSTALLED);
    let dsn = cluster.primary_conninfo();
    let db = TestDatabase::at(&dsn);
    db.load(1, "8M");
    alter_system(&dsn, "fsync", Some("off"));
    wait_until("off", || show(&dsn, "fsync") == "off");
    let run = |more: &[&str]| {
        db.pgio(&[&["run", "--run-time", "200ms", "--json", "trial.json"], more].concat())
    };
    let result = run(&[]);
    assert_eq!(result.code, Some(5), "{result:?}");
    let message =
        "pgio: the trial is invalid: durability; to let it count, add --tolerate durability";
    assert!(result.err.contains(message), "{result:?}");
    // The result is complete.
    assert!(
        result.out.contains("RIOPS") && result.out.contains("INVALID: durability"),
        "{result:?}"
    );
    assert_eq!(db.record("trial.json")["outcome"]["state"], "complete");

    let result = run(&["--tolerate", "durability"]);
    assert_eq!(result.code, Some(0), "{result:?}");
    assert!(failed_checks(&db.record("trial.json"), "warning").contains(&"durability".into()));
    let result = run(&["--tolerate", "durabilty"]);
    assert_eq!(result.code, Some(2), "{result:?}");
    assert!(result.err.contains("the nearest valid one is `durability`"), "{result:?}");
}
