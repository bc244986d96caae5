//! Which trials count, and which are compared with which.
//!
//! An arm is a condition's trials. Of a block only the last attempt counts, valid or not: an
//! earlier one was repeated for a reason. Two arms are paired by block, and a block enters only
//! where both sides have a valid trial with the metric, so an experiment cut short anywhere is
//! compared on what is complete. A burn-in trial is in no arm. In a sweep this holds at each point: trials at two points are never
//! compared. Nothing here computes.

use std::collections::BTreeMap;

use crate::results::store::Manifest;
use crate::results::sweep::Point;
use crate::results::{Outcome, Trial};

/// A condition's trials.
#[derive(Debug, Default)]
pub(super) struct Arm<'a> {
    /// Every trial on record with its line in trials.jsonl, counted from 1.
    pub all: Vec<(usize, &'a Trial)>,
    /// The last attempt of each block at each point, with its number and its line.
    last: BTreeMap<(u32, usize), Last<'a>>,
}

#[derive(Debug, Clone, Copy)]
struct Last<'a> {
    attempt: u32,
    line: usize,
    trial: &'a Trial,
}

impl<'a> Arm<'a> {
    fn add(&mut self, line: usize, at: (u32, usize), attempt: u32, trial: &'a Trial) {
        self.all.push((line, trial));
        let this = Last { attempt, line, trial };
        let last = self.last.entry(at).or_insert(this);
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

    fn valid_value(&self, at: (u32, usize), metric: &str) -> Option<f64> {
        value(self.valid_in(at)?, metric)
    }

    /// The trial of a block at a point, where it counts.
    fn valid_in(&self, at: (u32, usize)) -> Option<&'a Trial> {
        self.last.get(&at).map(|last| last.trial).filter(|t| t.is_valid())
    }

    /// The trials that count, by block; for an arm of one point.
    pub(super) fn by_block(&self) -> impl Iterator<Item = (u32, &'a Trial)> {
        let all = self.last.iter().map(|((block, _), last)| (*block, last.trial));
        all.filter(|(_, trial)| trial.is_valid())
    }
}

/// By condition of the manifest; one that never ran has an empty arm.
pub(super) type Arms<'a> = BTreeMap<&'a str, Arm<'a>>;

/// At the middle point, which is where everything is without a sweep.
pub(super) fn arms<'a>(manifest: &'a Manifest, trials: &'a [Trial]) -> Arms<'a> {
    arms_at(manifest, trials, manifest.middle())
}

pub(super) fn arms_at<'a>(manifest: &'a Manifest, trials: &'a [Trial], point: &Point) -> Arms<'a> {
    collect(manifest, trials, |at| (at == point).then_some(0))
}

/// At all points of the manifest.
pub(super) fn arms_everywhere<'a>(manifest: &'a Manifest, trials: &'a [Trial]) -> Arms<'a> {
    collect(manifest, trials, |at| manifest.points().iter().position(|point| point == at))
}

fn collect<'a>(
    manifest: &'a Manifest,
    trials: &'a [Trial],
    number: impl Fn(&Point) -> Option<usize>,
) -> Arms<'a> {
    let names = manifest.conditions.iter().map(|c| (c.name.as_str(), Arm::default()));
    let mut arms: Arms<'_> = names.collect();
    for (line, trial) in (1..).zip(trials) {
        let Some(place) = trial.place.as_ref().filter(|p| !p.is_burn_in()) else { continue };
        let arm = arms.get_mut(place.condition.as_str());
        if let (Some(arm), Some(point)) = (arm, number(&place.point)) {
            arm.add(line, (place.block, point), place.attempt, trial);
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
    blocks.filter_map(|at| Some((condition.valid_in(*at)?, baseline.valid_in(*at)?)))
}

pub(super) fn pairs(condition: &Arm<'_>, baseline: &Arm<'_>, metric: &str) -> Pairs {
    let mut pairs = Pairs::default();
    for at in condition.last.keys() {
        let of = |arm: &Arm<'_>| arm.valid_value(*at, metric);
        if let (Some(ours), Some(theirs)) = (of(condition), of(baseline)) {
            pairs.blocks.push(at.0);
            pairs.condition.push(ours);
            pairs.baseline.push(theirs);
        }
    }
    pairs
}
