//! Failed trials of both sides, condition by condition.
//!
//! A failed trial has no value, so a condition that fails more often would seem unchanged: its ratio is that of
//! the trials that completed. Outcomes are counted as within an experiment (`shares`), at all points of a sweep
//! that both sides have. What follows is decided by `gate`; Fisher's test alone, whose unit is the trial, does not
//! know that the trials of a run share what befell it.

use benchmath::fisher;
use pgio_results::Trial;
use pgio_results::store::StoredExperiment;
use pgio_results::sweep::Point;
use serde::{Deserialize, Serialize};

use crate::analysis::shares;

/// The failed trials of a condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AcrossFailures {
    pub condition: String,
    pub a: FailureCount,
    pub b: FailureCount,
    /// Two-sided p of Fisher's exact test with the trial as the unit; null if a side has no trials.
    pub p: Option<f64>,
}

/// The failed trials of one side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailureCount {
    pub failed: usize,
    /// Number of trials, without interrupted ones.
    pub of: usize,
    /// Number of runs with a failed trial.
    pub runs: usize,
}

impl AcrossFailures {
    /// Whether the share of B is larger.
    pub fn is_more(&self) -> bool {
        self.b.failed * self.a.of > self.a.failed * self.b.of
    }
}

/// The failures of each of these conditions that has any.
pub(super) fn all(
    conditions: &[String],
    a: &[StoredExperiment],
    b: &[StoredExperiment],
) -> Vec<AcrossFailures> {
    let counted = conditions.iter().map(|condition| of_condition(condition, a, b));
    counted.filter(|found| found.a.failed + found.b.failed > 0).collect()
}

fn of_condition(condition: &str, a: &[StoredExperiment], b: &[StoredExperiment]) -> AcrossFailures {
    let (of_a, of_b) = (points(a, condition), points(b, condition));
    let is_common = |trial: &Trial| {
        point(trial).is_some_and(|point| of_a.contains(&point) && of_b.contains(&point))
    };
    let count = |runs: &[StoredExperiment]| {
        runs.iter().fold(FailureCount::default(), |sum, run| {
            let (failed, of) = shares::failed(trials(run, condition).filter(|t| is_common(t)));
            FailureCount {
                failed: sum.failed + failed,
                of: sum.of + of,
                runs: sum.runs + usize::from(failed > 0),
            }
        })
    };
    let (a, b) = (count(a), count(b));
    let p = fisher::two_sided(b.failed as u64, b.of as u64, a.failed as u64, a.of as u64);
    AcrossFailures { condition: condition.to_owned(), a, b, p }
}

fn points<'a>(runs: &'a [StoredExperiment], condition: &str) -> Vec<&'a Point> {
    let mut found: Vec<&Point> = Vec::new();
    for point in runs.iter().flat_map(|run| trials(run, condition)).filter_map(point) {
        if !found.contains(&point) {
            found.push(point);
        }
    }
    found
}

/// All trials of a condition on record, repeats included.
fn trials<'a>(run: &'a StoredExperiment, condition: &str) -> impl Iterator<Item = &'a Trial> {
    run.trials.iter().filter(move |trial| {
        trial.place.as_ref().is_some_and(|p| p.condition == condition && !p.is_burn_in())
    })
}

fn point(trial: &Trial) -> Option<&Point> {
    trial.place.as_ref().map(|place| &place.point)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::test_support::{stored_runs, swept};
    use pgio_results::Outcome;

    fn fail(trial: &mut Trial) {
        trial.outcome = Outcome::Failed { error: "out of memory".to_owned() };
    }

    /// Fails the trials of `on` in these runs, counted from 0, up to this block of four.
    fn failing(
        mut runs: Vec<StoredExperiment>,
        which: &[usize],
        blocks: u32,
    ) -> Vec<StoredExperiment> {
        for run in which {
            let of_on = |t: &&mut Trial| {
                t.place.as_ref().is_some_and(|p| p.condition == "on" && p.block <= blocks)
            };
            runs[*run].trials.iter_mut().filter(of_on).for_each(fail);
        }
        runs
    }

    #[test]
    fn failed_trials_are_counted_by_side_and_run() {
        let names = ["local", "on"].map(str::to_owned);
        let old = stored_runs(3, |_| 1.0);
        assert_eq!(all(&names, &old, &old), []);
        let new = failing(old.clone(), &[0, 2], 2);
        let found = all(&names, &old, &new);
        let [on] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(on.condition, "on");
        assert_eq!(on.a, FailureCount { failed: 0, of: 12, runs: 0 });
        assert_eq!(on.b, FailureCount { failed: 4, of: 12, runs: 2 });
        // R: fisher.test(rbind(c(4, 8), c(0, 12))): p = 0.0932.
        assert!((on.p.unwrap() - 0.0932).abs() < 1e-4 && on.is_more(), "{on:?}");
        assert!(!all(&names, &new, &old)[0].is_more());
        assert!(!all(&names, &new, &new)[0].is_more());
    }

    #[test]
    fn points_that_only_one_side_has_and_interrupted_trials_are_left_out() {
        let names = ["on".to_owned()];
        let (old, mut new) = (swept(2), swept(2));
        let mut away: Vec<&mut Trial> = new
            .trials
            .iter_mut()
            .filter(|t| {
                let place = t.place.as_ref().unwrap();
                place.condition == "on" && place.point["delay"] == 5
            })
            .collect();
        fail(away[0]);
        away[1].outcome = Outcome::Interrupted;
        let found = all(&names, std::slice::from_ref(&old), std::slice::from_ref(&new));
        assert_eq!(found[0].a, FailureCount { failed: 0, of: 12, runs: 0 });
        assert_eq!(found[0].b, FailureCount { failed: 1, of: 11, runs: 1 });
        let mut without = old;
        without.trials.retain(|t| t.place.as_ref().unwrap().point["delay"] != 5);
        assert_eq!(all(&names, &[without], &[new]), []);
    }
}
