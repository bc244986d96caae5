//! Words for the decision about the margin: a share, a cell of a table, a sentence.
//!
//! The decision is that of `analysis::margin`. Next: `gate` has the result of the gate.

use super::format;
use crate::analysis::{Comparison, Decision};

/// `5 %`
pub(super) fn share(margin: f64) -> String {
    // Rounded, because 0.07 * 100 is 7.000000000000001.
    format!("{} %", (margin * 1e6).round() / 1e4)
}

/// `matters`, `does not matter`, `undecided` with the blocks needed on a second line; empty without a
/// decision.
pub(super) fn cell(c: &Comparison) -> String {
    match c.decision {
        Some(Decision::Matters) => "matters".to_owned(),
        Some(Decision::DoesNotMatter) => "does not matter".to_owned(),
        Some(Decision::Undecided) => match c.decision_blocks {
            Some(n) => format!("undecided\n({} needed)", format::counted(n as usize, "block")),
            None => "undecided".to_owned(),
        },
        None => String::new(),
    }
}

/// `all work over all time may be up to 21 % worse`, if only that leaves the decision or the gate open.
pub(super) fn open_totals(c: &Comparison) -> Option<String> {
    let (totals, margin) = c.totals.filter(|_| c.open_by_totals).zip(c.margin)?;
    // Rounded up, because it is a bound.
    let percent = |share: f64| (share * 100.0).ceil();
    let (size, how) = match totals.at_least {
        Some(low) if low <= 1.0 - margin => (percent(1.0 - low), "worse"),
        _ => (percent(totals.at_most? - 1.0), "better"),
    };
    Some(format!("all work over all time may be up to {size} % {how}"))
}

/// The decision about one comparison, to be appended to its verdict; empty without one.
pub(super) fn sentence(c: &Comparison) -> String {
    let (Some(margin), Some(decision)) = (c.margin, c.decision) else { return String::new() };
    let share = share(margin);
    match decision {
        Decision::Matters => format!(" The effect matters: it exceeds {share}."),
        Decision::DoesNotMatter => {
            format!(" The effect does not matter: it is smaller than {share}.")
        }
        Decision::Undecided => {
            let needed = c.decision_blocks.map_or_else(String::new, |n| {
                format!(
                    "; {} decide with 80 % power unless it is close to that",
                    format::counted(n as usize, "block")
                )
            });
            let why = open_totals(c).map_or_else(String::new, |why| format!(": {why}"));
            format!(" Whether the effect exceeds {share} is undecided{why}{needed}.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_shown_as_it_was_written() {
        let shares = [0.05, 0.07, 0.001, 0.5, 0.025, 0.333].map(share);
        assert_eq!(shares, ["5 %", "7 %", "0.1 %", "50 %", "2.5 %", "33.3 %"]);
    }
}
