//! `matters`, `--matters` and `--gate`: a margin, and the exit code that scripts rely on.

use std::fs;

use pgio_tests::fixture::{INSTALLED, fresh_database, shared_primary};
use pgio_tests::workdir::{Workdir, experiment};

/// A condition without fsync waits costs nothing here; one that waits 20 ms for company costs most of
/// the rate, on any machine.
const CONDITIONS: &[(&str, &str)] = &[
    ("lazy", "synchronous_commit = \"off\""),
    ("slow", "commit_delay = 20000, commit_siblings = 0"),
];

fn text(dsn: &str, head: &str) -> String {
    experiment(dsn, &format!("{head}\nduration = \"600ms\"\nseed = 4"), "sessions = 1", CONDITIONS)
}

#[test]
fn a_gate_fails_passes_and_stays_undecided_by_its_exit_code() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    dir.write("experiment.toml", &text(&dsn, "blocks = 6\naa = false"));
    let compare = ["compare", "experiment.toml", "--out", "out", "--matters", "5%", "--gate"];
    let failed =
        dir.pgio(&compare).expect(8, &["gate failed: worse than lazy by more than 5 %: slow"]);
    assert!(failed.out.contains("more than 5 %") && failed.out.contains("matters"), "{failed}");
    assert_eq!(dir.manifest()["rules"]["matters"], 0.05);
    let stored = fs::read_to_string(dir.out().join("experiment.toml")).unwrap();
    assert!(stored.contains("matters = \"5%\""), "{stored}");
    let slow = &dir.analysis()["comparisons"][0];
    assert_eq!((&slow["decision"], &slow["gate"]), (&"matters".into(), &"fail".into()));

    dir.pgio(&["report", "out", "--gate"]).expect(8, &["gate failed: worse than lazy"]);
    // The other way round it is faster, which is no reason to fail.
    let turned = ["report", "out", "--baseline", "slow", "--gate"];
    dir.pgio(&turned).expect(0, &["gate passed: no condition is worse than slow by more than 5 %"]);
    let json = dir.pgio(&["report", "out", "--gate", "--format", "json"]).expect(8, &[]);
    serde_json::from_str::<serde_json::Value>(&json.out).expect("only the analysis on stdout");

    let mut few = fs::read_to_string(dir.out().join("trials.jsonl")).unwrap();
    few.truncate(few.match_indices('\n').nth(7).unwrap().0 + 1);
    fs::write(dir.out().join("trials.jsonl"), few).unwrap();
    dir.pgio(&["report", "out", "--gate"]).expect(9, &["gate undecided: ", "slow", "needed"]);
}

#[test]
fn a_gate_without_a_margin_and_impossible_margins_are_refused() {
    let dir = Workdir::new();
    let dsn = "host=/nowhere dbname=x";
    dir.write("experiment.toml", &text(dsn, "blocks = 6"));
    let refused = |args: &[&str], text: &str| {
        dir.pgio(args).expect(2, &[text]);
        assert!(!dir.out().exists());
    };
    refused(&["compare", "experiment.toml", "--out", "out", "--gate"], "no margin is named");
    for wrong in ["0%", "51%", "5", "none"] {
        refused(&["compare", "experiment.toml", "--matters", wrong], "from 0.1% to 50%");
    }
    dir.write("headless.toml", "[target]\nprivate = true\n[workload]\nkind = \"commit\"\n");
    refused(&["compare", "headless.toml", "--matters", "5%"], "write [experiment] and matters");
    dir.write("wrong.toml", &text(dsn, "matters = \"60%\""));
    refused(&["compare", "wrong.toml"], "experiment.matters: must be a share from 0.1% to 50%");
    refused(&["report", "a", "b", "--gate"], "are about one experiment");
}
