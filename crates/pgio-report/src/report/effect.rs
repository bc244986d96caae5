//! An effect in one cell of a table, for comparisons with a baseline and for factors alike.
//!
//! A file of its own, because the tables of both need it.

use super::format::{self, NONE};
use crate::analysis::{Comparison, Verdict};

/// `−53.5 % [−55.0, −51.9]`, or `~` where no difference was detected.
pub(super) fn effect(c: &Comparison, is_aa: bool) -> String {
    match (c.verdict, c.ratio, c.interval.low, c.interval.high) {
        (Verdict::NotApplicable, ..) => NONE.to_owned(),
        (Verdict::TooFewBlocks, ..) => {
            format!("~ {}{}", format::counted(c.blocks, "block"), needed_blocks(c, is_aa))
        }
        (_, Some(ratio), low, high) if c.bound.is_some() => {
            let mark = if c.verdict.is_decided() { "" } else { "~ " };
            format!("{mark}{}", format::change_as_known(ratio, low, high))
        }
        (Verdict::NoDifference, _, Some(low), Some(high)) => {
            format!("~ {}{}", format::interval(low, high), needed_blocks(c, is_aa))
        }
        (_, Some(ratio), Some(low), Some(high)) => {
            format::change_with_interval(ratio, low, high).to_string()
        }
        _ => "~".to_owned(),
    }
}

/// How many blocks detect the planned effect, on a separate line. Empty for the twin, which has no
/// effect to detect.
pub(super) fn needed_blocks(c: &Comparison, is_aa: bool) -> String {
    match c.blocks_needed {
        Some(n) if !is_aa => format!("\n({} needed)", format::counted(n as usize, "block")),
        _ => String::new(),
    }
}
