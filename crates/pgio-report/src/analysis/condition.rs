//! A condition's trials in numbers: how many ran and count, what became of the others, and the values
//! of the typical trial. `summary` and `shares` fill it in.

use std::collections::BTreeMap;

use pgio_results::Metric;
use serde::{Deserialize, Serialize};

/// One condition's trials, described; stored as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ConditionV1"))]
pub struct Condition {
    pub name: String,
    pub treatments: Vec<String>,
    /// What differs from the baseline's treatments.
    #[serde(default)]
    pub factors: Vec<String>,
    /// All trials on record, repeated ones included.
    pub trials: usize,
    /// Of these, complete ones that a check forbids to count.
    pub invalid: usize,
    /// Of these, failed or interrupted ones.
    pub failed: usize,
    /// Trials that count.
    pub valid: usize,
    /// Their lines in trials.jsonl, counted from 1.
    #[serde(default)]
    pub counted: Vec<usize>,
    /// Whether it could be measured; `measured` in what earlier versions wrote.
    #[serde(default)]
    pub state: State,
    /// Failed, invalid and badly behaved trials against the baseline's.
    #[serde(default)]
    pub shares: Vec<Share>,
    #[serde(default)]
    pub steady: Steady,
    pub checks_passed: usize,
    pub checks_total: usize,
    pub metrics: BTreeMap<String, Metric>,
}

/// How many of the trials that count stayed level inside their window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steady {
    pub steady: usize,
    pub unsteady: usize,
    /// Windows of too few slices to judge.
    pub too_short: usize,
}

/// How many trials something happened to, against the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Share {
    /// `failed`, `invalid`, or the id of a check of behavior.
    pub what: String,
    /// Of the condition's trials.
    pub trials: usize,
    pub of: usize,
    /// Of the baseline's.
    pub baseline_trials: usize,
    pub baseline_of: usize,
    /// Fisher's exact test, two-sided; null where a side has no trials.
    pub p: Option<f64>,
    /// Whether it is part of the result: the shares differ at 5 %, or one side has some and the other none.
    pub notable: bool,
}

/// What became of a condition's trials, before anything is said of their rates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No trial is on record, but for interrupted ones.
    NotRun,
    /// None of its trials succeeded.
    Failed,
    /// Some completed, and a check forbids each of them to count.
    NoValidTrial,
    /// Too few blocks are valid for an interval.
    Undecided,
    #[default]
    Measured,
}
