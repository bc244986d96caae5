//! Words for the decision about the margin: a cell, a sentence, and the result of the gate.

use super::format;
use crate::analysis::{Analysis, Comparison, Decision, Gate, Verdict};

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
            format!(" Whether the effect exceeds {share} is undecided{needed}.")
        }
    }
}

/// The result of the gate for one experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Gated {
    pub gate: Gate,
    /// One sentence, ended by a period.
    pub why: String,
}

/// Whether any condition that answers the question is worse than the baseline by more than the margin.
/// `None` if no margin was named. A condition that could not be compared leaves the gate undecided, and
/// so does an A/A twin that differs from the baseline by more than the margin.
pub fn gate(analysis: &Analysis) -> Option<Gated> {
    let share = share(analysis.margin?);
    let baseline = &analysis.baseline;
    if analysis.screening.as_ref().is_some_and(|screened| screened.design.is_factorial()) {
        let why = "this design compares no condition with a baseline; write the settings that matter as \
                   conditions of their own to gate on them.";
        return Some(Gated { gate: Gate::Undecided, why: why.to_owned() });
    }
    let twin = analysis.aa.as_ref().and_then(|aa| analysis.primary(aa));
    if let Some(twin) = twin.filter(|c| c.decision == Some(Decision::Matters)) {
        let why = format!(
            "{}, a second copy of {baseline}, differs from it by more than {share}, so nothing can be \
             concluded.",
            twin.condition
        );
        return Some(Gated { gate: Gate::Undecided, why });
    }
    let asked: Vec<&Comparison> = analysis
        .comparisons
        .iter()
        .filter(|c| c.primary && c.judged && !analysis.is_aa(&c.condition))
        .collect();
    let names = |gate: Gate| -> Vec<&str> {
        let with = asked.iter().filter(|c| c.gate.unwrap_or(Gate::Undecided) == gate);
        with.map(|c| c.condition.as_str()).collect()
    };
    let (worse, open) = (names(Gate::Fail), names(Gate::Undecided));
    let (gate, why) = if asked.is_empty() {
        (Gate::Undecided, format!("nothing was compared with {baseline}."))
    } else if !worse.is_empty() {
        let names = worse.join(", ");
        (Gate::Fail, format!("worse than {baseline} by more than {share}: {names}."))
    } else if !open.is_empty() {
        let (names, needed) = (open.join(", "), needed(&asked));
        let why = format!(
            "undecided whether worse than {baseline} by more than {share}: {names}{needed}."
        );
        (Gate::Undecided, why)
    } else {
        (Gate::Pass, format!("no condition is worse than {baseline} by more than {share}."))
    };
    Some(Gated { gate, why })
}

/// The largest number of blocks that an open comparison needs.
fn needed(asked: &[&Comparison]) -> String {
    let open = asked.iter().filter(|c| c.gate == Some(Gate::Undecided));
    let too_few = |c: &&&Comparison| c.verdict == Verdict::TooFewBlocks;
    let blocks = open.clone().filter_map(|c| c.decision_blocks).max();
    let fewest = open.filter(too_few).filter_map(|c| c.blocks_needed).max();
    let needed = blocks.max(fewest);
    needed
        .map_or_else(String::new, |n| format!("; {} needed", format::counted(n as usize, "block")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::analysis::test_support::demo;

    fn gated(margin: f64, blocks: u32) -> (Gate, String) {
        let mut stored = demo();
        stored.trials.retain(|t| t.place.as_ref().is_some_and(|p| p.block <= blocks));
        stored.manifest.rules.matters = Some(margin);
        let gated = gate(&analyse(&stored)).unwrap();
        (gated.gate, gated.why)
    }

    #[test]
    fn the_gate_names_who_is_worse_or_undecided() {
        assert_eq!(gate(&analyse(&demo())), None, "no margin was named");
        let (gate, why) = gated(0.05, 6);
        assert_eq!(gate, Gate::Fail);
        assert_eq!(why, "worse than local by more than 5 %: on.");
        let (gate, why) = gated(0.05, 2);
        assert_eq!(gate, Gate::Undecided, "{why}");
        let open = "undecided whether worse than local by more than 5 %: remote_write, on; 23 blocks needed.";
        assert_eq!(why, open);
    }

    #[test]
    fn a_twin_that_differs_by_more_than_the_margin_decides_nothing() {
        let mut stored = demo();
        stored.manifest.rules.matters = Some(0.05);
        for trial in &mut stored.trials {
            let is_twin = trial.place.as_ref().is_some_and(|p| p.condition == "local-aa");
            let rate = trial.metrics.get_mut("commits_per_second");
            if let Some(rate) = rate.filter(|_| is_twin) {
                rate.value = rate.value.map(|value| value * 0.5);
            }
        }
        let gated = gate(&analyse(&stored)).unwrap();
        assert_eq!(gated.gate, Gate::Undecided);
        assert!(
            gated.why.starts_with("local-aa, a second copy of local, differs"),
            "{}",
            gated.why
        );
    }

    #[test]
    fn a_share_is_shown_as_it_was_written() {
        let shares = [0.05, 0.07, 0.001, 0.5, 0.025, 0.333].map(share);
        assert_eq!(shares, ["5 %", "7 %", "0.1 %", "50 %", "2.5 %", "33.3 %"]);
    }
}
