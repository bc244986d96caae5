//! The schedule of the calls in an open loop.
//!
//! Each session has a schedule of its own, so that each table gets its share of the work under every
//! condition, even if other sessions are slow; together the schedules have the requested rate. Fixed
//! arrivals of N sessions are equidistant because the sessions begin at staggered times; N independent
//! Poisson processes are one process of N times the rate.

use crate::config::{Arrivals, Pace};
use crate::rng::{self, SplitMix64};
use pgio_results::histogram::overdue_groups;

/// This many draws take a few milliseconds. For more calls, the difference to the expected number is
/// negligible, and a rate far above the server's capacity would leave billions of calls.
const MAX_DRAWN_CALLS: f64 = 100_000.0;
/// The share of an interval that counts as rounding error: a time this close to the end is at the end.
const ROUNDING: f64 = 1e-6;

/// The start times of one session's calls, in nanoseconds since the common start.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    next: f64,
    /// Mean interval.
    mean_interval: f64,
    /// `None`: fixed intervals.
    draw: Option<SplitMix64>,
}

impl Schedule {
    pub(super) fn new(pace: &Pace, index: u32, sessions: u64, seed: u64) -> Schedule {
        let interval = 1e9 / pace.rate as f64;
        let mean_interval = interval * sessions as f64;
        match pace.arrivals {
            Arrivals::Fixed => {
                Schedule { next: interval * f64::from(index), mean_interval, draw: None }
            }
            Arrivals::Poisson => {
                let stream = rng::derive(seed, "arrivals", u64::from(index));
                let mut schedule =
                    Schedule { next: 0.0, mean_interval, draw: Some(SplitMix64::new(stream)) };
                schedule.advance();
                schedule
            }
        }
    }

    /// Returns when the next call is due.
    pub(super) fn next(&self) -> i64 {
        self.next as i64
    }

    pub(super) fn advance(&mut self) {
        self.next += match &mut self.draw {
            None => self.mean_interval,
            // Inversion; 1 - u is never 0.
            Some(rng) => -self.mean_interval * (1.0 - rng.next_f64()).ln(),
        };
    }

    /// Skips the calls that are due before `end`, reports them by time and number, and returns how many
    /// there were. Billions of calls take no longer than some ten thousand.
    pub(super) fn skip_due_before(&mut self, end: i64, mut each: impl FnMut(i64, u64)) -> u64 {
        let intervals = (end as f64 - self.next) / self.mean_interval;
        if self.draw.is_some() && intervals <= MAX_DRAWN_CALLS {
            return self.skip_drawn(end, each);
        }
        if intervals <= 0.0 {
            return 0;
        }
        let left = match self.draw {
            // The next call, and one more at each whole interval after it.
            None => (intervals - ROUNDING).ceil(),
            // The next call, and the expected number after it.
            Some(_) => 1.0 + intervals.round(),
        };
        for (last, calls) in overdue_groups(left as u64) {
            each((self.next + last as f64 * self.mean_interval) as i64, calls);
        }
        self.next = (self.next + left * self.mean_interval).max(end as f64);
        left as u64
    }

    fn skip_drawn(&mut self, end: i64, mut each: impl FnMut(i64, u64)) -> u64 {
        let mut left = 0;
        while self.next() < end {
            each(self.next(), 1);
            self.advance();
            left += 1;
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn all(arrivals: Arrivals, rate: u64, sessions: u32, seconds: i64) -> Vec<i64> {
        let pace = Pace { rate, arrivals };
        let mut moments = Vec::new();
        for index in 0..sessions {
            let mut schedule = Schedule::new(&pace, index, u64::from(sessions), 7);
            while schedule.next() < seconds * SECOND {
                moments.push(schedule.next());
                schedule.advance();
            }
        }
        moments.sort_unstable();
        moments
    }

    #[test]
    fn fixed_arrivals_of_all_sessions_lie_at_equal_distances() {
        let moments = all(Arrivals::Fixed, 1000, 8, 2);
        assert_eq!(moments.len(), 2000);
        assert!(moments.windows(2).all(|w| ((w[1] - w[0]) - SECOND / 1000).abs() <= 1));
    }

    /// The count is within six standard deviations. The intervals are exponential: their mean equals
    /// their standard deviation.
    #[test]
    fn poisson_arrivals_are_independent() {
        let moments = all(Arrivals::Poisson, 1000, 8, 100);
        let expected = 100_000.0_f64;
        assert!((moments.len() as f64 - expected).abs() < 6.0 * expected.sqrt());
        let intervals: Vec<f64> = moments.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = intervals.iter().sum::<f64>() / intervals.len() as f64;
        let variance =
            intervals.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / intervals.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "{} of {mean}", variance.sqrt());
    }

    #[test]
    fn remaining_calls_are_counted_to_the_end() {
        let pace = Pace { rate: 10, arrivals: Arrivals::Fixed };
        let mut schedule = Schedule::new(&pace, 0, 1, 0);
        schedule.advance();
        let mut moments = Vec::new();
        let left = schedule.skip_due_before(SECOND, |moment, calls| moments.push((moment, calls)));
        assert_eq!(left, 9);
        assert_eq!(moments[0], (SECOND / 10, 1));
        assert_eq!((moments.len(), moments[8]), (9, (9 * SECOND / 10, 1)));
        assert_eq!(schedule.skip_due_before(SECOND, |_, _| panic!("none is left")), 0);
        assert!(schedule.next() >= SECOND);
    }

    #[test]
    fn remaining_calls_match_the_schedule() {
        for arrivals in [Arrivals::Fixed, Arrivals::Poisson] {
            for (rate, sessions) in [(3, 1), (7, 3), (1000, 8), (99_991, 4)] {
                let pace = Pace { rate, arrivals };
                for index in 0..sessions {
                    let mut schedule = Schedule::new(&pace, index, u64::from(sessions), 7);
                    let mut one_by_one = schedule.clone();
                    let expected = one_by_one.skip_drawn(SECOND, |_, _| {});
                    let mut counted = 0;
                    let found = schedule.skip_due_before(SECOND, |moment, calls| {
                        assert!((0..SECOND).contains(&moment));
                        counted += calls;
                    });
                    assert_eq!(
                        (found, counted),
                        (expected, expected),
                        "{arrivals:?} {rate} {index}"
                    );
                    assert_eq!(schedule.skip_due_before(SECOND, |_, _| {}), 0);
                }
            }
        }
    }

    /// One by one they would take minutes and block the thread that all sessions wait for.
    #[test]
    fn skipping_billions_of_due_calls_takes_less_than_a_second() {
        let (rate, seconds): (u64, i64) = (100_000_000, 300);
        for arrivals in [Arrivals::Fixed, Arrivals::Poisson] {
            let mut schedule = Schedule::new(&Pace { rate, arrivals }, 0, 1, 7);
            let counting = Instant::now();
            let mut counted = 0;
            let left = schedule.skip_due_before(seconds * SECOND, |_, calls| counted += calls);
            assert_eq!(counted, left);
            assert!(counting.elapsed() < Duration::from_secs(1), "{arrivals:?}");
            let due = rate * seconds.unsigned_abs();
            assert!(left.abs_diff(due) <= due / 1_000_000, "{left} {arrivals:?}");
            assert_eq!(schedule.skip_due_before(seconds * SECOND, |_, _| {}), 0, "{arrivals:?}");
        }
    }
}
