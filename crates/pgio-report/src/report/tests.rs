//! Every text as it is printed, and what must hold of any of them.

use std::collections::BTreeSet;

use insta::assert_snapshot;
use proptest::prelude::*;

use super::{Statement, across, document, json, summary, text, trial};
use pgio_results::store::StoredExperiment;
use pgio_results::{Check, Outcome, Trial, Warning};
use pgio_verdict::across::across as compared;
use pgio_verdict::test_support::{
    classic_trial, demo, experiment, latencies, replicated, set, throttled,
};
use pgio_verdict::{Analysis, analyze, test_support};

fn sentence(analysis: &Analysis, condition: &str) -> String {
    Statement::new(analysis, condition).long()
}

fn printed(analysis: &Analysis) -> String {
    text::render(&document(analysis))
}

fn shortened(blocks: u32) -> StoredExperiment {
    let mut stored = demo();
    stored.trials.retain(|t| t.place.as_ref().is_some_and(|p| p.block <= blocks));
    stored
}

/// All that can go wrong at once.
fn troubled() -> StoredExperiment {
    let mut stored = demo();
    let conditions = &mut stored.manifest.conditions;
    conditions[3].changes.push(throttled());
    let checkpoint = Warning::new(
        "a checkpoint began inside the window",
        "it competes for the disk",
        "lengthen checkpoint_timeout",
    );
    for t in &mut stored.trials[4..14] {
        t.warnings.push(checkpoint.clone());
    }
    let lost = "the standby went away while the window was open";
    for at in [7, 11] {
        let remedy = "look at the standby's log";
        stored.trials[at].checks.push(Check::invalid("standby-connected", lost, remedy));
    }
    stored.trials[2].outcome = Outcome::Failed { error: "connection reset by peer".to_owned() };
    stored.trials.pop();
    stored.torn = true;
    stored
}

#[test]
fn an_experiment_with_a_margin() {
    let mut stored = demo();
    stored.manifest.rules.matters = Some(0.05);
    let analysis = analyze(&stored);
    let mut short = document(&analysis);
    short.tables.truncate(1);
    assert_snapshot!(text::render(&short));
    let sentences = analysis.conditions.iter().map(|c| sentence(&analysis, &c.name));
    assert_snapshot!(sentences.collect::<Vec<_>>().join("\n"));
    let value: serde_json::Value = serde_json::from_str(&json::render(&analysis)).unwrap();
    let comparisons = value["comparisons"].as_array().unwrap();
    let on = comparisons.iter().find(|c| c["condition"] == "on" && c["primary"] == true).unwrap();
    assert_eq!((&on["margin"], &on["decision"]), (&0.05.into(), &"matters".into()));
    assert_eq!(on["gate"], "fail");
    let secondary = comparisons.iter().find(|c| c["primary"] == false).unwrap();
    assert_eq!(secondary["decision"], serde_json::Value::Null);
    stored.manifest.rules.matters = Some(0.5);
    let analysis = analyze(&stored);
    let sentences = analysis.conditions.iter().map(|c| sentence(&analysis, &c.name));
    assert_snapshot!(sentences.collect::<Vec<_>>().join("\n"));
}

/// One trial as `run` leaves it.
fn full_trial() -> Trial {
    let mut t = classic_trial();
    for (name, value) in [
        ("block_visits_per_second", 259_123.4),
        ("updates_per_second", 962.25),
        ("commits_per_second", 120.3),
        ("wal_bytes_per_second", 5e6),
        ("wal_bytes_per_commit", 41_563.0),
        ("wal_full_page_images", 120.0),
        ("checkpoints", 1.0),
        ("update_pct_measured", 9.97),
        ("deadlocks", 0.0),
    ] {
        set(&mut t, name, value);
    }
    t.histograms.insert("read".to_owned(), latencies(0.004, 1000));
    t.histograms.insert("update".to_owned(), latencies(0.35, 100));
    t.histograms.insert("commit".to_owned(), latencies(1.85, 100));
    t.checks = vec![
        Check::ok("data-size", "the data kept its size"),
        Check::warning("checkpoint", "1 checkpoint inside the window", "raise max_wal_size"),
    ];
    t.warnings = vec![Warning::new("shared_buffers holds it all", "nothing is read", "scale up")];
    t
}

#[test]
fn an_experiment_in_order() {
    assert_snapshot!(printed(&analyze(&demo())));
}

#[test]
fn an_experiment_cut_short() {
    assert_snapshot!(printed(&analyze(&shortened(3))));
}

#[test]
fn an_experiment_in_trouble() {
    assert_snapshot!(printed(&analyze(&troubled())));
}

#[test]
fn an_experiment_without_trials() {
    assert_snapshot!(printed(&analyze(&experiment(&["local", "on"], Vec::new()))));
}

/// Sampled waits, probes, and a device that read a tenth of what was missed.
#[test]
fn an_experiment_that_is_explained() {
    let mut stored = replicated(6);
    for (i, t) in (0..).zip(&mut stored.trials) {
        let mean = t.histograms["commit"].answered_mean_ns().unwrap() / 1e9;
        set(t, "commits_per_second", 1.0 / mean);
        set(t, "riops", 5000.0 + f64::from(i));
        set(t, "device_reads_per_second", 500.0);
        set(t, "page_cache_reads_per_second", 4500.0);
    }
    assert_snapshot!(printed(&analyze(&stored)));
}

#[test]
fn two_experiments_against_each_other() {
    let mut b = demo();
    b.manifest.created_at = "2026-12-21T08:00:00Z".to_owned();
    b.manifest.conditions.retain(|c| c.name != "remote_write");
    for t in &mut b.trials {
        let rate = t.metrics["commits_per_second"].value.unwrap();
        set(t, "commits_per_second", rate * 0.8);
        t.server.version = "16.4".to_owned();
        t.window.asked_seconds = Some(10.0);
    }
    let found = compared(&[demo()], &[b], &[]);
    assert_snapshot!(text::render(&across::document(&found)));
    let value: serde_json::Value = serde_json::from_str(&json::render(&found)).unwrap();
    assert_eq!(value["schema"], "pgio.across/1");
    assert_eq!(value["comparisons"][0]["verdict"], "not_judged");
    assert_eq!(value["reasons"][0]["what"], "window");
    let alone = compared(&[shortened(1)], &[shortened(1)], &[]);
    assert_snapshot!("two_experiments_of_one_block", text::render(&across::document(&alone)));
}

#[test]
fn the_verdict_names_two_changed_treatments() {
    let mut stored = demo();
    stored.manifest.conditions[3].changes.push(throttled());
    let text = sentence(&analyze(&stored), "on");
    let end = "; the effect of two treatments together.";
    assert!(text.starts_with("on: costs at least half") && text.ends_with(end), "{text}");
}

#[test]
fn one_trial() {
    assert_snapshot!(trial::render(&full_trial()));
}

#[test]
fn one_trial_that_failed() {
    let mut t = classic_trial();
    t.dataset = None;
    t.workload.keys.clear();
    t.outcome = Outcome::Failed { error: "session 3 was lost".to_owned() };
    assert_eq!(trial::render(&t), "FAILED          session 3 was lost\n");
}

#[test]
fn each_condition_has_its_sentence() {
    let analysis = analyze(&demo());
    let all = ["local", "local-aa", "remote_write", "on", "nobody"].map(|c| sentence(&analysis, c));
    assert_snapshot!(all.join("\n"));
}

#[test]
fn sentences_of_too_few_blocks() {
    let analysis = analyze(&shortened(3));
    assert_snapshot!(sentence(&analysis, "on"));
}

fn brief(stored: &StoredExperiment) -> String {
    text::render(&summary(&analyze(stored), "pgio compare --resume results"))
}

#[test]
fn the_short_report_of_the_demo() {
    assert_snapshot!(brief(&demo()));
    assert_snapshot!(brief(&replicated(6)));
}

#[test]
fn the_short_report_of_trouble() {
    assert_snapshot!(brief(&troubled()));
    assert_snapshot!(brief(&shortened(3)));
    assert_snapshot!(brief(&experiment(&["local"], Vec::new())));
    // Nothing was compared, so nothing is undecided.
    let mut stored = demo();
    for t in &mut stored.trials {
        t.checks.push(Check::invalid("foreign-load", "others", "stop them"));
    }
    let text = brief(&stored);
    assert!(text.contains("nothing can be compared") && !text.contains("not decided"), "{text}");
}

/// Five conditions and a twin, with every trial flagged by ten checks.
#[test]
fn the_short_report_of_five_conditions_has_forty_lines_at_most() {
    let names = ["local", "local-aa", "remote_write", "on", "remote_apply", "off"];
    let mut stored = experiment(&names, Vec::new());
    for mut t in demo().trials {
        let more = match t.place.as_ref().unwrap().condition.as_str() {
            "on" => Some("remote_apply"),
            "remote_write" => Some("off"),
            _ => None,
        };
        let why = "other processes used 1.43 of 2 cores (71.3 %); the servers' processes waited for a core 35.4 % of \
                   the time, 25.5 % because of others (tolerated: it would be invalid)";
        let check = |n: usize| {
            Check::warning(&format!("check-{n}"), why, "stop the other processes, or move them")
        };
        t.checks.extend((0..10).map(check));
        stored.trials.push(t.clone());
        stored.trials.extend(more.map(|name| {
            t.place.as_mut().unwrap().condition = name.to_owned();
            t
        }));
    }
    let text = brief(&stored);
    // Two lines follow: results and page.
    assert!(text.lines().count() <= 38, "{text}");
    assert!(text.contains("6 more remarks: check-4"), "{text}");
}

/// A run whose twin may differ by more than half says so before any effect, and what to do.
#[test]
fn a_run_that_sees_little_says_so_first() {
    let mut stored = demo();
    for (n, t) in (0i32..).zip(&mut stored.trials) {
        let rate = t.metrics["commits_per_second"].value.unwrap();
        let twin = if t.place.as_ref().unwrap().condition == "local-aa" { 1.2 } else { 1.0 };
        set(t, "commits_per_second", twin * rate * (0.4 * f64::from(n * 7 % 11 - 5) / 5.0).exp());
    }
    let text = brief(&stored);
    let first = text.lines().nth(1).unwrap();
    let least = first.strip_prefix("This run cannot see less than × ").unwrap();
    let least: f64 = least.split(':').next().unwrap().parse().unwrap();
    // It is not more than what is detected with 80 % power.
    let floor = &analyze(&stored).noise_floor["commits_per_second"];
    let detected = 1.0 + floor.minimum_detectable_effect.unwrap();
    assert!(least <= detected + 0.05, "{detected} {text}");
    assert!(text.contains("`pgio compare --resume results --blocks 24`"), "{text}");
    assert!(!text.contains("The noise:"), "{text}");
}

#[test]
fn the_first_line_warns_of_a_twin_that_differs() {
    let mut stored = demo();
    for t in &mut stored.trials {
        if t.place.as_ref().unwrap().condition == "local-aa" {
            set(t, "commits_per_second", 2000.0);
        }
    }
    let text = brief(&stored);
    let first = text.lines().nth(1).unwrap();
    assert!(first.starts_with("Distrust this experiment: local-aa is a second copy"), "{text}");
}

fn keys(value: &serde_json::Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn json_has_the_promised_names() {
    let text = json::render(&analyze(&troubled()));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["schema"], "pgio.analysis/1");
    let has = |value: &serde_json::Value, names: &[&str]| {
        for name in names {
            assert!(keys(value).contains(name), "{name} is missing in {value}");
        }
    };
    has(
        &value,
        &[
            "schema",
            "baseline",
            "primary_metric",
            "conditions",
            "comparisons",
            "noise_floor",
            "checks",
        ],
    );
    has(&value, &["decompositions", "decomposition_differences", "reconciliation"]);
    has(&value["conditions"][0], &["name", "trials", "invalid", "metrics", "steady", "counted"]);
    has(&value["conditions"][0]["metrics"]["commits_per_second"], &["value", "unit"]);
    has(
        &value["comparisons"][0],
        &[
            "condition",
            "metric",
            "primary",
            "ratio",
            "low",
            "high",
            "difference",
            "difference_low",
            "difference_high",
            "p",
            "p_adjusted",
            "verdict",
            "blocks",
            "blocks_needed",
        ],
    );
    has(
        &value["noise_floor"]["commits_per_second"],
        &["ratio", "low", "high", "minimum_detectable_effect"],
    );
    has(&value["checks"][0], &["id", "verdict", "condition", "trial", "message", "remedy"]);
    assert_eq!(value["checks"][0]["verdict"], "warning");
    assert_eq!(value["checks"][0]["trial"], serde_json::Value::Null);
}

#[test]
fn json_verdicts_are_the_promised_words() {
    let value: serde_json::Value = serde_json::from_str(&json::render(&analyze(&demo()))).unwrap();
    let verdict = |condition: &str, metric: &str| {
        let all = value["comparisons"].as_array().unwrap();
        let found = all.iter().find(|c| c["condition"] == condition && c["metric"] == metric);
        found.unwrap()["verdict"].clone()
    };
    assert_eq!(verdict("on", "commits_per_second"), "slower");
    assert_eq!(verdict("local-aa", "commits_per_second"), "no_difference");
    assert_eq!(verdict("on", "checkpoints"), "not_applicable");
    let short: serde_json::Value =
        serde_json::from_str(&json::render(&analyze(&shortened(2)))).unwrap();
    assert_eq!(short["comparisons"][0]["verdict"], "too_few_blocks");
    assert_eq!(short["comparisons"][0]["low"], serde_json::Value::Null);
}

#[test]
fn json_reads_back() {
    let analysis = analyze(&troubled());
    let read: Analysis = serde_json::from_str(&json::render(&analysis)).unwrap();
    // Numbers may differ in their last bit; everything else may not.
    assert_eq!((read.checks, read.warnings), (analysis.checks, analysis.warnings));
    assert_eq!(read.comparisons.len(), analysis.comparisons.len());
    for (read, stored) in read.comparisons.iter().zip(&analysis.comparisons) {
        let same = read.ratio.zip(stored.ratio).is_none_or(|(a, b)| (a / b - 1.0).abs() < 1e-14);
        assert!(same && read.interval.low.is_some() == stored.interval.low.is_some(), "{read:?}");
        assert_eq!((read.verdict, &read.warnings), (stored.verdict, &stored.warnings));
    }
}

#[test]
fn a_shown_secondary_change_has_a_star_and_a_missing_percentile_its_reason() {
    let metrics = |rate: f64| [("commits_per_second", rate), ("wal_bytes_per_commit", 1e6 / rate)];
    let trials = (1..=7).flat_map(|block| {
        let (local, on) = (1000.0 + f64::from(block), 500.0 + f64::from(block * block));
        let mut pair = [
            test_support::trial("local", block, &metrics(local)),
            test_support::trial("on", block, &metrics(on)),
        ];
        for t in &mut pair {
            set(t, "commit_latency_p50", 5e-6);
            set(t, "commit_latency_p99", 1e-3);
            t.histograms.insert("commit".to_owned(), latencies(0.005, 10));
        }
        pair
    });
    assert_snapshot!(printed(&analyze(&experiment(&["local", "on"], trials.collect()))));
}

#[test]
fn many_conditions_stay_within_the_line() {
    let names: Vec<String> = (0..8).map(|i| format!("synchronous commit level {i}")).collect();
    let mut conditions = vec!["local"];
    conditions.extend(names.iter().map(String::as_str));
    let mut trials = demo().trials;
    for (t, name) in trials.iter_mut().zip(conditions.iter().cycle()) {
        t.place.as_mut().unwrap().condition = (*name).to_owned();
    }
    let text = printed(&analyze(&experiment(&conditions, trials)));
    for line in text.lines() {
        assert!(line.chars().count() <= text::COLUMNS, "{line}");
    }
    for name in &names {
        assert!(text.contains(name.rsplit(' ').next().unwrap()));
    }
}

proptest! {
    /// What is printed as slower or faster has both its bounds on one side of zero.
    #[test]
    fn sentence_and_interval_agree(
        rates in prop::collection::vec((500.0f64..510.0, 500.0f64..510.0), 6..10)
    ) {
        let rate = |value| [("commits_per_second", value)];
        let trials = (1..).zip(&rates).flat_map(|(block, (local, on))| {
            [
                test_support::trial("local", block, &rate(*local)),
                test_support::trial("on", block, &rate(*on)),
            ]
        });
        let analysis = analyze(&experiment(&["local", "on"], trials.collect()));
        let text = sentence(&analysis, "on");
        let on = analysis.primary("on").unwrap();
        let outside = on.interval.low.unwrap() > 1.0 || on.interval.high.unwrap() < 1.0;
        prop_assert_eq!(outside, text.contains("costs") || text.contains("brings"), "{}", text);
        prop_assert_eq!(!outside, text.contains("not decided"), "{}", text);
        let table = printed(&analysis);
        prop_assert_eq!(!outside, table.contains("  ~ ["), "{}", table);
    }
}
