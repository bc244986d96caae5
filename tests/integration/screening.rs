//! Screening: `[[factor]]` tables, and the cells that a design makes of them.

use serde_json::Value;

use crate::schema;
use pgio_tests::fixture::{INSTALLED, fresh_database, shared_primary};
use pgio_tests::workdir::{Workdir, condition_of, tolerate};

/// A delay of 20 ms that commits wait for unless they wait for nothing, and a setting without an effect.
const FACTORS: &str = "[[factor]]\nname = 'delay'\nlow = {}\n\
                       high = { postgres = { commit_delay = 20000, commit_siblings = 0 } }\n\
                       [[factor]]\nname = 'synchronous_commit'\nsetting = ['on', 'off']\n\
                       [[factor]]\nname = 'geqo'\nsetting = ['on', 'off']\n";

fn text(dsn: &str, keys: &str, factors: &str) -> String {
    let tolerate = tolerate(&["environment-changed", "environment-differs", "steal"]);
    format!(
        "[experiment]\nseed = 4\nwarmup = '0s'\n{tolerate}\n{keys}\n[target]\ndsn = \"{dsn}\"\n\
         [workload]\nkind = 'commit'\nsessions = 1\n{factors}"
    )
}

/// What the report says of effects: `experiment/application/loop_tests.rs`.
#[test]
fn each_cell_has_the_levels_of_its_factors() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    // Without the third factor, half as many cells.
    let (factors, _) = FACTORS.split_at(FACTORS.rfind("[[factor]]").unwrap());
    let text = text(&dsn, "blocks = 1\nduration = '200ms'\nmatters = '5%'", factors);
    let run = dir.compare(&text).expect(0, &["What matters here: commits/s, 2 factors in 4 cells"]);
    assert!(!run.out.contains("compared with"), "{run}");
    let manifest = dir.manifest();
    schema::assert_valid("pgio.manifest/1", &manifest);
    let trials = dir.trials();
    assert_eq!(trials.len(), 4);
    for trial in trials {
        let cells = manifest["screening"]["cells"].as_array().unwrap();
        let cell = cells.iter().find(|c| c["condition"] == condition_of(&trial)).unwrap();
        let mut high = cell["high"].as_array().unwrap().iter();
        let wanted = if high.any(|name| name == "synchronous_commit") { "off" } else { "on" };
        let evidence = trial["evidence"].as_array().unwrap().iter();
        let of_it = |e: &&Value| e["what"].as_str().unwrap().starts_with("synchronous_commit");
        let found: Vec<&Value> = evidence.filter(of_it).collect();
        assert!(!found.is_empty() && found.iter().all(|e| e["found"] == wanted), "{trial}");
    }
    schema::assert_valid("pgio.analysis/1", &dir.analysis());
}

#[test]
fn a_plan_begins_with_cells_blocks_and_time_and_changes_nothing() {
    let dir = Workdir::new();
    let dsn = "host=/nonexistent dbname=none";
    dir.write("x.toml", &text(dsn, "duration = '1s'\nblocks = 6", FACTORS));
    let plan = dir.pgio(&["compare", "x.toml", "--plan", "--offline"]).expect(0, &[]).out;
    let lines: Vec<&str> = plan.lines().take(4).collect();
    assert!(
        lines[1]
            .starts_with("Design fractional: 3 factors in 8 cells, 6 blocks, 48 trials, about "),
        "{plan}"
    );
    assert!(
        lines[3].starts_with("  factor delay: low as it is; high commit_delay = 20000"),
        "{plan}"
    );
    let once = plan.lines().filter(|l| l.contains("changes geqo = off")).count();
    assert_eq!(once, 1, "{plan}");
    assert!(!dir.out().exists() && dir.journals().is_empty());
}
