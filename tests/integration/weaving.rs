//! `weave`: the conditions of a block take turns in short slices of one window.

use pgio_tests::fixture::{INSTALLED, connect, fresh_database, own_primary, shared_primary};
use pgio_tests::workdir::{Workdir, condition_of, experiment, failed_checks, tolerate};

const LEVELS: &[(&str, &str)] = &[
    ("local", "synchronous_commit = \"local\""),
    ("delayed", "synchronous_commit = \"local\", commit_delay = 5000, commit_siblings = 0"),
];

fn keys(more: &str) -> String {
    let tolerate = tolerate(&["environment-changed", "environment-differs", "steal"]);
    format!("duration = \"300ms\"\nblocks = 6\nseed = 4\n{tolerate}\n{more}")
}

#[test]
fn conditions_take_turns_and_their_settings_are_proved_in_every_slice() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let keys = keys("weave = \"20ms\"").replace("blocks = 6", "blocks = 2");
    dir.compare(&experiment(&dsn, &keys, "sessions = 2", LEVELS)).expect(0, &["delayed", "−"]);
    assert_eq!(dir.manifest()["rules"]["weave_seconds"], 0.02);
    let trials = dir.trials();
    assert_eq!(trials.len(), 6, "three conditions with the twin, two blocks");
    assert!(!dir.out().join("series").exists(), "without telemetry");
    for trial in &trials {
        let condition = trial["place"]["condition"].as_str().unwrap();
        assert!(trial["telemetry"].is_null() && trial["series"].is_null(), "{trial:#}");
        let woven = &trial["woven"];
        // Fewer than the 15 of a window without stalls: a slice lasts as long as its last call.
        assert!(woven["slices"].as_u64() > Some(1), "{woven}");
        let seconds = trial["window"]["seconds"].as_f64().unwrap();
        assert!(seconds >= 0.3, "{seconds}");
        assert!(woven["window_seconds"].as_f64() > Some(3.0 * 0.3), "{woven}");
        let wanted = if condition == "delayed" { "5000" } else { "0" };
        let readings: Vec<_> = trial["evidence"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|e| e["what"] == "commit_delay (sessions, each slice)")
            .collect();
        assert!(!readings.is_empty() && readings.iter().all(|e| e["found"] == wanted), "{trial}");
        let commits = trial["metrics"]["commits_per_second"]["value"].as_f64().unwrap();
        // Two sessions that wait 5 ms each.
        assert!(condition != "delayed" || commits < 450.0, "{condition}: {commits}");
        let in_force = trial["checks"].as_array().unwrap();
        let in_force = in_force.iter().find(|c| c["id"] == "treatment-in-force").unwrap();
        assert_eq!(in_force["verdict"], "ok", "{in_force}");
        for shared in ["riops", "wal_bytes_per_second", "device_writes_per_second"] {
            assert!(trial["metrics"].get(shared).is_none(), "{shared} is that of all conditions");
        }
    }
    let slices = trials.iter().filter_map(|trial| trial["woven"]["slices"].as_u64());
    assert!(slices.max() >= Some(8), "no condition had many turns");
    let text = dir.pgio(&["report", "out", "--all"]).expect(0, &[]).out;
    assert!(text.contains("woven in slices of 20.0 ms"), "{text}");
}

#[test]
fn what_cannot_be_woven_is_refused_before_anything_is_changed() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let refused = |keys: &str, workload: &str, conditions: &[(&str, &str)], text: &str| {
        dir.write("experiment.toml", &experiment(&dsn, keys, workload, conditions));
        let compare = ["compare", "experiment.toml", "--out", "out", "--weave", "20ms"];
        dir.pgio(&compare).expect(4, &["cannot weave the conditions", text]);
        assert!(!dir.out().exists());
    };
    let blocks = "blocks = 6\nduration = \"1s\"";
    refused(blocks, "engine = \"client\"", LEVELS, "engine = \"client\"");
    refused("blocks = 6", "transactions = 100", LEVELS, "a number of transactions");
    let reloaded = &[("a", ""), ("b", "wal_writer_delay = \"100ms\"")];
    refused(blocks, "", reloaded, "condition `b` changes wal_writer_delay");
    let spread = format!("{blocks}\ncheckpoint = \"spread\"");
    dir.write("experiment.toml", &experiment(&dsn, &spread, "", LEVELS));
    let compare = ["compare", "experiment.toml", "--out", "out", "--weave", "20ms"];
    dir.pgio(&compare).expect(4, &[]);
    for wrong in ["1ms", "fast", "0s"] {
        dir.write("experiment.toml", &experiment(&dsn, blocks, "", LEVELS));
        dir.pgio(&["compare", "experiment.toml", "--weave", wrong])
            .expect(2, &["experiment.weave"]);
    }
}

#[test]
fn slices_shorter_than_a_call_are_refused_before_anything_is_stored() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    // commit_delay lasts at most 100 ms.
    let slow = "synchronous_commit = \"local\", commit_delay = 100000, commit_siblings = 0";
    let levels = [LEVELS[0], ("slow", slow)];
    let keys = keys("weave = \"10ms\"");
    let why = "a slice of 10 ms is shorter than a call, which ";
    let refused = dir.compare(&experiment(&dsn, &keys, "", &levels)).expect(4, &[why]);
    let (_, took) = refused.err.split_once(why).unwrap();
    let (took, rest) = took.split_once(" under ").unwrap();
    // Other tests on this server flush as well, which ends some of the delays early.
    if took != "did not end" {
        let milliseconds = took.strip_prefix("takes ").and_then(|t| t.strip_suffix(" ms"));
        assert!(milliseconds.unwrap().parse::<u32>().unwrap() > 10, "{took}");
    }
    assert!(rest.starts_with("`slow`; name a longer slice"), "{rest}");
    assert!(!dir.out().exists());
}

#[test]
fn reads_take_turns_although_they_never_commit() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let keys = keys("weave = \"20ms\"\naa = false").replace("blocks = 6", "blocks = 1");
    let costs = [("a", "random_page_cost = 4"), ("b", "random_page_cost = 1")];
    let setup = ["setup", "--scale", "8M", "--num-schemas", "1", "--create-base-table=FALSE"];
    dir.pgio(&[&setup[..], &["--connect-string", &dsn]].concat()).expect(0, &[]);
    let slob = "scale = \"8M\"\nupdate_pct = 0\nnum_schemas = 1\nnum_threads = 1\nwork_unit = 8";
    let text = experiment(&dsn, &keys, slob, &costs).replace("\"commit\"", "\"slob\"");
    dir.compare(&text).expect(0, &[]);
    for trial in dir.trials().iter().filter(|trial| trial["place"]["block"] != 0) {
        assert!(trial["woven"]["slices"].as_u64() > Some(1), "{trial}");
        assert!(failed_checks(trial, "warning").iter().all(|id| id != "weave-slow-calls"));
    }
    // The end of a slice commits: transactions of 100 updates would become shorter.
    let updates = slob.replace("update_pct = 0", "update_pct = 100\ncommit_every = 100");
    let text = experiment(&dsn, &keys, &updates, &costs).replace("\"commit\"", "\"slob\"");
    dir.write("updates.toml", &text);
    let refused = dir.pgio(&["compare", "updates.toml", "--out", "updates"]);
    refused.expect(4, &["cannot weave the conditions", "commit_every"]);
}

#[test]
fn auto_finds_a_length_and_keeps_it_with_its_evidence() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    // An eighth of 2 s holds twice six slices of 20 ms.
    let keys = keys("weave = \"auto\"\nmatters = \"20%\"").replace("300ms", "500ms");
    let keys = keys.replace("blocks = 6", "blocks = 4");
    dir.compare(&experiment(&dsn, &keys, "", LEVELS)).expect(0, &[]);
    let weave = dir.manifest()["weave"].clone();
    assert_eq!(weave["limit"], 0.05);
    let tried = weave["tried"].as_array().unwrap();
    assert!(!tried.is_empty(), "{weave}");
    for rung in tried {
        let answers = rung["answers"].as_array().unwrap();
        // Two of the twin, two of `delayed`, and what follows the baseline; and what the turns change, of the twin and
        // `delayed`, if enough slices follow their own settings.
        let asked = (5..=7).contains(&answers.len());
        assert!(rung["verdict"] == "too_short" || asked, "{rung}");
        let rejected = ["too_short", "contradicted"].iter().any(|v| rung["verdict"] == *v);
        assert_eq!(rejected, rung["slice_seconds"] != weave["slice_seconds"], "{rung}");
    }
    for trial in dir.trials() {
        let used = &trial["woven"]["slice_seconds"];
        assert_eq!(*used, weave["slice_seconds"], "the length found, or none");
    }
    let text = dir.pgio(&["report", "out", "--all"]).expect(0, &[]).out;
    assert!(text.contains("woven: ") || text.contains("woven in slices of "), "{text}");
    // More blocks keep the length.
    let more = dir.pgio(&["compare", "--resume", "out", "--blocks", "5"]).expect(0, &[]);
    assert!(!more.err.contains("woven"), "{}", more.err);
    assert_eq!(dir.manifest()["weave"], weave);
    let trials = dir.trials();
    assert_eq!(trials.len(), 15);
    assert_eq!(trials[14]["woven"]["slice_seconds"], weave["slice_seconds"]);
}

#[test]
fn auto_gives_each_trial_its_window_if_conditions_cannot_take_turns() {
    let dir = Workdir::new();
    let server = own_primary(INSTALLED);
    let dsn = fresh_database(&server);
    let reloaded = &[("a", ""), ("b", "wal_writer_delay = \"100ms\"")];
    let keys = keys("weave = \"auto\"").replace("blocks = 6", "blocks = 1");
    let run = dir.compare(&experiment(&dsn, &keys, "", reloaded)).expect(0, &[]);
    let why = "not woven: condition `b` changes wal_writer_delay";
    assert!(run.err.contains(why), "{}", run.err);
    assert!(dir.manifest()["weave"]["obstacle"].as_str().unwrap().contains("wal_writer_delay"));
    assert!(dir.trials().iter().all(|trial| trial.get("woven").is_none()));
}

#[test]
fn a_plan_says_that_conditions_take_turns() {
    let dir = Workdir::new();
    let dsn = "host=/nowhere dbname=x";
    dir.write("experiment.toml", &experiment(dsn, "weave = \"50ms\"", "", LEVELS));
    let plan = ["compare", "experiment.toml", "--plan", "--offline"];
    dir.pgio(&plan).expect(0, &["take turns in slices of about 50ms"]);
    dir.pgio(&[&plan[..], &["--weave", "false"]].concat()).expect(0, &[]);
    let auto = dir.pgio(&[&plan[..], &["--weave", "auto"]].concat());
    auto.expect(0, &["if they can and the slices agree", "slices are calibrated"]);
}

#[test]
fn calls_that_become_slow_after_the_first_block_are_reported() {
    let dir = Workdir::new();
    // On a shared server the commits of other tests flush these as well.
    let cluster = own_primary(INSTALLED);
    let dsn = fresh_database(&cluster);
    let keys = keys("weave = \"20ms\"\naa = false").replace("300ms", "100ms");
    let levels =
        [("local", "synchronous_commit = \"local\""), ("off", "synchronous_commit = \"off\"")];
    let mut running = dir.start_compare(&experiment(&dsn, &keys, "", &levels));
    running.wait_until("block 1 stored", || {
        std::fs::read_to_string(dir.out().join("trials.jsonl"))
            .is_ok_and(|t| t.lines().count() >= 2)
    });
    // Sessions of the next block begin with it.
    connect(&dsn)
        .batch_execute(
            "DO $$ BEGIN
                 EXECUTE format('ALTER DATABASE %I SET commit_delay = 100000', current_database());
                 EXECUTE format('ALTER DATABASE %I SET commit_siblings = 0', current_database());
             END $$",
        )
        .unwrap();
    running.wait().expect(0, &["weave-slow-calls"]);
    let slow: Vec<(u64, bool)> = dir
        .trials()
        .iter()
        .filter(|trial| condition_of(trial) == "local")
        .map(|trial| {
            let block = trial["place"]["block"].as_u64().unwrap();
            (block, failed_checks(trial, "warning").contains(&"weave-slow-calls".to_owned()))
        })
        .collect();
    assert_eq!((slow[0], slow.last()), ((1, false), Some(&(6, true))), "{slow:?}");
}
