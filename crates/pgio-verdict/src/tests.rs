//! Verdicts on made-up experiments, whole and broken.

use benchmath::rng::SplitMix64;
use benchmath::signed_rank;
use proptest::prelude::*;

use super::test_support::{demo, experiment, latencies, set, throttled, trial};
use super::*;
use pgio_results::change::{Change, fact};
use pgio_results::histogram::Histogram;
use pgio_results::latency::Class;
use pgio_results::store::StoredExperiment;
use pgio_results::{Check, CheckVerdict, Outcome, Trial, Warning};
use std::sync::Arc;

mod documented;
mod percentiles;
mod repairs;

const PRIMARY: &str = "commits_per_second";

/// Blocks of local and on, at these rates.
fn two(rates: &[(f64, f64)]) -> StoredExperiment {
    let trials = (1..).zip(rates).flat_map(|(block, (local, on))| {
        [trial("local", block, &[(PRIMARY, *local)]), trial("on", block, &[(PRIMARY, *on)])]
    });
    experiment(&["local", "on"], trials.collect())
}

fn steady(blocks: u32) -> StoredExperiment {
    let rates: Vec<(f64, f64)> =
        (0..blocks).map(|b| (1000.0 + f64::from(b), 500.0 + 2.0 * f64::from(b))).collect();
    two(&rates)
}

fn ids(analysis: &Analysis) -> Vec<(&str, Option<&str>)> {
    analysis.checks.iter().map(|c| (c.id.as_str(), c.condition.as_deref())).collect()
}

fn position(stored: &StoredExperiment, condition: &str, block: u32) -> usize {
    let here =
        |t: &Trial| t.place.as_ref().is_some_and(|p| p.condition == condition && p.block == block);
    stored.trials.iter().position(here).unwrap()
}

#[test]
fn half_the_rate_is_slower() {
    let analysis = analyze(&steady(6));
    let on = analysis.primary("on").unwrap();
    assert_eq!((on.verdict, on.blocks, on.primary), (Verdict::Slower, 6, true));
    assert_eq!((on.p, on.p_adjusted), (Some(0.03125), Some(0.03125)));
    assert!((on.ratio.unwrap() - 0.5).abs() < 0.01);
    assert_eq!(ids(&analysis), []);
    assert!(analysis.noise_floor.is_empty() && analysis.notes.is_empty());
}

#[test]
fn a_valid_trial_without_the_primary_metric_is_reported() {
    let mut stored = steady(7);
    let missing = position(&stored, "on", 3);
    stored.trials[missing].metrics.remove(PRIMARY);
    let analysis = analyze(&stored);
    assert_eq!(analysis.primary("on").unwrap().blocks, 6);
    assert_eq!(ids(&analysis), [("primary-missing", Some("on"))]);
    let message = &analysis.checks[0].message;
    let expected =
        "1 of 7 valid trials of `on` have no commits_per_second and are not compared (trials 6)";
    assert_eq!(message, expected);
    // A rate of 0 has no ratio, and hides from no one.
    set(&mut stored.trials[missing], PRIMARY, 0.0);
    let analysis = analyze(&stored);
    let on = analysis.primary("on").unwrap();
    assert_eq!((on.verdict, on.blocks, on.ratio), (Verdict::NotApplicable, 7, None));
    assert!(on.difference.is_some() && !on.warnings.is_empty(), "{on:?}");
    assert_eq!(ids(&analysis), []);
}

#[test]
fn with_baseline_compares_with_another_condition() {
    let compared = analyze(&demo().with_baseline("on").unwrap());
    // Everything is the other way round, and what the file's own baseline shows of noise is gone.
    let own = analyze(&demo());
    assert_eq!(compared.primary("local").unwrap().verdict, Verdict::Faster);
    let product = compared.primary("local").unwrap().ratio.unwrap()
        * own.primary("on").unwrap().ratio.unwrap();
    assert!((product - 1.0).abs() < 1e-9, "{product}");
    assert!(compared.primary("on").is_none() && compared.noise_floor.is_empty());
    assert!(!compared.is_aa("local-aa"));
    assert_eq!(compared.condition("on").unwrap().factors, [] as [&str; 0]);
    assert_eq!((compared.own_baseline.as_deref(), own.own_baseline), (Some("local"), None));
    // Its own name changes nothing, the twin's included.
    let same = analyze(&demo().with_baseline("local").unwrap());
    assert_eq!((same.notes, same.noise_floor), (own.notes, own.noise_floor));

    let unknown = demo().with_baseline("of").unwrap_err().to_string();
    assert_eq!(unknown, "unknown condition `of` (conditions: local, local-aa, remote_write, on)");
}

#[test]
fn more_latency_is_slower_and_more_wal_is_higher() {
    let mut stored = steady(6);
    stored.manifest.primary_metric = "commit_latency_mean".to_owned();
    for t in &mut stored.trials {
        let rate = t.metrics[PRIMARY].value.unwrap();
        set(t, "commit_latency_mean", 1.0 / rate);
    }
    assert_eq!(analyze(&stored).primary("on").unwrap().verdict, Verdict::Slower);

    for t in &mut stored.trials {
        let seconds = t.metrics["commit_latency_mean"].value.unwrap();
        set(t, "wal_bytes_per_commit", seconds * 1e6);
    }
    stored.manifest.primary_metric = "wal_bytes_per_commit".to_owned();
    assert_eq!(analyze(&stored).primary("on").unwrap().verdict, Verdict::Higher);
}

/// All other comparisons are one family: what only chance moves does not stand out in it, what
/// changed by half does with six blocks, and the interval beside a verdict is the verdict's own.
#[test]
fn secondary_metrics_share_one_error_rate() {
    let mut stored = steady(6);
    for (i, t) in (0u32..).zip(&mut stored.trials) {
        let rate = t.metrics[PRIMARY].value.unwrap();
        // Not quite the same work as the primary metric's, which would be judged only there.
        set(t, "updates_per_second", rate * (1.0 + 1e-5 * f64::from(i % 7)));
        // A little more under every condition but the baseline, as chance has it.
        let is_baseline = t.is_of("local");
        let by_chance = if is_baseline { 0.0 } else { f64::from(i % 5) + 0.1 };
        set(t, "block_visits_per_second", 9000.0 + by_chance);
    }
    let found = analyze(&stored);
    let changed = found.comparison("on", "updates_per_second").unwrap();
    assert_eq!((changed.p, changed.p_adjusted), (Some(0.03125), Some(0.03125)));
    assert_eq!((changed.verdict, changed.judged), (Verdict::Slower, false));
    // Decided by a tie that its size broke.
    assert_eq!(changed.interval, Interval::UNKNOWN);
    assert!(found.primary("on").unwrap().judged);
    for c in &found.comparisons {
        if let (Some(low), Some(high)) = (c.interval.low, c.interval.high) {
            assert_eq!(c.verdict.is_decided(), low > 1.0 || high < 1.0, "{c:?}");
            assert_eq!(c.verdict.is_decided(), c.p_adjusted.unwrap() <= ALPHA, "{c:?}");
        }
    }
}

/// One that is declared alone is judged by its own test; the others become indicative.
#[test]
fn only_the_named_conditions_and_metrics_are_judged() {
    let mut stored = steady(6);
    stored.manifest.rules.judge = vec!["on".to_owned()];
    stored.manifest.rules.also_judge = vec!["updates_per_second".to_owned()];
    for t in &mut stored.trials {
        let rate = t.metrics[PRIMARY].value.unwrap();
        set(t, "updates_per_second", rate);
    }
    let found = analyze(&stored);
    let judged: Vec<(&str, &str)> = found
        .comparisons
        .iter()
        .filter(|c| c.judged)
        .map(|c| (c.condition.as_str(), c.metric.as_str()))
        .collect();
    assert_eq!(judged, [("on", "updates_per_second"), ("on", PRIMARY)]);
}

/// The effect to plan for is the user's; without one, pgio reports no number of blocks.
#[test]
fn blocks_are_planned_for_the_effect_that_is_named() {
    let mut stored = demo();
    let twin = |stored: &StoredExperiment| {
        let found = analyze(stored);
        let undecided = |c: &&Comparison| c.primary && c.verdict == Verdict::NoDifference;
        found.comparisons.iter().find(undecided).map(|c| c.blocks_needed)
    };
    assert_eq!(twin(&stored), Some(None));
    stored.manifest.rules.effect = Some(0.01);
    let small = twin(&stored).unwrap().unwrap();
    stored.manifest.rules.effect = Some(0.06);
    assert!(small > twin(&stored).unwrap().unwrap());
    // The noise floor of these six blocks is far below half: they would have shown that effect.
    stored.manifest.rules.effect = Some(0.5);
    assert_eq!(twin(&stored), Some(None));
}

#[test]
fn only_blocks_with_both_sides_count() {
    let mut stored = steady(8);
    let cut = position(&stored, "on", 8);
    stored.trials.remove(cut);
    let at = position(&stored, "local", 2);
    stored.trials[at].checks.push(Check::invalid("data-size", "grew by 10 %", "reload"));
    let at = position(&stored, "on", 3);
    stored.trials[at].outcome = Outcome::Failed { error: "connection lost".to_owned() };
    let analysis = analyze(&stored);
    assert_eq!(analysis.primary("on").unwrap().blocks, 5);
    assert_eq!(analysis.primary("on").unwrap().verdict, Verdict::TooFewBlocks);
    assert_eq!(
        ids(&analysis),
        [
            ("invalid-trials", Some("local")),
            ("too-few-blocks", Some("on")),
            ("failed-trials", Some("on")),
            ("data-size", Some("local")),
        ]
    );
    let data_size = analysis.checks.last().unwrap();
    assert_eq!((data_size.trial, data_size.verdict), (Some(3), CheckVerdict::Invalid));
    assert!(analysis.checks[2].message.contains("trial 6: connection lost"));
    let on = analysis.condition("on").unwrap();
    assert_eq!((on.trials, on.invalid, on.failed, on.valid), (7, 0, 1, 6));
    let local = analysis.condition("local").unwrap();
    assert_eq!((local.trials, local.invalid, local.failed, local.valid), (8, 1, 0, 7));
    assert_eq!((local.checks_passed, local.checks_total), (1, 2));
}

#[test]
fn the_last_attempt_counts() {
    let mut stored = steady(6);
    let at = position(&stored, "on", 1);
    stored.trials[at].checks.push(Check::invalid("standby", "was gone", "start it"));
    let mut again = trial("on", 1, &[(PRIMARY, 123.0)]);
    again.place.as_mut().unwrap().attempt = 1;
    // The order on disk is not the order of attempts.
    stored.trials.insert(0, again);
    let analysis = analyze(&stored);
    let on = analysis.condition("on").unwrap();
    assert_eq!((on.trials, on.invalid, on.valid), (7, 1, 6));
    assert_eq!((on.checks_passed, on.checks_total), (1, 1), "the repeated one was in order");
    assert_eq!(analysis.primary("on").unwrap().blocks, 6);
    assert!(analysis.primary("on").unwrap().interval.low.unwrap() < 0.4);
}

/// A resumed experiment repeats what was interrupted without counting attempts.
#[test]
fn at_equal_attempts_the_later_record_counts() {
    let mut stored = steady(6);
    let at = position(&stored, "on", 4);
    stored.trials[at].outcome = Outcome::Interrupted;
    stored.trials.push(trial("on", 4, &[(PRIMARY, 501.0)]));
    let analysis = analyze(&stored);
    assert_eq!(analysis.primary("on").unwrap().blocks, 6);
    let on = analysis.condition("on").unwrap();
    assert_eq!((on.trials, on.failed, on.valid), (7, 1, 6));
}

#[test]
fn an_invalid_last_attempt_is_not_replaced_by_an_earlier_one() {
    let mut stored = steady(6);
    let mut again = trial("on", 1, &[(PRIMARY, 123.0)]);
    again.place.as_mut().unwrap().attempt = 1;
    again.outcome = Outcome::Interrupted;
    stored.trials.push(again);
    let analysis = analyze(&stored);
    assert_eq!(analysis.primary("on").unwrap().blocks, 5);
    assert!(ids(&analysis).contains(&("failed-trials", Some("on"))));
}

#[test]
fn the_twin_gives_the_noise_floor() {
    let analysis = analyze(&demo());
    let floor = analysis.noise_floor[PRIMARY];
    assert!(floor.interval.low.unwrap() < 1.0 && floor.interval.high.unwrap() > 1.0);
    let mde = floor.minimum_detectable_effect.unwrap();
    assert!(mde > 0.01 && mde < 0.2, "{mde}");
    assert_eq!(analysis.primary("local-aa").unwrap().verdict, Verdict::NoDifference);
    assert_eq!(ids(&analysis), []);
}

#[test]
fn a_twin_that_differs_is_a_warning() {
    let mut stored = demo();
    for t in &mut stored.trials {
        if t.is_of("local-aa") {
            let rate = t.metrics[PRIMARY].value.unwrap();
            set(t, PRIMARY, rate * 0.7);
        }
    }
    assert_eq!(ids(&analyze(&stored)), [("aa-differs", Some("local-aa"))]);
}

#[test]
fn the_effect_of_two_treatments_cannot_be_attributed() {
    let mut stored = steady(6);
    stored.manifest.conditions[1].changes.push(throttled());
    let analysis = analyze(&stored);
    assert_eq!(ids(&analysis), [("factors", Some("on"))]);
    assert!(analysis.checks[0].message.contains("2 treatments"), "{:?}", analysis.checks);

    let treatments = |stored: &mut StoredExperiment, baseline: &[&str], on: &[&str]| {
        let changes = |all: &[&str]| -> Vec<Change> {
            let parts = all.iter().map(|words| words.split_once(" = ").unwrap());
            parts.map(|(setting, value)| Change::server(setting, value)).collect()
        };
        stored.manifest.conditions[0].changes = changes(baseline);
        stored.manifest.conditions[1].changes = changes(on);
        analyze(stored).checks.len()
    };
    assert_eq!(treatments(&mut stored, &[], &["c = 1"]), 0);
    assert_eq!(treatments(&mut stored, &["a = 1", "b = 1"], &["b = 1", "a = 2"]), 0);
    assert_eq!(treatments(&mut stored, &["a = 1", "b = 1"], &["b = 2", "a = 2"]), 1);
    assert_eq!(treatments(&mut stored, &["a = 1"], &["b = 1"]), 1);
}

#[test]
fn rates_are_geometric_means_and_counts_with_zeros_arithmetic_ones() {
    let mut stored = two(&[(1000.0, 1.0), (4000.0, 1.0)]);
    set(&mut stored.trials[0], "wal_full_page_images", 0.0);
    set(&mut stored.trials[2], "wal_full_page_images", 3.0);
    let analysis = analyze(&stored);
    let local = &analysis.condition("local").unwrap().metrics;
    assert!((local[PRIMARY].value.unwrap() - 2000.0).abs() < 1e-6);
    assert_eq!(local["wal_full_page_images"].value, Some(1.5));
}

#[test]
fn a_value_of_zero_has_no_ratio_but_a_difference() {
    let mut stored = steady(6);
    for t in &mut stored.trials {
        set(t, "checkpoints", 0.0);
    }
    let analysis = analyze(&stored);
    let checkpoints = analysis.comparison("on", "checkpoints").unwrap();
    assert_eq!((checkpoints.verdict, checkpoints.ratio), (Verdict::NotApplicable, None));
    assert_eq!((checkpoints.p_adjusted, checkpoints.difference), (None, Some(0.0)));
}

#[test]
fn outlier_warnings_name_the_block_by_its_number() {
    let mut stored = steady(9);
    for t in &mut stored.trials {
        let (rate, place) = (t.metrics[PRIMARY].value.unwrap(), t.place.clone().unwrap());
        if place.condition == "on" && place.block == 9 {
            set(t, PRIMARY, rate * 5.0);
        }
        if place.block == 2 {
            t.outcome = Outcome::Interrupted;
        }
    }
    let analysis = analyze(&stored);
    let warnings = &analysis.primary("on").unwrap().warnings;
    assert!(warnings.iter().any(|w| w.starts_with("block 9 is far")), "{warnings:?}");
}

#[test]
fn an_experiment_without_values_does_not_panic() {
    let mut empty = experiment(&["local", "local-aa", "on"], Vec::new());
    let analysis = analyze(&empty);
    let on = analysis.primary("on").unwrap();
    assert_eq!((on.verdict, on.blocks), (Verdict::TooFewBlocks, 0));
    assert_eq!(analysis.conditions.len(), 3);
    empty.torn = true;
    empty.manifest.baseline = "nobody".to_owned();
    let analysis = analyze(&empty);
    assert_eq!(ids(&analysis), [("torn-record", None)]);
    assert!(analysis.comparisons.is_empty());
}

#[test]
fn a_record_of_another_experiment_is_a_finding() {
    let mut stored = steady(6);
    stored.trials.push(trial("stranger", 1, &[(PRIMARY, 1.0)]));
    assert_eq!(ids(&analyze(&stored)), [("unknown-condition", None)]);
}

#[test]
fn warnings_are_counted_by_trial() {
    let mut stored = steady(2);
    let warning = Warning::new("autovacuum ran", "it competes for the disk", "switch it off");
    stored.trials[0].warnings = vec![warning.clone(), warning.clone()];
    stored.trials[3].warnings = vec![warning.clone()];
    assert_eq!(analyze(&stored).warnings, [CountedWarning { warning, trials: 2 }]);
}

proptest! {
    /// The printed interval and the verdict never contradict each other.
    #[test]
    fn interval_and_primary_verdict_agree(
        rates in prop::collection::vec((1.0f64..100.0, 1.0f64..100.0), 0..14)
    ) {
        let analysis = analyze(&two(&rates));
        let on = analysis.primary("on").unwrap();
        let outside = on.interval.low.zip(on.interval.high).is_some_and(|(low, high)| low > 1.0 || high < 1.0);
        prop_assert_eq!(outside, on.verdict.is_decided());
        prop_assert_eq!(on.p.is_some_and(|p| p <= ALPHA), on.verdict.is_decided());
        prop_assert_eq!(rates.len() < 6, on.verdict == Verdict::TooFewBlocks);
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Cutting an experiment short anywhere never panics and never invents a block.
    #[test]
    fn any_part_of_an_experiment_can_be_analyzed(keep in prop::collection::vec(any::<bool>(), 24)) {
        let mut stored = demo();
        let mut kept = keep.iter();
        stored.trials.retain(|_| *kept.next().unwrap());
        let analysis = analyze(&stored);
        for c in &analysis.comparisons {
            let count = |name: &str| analysis.condition(name).unwrap().valid;
            prop_assert!(c.blocks <= count(&c.condition).min(count("local")));
        }
    }
}

/// Rows/s of one row per commit, and the time of 10,000 commits, are commits/s in another unit.
#[test]
fn a_rate_in_another_unit_is_not_judged_again() {
    let mut stored = steady(6);
    for t in &mut stored.trials {
        let rate = t.metrics[PRIMARY].value.unwrap();
        set(t, "rows_per_second", rate * 3.0);
        set(t, "seconds_per_10000_transactions", 1e4 / rate);
        set(t, "wal_bytes_per_second", rate * 300.0);
    }
    let found = analyze(&stored);
    let is_compared = |metric| found.comparison("on", metric).is_some();
    assert!(!is_compared("rows_per_second") && !is_compared("seconds_per_10000_transactions"));
    assert!(is_compared(PRIMARY) && is_compared("wal_bytes_per_second"));
    stored.manifest.rules.also_judge = vec!["rows_per_second".to_owned()];
    assert!(analyze(&stored).comparison("on", "rows_per_second").unwrap().judged);
}

#[test]
fn timing_by_a_slow_clock_is_reported() {
    let found = |slow: bool, timing: &str| {
        let mut stored = demo();
        if slow {
            stored.manifest.environment.insert(fact::SLOW_CLOCK.to_owned(), "yes".to_owned());
        }
        let on = (fact::setting("track_io_timing"), timing.to_owned());
        stored.trials[1].environment = Arc::new([on].into());
        analyze(&stored).checks.iter().any(|c| c.id == "clock-cost")
    };
    assert!(found(true, "on"));
    assert!(!found(false, "on") && !found(true, "off"));
}
