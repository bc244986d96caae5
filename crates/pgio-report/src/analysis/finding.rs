//! A finding: a problem of a trial, a condition or the experiment, with a remedy. `findings` and `steady`
//! collect them.

use pgio_results::{CheckVerdict, Warning};
use serde::{Deserialize, Serialize};

/// The finding that a condition stalled.
pub const STALLS: &str = "stalls";

/// The finding that conditions of a woven window reached into each other.
pub const WEAVE_CARRY_OVER: &str = "weave-carry-over";
pub const WEAVE_SHORT: &str = "weave-short-slices";

/// A problem, and what to do about it; stored unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "CheckV1"))]
pub struct Finding {
    pub id: String,
    pub verdict: CheckVerdict,
    pub condition: Option<String>,
    /// The line of trials.jsonl, counted from 1; null for the experiment as a whole.
    pub trial: Option<usize>,
    pub message: String,
    pub remedy: String,
}

/// A warning that trials raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CountedWarning {
    #[serde(flatten)]
    pub warning: Warning,
    /// Number of trials with this warning.
    pub trials: usize,
}
