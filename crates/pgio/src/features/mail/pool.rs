//! The mail sessions of one process as participants of a trial: connected, warmed up, then released together for
//! one window.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use super::work::{timeline, to_kept, totals};
use crate::config::resolve::Extent;
use crate::host::stop::Stop;
use crate::workload::clock::{Opener, Start};
use crate::workload::error::EngineError;
use crate::workload::participants::{Participants, Setup, WindowEvent, WindowOutcome};
use crate::workload::phase::{self, Phase, Threads};
use crate::workload::window::{OpenWindow, WindowPlan};
use pgio_connect::Client;
use pgio_mail::MailError;
use pgio_mail::session::{MailSession, SentMessages, Shared};
use pgio_mail::settings::{MailSettings, Share};
use pgio_mail::tally::{Span, Tally};
use pgio_mail::wire::Halt;

/// Time for the slowest thread to receive the start before it comes.
const LEAD: Duration = Duration::from_millis(20);

pub(super) struct PreparedMail {
    pool: MailPool,
    shared: Arc<Shared>,
    opener: Option<Arc<dyn Opener>>,
    /// Another process compares what arrived.
    is_part: bool,
}

impl PreparedMail {
    /// Connects and warms up all sessions, or none.
    pub(super) fn assemble(
        (settings, share): (MailSettings, Share),
        (token, ledger): (String, SentMessages),
        setup: Setup,
        admin: &mut Client,
    ) -> Result<PreparedMail, EngineError> {
        let is_part = setup.share().is_some();
        let Setup { stop, seed, warmup, opener, .. } = setup;
        let halting = stop.clone();
        let shared = Arc::new(Shared {
            settings,
            share,
            token,
            seed,
            halt: Halt::new(move || halting.requested()),
            ledger,
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            done: AtomicU64::new(0),
        });
        let mut pool = MailPool::assemble(Arc::clone(&shared), stop)?;
        if !warmup.is_zero() {
            let start = match &opener {
                Some(opener) => opener.warm_up(admin, LEAD)?.at,
                None => Instant::now(),
            };
            let span = span("mail-warmup", start, warmup, share);
            if let (_, Some(error)) = pool.deliver(&span, &mut |_| {}) {
                return Err(error);
            }
        }
        Ok(PreparedMail { pool, shared, opener, is_part })
    }
}

impl Participants for PreparedMail {
    fn run(
        mut self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError> {
        let Extent::Time(length) = extent else {
            return Err(EngineError::Unsuited("the workload `mail` requires a run time"));
        };
        let start = Start::agree_on_window(self.opener.as_ref(), admin, LEAD)?;
        let Shared { settings, share, .. } = &*self.shared;
        let span = span("mail-window", start.at, length, *share);
        let plan = WindowPlan::new(extent, u64::from(share.of), 1);
        let mut window = OpenWindow::open(admin, start, plan, listener);
        let (mut tally, mut error) = self.pool.deliver(&span, &mut |now| {
            window.progress.covered = (now - start.at).as_secs_f64();
            window.progress.messages = self.shared.done.load(Ordering::Relaxed);
            window.report_progress(now);
        });
        if let Some(rate) = settings.rate {
            tally.due = span.due(rate);
            // A window that ended early cuts off everything and is compared with nothing.
            if error.is_none() {
                tally.cut_off(&span, rate);
            }
        }
        // A session that waits in vain for a reply extends the window.
        let ended = tally.ended.map_or(span.end, |ended| ended.max(span.end));
        window.close(ended.min(Instant::now()));
        // At a low rate, none of the few messages may be this process's.
        let is_idle = settings.rate.is_some() && tally.due == 0;
        if error.is_none() && tally.messages == 0 && !is_idle {
            let what = format!(
                "{} recipients refused, {} deferred, {} without a reply, {} connections lost",
                tally.refused, tally.deferred, tally.unknown, tally.dropped
            );
            error = Some(MailError::Nothing { server: settings.server.to_string(), what }.into());
        }
        let is_paced = settings.rate.is_some();
        let kept = if self.is_part { to_kept(&self.shared.ledger.take())? } else { Vec::new() };
        window.outcome = WindowOutcome {
            totals: totals(&tally),
            timeline: timeline(&tally, span.slice, length.as_secs_f64(), is_paced),
            seconds: (ended - start.at).as_secs_f64(),
            late: tally.late.map_or(0.0, |late| late.as_secs_f64()),
            error,
            kept,
            ..window.outcome
        };
        Ok(window.into_outcome())
    }
}

fn span(name: &'static str, start: Instant, length: Duration, share: Share) -> Span {
    let slice = WindowPlan::new(Extent::Time(length), u64::from(share.of), 1).slice;
    Span { name, start, end: start + length, slice, schedule: Arc::default(), share }
}

/// Name resolution needs most of it.
const STACK: usize = 512 * 1024;
/// How long stopped sessions may take to end; longer than the connect timeout.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a session takes between two checks of the order to stop.
const SLACK: Duration = Duration::from_secs(1);

/// Returns how long after the end of a span its last session may end.
pub(super) fn longest_ending(settings: &MailSettings) -> Duration {
    settings.timeout.saturating_add(SLACK + STOP_TIMEOUT)
}

enum MailEvent {
    Ready,
    Done(Box<Tally>),
    Failed(MailError),
}

/// Connected mail sessions that wait for a span.
pub(super) struct MailPool {
    shared: Arc<Shared>,
    stop: Stop,
    threads: Threads<Span>,
    events: Receiver<MailEvent>,
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
        match pool.wait(None, &mut |_| {}) {
            (_, Some(error)) => Err(error),
            (_, None) => Ok(pool),
        }
    }

    /// Delivers in a span; `tick` is called often meanwhile. Returns what was counted, and the first
    /// error.
    pub(super) fn deliver(
        &mut self,
        span: &Span,
        tick: &mut dyn FnMut(Instant),
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
    fn wait(
        &self,
        limit: Option<Instant>,
        tick: &mut dyn FnMut(Instant),
    ) -> (Tally, Option<EngineError>) {
        let halt = &self.shared.halt;
        let waiting = self.threads.count();
        let tally = Tally::default();
        let mut waiting =
            Waiting { halt, limit, waiting, stopped: None, given_up: false, tally, tick };
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
    given_up: bool,
    tally: Tally,
    tick: &'a mut dyn FnMut(Instant),
}

impl Waiting<'_> {
    fn has_given_up(&self, now: Instant) -> bool {
        self.stopped.is_some_and(|since| now - since > STOP_TIMEOUT)
    }
}

impl Phase for Waiting<'_> {
    type Event = MailEvent;

    fn take(&mut self, event: MailEvent, _: Instant) -> Result<(), EngineError> {
        self.waiting -= 1;
        match event {
            MailEvent::Ready => {}
            MailEvent::Done(tally) => self.tally.merge(&tally),
            MailEvent::Failed(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn is_unfinished(&self, ending: bool) -> bool {
        self.waiting > 0 && !(ending && self.given_up)
    }

    /// Reaching the limit is not an error: a server may never send its last replies.
    fn overdue(&mut self, now: Instant) -> Option<EngineError> {
        if self.limit.is_some_and(|limit| now > limit) {
            self.end(false, now);
        }
        (self.waiting > 0 && self.has_given_up(now)).then(|| {
            let waiting = self.waiting;
            EngineError::Overdue(format!(
                "{waiting} mail sessions did not end when they were stopped"
            ))
        })
    }

    fn tick(&mut self, now: Instant) {
        if !self.halt.requested() {
            (self.tick)(now);
        }
    }

    fn end(&mut self, _urgent: bool, now: Instant) {
        self.halt.request();
        self.stopped.get_or_insert(now);
        self.given_up = self.has_given_up(now);
    }
}

/// Runs a session's thread. Events are dropped if the receiver no longer exists.
fn run_session(
    index: u32,
    shared: Arc<Shared>,
    spans: &Receiver<Span>,
    events: &Sender<MailEvent>,
) {
    let mut session = match MailSession::connect_new(index, shared) {
        Ok(session) => session,
        Err(error) => {
            let _ = events.send(MailEvent::Failed(error));
            return;
        }
    };
    let _ = events.send(MailEvent::Ready);
    while let Ok(span) = spans.recv() {
        let sent = match session.run(&span) {
            Ok(tally) => events.send(MailEvent::Done(Box::new(tally))),
            Err(error) => {
                let _ = events.send(MailEvent::Failed(error));
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::clock::Clock;

    #[test]
    fn sessions_that_are_late_are_stopped_and_then_given_up() {
        let (clock, (sender, events)) = (Clock::fake(), mpsc::channel());
        let begun = clock.now();
        sender.send(MailEvent::Ready).unwrap();
        let halt = Halt::new(|| false);
        let limit = Duration::from_secs(40);
        let mut ticks = 0;
        let mut waiting = Waiting {
            halt: &halt,
            limit: Some(begun + limit),
            waiting: 3,
            stopped: None,
            given_up: false,
            tally: Tally::default(),
            tick: &mut |_| ticks += 1,
        };
        let error = phase::run_by(&clock, &mut waiting, &events, &Stop::new()).unwrap();
        assert_eq!(error.to_string(), "2 mail sessions did not end when they were stopped");
        let waited = clock.now() - begun;
        let most = limit + STOP_TIMEOUT + Duration::from_secs(1);
        assert!(waited > limit + STOP_TIMEOUT && waited < most, "{waited:?}");
        assert!(halt.requested());
        // Progress is reported until they are stopped.
        assert_eq!(ticks, 1 + limit.as_millis() / phase::TICK.as_millis());
    }
}
