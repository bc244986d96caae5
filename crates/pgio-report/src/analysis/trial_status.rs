//! The status of each trial: whether it counts, and if not, why.
//!
//! It applies the rules of `pairing` by trial, so that a report can show what was excluded.

use std::collections::BTreeSet;

use super::{cross, pairing};
use pgio_results::store::StoredExperiment;
use pgio_results::{Outcome, TrialPosition};

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
    use crate::analysis::test_support::{experiment, trial};
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
