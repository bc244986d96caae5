//! Sweeps: lists become cells of the same randomized blocks, and every format shows their curves.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::examples::stored;
use pgio_tests::fixture::{INSTALLED, fresh_database, shared_primary};
use pgio_tests::workdir::{Workdir, condition_of, experiment, experiment_on, tolerate};

const KEYS: &str = "blocks = 1\nduration = \"200ms\"\nseed = 7";
const LISTS: &str =
    "sessions = [1, 2, 8]\nrows_per_transaction = [1, 5]\nmiddle = { sessions = 2 }";
const CONDITIONS: [(&str, &str); 2] = [("lazy", "synchronous_commit = \"off\""), ("as it is", "")];

/// Condition and point of a trial.
fn cell(trial: &Value) -> String {
    format!("{} {}", condition_of(trial), trial["place"]["point"])
}

/// That every block has every cell in an order of its own: `experiment/application/loop_tests.rs`.
#[test]
fn every_cell_runs_with_its_values() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let text = experiment(&dsn, KEYS, LISTS, &CONDITIONS);
    let size = "8 cells (2 conditions, 4 points) and the A/A twin, in 1 blocks: 9 trials";
    dir.compare(&text).expect(0, &[size]);
    dir.pgio(&["report", "out", "--all"])
        .expect(0, &["Along sessions", "Along rows_per_transaction"]);
    let trials = stored(&dir.out());
    let cells: BTreeSet<String> = trials.iter().map(cell).collect();
    assert_eq!((trials.len(), cells.len()), (9, 9), "{cells:?}");
    for trial in &trials {
        let (point, keys) = (&trial["place"]["point"], &trial["workload"]["keys"]);
        for axis in ["sessions", "rows_per_transaction"] {
            assert_eq!(point[axis], keys[axis], "{trial}");
        }
        assert_eq!(point["sessions"], trial["sessions"].as_array().unwrap().len());
        let rate = |name: &str| trial["metrics"][name]["value"].as_f64().unwrap();
        let rows = point["rows_per_transaction"].as_f64().unwrap();
        let relative = rate("rows_per_second") / (rate("commits_per_second") * rows);
        assert!((relative - 1.0).abs() < 1e-6, "{relative}");
    }
    let manifest = dir.manifest();
    assert_eq!(manifest["sweep"]["kind"], "one-at-a-time");
    assert_eq!(manifest["sweep"]["points"][0], json!({"sessions": 2, "rows_per_transaction": 1}));
    assert_eq!(manifest["sweep"]["at_middle_only"], json!(["lazy (A/A)"]));

    let analysis = dir.analysis();
    let sweep = &analysis["sweep"];
    let curves = sweep["curves"].as_array().unwrap();
    assert_eq!(curves.len(), 4, "two axes, two conditions");
    for curve in curves {
        let values: Vec<&Value> =
            curve["points"].as_array().unwrap().iter().map(|p| &p["value"]).collect();
        match curve["axis"].as_str().unwrap() {
            "sessions" => {
                assert_eq!(values, [1, 2, 8]);
                assert_eq!(curve["throughput"], "commits_per_second");
                assert_eq!(curve["knee"]["blocks"], 1);
            }
            _ => {
                assert_eq!(values, [1, 5]);
                assert_eq!(curve["throughput"], "rows_per_second");
                assert_eq!(curve["knee"], Value::Null, "two points have none between them");
            }
        }
        for point in curve["points"].as_array().unwrap() {
            let cell = &sweep["cells"][point["cell"].as_u64().unwrap() as usize];
            assert_eq!(cell["condition"], curve["condition"]);
            assert_eq!(cell["valid"], 1);
            assert!(cell["metrics"]["transaction_latency_mean"]["value"].as_f64().unwrap() > 0.0);
        }
    }
    // Only the middle point is judged.
    let condition = &analysis["conditions"][0];
    assert_eq!((condition["trials"].as_u64(), condition["valid"].as_u64()), (Some(1), Some(1)));

    let csv = dir.pgio(&["report", "out", "--format", "csv"]).expect(0, &[]).out;
    let away = csv.lines().filter(|l| l.contains("rows_per_transaction = 1; sessions = 8"));
    assert!(away.count() >= 2, "{csv}");
    let markdown = dir.pgio(&["report", "out", "--format", "markdown"]).expect(0, &[]).out;
    assert!(markdown.contains("## Along sessions"), "{markdown}");
    let page = fs::read_to_string(dir.out().join("report.html")).unwrap();
    for part in ["id=\"sweep\"", "sweep-value-1", "sweep-load-1", "sweep-load-2"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_grid_is_shown_before_it_is_run_and_refused_beyond_the_limit() {
    // No server is asked.
    let dsn = "host=/nonexistent dbname=none";
    let dir = Workdir::new();
    let keys = format!("{}\nsweep = \"grid\"", KEYS.replace("blocks = 1", "blocks = 2"));
    dir.write("grid.toml", &experiment(dsn, &keys, LISTS, &CONDITIONS));
    let result = dir.pgio(&["compare", "grid.toml", "--plan", "--order", "--offline"]);
    let result = result.expect(
        0,
        &[
            "12 cells (2 conditions, 6 points) and the A/A twin, in 2 blocks: 26 trials, 5.2 s",
            "axis sessions = 1; 2 (middle); 8",
            "lazy (sessions = 8, rows_per_transaction = 5)",
        ],
    );
    assert!(result.out.contains("sync") && !dir.out().exists(), "nothing is touched: {result}");
    let limited = format!("{keys}\ncells_limit = 11");
    let text = experiment(dsn, &limited, LISTS, &CONDITIONS);
    dir.compare(&text).expect(2, &["has 12 cells, but only 11 are allowed", "cells_limit = 12"]);
    assert!(!dir.out().exists());
}

#[test]
fn a_point_that_the_server_has_no_room_for_is_refused_before_the_first_trial() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    let refused = dir.compare(&experiment(&dsn, KEYS, "sessions = [1, 500]", &CONDITIONS));
    refused.expect(4, &["lazy (sessions = 500)", "500 sessions are needed", "max_connections"]);
    assert!(!dir.out().exists());
}

#[test]
fn an_axis_of_conditions_applies_to_the_baseline_and_is_planned() {
    let dir = Workdir::new();
    let axes = "[[axis]]\nname = \"delay\"\nunit = \"ms\"\nvalues = [0, 100]\n\
                link = { relay = true, delay = \"{delay}ms\" }\n\
                [[axis]]\nname = \"fsync\"\nvalues = [\"on\", \"off\"]\n\
                postgres = { fsync = \"{fsync}\" }\n";
    let conditions =
        [("local", "synchronous_commit = \"local\""), ("on", "synchronous_commit = \"on\"")];
    let target = format!("private = true\nstandby = true\npg = {INSTALLED}");
    // Probes of flush and round trip are worth their time from 20 s of windows on: 7 of 3 s.
    let keys = "blocks = 1\nduration = \"3s\"\nseed = 7";
    let text = experiment_on(&target, keys, "", &conditions) + axes;
    dir.compare(&text).expect(0, &[]);
    dir.pgio(&["report", "out", "--all"])
        .expect(0, &["A commit along delay", "A commit along fsync"]);
    let trials = dir.trials();
    assert_eq!(trials.len(), 7, "two conditions at three points and the twin");
    for trial in &trials {
        let point = &trial["place"]["point"];
        assert_eq!(trial["server"]["fsync"], point["fsync"], "{}", cell(trial));
        let link = trial["telemetry"]["probes"]["link_seconds"].as_f64().unwrap();
        assert!((link - 0.002 * point["delay"].as_f64().unwrap()).abs() < 1e-9, "{link}");
        let declared = trial["checks"].as_array().unwrap().iter();
        let durable = declared.filter(|c| c["id"] == "durability").all(|c| c["verdict"] == "ok");
        assert!(durable, "{}", cell(trial));
    }
    let analysis = dir.analysis();
    let curves = analysis["sweep"]["curves"].as_array().unwrap().iter();
    let slope = |condition: &str| {
        let is = |c: &&Value| c["axis"] == "delay" && c["condition"] == condition;
        curves.clone().find(is).unwrap()["slope"].clone()
    };
    // Each ms each way is two for a commit that waits for the standby, and more where other tests
    // run beside this one.
    let on = slope("on");
    assert!((on["predicted"].as_f64().unwrap() - 0.002).abs() < 1e-6, "{on}");
    let measured = on["seconds"].as_f64().unwrap();
    assert!(measured > 0.0018, "{measured}");
    assert_eq!(slope("local"), Value::Null, "it does not wait for the standby");
}

#[test]
fn the_data_set_is_loaded_once_and_each_point_does_its_own_work() {
    let dir = Workdir::new();
    let text = format!(
        "[experiment]\nblocks = 1\nwarmup = \"0s\"\nduration = \"200ms\"\naa = false\n{}\n\
         [target]\nprivate = true\npg = {INSTALLED}\n\
         [workload]\nkind = \"slob\"\nscale = \"8M\"\nwork_unit = [8, 1, 64]\n\
         [[condition]]\nname = \"a\"\n[[condition]]\nname = \"b\"\nsweep = false\n",
        tolerate(&[])
    );
    let result = dir.compare(&text).expect(0, &["4 cells (2 conditions, 3 points)"]);
    assert_eq!(dir.cluster_notes(), 0, "its server is gone");
    let loads = result.err.matches("Loading").count() + result.err.matches("loading").count();
    assert!(loads <= 1, "{result}");
    let trials = dir.trials();
    let units: BTreeSet<String> = trials
        .iter()
        .map(|t| format!("{} {}", condition_of(t), t["workload"]["keys"]["work_unit"]))
        .collect();
    let expected = ["a 1", "a 64", "a 8", "b 8"].map(str::to_owned);
    assert_eq!(units, BTreeSet::from(expected));
    let seeds: BTreeSet<u64> =
        trials.iter().map(|t| t["dataset"]["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds.len(), 1, "one data set");
}
