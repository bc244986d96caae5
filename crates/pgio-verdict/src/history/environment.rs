//! What changed in the environment from one run to the next.
//!
//! A fact that changes in most runs, such as a seed, explains no change of the level; it is named once, not
//! at every run. Nothing is judged here: a coincidence in time is a hint, not a cause.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Serialize, Serializer};

use super::run::Run;

/// A difference between a run and the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnvironmentChange {
    /// Number of the first run with the new value.
    pub run: usize,
    /// Such as `host.kernel` or `treatments of local`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub what: ChangedSubject,
    /// Null if the fact is absent.
    pub before: Option<String>,
    pub after: Option<String>,
}

/// What changed from one run to the next. Serialized as its text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangedSubject {
    /// A fact of the environment, by its name.
    Fact(String),
    Treatments {
        condition: String,
    },
}

impl ChangedSubject {
    /// Whether it concerns this condition: the treatments of another one do not.
    pub fn concerns(&self, name: &str) -> bool {
        match self {
            ChangedSubject::Fact(_) => true,
            ChangedSubject::Treatments { condition } => condition == name,
        }
    }
}

impl fmt::Display for ChangedSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangedSubject::Fact(name) => f.write_str(name),
            ChangedSubject::Treatments { condition } => write!(f, "treatments of {condition}"),
        }
    }
}

impl Serialize for ChangedSubject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
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
    let mut counts: BTreeMap<&ChangedSubject, usize> = BTreeMap::new();
    for change in &all {
        *counts.entry(&change.what).or_default() += 1;
    }
    let often = |n: usize| n > RARELY && n * OFTEN > runs.len();
    let varying: BTreeSet<ChangedSubject> =
        counts.into_iter().filter(|(_, n)| often(*n)).map(|(what, _)| what.clone()).collect();
    let marked = all.into_iter().filter(|change| !varying.contains(&change.what)).collect();
    let mut names: Vec<String> = varying.iter().map(ToString::to_string).collect();
    names.sort();
    (marked, names)
}

fn between(run: usize, before: &Run, after: &Run) -> Vec<EnvironmentChange> {
    let mut found = Vec::new();
    for name in before.facts.keys().chain(after.facts.keys()).collect::<BTreeSet<_>>() {
        let (old, new) = (before.facts.get(name), after.facts.get(name));
        if old != new {
            let what = ChangedSubject::Fact(name.clone());
            let (before, after) = (old.cloned(), new.cloned());
            found.push(EnvironmentChange { run, what, before, after });
        }
    }
    for condition in &after.conditions {
        let Some(old) = before.condition(&condition.name) else { continue };
        if old.treatments != condition.treatments {
            found.push(EnvironmentChange {
                run,
                what: ChangedSubject::Treatments { condition: condition.name.clone() },
                before: Some(old.treatments.clone()),
                after: Some(condition.treatments.clone()),
            });
        }
    }
    found
}
