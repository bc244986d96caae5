//! Screening: `[[factor]]` tables, the cells that a design makes of them, and the report on effects.

use std::fs;

use serde_json::Value;

use crate::schema;
use pgio_tests::fixture::{INSTALLED, fresh_database, shared_primary};
use pgio_tests::workdir::{Workdir, tolerate};

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

#[test]
fn effects_and_their_interaction_are_found_and_reported_from_the_record_alone() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    // Without the third factor, half as many cells.
    let (factors, _) = FACTORS.split_at(FACTORS.rfind("[[factor]]").unwrap());
    let text = text(&dsn, "blocks = 8\nduration = '400ms'\nmatters = '5%'", factors);
    let run = dir.compare(&text).expect(0, &["What matters here: commits/s, 2 factors in 4 cells"]);
    assert!(!run.out.contains("compared with"), "{run}");

    let manifest = dir.manifest();
    schema::assert_valid("pgio.manifest/1", &manifest);
    assert_eq!(manifest["screening"]["design"], "fractional");
    assert_eq!(manifest["screening"]["factors"][0]["low"], Value::Array(Vec::new()));
    assert_eq!((manifest["baseline"].as_str(), manifest["aa"].is_null()), (Some("all low"), true));
    for trial in dir.trials() {
        let cell = trial["place"]["condition"].as_str().unwrap();
        let cells = manifest["screening"]["cells"].as_array().unwrap();
        let cell = cells.iter().find(|c| c["condition"] == cell).unwrap();
        let mut high = cell["high"].as_array().unwrap().iter();
        let wanted = if high.any(|name| name == "synchronous_commit") { "off" } else { "on" };
        let evidence = trial["evidence"].as_array().unwrap().iter();
        let of_it = |e: &&Value| e["what"].as_str().unwrap().starts_with("synchronous_commit");
        let found: Vec<&Value> = evidence.filter(of_it).collect();
        assert!(!found.is_empty() && found.iter().all(|e| e["found"] == wanted), "{trial}");
    }

    // Only the record is left: the report needs neither the file nor a server.
    fs::remove_file(dir.path().join("experiment.toml")).unwrap();
    let analysis = dir.analysis();
    schema::assert_valid("pgio.analysis/1", &analysis);
    let screening = &analysis["screening"];
    let effects = screening["effects"].as_array().unwrap();
    assert_eq!((screening["resolution"].as_u64(), effects.len()), (Some(5), 2 + 1));
    assert_eq!(analysis["comparisons"].as_array().unwrap().len(), 0);
    let verdict = |name: &str| {
        let of = |e: &&Value| e["comparison"]["condition"] == name;
        effects.iter().find(of).unwrap()["comparison"]["verdict"].clone()
    };
    assert_eq!(verdict("delay"), "slower");
    assert_eq!(verdict("synchronous_commit"), "faster");
    let is_both = |e: &&Value| e["comparison"]["condition"] == "delay × synchronous_commit";
    let both = effects.iter().find(is_both).unwrap();
    let given = &both["conditional"];
    let while_on = given["low"]["ratio"].as_f64().unwrap();
    assert!(given["factor"] == "delay" && while_on < 0.8, "{given}");

    let csv = dir.pgio(&["report", "out", "--format", "csv"]).expect(0, &[]).out;
    assert!(csv.lines().any(|l| l.contains(",delay × synchronous_commit,")), "{csv}");
    dir.pgio(&["report", "out", "--format", "markdown"])
        .expect(0, &["## What matters here", "| delay × synchronous_commit | "]);
    let page = fs::read_to_string(dir.out().join("report.html")).unwrap();
    assert!(page.contains("What matters here") && page.contains("high against low"));
}

#[test]
fn a_plan_begins_with_cells_blocks_and_time_and_changes_nothing() {
    let dir = Workdir::new();
    let dsn = fresh_database(shared_primary(INSTALLED));
    dir.write("x.toml", &text(&dsn, "duration = '1s'\nblocks = 6", FACTORS));
    let plan = dir.pgio(&["compare", "x.toml", "--plan"]).expect(0, &[]).out;
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
