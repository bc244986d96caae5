//! Compares the shares of failed, invalid and badly behaved trials of a condition with the baseline's.
//!
//! A failed trial has no rate, so more failures under a condition are a result in themselves. Fisher's exact test
//! compares the shares at [`ALPHA`]. A share of results is also shown if only one side has such trials, even if they
//! are too few to decide; invalid ones alone reveal nothing about their condition. Trials at all points count, the
//! baseline's at the points of the condition. Interrupted trials are ignored.

use std::collections::BTreeSet;

use benchmath::fisher;

use super::comparison::{ALPHA, Comparison, Verdict};
use super::condition::{Condition, Share, State};
use super::pairing::{ByCondition, ConditionTrials};
use pgio_results::points::Point;
use pgio_results::store::Manifest;
use pgio_results::{CheckVerdict, Outcome, Trial, checks};

pub const FAILED: &str = "failed";
pub const INVALID: &str = "invalid";

/// Outcomes of one side's trials.
#[derive(Default)]
struct Counts<'a> {
    failed: usize,
    invalid: usize,
    trials: usize,
    /// For each valid trial, the ids of its failed checks of behavior.
    valid: Vec<BTreeSet<&'a str>>,
}

impl<'a> Counts<'a> {
    fn new(trials: impl Iterator<Item = &'a Trial>) -> Counts<'a> {
        let mut counts = Counts::default();
        for trial in trials.filter(|t| t.outcome != Outcome::Interrupted) {
            counts.trials += 1;
            let mut broken = trial.checks.iter().filter(|c| c.verdict == CheckVerdict::Invalid);
            match trial.outcome {
                Outcome::Complete if broken.next().is_none() => {
                    let bad = trial.checks.iter().filter(|c| c.verdict != CheckVerdict::Ok);
                    let bad = bad.filter(|c| checks::is_behavior(c));
                    counts.valid.push(bad.map(|c| c.id.as_str()).collect());
                }
                Outcome::Complete => counts.invalid += 1,
                // A trial whose condition could not be applied is invalid, not failed. Any other check may
                // follow from the failure, as a canceled wait for a standby does.
                _ if broken.any(|c| c.id == checks::IN_FORCE) => counts.invalid += 1,
                Outcome::Failed { .. } | Outcome::Interrupted => counts.failed += 1,
            }
        }
        counts
    }

    fn with(&self, id: &str) -> usize {
        self.valid.iter().filter(|ids| ids.contains(id)).count()
    }
}

/// Compares the shares of a condition with the baseline's, without outcomes that neither side has. `by_condition`
/// holds the trials at all points.
pub(super) fn shares(
    manifest: &Manifest,
    by_condition: &ByCondition<'_>,
    condition: &str,
) -> Vec<Share> {
    let (Some(ours), Some(theirs)) =
        (by_condition.get(condition), by_condition.get(manifest.baseline.as_str()))
    else {
        return Vec::new();
    };
    if condition == manifest.baseline {
        return Vec::new();
    }
    let mut points: Vec<&Point> = Vec::new();
    for point in trials(ours).filter_map(point) {
        if !points.contains(&point) {
            points.push(point);
        }
    }
    let there = trials(theirs).filter(|t| point(t).is_some_and(|p| points.contains(&p)));
    let (a, b) = (Counts::new(trials(ours)), Counts::new(there));
    let mut all = vec![
        share(FAILED, (a.failed, a.trials), (b.failed, b.trials)),
        share(INVALID, (a.invalid, a.trials), (b.invalid, b.trials)),
    ];
    let ids: BTreeSet<&str> = a.valid.iter().chain(&b.valid).flatten().copied().collect();
    all.extend(
        ids.into_iter()
            .map(|id| share(id, (a.with(id), a.valid.len()), (b.with(id), b.valid.len()))),
    );
    all.retain(|share| share.trials + share.baseline_trials > 0);
    all
}

/// How many of these trials failed, and how many there are without interrupted ones.
pub(super) fn failed<'a>(trials: impl Iterator<Item = &'a Trial>) -> (usize, usize) {
    let counts = Counts::new(trials);
    (counts.failed, counts.trials)
}

/// The share of a condition's trials that failed, if it is larger than the baseline's. It need not be notable: a
/// condition with even more failures must not pass because the baseline has one as well.
pub fn failed_more(condition: &Condition) -> Option<&Share> {
    let is_larger = |s: &Share| s.trials * s.baseline_of > s.baseline_trials * s.of;
    condition.shares.iter().find(|s| s.what == FAILED && is_larger(s))
}

fn trials<'a>(condition: &ConditionTrials<'a>) -> impl Iterator<Item = &'a Trial> {
    condition.all.iter().map(|(_, trial)| *trial)
}

fn point(trial: &Trial) -> Option<&Point> {
    trial.place.as_ref().map(|place| &place.point)
}

fn share(what: &str, (a, of_a): (usize, usize), (b, of_b): (usize, usize)) -> Share {
    let p = fisher::two_sided(a as u64, of_a as u64, b as u64, of_b as u64);
    let is_one_sided = what != INVALID && of_a > 0 && of_b > 0 && (a == 0) != (b == 0);
    Share {
        what: what.to_owned(),
        trials: a,
        of: of_a,
        baseline_trials: b,
        baseline_of: of_b,
        p,
        notable: p.is_some_and(|p| p <= ALPHA) || is_one_sided,
    }
}

pub(super) fn state(
    condition: &Condition,
    ran: &ConditionTrials<'_>,
    primary: Option<&Comparison>,
) -> State {
    let ran = || trials(ran).filter(|t| t.outcome != Outcome::Interrupted);
    if ran().next().is_none() {
        State::NotRun
    } else if ran().all(|t| t.outcome != Outcome::Complete) {
        State::Failed
    } else if condition.valid == 0 {
        State::NoValidTrial
    } else if primary.is_some_and(|c| c.verdict == Verdict::TooFewBlocks) {
        State::Undecided
    } else {
        State::Measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze;
    use crate::test_support::{experiment, trial};
    use pgio_results::Check;
    use pgio_results::store::StoredExperiment;

    const RATE: &str = "commits_per_second";

    fn ten(change: impl Fn(u32, &mut Trial)) -> StoredExperiment {
        let block = |block: u32| {
            let mut on = trial("on", block, &[(RATE, 500.0 + f64::from(block))]);
            change(block, &mut on);
            [trial("local", block, &[(RATE, 1000.0 + f64::from(block))]), on]
        };
        experiment(&["local", "on"], (1..=10).flat_map(block).collect())
    }

    fn share_of(stored: &StoredExperiment, what: &str) -> Option<Share> {
        let analysis = analyze(stored);
        let shares = &analysis.condition("on").unwrap().shares;
        shares.iter().find(|s| s.what == what).cloned()
    }

    fn fail(trial: &mut Trial) {
        trial.outcome = Outcome::Failed { error: "server closed the connection".to_owned() };
    }

    #[test]
    fn failed_trials_are_shown_even_if_too_few_to_decide() {
        let stored = ten(|block, on| {
            if block <= 3 {
                fail(on);
            }
        });
        let found = share_of(&stored, FAILED).unwrap();
        assert_eq!(
            (found.trials, found.of, found.baseline_trials, found.baseline_of),
            (3, 10, 0, 10)
        );
        assert!((found.p.unwrap() - 0.2105).abs() < 1e-4 && found.notable);
        let analysis = analyze(&stored);
        assert_eq!(failed_more(analysis.condition("on").unwrap()), Some(&found));
        let less = Share { trials: 0, baseline_trials: 3, ..found };
        let mut on = analysis.condition("on").unwrap().clone();
        on.shares = vec![less];
        assert_eq!(failed_more(&on), None);
        // That a few trials on one side were broken is chance.
        let broken = ten(|block, on| {
            on.checks.extend((block <= 3).then(|| Check::invalid("steal", "30 %", "elsewhere")));
        });
        assert!(!share_of(&broken, INVALID).unwrap().notable);
        assert_eq!(share_of(&ten(|_, _| ()), FAILED), None);
    }

    #[test]
    fn trials_with_a_failed_check_of_behavior_count_and_form_a_share() {
        let slow = |block: u32, on: &mut Trial| {
            if block <= 6 {
                on.checks.push(Check::warning("rate-not-reached", "40 %", "ask for less"));
            }
        };
        let found = share_of(&ten(slow), "rate-not-reached").unwrap();
        assert!(found.notable && found.p.unwrap() < 0.05);
        assert_eq!(analyze(&ten(slow)).primary("on").unwrap().blocks, 10);
        // A check that only the writer of the record knew.
        let own = |behavior: bool| {
            let check = Check { behavior, ..Check::warning("own", "40 %", "ask for less") };
            ten(move |block, on| on.checks.extend((block <= 6).then(|| check.clone())))
        };
        assert_eq!(share_of(&own(true), "own").unwrap().trials, 6);
        assert_eq!(share_of(&own(false), "own"), None);
    }

    #[test]
    fn a_condition_that_could_not_be_put_in_force_did_not_fail_by_itself() {
        let stored = ten(|block, on| {
            if block == 1 {
                fail(on);
                on.checks.push(Check::invalid("treatment-in-force", "off, not on", "see who"));
            }
        });
        assert_eq!(share_of(&stored, FAILED), None);
        assert_eq!(share_of(&stored, INVALID).unwrap().trials, 1);
    }

    #[test]
    fn a_failed_trial_is_in_the_share_of_failed_ones_despite_checks() {
        for id in ["synchronous-wait-cancelled", "background", "environment-changed"] {
            let stored = ten(|block, on| {
                if block <= 6 {
                    fail(on);
                    on.checks.push(Check::invalid(id, "it broke", "see why"));
                }
            });
            assert_eq!(share_of(&stored, FAILED).map(|share| share.trials), Some(6), "{id}");
            assert_eq!(share_of(&stored, INVALID), None, "{id}");
        }
    }

    #[test]
    fn trials_that_were_interrupted_are_in_no_share() {
        let stored = ten(|block, on| {
            if block == 10 {
                on.outcome = Outcome::Interrupted;
            }
        });
        assert_eq!(analyze(&stored).condition("on").unwrap().shares, []);
    }

    #[test]
    fn each_state_has_its_reason() {
        let state = |stored: &StoredExperiment| analyze(stored).condition("on").unwrap().state;
        assert_eq!(state(&ten(|_, _| ())), State::Measured);
        assert_eq!(state(&ten(|_, on| fail(on))), State::Failed);
        let steal = |t: &mut Trial| t.checks.push(Check::invalid("steal", "30 %", "elsewhere"));
        assert_eq!(state(&ten(|_, on| steal(on))), State::NoValidTrial);
        assert_eq!(
            state(&ten(|block, on| if block > 4 {
                fail(on);
            })),
            State::Undecided
        );
        assert_eq!(state(&ten(|_, on| on.outcome = Outcome::Interrupted)), State::NotRun);
    }
}
