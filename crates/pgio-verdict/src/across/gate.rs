//! Whether new runs are worse than old ones by more than a share, for scripts.
//!
//! A rule names the direction, the share, and perhaps a metric. It fails for a condition if the whole
//! interval of B against A lies beyond the share, and passes if the whole interval does not reach it;
//! otherwise, and with too few runs to judge, it is undecided. The interval is the one that is shown
//! (Welch's, over runs), so that report and gate never contradict each other. A secondary metric has the
//! interval of its family, unless a rule names the metric: then it is judged on its own ([`Across::named`]).
//!
//! The interval comes from the trials that have a value. So no condition passes of which a run has none, or that
//! failed in a larger share of the new trials. It fails if Fisher's exact test tells the shares apart and most new
//! runs have failed trials: failures in one run may be one event.

use super::super::comparison::{ALPHA, Gate};
use super::{Across, AcrossComparison, MIN_RUNS};
use crate::shares;
use benchmath::fisher;
use benchmath::margin::LARGEST_SHARE;
use pgio_results::Trial;
use pgio_results::metrics::Direction;
use pgio_results::points::Point;
use pgio_results::store::StoredExperiment;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Slower,
    /// Slower or faster, more or less.
    Changed,
}

/// `slower:5%` or `commit_latency_p99:slower:10%`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The primary metric if absent.
    pub metric: Option<String>,
    pub change: Change,
    /// Above 0, at most [`LARGEST_SHARE`].
    pub share: f64,
}

/// The answer of a rule for one condition.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleResult {
    pub condition: String,
    pub metric: String,
    pub gate: Gate,
    /// The answer of the interval alone.
    pub by_interval: Gate,
    /// The failed trials of both sides, if a larger share of the new ones failed.
    pub failures: Option<AcrossFailures>,
    /// Why a ruling is undecided, if the interval does not say so.
    pub obstacle: Option<String>,
    /// The comparison that was judged.
    pub comparison: AcrossComparison,
}

/// Why a rule cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("no run has the metric `{name}` on both sides (metrics: {})", known.join(", "))]
    NoMetric { name: String, known: Vec<String> },
    #[error("{0} has no better direction, so `slower` does not apply: use changed:SHARE")]
    Neutral(String),
}

/// Applies a rule to every condition that both sides have, the baseline first.
pub fn judge(across: &Across, rule: &Rule) -> Result<Vec<RuleResult>, RuleError> {
    let metric = rule.metric.as_ref().unwrap_or(&across.primary_metric);
    let has_metric = |c: &&AcrossComparison| c.metric == *metric;
    let compared: Vec<&AcrossComparison> = across.comparisons.iter().filter(has_metric).collect();
    if compared.is_empty() {
        let mut known: Vec<String> = across.comparisons.iter().map(|c| c.metric.clone()).collect();
        known.sort();
        known.dedup();
        return Err(RuleError::NoMetric { name: metric.clone(), known });
    }
    let direction = across.direction(metric);
    if direction == Direction::Neutral && rule.change == Change::Slower {
        return Err(RuleError::Neutral(metric.clone()));
    }
    Ok(compared.into_iter().map(|c| ruling(across, c, rule, direction)).collect())
}

fn ruling(across: &Across, c: &AcrossComparison, rule: &Rule, direction: Direction) -> RuleResult {
    let by_interval = interval_gate(c, rule, direction);
    let failures = across.failures.iter().find(|f| f.condition == c.condition && f.is_more());
    let obstacles: Vec<String> = missing(across, c).into_iter().chain(no_interval(c)).collect();
    let gate = match by_interval.unwrap_or(Gate::Undecided) {
        _ if failures.is_some_and(|f| is_told_apart(across, f)) => Gate::Fail,
        Gate::Pass if failures.is_some() || !obstacles.is_empty() => Gate::Undecided,
        gate => gate,
    };
    let is_obstructed = gate == Gate::Undecided && !obstacles.is_empty();
    RuleResult {
        condition: c.condition.clone(),
        metric: c.metric.clone(),
        gate,
        by_interval: by_interval.unwrap_or(Gate::Undecided),
        failures: failures.cloned(),
        obstacle: is_obstructed.then(|| obstacles.join("; ")),
        comparison: c.clone(),
    }
}

/// Whether the larger share of failed trials cannot be chance.
fn is_told_apart(across: &Across, failures: &AcrossFailures) -> bool {
    let is_enough = across.a.runs.min(across.b.runs) >= MIN_RUNS;
    let is_in_most = 2 * failures.b.runs > across.b.runs;
    is_enough && is_in_most && failures.p.is_some_and(|p| p <= ALPHA)
}

/// Which runs have no value of the compared metric.
fn missing(across: &Across, c: &AcrossComparison) -> Vec<String> {
    let missing_on = |(side, without, runs): (&str, &[usize], usize)| {
        let which = match without {
            [] => return None,
            _ if without.len() == runs => format!("no {side} run has a"),
            [one] => format!("{side} run {one} of {runs} has no"),
            several => {
                let numbers: Vec<String> = several.iter().map(usize::to_string).collect();
                format!("{side} runs {} of {runs} have no", numbers.join(", "))
            }
        };
        Some(format!("{which} valid trial with {}", c.metric))
    };
    let sides = [
        ("new", c.runs_without_b.as_slice(), across.b.runs),
        ("old", c.runs_without_a.as_slice(), across.a.runs),
    ];
    sides.into_iter().filter_map(missing_on).collect()
}

/// The answer of the interval; `None` without one.
fn interval_gate(c: &AcrossComparison, rule: &Rule, direction: Direction) -> Option<Gate> {
    let share = rule.share.min(LARGEST_SHARE);
    let (low, high) = (1.0 - share, 1.0 + share);
    c.interval.sides().map(|(from, to)| {
        let (below, above) = (to < low, from > high);
        let (not_below, not_above) = (from >= low, to <= high);
        let (worse, not_worse) = match (rule.change, direction) {
            (Change::Slower, Direction::HigherIsFaster) => (below, not_below),
            (Change::Slower, Direction::LowerIsFaster) => (above, not_above),
            _ => (below || above, not_below && not_above),
        };
        match (worse, not_worse) {
            (true, _) => Gate::Fail,
            (false, true) => Gate::Pass,
            (false, false) => Gate::Undecided,
        }
    })
}

/// Why there is no interval, if there is none.
fn no_interval(c: &AcrossComparison) -> Option<String> {
    if c.interval.sides().is_some() {
        return None;
    }
    Some(match &c.obstacle {
        Some(why) => why.clone(),
        None if c.runs_a.min(c.runs_b) >= MIN_RUNS => {
            "its runs do not vary, so nothing can be judged".to_owned()
        }
        None => {
            format!("{} new and {} old runs, {MIN_RUNS} of each are needed", c.runs_b, c.runs_a)
        }
    })
}

// A failed trial has no value, so a condition that fails more often would seem unchanged: its ratio describes
// the trials that completed. Outcomes are counted as within an experiment (`shares`), at all points of a sweep
// that both sides have. Fisher's test alone, whose unit is the trial, does not
// know that the trials of a run share what befell it.

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
pub(super) fn all_failures(
    conditions: &[String],
    a: &[StoredExperiment],
    b: &[StoredExperiment],
) -> Vec<AcrossFailures> {
    let counted = conditions.iter().map(|condition| condition_failures(condition, a, b));
    counted.filter(|found| found.a.failed + found.b.failed > 0).collect()
}

fn condition_failures(
    condition: &str,
    a: &[StoredExperiment],
    b: &[StoredExperiment],
) -> AcrossFailures {
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
    use super::super::across;
    use super::*;
    use crate::Verdict;
    use crate::test_support::{experiment, stored_runs, swept, trial};
    use pgio_results::{Check, Outcome};

    /// Runs that vary by 0.4 %, with other trials of `on`.
    fn with_on(runs: u32, level: f64, change: impl Fn(u32, &mut Trial)) -> Vec<StoredExperiment> {
        let mut all = stored_runs(runs, |run| level * (1.0 + 0.004 * f64::from(run % 3)));
        for (number, run) in (1..).zip(&mut all) {
            let is_on = |t: &&mut Trial| t.is_of("on");
            run.trials.iter_mut().filter(is_on).for_each(|t| change(number, t));
        }
        all
    }

    fn fail(trial: &mut Trial) {
        trial.outcome = Outcome::Failed { error: "out of memory".to_owned() };
    }

    /// The ruling about `on`; that about the others must be a pass.
    fn ruling_on(old: &[StoredExperiment], new: &[StoredExperiment]) -> RuleResult {
        let found = judge(&across(old, new, &[]), &slower(0.05)).unwrap();
        let find = |name: &str| found.iter().find(|r| r.condition == name).unwrap();
        assert_eq!((find("local").gate, find("remote_apply").gate), (Gate::Pass, Gate::Pass));
        find("on").clone()
    }

    #[test]
    fn a_run_without_a_valid_trial_leaves_the_ruling_undecided() {
        let old = with_on(4, 1.0, |_, _| ());
        let steal = |t: &mut Trial| t.checks.push(Check::invalid("steal", "30 %", "elsewhere"));
        let dead = |run: u32, t: &mut Trial| {
            if run == 2 {
                fail(t);
            }
        };
        let invalid = |run: u32, t: &mut Trial| {
            if run >= 3 {
                steal(t);
            }
        };
        let new = with_on(4, 1.0, dead);
        let found = ruling_on(&old, &new);
        let why = "new run 2 of 4 has no valid trial with commits_per_second";
        assert_eq!((found.gate, found.by_interval), (Gate::Undecided, Gate::Pass));
        assert_eq!(found.obstacle.as_deref(), Some(why));
        assert_eq!((found.comparison.runs_b, found.comparison.trials_b), (3, 12));
        assert_eq!(found.failures.unwrap().b.failed, 4);
        // The same on the other side, where no more trials of the new runs failed.
        let found = ruling_on(&new, &old);
        let why = "old run 2 of 4 has no valid trial with commits_per_second";
        assert_eq!((found.gate, found.obstacle.as_deref()), (Gate::Undecided, Some(why)));
        assert_eq!(found.failures, None);
        let found = ruling_on(&old, &with_on(4, 1.0, invalid));
        let why = "new runs 3, 4 of 4 have no valid trial with commits_per_second; \
                   2 new and 4 old runs, 3 of each are needed";
        assert_eq!((found.gate, found.obstacle.as_deref()), (Gate::Undecided, Some(why)));
        let found = ruling_on(&old, &with_on(4, 1.0, |_, t| steal(t)));
        let why = "no new run has a valid trial with commits_per_second; \
                   0 new and 4 old runs, 3 of each are needed";
        assert_eq!((found.gate, found.obstacle.as_deref()), (Gate::Undecided, Some(why)));
        // What is slower in the other runs fails all the same.
        let rule = slower(0.05);
        let found = judge(&across(&old, &with_on(4, 0.8, dead), &[]), &rule).unwrap();
        assert!(found.iter().all(|r| r.gate == Gate::Fail && r.obstacle.is_none()), "{found:?}");
    }

    #[test]
    fn a_condition_that_fails_more_often_than_before_does_not_pass() {
        let up_to = |runs: u32, blocks: u32| {
            move |run: u32, t: &mut Trial| {
                if run <= runs && t.place.as_ref().unwrap().block <= blocks {
                    fail(t);
                }
            }
        };
        let old = with_on(4, 1.0, |_, _| ());
        let gate = |new: &[StoredExperiment]| {
            let found = ruling_on(&old, new);
            assert_eq!((found.by_interval, found.obstacle), (Gate::Pass, None));
            (found.gate, found.failures.map(|f| (f.b.failed, f.b.of, f.b.runs)))
        };
        assert_eq!(gate(&old), (Gate::Pass, None));
        // Half of the trials in all runs: Fisher's p is 0.002.
        let half = with_on(4, 1.0, up_to(4, 2));
        assert_eq!(gate(&half), (Gate::Fail, Some((8, 16, 4))));
        // One of four trials in two runs: p is 0.48.
        assert_eq!(gate(&with_on(4, 1.0, up_to(2, 1))), (Gate::Undecided, Some((2, 16, 2))));
        // Three of four in two runs: p is 0.018, but it may be one event in each.
        assert_eq!(gate(&with_on(4, 1.0, up_to(2, 3))), (Gate::Undecided, Some((6, 16, 2))));
        // As often as before.
        assert_eq!(ruling_on(&half, &half).gate, Gate::Pass);
        assert_eq!(ruling_on(&half, &old).gate, Gate::Pass);
        // With too few runs, failures decide nothing either.
        let (old, new) = (with_on(2, 1.0, |_, _| ()), with_on(2, 1.0, up_to(2, 4)));
        let found = judge(&across(&old, &new, &[]), &slower(0.05)).unwrap();
        assert!(found.iter().all(|r| r.gate == Gate::Undecided), "{found:?}");
    }

    #[test]
    fn a_condition_that_always_fails_fails() {
        let old = with_on(3, 1.0, |_, _| ());
        let found = ruling_on(&old, &with_on(3, 1.0, |_, t| fail(t)));
        assert_eq!((found.gate, found.by_interval), (Gate::Fail, Gate::Undecided));
        assert_eq!((found.obstacle, found.failures.unwrap().b.failed), (None, 12));
    }

    fn rulings(old: u32, new: u32, level: f64, rule: &Rule) -> Vec<Gate> {
        let vary = |run: u32| 1.0 + 0.004 * f64::from(run % 3);
        let a = stored_runs(old, vary);
        let b = stored_runs(new, |run| level * vary(run));
        judge(&across(&a, &b, &[]), rule).unwrap().iter().map(|ruling| ruling.gate).collect()
    }

    fn slower(share: f64) -> Rule {
        Rule { metric: None, change: Change::Slower, share }
    }

    #[test]
    fn the_interval_decides_on_both_sides_of_the_share() {
        assert_eq!(rulings(6, 6, 0.88, &slower(0.05)), [Gate::Fail; 3]);
        assert_eq!(rulings(6, 6, 1.0, &slower(0.05)), [Gate::Pass; 3]);
        assert_eq!(rulings(6, 6, 0.95, &slower(0.05)), [Gate::Undecided; 3]);
        // Faster is no reason to fail, unless any change is.
        assert_eq!(rulings(6, 6, 1.2, &slower(0.05)), [Gate::Pass; 3]);
        let changed = Rule { change: Change::Changed, ..slower(0.05) };
        assert_eq!(rulings(6, 6, 1.2, &changed), [Gate::Fail; 3]);
    }

    #[test]
    fn too_few_runs_decide_nothing_and_say_so() {
        let (a, b) = (stored_runs(3, |_| 1.0), stored_runs(1, |_| 0.5));
        let found = judge(&across(&a, &b, &[]), &slower(0.05)).unwrap();
        assert_eq!(found[0].gate, Gate::Undecided);
        let why = found[0].obstacle.as_deref();
        assert_eq!(why, Some("1 new and 3 old runs, 3 of each are needed"));
    }

    #[test]
    fn runs_without_any_spread_decide_nothing_and_say_so() {
        let runs = |rate: f64| -> Vec<StoredExperiment> {
            let block = |block| trial("local", block, &[("commits_per_second", rate)]);
            vec![experiment(&["local"], (1..=2).map(block).collect()); 3]
        };
        let found = across(&runs(100.0), &runs(50.0), &[]);
        let c = &found.comparisons[0];
        assert_eq!(c.verdict, Verdict::NotApplicable);
        assert!((c.ratio.unwrap() - 0.5).abs() < 1e-12, "{c:?}");
        let ruling = &judge(&found, &slower(0.05)).unwrap()[0];
        assert_eq!(ruling.gate, Gate::Undecided);
        assert_eq!(
            ruling.obstacle.as_deref(),
            Some("its runs do not vary, so nothing can be judged")
        );
        let equal = across(&runs(100.0), &runs(100.0), &[]);
        assert_eq!(equal.comparisons[0].verdict, Verdict::NoDifference);
    }

    #[test]
    fn a_metric_that_is_missing_is_refused() {
        let a = stored_runs(3, |_| 1.0);
        let rule = Rule { metric: Some("tps".to_owned()), ..slower(0.05) };
        let error = judge(&across(&a, &a, &[]), &rule).unwrap_err().to_string();
        assert!(
            error.starts_with("no run has the metric `tps` on both sides (metrics: commits"),
            "{error}"
        );
    }

    /// Fails the trials of `on` in these runs, counted from 0, up to this block of four.
    fn failing(
        mut runs: Vec<StoredExperiment>,
        which: &[usize],
        blocks: u32,
    ) -> Vec<StoredExperiment> {
        for run in which {
            let fails = |t: &&mut Trial| {
                t.place.as_ref().is_some_and(|p| p.condition == "on" && p.block <= blocks)
            };
            runs[*run].trials.iter_mut().filter(fails).for_each(fail);
        }
        runs
    }

    #[test]
    fn failed_trials_are_counted_by_side_and_run() {
        let names = ["local", "on"].map(str::to_owned);
        let old = stored_runs(3, |_| 1.0);
        assert_eq!(all_failures(&names, &old, &old), []);
        let new = failing(old.clone(), &[0, 2], 2);
        let found = all_failures(&names, &old, &new);
        let [on] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(on.condition, "on");
        assert_eq!(on.a, FailureCount { failed: 0, of: 12, runs: 0 });
        assert_eq!(on.b, FailureCount { failed: 4, of: 12, runs: 2 });
        // R: fisher.test(rbind(c(4, 8), c(0, 12))): p = 0.0932.
        assert!((on.p.unwrap() - 0.0932).abs() < 1e-4 && on.is_more(), "{on:?}");
        assert!(!all_failures(&names, &new, &old)[0].is_more());
        assert!(!all_failures(&names, &new, &new)[0].is_more());
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
        let found = all_failures(&names, std::slice::from_ref(&old), std::slice::from_ref(&new));
        assert_eq!(found[0].a, FailureCount { failed: 0, of: 12, runs: 0 });
        assert_eq!(found[0].b, FailureCount { failed: 1, of: 11, runs: 1 });
        let mut without = old;
        without.trials.retain(|t| t.place.as_ref().unwrap().point["delay"] != 5);
        assert_eq!(all_failures(&names, &[without], &[new]), []);
    }
}
