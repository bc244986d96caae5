//! The problems that precede all rates: conditions that failed, trials that do not count, a busy machine, shares of
//! failed, invalid or badly behaved trials that differ from the baseline's, and slices that reached into each other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::format;
use crate::analysis::shares::{FAILED, INVALID};
use crate::analysis::{Analysis, Condition, Finding, WEAVE_CARRY_OVER, WEAVE_SHORT};
use crate::analysis::{Share, State};
use pgio_results::CheckVerdict;

/// Checks that find work of others on the measured machines.
const FOREIGN: [&str; 4] = ["foreign-load", "foreign-sessions", "steal", "foreign-io"];

/// One sentence per problem; empty if there is none.
pub fn headline(analysis: &Analysis) -> Vec<String> {
    let states = analysis.conditions.iter().filter_map(|c| failure(analysis, c));
    let shares = analysis.conditions.iter().flat_map(|c| {
        let notable = c.shares.iter().filter(|share| share.notable);
        notable.map(|share| sentence(share, &c.name, &analysis.baseline))
    });
    let leading = analysis.checks.iter().filter(|f| leads(f)).map(|finding| {
        let what = match finding.id.as_str() {
            WEAVE_CARRY_OVER => "Conditions affect each other's slices",
            _ => "Slices too short",
        };
        format!("{what}: {}; {}.", finding.message, finding.remedy)
    });
    let general = [not_counted(analysis), busy(analysis)].into_iter().flatten();
    states.chain(general).chain(shares).chain(leading).collect()
}

/// Whether the finding is in the headline, and not among the remarks.
pub(super) fn leads(finding: &Finding) -> bool {
    [WEAVE_CARRY_OVER, WEAVE_SHORT].contains(&finding.id.as_str())
}

/// `7 of 37 trials do not count: 6 invalid and repeated (foreign-load 6), 1 failed.`
fn not_counted(analysis: &Analysis) -> Option<String> {
    let sum = |of: fn(&Condition) -> usize| analysis.conditions.iter().map(of).sum::<usize>();
    let (trials, invalid, failed) = (sum(|c| c.trials), sum(|c| c.invalid), sum(|c| c.failed));
    let conditions: Vec<_> = analysis.conditions.iter().map(|c| (analysis, c)).collect();
    let invalid_text =
        (invalid > 0).then(|| format!("{invalid} invalid ({})", most_frequent(&conditions)));
    let failed_text = (failed > 0).then(|| format!("{failed} failed"));
    let parts: Vec<String> = invalid_text.into_iter().chain(failed_text).collect();
    (!parts.is_empty()).then(|| {
        let all = format::counted(trials, "trial");
        format!("{} of {all} do not count: {}.", invalid + failed, parts.join(", "))
    })
}

/// Trials that count although the machine was busy with other work.
pub(super) fn busy_trials(analysis: &Analysis) -> usize {
    let counted: BTreeSet<usize> =
        analysis.conditions.iter().flat_map(|c| c.counted.iter().copied()).collect();
    let foreign = analysis.checks.iter().filter(|f| FOREIGN.contains(&f.id.as_str()));
    foreign.filter_map(|f| f.trial).filter(|t| counted.contains(t)).collect::<BTreeSet<_>>().len()
}

fn busy(analysis: &Analysis) -> Option<String> {
    let trials: usize = analysis.conditions.iter().map(|c| c.valid).sum();
    match busy_trials(analysis) {
        0 => None,
        busy => Some(format!(
            "The machine was busy with other work in {busy} of {}.",
            format::counted(trials, "trial")
        )),
    }
}

/// Why a condition cannot be compared, in a sentence, if it cannot.
pub(super) fn failure(analysis: &Analysis, condition: &Condition) -> Option<String> {
    clause(analysis, condition).map(|clause| format!("{clause}."))
}

/// The same without the period.
fn clause(analysis: &Analysis, condition: &Condition) -> Option<String> {
    let name = &condition.name;
    let trials = format::counted(condition.trials, "trial");
    let what = match condition.state {
        State::Failed => format!("`{name}` FAILED: none of its {trials} succeeded"),
        State::NoValidTrial => {
            let checks = invalidating(analysis, name).into_iter().collect::<Vec<_>>().join(", ");
            format!("`{name}` has no valid trial among {trials} ({checks})")
        }
        State::NotRun | State::Undecided | State::Measured => return None,
    };
    let baseline = if *name == analysis.baseline {
        "; it is the baseline, so nothing can be compared"
    } else {
        ""
    };
    Some(format!("{what}{baseline}"))
}

/// Why conditions of these workloads cannot be compared, in one sentence; the headlines have one for each.
pub fn failures(analyses: &[&Analysis]) -> Option<String> {
    let conditions: Vec<(&Analysis, &Condition)> =
        analyses.iter().flat_map(|a| a.conditions.iter().map(|c| (*a, c))).collect();
    let of = |state: State| -> Vec<(&Analysis, &Condition)> {
        conditions.iter().filter(|(_, c)| c.state == state).copied().collect()
    };
    let (failed, invalid) = (of(State::Failed), of(State::NoValidTrial));
    if let [(analysis, condition)] = [failed.as_slice(), invalid.as_slice()].concat().as_slice() {
        return clause(analysis, condition);
    }
    let share = |some: &[(&Analysis, &Condition)]| {
        format!("{} of {}", some.len(), format::counted(conditions.len(), "condition"))
    };
    let mut parts = Vec::new();
    if !failed.is_empty() {
        parts.push(format!("{}: no trial succeeded", share(&failed)));
    }
    if !invalid.is_empty() {
        parts.push(format!("{}: no valid trial ({})", share(&invalid), most_frequent(&invalid)));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The checks that invalidated the most trials of these conditions, with the number of trials:
/// `foreign-load 12, durability 2`.
fn most_frequent(conditions: &[(&Analysis, &Condition)]) -> String {
    const SHOWN: usize = 3;
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for (analysis, condition) in conditions {
        for id in invalidations(analysis, &condition.name) {
            *times.entry(id).or_default() += 1;
        }
    }
    let mut most: Vec<(&str, usize)> = times.into_iter().collect();
    most.sort_by_key(|(_, times)| Reverse(*times));
    let left = most.len().saturating_sub(SHOWN);
    let mut shown: Vec<String> =
        most.into_iter().take(SHOWN).map(|(id, times)| format!("{id} {times}")).collect();
    shown.extend((left > 0).then(|| format!("{left} more")));
    shown.join(", ")
}

/// Ids of the checks that make trials of a condition invalid.
fn invalidating<'a>(analysis: &'a Analysis, condition: &'a str) -> BTreeSet<&'a str> {
    invalidations(analysis, condition).collect()
}

/// The check of each trial of a condition that it makes invalid.
fn invalidations<'a>(analysis: &'a Analysis, condition: &'a str) -> impl Iterator<Item = &'a str> {
    let of_it = analysis.checks.iter().filter(move |f| f.condition.as_deref() == Some(condition));
    let invalid = of_it.filter(|f| f.verdict == CheckVerdict::Invalid && f.trial.is_some());
    invalid.map(|f| f.id.as_str())
}

/// The text instead of an effect, if there is no effect to show.
pub(super) fn instead_of_effect(analysis: &Analysis, condition: &Condition) -> Option<String> {
    match condition.state {
        State::NotRun => Some("no trial".to_owned()),
        State::Failed => Some("FAILED".to_owned()),
        State::NoValidTrial => Some("no valid trial".to_owned()),
        State::Undecided => Some(undecided(analysis, condition)),
        State::Measured => None,
    }
}

/// `undecided: 4 of 6 blocks valid`
pub(super) fn undecided(analysis: &Analysis, condition: &Condition) -> String {
    let blocks = analysis.primary(&condition.name).map_or(0, |c| c.blocks);
    let planned = format::counted(analysis.blocks, "block");
    format!("undecided: {blocks} of {planned} valid")
}

/// `3 of 10 trials failed under x, 0 of 10 under local (p = 0.21).`
fn sentence(share: &Share, condition: &str, baseline: &str) -> String {
    let what = match share.what.as_str() {
        FAILED => "failed".to_owned(),
        INVALID => "were invalid".to_owned(),
        id => format!("behaved badly ({id})"),
    };
    let p = share.p.map_or_else(String::new, |p| format!(" ({})", probability(p)));
    format!(
        "{} of {} {what} under `{condition}`, {} of {} under `{baseline}`{p}.",
        share.trials,
        format::counted(share.of, "trial"),
        share.baseline_trials,
        share.baseline_of
    )
}

/// `failed in 6 of 12 trials, local in 0 of 12 (p = 0.01)`
pub(super) fn failed_beside(share: &Share, baseline: &str) -> String {
    let p = share.p.map_or_else(String::new, |p| format!(" ({})", probability(p)));
    format!(
        "{}, {baseline} in {} of {}{p}",
        failed_in(share),
        share.baseline_trials,
        share.baseline_of
    )
}

/// `failed in 6 of 12 trials`
pub(super) fn failed_in(share: &Share) -> String {
    format!("failed in {} of {}", share.trials, format::counted(share.of, "trial"))
}

/// `p = 0.01`
pub(super) fn probability(p: f64) -> String {
    match p {
        p if p < 0.001 => "p < 0.001".to_owned(),
        p if p < 0.01 => format!("p = {p:.3}"),
        p => format!("p = {p:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyze;
    use crate::analysis::test_support::{experiment, trial};
    use crate::report::{document, json, markdown, text};
    use pgio_results::{Check, Outcome, Trial};

    /// Ten blocks; the first `failed` of `x` failed.
    fn ten(failed: u32) -> Analysis {
        let block = |block: u32| {
            let one = |name: &str, rate| trial(name, block, &[("commits_per_second", rate)]);
            let mut x: Trial = one("x", 500.0 + f64::from(block));
            if block <= failed {
                x.outcome = Outcome::Failed { error: "server closed the connection".to_owned() };
            }
            [one("local", 1000.0 + f64::from(block)), x]
        };
        let mut stored = experiment(&["local", "x"], (1..=10).flat_map(block).collect());
        stored.manifest.blocks = 10;
        analyze(&stored)
    }

    #[test]
    fn the_headline_of_every_format_has_the_shares() {
        let analysis = ten(3);
        let expected = "3 of 10 trials failed under `x`, 0 of 10 under `local` (p = 0.21).";
        let total = "3 of 20 trials do not count: 3 failed.";
        assert_eq!(headline(&analysis), [total, expected]);
        let document = document(&analysis);
        assert!(text::render(&document).lines().any(|l| l == expected));
        let escaped = expected.replace('`', "\\`");
        assert!(markdown::render(&document, &[]).contains(&escaped));
        let value: serde_json::Value = serde_json::from_str(&json::render(&analysis)).unwrap();
        assert_eq!(value["conditions"][1]["shares"][0]["what"], "failed");
        assert_eq!(value["conditions"][1]["state"], "measured");
        assert_eq!(headline(&ten(0)), [""; 0]);
    }

    #[test]
    fn a_condition_without_a_successful_trial_failed() {
        let analysis = ten(10);
        assert_eq!(headline(&analysis)[0], "`x` FAILED: none of its 10 trials succeeded.");
        let text = text::render(&document(&analysis));
        assert!(text.lines().any(|l| l.starts_with("x ") && l.contains("FAILED")), "{text}");
        assert!(!text.to_lowercase().contains("no difference"), "{text}");
        let value: serde_json::Value = serde_json::from_str(&json::render(&analysis)).unwrap();
        assert_eq!(value["conditions"][1]["state"], "failed");
        assert_eq!(value["comparisons"][0]["verdict"], "too_few_blocks", "as readers know it");
    }

    #[test]
    fn a_condition_without_a_valid_trial_names_the_checks() {
        let block = |block: u32| {
            ["local", "x"].map(|name| {
                let mut t: Trial = trial(name, block, &[("commits_per_second", 1000.0)]);
                let bad = Check::invalid("foreign-load", "3 cores", "stop it");
                t.checks.extend((name == "x").then_some(bad));
                t
            })
        };
        let analysis = analyze(&experiment(&["local", "x"], (1..=6).flat_map(block).collect()));
        let expected = "`x` has no valid trial among 6 trials (foreign-load).";
        assert_eq!(headline(&analysis)[0], expected);
        let text = text::render(&document(&analysis));
        assert!(
            text.lines().any(|l| l.starts_with("x ") && l.contains("no valid trial")),
            "{text}"
        );
    }

    #[test]
    fn the_last_line_is_one_sentence_however_many_conditions_have_no_valid_trial() {
        let all = ["local", "x", "y"];
        let block = |block: u32| {
            all.map(|name| {
                let mut t: Trial = trial(name, block, &[("commits_per_second", 1000.0)]);
                let mut invalid = |id: &str| t.checks.push(Check::invalid(id, "why", "mend it"));
                match name {
                    "local" if block == 1 => invalid("durability"),
                    "local" => invalid("foreign-load"),
                    "x" => invalid("foreign-load"),
                    _ => t.outcome = Outcome::Failed { error: "lost".to_owned() },
                }
                t
            })
        };
        let analysis = analyze(&experiment(&all, (1..=3).flat_map(block).collect()));
        assert_eq!(
            failures(&[&analysis]).unwrap(),
            "1 of 3 conditions: no trial succeeded; 2 of 3 conditions: no valid trial (foreign-load 5, durability 1)"
        );
        // A single one has its own sentence, and several workloads are counted together.
        let one = ten(10);
        let sentence = "`x` FAILED: none of its 10 trials succeeded";
        assert_eq!(failures(&[&one]).unwrap(), sentence);
        assert_eq!(failures(&[&one, &one]).unwrap(), "2 of 4 conditions: no trial succeeded");
        assert_eq!(failures(&[&ten(3)]), None);
    }

    #[test]
    fn too_few_valid_blocks_are_undecided() {
        let text = text::render(&document(&ten(6)));
        assert!(text.contains("undecided: 4 of 10 blocks valid"), "{text}");
        assert!(!text.to_lowercase().contains("no difference"), "{text}");
    }
}
