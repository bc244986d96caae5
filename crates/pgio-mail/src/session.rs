//! One delivering session: a connection, and one message after the other.
//!
//! Runs in a closed loop, or on the schedule that all sessions share. A message that is deferred, or
//! whose fate is unknown, is retried under the same Message-ID with a growing delay and a limited number
//! of times, while other messages continue. Every message tried is entered in the ledger, from which
//! [`super::maildir`] knows how many copies may exist.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use benchmath::rng::{SplitMix64, derive};
use serde::{Deserialize, Serialize};

use super::dialogue::{DeliveryOutcome, Dialogue, SessionStartError};
use super::error::MailError;
use super::message::{self, Draft, Message, Sum};
use super::schedule::Turn;
use super::settings::{MailSettings, Share};
use super::tally::{Span, Tally};
use super::wire::{Halt, ReplyError, Stream, Wire};

/// Maximum number of attempts for one message; mail servers retry for hours, a window is short.
const MAX_ATTEMPTS: u32 = 6;
/// Delay before the second attempt; doubled each time.
const BACK_OFF: Duration = Duration::from_millis(100);
/// Maximum number of messages that wait for another attempt; at this number the session waits, too.
const MAX_PENDING: usize = 32;
/// How long a session tries to reconnect during a trial.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After this many refusals without an acceptance, all messages will be refused.
const MIN_REFUSALS: u64 = 20;

/// State shared by all sessions of a trial.
#[derive(Debug)]
pub struct Shared {
    pub settings: MailSettings,
    /// The sessions of this process.
    pub share: Share,
    /// Part of every Message-ID; unique to the trial.
    pub token: String,
    pub seed: u64,
    pub halt: Halt,
    pub ledger: SentMessages,
    /// Recipients accepted and refused since the start of the trial.
    pub accepted: AtomicU64,
    pub refused: AtomicU64,
    /// Messages completed, for the progress display.
    pub done: AtomicU64,
}

/// All messages tried. Its clones are the same ledger.
#[derive(Debug, Clone, Default)]
pub struct SentMessages(Arc<Mutex<Vec<Sent>>>);

impl SentMessages {
    pub fn add(&self, sent: impl IntoIterator<Item = Sent>) {
        self.list().extend(sent);
    }

    /// Takes all messages out.
    pub fn take(&self) -> Vec<Sent> {
        std::mem::take(&mut *self.list())
    }

    fn list(&self) -> MutexGuard<'_, Vec<Sent>> {
        // The list is valid even if another thread panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    pub id: String,
    pub sum: Sum,
    pub copies: Vec<CopyLimits>,
}

/// How many copies of a message one recipient must have and may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyLimits {
    /// Index into the recipients.
    pub recipient: u32,
    pub min: u32,
    pub max: u32,
}

/// A message with recipients that are not settled.
#[derive(Debug)]
struct PendingMessage {
    id: String,
    message: Message,
    copies: Vec<CopyLimits>,
    /// Indices into `copies` of unsettled recipients.
    open: Vec<usize>,
    refused: bool,
    /// When delivery began; in an open loop, when it was due.
    since: Instant,
    attempts: u32,
    due: Instant,
}

enum NextAction {
    Deliver(Box<PendingMessage>),
    Wait(Instant),
    End,
}

#[derive(Debug)]
pub struct MailSession {
    index: u32,
    shared: Arc<Shared>,
    dialogue: Option<Dialogue<Stream>>,
    sent_on_connection: u32,
    number: u64,
    rng: SplitMix64,
    pending: VecDeque<PendingMessage>,
}

impl MailSession {
    /// Connects and exchanges greetings; `index` is the session's number among all processes' sessions.
    pub fn connect_new(index: u32, shared: Arc<Shared>) -> Result<MailSession, MailError> {
        let mut session = MailSession {
            index,
            shared,
            dialogue: None,
            sent_on_connection: 0,
            number: 0,
            rng: SplitMix64::new(0),
            pending: VecDeque::new(),
        };
        session.connect(Duration::ZERO)?;
        Ok(session)
    }

    pub fn run(&mut self, span: &Span) -> Result<Tally, MailError> {
        // A separate stream: the window must not depend on the progress of the warm-up.
        self.rng = SplitMix64::new(derive(self.shared.seed, span.name, u64::from(self.index)));
        let mut tally = Tally::default();
        // A retry that was due before the end begins, even if the session wakes up after it.
        let mut waited = false;
        self.shared.halt.sleep_until(span.start);
        while !self.shared.halt.requested() && (waited || Instant::now() < span.end) {
            waited = false;
            match self.next_action(span, &mut tally) {
                NextAction::Deliver(pending) => self.attempt(*pending, span, &mut tally)?,
                NextAction::Wait(until) => {
                    self.shared.halt.sleep_until(until.min(span.end));
                    waited = until < span.end;
                }
                NextAction::End => break,
            }
        }
        for pending in std::mem::take(&mut self.pending) {
            self.give_up_at_end(pending, &mut tally);
        }
        tally.free = Some(Instant::now());
        Ok(tally)
    }

    fn next_action(&mut self, span: &Span, tally: &mut Tally) -> NextAction {
        let now = Instant::now();
        // The queue is ordered by due time.
        let due = self.pending.front().map(|pending| pending.due);
        if due.is_some_and(|due| due <= now)
            && let Some(pending) = self.pending.pop_front()
        {
            return NextAction::Deliver(Box::new(pending));
        }
        if let (true, Some(due)) = (self.pending.len() >= MAX_PENDING, due) {
            return NextAction::Wait(due);
        }
        let Some(rate) = self.shared.settings.rate else {
            return NextAction::Deliver(Box::new(self.compose_next(now)));
        };
        match span.take(rate, due, &self.shared.halt) {
            Turn::Start(intended) => {
                tally.scheduled += 1;
                tally.lag += intended.elapsed();
                NextAction::Deliver(Box::new(self.compose_next(intended)))
            }
            Turn::Retry | Turn::Over => due.map_or(NextAction::End, NextAction::Wait),
            Turn::Stopped => NextAction::End,
        }
    }

    /// Draws the next message of this session.
    fn compose_next(&mut self, since: Instant) -> PendingMessage {
        let settings = &self.shared.settings;
        self.number += 1;
        let id = format!("{}.{}.{}@pgio", self.shared.token, self.index, self.number);
        let mut chosen: Vec<u32> = Vec::new();
        while chosen.len() < settings.recipients_per_message as usize {
            let recipient = self.rng.below(settings.recipients.len() as u64) as u32;
            if !chosen.contains(&recipient) {
                chosen.push(recipient);
            }
        }
        let to: Vec<&str> =
            chosen.iter().map(|r| settings.recipients[*r as usize].as_str()).collect();
        let bytes = message::size(&settings.sizes, &mut self.rng);
        let seed = self.rng.next_u64();
        let draft = Draft { id: &id, sender: &settings.sender, to: &to, bytes, seed };
        let message = message::compose(&draft);
        let open = (0..chosen.len()).collect();
        let copies =
            chosen.into_iter().map(|recipient| CopyLimits { recipient, min: 0, max: 0 }).collect();
        PendingMessage { id, message, copies, open, refused: false, since, attempts: 0, due: since }
    }

    fn attempt(
        &mut self,
        mut pending: PendingMessage,
        span: &Span,
        tally: &mut Tally,
    ) -> Result<(), MailError> {
        if self.dialogue.is_none() && !self.connect(RECONNECT_TIMEOUT)? {
            self.give_up_at_end(pending, tally);
            return Ok(());
        }
        tally.retries += u64::from(pending.attempts > 0);
        pending.attempts += 1;
        let began = Instant::now();
        let settings = &self.shared.settings;
        // In an open loop, a session's first message may be due long after the start.
        let intended = if settings.rate.is_some() { pending.since } else { span.start };
        tally.late.get_or_insert(began.saturating_duration_since(intended));
        let to: Vec<&str> = pending
            .open
            .iter()
            .map(|i| settings.recipients[pending.copies[*i].recipient as usize].as_str())
            .collect();
        let dialogue = self.dialogue.as_mut().expect("connected just above");
        let (outcomes, lost) = dialogue.deliver(&settings.sender, &to, &pending.message.wire);
        let ended = Instant::now();
        // Time without an answer, or before a bad one, is part of the window as well.
        tally.ended = Some(ended);
        let refusal = self.record_outcomes(&mut pending, &outcomes, tally);
        self.sent_on_connection += 1;
        let limit = settings.messages_per_connection;
        if let Some(lost) = lost {
            tally.dropped += u64::from(!matches!(lost, ReplyError::Stopped));
            self.dialogue = None;
        } else if limit > 0 && self.sent_on_connection >= limit {
            self.quit();
        }
        if pending.open.is_empty() {
            if !pending.refused {
                tally.accepted(&pending.message, ended - pending.since, ended, span);
                self.shared.done.fetch_add(1, Ordering::Relaxed);
            }
            self.record_sent(pending);
        } else if pending.attempts >= MAX_ATTEMPTS {
            tally.undelivered += pending.open.len() as u64;
            self.give_up(pending, tally);
        } else {
            pending.due = ended + BACK_OFF * 2u32.pow(pending.attempts - 1);
            let at = self.pending.partition_point(|other| other.due <= pending.due);
            self.pending.insert(at, pending);
        }
        match refusal.filter(|_| self.refuses_all()) {
            Some(reply) => {
                let server = self.shared.settings.server.to_string();
                Err(MailError::RefusesAll { server, reply })
            }
            None => Ok(()),
        }
    }

    /// Records the result of an attempt; returns a refusal, if any.
    fn record_outcomes(
        &self,
        pending: &mut PendingMessage,
        outcomes: &[DeliveryOutcome],
        tally: &mut Tally,
    ) -> Option<String> {
        let mut refusal = None;
        let mut open = Vec::new();
        for (index, outcome) in pending.open.iter().zip(outcomes) {
            let copies = &mut pending.copies[*index];
            match outcome {
                DeliveryOutcome::Accepted => {
                    self.shared.accepted.fetch_add(1, Ordering::Relaxed);
                    tally.recipients += 1;
                    copies.min = 1;
                    copies.max += 1;
                    continue;
                }
                DeliveryOutcome::Refused(reply) => {
                    self.shared.refused.fetch_add(1, Ordering::Relaxed);
                    tally.refused += 1;
                    pending.refused = true;
                    refusal = Some(reply.to_string());
                    continue;
                }
                DeliveryOutcome::Deferred(_) => tally.deferred += 1,
                DeliveryOutcome::Unknown => {
                    tally.unknown += 1;
                    copies.max += 1;
                }
                DeliveryOutcome::Untried => {}
            }
            open.push(*index);
        }
        pending.open = open;
        refusal
    }

    fn refuses_all(&self) -> bool {
        let refused = self.shared.refused.load(Ordering::Relaxed);
        let many = MIN_REFUSALS.max(u64::from(self.shared.share.sessions));
        refused >= many && self.shared.accepted.load(Ordering::Relaxed) == 0
    }

    fn give_up_at_end(&self, pending: PendingMessage, tally: &mut Tally) {
        tally.left_over += pending.open.len() as u64;
        self.give_up(pending, tally);
    }

    /// How long the delivery would have taken remains open.
    fn give_up(&self, pending: PendingMessage, tally: &mut Tally) {
        // A refused message is never delivered.
        if !pending.refused {
            tally.latency.record_censored(pending.since.elapsed().as_nanos() as f64, 1);
        }
        self.record_sent(pending);
    }

    fn record_sent(&self, pending: PendingMessage) {
        if self.shared.settings.maildir.is_none() {
            return;
        }
        let sent = Sent { id: pending.id, sum: pending.message.sum, copies: pending.copies };
        self.shared.ledger.add([sent]);
    }

    /// Returns false if it was stopped meanwhile.
    fn connect(&mut self, timeout: Duration) -> Result<bool, MailError> {
        let since = Instant::now();
        let mut pause = BACK_OFF;
        loop {
            let settings = &self.shared.settings;
            let opened = Stream::connect(&settings.server)
                .map_err(|error| SessionStartError::Lost(ReplyError::Broken(error)))
                .map(|stream| Wire::new(stream, settings.timeout, self.shared.halt.clone()))
                .and_then(|wire| Dialogue::open(wire, settings.protocol));
            let why = match opened {
                Ok(dialogue) => {
                    self.dialogue = Some(dialogue);
                    self.sent_on_connection = 0;
                    return Ok(true);
                }
                Err(SessionStartError::Lost(ReplyError::Stopped)) => return Ok(false),
                Err(why) => why,
            };
            let permanent = matches!(&why, SessionStartError::Refused(reply) if reply.code >= 500);
            if permanent || since.elapsed() >= timeout {
                return Err(MailError::no_service(&settings.server, settings.protocol, &why));
            }
            if !self.shared.halt.sleep_until(Instant::now() + pause) {
                return Ok(false);
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    fn quit(&mut self) {
        if let Some(mut dialogue) = self.dialogue.take() {
            dialogue.quit();
        }
    }
}

impl Drop for MailSession {
    fn drop(&mut self) {
        self.quit();
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
