//! Each command, each workload and what an ordinary machine lets be changed, once, on one server.
//!
//! These tests are for people who meet pgio for the first time: they take a minute, need no rights and no further
//! programs, and name what they leave out. What must hold in every detail is tested on real servers in `tests/`.

#![allow(clippy::unwrap_used)]
// A program without all features leaves some tests out.
#![cfg_attr(not(feature = "all"), allow(dead_code, unused_imports))]

use std::fs;

use pgio_tests::command::TestDatabase;
use pgio_tests::fixture::{
    INSTALLED, connect, fresh_database, is_installed, own_primary, shared_primary,
};
use pgio_tests::workdir::{
    SAMPLED, Workdir, active_sessions, auto_conf, condition_of, experiment, experiment_on, metric,
    pgio_sessions, show, tolerate, wait_until,
};
use rustix::process::Signal;
use serde_json::Value;

/// One block of short windows.
const SHORT: &str = "blocks = 1\nduration = \"200ms\"\naa = false";
const LOCAL_AND_OFF: [(&str, &str); 2] =
    [("local", "synchronous_commit = \"local\""), ("off", "synchronous_commit = \"off\"")];

fn database() -> String {
    fresh_database(shared_primary(INSTALLED))
}

/// Runs an experiment that must succeed; every trial must be complete and its conditions proved.
fn compare(text: &str) -> Workdir {
    let dir = Workdir::new();
    dir.compare(text).expect(0, &[]);
    for trial in dir.trials() {
        assert_eq!(trial["outcome"]["state"], "complete", "{trial:#}");
    }
    dir
}

// The commands.

#[test]
fn setup_loads_run_measures_and_destroy_removes() {
    let db = TestDatabase::new(INSTALLED);
    db.load(2, "1024");
    assert_eq!(db.client().query("SELECT FROM pgio2", &[]).unwrap().len(), 1024);
    let run =
        ["run", "--run-time", "1", "--num-schemas", "2", "--scale", "1024", "--num-threads", "1"];
    let printed = db.succeed(&run).out;
    assert!(printed.contains("RIOPS >") && printed.contains("CACHE_HITS/s >"), "{printed}");
    db.succeed(&["destroy", "--yes"]);
    assert_eq!(db.relations(), "");
}

#[test]
fn doctor_names_what_is_missing() {
    let dsn = database();
    let advice = ["data-set", "pgio setup"];
    Workdir::new().pgio(&["doctor", "--connect-string", &dsn]).expect(4, &advice);
}

#[test]
fn a_plan_changes_nothing() {
    let (dir, dsn) = (Workdir::new(), database());
    dir.write("e.toml", &experiment(&dsn, SHORT, "", &LOCAL_AND_OFF));
    dir.pgio(&["compare", "e.toml", "--plan"]).expect(0, &["local", "off"]);
    assert!(!dir.out().exists());
    let sql = "SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    assert_eq!(connect(&dsn).query(sql, &[]).unwrap().len(), 0);
}

#[test]
fn results_are_reported_in_every_format_stored_and_followed_over_runs() {
    let dsn = database();
    let keys = SHORT.replace("blocks = 1", "blocks = 4");
    let dir = compare(&experiment(&dsn, &keys, "", &LOCAL_AND_OFF));
    for (format, text) in [
        ("text", "off"),
        ("html", "<html"),
        ("json", "pgio.analysis/1"),
        ("csv", ","),
        ("markdown", "|"),
    ] {
        dir.pgio(&["report", "out", "--format", format]).expect(0, &[text]);
    }
    assert!(fs::read_to_string(dir.out().join("report.html")).unwrap().contains("</html>"));
    dir.pgio(&["plan", "experiment.toml", "--pilot", "out", "--matters", "5%"])
        .expect(0, &["blocks"]);
    if cfg!(all(feature = "runs", feature = "store")) {
        dir.pgio(&["store", "out", "--to", &dsn]).expect(0, &["stored 1 new experiment"]);
        dir.pgio(&["history", "--store", &dsn]).expect(0, &["1 run"]);
    }
}

#[test]
fn an_experiment_that_is_stopped_leaves_nothing_and_is_resumed() {
    let (dir, dsn) = (Workdir::new(), database());
    let keys = "blocks = 3\nduration = \"500ms\"\naa = false";
    let mut running = dir.start_compare(&experiment(&dsn, keys, "", &LOCAL_AND_OFF));
    running.wait_until("in the window", || active_sessions(&dsn) > 0);
    running.signal(Signal::INT);
    running.wait().expect(130, &["--resume"]);
    assert_eq!((dir.journals().len(), pgio_sessions(&dsn)), (0, 0));
    dir.pgio(&["compare", "--resume", "out"]).expect(0, &[]);
    let complete = dir.trials().iter().filter(|t| t["outcome"]["state"] == "complete").count();
    assert_eq!(complete, 6);
}

#[test]
fn what_a_killed_pgio_changed_is_undone() {
    let server = own_primary(INSTALLED);
    let (dir, dsn) = (Workdir::new(), server.primary_conninfo());
    let before = show(&dsn, "wal_writer_delay");
    let changed = [("set", "wal_writer_delay = \"150ms\"")];
    let keys = SHORT.replace("200ms", "60s");
    let mut running = dir.start_compare(&experiment(&dsn, &keys, "", &changed));
    running.wait_until("in the window", || active_sessions(&dsn) > 0);
    running.kill();
    assert_eq!(show(&dsn, "wal_writer_delay"), "150ms");
    dir.pgio(&["undo"]).expect(0, &["wal_writer_delay"]);
    wait_until("as before", || show(&dsn, "wal_writer_delay") == before);
    assert_eq!(auto_conf(&dsn, "wal_writer_delay"), None);
    let nothing = dir.nothing_to_undo();
    dir.pgio(&["undo"]).expect(0, &[&nothing]);
}

#[test]
#[cfg(feature = "device")]
fn a_device_is_measured() {
    if !is_installed("fio") {
        return;
    }
    let (dir, place) = (Workdir::new(), tempfile::tempdir_in("/var/tmp").unwrap());
    let at = place.path().to_str().unwrap();
    let quick = ["device", at, "--size", "8M", "--duration", "100ms", "--rounds", "1"];
    dir.pgio(&quick).expect(0, &["random reads, depth 1"]);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
#[cfg(feature = "memory")]
fn without_a_ballast_there_is_none_to_release() {
    Workdir::new().pgio(&["ballast", "--release"]).expect(0, &["No ballast is held."]);
}

#[test]
fn examples_are_listed_and_printed() {
    let dir = Workdir::new();
    let listed = dir.pgio(&["example"]).expect(0, &["sync-commit"]).out;
    for line in listed.lines() {
        let name = line.split_whitespace().next().unwrap();
        assert!(dir.pgio(&["example", name]).expect(0, &[]).out.len() > 100, "{name}");
    }
}

#[test]
fn a_mistyped_key_is_refused_with_its_line_and_the_nearest_one() {
    let dir = Workdir::new();
    let text = experiment("host=/nowhere", "blokcs = 6", "", &LOCAL_AND_OFF);
    dir.compare(&text).expect(2, &["experiment.toml:4", "blokcs", "blocks"]);
}

// The workloads.

#[test]
fn the_client_drives_reads_and_updates() {
    let db = TestDatabase::new(INSTALLED);
    db.load(1, "1024");
    let work = ["--run-time", "1", "--num-schemas", "1", "--scale", "1024", "--update-pct", "50"];
    let client = ["--engine", "client", "--work-unit", "4"];
    let trial = db.trial(&[&work[..], &client].concat());
    assert!(metric(&trial, "commits_per_second") > 0.0 && db.scratch(1) > 0);
}

#[test]
fn commits_are_counted_as_the_server_counts_them() {
    let dsn = database();
    let dir = compare(&experiment(&dsn, SHORT, "sessions = 2", &LOCAL_AND_OFF));
    let trials = dir.trials();
    assert_eq!(trials.iter().map(condition_of).filter(|name| *name == "off").count(), 1);
    for trial in &trials {
        let committed = trial["database"]["xact_commit"].as_f64();
        let seconds = trial["window"]["seconds"].as_f64().unwrap();
        let counted = metric(trial, "commits_per_second") * seconds;
        assert!(committed.is_none_or(|server| server >= counted * 0.9), "{trial:#}");
    }
}

#[test]
fn any_program_is_a_workload() {
    let dsn = database();
    let work = "run = [\"sh\", \"-c\", \"sleep {seconds}; echo tps = 42\"]\nrun_time = \"1s\"\n\
                [[workload.metric]]\nname = \"tps\"\nunit = \"1/s\"\nbetter = \"higher\"\n\
                regex = 'tps = (\\d+)'";
    let text = experiment(&dsn, SHORT, work, &[("one", ""), ("other", "")])
        .replace("kind = \"commit\"", "kind = \"command\"")
        .replace("aa = false", "aa = false\nprimary = \"tps\"")
        .replace("duration = \"200ms\"\n", "");
    let dir = compare(&text);
    assert!(dir.trials().iter().all(|trial| (metric(trial, "tps") - 42.0).abs() < 1e-9));
}

#[test]
#[cfg(feature = "drivers")]
fn drivers_share_the_sessions() {
    let (dir, dsn) = (Workdir::new(), database());
    let tolerated = tolerate(&["participants-apart", "environment-changed", "environment-differs"]);
    let keys = format!("{SHORT}\n{tolerated}");
    dir.write(
        "e.toml",
        &experiment(&dsn, &keys, "engine = \"client\"\nsessions = 3", &[("a", "")]),
    );
    dir.pgio(&["compare", "e.toml", "--out", "out", "--drivers", "local:2"]).expect(0, &[]);
    assert_eq!(dir.trials()[0]["drivers"].as_array().unwrap().len(), 2);
}

// Conditions, and how they are compared.

#[test]
fn a_setting_is_in_force_in_its_trials_alone() {
    let dsn = database();
    let dir = compare(&experiment(&dsn, SHORT, "", &LOCAL_AND_OFF));
    for trial in dir.trials() {
        let wanted = condition_of(&trial);
        let evidence = trial["evidence"].as_array().unwrap().iter();
        let of_it: Vec<&Value> = evidence
            .filter(|e| e["what"].as_str().unwrap().starts_with("synchronous_commit"))
            .collect();
        assert!(!of_it.is_empty() && of_it.iter().all(|e| e["found"] == wanted), "{trial:#}");
    }
}

#[test]
#[cfg(feature = "shell")]
fn a_command_is_applied_verified_and_undone() {
    let (server, place) = (own_primary(INSTALLED), tempfile::tempdir().unwrap());
    let dsn = fresh_database(&server);
    let flag = place.path().join("flag");
    let keys = format!("{SHORT}\n{SAMPLED}");
    let text = experiment(&dsn, &keys, "", &[("plain", ""), ("flagged", "")])
        + &format!(
            "command = {{ name = \"flag\", apply = [\"touch\", {flag:?}], verify = [\"test\", \"-e\", \
             {flag:?}], undo = [\"rm\", {flag:?}] }}\n"
        );
    let dir = compare(&text);
    let flagged = dir.trials().into_iter().find(|t| condition_of(t) == "flagged").unwrap();
    assert!(flagged["evidence"].to_string().contains("flag"), "{flagged:#}");
    assert!(!flag.exists());
}

#[test]
#[cfg(feature = "link")]
fn a_private_pair_pays_for_a_slow_link_to_its_standby() {
    let keys = format!("{SHORT}\nreset = \"checkpoint\"");
    let text = experiment_on(
        "private = true\nstandby = true",
        &keys,
        "sessions = 1",
        &[("near", ""), ("far", "")],
    ) + "link = { relay = true, delay = \"20ms\" }\n";
    let dir = compare(&text);
    let rate = |name: &str| {
        let trials = dir.trials();
        metric(trials.iter().find(|t| condition_of(t) == name).unwrap(), "commits_per_second")
    };
    assert!(rate("far") < 50.0 && rate("near") > rate("far"), "{} {}", rate("near"), rate("far"));
    assert_eq!(dir.cluster_notes(), 0);
}

#[test]
#[cfg(feature = "sweep")]
fn a_sweep_runs_every_point() {
    let dir = compare(&experiment(&database(), SHORT, "sessions = [1, 2]", &LOCAL_AND_OFF));
    let points = dir.trials().into_iter().map(|trial| trial["place"]["point"]["sessions"].clone());
    assert_eq!(points.filter(|sessions| *sessions == 2).count(), 2);
    dir.pgio(&["report", "out", "--all"]).expect(0, &["Along sessions"]);
}

#[test]
fn conditions_are_woven_in_short_slices() {
    let keys = format!("{SHORT}\nweave = \"20ms\"");
    let dir = compare(&experiment(&database(), &keys, "", &LOCAL_AND_OFF));
    assert!(dir.trials().iter().all(|trial| trial["woven"]["slices"].as_u64() > Some(1)));
}

#[test]
#[cfg(feature = "screening")]
fn factors_are_screened() {
    let text = format!(
        "[experiment]\nblocks = 2\nduration = '200ms'\nwarmup = '0s'\n{}\n[target]\ndsn = {:?}\n\
         [workload]\nkind = 'commit'\nsessions = 1\n\
         [[factor]]\nname = 'sync'\nsetting = ['local', 'off']\n\
         [[factor]]\nname = 'geqo'\nsetting = ['on', 'off']\n",
        tolerate(&["environment-changed", "environment-differs"]),
        database()
    )
    .replace("name = 'sync'\nsetting", "name = 'synchronous_commit'\nsetting");
    let dir = compare(&text);
    dir.pgio(&["report", "out"]).expect(0, &["synchronous_commit"]);
}

#[test]
fn a_gate_fails_by_its_exit_code() {
    let (dir, dsn) = (Workdir::new(), database());
    let conditions = [("quick", ""), ("slow", "commit_delay = 20000, commit_siblings = 0")];
    let keys = "blocks = 6\nduration = \"200ms\"\naa = false";
    dir.write("e.toml", &experiment(&dsn, keys, "sessions = 1", &conditions));
    let compare = ["compare", "e.toml", "--out", "out", "--matters", "5%", "--gate"];
    dir.pgio(&compare).expect(8, &["gate failed", "slow"]);
}

#[test]
#[cfg(feature = "background")]
fn work_runs_beside_the_judged_one() {
    let server = shared_primary(INSTALLED);
    let (judged, other) = (fresh_database(server), fresh_database(server));
    let text = format!(
        "[experiment]\n{}\nwarmup = \"0s\"\n{}\n[targets.judged]\ndsn = {judged:?}\n\
         [targets.other]\ndsn = {other:?}\n[workload]\nkind = \"commit\"\n\
         [[condition]]\nname = \"alone\"\ntarget = \"judged\"\n\
         [[condition]]\nname = \"beside\"\ntarget = \"judged\"\n\
         [[background]]\nname = \"inserts\"\ntarget = \"other\"\nconditions = [\"beside\"]\n\
         kind = \"commit\"\nsessions = 1\n",
        SHORT.replace("200ms", "1s"),
        tolerate(&["environment-changed", "environment-differs"])
    );
    let dir = compare(&text);
    let beside = dir.trials().into_iter().find(|t| condition_of(t) == "beside").unwrap();
    assert!(beside["background"]["inserts"]["value"].as_f64() > Some(0.0), "{beside:#}");
    assert_eq!(
        connect(&other)
            .query("SELECT FROM pg_class WHERE relname LIKE 'pgio%'", &[])
            .unwrap()
            .len(),
        0
    );
}
