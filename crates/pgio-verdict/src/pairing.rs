//! Selects the trials that count, and pairs a condition's with the baseline's.
//!
//! [`ConditionTrials`] holds a condition's trials. In each block the last attempt counts, valid or not. An earlier
//! attempt of the baseline also counts for the conditions that were not repeated. Conditions are paired by block and
//! attempt, because a repeat measures the baseline again beside it. Example, rates in one block:
//!
//! | attempt | local (baseline) | on | off |
//! |---|---|---|---|
//! | 0 | 100 | invalid | 110 |
//! | 1 | 120 | 60 | not repeated |
//!
//! `on` is paired with attempt 1 of `local` (60 : 120), `off` with attempt 0 (110 : 100). If attempt 0 of `local`
//! failed, `off` has no pair.
//!
//! `pgio report --baseline off` makes `off` the baseline; `local`, beside which trials were repeated, is then
//! the own baseline. `off` has no attempt 1, so attempt 1 of `on` is corrected by the change of the own
//! baseline, 60 × 100 / 120, and 50 : 110 is the pair; without both trials of `local` the pair is dropped.
//!
//! A block is used only if both sides have a valid trial with the metric, so an interrupted experiment is
//! compared as far as it is complete. Burn-in trials belong to no condition. Each point is separate:
//! trials at two points are never compared. Verdicts and intervals are computed elsewhere (`compare`).

use std::collections::{BTreeMap, BTreeSet};

use pgio_results::points::Point;
use pgio_results::store::Manifest;
use pgio_results::{Outcome, Trial};

/// A block, and the number of a point.
type BlockPoint = (u32, usize);

/// A condition's trials.
#[derive(Debug, Default)]
pub struct ConditionTrials<'a> {
    /// Every trial on record with its line in trials.jsonl, counted from 1.
    pub all: Vec<(usize, &'a Trial)>,
    /// The attempt of each block at each point that counts: the last.
    last: BTreeMap<BlockPoint, u32>,
    /// By block and attempt, the index into `all`.
    attempts: BTreeMap<(BlockPoint, u32), usize>,
    /// Earlier attempts that another condition's counted attempt is paired with.
    partner_attempts: BTreeSet<(BlockPoint, u32)>,
    /// Indexes into `all` of the trials that count, in the order of the blocks.
    counted: Vec<usize>,
    /// For each metric, its value in each trial of `all`, NaN if absent, up to the last trial that has
    /// one. Filled once in the trials' order, because looking up a metric in thousands of records takes
    /// many times as long.
    columns: BTreeMap<&'a str, Vec<f64>>,
    /// For each class, the fewest operations that any trial that counts observed, zero excluded.
    min_operations: BTreeMap<&'a str, u64>,
    /// Metrics that have a lower bound instead of a value in some trial.
    bounded: BTreeSet<&'a str>,
    /// With another baseline than the experiment's own: the valid trials of the own baseline, by
    /// block, point and attempt.
    own_baseline: Option<BTreeMap<(BlockPoint, u32), &'a Trial>>,
}

impl<'a> ConditionTrials<'a> {
    fn add(&mut self, line: usize, at: BlockPoint, attempt: u32, trial: &'a Trial) {
        let index = self.all.len();
        self.all.push((line, trial));
        for (name, metric) in &trial.metrics {
            let column = self.columns.entry(name).or_default();
            column.resize(index, f64::NAN);
            column.push(metric.value.unwrap_or(f64::NAN));
            if metric.at_least {
                self.bounded.insert(name);
            }
        }
        // At equal attempts the later line: a resumed experiment repeats what was interrupted.
        self.attempts.insert((at, attempt), index);
        let last = self.last.entry(at).or_insert(attempt);
        *last = attempt.max(*last);
    }

    /// Whether any trial, valid or not, has this metric on record.
    pub(super) fn has_metric(&self, metric: &str) -> bool {
        self.columns.contains_key(metric)
    }

    /// The fewest operations of a class that a trial that counts observed, if any did.
    pub(super) fn min_operations(&self, class: &str) -> Option<u64> {
        self.min_operations.get(class).copied()
    }

    /// The values of the trials that count, as far as they have one.
    pub fn values(&self, metric: &str) -> Vec<f64> {
        let column = self.column(metric);
        self.counted.iter().filter_map(|i| column.value(*i)).collect()
    }

    fn column(&self, metric: &str) -> Column<'_> {
        Column(self.columns.get(metric).map_or(&[], Vec::as_slice))
    }

    /// Whether any trial that counts has a lower bound instead of a value.
    pub fn is_bounded(&self, metric: &str) -> bool {
        self.bounded.contains(metric) && self.valid().any(|t| is_lower_bound(t, metric))
    }

    /// The index of the last attempt of each block.
    fn last_attempt_indexes(&self) -> impl Iterator<Item = (BlockPoint, usize)> {
        self.last
            .iter()
            .filter_map(|(at, attempt)| Some((*at, *self.attempts.get(&(*at, *attempt))?)))
    }

    /// The last attempt of each block, in the order of the blocks.
    pub(super) fn last_attempts(&self) -> impl Iterator<Item = &'a Trial> {
        self.last_attempt_indexes().map(|(_, index)| self.all[index].1)
    }

    /// Once all trials are added and the partners are known.
    fn select_counted(&mut self) {
        let counts = |(at, attempt): &(BlockPoint, u32)| {
            self.last.get(at) == Some(attempt) || self.partner_attempts.contains(&(*at, *attempt))
        };
        let all = self.attempts.iter().filter(|(key, _)| counts(key));
        self.counted = all.map(|(_, i)| *i).filter(|i| self.all[*i].1.is_valid()).collect();
        for index in &self.counted {
            let (_, trial) = self.all[*index];
            for (class, histogram) in trial.histograms.iter().filter(|(_, h)| h.total_count() > 0) {
                let min_operations = self.min_operations.entry(class).or_insert(u64::MAX);
                *min_operations = (*min_operations).min(histogram.total_count());
            }
        }
    }

    /// Lines of the trials that count, with the trials, in the order of the blocks.
    pub(super) fn counted(&self) -> impl Iterator<Item = (usize, &'a Trial)> {
        self.counted.iter().map(|i| self.all[*i])
    }

    /// The trials that count.
    pub fn valid(&self) -> impl Iterator<Item = &'a Trial> {
        self.counted().map(|(_, trial)| trial)
    }

    /// Lines of the complete trials that a check invalidates.
    pub(super) fn invalid(&self) -> Vec<usize> {
        let complete = |t: &Trial| t.outcome == Outcome::Complete;
        self.lines_where(|t| complete(t) && !t.is_valid())
    }

    /// Lines of the trials that did not complete.
    pub(super) fn failed(&self) -> Vec<usize> {
        self.lines_where(|t| t.outcome != Outcome::Complete)
    }

    fn lines_where(&self, wanted: impl Fn(&Trial) -> bool) -> Vec<usize> {
        self.all.iter().filter(|(_, t)| wanted(t)).map(|(line, _)| *line).collect()
    }

    /// Index of an attempt of a block at a point, if it is valid.
    fn valid_attempt(&self, at: BlockPoint, attempt: u32) -> Option<usize> {
        self.attempts.get(&(at, attempt)).copied().filter(|i| self.all[*i].1.is_valid())
    }

    /// All valid attempts.
    fn valid_attempts(&self) -> BTreeMap<(BlockPoint, u32), &'a Trial> {
        let all = self.attempts.iter().map(|(key, i)| (*key, self.all[*i].1));
        all.filter(|(_, trial)| trial.is_valid()).collect()
    }

    /// The trials that count, by block; for one point.
    pub fn by_block(&self) -> impl Iterator<Item = (u32, &'a Trial)> {
        let all = self.last_attempt_indexes().map(|((block, _), index)| (block, self.all[index].1));
        all.filter(|(_, trial)| trial.is_valid())
    }

    /// Their values of a metric, by block; for one point.
    pub(super) fn values_by_block(&self, metric: &str) -> impl Iterator<Item = (u32, f64)> {
        let column = self.column(metric);
        self.last_attempt_indexes()
            .filter_map(move |((block, _), index)| Some((block, column.value(index)?, index)))
            .filter(|(_, _, index)| self.all[*index].1.is_valid())
            .map(|(block, value, _)| (block, value))
    }
}

/// A metric's values by the trials' index.
#[derive(Debug, Clone, Copy)]
struct Column<'a>(&'a [f64]);

impl Column<'_> {
    fn value(self, index: usize) -> Option<f64> {
        self.0.get(index).copied().filter(|v| v.is_finite())
    }
}

/// The trials by condition of the manifest; a condition that never ran has none.
pub type ByCondition<'a> = BTreeMap<&'a str, ConditionTrials<'a>>;

/// The trials at the middle point.
pub(super) fn by_condition<'a>(manifest: &'a Manifest, trials: &'a [Trial]) -> ByCondition<'a> {
    by_condition_at(manifest, trials, manifest.middle())
}

pub fn by_condition_at<'a>(
    manifest: &'a Manifest,
    trials: &'a [Trial],
    point: &Point,
) -> ByCondition<'a> {
    collect(manifest, trials, |at| (at == point).then_some(0))
}

/// The trials at all points of the manifest.
pub(super) fn by_condition_everywhere<'a>(
    manifest: &'a Manifest,
    trials: &'a [Trial],
) -> ByCondition<'a> {
    collect(manifest, trials, |at| manifest.points().iter().position(|point| point == at))
}

fn collect<'a>(
    manifest: &'a Manifest,
    trials: &'a [Trial],
    number: impl Fn(&Point) -> Option<usize>,
) -> ByCondition<'a> {
    let names = manifest.conditions.iter().map(|c| (c.name.as_str(), ConditionTrials::default()));
    let mut by_condition: ByCondition<'_> = names.collect();
    for (line, trial) in (1..).zip(trials) {
        let Some(place) = trial.place.as_ref().filter(|p| !p.is_burn_in()) else { continue };
        let condition = by_condition.get_mut(place.condition.as_str());
        if let (Some(condition), Some(point)) = (condition, number(&place.point)) {
            condition.add(line, (place.block, point), place.attempt, trial);
        }
    }
    keep_partners(&mut by_condition, &manifest.baseline);
    by_condition.values_mut().for_each(ConditionTrials::select_counted);
    if let Some(own) = &manifest.own_baseline {
        let beside =
            by_condition.get(own.as_str()).map(ConditionTrials::valid_attempts).unwrap_or_default();
        if let Some(condition) = by_condition.get_mut(manifest.baseline.as_str()) {
            condition.own_baseline = Some(beside);
        }
    }
    by_condition
}

/// Lets the baseline's attempts count that other conditions are paired with.
fn keep_partners(by_condition: &mut ByCondition<'_>, baseline: &str) {
    let others = by_condition.iter().filter(|(name, _)| **name != baseline);
    let counted: BTreeSet<(BlockPoint, u32)> = others
        .flat_map(|(_, condition)| condition.last.iter().map(|(at, attempt)| (*at, *attempt)))
        .collect();
    if let Some(condition) = by_condition.get_mut(baseline) {
        condition.partner_attempts =
            counted.into_iter().filter(|key| condition.attempts.contains_key(key)).collect();
    }
}

/// The value of a metric in a trial, if it is finite.
pub fn value(trial: &Trial, metric: &str) -> Option<f64> {
    trial.metrics.get(metric).and_then(|m| m.value).filter(|v| v.is_finite())
}

pub(super) fn is_lower_bound(trial: &Trial, metric: &str) -> bool {
    trial.metrics.get(metric).is_some_and(|m| m.at_least && m.value.is_some())
}

/// Values of both sides by block.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Pairs {
    /// The numbers of the blocks.
    pub blocks: Vec<u32>,
    pub condition: Vec<f64>,
    pub baseline: Vec<f64>,
}

/// Two trials of one block.
#[derive(Debug)]
struct Pair<'a> {
    block: u32,
    /// Index into `all` of the condition's trials, and of the baseline's.
    condition: usize,
    baseline: usize,
    /// If the two were not measured beside each other: the trials of the experiment's own baseline beside each.
    beside: Option<[&'a Trial; 2]>,
}

impl Pair<'_> {
    /// How much the machine's rate changed between the two trials; `None` if that is unknown.
    fn drift(&self, metric: &str) -> Option<f64> {
        let Some(beside) = self.beside else { return Some(1.0) };
        let known = |t| value(t, metric).filter(|v| *v > 0.0 && !is_lower_bound(t, metric));
        let [condition, baseline] = beside.map(known);
        Some(baseline? / condition?)
    }
}

/// Two conditions with their trials paired.
#[derive(Debug)]
pub struct PairedTrials<'a, 'b> {
    pub condition: &'b ConditionTrials<'a>,
    pub baseline: &'b ConditionTrials<'a>,
    /// The blocks in which both have a trial that counts, in order.
    pairs: Vec<Pair<'a>>,
}

impl<'a, 'b> PairedTrials<'a, 'b> {
    pub fn new(
        condition: &'b ConditionTrials<'a>,
        baseline: &'b ConditionTrials<'a>,
    ) -> PairedTrials<'a, 'b> {
        let beside = |(at, ours): (&BlockPoint, &u32)| pair(condition, baseline, *at, *ours);
        PairedTrials {
            condition,
            baseline,
            pairs: condition.last.iter().filter_map(beside).collect(),
        }
    }

    /// The trials that were measured beside each other, by block, the condition's first.
    pub(super) fn by_block(&self) -> impl Iterator<Item = (u32, &'a Trial, &'a Trial)> {
        self.pairs.iter().filter(|pair| pair.beside.is_none()).map(|pair| {
            let condition = self.condition.all[pair.condition].1;
            (pair.block, condition, self.baseline.all[pair.baseline].1)
        })
    }

    /// The same without their blocks.
    pub(super) fn trials(&self) -> impl Iterator<Item = (&'a Trial, &'a Trial)> {
        self.by_block().map(|(_, condition, baseline)| (condition, baseline))
    }

    pub(super) fn values(&self, metric: &str) -> Pairs {
        let (ours, theirs) = (self.condition.column(metric), self.baseline.column(metric));
        let mut pairs = Pairs::default();
        for pair in &self.pairs {
            let values = (ours.value(pair.condition), theirs.value(pair.baseline));
            if let ((Some(ours), Some(theirs)), Some(drift)) = (values, pair.drift(metric)) {
                pairs.blocks.push(pair.block);
                pairs.condition.push(ours * drift);
                pairs.baseline.push(theirs);
            }
        }
        pairs
    }

    /// Whether the condition's trials, and the baseline's, have lower bounds instead of values.
    pub(super) fn bounds(&self, metric: &str) -> [bool; 2] {
        let mut found = [false; 2];
        // Return early, because few metrics have any.
        if !self.condition.bounded.contains(metric) && !self.baseline.bounded.contains(metric) {
            return found;
        }
        for pair in self.pairs.iter().filter(|pair| pair.drift(metric).is_some()) {
            let (ours, theirs) =
                (self.condition.all[pair.condition].1, self.baseline.all[pair.baseline].1);
            if value(ours, metric).is_some() && value(theirs, metric).is_some() {
                found[0] |= is_lower_bound(ours, metric);
                found[1] |= is_lower_bound(theirs, metric);
            }
        }
        found
    }
}

/// Pairs the condition's attempt that counts with the baseline's.
fn pair<'a>(
    condition: &ConditionTrials<'a>,
    baseline: &ConditionTrials<'a>,
    at: BlockPoint,
    ours: u32,
) -> Option<Pair<'a>> {
    let paired =
        |condition, baseline, beside| Some(Pair { block: at.0, condition, baseline, beside });
    if let Some(theirs) = baseline.valid_attempt(at, ours) {
        return paired(condition.valid_attempt(at, ours)?, theirs, None);
    }
    // Only one side was repeated, or the two were not repeated together.
    let last = *baseline.last.get(&at)?;
    let theirs = baseline.valid_attempt(at, last)?;
    if let Some(beside) = condition.valid_attempt(at, last) {
        condition.valid_attempt(at, ours)?;
        return paired(beside, theirs, None);
    }
    let condition = condition.valid_attempt(at, ours)?;
    let Some(own) = &baseline.own_baseline else {
        // The trial beside it does not count, and a later one lies elsewhere in time.
        if baseline.attempts.contains_key(&(at, ours)) {
            return None;
        }
        return paired(condition, theirs, None);
    };
    let beside = [*own.get(&(at, ours))?, *own.get(&(at, last))?];
    paired(condition, theirs, Some(beside))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{experiment, trial};
    use pgio_results::Check;

    const RATE: &str = "commits_per_second";

    /// Condition, attempt, rate, and whether it is valid; all in block 1.
    fn one((condition, attempt, rate, valid): &(&str, u32, f64, bool)) -> Trial {
        let mut t = trial(condition, 1, &[(RATE, *rate)]);
        t.place.as_mut().unwrap().attempt = *attempt;
        if !valid {
            t.checks.push(Check::invalid("steal", "30 %", "measure elsewhere"));
        }
        t
    }

    fn paired(trials: &[(&str, u32, f64, bool)]) -> (Pairs, Vec<usize>) {
        let stored = experiment(&["local", "on", "off"], trials.iter().map(one).collect());
        let by_condition = by_condition(&stored.manifest, &stored.trials);
        let counted = by_condition["local"].counted().map(|(line, _)| line).collect();
        (PairedTrials::new(&by_condition["on"], &by_condition["local"]).values(RATE), counted)
    }

    fn values(pairs: &Pairs) -> Vec<(f64, f64)> {
        pairs.condition.iter().copied().zip(pairs.baseline.iter().copied()).collect()
    }

    #[test]
    fn a_repeat_is_paired_with_the_baseline_that_was_measured_beside_it() {
        let (found, counted) = paired(&[
            ("local", 0, 100.0, true),
            ("on", 0, 1.0, false),
            ("off", 0, 110.0, true),
            ("on", 1, 60.0, true),
            ("local", 1, 120.0, true),
        ]);
        assert_eq!(values(&found), [(60.0, 120.0)]);
        assert_eq!(counted, [1, 5], "the original stays for `off`");
    }

    #[test]
    fn a_pair_with_an_invalid_baseline_is_left_out() {
        let (found, _) = paired(&[
            ("local", 0, 100.0, true),
            ("on", 0, 1.0, false),
            ("on", 1, 60.0, true),
            ("local", 1, 120.0, false),
        ]);
        assert_eq!(values(&found), []);
    }

    /// `on` was repeated with the baseline beside it; `off` was measured when the baseline's first trial failed.
    #[test]
    fn a_baseline_that_failed_is_not_replaced_by_a_later_one() {
        const NONE: Vec<(f64, f64)> = Vec::new();
        let mut trials: Vec<Trial> = [
            ("local", 0, 100.0, true),
            ("on", 0, 1.0, false),
            ("off", 0, 110.0, true),
            ("on", 1, 60.0, true),
            ("local", 1, 120.0, true),
        ]
        .iter()
        .map(one)
        .collect();
        let pairs = |trials: &[Trial]| {
            let stored = experiment(&["local", "on", "off"], trials.to_vec());
            let by_condition = by_condition(&stored.manifest, &stored.trials);
            ["on", "off"].map(|name| {
                values(&PairedTrials::new(&by_condition[name], &by_condition["local"]).values(RATE))
            })
        };
        assert_eq!(pairs(&trials), [vec![(60.0, 120.0)], vec![(110.0, 100.0)]]);
        trials[0].outcome = Outcome::Failed { error: "out of memory".to_owned() };
        assert_eq!(pairs(&trials), [vec![(60.0, 120.0)], NONE]);
        // Nor is one that a check across trials invalidates after the block.
        trials[0].outcome = Outcome::Complete;
        trials[0].checks.push(Check::invalid("data-drift", "10 rows", "load again"));
        assert_eq!(pairs(&trials), [vec![(60.0, 120.0)], NONE]);
        // Without the repeat of `on`, the block is left out as well.
        trials.truncate(3);
        assert_eq!(pairs(&trials), [NONE, NONE]);
        // Alone, a repeat of a failed baseline has no pair either.
        trials[0] = one(&("local", 0, 100.0, true));
        trials[0].outcome = Outcome::Failed { error: "out of memory".to_owned() };
        trials.push(one(&("local", 1, 120.0, true)));
        assert_eq!(pairs(&trials), [NONE, NONE]);
    }

    /// The rates of `on` and `off`, paired as compared with `off`, in an experiment whose baseline is `local`.
    fn against_off(trials: &[(&str, u32, f64, bool)]) -> Vec<(f64, f64)> {
        let stored = experiment(&["local", "on", "off"], trials.iter().map(one).collect());
        let stored = stored.with_baseline("off").unwrap();
        let by_condition = by_condition(&stored.manifest, &stored.trials);
        values(&PairedTrials::new(&by_condition["on"], &by_condition["off"]).values(RATE))
    }

    #[test]
    fn against_another_condition_a_repeat_counts_by_the_baseline_beside_it() {
        // The machine became slower by a fifth until the repeat.
        let mut trials = vec![
            ("local", 0, 100.0, true),
            ("on", 0, 1.0, false),
            ("off", 0, 110.0, true),
            ("on", 1, 48.0, true),
            ("local", 1, 80.0, true),
        ];
        assert_eq!(against_off(&trials), [(60.0, 110.0)]);
        // The repeat belongs to the new baseline.
        let other = [
            ("local", 0, 100.0, true),
            ("on", 0, 60.0, true),
            ("off", 0, 1.0, false),
            ("off", 1, 88.0, true),
            ("local", 1, 80.0, true),
        ];
        assert_eq!(against_off(&other), [(48.0, 88.0)]);
        // Without a trial beside it, a repeat has no partner.
        trials.pop();
        assert_eq!(against_off(&trials), []);
        // Both were repeated together.
        let both = [
            ("local", 0, 1.0, false),
            ("on", 0, 60.0, true),
            ("off", 0, 110.0, true),
            ("on", 1, 48.0, true),
            ("off", 1, 88.0, true),
            ("local", 1, 80.0, true),
        ];
        assert_eq!(against_off(&both), [(48.0, 88.0)]);
    }
}
