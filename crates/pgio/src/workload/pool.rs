//! The session pool of the server-side engine: one thread and one connection a session.
//!
//! [`SessionPool::assemble`] connects, prepares and warms up every session. The window starts all of
//! them at one moment of the server's clock and sums up their slices. In between, the caller takes its
//! readings. [`super::session`] is the work of one session; [`super::stopping`] ends sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::clock::{self, Start};
use super::error::EngineError;
use super::participants::{Participants, Setup, WindowEvent, WindowOutcome};
use super::phase::{self, Phase, TICK, Threads};
use super::session::{self, Order, SessionEvent, SliceDone, WindowOrder, server_seed};
use super::stall::Stall;
use super::stopping::{Alive, Notices, Stopping};
use super::window::{OpenWindow, WindowPlan, span};
use super::{Sessions, Totals, Workload, prepare, room};
use crate::config::resolve::Extent;
use pgio_connect::Canceller;

/// Sessions mostly wait; 256 kB is four times their observed stack use.
const STACK: usize = 256 * 1024;

/// Sessions that are ready and wait for their window.
pub struct SessionPool {
    pub(super) setup: Setup,
    pub(super) sessions: Vec<PooledSession>,
    pub(super) threads: Threads<Order>,
    pub(super) events: Receiver<SessionEvent>,
    pub(super) notices: Notices,
    /// All pinned settings, as the sessions read them back.
    pinned: BTreeMap<String, String>,
    /// Passes in which a session visits all its tables.
    passes: u32,
}

/// A session as the pool sees it.
#[derive(Default)]
pub(super) struct PooledSession {
    pub(super) pid: i32,
    pub(super) table: String,
    canceller: Option<Canceller>,
    totals: Totals,
    pub(super) done: bool,
}

impl std::fmt::Debug for SessionPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionPool").field("pids", &self.pids()).finish_non_exhaustive()
    }
}

impl SessionPool {
    /// [`SessionPool::assemble`] for a woven window, which needs work that is done by sessions of the server.
    pub fn for_weaving(
        work: &Arc<dyn Workload>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<SessionPool, EngineError> {
        let sessions = Arc::clone(work)
            .sessions()
            .ok_or_else(|| EngineError::Unsuited("a woven window needs sessions of the server"))?;
        SessionPool::assemble(&sessions, setup, admin)
    }

    /// Connects and prepares all sessions; fails if one of them fails.
    pub fn assemble(
        work: &Arc<dyn Sessions>,
        setup: Setup,
        admin: &mut Client,
    ) -> Result<SessionPool, EngineError> {
        let count = work.count();
        room::wait_for_room(admin, count, &setup.stop)?;
        let notices = Notices::default();
        let (sender, events) = mpsc::channel();
        let mut threads = Threads::new();
        for index in 0..count {
            let (work, setup) = (Arc::clone(work), setup.clone());
            let (sender, notices) = (sender.clone(), notices.clone());
            threads.spawn(format!("session-{index}"), STACK, move |orders| {
                session::run(index, &*work, &setup, &notices, &sender, orders);
            })?;
        }
        drop(sender);
        let sessions = (0..count).map(|_| PooledSession::default()).collect();
        let (pinned, passes) = (BTreeMap::new(), work.passes());
        let mut pool = SessionPool { setup, sessions, threads, events, notices, pinned, passes };
        match pool.connect(admin) {
            None => Ok(pool),
            Some(error) => Err(error),
        }
    }

    /// Waits until all sessions are ready; if one fails, ends all of them.
    fn connect(&mut self, admin: &mut Client) -> Option<EngineError> {
        let SessionPool { setup, sessions, threads, events, pinned, .. } = self;
        let waiting = sessions.len();
        let mut connecting = Connecting {
            admin,
            warmup: setup.warmup,
            sessions,
            threads,
            pinned,
            waiting,
            stall: Stall::new(Instant::now()),
            aborted: None,
            stopping: Stopping::default(),
        };
        let error = phase::run(&mut connecting, events, &setup.stop);
        if error.is_some() {
            self.threads.join(|index| self.sessions[index].done);
        }
        error
    }

    /// Opens the window for all sessions at once and returns when all of them have ended.
    fn window(
        &mut self,
        admin: &mut Client,
        extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError> {
        let count = self.sessions.len();
        // The slowest thread must receive the start time before it comes.
        let lead = span(0.02 + 0.000_2 * count as f64);
        let before = Start::now(admin)?;
        let start = Start::agree_on_window(self.setup.opener.as_ref(), admin, lead)?;
        let plan = WindowPlan::new(extent, count as u64, self.passes);
        for index in 0..count {
            let order = WindowOrder {
                start: start.epoch,
                end: start.epoch + plan.seconds,
                slice: plan.slice / plan.passes as f64,
                at_most: plan.share(index as u64),
                seed: server_seed(self.setup.seed, "session", index as u64),
            };
            self.threads.send_order(index, Order::Window(order));
        }
        let window = OpenWindow::open(admin, start, plan, listener);
        let sessions = &mut self.sessions;
        let mut working = Working { sessions, window, working: count, covered: vec![0.0; count] };
        let error = phase::run(&mut working, &self.events, &self.setup.stop);
        let mut outcome = working.window.into_outcome();
        // A server that does not answer is reported by what is read of it next.
        if error.is_none()
            && let Ok(after) = Start::now(admin)
        {
            outcome.clock_moved = clock::moved(before, after);
        }
        outcome.error = error;
        for member in &self.sessions {
            outcome.totals.merge(&member.totals);
            outcome.sessions.push(member.totals.to_session_totals(member.pid, &member.table));
        }
        outcome.cancelled_sync_rep = self.notices.cancelled_sync_rep();
        self.threads.close();
        self.threads.join(|index| self.sessions[index].done);
        Ok(outcome)
    }
}

impl Participants for SessionPool {
    fn pids(&self) -> Vec<i32> {
        self.sessions.iter().map(|m| m.pid).collect()
    }

    fn pinned(&self) -> BTreeMap<String, String> {
        self.pinned.clone()
    }

    fn run(
        mut self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError> {
        self.window(admin, extent, listener)
    }
}

pub(super) fn alive(sessions: &[PooledSession]) -> Vec<Alive<'_>> {
    let alive = sessions.iter().filter(|m| !m.done);
    alive.map(|m| Alive { pid: m.pid, canceller: m.canceller.as_ref() }).collect()
}

/// Sessions that connect, are prepared and warm up.
struct Connecting<'a> {
    admin: &'a mut Client,
    /// Time without an event in which the sessions are not late.
    warmup: Duration,
    sessions: &'a mut [PooledSession],
    threads: &'a mut Threads<Order>,
    pinned: &'a mut BTreeMap<String, String>,
    /// The number of sessions that are not ready.
    waiting: usize,
    stall: Stall,
    /// When the sessions learned that the window is canceled.
    aborted: Option<Instant>,
    stopping: Stopping,
}

impl Connecting<'_> {
    /// Checks that each session has its own server process. If two share one, a pooler is in between.
    fn check_unshared(&mut self) -> Result<(), EngineError> {
        let mut pids: BTreeSet<i32> = self.sessions.iter().map(|m| m.pid).collect();
        pids.insert(prepare::backend_pid(self.admin)?);
        if pids.len() == self.sessions.len() + 1 { Ok(()) } else { Err(EngineError::Pooled) }
    }
}

impl Phase for Connecting<'_> {
    type Event = SessionEvent;

    fn take(&mut self, event: SessionEvent, now: Instant) -> Result<(), EngineError> {
        self.stall.note_event(now);
        match event {
            SessionEvent::Connected { index, pid, canceller } => {
                let member = &mut self.sessions[index as usize];
                (member.pid, member.canceller) = (pid, Some(*canceller));
            }
            SessionEvent::Ready { index, table, pinned } => {
                self.sessions[index as usize].table = table;
                self.pinned.extend(pinned);
                self.waiting -= 1;
                if self.waiting == 0 {
                    self.check_unshared()?;
                }
            }
            SessionEvent::Failed { index, error } => {
                self.sessions[index as usize].done = true;
                return Err(error);
            }
            SessionEvent::Done { index } => self.sessions[index as usize].done = true,
            SessionEvent::Slice(_) | SessionEvent::Woven(_) => {}
        }
        Ok(())
    }

    fn is_unfinished(&self, ending: bool) -> bool {
        if ending {
            self.sessions.iter().any(|m| !m.done) && !self.stopping.has_given_up()
        } else {
            self.waiting > 0
        }
    }

    fn overdue(&mut self, now: Instant) -> Option<EngineError> {
        let over = self.stall.quiet_time(now).saturating_sub(self.warmup);
        let unready = || -> Vec<i32> {
            self.sessions.iter().filter(|m| m.table.is_empty()).map(|m| m.pid).collect()
        };
        self.stall.overdue_error(self.admin, now, over, unready, "were not ready in time")
    }

    /// Aborts the sessions: most of them end by themselves when the window is canceled.
    fn end(&mut self, urgent: bool, now: Instant) {
        match self.aborted {
            None => {
                self.threads.close();
                self.aborted = Some(now);
            }
            Some(since) if now - since >= TICK => {
                self.stopping.advance(self.admin, &alive(self.sessions), urgent, now);
            }
            Some(_) => {}
        }
    }
}

/// The sessions during their window.
struct Working<'a> {
    sessions: &'a mut [PooledSession],
    window: OpenWindow<'a>,
    /// The number of sessions whose last slice has not arrived.
    working: usize,
    /// Seconds of the window that a session's slices cover.
    covered: Vec<f64>,
}

impl Working<'_> {
    fn add(&mut self, slice: SliceDone, now: Instant) {
        let SliceDone { index, number, last, work, readings } = slice;
        let window = &mut self.window;
        window.note_progress(now);
        self.sessions[index as usize].totals.merge(&work.totals);
        let (began, ended) = (work.began - window.start.epoch, work.ended - window.start.epoch);
        // The one commit of a session that ended in its first slice has number 0 as well.
        if number == 0 && self.covered[index as usize] == 0.0 {
            window.outcome.late = window.outcome.late.max(began);
            window.outcome.first = window.outcome.first.min(began);
        }
        window.outcome.seconds = window.outcome.seconds.max(ended);
        let covered = &mut self.covered[index as usize];
        let ended = ended.max(*covered);
        window.progress.covered += (ended - *covered) / window.plan.participants as f64;
        *covered = ended;
        window.outcome.readings.extend(readings);
        window.add_slice(number, &work.totals);
        self.working -= usize::from(last);
        if last && self.working == 0 {
            window.close(window.start.at + span(window.outcome.seconds));
        }
    }
}

impl Phase for Working<'_> {
    type Event = SessionEvent;

    fn take(&mut self, event: SessionEvent, now: Instant) -> Result<(), EngineError> {
        match event {
            SessionEvent::Slice(slice) => self.add(*slice, now),
            SessionEvent::Done { index } => self.sessions[index as usize].done = true,
            SessionEvent::Failed { index, error } => {
                self.sessions[index as usize].done = true;
                return Err(error);
            }
            SessionEvent::Connected { .. }
            | SessionEvent::Ready { .. }
            | SessionEvent::Woven(_) => {}
        }
        Ok(())
    }

    fn is_unfinished(&self, _ending: bool) -> bool {
        self.sessions.iter().any(|m| !m.done) && !self.window.has_given_up()
    }

    fn overdue(&mut self, now: Instant) -> Option<EngineError> {
        let pids = || alive(self.sessions).iter().map(|session| session.pid).collect();
        self.window.stuck_error(now, pids)
    }

    fn tick(&mut self, now: Instant) {
        if self.working > 0 {
            self.window.report_progress(now);
        }
    }

    fn end(&mut self, urgent: bool, now: Instant) {
        self.window.stop(&alive(self.sessions), urgent, now);
    }
}
