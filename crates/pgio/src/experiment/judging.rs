//! Decides by the analysis which trials must not count.
//!
//! `pgio_verdict::resolution` computes the intervals. The verdicts are the analysis's, so that the loop never repeats a trial that the report
//! counts, or the reverse. Each trial is added once; judging a block takes the time of its own
//! trials, however many preceded it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::run::{Invalid, StoredAttempts};
use pgio_results::model::{Check, CheckVerdict, Outcome, Trial};
use pgio_results::points::Cell;
use pgio_results::store::{Manifest, StoredExperiment};
use pgio_results::telemetry::Telemetry;
use pgio_verdict::cross::Across;
use pgio_verdict::resolution::Width;

/// The trials so far.
#[derive(Debug, Default)]
pub struct Judge {
    across: Across,
    /// Indexes of the trials, by block.
    blocks: BTreeMap<u32, Vec<usize>>,
}

impl Judge {
    pub fn new(stored: &StoredExperiment) -> Judge {
        let mut judge = Judge::default();
        for (index, trial) in stored.trials.iter().enumerate() {
            judge.add(&stored.manifest, index, trial);
        }
        judge
    }

    /// `index` is the trial's index in the record.
    pub fn add(&mut self, manifest: &Manifest, index: usize, trial: &Trial) {
        self.across.add(manifest, trial);
        if let Some(place) = &trial.place {
            self.blocks.entry(place.block).or_default().push(index);
        }
    }

    /// Returns the block's trials that are complete but must not count. `cells` are in the order
    /// in which they are planned.
    pub fn invalid(&self, stored: &StoredExperiment, block: u32, cells: &[Cell]) -> Vec<Invalid> {
        let in_block = || {
            let indexes = self.blocks.get(&block).into_iter().flatten();
            indexes.filter_map(|i| Some((*i, stored.trials.get(*i)?)))
        };
        let across = self.across.checks(&stored.manifest, in_block());
        let mut found: Vec<Invalid> = Vec::new();
        for (index, trial) in in_block() {
            let Some(place) = &trial.place else { continue };
            let Some(cell) = cells.iter().position(|cell| place.is_in(cell)) else { continue };
            let attempt = place.attempt;
            // If attempts are equal, the later record counts, as in the analysis.
            found.retain(|i| (i.cell, i.attempt) != (cell, attempt));
            let across_block = across.iter().filter(|(i, _)| *i == index).map(|(_, check)| check);
            let all = trial.checks.iter().chain(across_block);
            let bad: Vec<&Check> = all.filter(|c| c.verdict == CheckVerdict::Invalid).collect();
            if trial.outcome == Outcome::Complete && !bad.is_empty() {
                let checks = bad.iter().map(|c| c.id.clone()).collect();
                found.push(Invalid { cell, attempt, why: reasons(&bad), checks });
            }
        }
        found
    }
}

/// Drops what only the record on disk has to keep. With a precision, the intervals are computed again and again from the
/// work of all trials.
pub fn keep_judged(trial: &mut Trial, computes_intervals: bool) {
    let telemetries = trial.targets.values_mut().map(|target| &mut target.telemetry);
    // The analysis asks which devices a change moves files to.
    for telemetry in telemetries.chain([&mut trial.telemetry]).flatten() {
        let storage = std::mem::take(&mut telemetry.storage);
        *telemetry = Telemetry { storage, ..Telemetry::default() };
    }
    trial.evidence = Vec::new();
    trial.warnings = Vec::new();
    trial.generators = Vec::new();
    trial.companions.clear();
    trial.settings.clear();
    for check in trial.checks.iter_mut().filter(|check| check.verdict == CheckVerdict::Ok) {
        (check.message, check.remedy) = (String::new(), String::new());
    }
    if !computes_intervals {
        trial.histograms.clear();
        trial.sessions = Vec::new();
        trial.timeline = Vec::new();
        trial.woven = None;
    }
}

/// Drops what is judged of a block that is over.
pub fn keep_place(trial: &mut Trial) {
    trial.metrics.clear();
    trial.checks = Vec::new();
    trial.environment = Arc::default();
    trial.workload.keys.clear();
    trial.telemetry = None;
    trial.targets.clear();
}

fn reasons(checks: &[&Check]) -> String {
    checks.iter().map(|c| format!("{}: {}", c.id, c.message)).collect::<Vec<_>>().join("; ")
}

/// Up to this block, the intervals are checked after every block.
const CHECK_EVERY_BLOCK_UNTIL: u32 = 60;

/// Schedules checks of the intervals. A check reads all trials, so that one after each block
/// would cost more and more: with many blocks, the next check is where the intervals can be narrow enough,
/// half of the distance that their width predicts (it falls with the square root of the number of blocks).
#[derive(Debug)]
pub struct WidthChecks {
    next: u32,
}

impl WidthChecks {
    pub fn starting_at(block: u32) -> WidthChecks {
        WidthChecks { next: block }
    }

    pub(super) fn is_due(&self, block: u32) -> bool {
        block >= self.next
    }

    pub(super) fn schedule_next(&mut self, block: u32, width: &Width, precision: f64) {
        let limit = f64::from(block) * 2.0;
        let predicted = match width {
            Width::Widest(_, half) => f64::from(block) * (half / precision).powi(2),
            // As many blocks again may be needed before there is an interval.
            Width::None(_) => limit,
        };
        let half_distance = (predicted.min(limit) - f64::from(block)) / 2.0;
        let skipped =
            if block < CHECK_EVERY_BLOCK_UNTIL { 0 } else { half_distance.max(0.0) as u32 };
        // Wait at least a hundredth of the blocks so far.
        let least = if block < CHECK_EVERY_BLOCK_UNTIL { 1 } else { block.div_ceil(100) };
        self.next = block.saturating_add(skipped.max(least));
    }
}

/// Returns for each cell its baseline: the baseline's cell at the same point, for a baseline itself.
pub fn baselines(cells: &[Cell], baseline: &str) -> Vec<usize> {
    let find_baseline = |(at, cell): (usize, &Cell)| {
        let same = |other: &Cell| other.condition == baseline && other.point == cell.point;
        cells.iter().position(same).unwrap_or(at)
    };
    cells.iter().enumerate().map(find_baseline).collect()
}

/// Returns the stored trials of these cells.
pub fn stored_attempts(trials: &[Trial], cells: &[Cell]) -> StoredAttempts {
    let mut done = StoredAttempts::default();
    for (place, outcome) in trials.iter().filter_map(|t| Some((t.place.as_ref()?, &t.outcome))) {
        let Some(cell) = cells.iter().position(|cell| place.is_in(cell)) else { continue };
        // If attempts are equal, the later record counts, as in the analysis.
        done.0.insert((place.block, cell, place.attempt), *outcome == Outcome::Complete);
    }
    done
}

#[cfg(test)]
mod tests {
    use benchmath::signed_rank;

    use super::*;
    use crate::rng::SplitMix64;
    use pgio_results::points::Point;
    use pgio_verdict::ALPHA;
    use pgio_verdict::resolution::half_width;
    use pgio_verdict::test_support::{experiment, trial};

    fn attempt(condition: &str, block: u32, attempt: u32, check: Option<Check>) -> Trial {
        let mut t = trial(condition, block, &[("commits_per_second", 100.0)]);
        t.place.as_mut().unwrap().attempt = attempt;
        t.checks = check.into_iter().collect();
        t
    }

    fn cells(at: &[(&str, &Point)]) -> Vec<Cell> {
        let cell = |(condition, point): &(&str, &Point)| Cell {
            condition: (*condition).to_owned(),
            point: (*point).clone(),
        };
        at.iter().map(cell).collect()
    }

    #[test]
    fn a_cell_is_a_condition_at_its_point() {
        let at = |n: u64| Point::from([("sessions".to_owned(), n.into())]);
        let mut trials = vec![attempt("a", 1, 0, None), attempt("a", 1, 0, None)];
        trials[0].place.as_mut().unwrap().point = at(1);
        let bad = Check::invalid("durability", "fsync is off", "turn it on");
        trials[1] = attempt("a", 1, 0, Some(bad));
        trials[1].place.as_mut().unwrap().point = at(4);
        let stored = experiment(&["a"], trials);
        let cells = cells(&[("a", &at(1)), ("a", &at(4)), ("a", &at(8))]);
        let invalid = Judge::new(&stored).invalid(&stored, 1, &cells);
        let found: Vec<usize> = invalid.iter().map(|i| i.cell).collect();
        assert_eq!(found, [1]);
        let done = stored_attempts(&stored.trials, &cells);
        assert_eq!(done.0.keys().copied().collect::<Vec<_>>(), [(1, 0, 0), (1, 1, 0)]);
    }

    #[test]
    fn width_checks_follow_every_early_block_and_become_rare_later() {
        let precision = 0.01;
        let half = |block: u32| 0.5 / f64::from(block).sqrt();
        let mut checks = WidthChecks::starting_at(8);
        let mut taken = Vec::new();
        for block in 1..=3000 {
            if checks.is_due(block) {
                taken.push(block);
                checks.schedule_next(
                    block,
                    &Width::Widest("on".to_owned(), half(block)),
                    precision,
                );
            }
        }
        assert_eq!(taken[..52], (8..60).collect::<Vec<_>>());
        let narrow = taken.iter().find(|block| half(**block) <= precision).unwrap();
        assert!((2500..=2525).contains(narrow), "{narrow}");
        assert!(taken.len() < 52 + 60, "{}", taken.len());
    }

    #[test]
    fn a_cell_is_compared_with_the_baseline_at_its_point() {
        let at = |n: u64| Point::from([("sessions".to_owned(), n.into())]);
        let all = cells(&[("on", &at(1)), ("local", &at(1)), ("on", &at(4)), ("local", &at(4))]);
        assert_eq!(baselines(&all, "local"), [1, 1, 3, 3]);
        assert_eq!(baselines(&all, "off"), [0, 1, 2, 3]);
    }

    #[test]
    fn every_attempt_is_judged_and_checks_of_behavior_do_not_invalidate() {
        let bad = || Some(Check::invalid("durability", "fsync is off", "turn it on"));
        let doubtful = Some(Check::warning("rate-not-reached", "40 %", "ask for less"));
        let trials = vec![
            attempt("a", 1, 0, bad()),
            attempt("b", 1, 0, doubtful),
            attempt("a", 1, 1, None),
            attempt("a", 2, 0, bad()),
            Trial { outcome: Outcome::Interrupted, ..attempt("b", 2, 0, bad()) },
        ];
        let stored = experiment(&["a", "b"], trials);
        let nowhere = Point::new();
        let cells = cells(&[("a", &nowhere), ("b", &nowhere)]);
        let why = "durability: fsync is off".to_owned();
        let first = [Invalid { cell: 0, attempt: 0, why, checks: vec!["durability".to_owned()] }];
        let judge = Judge::new(&stored);
        assert_eq!(judge.invalid(&stored, 1, &cells), first);
        assert_eq!(judge.invalid(&stored, 2, &cells), first);
        assert_eq!(judge.invalid(&stored, 3, &cells), []);

        let done = stored_attempts(&stored.trials, &cells);
        let expected = [
            ((1, 0, 0), true),
            ((1, 0, 1), true),
            ((1, 1, 0), true),
            ((2, 0, 0), true),
            ((2, 1, 0), false),
        ];
        assert_eq!(done.0, BTreeMap::from(expected));
    }

    /// Experiments of two equal conditions that stop by a rule: the share that finds a difference.
    fn false_alarms(stops: impl Fn(f64, f64) -> bool) -> f64 {
        const EXPERIMENTS: u32 = 1000;
        let mut random = SplitMix64::new(3);
        // The sum of twelve uniform numbers, which is near enough to normal.
        let mut noise = || 0.05 * ((0..12).map(|_| random.next_f64()).sum::<f64>() - 6.0);
        let mut alarms = 0;
        for _ in 0..EXPERIMENTS {
            let mut logs: Vec<f64> = Vec::new();
            let (low, high) = loop {
                logs.push(noise());
                let Some((low, high)) = signed_rank::test(&logs, ALPHA).and_then(|t| t.bounds)
                else {
                    continue;
                };
                if logs.len() == 30 || stops(low.exp(), high.exp()) {
                    break (low, high);
                }
            };
            alarms += u32::from(low > 0.0 || high < 0.0);
        }
        f64::from(alarms) / f64::from(EXPERIMENTS)
    }

    #[test]
    fn stopping_by_width_keeps_the_level_and_stopping_by_verdict_does_not() {
        for precision in [0.02, 0.03, 0.04, 0.05] {
            let by_width = false_alarms(|low, high| half_width(low, high) <= precision);
            assert!(by_width <= 0.08, "{precision}: {by_width}");
        }
        let by_verdict = false_alarms(|low, high| low > 1.0 || high < 1.0);
        assert!(by_verdict > 0.15, "{by_verdict}");
    }
}
