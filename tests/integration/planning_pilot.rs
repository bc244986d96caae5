//! `pgio plan`: the number of blocks from a pilot, and what is no pilot.

use std::fs;

use pgio_tests::fixture::{INSTALLED, fresh_database, shared_primary};
use pgio_tests::workdir::{Workdir, experiment};

const CONDITIONS: &[(&str, &str)] =
    &[("local", "synchronous_commit = \"local\""), ("lazy", "synchronous_commit = \"off\"")];

fn text(dsn: &str, head: &str, conditions: &[(&str, &str)]) -> String {
    let head = format!("{head}\naa = false\nburn_in = false\nduration = \"200ms\"\nseed = 4");
    experiment(dsn, &head, "sessions = 1", conditions)
}

#[test]
fn blocks_are_planned_from_a_pilot_of_the_same_experiment_alone() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    let write = |name: &str, head: &str| dir.write(name, &text(&dsn, head, CONDITIONS));
    let plan = |args: &[&str], code: i32, texts: &[&str]| {
        let found = dir.pgio(&[&["plan"], args].concat()).expect(code, texts);
        assert_eq!(found.out.is_empty(), code != 0, "{found}");
        found
    };
    dir.compare(&text(&dsn, "blocks = 4", CONDITIONS)).expect(0, &[]);

    write("full.toml", "blocks = 8\nmatters = \"20%\"");
    let shown = plan(&["full.toml", "--pilot", "out"], 0, &["an effect exceeds 20 %"]);
    let row = shown.out.lines().find(|line| line.starts_with("test ")).unwrap();
    // A busy machine is so noisy that no number of blocks decides.
    let blocks = row.matches(" blocks").count() + row.matches("over 100,000").count();
    assert!(row.contains("commits/s") && blocks == 3, "{shown}");
    let texts =
        ["80 % power", "95 % power", "decided by 8 blocks", "upper bound", "2 trials per block"];
    let again = plan(&["full.toml", "--pilot", "out"], 0, &texts);
    assert_eq!((&shown.out, shown.err.as_str()), (&again.out, ""), "pure");
    let replaced = ["full.toml", "--pilot", "out", "--matters", "10%"];
    plan(&replaced, 0, &["an effect exceeds 10 %"]);

    // The window may differ, but the noise is that of the pilot.
    let longer = text(&dsn, "matters = \"20%\"", CONDITIONS).replace("200ms", "1s");
    dir.write("longer.toml", &longer);
    plan(&["longer.toml", "--pilot", "out"], 0, &["warning: the pilot in out differs (", "\"1s\""]);

    plan(&["full.toml"], 2, &["a pilot are needed", "set blocks = 4 in a copy of full.toml"]);
    write("none.toml", "blocks = 8");
    plan(&["none.toml", "--pilot", "out"], 2, &["none.toml: no margin is named; add matters"]);
    plan(&["full.toml", "--pilot", "out", "--matters", "60%"], 2, &["from 0.1% to 50%"]);
    plan(&["full.toml", "--pilot", "state"], 7, &["state contains no pgio results"]);
    plan(&["missing.toml", "--pilot", "out"], 7, &["cannot read missing.toml"]);

    let other = |head: &str, conditions: &[(&str, &str)], why: &str| {
        dir.write("other.toml", &text(&dsn, &format!("matters = \"5%\"\n{head}"), conditions));
        let refused = ["not a pilot of this experiment: ", why];
        plan(&["other.toml", "--pilot", "out"], 2, &refused);
    };
    other("baseline = \"lazy\"", CONDITIONS, "the baseline was `local` and is `lazy`");
    other(
        "primary = \"commit_latency_p50\"",
        CONDITIONS,
        "the primary metric was `commits_per_second`",
    );
    let renamed = [CONDITIONS[0], ("off", CONDITIONS[1].1)];
    other("", &renamed, "the condition `off` is not in the pilot");

    let trials = dir.out().join("trials.jsonl");
    let mut few = fs::read_to_string(&trials).unwrap();
    few.truncate(few.match_indices('\n').nth(2).unwrap().0 + 1);
    fs::write(trials, few).unwrap();
    plan(&["full.toml", "--pilot", "out"], 2, &["needs at least 4 blocks", "it has 1"]);
}
