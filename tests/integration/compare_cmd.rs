//! `pgio compare` and `report`: what they promise, what they refuse.

mod evidence;
mod files;
mod planning;
mod progress;
mod reset;
mod resume;
mod treatments;
mod workloads;

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use pgio_tests::fixture::{INSTALLED, NEWEST, connect, fresh_database, shared_primary};
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
    for (major, blocks) in [(INSTALLED, 2), (NEWEST, 1)] {
        let dir = Workdir::new();
        let dsn = fresh_database(shared_primary(major));
        // So many, since a window of 200 ms may hold none on a busy machine.
        let text = experiment(
            &dsn,
            &format!("blocks = {blocks}\nseed = 42"),
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
        assert_eq!(trials.len(), 5 * blocks, "{result}");
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
        let plan = dir.pgio(&["compare", "experiment.toml", "--plan", "--order"]).expect(0, &[]);
        assert_eq!(planned(&plan.out), order(&trials));
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
        ("wal_writer_delay = \"ten\"", &["wal_writer_delay", "ten"]),
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

fn relation(dsn: &str, name: &str) -> Option<String> {
    connect(dsn).query_one("SELECT to_regclass($1)::text", &[&name]).unwrap().get(0)
}

#[test]
fn a_fixed_number_of_transactions_is_done_exactly() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    for (sessions, rows, payload) in [(1, 1, 0), (3, 5, 100)] {
        let dir = Workdir::new();
        let workload = format!(
            "transactions = 10000\nsessions = {sessions}\nrows_per_transaction = {rows}\n\
             payload = {payload}"
        );
        let conditions = [("lazy", "synchronous_commit = \"off\"")];
        dir.compare(&experiment(&dsn, "blocks = 1\naa = false", &workload, &conditions))
            .expect(0, &[]);
        let trial = &dir.trials()[0];
        assert_eq!(condition_of(trial), "lazy");
        assert_eq!(trial["histograms"]["commit"]["count"], 10_000);
        assert_eq!(trial["histograms"]["transaction"]["count"], 10_000);
        assert_eq!(trial["sessions"].as_array().unwrap().len(), sessions);
        assert_eq!(trial["workload"]["keys"]["rows_per_transaction"], rows);
        let metric = |name: &str| trial["metrics"][name]["value"].as_f64().unwrap();
        let seconds = trial["window"]["seconds"].as_f64().unwrap();
        let per_ten_thousand = metric("seconds_per_10000_transactions");
        assert!((per_ten_thousand / seconds - 1.0).abs() < 1e-6, "{per_ten_thousand} of {seconds}");
        assert!((metric("commits_per_second") * seconds - 10_000.0).abs() < 1.0);
        assert_eq!(relation(&dsn, "pgio_commit"), None);
    }
}

#[test]
fn a_users_own_table_is_kept() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    connect(&dsn)
        .batch_execute(
            "CREATE TABLE pgio_commit (precious text); INSERT INTO pgio_commit VALUES ('x')",
        )
        .unwrap();
    let dir = Workdir::new();
    let text = experiment(&dsn, "duration = \"100ms\"", "", &[("a", "")]);
    dir.compare(&text).expect(4, &["pgio_commit", "not"]);
    assert!(!dir.out().exists(), "refused before anything is written");
    let row = connect(&dsn).query_one("SELECT precious FROM pgio_commit", &[]).unwrap();
    assert_eq!(row.get::<_, String>(0), "x");
}
