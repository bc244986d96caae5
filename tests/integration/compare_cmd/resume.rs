//! `--resume`: what is complete is kept, what is missing is measured, what differs is refused.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;

use rustix::process::Signal;
use serde_json::Value;

use pgio_tests::fixture::{INSTALLED, NEWEST, fresh_database, shared_primary};
use pgio_tests::workdir::{Workdir, condition_of, experiment, experiment_on};

const KEYS: &str = "blocks = 3\nduration = \"300ms\"\naa = false\nseed = 11";
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

fn complete(dir: &Workdir) -> Vec<(u64, String, Option<u64>)> {
    let trials = dir.trials();
    let complete = trials.iter().filter(|t| t["outcome"]["state"] == "complete");
    complete
        .map(|t| {
            let place = &t["place"];
            let block = place["block"].as_u64().unwrap();
            // A trial that is tried again draws a stream of its own.
            let first = place["attempt"] == 0;
            (block, condition_of(t).to_owned(), first.then(|| t["seed"].as_u64().unwrap()))
        })
        .collect()
}

fn cells(dir: &Workdir) -> BTreeSet<(u64, String)> {
    complete(dir).into_iter().map(|(block, condition, _)| (block, condition)).collect()
}

/// The last attempt of the condition in each block has the baseline of the same attempt, so that the interruption
/// is between no two trials of a pair.
fn assert_paired(dir: &Workdir) {
    let trials = dir.trials();
    let attempts = |condition: &str| -> BTreeSet<(u64, u64)> {
        let of_condition = trials.iter().filter(|t| condition_of(t) == condition);
        let complete = of_condition.filter(|t| t["outcome"]["state"] == "complete");
        let number = |t: &Value, key: &str| t["place"][key].as_u64().unwrap();
        complete.map(|t| (number(t, "block"), number(t, "attempt"))).collect()
    };
    let [baseline, condition] = CONDITIONS.map(|(name, _)| attempts(name));
    for block in 1..=3 {
        let last = condition.range((block, 0)..=(block, u64::MAX)).next_back();
        assert!(last.is_some_and(|last| baseline.contains(last)), "{baseline:?} {condition:?}");
    }
}

#[test]
fn an_interrupted_experiment_continues() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let text = experiment(&dsn, KEYS, "", &CONDITIONS);
    let whole = Workdir::new();
    whole.compare(&text).expect(0, &[]);

    let dir = Workdir::new();
    interrupted(&dir, &text, 3);
    let before = fs::read_to_string(dir.out().join("trials.jsonl")).unwrap();
    // And a crash that tore the next record.
    let torn = &before.lines().next().unwrap()[..1000];
    let path = dir.out().join("trials.jsonl");
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(torn.as_bytes()).unwrap();
    resume(&dir).expect(0, &["Results: out"]);

    let after = fs::read_to_string(&path).unwrap();
    assert!(after.starts_with(&before), "nothing that was stored is lost");
    assert_eq!(fs::read_to_string(dir.out().join("torn-1.txt")).unwrap(), torn);
    assert_eq!(cells(&dir), cells(&whole), "every condition in every block");
    assert_paired(&dir);
    // Trials of the first attempt had the work of an uninterrupted run.
    let wanted = complete(&whole);
    let first = complete(&dir).into_iter().filter(|(.., seed)| seed.is_some());
    assert!(first.into_iter().all(|trial| wanted.contains(&trial)));
    // The one that was interrupted inside its window was tried again under a new number.
    for trial in dir.trials().iter().filter(|t| t["outcome"]["state"] == "interrupted") {
        let place = &trial["place"];
        let again = dir.trials().iter().any(|t| {
            t["place"]["block"] == place["block"]
                && t["place"]["condition"] == place["condition"]
                && t["place"]["attempt"] == 1
        });
        assert!(again, "{place}");
    }
    let manifest = dir.manifest();
    let resumed = manifest["resumed"].as_array().unwrap();
    assert_eq!(resumed.len(), 1);
    assert_eq!(resumed[0]["from_trial"], before.lines().count() + 1);
    assert_eq!(resumed[0]["remarks"], serde_json::json!([]));

    // All is there now; from the stored file alone.
    let result = dir.pgio(&["compare", "--resume", "out"]).expect(0, &["is already complete"]);
    assert!(result.out.contains("Results: out"), "{result}");
    assert_eq!(fs::read_to_string(&path).unwrap(), after);
}

#[test]
fn differences_are_named_and_nothing_is_changed() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let other = fresh_database(shared_primary(NEWEST));
    let text = experiment(&dsn, KEYS, "sessions = 1", &CONDITIONS);
    let dir = Workdir::new();
    interrupted(&dir, &text, 1);
    let files = || {
        let read = |name| fs::read_to_string(dir.out().join(name)).unwrap();
        ["experiment.toml", "manifest.json", "trials.jsonl"].map(read)
    };
    let before = files();

    // More blocks may be asked for, and nothing else beside.
    let edited = text.replace("blocks = 3", "blocks = 5").replace("\"off\"", "\"local\"");
    dir.write("experiment.toml", &edited);
    resume(&dir).expect(2, &["condition[1].postgres.synchronous_commit"]);
    dir.write("experiment.toml", &text.replace("blocks = 3", "blocks = 2"));
    resume(&dir).expect(2, &["blocks was 3 and is 2", "may only grow"]);
    dir.pgio(&["compare", "--resume", "out", "--blocks", "2"]).expect(2, &["may only grow"]);
    dir.pgio(&["compare", "experiment.toml", "--blocks", "9"]).expect(2, &["--resume"]);
    dir.write("experiment.toml", &format!("# rewritten\n{text}"));
    dir.write("pgio.conf", "SEED=3\n");

    // The same file, and another server under the same name.
    let manifest = &before[1];
    let identifier = dir.manifest()["environment"]["system_identifier"].clone();
    let identifier = identifier.as_str().unwrap();
    fs::write(dir.out().join("manifest.json"), manifest.replace(identifier, "42")).unwrap();
    resume(&dir).expect(4, &["another server", "system_identifier was 42"]);
    for (from, to, code, result) in [
        ("pgio.manifest/1", "pgio.manifest/2", 7, "pgio.manifest/2"),
        (
            concat!("\"pgio\": \"", env!("CARGO_PKG_VERSION")),
            "\"pgio\": \"1.0",
            7,
            "started by pgio 1.0",
        ),
        ("\"name\": \"as it is\"", "\"name\": \"as it was\"", 4, "conditions"),
    ] {
        assert!(manifest.contains(from), "{from} in {manifest}");
        fs::write(dir.out().join("manifest.json"), manifest.replacen(from, to, 1)).unwrap();
        resume(&dir).expect(code, &[result]);
    }
    fs::write(dir.out().join("manifest.json"), manifest).unwrap();
    assert_eq!(files(), before);
    dir.write("experiment.toml", &text.replace(&format!("{dsn:?}"), &format!("{other:?}")));
    resume(&dir).expect(2, &["target.dsn was"]);

    dir.pgio(&["compare", "--resume", "nowhere"]).expect(7, &["nowhere"]);
    fs::create_dir(dir.path().join("empty")).unwrap();
    dir.pgio(&["compare", "--resume", "empty"]).expect(7, &["manifest.json is missing"]);
    dir.pgio(&["compare"]).expect(2, &["EXPERIMENT"]);
    assert_eq!(files(), before);

    dir.write("experiment.toml", &format!("# rewritten\n{text}"));
    resume(&dir).expect(0, &[]);
}

#[test]
fn other_work_under_the_same_file_is_refused() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    dir.write("pgio.conf", "SESSIONS=1\n");
    interrupted(&dir, &experiment(&dsn, KEYS, "", &CONDITIONS), 1);
    dir.write("pgio.conf", "SESSIONS=2\n");
    resume(&dir).expect(4, &["the work changed: sessions was 1 and is 2"]);
    dir.write("pgio.conf", "SESSIONS=1\n");
    resume(&dir).expect(0, &[]);
}

#[test]
fn a_private_cluster_is_created_again_and_noted() {
    let dir = Workdir::new();
    let target = format!("private = true\npg = {INSTALLED}");
    interrupted(&dir, &experiment_on(&target, KEYS, "", &CONDITIONS), 2);
    resume(&dir).expect(0, &["new private cluster"]);
    let manifest = dir.manifest();
    assert!(manifest["resumed"][0]["remarks"][0].as_str().unwrap().contains("private"));
    assert_eq!(cells(&dir).len(), 6, "every condition in every block");
    assert_paired(&dir);
}

#[test]
fn a_resumed_experiment_adds_blocks_and_keeps_earlier_ones() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let text = experiment(&dsn, &KEYS.replace("blocks = 3", "blocks = 1"), "", &CONDITIONS);
    let whole = Workdir::new();
    whole.compare(&text.replace("blocks = 1", "blocks = 3")).expect(0, &[]);

    let dir = Workdir::new();
    dir.compare(&text).expect(0, &["undecided: 1 of 1"]);
    let before = fs::read_to_string(dir.out().join("trials.jsonl")).unwrap();
    let result = dir.pgio(&["compare", "--resume", "out", "--blocks", "2"]);
    result.expect(0, &["blocks was 1 and is 2", "false difference"]);
    assert_eq!(dir.trials().len(), 4);
    assert_eq!(dir.manifest()["blocks"], 2);
    assert_eq!(dir.manifest()["resumed"][0]["remarks"][0], "blocks was 1 and is 2");
    // The file may set it as well; it then replaces the stored one.
    dir.write("experiment.toml", &text.replace("blocks = 1", "blocks = 3"));
    resume(&dir).expect(0, &["blocks was 2 and is 3"]);
    let stored = fs::read_to_string(dir.out().join("experiment.toml")).unwrap();
    assert!(stored.contains("blocks = 3"), "{stored}");
    assert!(fs::read_to_string(dir.out().join("trials.jsonl")).unwrap().starts_with(&before));
    assert_eq!(complete(&dir), complete(&whole), "the same trials in the same order");
    resume(&dir).expect(0, &["is already complete"]);
}
