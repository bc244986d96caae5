//! Two made-up months.

use super::*;
use crate::analysis::test_support::{demo, experiment, set, trial};
use crate::results::Outcome;

const PRIMARY: &str = "commits_per_second";

fn slower(mut stored: Stored, factor: f64) -> Stored {
    for t in &mut stored.trials {
        let rate = t.metrics[PRIMARY].value.unwrap();
        set(t, PRIMARY, rate * factor);
    }
    stored
}

fn of<'a>(found: &'a Across, condition: &str, metric: &str) -> &'a AcrossComparison {
    found.comparisons.iter().find(|c| c.condition == condition && c.metric == metric).unwrap()
}

#[test]
fn the_same_twice_differs_in_nothing() {
    let found = across(&demo(), &demo());
    assert_eq!(found.reasons, []);
    let local = &found.comparisons[0];
    assert_eq!((local.condition.as_str(), local.primary), ("local", true));
    assert_eq!((local.ratio, local.verdict), (Some(1.0), Verdict::NoDifference));
    assert_eq!((local.trials_a, local.trials_b), (6, 6));
    assert!(found.effects.iter().all(|e| e.ratio == Some(1.0) && e.low.unwrap() < 1.0));
}

#[test]
fn a_slower_machine_is_seen_and_leaves_the_effects() {
    let found = across(&demo(), &slower(demo(), 0.8));
    for condition in ["local", "on"] {
        let c = of(&found, condition, PRIMARY);
        assert!((c.ratio.unwrap() - 0.8).abs() < 1e-9);
        assert!(c.high.unwrap() < 0.85 && c.low.unwrap() > 0.75);
        assert_eq!(c.verdict, Verdict::Slower);
    }
    let on = found.effects.iter().find(|e| e.condition == "on").unwrap();
    assert!((on.ratio.unwrap() - 1.0).abs() < 1e-9);
    assert!((on.a.ratio.unwrap() - on.b.ratio.unwrap()).abs() < 1e-9);
    let forth = across(&slower(demo(), 0.8), &demo());
    assert_eq!(of(&forth, "local", PRIMARY).verdict, Verdict::Faster);
}

#[test]
fn the_baseline_comes_first_and_names_must_meet() {
    let mut b = demo();
    b.manifest.conditions.reverse();
    b.manifest.conditions.retain(|c| c.name != "remote_write");
    let mut a = demo();
    a.manifest.conditions.reverse();
    let found = across(&a, &b);
    assert_eq!(found.comparisons[0].condition, "local");
    assert_eq!((found.only_in_a, found.only_in_b), (vec!["remote_write".to_owned()], vec![]));
}

#[test]
fn what_differs_is_listed_gravest_first() {
    let mut a = demo();
    a.manifest.environment.insert("driver.cores".to_owned(), "2".to_owned());
    let mut b = demo();
    b.manifest.environment.clone_from(&a.manifest.environment);
    b.manifest.conditions[3].treatments = vec!["synchronous_commit = remote_apply".to_owned()];
    b.manifest.pgio = "2.1.0".to_owned();
    b.manifest.seed = 8;
    b.manifest.environment.insert("driver.kernel".to_owned(), "6.2".to_owned());
    for t in &mut b.trials {
        t.window.asked_seconds = Some(10.0);
        t.workload.keys.insert("update_pct".to_owned(), serde_json::json!(20));
        t.dataset.as_mut().unwrap().blocks_per_table *= 2;
        t.server.version = "16.4".to_owned();
        t.environment.insert("setting.work_mem".to_owned(), "64MB".to_owned());
    }
    let found = across(&a, &b);
    let text: Vec<String> = found
        .reasons
        .iter()
        .map(|r| {
            format!(
                "{}: {} | {}",
                r.what,
                r.a.as_deref().unwrap_or("-"),
                r.b.as_deref().unwrap_or("-")
            )
        })
        .collect();
    assert_eq!(
        text,
        [
            "treatments of on: synchronous_commit = on | synchronous_commit = remote_apply",
            "update_pct: 10 | 20",
            "data set: 1 tables of 200 MiB | 1 tables of 400 MiB",
            "window: 120 s | 10 s",
            "server version: 15.14 | 16.4",
            "driver.kernel: - | 6.2",
            "setting.work_mem: - | 64MB",
            "pgio: 2.0.0 | 2.1.0",
            "seed: 7 | 8",
        ]
    );
}

#[test]
fn one_trial_each_decides_nothing_and_zero_has_no_ratio() {
    let one = |rate| {
        experiment(&["local"], vec![trial("local", 1, &[(PRIMARY, rate), ("checkpoints", 0.0)])])
    };
    let found = across(&one(1000.0), &one(400.0));
    let c = of(&found, "local", PRIMARY);
    assert!((c.ratio.unwrap() - 0.4).abs() < 1e-12);
    assert_eq!((c.low, c.verdict), (None, Verdict::TooFewBlocks));
    assert_eq!(of(&found, "local", "checkpoints").verdict, Verdict::NotApplicable);
}

#[test]
fn what_does_not_count_is_left_out_and_nothing_is_not_a_panic() {
    let mut b = demo();
    b.trials[0].outcome = Outcome::Interrupted;
    assert_eq!(of(&across(&demo(), &b), "local", PRIMARY).trials_b, 5);
    let empty = experiment(&["local", "on"], Vec::new());
    let found = across(&demo(), &empty);
    assert_eq!(of(&found, "local", PRIMARY).verdict, Verdict::TooFewBlocks);
    assert_eq!(found.reasons.len(), 0);
    let mut stranger = demo();
    stranger.manifest.baseline = "nobody".to_owned();
    assert!(across(&demo(), &stranger).effects.is_empty());
}
