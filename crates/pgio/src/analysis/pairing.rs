//! Which trials count, and which are compared with which.
//!
//! An arm is a condition's trials. Of a block only the last attempt counts, valid or not: an
//! earlier one was repeated for a reason. Two arms are paired by block, and a block enters only
//! where both sides have a valid trial with the metric, so an experiment cut short anywhere is
//! compared on what is complete. Nothing here computes.

use std::collections::BTreeMap;

use crate::results::store::Stored;
use crate::results::{Outcome, Trial};

/// A condition's trials.
#[derive(Debug, Default)]
pub(super) struct Arm<'a> {
    /// Every trial on record with its line in trials.jsonl, counted from 1.
    pub all: Vec<(usize, &'a Trial)>,
    /// The last attempt of each block.
    last: BTreeMap<u32, (u32, &'a Trial)>,
}

impl<'a> Arm<'a> {
    fn add(&mut self, line: usize, block: u32, attempt: u32, trial: &'a Trial) {
        self.all.push((line, trial));
        let last = self.last.entry(block).or_insert((attempt, trial));
        // At equal attempts the later line: a resumed experiment repeats what was interrupted.
        if attempt >= last.0 {
            *last = (attempt, trial);
        }
    }

    /// The last attempt of each block, in the order of the blocks.
    pub(super) fn last_attempts(&self) -> impl Iterator<Item = &'a Trial> {
        self.last.values().map(|(_, trial)| *trial)
    }

    /// The trials that count.
    pub(super) fn valid(&self) -> impl Iterator<Item = &'a Trial> {
        self.last_attempts().filter(|t| t.is_valid())
    }

    /// Lines of the complete trials that a check forbids to count.
    pub(super) fn invalid(&self) -> Vec<usize> {
        let complete = |t: &Trial| t.outcome == Outcome::Complete;
        self.lines(|t| complete(t) && !t.is_valid())
    }

    /// Lines of the trials that did not complete.
    pub(super) fn failed(&self) -> Vec<usize> {
        self.lines(|t| t.outcome != Outcome::Complete)
    }

    fn lines(&self, wanted: impl Fn(&Trial) -> bool) -> Vec<usize> {
        self.all.iter().filter(|(_, t)| wanted(t)).map(|(line, _)| *line).collect()
    }

    fn valid_value(&self, block: u32, metric: &str) -> Option<f64> {
        let (_, trial) = self.last.get(&block)?;
        if trial.is_valid() { value(trial, metric) } else { None }
    }
}

/// The trials of every condition of the manifest; one that never ran has an empty arm.
pub(super) fn arms(stored: &Stored) -> BTreeMap<&str, Arm<'_>> {
    let names = stored.manifest.conditions.iter().map(|c| (c.name.as_str(), Arm::default()));
    let mut arms: BTreeMap<&str, Arm<'_>> = names.collect();
    for (line, trial) in (1..).zip(&stored.trials) {
        let Some(place) = &trial.place else { continue };
        if let Some(arm) = arms.get_mut(place.condition.as_str()) {
            arm.add(line, place.block, place.attempt, trial);
        }
    }
    arms
}

/// What a trial measured, where it measured a number.
pub(super) fn value(trial: &Trial, metric: &str) -> Option<f64> {
    trial.metrics.get(metric).and_then(|m| m.value).filter(|v| v.is_finite())
}

/// Values of both arms by block, ready to be compared.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Pairs {
    /// The numbers of the blocks that entered.
    pub blocks: Vec<u32>,
    pub condition: Vec<f64>,
    pub baseline: Vec<f64>,
}

pub(super) fn pairs(condition: &Arm<'_>, baseline: &Arm<'_>, metric: &str) -> Pairs {
    let mut pairs = Pairs::default();
    for block in condition.last.keys() {
        let of = |arm: &Arm<'_>| arm.valid_value(*block, metric);
        if let (Some(ours), Some(theirs)) = (of(condition), of(baseline)) {
            pairs.blocks.push(*block);
            pairs.condition.push(ours);
            pairs.baseline.push(theirs);
        }
    }
    pairs
}
