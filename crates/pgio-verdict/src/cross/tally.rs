//! Aggregates over the trials so far, updated with each new trial, so that judging one trial does not
//! examine all others again.
//!
//! Next: `cross` judges a trial by these aggregates.

use std::collections::BTreeMap;
use std::sync::Arc;

use pgio_results::model::{DatasetInfo, Facts, TargetResult};
use pgio_results::store::Manifest;
use pgio_results::{Outcome, Trial, TrialPosition};

/// A condition at a point, each by its index in the manifest.
pub(super) type CellId = (usize, usize);

#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    /// Bytes of data before the first trial of each server.
    first_bytes: BTreeMap<String, u64>,
    environments: BTreeMap<CellId, Environment>,
    /// Those of the further servers of a window, by target.
    further: BTreeMap<(CellId, String), Environment>,
    /// The last attempt of each block, of the complete ones whose checkpoints were counted.
    last: BTreeMap<(CellId, u32), LastAttempt>,
    checkpoints: BTreeMap<CellId, Checkpoints>,
}

/// The environment that the trials of one cell recorded.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    trials: usize,
    /// The server of the first of them.
    pub target: String,
    names: BTreeMap<String, Values>,
    /// The last trial's environment, with the index of each name's value in `names`, as a cache: the
    /// next trial's rarely differs.
    last: Option<(Arc<Facts>, Vec<usize>)>,
}

/// How often each value was recorded, in order of first occurrence; `None` if the name is absent.
type Values = Vec<(Option<String>, usize)>;

#[derive(Debug, Clone, Copy)]
struct LastAttempt {
    attempt: u32,
    counted: bool,
    had_checkpoint: bool,
}

/// Trials whose checkpoints were counted, and how many of them had one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Checkpoints {
    pub counted: usize,
    pub with_checkpoint: usize,
}

impl Tally {
    /// A burn-in trial is none of them.
    pub(super) fn add(&mut self, manifest: &Manifest, trial: &Trial) {
        if trial.is_burn_in() {
            return;
        }
        for (target, data) in data_sets(trial) {
            if !self.first_bytes.contains_key(target) {
                self.first_bytes.insert(target.to_owned(), data.bytes_before);
            }
        }
        let Some((place, cell)) = trial.place.as_ref().and_then(|p| Some((p, cell(manifest, p)?)))
        else {
            return;
        };
        if is_described(trial) {
            let environment = self.environments.entry(cell).or_default();
            environment.add(&trial.server.target, &trial.environment);
        }
        for (name, part) in further(trial) {
            let environment = self.further.entry((cell, name.to_owned())).or_default();
            let facts = environment.shared(&part.environment);
            environment.add(&part.server.target, &facts);
        }
        self.add_last(place, cell, trial);
    }

    fn add_last(&mut self, place: &TrialPosition, cell: CellId, trial: &Trial) {
        let counted = trial.outcome == Outcome::Complete && checkpoints_begun(trial).is_some();
        let this = LastAttempt {
            attempt: place.attempt,
            counted,
            had_checkpoint: counted && had_checkpoint(trial),
        };
        let counts = self.checkpoints.entry(cell).or_default();
        if let Some(before) = self.last.get(&(cell, place.block)) {
            // At equal attempts the later one, as the pairing has it.
            if this.attempt < before.attempt {
                return;
            }
            counts.counted -= usize::from(before.counted);
            counts.with_checkpoint -= usize::from(before.had_checkpoint);
        }
        counts.counted += usize::from(this.counted);
        counts.with_checkpoint += usize::from(this.had_checkpoint);
        self.last.insert((cell, place.block), this);
    }

    pub(super) fn first_bytes(&self, target: &str) -> Option<u64> {
        self.first_bytes.get(target).copied()
    }

    pub(super) fn environment(&self, cell: CellId) -> Option<&Environment> {
        self.environments.get(&cell)
    }

    /// The environment of a further server of the cell's windows.
    pub(super) fn further(&self, cell: CellId, target: &str) -> Option<&Environment> {
        self.further.get(&(cell, target.to_owned()))
    }

    /// Counts at a point over the conditions that `wanted` selects.
    pub(super) fn checkpoints(&self, point: usize, wanted: impl Fn(usize) -> bool) -> Checkpoints {
        let at_point =
            self.checkpoints.iter().filter(|(cell, _)| cell.1 == point && wanted(cell.0));
        at_point.fold(Checkpoints::default(), |sum, (_, c)| Checkpoints {
            counted: sum.counted + c.counted,
            with_checkpoint: sum.with_checkpoint + c.with_checkpoint,
        })
    }
}

impl Environment {
    /// The last trial's facts if these are the same, else a copy.
    fn shared(&self, facts: &Facts) -> Arc<Facts> {
        let last = self.last.as_ref().filter(|(last, _)| **last == *facts);
        last.map_or_else(|| Arc::new(facts.clone()), |(last, _)| Arc::clone(last))
    }

    fn add(&mut self, target: &str, facts: &Arc<Facts>) {
        if self.trials == 0 {
            target.clone_into(&mut self.target);
        }
        self.trials += 1;
        if let Some((last, places)) = &self.last
            && *last == *facts
        {
            for (values, place) in self.names.values_mut().zip(places) {
                values[*place].1 += 1;
            }
            return;
        }
        for (name, values) in &mut self.names {
            if !facts.contains_key(name) {
                count(values, None);
            }
        }
        for (name, value) in facts.iter() {
            match self.names.get_mut(name) {
                Some(values) => count(values, Some(value)),
                None => {
                    let earlier = self.trials - 1;
                    let before = (earlier > 0).then_some((None, earlier));
                    let values = before.into_iter().chain([(Some(value.clone()), 1)]).collect();
                    self.names.insert(name.clone(), values);
                }
            }
        }
        let place = |(name, values): (&String, &Values)| {
            let found = facts.get(name);
            let counted = values.iter().position(|(value, _)| value.as_ref() == found);
            counted.expect("each value was counted above")
        };
        let places = self.names.iter().map(place).collect();
        self.last = Some((Arc::clone(facts), places));
    }

    /// The most frequent value of each name, the earliest of equally frequent ones; a name that a
    /// trial does not have is absent there, which for a setting means its default.
    pub(super) fn usual(&self) -> BTreeMap<&str, Option<&str>> {
        self.names.iter().map(|(name, values)| (name.as_str(), usual(values))).collect()
    }
}

/// The most frequent value; the earliest of equally frequent ones.
fn usual(values: &Values) -> Option<&str> {
    let mut most: Option<&(Option<String>, usize)> = None;
    for value in values {
        if most.is_none_or(|(_, n)| value.1 > *n) {
            most = Some(value);
        }
    }
    most?.0.as_deref()
}

fn count(values: &mut Values, value: Option<&str>) {
    match values.iter_mut().find(|(known, _)| known.as_deref() == value) {
        Some((_, n)) => *n += 1,
        None => values.push((value.map(str::to_owned), 1)),
    }
}

pub(super) fn cell(manifest: &Manifest, place: &TrialPosition) -> Option<CellId> {
    let condition = manifest.conditions.iter().position(|c| c.name == place.condition)?;
    let point = manifest.points().iter().position(|p| *p == place.point)?;
    Some((condition, point))
}

/// Returns each server of a trial, as it identifies itself, with its data set.
pub(super) fn data_sets(trial: &Trial) -> Vec<(&str, &DatasetInfo)> {
    if trial.targets.is_empty() {
        let data = trial.dataset.as_ref();
        return data.map(|data| (trial.server.target.as_str(), data)).into_iter().collect();
    }
    let each = trial.targets.values();
    each.filter_map(|part| Some((part.server.target.as_str(), part.dataset.as_ref()?))).collect()
}

/// Complete, with an environment on record.
pub(super) fn is_described(trial: &Trial) -> bool {
    trial.outcome == Outcome::Complete && !trial.environment.is_empty()
}

/// The servers of a complete trial beside its first one, by target, as far as their environment is on record.
pub(super) fn further(trial: &Trial) -> impl Iterator<Item = (&str, &TargetResult)> {
    let is_further = |part: &TargetResult| {
        part.server.target != trial.server.target && !part.environment.is_empty()
    };
    let complete = trial.outcome == Outcome::Complete;
    let parts = trial.targets.iter().filter(move |(_, part)| complete && is_further(part));
    parts.map(|(name, part)| (name.as_str(), part))
}

/// Checkpoints inside the window.
pub(super) fn checkpoints_begun(trial: &Trial) -> Option<f64> {
    trial.metrics.get("checkpoints").and_then(|m| m.value)
}

pub(super) fn had_checkpoint(trial: &Trial) -> bool {
    trial.outcome == Outcome::Complete && checkpoints_begun(trial).is_some_and(|n| n > 0.0)
}
