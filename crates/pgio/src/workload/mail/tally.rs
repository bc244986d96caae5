//! What was counted: by one session in one span, then by all together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::message::Message;
use super::postman::Shift;
use crate::histogram::Histogram;
use crate::results::model::Slice;
use crate::workload::Totals;

/// The class of latency: from a message's (intended) start to its last answer.
pub(super) const CLASS: &str = "delivery";

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) latency: Histogram,
    /// Accepted for every recipient.
    pub(super) messages: u64,
    /// Of these, as sent.
    pub(super) bytes: u64,
    /// The following count recipients: accepted,
    pub(super) recipients: u64,
    /// refused for good,
    pub(super) refused: u64,
    /// put off,
    pub(super) deferred: u64,
    /// left without an answer,
    pub(super) unknown: u64,
    /// given up after many attempts,
    pub(super) undelivered: u64,
    /// and still to be tried again when time was up.
    pub(super) left_over: u64,
    /// Attempts after the first.
    pub(super) retries: u64,
    /// Connections that ended in the middle of something.
    pub(super) dropped: u64,
    /// Messages of an open loop: those whose moment came, those begun, and how late these were in all.
    pub(super) due: u64,
    pub(super) scheduled: u64,
    pub(super) lag: Duration,
    /// How late a session's first message began; of several sessions the latest.
    pub(super) late: Option<Duration>,
    /// The last that was accepted.
    pub(super) ended: Option<Instant>,
    /// Messages by slice.
    slices: Vec<u64>,
}

impl Tally {
    pub(super) fn accepted(
        &mut self,
        message: &Message,
        took: Duration,
        ended: Instant,
        shift: &Shift,
    ) {
        self.latency.record(took.as_nanos() as f64);
        self.messages += 1;
        self.bytes += message.bytes;
        self.ended = Some(ended);
        let at = ended.saturating_duration_since(shift.start).as_secs_f64() / shift.slice;
        let slice = at as usize;
        if self.slices.len() <= slice {
            self.slices.resize(slice + 1, 0);
        }
        self.slices[slice] += 1;
    }

    pub(super) fn merge(&mut self, other: &Tally) {
        self.latency.merge(&other.latency);
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.recipients += other.recipients;
        self.refused += other.refused;
        self.deferred += other.deferred;
        self.unknown += other.unknown;
        self.undelivered += other.undelivered;
        self.left_over += other.left_over;
        self.retries += other.retries;
        self.dropped += other.dropped;
        self.due += other.due;
        self.scheduled += other.scheduled;
        self.lag += other.lag;
        self.late = self.late.max(other.late);
        self.ended = self.ended.max(other.ended);
        if self.slices.len() < other.slices.len() {
            self.slices.resize(other.slices.len(), 0);
        }
        for (mine, theirs) in self.slices.iter_mut().zip(&other.slices) {
            *mine += theirs;
        }
    }

    /// The whole slices of a window of so many seconds.
    pub(super) fn timeline(&self, slice: f64, seconds: f64) -> Vec<Slice> {
        let whole = (seconds / slice + 1e-6) as usize;
        let messages = self.slices.iter().copied().chain(std::iter::repeat(0));
        let at = (1..=whole).map(|number| slice * number as f64);
        at.zip(messages)
            .map(|(at, messages)| Slice { at, seconds: slice, messages, ..Slice::default() })
            .collect()
    }

    pub(super) fn totals(&self) -> Totals {
        let counts = [
            ("messages", self.messages),
            ("bytes", self.bytes),
            ("recipients", self.recipients),
            ("refused", self.refused),
            ("deferred", self.deferred),
            ("unknown", self.unknown),
            ("undelivered", self.undelivered),
            ("left_over", self.left_over),
            ("retries", self.retries),
            ("dropped", self.dropped),
            ("due", self.due),
            ("scheduled", self.scheduled),
            ("lag_us", self.lag.as_micros() as u64),
        ];
        let counts = counts.map(|(name, n)| (name.to_owned(), n as f64)).into();
        let histograms = BTreeMap::from([(CLASS.to_owned(), self.latency.clone())]);
        Totals { histograms, counts, ..Totals::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn messages_fall_into_the_slice_in_which_they_end() {
        let start = Instant::now();
        let end = start + Duration::from_secs(2);
        let shift = Shift { name: "test", start, end, slice: 0.5, taken: Arc::default() };
        let message = Message { wire: Vec::new(), bytes: 100, sum: [0; 32] };
        let mut tally = Tally::default();
        for ms in [100, 600, 700, 2100] {
            let ended = start + Duration::from_millis(ms);
            tally.accepted(&message, Duration::from_millis(50), ended, &shift);
        }
        let mut both = Tally::default();
        both.merge(&tally);
        both.merge(&tally);
        assert_eq!((both.messages, both.bytes, both.latency.count()), (8, 800, 8));
        let timeline = both.timeline(0.5, 2.0);
        let messages: Vec<u64> = timeline.iter().map(|s| s.messages).collect();
        assert_eq!(messages, [2, 4, 0, 0]);
        assert_eq!(timeline[3].at, 2.0);
        assert_eq!(both.totals().counted("messages"), 8.0);
    }
}
