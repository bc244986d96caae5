//! Predicts the remaining time of an experiment from the time of its trials so far, including everything between
//! a trial and the next one (reset, restart, mkfs, settling, judging), and before a condition's first
//! trial from the plan's estimate.

use std::time::{Duration, Instant};

use super::plan::Planned;
use pgio_results::BURN_IN_BLOCK;

/// The remaining trials and the expected time of each.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Estimates by cell; none if a window has no fixed length.
    estimates: Vec<Option<Duration>>,
    /// Times of measured trials, by cell.
    took: Vec<Mean>,
    /// The part of them after the window was measured, by cell.
    undoing: Vec<Mean>,
    /// Cells of trials that have not begun.
    due: Vec<usize>,
    /// Whether the burn-in is among them. Where only repeats or further blocks follow, it is not.
    burn_in_is_due: bool,
    current: Option<CurrentWindow>,
    begun: usize,
}

/// A trial, or all trials of a woven window, which run together.
#[derive(Debug, Clone)]
struct CurrentWindow {
    trials: Vec<Planned>,
    since: Instant,
    /// Absent until its window was measured.
    measured: Option<Instant>,
}

impl CurrentWindow {
    /// Returns each trial's part of the time between two moments.
    fn share(&self, from: Instant, to: Instant) -> Duration {
        to.saturating_duration_since(from) / self.trials.len().max(1) as u32
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    count: u32,
    total: Duration,
}

impl Mean {
    fn add(self, time: Duration) -> Mean {
        Mean { count: self.count + 1, total: self.total + time }
    }

    fn join(self, other: Mean) -> Mean {
        Mean { count: self.count + other.count, total: self.total + other.total }
    }

    fn value(self) -> Option<Duration> {
        (self.count > 0).then(|| self.total / self.count)
    }
}

impl Pace {
    pub fn new(estimates: Vec<Option<Duration>>, due: &[Planned]) -> Pace {
        let took = vec![Mean::default(); estimates.len()];
        let burn_in_is_due = due.iter().any(|planned| planned.block == BURN_IN_BLOCK);
        let due = due.iter().map(|planned| planned.cell).collect();
        let undoing = took.clone();
        Pace { estimates, undoing, took, due, burn_in_is_due, current: None, begun: 0 }
    }

    /// Returns the number of the current trial, counted from 1.
    pub fn number(&self) -> usize {
        self.begun
    }

    /// Returns the number of trials of this run, as known now.
    pub fn trials(&self) -> usize {
        self.begun + self.due.len()
    }

    /// Marks the first event of a trial, or of several in a woven window. The previous trials end here, as
    /// undoing a condition is part of its trial.
    pub fn begin(&mut self, shared: &[Planned], now: Instant) {
        if let Some(former) = &mut self.current {
            if former.trials.first() == shared.first() {
                // The reset before a woven window named its first trial alone.
                let further = shared.get(former.trials.len()..).unwrap_or_default();
                former.trials.extend_from_slice(further);
                self.count(further);
                return;
            }
            for planned in &former.trials {
                let took = &mut self.took[planned.cell];
                *took = took.add(former.share(former.since, now));
                if let Some(measured) = former.measured {
                    let undoing = &mut self.undoing[planned.cell];
                    *undoing = undoing.add(former.share(measured, now));
                }
            }
        }
        self.current = Some(CurrentWindow { trials: shared.to_vec(), since: now, measured: None });
        self.count(shared);
    }

    /// Marks that the current trial was measured: all that remains of it is to undo its condition.
    pub fn end_window(&mut self, now: Instant) {
        if let Some(window) = &mut self.current {
            window.measured.get_or_insert(now);
        }
    }

    fn count(&mut self, shared: &[Planned]) {
        self.begun += shared.len();
        let is_due = |p: &&Planned| p.block != BURN_IN_BLOCK || self.burn_in_is_due;
        for planned in shared.iter().filter(is_due) {
            if let Some(at) = self.due.iter().position(|cell| *cell == planned.cell) {
                self.due.remove(at);
            }
        }
    }

    pub fn add(&mut self, cell: usize) {
        self.due.push(cell);
    }

    /// Adds a block beyond those planned: every cell once.
    pub fn add_block(&mut self) {
        self.due.extend(0..self.estimates.len());
    }

    /// Returns the remaining time; none if the length of some trial is unknown.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        let current = match &self.current {
            Some(window) => {
                let cells = window.trials.iter().map(|planned| planned.cell);
                let (all, since) = match window.measured {
                    Some(measured) => (cells.map(|cell| self.expected_undo(cell)).sum(), measured),
                    None => {
                        let all =
                            cells.map(|cell| self.expected(cell)).sum::<Option<Duration>>()?;
                        (all, window.since)
                    }
                };
                all.saturating_sub(now.saturating_duration_since(since))
            }
            None => Duration::ZERO,
        };
        self.due.iter().try_fold(current, |sum, cell| Some(sum + self.expected(*cell)?))
    }

    fn expected(&self, cell: usize) -> Option<Duration> {
        let own = self.took[cell].value().or(self.estimates[cell]);
        own.or_else(|| self.took.iter().copied().reduce(Mean::join)?.value())
    }

    /// Nothing until the undoing of one trial of the cell was seen.
    fn expected_undo(&self, cell: usize) -> Duration {
        self.undoing[cell].value().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(block: u32, cell: usize) -> Planned {
        Planned { block, position: 1, cell, attempt: 0 }
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_estimate_holds_until_a_condition_was_measured() {
        let due = [planned(1, 0), planned(1, 1), planned(2, 1), planned(2, 0)];
        let mut pace = Pace::new(vec![Some(seconds(10)), Some(seconds(20))], &due);
        let start = Instant::now();
        assert_eq!((pace.number(), pace.trials()), (0, 4));
        assert_eq!(pace.remaining(start), Some(seconds(60)));
        pace.begin(&due[0..=0], start);
        // The same trial, reset first and then put in force.
        pace.begin(&due[0..=0], start + seconds(4));
        assert_eq!((pace.number(), pace.trials()), (1, 4));
        assert_eq!(pace.remaining(start + seconds(5)), Some(seconds(55)));
        assert_eq!(
            pace.remaining(start + seconds(30)),
            Some(seconds(50)),
            "it takes longer than estimated"
        );
        // It took 30 s, so the other one of its condition will, too.
        pace.begin(&due[1..=1], start + seconds(30));
        assert_eq!(pace.remaining(start + seconds(30)), Some(seconds(70)));
        pace.begin(&due[2..=2], start + seconds(90));
        assert_eq!(pace.remaining(start + seconds(90)), Some(seconds(90)));
    }

    #[test]
    fn a_woven_window_counts_all_its_trials_even_if_begun_twice() {
        let due = [planned(1, 0), planned(1, 1), planned(2, 1), planned(2, 0)];
        let mut pace = Pace::new(vec![Some(seconds(10)), Some(seconds(20))], &due);
        let start = Instant::now();
        pace.begin(&due[..1], start);
        pace.begin(&due[..2], start + seconds(4));
        assert_eq!((pace.number(), pace.trials()), (2, 4));
        pace.begin(&due[2..], start + seconds(40));
        assert_eq!((pace.number(), pace.trials()), (4, 4));
        assert_eq!(pace.remaining(start + seconds(40)), Some(seconds(40)), "20 s each");
    }

    /// The first trial of a condition took long, so the next one was expected to.
    #[test]
    fn after_the_last_window_only_the_undoing_remains() {
        let due = [planned(1, 0), planned(2, 0)];
        let mut pace = Pace::new(vec![Some(seconds(10))], &due);
        let start = Instant::now();
        let after = |n| start + seconds(n);
        pace.begin(&due[..1], start);
        pace.end_window(after(50));
        assert_eq!(pace.remaining(after(50)), Some(seconds(10)), "the next one");
        // Two seconds for the undoing.
        pace.begin(&due[1..], after(52));
        assert_eq!(pace.remaining(after(53)), Some(seconds(51)));
        pace.end_window(after(60));
        pace.end_window(after(61));
        assert_eq!(pace.remaining(after(61)), Some(seconds(1)));
        assert_eq!(pace.remaining(after(70)), Some(seconds(0)));
    }

    #[test]
    fn repeats_and_added_blocks_increase_the_remaining_time() {
        let mut pace = Pace::new(vec![Some(seconds(10)), Some(seconds(20))], &[planned(1, 0)]);
        let now = Instant::now();
        pace.begin(&[planned(1, 0)], now);
        pace.add(1);
        assert_eq!((pace.trials(), pace.remaining(now)), (2, Some(seconds(30))));
        pace.add_block();
        assert_eq!((pace.trials(), pace.remaining(now)), (4, Some(seconds(60))));
    }

    #[test]
    fn a_burn_in_that_was_not_foreseen_takes_no_trials_place() {
        let burn_in = planned(BURN_IN_BLOCK, 0);
        let now = Instant::now();
        let mut pace = Pace::new(vec![Some(seconds(10))], &[]);
        pace.add(0);
        pace.begin(&[burn_in], now);
        assert_eq!((pace.number(), pace.trials()), (1, 2));
        let mut pace = Pace::new(vec![Some(seconds(10))], &[burn_in, planned(1, 0)]);
        pace.begin(&[burn_in], now);
        assert_eq!((pace.number(), pace.trials()), (1, 2));
    }

    #[test]
    fn trials_of_a_woven_window_share_its_time() {
        let due = [planned(1, 0), planned(1, 1), planned(2, 1), planned(2, 0)];
        let mut pace = Pace::new(vec![Some(seconds(10)), Some(seconds(20))], &due);
        let start = Instant::now();
        pace.begin(&due[..2], start);
        assert_eq!((pace.number(), pace.trials()), (2, 4));
        assert_eq!(pace.remaining(start + seconds(5)), Some(seconds(25 + 30)));
        pace.begin(&due[2..], start + seconds(8));
        assert_eq!(pace.remaining(start + seconds(8)), Some(seconds(8)));
    }

    #[test]
    fn without_an_estimate_the_time_is_unknown_until_a_trial_was_measured() {
        let due = [planned(1, 0), planned(1, 1)];
        let mut pace = Pace::new(vec![None, None], &due);
        let now = Instant::now();
        pace.begin(&due[0..=0], now);
        assert_eq!(pace.remaining(now), None);
        pace.begin(&due[1..=1], now + seconds(7));
        assert_eq!(pace.remaining(now + seconds(9)), Some(seconds(5)));
    }
}
