//! The mail sessions of a trial: connected, warmed up, then released together for one window.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use super::MailError;
use super::session::{MailSession, Shared, Span};
use super::tally::Tally;
use super::wire::Halt;
use crate::workload::error::EngineError;
use crate::workload::phase::{self, Phase};
use crate::workload::threads::Threads;

/// Resolving a name takes more than most of what a session does.
const STACK: usize = 512 * 1024;
/// For sessions that have to stop; longer than it takes to fail to connect.
const STOPPING: Duration = Duration::from_secs(15);
/// What a session needs between two checks of whether it has to stop.
const SLACK: Duration = Duration::from_secs(1);

enum Event {
    Ready,
    Done(Box<Tally>),
    Failed(MailError),
}

/// Mail sessions that are ready and wait for a span.
pub(super) struct MailPool {
    shared: Arc<Shared>,
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
    pub(super) fn assemble(shared: Arc<Shared>) -> Result<MailPool, EngineError> {
        let (sender, events) = mpsc::channel();
        let mut pool = MailPool { shared, threads: Threads::new(), events };
        for index in 0..pool.shared.settings.threads {
            let (shared, sender) = (Arc::clone(&pool.shared), sender.clone());
            let run = move |spans: &Receiver<Span>| session(index, shared, spans, &sender);
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
            self.threads.order(index, span.clone());
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
        let error = phase::run(&mut waiting, &self.events, &halt.user);
        (waiting.tally, error)
    }
}

impl Drop for MailPool {
    fn drop(&mut self) {
        // Sessions that wait for an order end with their channel, the others at their next check.
        self.shared.halt.failed.request();
    }
}

/// All sessions, each of which owes one event.
struct Waiting<'a> {
    halt: &'a Halt,
    limit: Option<Instant>,
    /// Sessions whose event has not come.
    waiting: usize,
    /// When they were stopped.
    stopped: Option<Instant>,
    tally: Tally,
    tick: &'a mut dyn FnMut(),
}

impl Waiting<'_> {
    fn has_given_up(&self) -> bool {
        self.stopped.is_some_and(|since| since.elapsed() > STOPPING)
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

    /// Being late at the limit is no error: a server may leave its last answers open.
    fn overdue(&mut self) -> Option<EngineError> {
        if self.limit.is_some_and(|limit| Instant::now() > limit) {
            self.end(false);
        }
        (self.waiting > 0 && self.has_given_up()).then(|| {
            let waiting = self.waiting;
            EngineError::Stuck(format!(
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
        self.halt.failed.request();
        self.stopped.get_or_insert_with(Instant::now);
    }
}

/// The thread's whole life. The receiver may be gone already; then nobody needs the events.
fn session(index: u32, shared: Arc<Shared>, spans: &Receiver<Span>, events: &Sender<Event>) {
    let mut session = match MailSession::ready(index, shared) {
        Ok(session) => session,
        Err(error) => {
            let _ = events.send(Event::Failed(error));
            return;
        }
    };
    let _ = events.send(Event::Ready);
    while let Ok(span) = spans.recv() {
        let sent = match session.work(&span) {
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
