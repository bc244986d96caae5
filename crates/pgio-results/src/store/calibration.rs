//! How the length of woven slices was chosen, with its evidence.

use serde::{Deserialize, Serialize};

/// The lengths tried before block 1, and the one chosen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Calibration {
    /// Mean length of the slices; absent if each trial has a window of its own.
    pub slice_seconds: Option<f64>,
    /// Why the conditions could not be woven at any length; absent if lengths were tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// The largest difference that is accepted, as a share of a rate: a quarter of the margin.
    pub limit: f64,
    /// In the order of their length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<TriedLength>,
}

/// One length of slices that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TriedLength {
    /// Mean counted length of a slice.
    pub slice_seconds: f64,
    /// Slices of each condition.
    pub slices: u32,
    /// Time that trying took.
    pub seconds: f64,
    pub verdict: LengthVerdict,
    /// Differences between slices, the largest first.
    pub answers: Vec<CarryOver>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LengthVerdict {
    /// All intervals lie within the limit.
    Agrees,
    /// No interval contradicts the limit, but not all lie within it.
    NotContradicted,
    /// A difference exceeds the limit.
    Contradicted,
    /// A call takes longer than a slice.
    TooShort,
}

/// Where a condition's influence would show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CarryOverQuestion {
    /// Its effect in the second halves of the slices, divided by that in the first.
    SecondHalves,
    /// The rate of the other conditions in the slices after it, divided by that in their other slices;
    /// by that in all their slices in manifests without `turns`.
    After,
    /// Its effect in all slices, divided by that in slices that follow their own settings.
    Turns,
}

/// How much a condition reaches into slices of others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CarryOver {
    pub condition: String,
    #[serde(rename = "place")]
    pub question: CarryOverQuestion,
    pub ratio: f64,
    /// The interval, 95 % for all answers about this length together.
    pub low: f64,
    pub high: f64,
}
