//! `[experiment]`: its keys, the rules of the trial loop and the question.

use std::time::Duration;

use super::{CHECKS, TREATMENTS, error_of, read};
use crate::config::experiment::{Checkpoint, Question, Reset, parse};

#[test]
fn telemetry_may_be_off() {
    let cadence = |text: &str| {
        read(&format!("[experiment]\ntelemetry = {text}\n[[condition]]\nname = 'a'\n")).telemetry
    };
    assert_eq!(cadence("'500ms'"), Duration::from_millis(500));
    assert_eq!(cadence("0"), Duration::ZERO);
}

#[test]
fn burn_in_runs_by_default_if_trials_share_a_data_set() {
    for (workload, key, expected) in [
        ("kind = 'slob'", "", true),
        ("kind = 'commit'", "", false),
        ("kind = 'mail'", "", false),
        ("kind = 'command'\npreset = 'pgbench'", "", false),
        ("kind = 'command'\npreset = 'pgbench-S'", "", true),
        ("kind = 'slob'", "burn_in = false", false),
        ("kind = 'commit'", "burn_in = true", true),
    ] {
        let text =
            format!("[experiment]\n{key}\n[workload]\n{workload}\n[[condition]]\nname = 'a'\n");
        let Ok(experiment) = parse(&text, "x.toml", "x", TREATMENTS, CHECKS) else {
            panic!("{text}: {:?}", parse(&text, "x.toml", "x", TREATMENTS, CHECKS))
        };
        assert_eq!(experiment.burns_in(&experiment.workloads[0]), expected, "{text}");
    }
}

#[test]
fn checkpoint_takes_before_spread_or_none() {
    let mode = |key: &str| {
        let text = format!("[experiment]\n{key}\n[[condition]]\nname = 'a'\n");
        parse(&text, "x.toml", "x", TREATMENTS, CHECKS).map(|e| e.rules.checkpoint)
    };
    assert_eq!(mode("").unwrap(), Checkpoint::Before);
    assert_eq!(mode("checkpoint = 'spread'").unwrap(), Checkpoint::Spread);
    assert_eq!(mode("checkpoint = 'none'").unwrap(), Checkpoint::None);
    let error = mode("checkpoint = 'never'").unwrap_err();
    assert_eq!(error.message, "must be one of before, spread, none, not `never`");
}

#[test]
fn a_baseline_must_be_a_condition() {
    assert_eq!(
        error_of("[experiment]\nbaseline = 'aa'"),
        "x.toml:2: experiment.baseline: `aa` is not a condition; the nearest valid one is `a`"
    );
}

#[test]
fn loop_rules_are_read_with_their_defaults() {
    let rules =
        |lines: &str| read(&format!("[experiment]\n{lines}\n[[condition]]\nname = 'a'\n")).rules;
    let parsed =
        rules("precision = '2.5 %'\nrepeats = 0\nreset = 'reload'\ntolerate = ['foreign-load']");
    assert_eq!(parsed.precision, Some(0.025));
    assert_eq!((parsed.max_blocks, parsed.repeats), (30, 0));
    assert_eq!(parsed.reset, Reset::Reload);
    assert_eq!(parsed.tolerate, ["foreign-load"]);
    assert_eq!(rules("blocks = 40\nprecision = '5%'").max_blocks, 40);
    assert_eq!(rules("precision = '5%'\nmax_blocks = 8").max_blocks, 8);
    assert_eq!(rules("precision = '5%'").first_check(), 8);
    let named = Reset::Recreate { named: Some("bench".to_owned()) };
    assert_eq!(rules("reset = 'recreate'\nrecreate_database = 'bench'").reset, named);
    let private =
        "[experiment]\nreset = 'recreate'\n[target]\nprivate = true\n[[condition]]\nname = 'a'\n";
    assert_eq!(read(private).rules.reset, Reset::Recreate { named: None });
}

#[test]
fn the_default_number_of_blocks_depends_on_the_comparisons() {
    let blocks = |conditions: usize, lines: &str| {
        let conditions: String =
            (0..conditions).map(|n| format!("[[condition]]\nname = 'c{n}'\n")).collect();
        let e = read(&format!("[experiment]\n{lines}\n{conditions}"));
        (e.blocks, e.rules.enough_blocks, e.rules.first_check())
    };
    // The twin is compared as well.
    let with_twin = [1, 2, 3, 4, 6, 7, 12, 13].map(|n| blocks(n, "").0);
    assert_eq!(with_twin, [6, 7, 7, 8, 8, 9, 9, 10]);
    assert_eq!(blocks(4, "aa = false"), (7, 7, 8));
    assert_eq!(blocks(4, "judge = ['c1']"), (6, 6, 8));
    assert_eq!(blocks(4, "also_judge = ['commit_latency_p99']"), (9, 9, 9));
    assert_eq!(blocks(4, "blocks = 3"), (3, 8, 8));
}

#[test]
fn invalid_rules_are_refused() {
    let error_of = |line: &str| error_of(&format!("[experiment]\n{line}"));
    insta::assert_snapshot!(error_of("precision = '5'"), @"x.toml:2: experiment.precision: must be a share from 0.1% to below 100% such as \"5%\", not `5`");
    insta::assert_snapshot!(error_of("precision = '0%'"), @"x.toml:2: experiment.precision: must be a share from 0.1% to below 100% such as \"5%\", not `0%`");
    insta::assert_snapshot!(error_of("matters = '0%'"), @"x.toml:2: experiment.matters: must be a share from 0.1% to 50% such as \"5%\", not `0%`");
    insta::assert_snapshot!(error_of("matters = '51 %'"), @"x.toml:2: experiment.matters: must be a share from 0.1% to 50% such as \"5%\", not `51 %`");
    insta::assert_snapshot!(error_of("max_blocks = 9"), @"x.toml:2: experiment.max_blocks: requires precision; add precision = \"5%\", or set blocks instead");
    insta::assert_snapshot!(error_of("max_blocks = 5\nprecision = '5%'"), @"x.toml:2: experiment.max_blocks: must be a whole number from 7 to 10000, not `5`");
    insta::assert_snapshot!(error_of("reset = 'relaod'"), @"x.toml:2: experiment.reset: cannot be `relaod`; the nearest valid one is `reload`");
    insta::assert_snapshot!(error_of("reset = 'recreate'"), @"x.toml:2: experiment.reset: recreate drops the database; to confirm, set recreate_database = \"NAME\"");
    insta::assert_snapshot!(error_of("recreate_database = 'x'"), @"x.toml:2: experiment.recreate_database: requires reset = \"recreate\"");
    insta::assert_snapshot!(error_of("tolerate = ['forein-load']"), @"x.toml:2: experiment.tolerate: `forein-load` is not a check that can make a trial invalid; the nearest valid one is `foreign-load`");
    insta::assert_snapshot!(error_of("tolerate = 'all'"), @"x.toml:2: experiment.tolerate: must be an array of strings, but is of type string");
}

#[test]
fn each_workload_runs_a_condition_that_is_judged() {
    let file = |judge: &str, more: &str, workloads: &str| {
        let text = format!(
            "[experiment]\njudge = {judge}\n{more}\n{workloads}\n[[condition]]\nname = 'base'\n\
             [[condition]]\nname = 'x'\n[[condition]]\nname = 'y'\n"
        );
        parse(&text, "f.toml", "f", &[], &[]).map(drop).map_err(|error| error.to_string())
    };
    let both = "[[workload]]\nname = 'a'\n[[workload]]\nname = 'b'\nconditions = ['base', 'y']";
    assert_eq!(
        file("['x']", "", both).unwrap_err(),
        "f.toml:2: experiment.judge: names no condition of the workload `b`; name one that it runs (y), \
         or add `x` to its conditions"
    );
    file("['x', 'y']", "", both).unwrap();
    file("['y']", "", both).unwrap();
    // With the baseline alone there is nothing to judge, whatever is named.
    file("['x']", "", &both.replace(", 'y'", "")).unwrap();
    // The twin of the baseline is none of the conditions that are named.
    file("['x']", "aa = false", both).unwrap_err();
    let one = |conditions: &str| format!("[workload]\nconditions = {conditions}");
    file("['x']", "", "").unwrap();
    file("['x']", "", &one("['base', 'x']")).unwrap();
    assert!(file("['x']", "", &one("['base', 'y']")).unwrap_err().contains("the workload `slob`"));
    // Another baseline leaves the first condition to be judged.
    file("['base']", "baseline = 'x'", &one("['base', 'x']")).unwrap();
    // A list of values makes points, not conditions.
    let swept = |conditions: &str| format!("{}\nupdate_pct = [0, 20]", one(conditions));
    file("['x']", "", &swept("['base', 'x']")).unwrap();
    file("['x']", "", &swept("['base', 'y']")).unwrap_err();
}

#[test]
fn judged_conditions_and_metrics_must_exist() {
    let file = |head: &str| {
        format!(
            "[experiment]\n{head}\n[[condition]]\nname = 'a'\n[[condition]]\nname = 'b'\n\
             [[condition]]\nname = 'c'\n"
        )
    };
    let question =
        |head: &str| parse(&file(head), "f.toml", "f", &[], &[]).map(|e| e.rules.question);
    let parsed =
        question("judge = ['c']\nalso_judge = ['riops']\neffect = '5%'\nmatters = '50%'").unwrap();
    let expected = Question {
        judge: vec!["c".to_owned()],
        text: None,
        also_judge: vec!["riops".to_owned()],
        effect: Some(0.05),
        matters: Some(0.5),
    };
    assert_eq!(parsed, expected);
    for (head, message) in [
        ("judge = ['d']", "`d` is not a condition other than the baseline"),
        ("judge = ['a']", "`a` is not a condition other than the baseline"),
        ("judge = []", "names no condition"),
        ("judge = ['b', 'b']", "names `b` twice"),
        ("effect = '0%'", "must be a share from 0.1% to below 100%"),
        ("effect = 'five'", "must be a share from 0.1% to below 100%"),
    ] {
        let error = question(head).unwrap_err().to_string();
        assert!(error.contains(message), "{head}: {error}");
    }
}
