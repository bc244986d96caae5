//! A fixed schedule for samples: when the next one is due, and how many were missed.

use std::time::{Duration, Instant};

#[derive(Debug, Clone)]
pub(super) struct Beat {
    first: Instant,
    every: Duration,
    /// Index of the beat that is due next.
    next: u32,
    pub(super) missed: u64,
}

impl Beat {
    pub(super) fn new(first: Instant, every: Duration) -> Beat {
        Beat { first, every, next: 0, missed: 0 }
    }

    /// When the next beat is due.
    pub(super) fn due(&self) -> Instant {
        self.first + self.every * self.next
    }

    /// Marks the due beat as used and skips the beats that passed meanwhile. They count as missed:
    /// making up for them would measure the same moment several times.
    pub(super) fn advance(&mut self, now: Instant) {
        self.next += 1;
        while self.due() + self.every <= now {
            self.next += 1;
            self.missed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_beats_are_missed_and_the_phase_is_kept() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut beat = Beat::new(start, second);
        beat.advance(start);
        assert_eq!((beat.due(), beat.missed), (start + second, 0));
        // Late, but the next beat is not over yet.
        beat.advance(start + second * 2);
        assert_eq!((beat.due(), beat.missed), (start + second * 2, 0));
        beat.advance(start + second * 5 + second / 2);
        assert_eq!((beat.due(), beat.missed), (start + second * 5, 2));
    }
}
