//! Words for the decision about the margin: a share, a cell of a table, a sentence.
//!
//! The decision is that of `analysis::margin`. Next: `gate` has the result of the gate.

use super::format;
use crate::analysis::{ALPHA, Analysis, Comparison, Decision, Gate, Interval, totals_in_words};
use pgio_results::metrics::Direction;

/// `5 %`
pub(super) fn share(margin: f64) -> String {
    // Rounded, because 0.07 * 100 is 7.000000000000001.
    format!("{} %", (margin * 1e6).round() / 1e4)
}

/// `matters`, `does not matter`, `undecided`; empty without a decision.
pub(super) fn cell(c: &Comparison) -> String {
    match c.decision {
        Some(Decision::Matters) => "matters".to_owned(),
        Some(Decision::DoesNotMatter) => {
            let within = decides(c).map_or_else(String::new, |interval| format!("\n{interval}"));
            format!("does not matter{within}")
        }
        Some(Decision::Undecided) => "undecided".to_owned(),
        None => String::new(),
    }
}

/// `all work over all time may be up to 21 % worse`, if only that leaves the decision or the gate open.
pub(super) fn open_totals(analysis: &Analysis, c: &Comparison) -> Option<String> {
    let (totals, margin) = c.totals.filter(|_| c.open_by_totals).zip(c.margin)?;
    let (low, high) = totals.bounds();
    let (less, more) = (1.0 - low, high - 1.0);
    let direction = analysis.definition(&c.metric)?.direction;
    let (worse, better) =
        if direction == Direction::LowerIsFaster { (more, less) } else { (less, more) };
    let (size, how) = if worse >= margin { (worse, "worse") } else { (better, "better") };
    let all = totals_in_words(direction);
    Some(if size.is_finite() {
        // Rounded up, because it is a bound.
        format!("{all} may be up to {} % {how}", (size * 100.0).ceil())
    } else {
        format!("{all} may be any amount {how}")
    })
}

/// Warns that the typical block alone decided, because the primary metric has no totals.
pub(super) fn without_totals(analysis: &Analysis) -> Option<String> {
    let decided =
        |c: &Comparison| c.decision == Some(Decision::DoesNotMatter) || c.gate == Some(Gate::Pass);
    let is_alone = |c: &&Comparison| c.primary && c.totals.is_none() && decided(c);
    analysis.comparisons.iter().find(is_alone)?;
    Some(format!(
        "{} has no total, so this says nothing about stalls",
        format::metric_name(&analysis.primary_metric)
    ))
}

/// The same to be appended to a decision; empty if the totals were looked at.
pub(super) fn blind(analysis: &Analysis) -> String {
    without_totals(analysis).map_or_else(String::new, |why| format!("; {why}"))
}

/// How many blocks decide, and how long they take, once for all conditions that need as many.
pub(super) fn blocks_to_decide<'a>(
    analysis: &Analysis,
    comparisons: impl Iterator<Item = &'a Comparison>,
) -> Option<String> {
    let mut needed: Vec<(u32, Vec<&str>)> = Vec::new();
    for c in comparisons.filter(|c| c.primary) {
        let Some(blocks) = c.decision_blocks else { continue };
        match needed.iter_mut().find(|(n, _)| *n == blocks) {
            Some((_, names)) => names.push(&c.condition),
            None => needed.push((blocks, vec![&c.condition])),
        }
    }
    needed.sort_by_key(|(n, _)| *n);
    let one = |(n, names): &(u32, Vec<&str>)| {
        format!("{} for {}", blocks_and_time(analysis, *n), names.join(", "))
    };
    let share = share(analysis.margin?);
    let all: Vec<String> = needed.iter().map(one).collect();
    (!all.is_empty()).then(|| {
        format!(
            "To decide with 80 % power, unless an effect is close to {share}: {}.",
            all.join("; ")
        )
    })
}

/// `539 blocks (67.0 min)`, without the time if it is unknown.
pub(super) fn blocks_and_time(analysis: &Analysis, blocks: u32) -> String {
    let time = analysis.block_seconds.map(|one| format::long_time(f64::from(blocks) * one));
    let time = time.map_or_else(String::new, |time| format!(" ({time})"));
    format!("{}{time}", format::counted(blocks as usize, "block"))
}

/// The interval by which an effect does not matter: `[−1.9, +2.1]`.
pub(super) fn decides(c: &Comparison) -> Option<String> {
    format::interval(Interval { low: c.within_low, high: c.within_high })
}

/// The decision about one comparison, to be appended to its verdict; empty without one.
pub(super) fn sentence(analysis: &Analysis, c: &Comparison) -> String {
    let (Some(margin), Some(decision)) = (c.margin, c.decision) else { return String::new() };
    let share = share(margin);
    match decision {
        Decision::Matters => format!(" The effect matters: it exceeds {share}."),
        Decision::DoesNotMatter => {
            let risk = self::share(ALPHA);
            let within = |interval| format!(", within {interval} at {risk} risk");
            let within = decides(c).map_or_else(String::new, within);
            let blind = blind(analysis);
            format!(" The effect does not matter: it is smaller than {share}{within}{blind}.")
        }
        Decision::Undecided => {
            let why = open_totals(analysis, c).map_or_else(String::new, |why| format!(": {why}"));
            format!(" Whether the effect exceeds {share} is undecided{why}.")
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
