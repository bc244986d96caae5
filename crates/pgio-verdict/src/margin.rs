//! Whether an effect exceeds the margin that the experiment names (`matters = "5%"`).
//!
//! An effect matters if its interval lies beyond the margin: it is the interval of the verdict, so what
//! matters was also detected. It does not matter if two one-sided tests exclude both sides of the
//! margin (`benchmath::margin`), for the typical block and for all work over all time, which alone shows stalls.
//! Otherwise these blocks cannot tell. The gate asks about one side only: is the condition worse by more than the
//! margin? A trial that failed has no rate, so the gate also counts failures.

use benchmath::margin::{Answer, Evidence, Margin, Side};
use benchmath::signed_rank;
use pgio_results::metrics::Direction;
use pgio_results::store::Manifest;

use super::compare::Candidate;
use super::comparison::{ALPHA, Bound, Comparison, Decision, Gate, Interval, Verdict};
use super::condition::Condition;
use super::shares;

/// The share that the experiment names as its margin; `None` also for one that no margin may have.
pub(super) fn named(manifest: &Manifest) -> Option<f64> {
    manifest.rules.matters.filter(|share| Margin::from_share(*share).is_some())
}

/// Decides all comparisons of the primary metric, after their family was judged.
pub(super) fn decide(manifest: &Manifest, candidates: &mut [Candidate]) {
    let Some(margin) = manifest.rules.matters.and_then(Margin::from_share) else { return };
    for candidate in candidates.iter_mut().filter(|c| c.comparison.primary) {
        let typical = evidence(candidate, margin);
        let (direction, whole) = (candidate.direction, candidate.whole);
        let logs: Vec<f64> = candidate.logs.iter().map(|log| whole * log).collect();
        let c = &mut candidate.comparison;
        let totals = c.totals.map(|totals| totals.bounds());
        let totals = totals.map(|(low, high)| (low.powf(whole), high.powf(whole)));
        let evidence = totals.map_or(typical, |bounds| margin.require_totals(typical, bounds));
        let is_decided = |e: Evidence| e.answer() != Answer::Undecided;
        let is_passed = |e: Evidence| gate(e, direction) == Gate::Pass;
        c.open_by_totals = (is_decided(typical) && !is_decided(evidence))
            || (is_passed(typical) && !is_passed(evidence));
        let known = c.bound.is_none() && c.ratio.is_some();
        let within = within(&logs, totals).filter(|_| known).unwrap_or_default();
        (c.within_low, c.within_high) = (within.low, within.high);
        c.margin = manifest.rules.matters;
        c.decision = Some(decision(evidence));
        c.gate = Some(gate(evidence, direction));
        c.gate_by_margin = c.gate;
    }
}

/// The interval that decides that an effect does not matter, which must lie within the margin: the interval of both one-sided
/// tests, widened to the one-sided bounds of the totals.
fn within(logs: &[f64], totals: Option<(f64, f64)>) -> Option<Interval> {
    let (low, high) = signed_rank::test(logs, 2.0 * ALPHA)?.bounds?;
    let (least, most) = totals.unwrap_or((f64::INFINITY, 0.0));
    Some(Interval::from_ratio(low.exp().min(least), high.exp().max(most)))
}

fn decision(evidence: Evidence) -> Decision {
    match evidence.answer() {
        Answer::Exceeds => Decision::Matters,
        Answer::Within => Decision::DoesNotMatter,
        Answer::Undecided => Decision::Undecided,
    }
}

/// What is decided about a factor at levels of others, with the interval that decides.
#[derive(Debug, Clone, Copy)]
pub(super) struct LevelDecision {
    decision: Decision,
    within: Option<Interval>,
    open_by_totals: bool,
}

/// Decides about an effect at one level of another factor, by its log-ratios, its interval and the one-sided bounds of
/// its totals. `None` without a margin.
pub(super) fn at_level(
    manifest: &Manifest,
    logs: &[f64],
    bounds: Option<(f64, f64)>,
    totals: Option<(f64, f64)>,
) -> Option<LevelDecision> {
    let margin = manifest.rules.matters.and_then(Margin::from_share)?;
    let typical = bounds.map_or_else(Evidence::default, |(low, high)| {
        margin.judge([Some(low), Some(high)], logs, ALPHA)
    });
    let evidence = totals.map_or(typical, |totals| margin.require_totals(typical, totals));
    let (decision, of_typical) = (decision(evidence), decision(typical));
    let open_by_totals = decision != of_typical;
    Some(LevelDecision { decision, within: within(logs, totals), open_by_totals })
}

impl LevelDecision {
    /// A factor matters if it does at one level, and does not if at neither.
    pub(super) fn and(self, other: LevelDecision) -> LevelDecision {
        let hull = |(a, b): (Interval, Interval)| Interval {
            low: a.low.zip(b.low).map(|(a, b)| a.min(b)),
            high: a.high.zip(b.high).map(|(a, b)| a.max(b)),
        };
        LevelDecision {
            decision: worse(self.decision, other.decision),
            within: self.within.zip(other.within).map(hull),
            open_by_totals: self.open_by_totals || other.open_by_totals,
        }
    }

    /// Replaces what was decided about the average over all levels.
    pub(super) fn adopt(self, c: &mut Comparison) {
        c.decision = Some(self.decision);
        let within = self.within.unwrap_or_default();
        (c.within_low, c.within_high) = (within.low, within.high);
        c.open_by_totals = self.open_by_totals && self.decision == Decision::Undecided;
        c.decision_blocks = None;
    }
}

fn worse(a: Decision, b: Decision) -> Decision {
    match (a, b) {
        (Decision::Matters, _) | (_, Decision::Matters) => Decision::Matters,
        (Decision::DoesNotMatter, Decision::DoesNotMatter) => Decision::DoesNotMatter,
        _ => Decision::Undecided,
    }
}

/// Lets no condition pass the gate that failed in more trials than the baseline, because its interval is that
/// of the trials that completed. It fails if Fisher's exact test tells the two shares apart; otherwise a pass
/// becomes undecided.
pub(super) fn count_failures(conditions: &[Condition], comparisons: &mut [Comparison]) {
    for c in comparisons {
        let condition = conditions.iter().find(|condition| condition.name == c.condition);
        let (Some(gate), Some(share)) = (c.gate, condition.and_then(shares::failed_more)) else {
            continue;
        };
        let is_told_apart = share.p.is_some_and(|p| p <= ALPHA);
        c.gate = Some(match gate {
            _ if is_told_apart => Gate::Fail,
            Gate::Pass | Gate::Undecided => Gate::Undecided,
            Gate::Fail => Gate::Fail,
        });
    }
}

/// What the typical block shows.
fn evidence(candidate: &Candidate, margin: Margin) -> Evidence {
    let c = &candidate.comparison;
    let no_answer = matches!(c.verdict, Verdict::TooFewBlocks | Verdict::NotApplicable);
    if c.ratio.is_none() || no_answer {
        return Evidence::default();
    }
    let whole = candidate.whole;
    let interval = [c.interval.low, c.interval.high].map(|end| end.map(|end| whole * end.ln()));
    let logs: Vec<f64> = candidate.logs.iter().map(|log| whole * log).collect();
    let mut evidence = margin.judge(interval, &logs, ALPHA);
    // A bound says nothing about its unknown side.
    match c.bound {
        Some(Bound::AtMost) => evidence.not_below = false,
        Some(Bound::AtLeast) => evidence.not_above = false,
        None => {}
    }
    evidence
}

fn gate(evidence: Evidence, direction: Direction) -> Gate {
    let Evidence { exceeded, not_below, not_above } = evidence;
    let (worse, not_worse) = match direction {
        Direction::HigherIsFaster => (Some(Side::Below), not_below),
        Direction::LowerIsFaster => (Some(Side::Above), not_above),
        Direction::Neutral => (exceeded, not_below && not_above),
    };
    match exceeded {
        Some(_) if exceeded == worse => Gate::Fail,
        // Perhaps better by more than the margin.
        _ if not_worse => Gate::Pass,
        _ => Gate::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{experiment, failing, trial};
    use super::super::{Interval, analyze};
    use super::*;
    use pgio_results::Outcome;
    use pgio_results::store::StoredExperiment;

    /// Eight blocks: the rate of `x` is the baseline's times `ratio`, with noise of 1 %.
    fn stored(ratio: f64, matters: Option<f64>) -> StoredExperiment {
        const NOISE: [f64; 8] = [0.004, -0.010, 0.007, -0.003, 0.010, -0.006, 0.001, -0.004];
        let block = |(n, noise): (u32, &f64)| {
            let one = |name: &str, rate| trial(name, n, &[("commits_per_second", rate)]);
            [one("local", 1000.0), one("x", 1000.0 * ratio * (1.0 + noise))]
        };
        let trials = (1..).zip(&NOISE).flat_map(block).collect();
        let mut stored = experiment(&["local", "x"], trials);
        stored.manifest.rules.matters = matters;
        stored
    }

    fn decided(ratio: f64, matters: f64) -> (Option<Decision>, Option<Gate>) {
        let analysis = analyze(&stored(ratio, Some(matters)));
        let c = analysis.primary("x").unwrap();
        assert_eq!(c.margin, Some(matters));
        (c.decision, c.gate)
    }

    #[test]
    fn an_effect_matters_does_not_or_cannot_be_told() {
        use Decision::{DoesNotMatter, Matters, Undecided};
        assert_eq!(decided(0.80, 0.05), (Some(Matters), Some(Gate::Fail)));
        assert_eq!(decided(1.20, 0.05), (Some(Matters), Some(Gate::Pass)));
        assert_eq!(decided(0.99, 0.05), (Some(DoesNotMatter), Some(Gate::Pass)));
        assert_eq!(decided(0.95, 0.05), (Some(Undecided), Some(Gate::Undecided)));
        // Perhaps faster by more than 5 %, but not slower.
        assert_eq!(decided(1.05, 0.05), (Some(Undecided), Some(Gate::Pass)));
        // Detected, and too small to matter.
        let analysis = analyze(&stored(0.98, Some(0.05)));
        let c = analysis.primary("x").unwrap();
        assert_eq!((c.verdict, c.decision), (Verdict::Slower, Some(DoesNotMatter)));
        // The interval that decides so is not the family's.
        let decides = Interval { low: c.within_low, high: c.within_high };
        let (low, high) = decides.sides().unwrap();
        assert!(low > 0.95 && high < 1.05 && Some(low) > c.interval.low, "{c:?}");
    }

    /// `x` runs at the baseline's rate and fails in every second block, `times` times.
    fn failed(times: u32) -> Option<Gate> {
        let analysis = analyze(&failing(1.0, |block| block % 2 == 1 && block < 2 * times));
        let c = analysis.primary("x").unwrap();
        assert_eq!(c.decision, Some(Decision::DoesNotMatter), "{c:?}");
        c.gate
    }

    #[test]
    fn a_condition_that_fails_more_often_does_not_pass() {
        assert_eq!(failed(0), Some(Gate::Pass));
        // Fisher's p is 0.22 for 3 of 12 trials against none, and 0.014 for 6.
        assert_eq!(failed(3), Some(Gate::Undecided));
        assert_eq!(failed(6), Some(Gate::Fail));
    }

    /// Fisher's p is 0.15 for 5 of 12 trials against 1 of 12.
    #[test]
    fn one_failure_of_the_baseline_does_not_excuse_more_of_a_condition() {
        let mut stored = failing(1.0, |block| block % 2 == 1 && block < 10);
        let last = stored.trials.iter_mut().rev().find(|t| t.is_of("local"));
        last.unwrap().outcome = Outcome::Failed { error: "out of memory".to_owned() };
        let analysis = analyze(&stored);
        let c = analysis.primary("x").unwrap();
        assert_eq!((c.gate_by_margin, c.gate), (Some(Gate::Pass), Some(Gate::Undecided)), "{c:?}");
    }

    #[test]
    fn without_a_usable_margin_nothing_is_decided() {
        for matters in [None, Some(0.0), Some(0.7), Some(f64::NAN)] {
            let analysis = analyze(&stored(0.8, matters));
            let c = analysis.primary("x").unwrap();
            assert_eq!((c.margin, c.decision, c.gate), (None, None, None), "{matters:?}");
            assert_eq!(analysis.margin, None, "{matters:?}");
        }
    }

    #[test]
    fn too_few_blocks_decide_nothing_and_say_how_many_would() {
        let mut few = stored(1.0, Some(0.05));
        few.trials.retain(|t| t.place.as_ref().is_some_and(|p| p.block <= 5));
        let analysis = analyze(&few);
        let c = analysis.primary("x").unwrap();
        assert_eq!((c.decision, c.gate), (Some(Decision::Undecided), Some(Gate::Undecided)));
        assert!(c.decision_blocks.is_some_and(|n| n >= 6), "{c:?}");
        let enough = analyze(&stored(1.0, Some(0.05)));
        assert_eq!(enough.primary("x").unwrap().decision_blocks, None);
    }
}
