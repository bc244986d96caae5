//! A finding: something that is not in order, and what to do about it. `findings` and `steady`
//! collect them.

use pgio_results::CheckVerdict;
use serde::{Deserialize, Serialize};

/// The finding that a condition stalled.
pub const STALLS: &str = "stalls";

/// Something not in order, and what to do about it; stored as it stands.
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
