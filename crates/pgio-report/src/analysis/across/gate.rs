//! Whether new runs are worse than old ones by more than a share, for scripts.
//!
//! A rule names the direction, the share, and perhaps a metric. It fails for a condition if the whole
//! interval of B against A lies beyond the share, and passes if the whole interval does not reach it;
//! otherwise, and with too few runs to judge, it is undecided. The interval is the one that is shown
//! (Welch's, over runs), so that report and gate never contradict each other. A secondary metric has the
//! interval of its family, unless a rule names the metric: then it is judged on its own ([`Across::named`]).

use super::super::verdict::{Gate, Verdict};
use super::{Across, AcrossComparison, MIN_RUNS};
use benchmath::margin::LARGEST_SHARE;
use pgio_results::metrics::Direction;

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
    /// Why a ruling is undecided without an interval.
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
    let of_it = |c: &&AcrossComparison| c.metric == *metric;
    let compared: Vec<&AcrossComparison> = across.comparisons.iter().filter(of_it).collect();
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
    Ok(compared.into_iter().map(|c| ruling(c, rule, direction)).collect())
}

fn ruling(c: &AcrossComparison, rule: &Rule, direction: Direction) -> RuleResult {
    let share = rule.share.min(LARGEST_SHARE);
    let (low, high) = (1.0 - share, 1.0 + share);
    let gate = c.interval.sides().map(|(from, to)| {
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
    });
    let obstacle = match (gate, c.verdict) {
        (Some(_), _) => None,
        (None, Verdict::NotApplicable) if c.ratio.is_none() => {
            Some("its values cannot be compared".to_owned())
        }
        (None, _) if c.runs_a.min(c.runs_b) >= MIN_RUNS => {
            Some("its runs do not vary, so nothing can be judged".to_owned())
        }
        (None, _) => Some(format!(
            "{} new and {} old runs, {MIN_RUNS} of each are needed",
            c.runs_b, c.runs_a
        )),
    };
    RuleResult {
        condition: c.condition.clone(),
        metric: c.metric.clone(),
        gate: gate.unwrap_or(Gate::Undecided),
        obstacle,
        comparison: c.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::across;
    use super::*;
    use crate::analysis::test_support::{experiment, stored_runs, trial};
    use pgio_results::store::StoredExperiment;

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
}
