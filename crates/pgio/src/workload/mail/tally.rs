//! What was counted: by one session in one span, then by all together.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::message::Message;
use super::session::Span;
use crate::config::value::mail::MailRate;
use crate::histogram::Histogram;
use crate::results::model::Slice;
use crate::results::operation::Class;
use crate::workload::{Totals, overdue};

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) latency: Histogram,
    /// Accepted for every recipient.
    pub(super) messages: u64,
    /// The bytes of these messages, as sent.
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
    /// Messages that fell due while their session was busy, and did not begin.
    pub(super) overdue: Vec<Instant>,
    /// How many did not begin in all, and how late they were at least.
    unbegun: u64,
    unbegun_lag: Duration,
    /// When the first session had nothing under way after its last message.
    pub(super) free: Option<Instant>,
    slices: Vec<Done>,
}

/// In one slice: messages, and how long they took.
#[derive(Debug, Clone, Default)]
struct Done {
    messages: u64,
    latency: Duration,
}

impl Tally {
    pub(super) fn accepted(
        &mut self,
        message: &Message,
        took: Duration,
        ended: Instant,
        span: &Span,
    ) {
        self.latency.record(took.as_nanos() as f64);
        self.messages += 1;
        self.bytes += message.bytes;
        self.ended = Some(ended);
        let at = ended.saturating_duration_since(span.start).as_secs_f64() / span.slice;
        let slice = at as usize;
        if self.slices.len() <= slice {
            self.slices.resize(slice + 1, Done::default());
        }
        self.slices[slice].messages += 1;
        self.slices[slice].latency += took;
    }

    /// Messages of an open loop that were due and did not begin count with what is known of them: no
    /// session was free for them before the window's end, nor for some time after it.
    pub(super) fn cut_off(&mut self, span: &Span, rate: MailRate) {
        let end = self.free.map_or(span.end, |free| free.max(span.end));
        let taken = span.taken.load(Ordering::Relaxed);
        let left = overdue::groups(self.due.saturating_sub(taken));
        let never_taken = left.map(|(last, n)| (span.intended(taken + last, rate), n));
        let moments = std::mem::take(&mut self.overdue).into_iter().map(|moment| (moment, 1));
        for (moment, n) in moments.chain(never_taken) {
            let waited = end.saturating_duration_since(moment);
            self.latency.record_censored(waited.as_nanos() as f64, n);
            self.unbegun += n;
            self.unbegun_lag += waited.mul_f64(n as f64);
        }
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
        self.overdue.extend(&other.overdue);
        self.unbegun += other.unbegun;
        self.unbegun_lag += other.unbegun_lag;
        self.free = self.free.into_iter().chain(other.free).min();
        if self.slices.len() < other.slices.len() {
            self.slices.resize(other.slices.len(), Done::default());
        }
        for (mine, theirs) in self.slices.iter_mut().zip(&other.slices) {
            mine.messages += theirs.messages;
            mine.latency += theirs.latency;
        }
    }

    /// The whole slices of a window of so many seconds; of an open loop with latencies, and with
    /// what was cut off in the last.
    pub(super) fn timeline(&self, slice: f64, seconds: f64, is_paced: bool) -> Vec<Slice> {
        let whole = (seconds / slice + 1e-6) as usize;
        let done = self.slices.iter().cloned().chain(std::iter::repeat(Done::default()));
        let at = (1..=whole).map(|number| slice * number as f64);
        let one = |(at, done): (f64, Done)| Slice {
            at,
            seconds: slice,
            messages: done.messages,
            timed: if is_paced { done.messages } else { 0 },
            latency_seconds: if is_paced { done.latency.as_secs_f64() } else { 0.0 },
            ..Slice::default()
        };
        let mut slices: Vec<Slice> = at.zip(done).map(one).collect();
        if let (Some(last), Some(cut), true) =
            (slices.last_mut(), self.latency.censored(), is_paced)
        {
            last.timed += cut.count();
            last.latency_seconds += cut.sum_ns() / 1e9;
        }
        slices
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
            ("unbegun", self.unbegun),
            ("unbegun_lag_us", self.unbegun_lag.as_micros() as u64),
        ];
        let counts = counts.map(|(name, n)| (name.to_owned(), n as f64)).into();
        let histograms =
            BTreeMap::from([(Class::Delivery.name().to_owned(), self.latency.clone())]);
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
        let span = Span { name: "test", start, end, slice: 0.5, taken: Arc::default() };
        let message = Message { wire: Vec::new(), bytes: 100, sum: [0; 32] };
        let mut tally = Tally::default();
        for ms in [100, 600, 700, 2100] {
            let ended = start + Duration::from_millis(ms);
            tally.accepted(&message, Duration::from_millis(50), ended, &span);
        }
        let mut both = Tally::default();
        both.merge(&tally);
        both.merge(&tally);
        assert_eq!((both.messages, both.bytes, both.latency.count()), (8, 800, 8));
        let timeline = both.timeline(0.5, 2.0, false);
        assert!(timeline.iter().all(|s| s.timed == 0 && s.latency_seconds == 0.0));
        let messages: Vec<u64> = timeline.iter().map(|s| s.messages).collect();
        assert_eq!(messages, [2, 4, 0, 0]);
        assert_eq!(timeline[3].at, 2.0);
        assert_eq!(both.totals().counted("messages"), 8.0);
        both.latency.record_censored(2e9, 3);
        let paced = both.timeline(0.5, 2.0, true);
        assert_eq!(paced.iter().map(|s| s.timed).collect::<Vec<_>>(), [2, 4, 0, 3]);
        assert!((paced[1].latency_seconds - 0.2).abs() < 1e-9 && paced[3].latency_seconds > 5.9);
    }
}
