//! One condition of an analysis: its numbers of trials, their outcomes, and the values of the typical
//! trial. `summary` and `shares` compute them.

use std::collections::BTreeMap;

use pgio_results::Metric;
use pgio_results::danger::Danger;
use serde::{Deserialize, Serialize};

/// One condition and its trials; stored unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ConditionV1"))]
pub struct Condition {
    pub name: String,
    pub treatments: Vec<String>,
    /// Differences from the baseline's treatments.
    #[serde(default)]
    pub factors: Vec<String>,
    /// What its treatments, or its server's settings, endanger most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub danger: Option<Danger>,
    /// All trials on record, including repeats.
    pub trials: usize,
    /// Complete trials that a check invalidates.
    pub invalid: usize,
    /// Failed or interrupted trials.
    pub failed: usize,
    /// Trials that count.
    pub valid: usize,
    /// Starts of the server that these trials ran on; 0 if unknown.
    #[serde(default)]
    pub server_starts: usize,
    /// Their lines in trials.jsonl, counted from 1.
    #[serde(default)]
    pub counted: Vec<usize>,
    /// Whether it could be measured.
    #[serde(default)]
    pub state: State,
    /// Failed, invalid and badly behaved trials, compared with the baseline.
    #[serde(default)]
    pub shares: Vec<Share>,
    #[serde(default)]
    pub steady: Steady,
    pub checks_passed: usize,
    pub checks_total: usize,
    /// Means over the valid trials: geometric, or arithmetic if a value is not positive.
    pub metrics: BTreeMap<String, Metric>,
}

/// Trials that count, by whether they stayed level inside their window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steady {
    pub steady: usize,
    pub unsteady: usize,
    /// Windows that were not judged: too few slices, or slices that do not count the compared work.
    pub too_short: usize,
}

/// The share of trials with one kind of outcome, compared with the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Share {
    /// `failed`, `invalid`, or the id of a check of behavior.
    pub what: String,
    /// Trials of the condition with this outcome.
    pub trials: usize,
    /// All trials of the condition.
    pub of: usize,
    /// Trials of the baseline with this outcome.
    pub baseline_trials: usize,
    pub baseline_of: usize,
    /// Two-sided p of Fisher's exact test; null if a side has no trials.
    pub p: Option<f64>,
    /// Whether it is part of the result: the shares differ at 5 %, or one side alone has trials that failed or
    /// behaved badly.
    pub notable: bool,
}

/// Whether a condition could be measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No trial is on record except interrupted ones.
    NotRun,
    /// None of its trials succeeded.
    Failed,
    /// Some completed, but a check invalidates each of them.
    NoValidTrial,
    /// Too few blocks are valid for an interval.
    Undecided,
    #[default]
    Measured,
}
