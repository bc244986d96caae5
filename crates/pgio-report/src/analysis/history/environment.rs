//! What changed in the environment from one run to the next.
//!
//! A fact that changes in most runs, such as a seed, explains no change of the level; it is named once, not
//! at every run. Nothing is judged here: a coincidence in time is a hint, not a cause.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::run::Run;

/// A difference between a run and the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnvironmentChange {
    /// Number of the first run with the new value.
    pub run: usize,
    /// Such as `host.kernel` or `treatments of local`.
    pub what: String,
    /// Null if the fact is absent.
    pub before: Option<String>,
    pub after: Option<String>,
}

/// Changes at more than one run in this many are not marked.
const OFTEN: usize = 4;
/// A few runs may all differ.
const RARELY: usize = 3;

/// The changes in the order of the runs, and the names of facts that change all the time.
pub(super) fn changes(runs: &[Run]) -> (Vec<EnvironmentChange>, Vec<String>) {
    let all: Vec<EnvironmentChange> = (2..)
        .zip(runs.windows(2))
        .flat_map(|(number, pair)| between(number, &pair[0], &pair[1]))
        .collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for change in &all {
        *counts.entry(&change.what).or_default() += 1;
    }
    let often = |n: usize| n > RARELY && n * OFTEN > runs.len();
    let varying: BTreeSet<String> =
        counts.into_iter().filter(|(_, n)| often(*n)).map(|(name, _)| name.to_owned()).collect();
    let marked = all.into_iter().filter(|change| !varying.contains(&change.what)).collect();
    (marked, varying.into_iter().collect())
}

fn between(run: usize, before: &Run, after: &Run) -> Vec<EnvironmentChange> {
    let mut found = Vec::new();
    for what in before.facts.keys().chain(after.facts.keys()).collect::<BTreeSet<_>>() {
        let (old, new) = (before.facts.get(what), after.facts.get(what));
        if old != new {
            let (what, before, after) = (what.clone(), old.cloned(), new.cloned());
            found.push(EnvironmentChange { run, what, before, after });
        }
    }
    for condition in &after.conditions {
        let Some(old) = before.condition(&condition.name) else { continue };
        if old.treatments != condition.treatments {
            found.push(EnvironmentChange {
                run,
                what: format!("treatments of {}", condition.name),
                before: Some(old.treatments.clone()),
                after: Some(condition.treatments.clone()),
            });
        }
    }
    found
}
