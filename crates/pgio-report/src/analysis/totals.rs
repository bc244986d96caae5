//! The ratio of totals: all work over all time under a condition, divided by the baseline's.

use benchmath::totals::{self, Block, Part};
use serde::{Deserialize, Serialize};

use super::interval::Interval;
use super::pairing::{self, PairedArms};
use super::verdict::ALPHA;
use pgio_results::Trial;
use pgio_results::metrics::Direction;

/// The ratio of totals. It differs from the typical block's ratio if some trials stall.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// (work / time) under the condition over the same under the baseline, all blocks together.
    pub ratio: f64,
    /// Its 95 % interval; null with fewer than two blocks or without spread.
    #[serde(flatten)]
    pub interval: Interval,
}

impl Totals {
    /// Whether the typical block's ratio contradicts it: one ratio is outside the other's interval, and
    /// the two differ by more than 1 %.
    pub fn disagrees(&self, ratio: f64, interval: Interval) -> bool {
        (self.ratio / ratio).ln().abs() > 0.01
            && (self.interval.excludes(ratio) || interval.excludes(self.ratio))
    }

    /// Whether all work over all time is worse for the condition than the typical block's ratio.
    pub fn is_worse(&self, ratio: f64, direction: Direction) -> bool {
        match direction {
            Direction::HigherIsFaster | Direction::Neutral => self.ratio < ratio,
            Direction::LowerIsFaster => self.ratio > ratio,
        }
    }
}

/// For a rate, over the blocks in which both sides have a trial that counts.
pub(super) fn ratio(beside: &PairedArms<'_, '_>, metric: &str) -> Option<Totals> {
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
    let (ratio, interval) = totals::ratio(&blocks, ALPHA)?;
    Some(Totals { ratio, interval: interval.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_that_the_typical_block_does_not_show_disagree() {
        let totals = Totals { ratio: 0.9, interval: Interval::new(0.85, 0.95) };
        assert!(totals.disagrees(0.99, Interval::new(0.98, 1.0)));
        assert!(!totals.disagrees(0.91, Interval::new(0.88, 0.94)));
        assert!(!totals.disagrees(0.905, Interval::new(0.904, 0.906)));
        assert!(totals.is_worse(0.99, Direction::HigherIsFaster));
        assert!(!totals.is_worse(0.8, Direction::HigherIsFaster));
        assert!(totals.is_worse(0.8, Direction::LowerIsFaster));
        let alone = Totals { interval: Interval::UNKNOWN, ..totals };
        assert!(!alone.disagrees(0.99, Interval::UNKNOWN));
    }
}
