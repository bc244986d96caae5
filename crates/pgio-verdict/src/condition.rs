//! One condition of an analysis: its numbers of trials, their outcomes, and the values of the typical
//! trial, computed by `totals` and `shares`; the factors by which it differs from the baseline; and what was found
//! about it, by `findings` and `steady`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use pgio_results::change::Change;
use pgio_results::danger::Danger;
use pgio_results::latency::{Class, Statistic};
use pgio_results::store::{ConditionInfo, Manifest, StoredExperiment};
use pgio_results::{CheckVerdict, Metric, Outcome, TrialPosition, Warning, metrics};
use serde::{Deserialize, Serialize};

use super::cross;
use super::pairing;

/// One condition and its trials; stored unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ConditionV1"))]
pub struct Condition {
    pub name: String,
    pub treatments: Vec<String>,
    /// Differences from the baseline's treatments.
    #[serde(default)]
    pub factors: Vec<String>,
    /// What its treatments, or its server's settings, endanger most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub danger: Option<Danger>,
    /// All trials on record, including repeats.
    pub trials: usize,
    /// Complete trials that a check invalidates.
    pub invalid: usize,
    /// Failed or interrupted trials.
    pub failed: usize,
    /// Trials that count.
    pub valid: usize,
    /// Starts of the server that these trials ran on; 0 if unknown.
    #[serde(default)]
    pub server_starts: usize,
    /// Their lines in trials.jsonl, counted from 1.
    #[serde(default)]
    pub counted: Vec<usize>,
    /// Whether it could be measured.
    #[serde(default)]
    pub state: State,
    /// Failed, invalid and badly behaved trials, compared with the baseline.
    #[serde(default)]
    pub shares: Vec<Share>,
    #[serde(default)]
    pub steady: Steady,
    pub checks_passed: usize,
    pub checks_total: usize,
    /// Means over the valid trials: geometric, or arithmetic if a value is not positive.
    pub metrics: BTreeMap<String, Metric>,
}

/// Trials that count, by whether they stayed level inside their window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steady {
    pub steady: usize,
    pub unsteady: usize,
    /// Windows that were not judged: too few slices, or slices that do not count the compared work.
    pub too_short: usize,
}

/// The share of trials with one kind of outcome, compared with the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Share {
    /// `failed`, `invalid`, or the id of a check of behavior.
    pub what: String,
    /// Trials of the condition with this outcome.
    pub trials: usize,
    /// All trials of the condition.
    pub of: usize,
    /// Trials of the baseline with this outcome.
    pub baseline_trials: usize,
    pub baseline_of: usize,
    /// Two-sided p of Fisher's exact test; null if a side has no trials.
    pub p: Option<f64>,
    /// Whether it is part of the result: the shares differ at 5 %, or one side alone has trials that failed or
    /// behaved badly.
    pub notable: bool,
}

/// Whether a condition could be measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No trial is on record except interrupted ones.
    NotRun,
    /// None of its trials succeeded.
    Failed,
    /// Some completed, but a check invalidates each of them.
    NoValidTrial,
    /// Too few blocks are valid for an interval.
    Undecided,
    #[default]
    Measured,
}

/// The finding that a condition stalled.
pub const STALLS: &str = "stalls";

/// The finding that conditions of a woven window reached into each other.
pub const WEAVE_CARRY_OVER: &str = "weave-carry-over";
pub const WEAVE_SHORT: &str = "weave-short-slices";

/// A problem, and what to do about it; stored unchanged.
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

/// A warning that trials raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CountedWarning {
    #[serde(flatten)]
    pub warning: Warning,
    /// Number of trials with this warning.
    pub trials: usize,
}

// The factors of a condition: the changes by which it differs from the baseline; and the question that the conditions
// ask.

/// One difference between a condition and the baseline.
#[derive(Debug)]
pub(super) struct Factor<'a> {
    pub change: &'a Change,
    /// Whether only the baseline makes the change.
    without: bool,
}

impl fmt::Display for Factor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let without = if self.without { "without " } else { "" };
        write!(f, "{without}{}", self.change)
    }
}

/// The differences between two conditions. A changed value counts once: `a = 1` against `a = 2` is one
/// factor, and so is a treatment that only one side has.
pub(super) fn differing_factors<'a>(
    condition: &'a ConditionInfo,
    baseline: &'a ConditionInfo,
) -> Vec<Factor<'a>> {
    let ours = condition.changes.iter().filter(|change| !baseline.changes.contains(change));
    let mut differing: Vec<Factor<'_>> =
        ours.map(|change| Factor { change, without: false }).collect();
    for theirs in baseline.changes.iter().filter(|change| !condition.changes.contains(change)) {
        let is_changed =
            |ours: &Factor<'_>| !ours.without && ours.change.is_of_same_setting(theirs);
        if !differing.iter().any(is_changed) {
            differing.push(Factor { change: theirs, without: true });
        }
    }
    differing
}

/// The question of the experiment: its own, or one made from what its conditions change.
pub(super) fn question(manifest: &Manifest) -> String {
    if let Some(own) = &manifest.rules.question {
        return own.clone();
    }
    if let Some(design) = &manifest.design {
        let factors = design.factors.iter().map(|f| format!("`{}`", f.name));
        return format!("Which of {} make a difference?", listed(&factors.collect::<Vec<_>>()));
    }
    let asked =
        |c: &&ConditionInfo| c.name != manifest.baseline && Some(&c.name) != manifest.aa.as_ref();
    let asked: Vec<&ConditionInfo> = manifest.conditions.iter().filter(asked).collect();
    let changes: Vec<&[Change]> = asked.iter().map(|c| c.changes.as_slice()).collect();
    let names = || listed(&asked.iter().map(|c| format!("`{}`", c.name)).collect::<Vec<_>>());
    let what = match changes.as_slice() {
        // One setting, of which each condition has another value.
        [[first], ..]
            if changes.iter().all(|c| matches!(c, [one] if one.is_of_same_setting(first))) =>
        {
            let values = asked.iter().skip(1).map(|c| c.changes[0].value.clone());
            listed(&std::iter::once(first.to_string()).chain(values).collect::<Vec<_>>())
        }
        [] => return format!("How fast is `{}`?", manifest.baseline),
        _ => names(),
    };
    format!("What difference does {what} make, compared with `{}`?", manifest.baseline)
}

/// `a, b or c`
fn listed(all: &[String]) -> String {
    match all {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => all.concat(),
    }
}

/// The operations whose time is shown, with their metrics: the first one that was measured.
pub const OPERATIONS: [(&str, &str); 5] = [
    ("commit", metrics::latency_name(Class::Commit, Statistic::Mean)),
    ("transaction", metrics::latency_name(Class::Transaction, Statistic::Mean)),
    ("update", metrics::latency_name(Class::Update, Statistic::Mean)),
    ("read", metrics::latency_name(Class::Read, Statistic::Mean)),
    ("delivery", metrics::latency_name(Class::Delivery, Statistic::Mean)),
];

/// The first operation whose metric `has` a value in any condition.
pub fn shown(has: impl Fn(&str) -> bool) -> Option<(&'static str, &'static str)> {
    OPERATIONS.into_iter().find(|(_, mean)| has(mean))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialStatus {
    Counts,
    /// Complete, but a check forbids it to count.
    Invalid,
    Failed,
    Interrupted,
    /// A later attempt of the same block replaces it.
    Repeated,
    /// Ran before block 1 to warm up the server, complete or not.
    BurnIn,
    /// Its condition or point is not in the manifest.
    UnknownCondition,
}

impl TrialStatus {
    /// Its name in tables for other programs.
    pub fn name(self) -> &'static str {
        match self {
            TrialStatus::Counts => "counts",
            TrialStatus::Invalid => "invalid",
            TrialStatus::Failed => "failed",
            TrialStatus::Interrupted => "interrupted",
            TrialStatus::Repeated => "repeated",
            TrialStatus::BurnIn => "burn_in",
            TrialStatus::UnknownCondition => "unknown_condition",
        }
    }
}

/// The status of each trial, in the order of the record.
pub fn trial_statuses(stored: &StoredExperiment) -> Vec<TrialStatus> {
    let stored = cross::judged(stored);
    let by_condition = pairing::by_condition_everywhere(&stored.manifest, &stored.trials);
    let counted: BTreeSet<usize> = by_condition
        .values()
        .flat_map(|condition| condition.counted())
        .map(|(line, _)| line)
        .collect();
    let known = |place: &TrialPosition| {
        by_condition.contains_key(place.condition.as_str())
            && stored.manifest.points().contains(&place.point)
    };
    (1..)
        .zip(&stored.trials)
        .map(|(line, trial)| match (&trial.place, &trial.outcome) {
            (Some(place), _) if !known(place) => TrialStatus::UnknownCondition,
            (None, _) => TrialStatus::UnknownCondition,
            (Some(place), _) if place.is_burn_in() => TrialStatus::BurnIn,
            (_, Outcome::Failed { .. }) => TrialStatus::Failed,
            (_, Outcome::Interrupted) => TrialStatus::Interrupted,
            _ if !trial.is_valid() => TrialStatus::Invalid,
            _ if !counted.contains(&line) => TrialStatus::Repeated,
            _ => TrialStatus::Counts,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{experiment, trial};
    use pgio_results::Check;

    #[test]
    fn every_trial_has_its_reason() {
        let t = |condition: &str, attempt| {
            let mut t = trial(condition, 1, &[("commits_per_second", 1.0)]);
            t.place.as_mut().unwrap().attempt = attempt;
            t
        };
        let mut trials = vec![t("local", 0), t("on", 0), t("on", 1), t("on", 2), t("other", 0)];
        trials[1].checks.push(Check::invalid("standby-connected", "it went away", "see its log"));
        trials.push(t("local", 1));
        trials[5].outcome = Outcome::Interrupted;
        trials.push(t("local", 2));
        trials[6].outcome = Outcome::Failed { error: "connection reset".to_owned() };
        let mut burn_in = t("local", 0);
        burn_in.place.as_mut().unwrap().block = 0;
        burn_in.checks.push(Check::invalid("foreign-load", "3 cores", "stop it"));
        trials.push(burn_in);
        use TrialStatus::{
            BurnIn, Counts, Failed, Interrupted, Invalid, Repeated, UnknownCondition,
        };
        assert_eq!(
            trial_statuses(&experiment(&["local", "on"], trials)),
            [Repeated, Invalid, Repeated, Counts, UnknownCondition, Interrupted, Failed, BurnIn]
        );
    }
}
