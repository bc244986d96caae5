//! A period of delivery, and the schedule of an open loop in it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use super::settings::MailRate;

/// A period of delivery: the warm-up, or the window.
#[derive(Debug, Clone)]
pub struct Span {
    pub name: &'static str,
    pub start: Instant,
    pub end: Instant,
    /// Length of a slice of the timeline, in seconds.
    pub slice: f64,
    /// Number of messages of an open loop that sessions have taken so far.
    pub taken: Arc<AtomicU64>,
}

impl Span {
    /// When this message of an open loop is due.
    pub fn intended(&self, number: u64, rate: MailRate) -> Instant {
        self.start + Duration::from_secs_f64(number as f64 / rate.per_second())
    }

    /// Number of messages of an open loop that are due before the end.
    pub fn due(&self, rate: MailRate) -> u64 {
        let about = (self.end - self.start).as_secs_f64() * rate.per_second();
        // The product may be rounded to the wrong side; the due time of each message decides.
        let mut number = (about as u64).saturating_sub(1);
        while self.intended(number, rate) < self.end {
            number += 1;
        }
        number
    }
}
