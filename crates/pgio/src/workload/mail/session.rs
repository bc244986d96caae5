//! One session that delivers: a thread, a connection, one message after the other.
//!
//! Closed loop, or as the schedule says that all sessions share. What is deferred, or whose fate is
//! unknown, is tried again under the same Message-ID, a little later each time and not for ever, while
//! other messages go on. What was tried is left in the ledger, so that [`super::verdict`] knows how
//! many copies may be found.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::MailError;
use super::dialogue::{Dialogue, Fate, NoService};
use super::message::{self, Draft, Message, Sum};
use super::tally::Tally;
use super::wire::{Halt, Lost, Stream, Wire};
use crate::config::resolve::MailSettings;
use crate::config::value::mail::MailRate;
use crate::rng::{SplitMix64, derive};

/// Attempts in all for one message; a mail server's hours are no time to measure.
const MOST_ATTEMPTS: u32 = 6;
/// Before the second attempt; doubled each time.
const BACK_OFF: Duration = Duration::from_millis(100);
/// Messages that wait for another attempt; with more of them the session waits, too.
const MOST_HELD: usize = 32;
/// How long a server may be away in the middle of a trial.
const AWAY: Duration = Duration::from_secs(10);
/// Refused so often without one accepted, all will be refused.
const HOPELESS: u64 = 20;

/// What all sessions of a trial share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: MailSettings,
    /// In every Message-ID: no two trials have the same.
    pub(super) token: String,
    pub(super) seed: u64,
    pub(super) halt: Halt,
    pub(super) ledger: Ledger,
    /// Recipients accepted and refused since the trial began.
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Messages of the window, for showing.
    pub(super) done: AtomicU64,
}

/// What was tried, message by message.
pub(super) type Ledger = Arc<Mutex<Vec<Sent>>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) id: String,
    pub(super) sum: Sum,
    pub(super) copies: Vec<Copies>,
}

/// How many copies of a message one recipient must and may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copies {
    /// Index into the recipients.
    pub(super) recipient: u32,
    pub(super) least: u32,
    pub(super) most: u32,
}

/// A span in which messages are delivered: the warm-up, or the window.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) name: &'static str,
    pub(super) start: Instant,
    pub(super) end: Instant,
    /// The length of a slice of its timeline, in seconds.
    pub(super) slice: f64,
    /// Messages of an open loop that were taken so far.
    pub(super) taken: Arc<AtomicU64>,
}

impl Span {
    /// When this message of an open loop is to begin.
    pub(super) fn intended(&self, number: u64, rate: MailRate) -> Instant {
        self.start + Duration::from_secs_f64(number as f64 / rate.per_second())
    }

    /// Messages of an open loop whose moment comes before the end.
    pub(super) fn due(&self, rate: MailRate) -> u64 {
        let about = (self.end - self.start).as_secs_f64() * rate.per_second();
        // The product may be rounded to the wrong side: what counts is the moment of each.
        let mut number = (about as u64).saturating_sub(1);
        while self.intended(number, rate) < self.end {
            number += 1;
        }
        number
    }
}

/// A message until it is settled for each recipient.
#[derive(Debug)]
struct Held {
    id: String,
    message: Message,
    copies: Vec<Copies>,
    /// Indices into `copies`.
    open: Vec<usize>,
    refused: bool,
    /// When it began, or should have.
    since: Instant,
    attempts: u32,
    due: Instant,
}

enum Next {
    Deliver(Box<Held>),
    Wait(Instant),
    Over,
}

#[derive(Debug)]
pub(super) struct MailSession {
    index: u32,
    shared: Arc<Shared>,
    dialogue: Option<Dialogue<Stream>>,
    on_this_connection: u32,
    number: u64,
    rng: SplitMix64,
    held: VecDeque<Held>,
}

impl MailSession {
    /// Connected and greeted.
    pub(super) fn ready(index: u32, shared: Arc<Shared>) -> Result<MailSession, MailError> {
        let mut session = MailSession {
            index,
            shared,
            dialogue: None,
            on_this_connection: 0,
            number: 0,
            rng: SplitMix64::new(0),
            held: VecDeque::new(),
        };
        session.connect(Duration::ZERO)?;
        Ok(session)
    }

    pub(super) fn work(&mut self, span: &Span) -> Result<Tally, MailError> {
        // A stream of its own: the window's must not depend on how far the warm-up came.
        self.rng = SplitMix64::new(derive(self.shared.seed, span.name, u64::from(self.index)));
        let mut tally = Tally::default();
        let mut taken = None;
        // Who was free when a message fell due begins it, though waking up may take until after the end.
        let mut waited = false;
        self.shared.halt.sleep_until(span.start);
        while !self.shared.halt.requested() && (waited || Instant::now() < span.end) {
            waited = false;
            match self.next(span, &mut taken, &mut tally) {
                Next::Deliver(held) => self.attempt(*held, span, &mut tally)?,
                Next::Wait(until) => {
                    self.shared.halt.sleep_until(until.min(span.end));
                    waited = until < span.end;
                }
                Next::Over => break,
            }
        }
        for held in std::mem::take(&mut self.held) {
            self.leave_over(held, &mut tally);
        }
        tally.overdue.extend(taken.filter(|intended| *intended < span.end));
        tally.free = Some(Instant::now());
        Ok(tally)
    }

    fn next(&mut self, span: &Span, taken: &mut Option<Instant>, tally: &mut Tally) -> Next {
        let now = Instant::now();
        // The first to come is the first due, as nearly as matters.
        let due = self.held.front().map(|held| held.due);
        if due.is_some_and(|due| due <= now)
            && let Some(held) = self.held.pop_front()
        {
            return Next::Deliver(Box::new(held));
        }
        if let (true, Some(due)) = (self.held.len() >= MOST_HELD, due) {
            return Next::Wait(due);
        }
        let Some(rate) = self.shared.settings.rate else {
            return Next::Deliver(Box::new(self.draw(now)));
        };
        let intended = *taken.get_or_insert_with(|| {
            let number = span.taken.fetch_add(1, Ordering::Relaxed);
            span.intended(number, rate)
        });
        if intended >= span.end {
            return due.map_or(Next::Over, Next::Wait);
        }
        if intended > now {
            return Next::Wait(due.map_or(intended, |due| due.min(intended)));
        }
        *taken = None;
        tally.scheduled += 1;
        tally.lag += now - intended;
        Next::Deliver(Box::new(self.draw(intended)))
    }

    /// The next message of this session.
    fn draw(&mut self, since: Instant) -> Held {
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
            chosen.into_iter().map(|recipient| Copies { recipient, least: 0, most: 0 }).collect();
        Held { id, message, copies, open, refused: false, since, attempts: 0, due: since }
    }

    fn attempt(&mut self, mut held: Held, span: &Span, tally: &mut Tally) -> Result<(), MailError> {
        if self.dialogue.is_none() && !self.connect(AWAY)? {
            self.leave_over(held, tally);
            return Ok(());
        }
        tally.retries += u64::from(held.attempts > 0);
        held.attempts += 1;
        let began = Instant::now();
        let settings = &self.shared.settings;
        // At a rate a session's first message may be due long after the opening.
        let meant = if settings.rate.is_some() { held.since } else { span.start };
        tally.late.get_or_insert(began.saturating_duration_since(meant));
        let to: Vec<&str> = held
            .open
            .iter()
            .map(|i| settings.recipients[held.copies[*i].recipient as usize].as_str())
            .collect();
        let dialogue = self.dialogue.as_mut().expect("connected just above");
        let (fates, lost) = dialogue.deliver(&settings.sender, &to, &held.message.wire);
        let ended = Instant::now();
        let refusal = self.note(&mut held, &fates, tally);
        self.on_this_connection += 1;
        let often_enough = settings.messages_per_connection;
        if let Some(lost) = lost {
            tally.dropped += u64::from(!matches!(lost, Lost::Stopped));
            self.dialogue = None;
        } else if often_enough > 0 && self.on_this_connection >= often_enough {
            self.leave();
        }
        if held.open.is_empty() {
            if !held.refused {
                tally.accepted(&held.message, ended - held.since, ended, span);
                self.shared.done.fetch_add(1, Ordering::Relaxed);
            }
            self.settle(held);
        } else if held.attempts >= MOST_ATTEMPTS {
            tally.undelivered += held.open.len() as u64;
            self.settle(held);
        } else {
            held.due = ended + BACK_OFF * 2u32.pow(held.attempts - 1);
            let at = self.held.partition_point(|other| other.due <= held.due);
            self.held.insert(at, held);
        }
        match refusal.filter(|_| self.is_hopeless()) {
            Some(said) => {
                Err(MailError::RefusesAll { server: settings_server(&self.shared), said })
            }
            None => Ok(()),
        }
    }

    /// Takes over what became of an attempt; returns a refusal, if there was one.
    fn note(&self, held: &mut Held, fates: &[Fate], tally: &mut Tally) -> Option<String> {
        let mut refusal = None;
        let mut open = Vec::new();
        for (index, fate) in held.open.iter().zip(fates) {
            let copies = &mut held.copies[*index];
            match fate {
                Fate::Accepted => {
                    self.shared.accepted.fetch_add(1, Ordering::Relaxed);
                    tally.recipients += 1;
                    copies.least = 1;
                    copies.most += 1;
                    continue;
                }
                Fate::Refused(reply) => {
                    self.shared.refused.fetch_add(1, Ordering::Relaxed);
                    tally.refused += 1;
                    held.refused = true;
                    refusal = Some(reply.to_string());
                    continue;
                }
                Fate::Deferred(_) => tally.deferred += 1,
                Fate::Unknown => {
                    tally.unknown += 1;
                    copies.most += 1;
                }
                Fate::Untried => {}
            }
            open.push(*index);
        }
        held.open = open;
        refusal
    }

    fn is_hopeless(&self) -> bool {
        let refused = self.shared.refused.load(Ordering::Relaxed);
        let many = HOPELESS.max(u64::from(self.shared.settings.threads));
        refused >= many && self.shared.accepted.load(Ordering::Relaxed) == 0
    }

    fn leave_over(&self, held: Held, tally: &mut Tally) {
        tally.left_over += held.open.len() as u64;
        // What was refused is not delivered, however long it takes.
        if !held.refused {
            tally.latency.record_censored(held.since.elapsed().as_nanos() as f64, 1);
        }
        self.settle(held);
    }

    fn settle(&self, held: Held) {
        if self.shared.settings.maildir.is_none() {
            return;
        }
        let sent = Sent { id: held.id, sum: held.message.sum, copies: held.copies };
        // What another thread left when it panicked is still a list.
        self.shared.ledger.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
    }

    /// False where it was to stop meanwhile.
    fn connect(&mut self, patience: Duration) -> Result<bool, MailError> {
        let since = Instant::now();
        let mut pause = BACK_OFF;
        loop {
            let settings = &self.shared.settings;
            let opened = Stream::connect(&settings.server)
                .map_err(|error| NoService::Lost(Lost::Broken(error)))
                .map(|stream| Wire::new(stream, settings.timeout, self.shared.halt.clone()))
                .and_then(|wire| Dialogue::open(wire, settings.protocol));
            let why = match opened {
                Ok(dialogue) => {
                    self.dialogue = Some(dialogue);
                    self.on_this_connection = 0;
                    return Ok(true);
                }
                Err(NoService::Lost(Lost::Stopped)) => return Ok(false),
                Err(why) => why,
            };
            let never = matches!(&why, NoService::Said(reply) if reply.code >= 500);
            if never || since.elapsed() >= patience {
                return Err(MailError::no_service(&settings.server, settings.protocol, &why));
            }
            if !self.shared.halt.sleep_until(Instant::now() + pause) {
                return Ok(false);
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    fn leave(&mut self) {
        if let Some(mut dialogue) = self.dialogue.take() {
            dialogue.quit();
        }
    }
}

fn settings_server(shared: &Shared) -> String {
    shared.settings.server.to_string()
}

impl Drop for MailSession {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests;
