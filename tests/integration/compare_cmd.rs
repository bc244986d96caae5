//! `pgio compare` and `report`: what they promise, what they refuse.

mod commit;
mod evidence;
mod files;
mod loop_rules;
mod planning;
mod progress;
mod reset;
mod resume;
mod streams;
mod treatments;
mod workloads;

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use pgio_tests::fixture::{INSTALLED, NEWEST, fresh_database, shared_primary};
use pgio_tests::workdir::{Workdir, auto_conf, condition_of, experiment, experiment_on};

const SHORT: &str = "blocks = 2\nduration = \"200ms\"\nseed = 42";

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Conditions in the order in which they were run.
fn order(trials: &[Value]) -> Vec<String> {
    trials.iter().map(|t| condition_of(t).to_owned()).collect()
}

/// The same from what --plan prints.
fn planned(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.trim_start().starts_with("block "));
    lines.map(|line| line.split_once(": ").unwrap().1.to_owned()).collect()
}

#[test]
fn an_experiment_stores_what_is_documented() {
    for major in [INSTALLED, NEWEST] {
        let dir = Workdir::new();
        let dsn = fresh_database(shared_primary(major));
        // So many, since a window of 200 ms may hold none on a busy machine.
        let text = experiment(
            &dsn,
            SHORT,
            "transactions = 100",
            &[
                ("lazy", "synchronous_commit = \"off\""),
                ("delay", "commit_delay = 1000, commit_siblings = 0"),
                ("as it is", ""),
                ("lazy too", "synchronous_commit = false"),
            ],
        );
        let result = dir.compare(&text).expect(0, &["lazy (A/A)", "as it is", "Results: out"]);
        assert!(!result.out.contains("pgio:"), "only results on stdout: {result}");

        assert_eq!(fs::read_to_string(dir.out().join("experiment.toml")).unwrap(), text);
        let manifest = dir.manifest();
        assert_eq!(manifest["schema"], "pgio.manifest/1");
        assert_eq!(manifest["seed"], 42);
        assert_eq!(manifest["baseline"], "lazy");
        assert_eq!(manifest["aa"], "lazy (A/A)");
        assert_eq!(manifest["primary_metric"], "commits_per_second");
        let treatments = json!(["commit_delay = 1000", "commit_siblings = 0"]);
        let delay =
            manifest["conditions"].as_array().unwrap().iter().find(|c| c["name"] == "delay");
        assert_eq!(delay.unwrap()["treatments"], treatments);
        let environment = &manifest["environment"];
        assert!(environment["server_version"].as_str().unwrap().starts_with(&major.to_string()));
        // A setting of the server, not of our connection.
        assert_eq!(environment["setting.synchronous_commit"], "on");

        let trials = dir.trials();
        assert_eq!(trials.len(), 10, "{result}");
        for trial in &trials {
            assert_eq!(trial["schema"], "pgio.trial/1");
            assert_eq!(trial["outcome"]["state"], "complete");
            let settings = &trial["settings"];
            let (commit, delay) = match condition_of(trial) {
                "delay" => ("on", json!("1000")),
                "as it is" => ("on", Value::Null),
                _ => ("off", Value::Null),
            };
            assert_eq!(settings["synchronous_commit"], commit, "{}", condition_of(trial));
            assert_eq!(settings["commit_delay"], delay);
            assert_eq!(settings["statement_timeout"], "0");
            let value = trial["metrics"]["commits_per_second"]["value"].as_f64().unwrap();
            assert!(value > 0.0);
        }
        for block in trials.chunks(5) {
            let names: BTreeSet<&str> = block.iter().map(condition_of).collect();
            assert_eq!(names.len(), 5, "every condition once in each block: {names:?}");
        }
        if major == INSTALLED {
            check_analysis(&dir.analysis());
        }
        assert!(dir.journals().is_empty());
    }
}

fn check_analysis(analysis: &Value) {
    let promised = ["schema", "baseline", "primary_metric", "conditions", "comparisons"];
    let promised = promised.into_iter().chain(["noise_floor", "checks"]);
    assert!(promised.clone().all(|key| keys(analysis).contains(key)));
    assert_eq!(analysis["schema"], "pgio.analysis/1");
    for condition in analysis["conditions"].as_array().unwrap() {
        assert_eq!(condition["trials"], 2);
        assert_eq!(condition["invalid"], 0, "{analysis}");
        let metric = &condition["metrics"]["commits_per_second"];
        assert!(metric["value"].as_f64().unwrap() > 0.0);
        assert_eq!(metric["unit"], "commits/s");
    }
    let comparisons = analysis["comparisons"].as_array().unwrap();
    let expected = BTreeSet::from([
        "condition",
        "metric",
        "primary",
        "judged",
        "explains",
        "baseline_value",
        "value",
        "ratio",
        "low",
        "high",
        "difference",
        "difference_low",
        "difference_high",
        "totals",
        "p",
        "p_adjusted",
        "verdict",
        "blocks",
        "blocks_needed",
        "margin",
        "decision",
        "gate",
        "decision_blocks",
        "within_low",
        "within_high",
        "warnings",
    ]);
    let verdicts = [
        "slower",
        "faster",
        "higher",
        "lower",
        "no_difference",
        "too_few_blocks",
        "not_applicable",
    ];
    for comparison in comparisons {
        assert_eq!(keys(comparison), expected);
        assert!(verdicts.contains(&comparison["verdict"].as_str().unwrap()));
    }
    let primary: Vec<&Value> = comparisons.iter().filter(|c| c["primary"] == true).collect();
    assert_eq!(primary.len(), 4, "all but the baseline");
    for comparison in primary {
        assert_eq!(comparison["metric"], "commits_per_second");
        assert_eq!(comparison["verdict"], "too_few_blocks");
        assert_eq!(comparison["blocks"], 2);
    }
    let floor = &analysis["noise_floor"]["commits_per_second"];
    let fields = BTreeSet::from([
        "ratio",
        "low",
        "high",
        "minimum_detectable_effect",
        "minimum_detectable_effect_at_most",
    ]);
    assert_eq!(keys(floor), fields);
    for check in analysis["checks"].as_array().unwrap() {
        let fields = ["id", "verdict", "condition", "trial", "message", "remedy"];
        assert_eq!(keys(check), BTreeSet::from(fields));
    }
}

#[test]
fn the_recorded_seed_reproduces_the_order_of_trials() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let keys = "blocks = 4\nduration = \"100ms\"\naa = false\nbaseline = \"b\"";
    let conditions = [("a", ""), ("b", ""), ("c", "")];
    dir.compare(&experiment(&dsn, keys, "", &conditions)).expect(0, &[]);
    let manifest = dir.manifest();
    assert_eq!((&manifest["baseline"], &manifest["aa"]), (&json!("b"), &Value::Null));
    let seeded = format!("{keys}\nseed = {}", manifest["seed"]);
    dir.write("again.toml", &experiment(&dsn, &seeded, "", &conditions));
    let plan = dir.pgio(&["compare", "again.toml", "--plan", "--order"]).expect(0, &[]);
    assert_eq!(planned(&plan.out), order(&dir.trials()));
    // There are some hundred orders, so another seed may draw the same; three others do not.
    let differs = |seed: u32| {
        let text = experiment(&dsn, &format!("{keys}\nseed = {seed}"), "", &conditions);
        dir.write("other.toml", &text);
        let plan = dir.pgio(&["compare", "other.toml", "--plan", "--order"]).expect(0, &[]);
        planned(&plan.out) != order(&dir.trials())
    };
    assert!((1..=3).any(differs));
}

#[test]
fn a_plan_names_every_trial_and_touches_nothing() {
    let dir = Workdir::new();
    let dsn = "host=/nonexistent port=1 dbname=nowhere password=geheim";
    let conditions = [("a", ""), ("b", "wal_writer_delay = \"1s\", autovacuum = false")];
    dir.write("e.toml", &experiment(dsn, "blocks = 3\nduration = \"10s\"", "", &conditions));
    let result = dir.pgio(&["compare", "e.toml", "--plan", "--offline", "--order"]).expect(
        0,
        &[
            "Not checked because of --offline",
            "a changes nothing",
            "wal_writer_delay = 1s",
            "autovacuum = off",
            "a (A/A)",
        ],
    );
    assert_eq!(planned(&result.out).len(), 9);
    assert!(!result.out.contains("geheim"));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "only the file and the test's two streams: {left:?}");
    dir.pgio(&["compare", "e.toml", "--plan"]).expect(3, &["/nonexistent"]);
    dir.pgio(&["compare", "e.toml"]).expect(3, &["/nonexistent"]);
    assert!(!dir.path().join("pgio-results").exists());
    // What a private server is built with endangers the data as well.
    let target = "private = true\npostgres = { fsync = \"off\" }";
    let safe = [("a", ""), ("b", "fsync = \"on\"")];
    dir.write("e.toml", &experiment_on(target, "blocks = 3", "", &safe));
    let out = dir.pgio(&["compare", "e.toml", "--plan", "--offline"]).expect(0, &[]).out;
    assert!(out.contains("a is unsafe: a power cut can corrupt the cluster"), "{out}");
    assert!(!out.contains("b is unsafe"), "{out}");
}

#[test]
fn an_error_in_a_treatment_names_the_file() {
    let dir = Workdir::new();
    let text = experiment("dbname=nowhere", "", "", &[("a", "")])
        + "throttle = { device = \"/dev/vda\", write_ops = 500 }\n";
    dir.write("e.toml", &text);
    dir.pgio(&["compare", "e.toml", "--plan"])
        .expect(2, &["e.toml: line ", "throttle.write_ops", "`write_iops`"]);
}

#[test]
fn an_invalid_treatment_is_refused_before_anything_changes() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let cases = [
        (
            "shared_buffers = \"64MB\"",
            &["shared_buffers requires a restart", "control = \"pg_ctl\""][..],
        ),
        (
            "syncronous_commit = \"local\"",
            &["`syncronous_commit`", "nearest one is `synchronous_commit`"],
        ),
        ("block_size = 8192", &["block_size is fixed"]),
        ("synchronous_commit = \"banana\"", &["synchronous_commit", "banana"]),
        ("commit_delay = \"1MB\"", &["commit_delay", "1MB"]),
        ("checkpoint_completion_target = 7", &["checkpoint_completion_target", "7", "0 to 1"]),
        ("wal_writer_delay = \"ten\"", &["wal_writer_delay", "ten"]),
        ("wal_writer_delay = \"1GB\"", &["wal_writer_delay", "1GB"]),
        ("autovacuum = \"perhaps\"", &["autovacuum", "perhaps"]),
        ("wal_sync_method = \"prayer\"", &["wal_sync_method", "prayer", "fdatasync"]),
    ];
    for (body, texts) in cases {
        let dir = Workdir::new();
        // In the last condition: nothing of the first may have been run.
        let conditions = [("first", "checkpoint_timeout = \"11min\""), ("bad", body)];
        let result = dir.compare(&experiment(&dsn, SHORT, "", &conditions)).expect(4, texts);
        assert!(result.err.contains("condition `bad`"), "{result}");
        assert_eq!(result.err.trim_end().lines().count(), 1, "{result}");
        assert!(!dir.out().exists(), "{body}");
        assert!(dir.journals().is_empty());
        assert_eq!(auto_conf(&dsn, "checkpoint_timeout"), None);
    }
}
