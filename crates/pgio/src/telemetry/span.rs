//! The measuring window, as the samplers know it.

use std::time::{Duration, Instant};

/// Latest arrival of a reading that was requested at the end of the window.
const READING_DELAY: Duration = Duration::from_millis(100);

/// The measuring window, on this machine's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) opened: Instant,
    pub(super) closed: Instant,
}

impl Span {
    /// Seconds since the start of the window; negative before it.
    pub(super) fn seconds_at(&self, at: Instant) -> f64 {
        match at.checked_duration_since(self.opened) {
            Some(after) => after.as_secs_f64(),
            None => -(self.opened - at).as_secs_f64(),
        }
    }

    pub(super) fn contains(&self, at: Instant) -> bool {
        at >= self.opened && at <= self.closed + READING_DELAY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_relative_to_the_opening_and_negative_before_it() {
        let opened = Instant::now();
        let span = Span { opened, closed: opened + Duration::from_secs(2) };
        assert_eq!(span.seconds_at(opened + Duration::from_millis(500)), 0.5);
        assert_eq!(span.seconds_at(opened - Duration::from_millis(250)), -0.25);
        assert!(span.contains(opened) && !span.contains(opened - Duration::from_nanos(1)));
        assert!(!span.contains(opened + Duration::from_secs(3)));
    }
}
