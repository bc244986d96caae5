//! What precedes the first table of a report: whether the run can see anything, the answer in one sentence, and the
//! problems (conditions that failed, trials that do not count, a busy machine, shares of failed, invalid or badly
//! behaved trials that differ from the baseline's, slices that reached into each other).
//!
//! Where effects take the place of comparisons, their section has the answer. Next: `statement` has the answer for each
//! condition, `noise` what the run can see.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::section::Report;
use super::statement::{Claim, Statement, danger, stalls};
use super::{format, noise};
use pgio_results::CheckVerdict;
use pgio_results::danger::Danger;
use pgio_verdict::shares::{FAILED, INVALID};
use pgio_verdict::{
    Analysis, Comparison, Condition, Finding, Share, State, WEAVE_CARRY_OVER, WEAVE_SHORT,
};

/// The command that adds blocks, if the directory is not known.
pub(super) const RERUN: &str = "pgio compare --resume DIR";
/// Conditions that the first sentence names for each claim.
const NAMED: usize = 3;
/// Checks that find work of others on the measured machines.
const FOREIGN: [&str; 4] = ["foreign-load", "foreign-sessions", "steal", "foreign-io"];

/// The sentences of the sections.
pub fn lead<'a>(report: impl Into<Report<'a>>) -> Vec<String> {
    report.into().lead().collect()
}

/// What precedes the first table: whether the run can see anything, the answer in a sentence, and the problems.
pub(super) fn opening(report: Report<'_>, rerun: &str) -> Vec<String> {
    let first = noise::blindness(report.analysis, rerun);
    first.into_iter().chain(in_one_sentence(report)).chain(headline(report.analysis)).collect()
}

/// `on costs at least half of the commits; remote_write: not decided.`, and what endangers the data.
pub(super) fn in_one_sentence<'a>(report: impl Into<Report<'a>>) -> Option<String> {
    let report = report.into();
    if let Some(section) = report.instead() {
        return section.lead.first().cloned();
    }
    let analysis = report.analysis;
    let mut others: Vec<&Comparison> = analysis
        .comparisons
        .iter()
        .filter(|c| c.primary && !analysis.is_aa(&c.condition))
        // The headline tells why a condition has no result.
        .filter(|c| {
            let described = analysis.condition(&c.condition);
            described.is_none_or(|d| !matches!(d.state, State::Failed | State::NoValidTrial))
        })
        .collect();
    let size = |c: &Comparison| c.ratio.map_or(0.0, |r| r.ln().abs());
    others.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let (by_danger, everywhere) = dangers(analysis);
    let (mut differ, mut same) = (Vec::new(), Vec::<(String, Vec<String>)>::new());
    let mut said = BTreeSet::new();
    for c in others {
        let name = &c.condition;
        let is_stalling = stalls(analysis, name);
        match Statement::new(analysis, name).claim {
            Claim::Differs(text) => {
                let stalls = if is_stalling { ", and stalls" } else { "" };
                let danger = danger(analysis, name).filter(|danger| !everywhere.contains(danger));
                let danger =
                    danger.filter(|_| differ.len() < NAMED).map_or_else(String::new, |danger| {
                        said.insert(name.as_str());
                        format!(" ({danger})")
                    });
                differ.push(format!("`{name}` {text}{stalls}{danger}"));
            }
            other => {
                let what = match other {
                    Claim::Within(text) => text,
                    _ => "not decided".to_owned(),
                };
                let shown = format!("`{name}`{}", if is_stalling { " (stalls)" } else { "" });
                match same.iter_mut().find(|(known, _)| *known == what) {
                    Some((_, names)) => names.push(shown),
                    None => same.push((what, vec![shown])),
                }
            }
        }
    }
    let more = differ.len().saturating_sub(NAMED);
    differ.truncate(NAMED);
    differ.extend((more > 0).then(|| format!("{more} more differ")));
    // What is excluded comes before what is open.
    same.sort_by_key(|(what, _)| what == "not decided");
    differ.extend(same.into_iter().map(|(what, names)| {
        let more = names.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}: {what}", names[..names.len().min(NAMED)].join(", "))
    }));
    let price = unsafe_conditions(&by_danger, &everywhere, &said);
    let price = price.map_or_else(String::new, |text| format!(" {text}"));
    (!differ.is_empty()).then(|| format!("{}.{price}", differ.join("; ")))
}

type ByDanger<'a> = BTreeMap<Danger, Vec<&'a str>>;

/// What conditions endanger, and the dangers that all have. The twin does what the baseline does.
fn dangers(analysis: &Analysis) -> (ByDanger<'_>, BTreeSet<Danger>) {
    let names = analysis.conditions.iter().map(|c| c.name.as_str());
    let own: Vec<&str> = names.filter(|name| !analysis.is_aa(name)).collect();
    let mut by_danger = ByDanger::new();
    for name in &own {
        if let Some(danger) = danger(analysis, name) {
            by_danger.entry(danger).or_default().push(name);
        }
    }
    let all = by_danger.iter().filter(|(_, names)| names.len() == own.len());
    let all = all.map(|(danger, _)| *danger).collect();
    (by_danger, all)
}

/// `Unsafe: under `off` a crash can lose acknowledged commits.`, without the conditions of which this was said.
fn unsafe_conditions(
    by_danger: &ByDanger<'_>,
    everywhere: &BTreeSet<Danger>,
    said: &BTreeSet<&str>,
) -> Option<String> {
    let part = |(danger, names): (&Danger, &Vec<&str>)| {
        let names = names.iter().filter(|name| !said.contains(*name));
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        let under = if everywhere.contains(danger) {
            "every condition".to_owned()
        } else {
            names.join(", ")
        };
        (!names.is_empty()).then(|| format!("under {under} {}", danger.what()))
    };
    let parts: Vec<String> = by_danger.iter().rev().filter_map(part).collect();
    (!parts.is_empty()).then(|| format!("Unsafe: {}.", parts.join("; ")))
}

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
    let sum =
        |number: fn(&Condition) -> usize| analysis.conditions.iter().map(number).sum::<usize>();
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
pub(super) fn clause(analysis: &Analysis, condition: &Condition) -> Option<String> {
    let name = &condition.name;
    let trials = format::counted(condition.trials, "trial");
    let what = match condition.state {
        State::Failed => format!("`{name}` FAILED: none of its {trials} succeeded"),
        State::NoValidTrial => {
            let checks: BTreeSet<&str> = invalidations(analysis, name).collect();
            let checks = checks.into_iter().collect::<Vec<_>>().join(", ");
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
    let in_state = |state: State| -> Vec<(&Analysis, &Condition)> {
        conditions.iter().filter(|(_, c)| c.state == state).copied().collect()
    };
    let (failed, invalid) = (in_state(State::Failed), in_state(State::NoValidTrial));
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

/// The check of each trial of a condition that it makes invalid.
fn invalidations<'a>(analysis: &'a Analysis, condition: &'a str) -> impl Iterator<Item = &'a str> {
    let own = analysis.checks.iter().filter(move |f| f.condition.as_deref() == Some(condition));
    let invalid = own.filter(|f| f.verdict == CheckVerdict::Invalid && f.trial.is_some());
    invalid.map(|f| f.id.as_str())
}

/// The text instead of an effect, if there is no effect to show.
pub(super) fn instead_of_effect(analysis: &Analysis, condition: &Condition) -> Option<String> {
    match condition.state {
        State::NotRun => Some("no trial".to_owned()),
        State::Failed => Some("FAILED".to_owned()),
        State::NoValidTrial => Some("no valid trial".to_owned()),
        State::Undecided => {
            let blocks = analysis.primary(&condition.name).map_or(0, |c| c.blocks);
            let planned = format::counted(analysis.blocks, "block");
            Some(format!("undecided: {blocks} of {planned} valid"))
        }
        State::Measured => None,
    }
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
    use crate::report::{document, json, markdown, text};
    use pgio_results::{Check, Outcome, Trial};
    use pgio_verdict::analyze;
    use pgio_verdict::test_support::{experiment, trial};

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
        let sentence = "`x` FAILED: none of its 10 trials succeeded.";
        assert_eq!(headline(&analysis)[0], sentence);
        let statement = Statement::new(&analysis, "x");
        assert_eq!((statement.short().as_str(), statement.long().as_str()), ("FAILED", sentence));
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
