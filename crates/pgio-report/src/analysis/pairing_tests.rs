//! What a block's attempts are paired with.

use super::*;
use crate::analysis::test_support::{experiment, trial};
use pgio_results::Check;

const RATE: &str = "commits_per_second";

/// Condition, attempt, rate, and whether it is valid; all in block 1.
fn one((condition, attempt, rate, valid): &(&str, u32, f64, bool)) -> Trial {
    let mut t = trial(condition, 1, &[(RATE, *rate)]);
    t.place.as_mut().unwrap().attempt = *attempt;
    if !valid {
        t.checks.push(Check::invalid("steal", "30 %", "measure elsewhere"));
    }
    t
}

fn paired(trials: &[(&str, u32, f64, bool)]) -> (Pairs, Vec<usize>) {
    let stored = experiment(&["local", "on", "off"], trials.iter().map(one).collect());
    let by_condition = by_condition(&stored.manifest, &stored.trials);
    let counted = by_condition["local"].counted().map(|(line, _)| line).collect();
    (PairedTrials::new(&by_condition["on"], &by_condition["local"]).values(RATE), counted)
}

fn values(pairs: &Pairs) -> Vec<(f64, f64)> {
    pairs.condition.iter().copied().zip(pairs.baseline.iter().copied()).collect()
}

#[test]
fn a_repeat_is_paired_with_the_baseline_that_was_measured_beside_it() {
    let (found, counted) = paired(&[
        ("local", 0, 100.0, true),
        ("on", 0, 1.0, false),
        ("off", 0, 110.0, true),
        ("on", 1, 60.0, true),
        ("local", 1, 120.0, true),
    ]);
    assert_eq!(values(&found), [(60.0, 120.0)]);
    assert_eq!(counted, [1, 5], "the original stays for `off`");
}

#[test]
fn a_pair_with_an_invalid_baseline_is_left_out() {
    let (found, _) = paired(&[
        ("local", 0, 100.0, true),
        ("on", 0, 1.0, false),
        ("on", 1, 60.0, true),
        ("local", 1, 120.0, false),
    ]);
    assert_eq!(values(&found), []);
}

/// `on` was repeated with the baseline beside it; `off` was measured when the baseline's first trial failed.
#[test]
fn a_baseline_that_failed_is_not_replaced_by_a_later_one() {
    const NONE: Vec<(f64, f64)> = Vec::new();
    let mut trials: Vec<Trial> = [
        ("local", 0, 100.0, true),
        ("on", 0, 1.0, false),
        ("off", 0, 110.0, true),
        ("on", 1, 60.0, true),
        ("local", 1, 120.0, true),
    ]
    .iter()
    .map(one)
    .collect();
    let pairs = |trials: &[Trial]| {
        let stored = experiment(&["local", "on", "off"], trials.to_vec());
        let by_condition = by_condition(&stored.manifest, &stored.trials);
        ["on", "off"].map(|name| {
            values(&PairedTrials::new(&by_condition[name], &by_condition["local"]).values(RATE))
        })
    };
    assert_eq!(pairs(&trials), [vec![(60.0, 120.0)], vec![(110.0, 100.0)]]);
    trials[0].outcome = Outcome::Failed { error: "out of memory".to_owned() };
    assert_eq!(pairs(&trials), [vec![(60.0, 120.0)], NONE]);
    // Nor is one that a check across trials invalidates after the block.
    trials[0].outcome = Outcome::Complete;
    trials[0].checks.push(Check::invalid("data-drift", "10 rows", "load again"));
    assert_eq!(pairs(&trials), [vec![(60.0, 120.0)], NONE]);
    // Without the repeat of `on`, the block is left out as well.
    trials.truncate(3);
    assert_eq!(pairs(&trials), [NONE, NONE]);
    // Alone, a repeat of a failed baseline has no pair either.
    trials[0] = one(&("local", 0, 100.0, true));
    trials[0].outcome = Outcome::Failed { error: "out of memory".to_owned() };
    trials.push(one(&("local", 1, 120.0, true)));
    assert_eq!(pairs(&trials), [NONE, NONE]);
}

/// The rates of `on` and `off`, paired as compared with `off`, in an experiment whose baseline is `local`.
fn against_off(trials: &[(&str, u32, f64, bool)]) -> Vec<(f64, f64)> {
    let stored = experiment(&["local", "on", "off"], trials.iter().map(one).collect());
    let stored = stored.with_baseline("off").unwrap();
    let by_condition = by_condition(&stored.manifest, &stored.trials);
    values(&PairedTrials::new(&by_condition["on"], &by_condition["off"]).values(RATE))
}

#[test]
fn against_another_condition_a_repeat_counts_by_the_baseline_beside_it() {
    // The machine became slower by a fifth until the repeat.
    let mut trials = vec![
        ("local", 0, 100.0, true),
        ("on", 0, 1.0, false),
        ("off", 0, 110.0, true),
        ("on", 1, 48.0, true),
        ("local", 1, 80.0, true),
    ];
    assert_eq!(against_off(&trials), [(60.0, 110.0)]);
    // The repeat is that of the new baseline.
    let other = [
        ("local", 0, 100.0, true),
        ("on", 0, 60.0, true),
        ("off", 0, 1.0, false),
        ("off", 1, 88.0, true),
        ("local", 1, 80.0, true),
    ];
    assert_eq!(against_off(&other), [(48.0, 88.0)]);
    // Without a trial beside it, a repeat has no partner.
    trials.pop();
    assert_eq!(against_off(&trials), []);
    // Both were repeated together.
    let both = [
        ("local", 0, 1.0, false),
        ("on", 0, 60.0, true),
        ("off", 0, 110.0, true),
        ("on", 1, 48.0, true),
        ("off", 1, 88.0, true),
        ("local", 1, 80.0, true),
    ];
    assert_eq!(against_off(&both), [(48.0, 88.0)]);
}
