//! The verdict of a comparison, the decision about a margin, and the level of all tests.

use benchmath::effect;
use pgio_results::metrics::Direction;
use serde::{Deserialize, Serialize};

/// The level of every test and interval: 0.05, for 95 % intervals. It is constant, because a level
/// chosen after seeing the data is meaningless.
pub const ALPHA: f64 = 0.05;

/// The kind of bound of an effect, if the window's end cut off operations of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    AtLeast,
    AtMost,
}

/// The outcome of a comparison, in the direction of its metric.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Slower,
    Faster,
    /// More of a quantity without a preferred direction.
    Higher,
    Lower,
    /// No difference detected, which does not prove that there is none.
    NoDifference,
    #[default]
    TooFewBlocks,
    /// A value of 0 or below has no ratio, and a percentile of too few operations is not compared.
    NotApplicable,
    /// Too few runs to judge what changed between two dates.
    NotJudged,
}

/// Whether an effect exceeds the margin, in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Matters,
    DoesNotMatter,
    Undecided,
}

/// Whether a condition is worse than the baseline by more than the margin, or failed in more trials. For
/// a metric without a preferred direction, both directions are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    Pass,
    Fail,
    Undecided,
}

impl Verdict {
    /// Whether a difference was detected.
    pub fn is_decided(self) -> bool {
        matches!(self, Verdict::Slower | Verdict::Faster | Verdict::Higher | Verdict::Lower)
    }
}

pub(super) fn directed_decision(decision: effect::Decision, direction: Direction) -> Verdict {
    match decision {
        effect::Decision::Above => directed(true, direction),
        effect::Decision::Below => directed(false, direction),
        effect::Decision::NoDifference => Verdict::NoDifference,
        effect::Decision::TooFewBlocks => Verdict::TooFewBlocks,
        effect::Decision::NotApplicable => Verdict::NotApplicable,
    }
}

/// The verdict for more or less of a metric.
pub(super) fn directed(above: bool, direction: Direction) -> Verdict {
    match (above, direction) {
        (true, Direction::HigherIsFaster) | (false, Direction::LowerIsFaster) => Verdict::Faster,
        (false, Direction::HigherIsFaster) | (true, Direction::LowerIsFaster) => Verdict::Slower,
        (true, Direction::Neutral) => Verdict::Higher,
        (false, Direction::Neutral) => Verdict::Lower,
    }
}
