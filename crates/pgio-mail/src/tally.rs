//! Counts of one session in one span, and their sum over all sessions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::message::Message;
use super::schedule::{Schedule, Turn};
use super::settings::{MailRate, Share};
use super::wire::Halt;
use pgio_results::histogram::{Histogram, overdue_groups};

#[derive(Debug, Default)]
pub struct Tally {
    pub latency: Histogram,
    /// Accepted for every recipient.
    pub messages: u64,
    /// Bytes of these messages, as sent.
    pub bytes: u64,
    /// Recipients accepted.
    pub recipients: u64,
    /// Recipients refused permanently.
    pub refused: u64,
    /// Attempts for a recipient that were deferred.
    pub deferred: u64,
    /// Attempts for a recipient without a reply.
    pub unknown: u64,
    /// Recipients given up after many attempts.
    pub undelivered: u64,
    /// Recipients still waiting for a retry at the end.
    pub left_over: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Connections lost in the middle of a transaction.
    pub dropped: u64,
    /// Messages of an open loop that were due, that were started, and the total delay of the latter.
    pub due: u64,
    pub scheduled: u64,
    pub lag: Duration,
    /// Delay of a session's first message; the maximum over sessions.
    pub late: Option<Duration>,
    /// When the last attempt ended, well or badly.
    pub ended: Option<Instant>,
    /// Messages due but not started, and their minimum total delay.
    pub unbegun: u64,
    pub unbegun_lag: Duration,
    /// When the first session was free after its last message.
    pub free: Option<Instant>,
    pub slices: Vec<Completed>,
}

/// The messages of one slice of the timeline, and their total latency.
#[derive(Debug, Clone, Default)]
pub struct Completed {
    pub messages: u64,
    pub latency: Duration,
}

impl Tally {
    pub fn accepted(&mut self, message: &Message, took: Duration, ended: Instant, span: &Span) {
        self.latency.record(took.as_nanos() as f64);
        self.messages += 1;
        self.bytes += message.bytes;
        let at = ended.saturating_duration_since(span.start).as_secs_f64() / span.slice;
        let slice = at as usize;
        if self.slices.len() <= slice {
            self.slices.resize(slice + 1, Completed::default());
        }
        self.slices[slice].messages += 1;
        self.slices[slice].latency += took;
    }

    /// Counts messages of an open loop that were due but not started as censored: no session was free
    /// for them until after the end of the window.
    pub fn cut_off(&mut self, span: &Span, rate: MailRate) {
        let end = self.free.map_or(span.end, |free| free.max(span.end));
        let taken = span.schedule.taken();
        for (last, n) in overdue_groups(self.due.saturating_sub(taken)) {
            let waited = end.saturating_duration_since(span.intended(taken + last, rate));
            self.latency.record_censored(waited.as_nanos() as f64, n);
            self.unbegun += n;
            self.unbegun_lag += waited.mul_f64(n as f64);
        }
    }

    pub fn merge(&mut self, other: &Tally) {
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
        self.unbegun += other.unbegun;
        self.unbegun_lag += other.unbegun_lag;
        self.free = self.free.into_iter().chain(other.free).min();
        if self.slices.len() < other.slices.len() {
            self.slices.resize(other.slices.len(), Completed::default());
        }
        for (mine, theirs) in self.slices.iter_mut().zip(&other.slices) {
            mine.messages += theirs.messages;
            mine.latency += theirs.latency;
        }
    }
}

/// A period of delivery: the warm-up, or the window.
#[derive(Debug, Clone)]
pub struct Span {
    pub name: &'static str,
    pub start: Instant,
    pub end: Instant,
    /// Length of a slice of the timeline, in seconds.
    pub slice: f64,
    /// The messages of an open loop that sessions of this process start.
    pub schedule: Arc<Schedule>,
    pub share: Share,
}

impl Span {
    /// Waits for the next message of an open loop and takes it, unless the session's own retry is due before.
    pub(super) fn take(&self, rate: MailRate, retry: Option<Instant>, halt: &Halt) -> Turn {
        let intended = |number| self.intended(number, rate);
        self.schedule.take((intended, self.end), retry, halt)
    }

    /// When this message of this process's share of an open loop is due.
    pub fn intended(&self, number: u64, rate: MailRate) -> Instant {
        let number = self.share.global_number(number);
        self.start + Duration::from_secs_f64(number as f64 / rate.per_second())
    }

    /// Number of messages of this process's share of an open loop that are due before the end.
    pub fn due(&self, rate: MailRate) -> u64 {
        let rounds = (self.end - self.start).as_secs_f64() * rate.per_second()
            / f64::from(self.share.of.max(1));
        // Round down, to whole rounds; the due time of each message decides.
        let mut number = (rounds as u64).saturating_sub(1) * u64::from(self.share.sessions);
        while self.intended(number, rate) < self.end {
            number += 1;
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn messages_count_in_the_slice_in_which_they_end() {
        let start = Instant::now();
        let end = start + Duration::from_secs(2);
        let share = Share::all(1);
        let span = Span { name: "test", start, end, slice: 0.5, schedule: Arc::default(), share };
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
        let messages: Vec<u64> = both.slices.iter().map(|s| s.messages).collect();
        assert_eq!(messages, [2, 4, 0, 0, 2]);
        assert_eq!(both.slices[1].latency, Duration::from_millis(200));
    }

    #[test]
    fn schedules_of_two_processes_add_up_to_that_of_one() {
        let start = Instant::now();
        let end = start + Duration::from_secs(7);
        let (schedule, share) = (Arc::default(), Share::all(3));
        let whole = Span { name: "test", start, end, slice: 1.0, schedule, share };
        let rate = MailRate::new(10, false);
        let parts = [(0, 2), (2, 1)].map(|(first, sessions)| Span {
            share: Share { first, sessions, of: 3 },
            ..whole.clone()
        });
        assert_eq!(parts.each_ref().map(|part| part.due(rate)), [47, 23]);
        let moments =
            |span: &Span| (0..span.due(rate)).map(|n| span.intended(n, rate)).collect::<Vec<_>>();
        let mut both: Vec<Instant> = parts.iter().flat_map(moments).collect();
        both.sort_unstable();
        assert_eq!(both, moments(&whole));
    }
}
