//! The mail sessions of a trial: connected, warmed up, then released together for one window.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use crate::host::stop::Stop;
use crate::workload::error::EngineError;
use crate::workload::phase::{self, Phase};
use crate::workload::threads::Threads;
use pgio_mail::MailError;
use pgio_mail::halt::Halt;
use pgio_mail::session::{MailSession, Shared};
use pgio_mail::settings::MailSettings;
use pgio_mail::tally::{Span, Tally};

/// Name resolution needs most of it.
const STACK: usize = 512 * 1024;
/// How long stopped sessions may take to end; longer than the connect timeout.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a session takes between two checks of the order to stop.
const SLACK: Duration = Duration::from_secs(1);

/// Returns how long after the end of a span its last session may end.
pub(in crate::workload) fn longest_ending(settings: &MailSettings) -> Duration {
    settings.timeout.saturating_add(SLACK + STOP_TIMEOUT)
}

enum Event {
    Ready,
    Done(Box<Tally>),
    Failed(MailError),
}

/// Connected mail sessions that wait for a span.
pub(super) struct MailPool {
    shared: Arc<Shared>,
    stop: Stop,
    threads: Threads<Span>,
    events: Receiver<Event>,
}

impl fmt::Debug for MailPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MailPool({})", self.threads.count())
    }
}

impl MailPool {
    /// Connects all sessions, or none.
    pub(super) fn assemble(shared: Arc<Shared>, stop: Stop) -> Result<MailPool, EngineError> {
        let (sender, events) = mpsc::channel();
        let mut pool = MailPool { shared, stop, threads: Threads::new(), events };
        let share = pool.shared.share;
        for index in share.first..share.first + share.sessions {
            let (shared, sender) = (Arc::clone(&pool.shared), sender.clone());
            let run = move |spans: &Receiver<Span>| run_session(index, shared, spans, &sender);
            pool.threads.spawn(format!("mail-{index}"), STACK, run)?;
        }
        drop(sender);
        match pool.wait(None, &mut || {}) {
            (_, Some(error)) => Err(error),
            (_, None) => Ok(pool),
        }
    }

    /// Delivers in a span; `tick` is called often meanwhile. Returns what was counted, and the first
    /// error.
    pub(super) fn deliver(
        &mut self,
        span: &Span,
        tick: &mut dyn FnMut(),
    ) -> (Tally, Option<EngineError>) {
        self.shared.done.store(0, Ordering::Relaxed);
        for index in 0..self.threads.count() {
            self.threads.send_order(index, span.clone());
        }
        // A session that waits for an answer at the end may wait for as long as any answer may take.
        let limit = span.end + self.shared.settings.timeout + SLACK;
        self.wait(Some(limit), tick)
    }

    /// Waits for one event of every session; stops sessions that are late at `limit`.
    fn wait(&self, limit: Option<Instant>, tick: &mut dyn FnMut()) -> (Tally, Option<EngineError>) {
        let halt = &self.shared.halt;
        let waiting = self.threads.count();
        let tally = Tally::default();
        let mut waiting = Waiting { halt, limit, waiting, stopped: None, tally, tick };
        let error = phase::run(&mut waiting, &self.events, &self.stop);
        if error.is_none() && waiting.waiting == 0 {
            // Sessions that were late at the end of a warm-up deliver in the window.
            halt.withdraw();
        }
        (waiting.tally, error)
    }
}

impl Drop for MailPool {
    fn drop(&mut self) {
        // Sessions that wait for a span end with their channel, the others at their next check.
        self.shared.halt.request();
    }
}

/// Waits for one event of each session.
struct Waiting<'a> {
    halt: &'a Halt,
    limit: Option<Instant>,
    /// Number of sessions whose event is missing.
    waiting: usize,
    /// When the sessions were stopped.
    stopped: Option<Instant>,
    tally: Tally,
    tick: &'a mut dyn FnMut(),
}

impl Waiting<'_> {
    fn has_given_up(&self) -> bool {
        self.stopped.is_some_and(|since| since.elapsed() > STOP_TIMEOUT)
    }
}

impl Phase for Waiting<'_> {
    type Event = Event;

    fn take(&mut self, event: Event) -> Result<(), EngineError> {
        self.waiting -= 1;
        match event {
            Event::Ready => {}
            Event::Done(tally) => self.tally.merge(&tally),
            Event::Failed(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn is_unfinished(&self, ending: bool) -> bool {
        self.waiting > 0 && !(ending && self.has_given_up())
    }

    /// Reaching the limit is not an error: a server may never send its last replies.
    fn overdue(&mut self) -> Option<EngineError> {
        if self.limit.is_some_and(|limit| Instant::now() > limit) {
            self.end(false);
        }
        (self.waiting > 0 && self.has_given_up()).then(|| {
            let waiting = self.waiting;
            EngineError::Overdue(format!(
                "{waiting} mail sessions did not end when they were stopped"
            ))
        })
    }

    fn tick(&mut self) {
        if !self.halt.requested() {
            (self.tick)();
        }
    }

    fn end(&mut self, _urgent: bool) {
        self.halt.request();
        self.stopped.get_or_insert_with(Instant::now);
    }
}

/// Runs a session's thread. Events are dropped if the receiver no longer exists.
fn run_session(index: u32, shared: Arc<Shared>, spans: &Receiver<Span>, events: &Sender<Event>) {
    let mut session = match MailSession::connect_new(index, shared) {
        Ok(session) => session,
        Err(error) => {
            let _ = events.send(Event::Failed(error));
            return;
        }
    };
    let _ = events.send(Event::Ready);
    while let Ok(span) = spans.recv() {
        let sent = match session.run(&span) {
            Ok(tally) => events.send(Event::Done(Box::new(tally))),
            Err(error) => {
                let _ = events.send(Event::Failed(error));
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}
