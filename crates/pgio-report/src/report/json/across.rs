//! `pgio.across/1`: the comparison of two stored experiments, for other programs.
//!
//! As with `pgio.analysis/1` readers ignore fields they do not know, and a number that does not
//! exist is null.

use serde::{Deserialize, Serialize};

use crate::analysis::ALPHA;
use crate::analysis::across::{Across, AcrossComparison, AcrossEffect, Reason, Side};

pub const ACROSS_SCHEMA: &str = "pgio.across/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AcrossV1 {
    /// Always `pgio.across/1`.
    pub schema: String,
    pub a: Side,
    pub b: Side,
    pub primary_metric: String,
    /// The level of all tests; intervals hold 1 - alpha.
    pub alpha: f64,
    /// Differences besides the date, the most severe first.
    pub reasons: Vec<Reason>,
    /// By condition, the baseline first.
    pub comparisons: Vec<AcrossComparison>,
    pub effects: Vec<AcrossEffect>,
    pub only_in_a: Vec<String>,
    pub only_in_b: Vec<String>,
}

/// As indented JSON, ended by a newline.
pub fn render(across: &Across) -> String {
    let a = across.clone();
    let stored = AcrossV1 {
        schema: ACROSS_SCHEMA.to_owned(),
        a: a.a,
        b: a.b,
        primary_metric: a.primary_metric,
        alpha: ALPHA,
        reasons: a.reasons,
        comparisons: a.comparisons,
        effects: a.effects,
        only_in_a: a.only_in_a,
        only_in_b: a.only_in_b,
    };
    let text = serde_json::to_string_pretty(&stored)
        .expect("plain data with string keys always serializes");
    printable::json(&text).into_owned() + "\n"
}
