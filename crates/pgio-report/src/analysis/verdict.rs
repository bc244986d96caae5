//! What a comparison concludes, and the level at which it does.

use benchmath::effect::Decision;
use pgio_results::metrics::Direction;
use serde::{Deserialize, Serialize};

/// The level of every test and interval: 0.05, so intervals hold 95 %. A constant, since a level
/// chosen after seeing the data decides nothing.
pub const ALPHA: f64 = 0.05;

/// What is known of an effect where the window's end cut off operations of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    AtLeast,
    AtMost,
}

/// What a comparison says, in the direction of its metric.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Slower,
    Faster,
    /// More of a quantity of which neither more nor less is better.
    Higher,
    Lower,
    /// No difference shown, which is not "no difference".
    NoDifference,
    #[default]
    TooFewBlocks,
    /// A value of 0 or below has no ratio, and a percentile of too few operations is not compared.
    NotApplicable,
    /// Too few runs to judge what changed between two dates.
    NotJudged,
}

impl Verdict {
    /// Whether a difference was shown.
    pub fn is_decided(self) -> bool {
        matches!(self, Verdict::Slower | Verdict::Faster | Verdict::Higher | Verdict::Lower)
    }
}

pub(super) fn directed_decision(decision: Decision, direction: Direction) -> Verdict {
    match decision {
        Decision::Above => directed(true, direction),
        Decision::Below => directed(false, direction),
        Decision::NoDifference => Verdict::NoDifference,
        Decision::TooFewBlocks => Verdict::TooFewBlocks,
        Decision::NotApplicable => Verdict::NotApplicable,
    }
}

/// What more or less of a metric means.
pub(super) fn directed(above: bool, direction: Direction) -> Verdict {
    match (above, direction) {
        (true, Direction::HigherIsFaster) | (false, Direction::LowerIsFaster) => Verdict::Faster,
        (false, Direction::HigherIsFaster) | (true, Direction::LowerIsFaster) => Verdict::Slower,
        (true, Direction::Neutral) => Verdict::Higher,
        (false, Direction::Neutral) => Verdict::Lower,
    }
}
