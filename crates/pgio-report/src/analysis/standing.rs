//! The standing of each trial: whether it counts, and if not, why.
//!
//! The rules are those of `pairing`, by trial, so that a report can show what was excluded.

use std::collections::BTreeSet;

use super::{cross, pairing};
use pgio_results::store::StoredExperiment;
use pgio_results::{Outcome, TrialPosition};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
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

impl Standing {
    /// Its name in tables for other programs.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Counts => "counts",
            Standing::Invalid => "invalid",
            Standing::Failed => "failed",
            Standing::Interrupted => "interrupted",
            Standing::Repeated => "repeated",
            Standing::BurnIn => "burn_in",
            Standing::UnknownCondition => "unknown_condition",
        }
    }
}

/// The standing of each trial, in the order of the record.
pub fn standings(stored: &StoredExperiment) -> Vec<Standing> {
    let stored = cross::judged(stored);
    let arms = pairing::arms_everywhere(&stored.manifest, &stored.trials);
    let counted: BTreeSet<usize> =
        arms.values().flat_map(|arm| arm.counted()).map(|(line, _)| line).collect();
    let known = |place: &TrialPosition| {
        arms.contains_key(place.condition.as_str())
            && stored.manifest.points().contains(&place.point)
    };
    (1..)
        .zip(&stored.trials)
        .map(|(line, trial)| match (&trial.place, &trial.outcome) {
            (Some(place), _) if !known(place) => Standing::UnknownCondition,
            (None, _) => Standing::UnknownCondition,
            (Some(place), _) if place.is_burn_in() => Standing::BurnIn,
            (_, Outcome::Failed { .. }) => Standing::Failed,
            (_, Outcome::Interrupted) => Standing::Interrupted,
            _ if !trial.is_valid() => Standing::Invalid,
            _ if !counted.contains(&line) => Standing::Repeated,
            _ => Standing::Counts,
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
        use Standing::{BurnIn, Counts, Failed, Interrupted, Invalid, Repeated, UnknownCondition};
        assert_eq!(
            standings(&experiment(&["local", "on"], trials)),
            [Repeated, Invalid, Repeated, Counts, UnknownCondition, Interrupted, Failed, BurnIn]
        );
    }
}
