//! When the calls of an open loop are to begin.
//!
//! Every session has a schedule of its own, so that each table gets its share of the work under every
//! condition, however slow the others are; together they are the rate that was asked for. Fixed
//! arrivals of N sessions lie at equal distances because the sessions begin one after the other; N
//! independent Poisson processes are one of N times the rate.

use crate::config::{Arrivals, Pace};
use crate::rng::{self, SplitMix64};

/// The moments of one session, in nanoseconds since the common start.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    next: f64,
    /// Mean distance.
    every: f64,
    /// Absent: at equal distances.
    draw: Option<SplitMix64>,
}

impl Schedule {
    pub(super) fn new(pace: &Pace, index: u32, sessions: u64, seed: u64) -> Schedule {
        let apart = 1e9 / pace.rate as f64;
        let every = apart * sessions as f64;
        match pace.arrivals {
            Arrivals::Fixed => Schedule { next: apart * f64::from(index), every, draw: None },
            Arrivals::Poisson => {
                let stream = rng::derive(seed, "arrivals", u64::from(index));
                let mut schedule =
                    Schedule { next: 0.0, every, draw: Some(SplitMix64::new(stream)) };
                schedule.advance();
                schedule
            }
        }
    }

    /// The next call that has not begun.
    pub(super) fn next(&self) -> i64 {
        self.next as i64
    }

    pub(super) fn advance(&mut self) {
        self.next += match &mut self.draw {
            None => self.every,
            // Inversion; 1 - u is never 0.
            Some(rng) => -self.every * (1.0 - rng.next_f64()).ln(),
        };
    }

    /// How many are left before `end`.
    pub(super) fn left_before(&mut self, end: i64) -> u64 {
        let mut left = 0;
        while self.next() < end {
            self.advance();
            left += 1;
        }
        left
    }
}

#[cfg(test)]
mod tests {
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

    /// The count within six standard deviations, and the distances exponential: mean and standard
    /// deviation are the same.
    #[test]
    fn poisson_arrivals_are_independent() {
        let moments = all(Arrivals::Poisson, 1000, 8, 100);
        let expected = 100_000.0_f64;
        assert!((moments.len() as f64 - expected).abs() < 6.0 * expected.sqrt());
        let apart: Vec<f64> = moments.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let mean = apart.iter().sum::<f64>() / apart.len() as f64;
        let variance = apart.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / apart.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "{} of {mean}", variance.sqrt());
    }

    #[test]
    fn what_is_left_is_counted_to_the_end() {
        let pace = Pace { rate: 10, arrivals: Arrivals::Fixed };
        let mut schedule = Schedule::new(&pace, 0, 1, 0);
        schedule.advance();
        assert_eq!(schedule.left_before(SECOND), 9);
        assert_eq!(schedule.left_before(SECOND), 0);
    }
}
