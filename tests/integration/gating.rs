//! `matters`, `--matters` and `--gate`: a margin, and the exit code that scripts rely on.

use std::fs;
use std::path::Path;

use pgio_verdict::test_support::{failing, write_runs};
use serde_json::Value;

use pgio_tests::fixture::{INSTALLED, fresh_database, shared_primary};
use pgio_tests::workdir::{Workdir, experiment};

fn text(dsn: &str, head: &str) -> String {
    let conditions = [("lazy", "synchronous_commit = \"off\""), ("eager", "")];
    let head = format!("{head}\nduration = \"200ms\"\nseed = 4");
    experiment(dsn, &head, "sessions = 1", &conditions)
}

#[test]
fn a_gate_fails_passes_and_stays_undecided_by_its_exit_code() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    dir.write("experiment.toml", &text(&dsn, "blocks = 1\naa = false"));
    let compare = ["compare", "experiment.toml", "--out", "out", "--matters", "5%", "--gate"];
    dir.pgio(&compare).expect(9, &["gate undecided: ", "eager", "needed"]);
    assert_eq!(dir.manifest()["rules"]["matters"], 0.05);
    let stored = fs::read_to_string(dir.out().join("experiment.toml")).unwrap();
    assert!(stored.contains("matters = \"5%\""), "{stored}");

    // Twelve blocks in which `x` runs at half the rate.
    let slow = write_runs(&dir.path().join("slow"), &[failing(0.5, |_| false)]).unwrap();
    let slow = slow[0].to_str().unwrap();
    let report = |more: &[&str]| dir.pgio(&[&["report", slow], more].concat());
    let failed =
        report(&["--gate"]).expect(8, &["gate failed: worse than local by more than 5 %: x"]);
    assert!(failed.out.contains("more than 5 %") && failed.out.contains("matters"), "{failed}");
    // The other way round it is faster, which is no reason to fail.
    let turned = report(&["--baseline", "x", "--gate"]);
    turned.expect(0, &["gate passed: no condition is worse than x by more than 5 %"]);
    let json = report(&["--gate", "--format", "json"]).expect(8, &[]);
    let analysis = serde_json::from_str::<Value>(&json.out).expect("only the analysis on stdout");
    let x = &analysis["comparisons"][0];
    assert_eq!((&x["decision"], &x["gate"]), (&"matters".into(), &"fail".into()));

    let file = Path::new(slow).join("trials.jsonl");
    let mut few = fs::read_to_string(&file).unwrap();
    few.truncate(few.match_indices('\n').nth(7).unwrap().0 + 1);
    fs::write(file, few).unwrap();
    report(&["--gate"]).expect(9, &["gate undecided: ", "x", "needed"]);
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
