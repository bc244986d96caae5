//! A fixed beat: when the next sample is due, and how many came and went unused.

use std::time::{Duration, Instant};

#[derive(Debug, Clone)]
pub(super) struct Beat {
    first: Instant,
    every: Duration,
    /// The number of the beat that is due next.
    next: u32,
    pub(super) missed: u64,
}

impl Beat {
    pub(super) fn new(first: Instant, every: Duration) -> Beat {
        Beat { first, every, next: 0, missed: 0 }
    }

    /// When the next one is due.
    pub(super) fn due(&self) -> Instant {
        self.first + self.every * self.next
    }

    /// The one that was due has been made use of. Those that passed meanwhile are missed: to make
    /// up for them would measure the same moment several times.
    pub(super) fn used(&mut self, now: Instant) {
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
    fn beats_that_pass_are_missed_and_the_phase_stays() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut beat = Beat::new(start, second);
        beat.used(start);
        assert_eq!((beat.due(), beat.missed), (start + second, 0));
        // Late, but the next is not yet over.
        beat.used(start + second * 2);
        assert_eq!((beat.due(), beat.missed), (start + second * 2, 0));
        beat.used(start + second * 5 + second / 2);
        assert_eq!((beat.due(), beat.missed), (start + second * 5, 2));
    }
}
