//! An effect in one cell of a table, for comparisons with a baseline and for factors alike.
//!
//! A file of its own, because the tables of both need it.

use super::format::{self, NONE};
use crate::analysis::{Comparison, Verdict};

/// `−53.5 % [−55.0, −51.9]`, or `~` where no difference was detected.
pub(super) fn effect(c: &Comparison, is_aa: bool) -> String {
    let known = |ratio| format::change_as_known(ratio, c.interval, c.bound);
    match (c.verdict, c.ratio) {
        (Verdict::NotApplicable, _) => NONE.to_owned(),
        (Verdict::TooFewBlocks, _) => {
            format!("~ {}{}", format::counted(c.blocks, "block"), needed_blocks(c, is_aa))
        }
        (_, None) => "~".to_owned(),
        (verdict, Some(ratio)) if verdict.is_decided() => known(ratio).to_string(),
        (_, Some(ratio)) if c.bound.is_some() => format!("~ {}", known(ratio)),
        (_, Some(ratio)) => {
            let interval = known(ratio).interval.unwrap_or_default();
            format!("~ {interval}{}", needed_blocks(c, is_aa))
        }
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
