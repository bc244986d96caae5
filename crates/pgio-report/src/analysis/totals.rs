//! The ratio of totals: all work over all time under a condition, divided by the baseline's.

use benchmath::totals::{self, Block, Part};
use serde::{Deserialize, Serialize};

use super::interval::Interval;
use super::pairing::{self, PairedArms};
use super::verdict::ALPHA;
use pgio_results::Trial;

/// The ratio of totals. It differs from the typical block's ratio if some trials stall.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// (work / time) under the condition over the same under the baseline, all blocks together.
    pub ratio: f64,
    /// Its interval, 95 % for all conditions together; null with fewer than two blocks or without spread.
    #[serde(flatten)]
    pub interval: Interval,
    /// One-sided 95 % bounds of the ratio. An effect does not matter, and a condition passes the gate, only if
    /// these are within the margin as well.
    #[serde(default)]
    pub at_least: Option<f64>,
    #[serde(default)]
    pub at_most: Option<f64>,
    /// The 95 % interval of the ratio divided by that of the typical block.
    #[serde(skip)]
    pub over_typical: Interval,
}

/// Two ratios that differ by less are the same to a reader.
const APART: f64 = 0.01;

impl Totals {
    /// Whether the typical block's ratio contradicts it by more than 1 %. The two come from the same blocks, so
    /// neither has to lie outside the other's interval.
    pub fn disagrees(&self) -> bool {
        self.is_worse() || self.over_typical.low.is_some_and(|low| low > 1.0 + APART)
    }

    /// Whether all work over all time is worse for the condition than the typical block, by more than 1 %. Only
    /// a rate has totals, so less is worse.
    pub fn is_worse(&self) -> bool {
        self.over_typical.high.is_some_and(|high| high < 1.0 - APART)
    }
}

/// For a rate, over the blocks in which both sides have a trial that counts; the interval at level `alpha`.
pub(super) fn ratio(beside: &PairedArms<'_, '_>, metric: &str, alpha: f64) -> Option<Totals> {
    let part = |trial: &Trial| {
        let seconds = trial.window.seconds;
        Some(Part { work: pairing::value(trial, metric)? * seconds, seconds })
    };
    let blocks: Vec<Block> = beside
        .trials()
        .filter_map(|(ours, theirs)| {
            Some(Block { condition: part(ours)?, baseline: part(theirs)? })
        })
        .collect();
    let (ratio, interval) = totals::ratio(&blocks, alpha)?;
    let bounds = totals::bounds(&blocks, ALPHA);
    Some(Totals {
        ratio,
        interval: interval.map_or(Interval::UNKNOWN, |i| Interval::of_ratio(i.low, i.high)),
        at_least: bounds.map(|(low, _)| low),
        at_most: bounds.map(|(_, high)| high),
        over_typical: totals::over_typical(&blocks, ALPHA).into(),
    })
}

#[cfg(test)]
mod tests {
    use crate::analysis::test_support::{experiment, trial};
    use crate::analysis::{Decision, Gate, analyze};

    /// Forty blocks; the condition runs at 0.4 of its rate in seven of them, and its neighbor is noisy.
    #[test]
    fn stalls_that_the_typical_block_does_not_show_disagree() {
        let block = |n: u32| {
            let noise = |at: u32| 1.0 + 0.001 * f64::from((n * 7 + at * 5) % 11);
            let stalled = if n % 6 == 1 { 0.4 } else { 1.0 };
            let wild = 1.0 + 0.9 * f64::from(n * 5 % 13) / 13.0;
            [("local", 1.0), ("x", stalled), ("y", 1.0), ("wild", wild)]
                .map(|(name, rate)| (name, 1000.0 * rate * noise(rate.to_bits() as u32 % 97)))
                .map(|(name, rate)| trial(name, n, &[("commits_per_second", rate)]))
        };
        let mut stored =
            experiment(&["local", "x", "y", "wild"], (1..=40).flat_map(block).collect());
        stored.manifest.rules.matters = Some(0.05);
        let analysis = analyze(&stored);
        let of = |name: &str| analysis.primary(name).unwrap();
        let (x, y) = (of("x"), of("y"));
        let totals = x.totals.unwrap();
        assert!(totals.disagrees() && totals.is_worse(), "{x:?}");
        assert!(!y.totals.unwrap().disagrees(), "{y:?}");
        // The typical block alone is within the margin on both sides.
        assert!(!x.interval.excludes(1.0) && x.ratio.unwrap() > 0.98, "{x:?}");
        assert_eq!((x.decision, x.gate), (Some(Decision::Undecided), Some(Gate::Undecided)));
        assert_eq!((y.decision, y.gate), (Some(Decision::DoesNotMatter), Some(Gate::Pass)));
        assert!(x.open_by_totals && !y.open_by_totals, "{x:?}");
        let gated = crate::report::gate(&analysis).unwrap();
        let why = "possibly worse than local by more than 5 % (all work over all time may be up to 17 % worse): x";
        assert!(gated.why.contains(why), "{}", gated.why);
        assert!(totals.at_least.unwrap() < 0.9 && totals.at_most.unwrap() < 0.97, "{totals:?}");
    }
}
