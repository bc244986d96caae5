//! What a new feature has to touch: a directory and a line in `ALL` each, here `ticks` and `note`, and everything that
//! a user meets knows them. Needs the Cargo feature `dummy`:
//!
//!     cargo test -p pgio --no-default-features --features dummy,download --test dummy

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use pgio_tests::fixture::{INSTALLED, OwnPrimary, own_primary};
use pgio_tests::workdir::{Running, Workdir, condition_of, experiment, metric};

const PRIOR: &str = "before\nand unfinished";
const OURS: &str = "measuring";

/// An experiment with both features in the directory of a test, and a file that the treatment changes.
struct Both {
    dir: Workdir,
    server: OwnPrimary,
    file: PathBuf,
    text: String,
}

impl Both {
    /// Conditions begin in random order; a single one is in force at once.
    fn new(duration: &str, conditions: &[&str]) -> Both {
        let (dir, server) = (Workdir::new(), own_primary(INSTALLED));
        let file = dir.path().join("noted");
        fs::write(&file, PRIOR).unwrap();
        let keys = format!("blocks = 2\nduration = \"{duration}\"\naa = false");
        let conditions: Vec<(&str, &str)> = conditions.iter().map(|name| (*name, "")).collect();
        let text = experiment(&server.primary_conninfo(), &keys, "every = \"5ms\"", &conditions)
            .replace("kind = \"commit\"", "kind = \"ticks\"")
            .replace("[target]", "[target]\nhost = \"local\"")
            + &format!("note = {{ path = {file:?}, text = {OURS:?} }}\n");
        Both { dir, server, file, text }
    }

    fn content(&self) -> String {
        fs::read_to_string(&self.file).unwrap_or_default()
    }

    /// Starts it, and returns once the treatment is in force in a window.
    fn in_force(&self) -> Running {
        let mut running = self.dir.start_compare(&self.text);
        running.wait_until("in force", || self.content() == OURS);
        running
    }

    /// The error of this text in place of another one.
    fn refused(&self, from: &str, to: &str, words: &[&str]) {
        assert!(self.text.contains(from), "{}", self.text);
        self.dir.compare(&self.text.replace(from, to)).expect(2, words);
    }
}

#[test]
fn the_table_of_keys_has_a_new_key_with_its_default_and_its_user() {
    let key = pgio::config::keys::all().find(|key| key.name == "every").unwrap();
    assert_eq!(key.default, Some("10ms"));
    let users: Vec<&str> = key.uses().map(|using| using.name()).collect();
    assert_eq!(users, ["ticks"]);
    assert!(pgio::treatment::names().contains(&"note"));
}

#[test]
fn errors_in_a_file_name_the_new_kind_key_and_treatment() {
    let both = Both::new("200ms", &["plain", "noted"]);
    both.refused("kind = \"ticks\"", "kind = \"tick\"", &["valid names: ", "ticks"]);
    both.refused("every = \"5ms\"", "evry = \"5ms\"", &["evry", "unknown key", "`every`"]);
    both.refused("every = \"5ms\"", "every = \"2s\"", &["every must be at most 1s"]);
    both.refused("every = \"5ms\"", "every = \"0\"", &["every", "must be a duration"]);
    both.refused("kind = \"ticks\"", "kind = \"commit\"", &["every: does not apply"]);
    both.refused("note = {", "not = {", &["unknown key", "`note`"]);
    both.refused("path = ", "paht = ", &["note.paht", "unknown key", "`path`"]);
}

#[test]
fn the_example_is_listed_and_can_be_planned() {
    let dir = Workdir::new();
    dir.pgio(&["example"]).expect(0, &["ticks"]);
    dir.write("e.toml", &dir.pgio(&["example", "ticks"]).expect(0, &[]).out);
    dir.pgio(&["compare", "e.toml", "--plan"]).expect(0, &["ticks", "wal_writer_delay"]);
}

#[test]
fn a_plan_names_both_and_changes_nothing() {
    let both = Both::new("200ms", &["plain", "noted"]);
    both.dir.write("e.toml", &both.text);
    let plan = both.dir.pgio(&["compare", "e.toml", "--plan"]);
    plan.expect(0, &["ticks", "note in", "measuring", "written in place"]);
    assert_eq!(both.content(), PRIOR);
}

#[test]
fn a_run_measures_the_work_and_proves_the_treatment() {
    let both = Both::new("500ms", &["plain", "noted"]);
    both.dir.compare(&both.text).expect(0, &[]);
    let trials = both.dir.trials();
    assert_eq!(trials.len(), 4);
    for trial in &trials {
        assert_eq!(trial["outcome"]["state"], "complete", "{trial:#}");
        // One every 5 ms, fewer on a busy machine.
        let rate = metric(trial, "commits_per_second");
        assert!(rate > 20.0 && rate <= 200.0, "{rate}");
        let evidence = trial["evidence"].as_array().unwrap().iter();
        let noted: Vec<_> =
            evidence.filter(|e| e["what"].as_str().unwrap().starts_with("note in")).collect();
        let wanted = if condition_of(trial) == "noted" { 2 } else { 0 };
        assert_eq!(noted.len(), wanted, "{trial:#}");
        assert!(noted.iter().all(|e| e["found"] == OURS && e["expected"] == OURS), "{noted:?}");
    }
    assert_eq!(both.content(), PRIOR);
    let page = both.dir.pgio(&["report", "out", "--format", "html"]);
    page.expect(0, &["ticks", "noted", "note in"]);
}

#[test]
fn what_a_killed_run_wrote_is_undone() {
    let both = Both::new("60s", &["noted"]);
    both.in_force().kill();
    assert_eq!(both.content(), OURS);
    both.dir.pgio(&["undo"]).expect(0, &["note in"]);
    assert_eq!(both.content(), PRIOR);
    both.dir.pgio(&["undo"]).expect(0, &[&both.dir.nothing_to_undo()]);
}

#[test]
fn what_someone_else_wrote_since_is_refused_until_an_order_decides() {
    let both = Both::new("60s", &["noted"]);
    both.in_force().kill();
    fs::write(&both.file, "another").unwrap();
    both.dir.pgio(&["undo"]).expect(6, &["note in", "now another", "someone changed it since"]);
    assert_eq!(both.content(), "another");
    both.dir.pgio(&["undo", "--restore"]).expect(0, &[]);
    assert_eq!(both.content(), PRIOR);
}

#[test]
fn runs_on_two_servers_do_not_write_one_file() {
    let (both, other) = (Both::new("60s", &["noted"]), own_primary(INSTALLED));
    let running = both.in_force();
    let [one, two] = [&both.server, &other].map(|server| server.primary_conninfo());
    both.dir.write("second.toml", &both.text.replace(&one, &two));
    let second = both.dir.pgio(&["compare", "second.toml", "--out", "second"]);
    second.expect(6, &["note in ", "noted", "wait until it ends"]);
    running.kill();
    both.dir.pgio(&["undo"]).expect(0, &[]);
    assert_eq!(both.content(), PRIOR);
}
