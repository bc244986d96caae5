//! Errors of syntax and type that every section shares, and text that is no experiment.

use proptest::prelude::*;

use super::{CHECKS, TREATMENTS, condition_error, error, error_of, read};
use crate::config::experiment::parse;

#[test]
fn invalid_toml_names_its_line() {
    assert_eq!(
        error("[experiment]\nname = unquoted\n"),
        "x.toml:2: string values must be quoted, expected literal string"
    );
    assert_eq!(error("a = 1\na = 2\n"), "x.toml:2: duplicate key");
    let secret = error("[target]\ndsn = 'host=h password=hunter2\n");
    assert!(secret.starts_with("x.toml:2: ") && !secret.contains("hunter2"), "{secret}");
}

#[test]
fn unknown_keys_suggest_the_nearest_key() {
    for (lines, message) in [
        ("[experimnt]", "1: experimnt: is an unknown key; the nearest valid one is `experiment`"),
        (
            "[experiment]\nblocs = 6",
            "2: experiment.blocs: is an unknown key; the nearest valid one is `blocks`",
        ),
        ("[target]\ndns = ''", "2: target.dns: is an unknown key; the nearest valid one is `dsn`"),
        (
            "[workload]\n\nupdate_pc = 1",
            "3: workload.update_pc: is an unknown key; the nearest valid one is `update_pct`",
        ),
    ] {
        assert_eq!(error_of(lines), format!("x.toml:{message}"));
    }
    assert_eq!(
        condition_error("name = 'b'\npostgers = {}"),
        "x.toml:5: condition.postgers: is an unknown key; the nearest valid one is `postgres`"
    );
}

#[test]
fn values_of_a_wrong_type_are_refused() {
    for (lines, message) in [
        ("experiment = 1", "1: experiment: must be a table, but is of type integer"),
        ("[experiment]\nname = 1", "2: experiment.name: must be a string, but is of type integer"),
        (
            "[experiment]\naa = 'yes'",
            "2: experiment.aa: must be true or false, but is of type string",
        ),
        (
            "[experiment]\nblocks = '6'",
            "2: experiment.blocks: must be a whole number, but is of type string",
        ),
        (
            "[experiment]\nwarmup = 1.5",
            "2: experiment.warmup: must be a duration such as \"10s\", but is of type float",
        ),
        (
            "[workload]\nupdate_pct = '10'",
            "2: workload.update_pct: must be of type integer, but is of type string",
        ),
        (
            "[workload]\nscale = 1.5",
            "2: workload.scale: must be of type string or integer, but is of type float",
        ),
        (
            "[workload]\nconditions = ['a', 1]",
            "2: workload.conditions: must be an array of strings, but is of type array",
        ),
    ] {
        assert_eq!(error_of(lines), format!("x.toml:{message}"));
    }
}

#[test]
fn values_out_of_range_are_refused() {
    for (lines, message) in [
        ("blocks = 0", "blocks: must be a whole number from 1 to 10000, not `0`"),
        ("blocks = -6", "blocks: must be a whole number from 1 to 10000, not `-6`"),
        ("duration = 0", "duration: must be above zero"),
        (
            "duration = 'long'",
            "duration: `long` is not a duration: use a whole number with ms, s, m or h, for \
             example 500ms or 2s",
        ),
        ("name = ' '", "name: must be one line of text without leading or trailing spaces"),
        ("name = \"a\\nb\"", "name: must be one line of text without leading or trailing spaces"),
    ] {
        assert_eq!(
            error_of(&format!("[experiment]\n{lines}")),
            format!("x.toml:2: experiment.{message}")
        );
    }
    assert_eq!(
        error_of("[workload]\nupdate_pct = 101"),
        "x.toml:2: workload.update_pct: must be a whole number from 0 to 100, not `101`"
    );
}

proptest! {
    #[test]
    fn arbitrary_keys_and_values_do_not_panic(lines in prop::collection::vec(
        prop::sample::select(&[
            "[experiment]", "[target]", "[targets.a]", "[workload]", "[[workload]]",
            "[[condition]]", "[condition.drbd]", "name = 'a'", "name = 'b'", "name = ''",
            "blocks = 1", "seed = -1", "seed = 0x", "baseline = 'b'", "target = 'a'", "dsn = 'x'",
            "private = true", "kind = 'commit'", "conditions = []", "conditions = 1",
            "scale = 1", "warmup = ''", "experiment = []", "workload = [1]", "condition = 'é'",
            "condition.name = 'a'", "targets = { é = {} }",
        ]), 0..12))
    {
        let _ = parse(&lines.join("\n"), "x", "x", TREATMENTS, CHECKS);
    }

    #[test]
    fn quoted_names_round_trip(name in "[^\\pC\\s]([^\\pC]*[^\\pC\\s])?") {
        prop_assume!(!name.ends_with("(A/A)"));
        let quoted = toml::Value::String(name.clone());
        prop_assert_eq!(&read(&format!("[[condition]]\nname = {quoted}\n")).baseline, &name);
    }
}
