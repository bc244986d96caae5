//! How the points of a sweep are chosen, in the experiment file and in stored results.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SweepKind {
    /// From the middle point along each axis.
    OneAtATime,
    /// Every combination of values.
    Grid,
}
