//! Which trials count, and which are compared with which.
//!
//! An arm is a condition's trials. Of a block only the last attempt counts, valid or not: an
//! earlier one was repeated for a reason. Two arms are paired by block, and a block enters only
//! where both sides have a valid trial with the metric, so an experiment cut short anywhere is
//! compared on what is complete. Nothing here computes.

use std::collections::BTreeMap;

use crate::results::store::Manifest;
use crate::results::{Outcome, Trial};

/// A condition's trials.
#[derive(Debug, Default)]
pub(super) struct Arm<'a> {
    /// Every trial on record with its line in trials.jsonl, counted from 1.
    pub all: Vec<(usize, &'a Trial)>,
    /// The last attempt of each block, with its number and its line.
    last: BTreeMap<u32, Last<'a>>,
}

#[derive(Debug, Clone, Copy)]
struct Last<'a> {
    attempt: u32,
    line: usize,
    trial: &'a Trial,
}

impl<'a> Arm<'a> {
    fn add(&mut self, line: usize, block: u32, attempt: u32, trial: &'a Trial) {
        self.all.push((line, trial));
        let this = Last { attempt, line, trial };
        let last = self.last.entry(block).or_insert(this);
        // At equal attempts the later line: a resumed experiment repeats what was interrupted.
        if attempt >= last.attempt {
            *last = this;
        }
    }

    /// The last attempt of each block, in the order of the blocks.
    pub(super) fn last_attempts(&self) -> impl Iterator<Item = &'a Trial> {
        self.last.values().map(|last| last.trial)
    }

    /// Lines of the trials that count, with the trials.
    pub(super) fn counted(&self) -> impl Iterator<Item = (usize, &'a Trial)> {
        self.last.values().map(|last| (last.line, last.trial)).filter(|(_, t)| t.is_valid())
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
        value(self.valid_in(block)?, metric)
    }

    /// The trial of a block, where it counts.
    fn valid_in(&self, block: u32) -> Option<&'a Trial> {
        self.last.get(&block).map(|last| last.trial).filter(|t| t.is_valid())
    }
}

/// The trials of every condition of the manifest; one that never ran has an empty arm.
pub(super) fn arms<'a>(manifest: &'a Manifest, trials: &'a [Trial]) -> BTreeMap<&'a str, Arm<'a>> {
    let names = manifest.conditions.iter().map(|c| (c.name.as_str(), Arm::default()));
    let mut arms: BTreeMap<&str, Arm<'_>> = names.collect();
    for (line, trial) in (1..).zip(trials) {
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

/// The trials of the blocks in which both arms have one that counts.
pub(super) fn trial_pairs<'a>(
    condition: &Arm<'a>,
    baseline: &Arm<'a>,
) -> impl Iterator<Item = (&'a Trial, &'a Trial)> {
    let blocks = condition.last.keys();
    blocks.filter_map(|block| Some((condition.valid_in(*block)?, baseline.valid_in(*block)?)))
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
