//! Checkpoints: which a window meets by `checkpoint =`, the share of full-page images, and those that a
//! condition's own settings bring about.

use std::thread;
use std::time::Duration;

use pgio::pg::private::PrivateCluster;
use serde_json::Value;

use pgio_tests::fixture::{INSTALLED, connect, spec_with};
use pgio_tests::workdir::{
    Workdir, active_sessions, condition_of, failed_checks, metric, tolerate, wait_until,
};

fn cluster(settings: &[(&str, &str)]) -> (PrivateCluster, Workdir) {
    let cluster = PrivateCluster::start(&spec_with(INSTALLED, settings)).unwrap();
    let dir = Workdir::new();
    let dsn = cluster.primary_conninfo();
    let setup = ["setup", "--connect-string", &dsn, "--scale", "1024", "--num-schemas", "1"];
    dir.pgio(&[&setup[..], &["--create-base-table=FALSE"]].concat()).expect(0, &[]);
    (cluster, dir)
}

/// Every update changes a page of its own, which is logged whole once in each checkpoint cycle.
fn updates(dsn: &str, keys: &str, conditions: &str) -> String {
    format!(
        "[experiment]\nblocks = 1\nwarmup = \"0s\"\naa = false\nburn_in = false\nrepeats = 0\n\
         telemetry = \"0\"\n{}\n{keys}\n[target]\ndsn = {dsn:?}\n[workload]\nkind = \"slob\"\n\
         num_threads = 1\nnum_schemas = 1\nwork_unit = 8\nupdate_pct = 100\nupdate_work_unit = 8\n{conditions}",
        tolerate(&["data-drift"])
    )
}

const ONE: &str = "[[condition]]\nname = \"a\"\n";

fn number(dsn: &str, sql: &str) -> i64 {
    connect(dsn).query_one(sql, &[]).unwrap().get(0)
}

#[test]
fn checkpoint_none_issues_no_checkpoint_before_a_trial() {
    let (cluster, dir) = cluster(&[]);
    let dsn = cluster.primary_conninfo();
    let requested = "SELECT checkpoints_req FROM pg_stat_bgwriter";
    for (mode, issued) in [("none", 0), ("before", 1)] {
        let _ = std::fs::remove_dir_all(dir.out());
        let keys = format!("duration = \"500ms\"\ncheckpoint = {mode:?}");
        let before = number(&dsn, requested);
        dir.compare(&updates(&dsn, &keys, ONE)).expect(0, &[]);
        assert_eq!(number(&dsn, requested) - before, issued, "{mode}");
        assert_eq!(dir.manifest()["rules"]["checkpoint"], mode);
    }
    // All that was changed for the first time after the CHECKPOINT is in the WAL as a whole page.
    let share = metric(&dir.trials()[0], "wal_fpi_share");
    assert!((0.2..=1.0).contains(&share), "{share}");
    dir.pgio(&["report", "out"]).expect(0, &[]);
}

/// A checkpoint spread over minutes that begins inside the window, as one of the server's timer would.
#[test]
fn a_checkpoint_that_is_not_complete_at_the_end_is_counted() {
    let (cluster, dir) = cluster(&[("checkpoint_timeout", "5min"), ("max_wal_size", "8GB")]);
    let dsn = cluster.primary_conninfo();
    let rests = "think_pct = 100\nthink_min = \"1ms\"\nthink_max = \"1ms\"\nupdate_pct";
    let started = "SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter";
    let complete = "SELECT (checkpoint_lsn - '0/0')::int8 FROM pg_control_checkpoint()";
    let earlier = number(&dsn, started);
    connect(&dsn).batch_execute("CHECKPOINT").unwrap();
    wait_until("it is counted", || number(&dsn, started) > earlier);
    let before = (number(&dsn, started), number(&dsn, complete));
    let logged = "SELECT (pg_current_wal_lsn() - '0/0')::int8";
    let logged_before = number(&dsn, logged);
    let text = updates(&dsn, "duration = \"5s\"\ncheckpoint = \"none\"", ONE);
    let mut running = dir.start_compare(&text.replace("update_pct", rests));
    running.wait_until("in the window", || active_sessions(&dsn) == 1);
    // A checkpoint of one changed page has nothing to spread: it would be complete at once.
    running
        .wait_until("many pages are changed", || number(&dsn, logged) > logged_before + (1 << 20));
    let mut backup = connect(&dsn);
    // It would wait until the checkpoint is complete.
    thread::spawn(move || backup.execute("SELECT pg_backup_start('spread', fast => false)", &[]));
    running.wait().expect(0, &[]);
    let after = (number(&dsn, started), number(&dsn, complete));
    assert_eq!((after.0 - before.0, after.1), (1, before.1), "begun and not complete");
    let trial = &dir.trials()[0];
    assert_eq!(metric(trial, "checkpoints"), 1.0);
    assert!(failed_checks(trial, "warning").contains(&"checkpoints".to_owned()), "{trial:#}");
}

#[test]
fn spread_windows_hold_whole_cycles_or_are_refused() {
    let (cluster, dir) = cluster(&[("checkpoint_timeout", "30s"), ("max_wal_size", "8GB")]);
    let dsn = cluster.primary_conninfo();
    // Half a minute of updates as fast as they can be would take a processor from the other tests.
    let updates = |dsn: &str, keys: &str, conditions: &str| {
        let rests = "think_pct = 100\nthink_min = \"1ms\"\nthink_max = \"1ms\"\nupdate_pct";
        updates(dsn, keys, conditions).replace("update_pct", rests)
    };
    let refused = |keys: &str, conditions: &str, texts: &[&str]| {
        let keys = format!("{keys}\ncheckpoint = \"spread\"");
        dir.compare(&updates(&dsn, &keys, conditions)).expect(4, texts);
        assert!(!dir.out().exists());
    };
    let needs = "needs windows of whole checkpoint cycles";
    refused("duration = \"10s\"", ONE, &[needs, "condition `a`", "make duration 30 s"]);
    refused("duration = \"45s\"", ONE, &[needs, "make duration 60 s"]);
    let longer = "[[condition]]\nname = \"a\"\n[[condition]]\nname = \"longer\"\n\
                  postgres = { checkpoint_timeout = \"1min\" }\n";
    refused("duration = \"30s\"", longer, &["condition `longer`", "checkpoint_timeout 60 s"]);
    let calls = updates(&dsn, "checkpoint = \"spread\"", ONE)
        .replace("update_pct = 100", "update_pct = 100\nwork_loop = 9");
    dir.compare(&calls).expect(4, &["windows of fixed duration"]);

    let keys = "duration = \"2s\"";
    dir.compare(&updates(&dsn, keys, ONE)).expect(0, &[]);
    let images = |trial: &Value| {
        metric(trial, "wal_full_page_images")
            / (metric(trial, "updates_per_second") * trial["window"]["seconds"].as_f64().unwrap())
    };
    let short = images(&dir.trials()[0]);
    std::fs::remove_dir_all(dir.out()).unwrap();
    // pgio's CHECKPOINT comes before the warm-up, and the server's own 30 s after it: inside the window.
    let keys = "duration = \"30s\"\ncheckpoint = \"spread\"\nwarmup = \"2s\"";
    let text = updates(&dsn, keys, ONE).replacen("warmup = \"0s\"\n", "", 1);
    dir.compare(&text).expect(0, &[]);
    let trial = &dir.trials()[0];
    let checks = trial["checks"].as_array().unwrap();
    let check = checks.iter().find(|c| c["id"] == "checkpoints").unwrap();
    assert_eq!(check["verdict"], "ok", "{check}");
    assert_eq!(check["message"], "whole checkpoint cycles inside the window: 1");
    let whole = images(trial);
    assert!(whole < short, "images an update: {whole} over a cycle, {short} at its beginning");
}

#[test]
fn checkpoints_that_a_condition_brings_about_are_its_effect() {
    let (cluster, dir) = cluster(&[("max_wal_size", "4GB"), ("wal_compression", "off")]);
    let conditions = "[[condition]]\nname = \"large\"\n[[condition]]\nname = \"large again\"\n\
                      [[condition]]\nname = \"small\"\n\
                      postgres = { max_wal_size = \"32MB\", min_wal_size = \"32MB\" }\n";
    let keys = "duration = \"1200ms\"";
    let text =
        updates(&cluster.primary_conninfo(), keys, conditions).replace("blocks = 1", "blocks = 2");
    let mut running = dir.start_compare(&text);
    // The smaller limit requests a checkpoint with each full segment. A switch fills one without the
    // server having to generate 16 MB of records, so a slow machine needs only write them.
    let mut writer = connect(&cluster.primary_conninfo());
    while running.is_running() {
        let record = "SELECT pg_logical_emit_message(false, 'test', 'x')";
        writer.query_one(record, &[]).unwrap();
        writer.query_one("SELECT pg_switch_wal()::text", &[]).unwrap();
        thread::sleep(Duration::from_millis(300));
    }
    running.wait().expect(0, &[]);
    let small = |t: &&Value| condition_of(t) == "small";
    let trials = dir.trials();
    assert!(trials.iter().filter(small).any(|t| metric(t, "checkpoints") > 0.0), "too little WAL");
    for trial in &trials {
        assert_eq!(failed_checks(trial, "invalid"), [""; 0], "{trial:#}");
    }
    let analysis = dir.analysis();
    let found = analysis["checks"].as_array().unwrap().iter();
    let found: Vec<_> = found.filter(|c| c["id"] == "checkpoint-in-one-condition").collect();
    assert!(!found.is_empty());
    for check in found {
        assert_eq!((&check["verdict"], &check["condition"]), (&"warning".into(), &"small".into()));
        assert!(check["message"].as_str().unwrap().contains("differ in m"), "{check}");
    }
    let compared = analysis["comparisons"].as_array().unwrap();
    assert!(compared.iter().filter(|c| c["primary"] == true).all(|c| c["blocks"] == 2));
}
