//! `--resume`: what is complete is kept, what is missing is measured, what differs is refused.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;

use pgio_tests::fixture::{INSTALLED, fresh_database, shared_primary};
use pgio_tests::workdir::{Workdir, condition_of, experiment, experiment_on};
use rustix::process::Signal;

const KEYS: &str = "blocks = 2\nduration = \"300ms\"\naa = false\nseed = 11\ntelemetry = \"0s\"";
const CONDITIONS: [(&str, &str); 2] = [("lazy", "synchronous_commit = \"off\""), ("as it is", "")];

/// Stops after some trials are stored, the next being on its way.
fn interrupted(dir: &Workdir, text: &str, trials: usize) {
    let mut running = dir.start_compare(text);
    let path = dir.out().join("trials.jsonl");
    let stored = || fs::read_to_string(&path).map_or(0, |t| t.lines().count());
    running.wait_until("trials are stored", || stored() >= trials);
    running.signal(Signal::INT);
    running.wait().expect(130, &["--resume"]);
}

fn resume(dir: &Workdir) -> pgio_tests::workdir::CommandResult {
    dir.pgio(&["compare", "experiment.toml", "--resume", "out"])
}

/// Blocks and conditions of the complete trials.
fn cells(dir: &Workdir) -> BTreeSet<(u64, String)> {
    let trials = dir.trials();
    let complete = trials.iter().filter(|t| t["outcome"]["state"] == "complete");
    complete.map(|t| (t["place"]["block"].as_u64().unwrap(), condition_of(t).to_owned())).collect()
}

#[test]
fn an_interrupted_experiment_continues() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let text = experiment(&dsn, KEYS, "", &CONDITIONS);
    let dir = Workdir::new();
    interrupted(&dir, &text, 1);
    let before = fs::read_to_string(dir.out().join("trials.jsonl")).unwrap();
    // And a crash that tore the next record.
    let torn = &before.lines().next().unwrap()[..1000];
    let path = dir.out().join("trials.jsonl");
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(torn.as_bytes()).unwrap();
    resume(&dir).expect(0, &["Results: out"]);

    let after = fs::read_to_string(&path).unwrap();
    assert!(after.starts_with(&before), "nothing that was stored is lost");
    assert_eq!(fs::read_to_string(dir.out().join("torn-1.txt")).unwrap(), torn);
    assert_eq!(cells(&dir).len(), 4, "every condition in every block");
    let manifest = dir.manifest();
    let resumed = manifest["resumed"].as_array().unwrap();
    assert_eq!(resumed.len(), 1);
    assert_eq!(resumed[0]["from_trial"], before.lines().count() + 1);
    assert_eq!(resumed[0]["remarks"], serde_json::json!([]));

    // All is there now; from the stored file alone.
    let result = dir.pgio(&["compare", "--resume", "out"]).expect(0, &["is already complete"]);
    assert!(result.out.contains("Results: out"), "{result}");
    assert_eq!(fs::read_to_string(&path).unwrap(), after);
    // What differs is refused, with the codes of the command; `application::loop_tests` has the cases.
    dir.write("experiment.toml", &text.replace("\"off\"", "\"local\""));
    resume(&dir).expect(2, &["condition[1].postgres.synchronous_commit"]);
    dir.write("pgio.conf", "SESSIONS=2\n");
    dir.pgio(&["compare", "--resume", "out", "--blocks", "3"]).expect(4, &["the work changed"]);
    let fewer = ["compare", "--resume", "out", "--blocks", "1"];
    dir.pgio(&fewer).expect(2, &["may only grow"]);
    dir.pgio(&["compare", "experiment.toml", "--blocks", "9"]).expect(2, &["--resume"]);
    dir.pgio(&["compare", "--resume", "nowhere"]).expect(7, &["nowhere"]);
    fs::create_dir(dir.path().join("empty")).unwrap();
    dir.pgio(&["compare", "--resume", "empty"]).expect(7, &["manifest.json is missing"]);
    dir.pgio(&["compare"]).expect(2, &["EXPERIMENT"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), after);
}

#[test]
fn a_private_cluster_is_created_again_and_noted() {
    let dir = Workdir::new();
    let target = format!("private = true\npg = {INSTALLED}");
    interrupted(&dir, &experiment_on(&target, KEYS, "", &CONDITIONS), 1);
    resume(&dir).expect(0, &["new private cluster"]);
    let manifest = dir.manifest();
    assert!(manifest["resumed"][0]["remarks"][0].as_str().unwrap().contains("private"));
    assert_eq!(cells(&dir).len(), 4, "every condition in every block");
}
