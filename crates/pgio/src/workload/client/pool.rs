//! The session pool of the client-side engine: a few threads, each with its part of the sessions.
//!
//! The pool opens two windows: the warm-up, whose counts are discarded, and the measured one. A thread
//! sums up the work of its sessions and reports once per slice, so that the number of sessions does not
//! matter here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use pgio_connect::{Canceller, Client};
use pgio_results::model::{SessionTotals, Slice};

use super::driver::Driver;
use crate::config::resolve::Extent;
use crate::config::{ClientSettings, Pace};
use crate::rng;
use crate::workload::Totals;
use crate::workload::clock::Start;
use crate::workload::error::EngineError;
use crate::workload::participants::{Participants, Setup, WindowEvent, WindowOutcome};
use crate::workload::phase::{self, Phase, Threads};
use crate::workload::stopping::{Alive, Notices};
use crate::workload::window::{OpenWindow, WindowPlan, span};

/// Time for the threads to receive the start time before it comes.
const LEAD: Duration = Duration::from_millis(20);
/// The stack of a thread that drives many sessions: Rust's default.
const STACK: usize = 2 * 1024 * 1024;

/// Sessions that are ready and wait for their window.
pub(super) struct ClientPool {
    pub(super) setup: Setup,
    pub(super) settings: ClientSettings,
    pub(super) sessions: Vec<ClientSession>,
    pub(super) notices: Notices,
    /// All pinned settings, as read back.
    pub(super) pinned: BTreeMap<String, String>,
    threads: Threads<Order>,
    /// The sessions of each thread.
    shares: Vec<Vec<u32>>,
    /// Set while some threads still wait for a server that does not answer.
    given_up: bool,
}

/// A session as the pool sees it.
#[derive(Debug)]
pub(super) struct ClientSession {
    pub(super) pid: i32,
    pub(super) table: String,
    pub(super) canceller: Canceller,
    pub(super) done: bool,
}

impl ClientPool {
    pub(super) fn new(
        (setup, settings): (Setup, ClientSettings),
        sessions: Vec<ClientSession>,
        notices: Notices,
        pinned: BTreeMap<String, String>,
    ) -> ClientPool {
        let (threads, shares) = (Threads::new(), Vec::new());
        ClientPool { setup, settings, sessions, notices, pinned, threads, shares, given_up: false }
    }

    /// Starts a thread for a driver and its sessions; the thread waits for windows.
    pub(super) fn start(&mut self, mut driver: Driver) -> Result<(), EngineError> {
        self.shares.push(driver.indices().collect());
        self.threads.spawn("client".to_owned(), STACK, move |orders| {
            while let Ok(Order { window, events }) = orders.recv() {
                driver.run(&window, &events);
            }
        })
    }

    /// Runs the warm-up. Its random stream is its own: the window's must not depend on the warm-up's
    /// progress.
    pub(super) fn warm_up(&mut self, admin: &mut Client) -> Result<(), EngineError> {
        if self.setup.warmup.is_zero() {
            return Ok(());
        }
        let seed = rng::derive(self.setup.seed, "warm-up", 0);
        let start = Start::agree_on_warm_up(self.setup.opener.as_ref(), admin, LEAD)?;
        let extent = Extent::Time(self.setup.warmup);
        let outcome = self.window(admin, (start, extent), seed, &mut |_, _| {})?;
        outcome.error.map_or(Ok(()), Err)
    }

    /// Opens and closes a window: the warm-up or the measured one.
    fn window(
        &mut self,
        admin: &mut Client,
        (start, extent): (Start, Extent),
        seed: u64,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WindowOutcome, EngineError> {
        let first = self.setup.first_session();
        let all = self.setup.all_sessions(self.sessions.len());
        let plan = WindowPlan::new(extent, all, 1);
        let quit = Quit::default();
        // A separate channel: the window is over when no thread can report any more.
        let (sender, events) = mpsc::channel();
        for (thread, sessions) in self.shares.iter().enumerate() {
            let window = Window {
                opens: start.at,
                seconds: plan.seconds,
                slice: plan.slice,
                shares: sessions.iter().map(|index| plan.share(u64::from(first + index))).collect(),
                pace: self.settings.pace,
                pipeline: self.settings.pipeline as usize,
                first,
                all_sessions: all,
                seed,
                quit: quit.clone(),
            };
            self.threads.send_order(thread, Order { window, events: sender.clone() });
        }
        drop(sender);
        self.sessions.iter_mut().for_each(|session| session.done = false);
        let mut window = OpenWindow::open(admin, start, plan, listener);
        window.outcome.sessions = vec![SessionTotals::default(); self.sessions.len()];
        let threads = self.shares.len();
        let mut working = Working {
            sessions: &mut self.sessions,
            quit: &quit,
            // Each thread reports every slice, including empty ones.
            slice: window.plan.slice / threads as f64,
            is_paced: self.settings.pace.is_some(),
            window,
            working: threads,
        };
        let error = phase::run(&mut working, &events, &self.setup.stop);
        // Threads stop waiting for a server that does not answer. A thread that still waits is
        // abandoned: its sessions have no result.
        quit.force();
        self.given_up = working.window.has_given_up();
        let mut outcome = working.window.into_outcome();
        outcome.error = error;
        outcome.cancelled_sync_rep = self.notices.cancelled_sync_rep();
        Ok(outcome)
    }
}

impl Drop for ClientPool {
    /// Sessions end with their thread; the next trial needs their connections.
    fn drop(&mut self) {
        self.threads.close();
        self.threads.join(|_| !self.given_up);
    }
}

impl Participants for ClientPool {
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
        let seed = self.setup.seed;
        let start = Start::agree_on_window(self.setup.opener.as_ref(), admin, LEAD)?;
        self.window(admin, (start, extent), seed, listener)
    }
}

fn alive(sessions: &[ClientSession]) -> impl Iterator<Item = Alive<'_>> {
    let alive = sessions.iter().filter(|m| !m.done);
    alive.map(|m| Alive { pid: m.pid, canceller: Some(&m.canceller) })
}

/// The threads during a window.
struct Working<'a> {
    sessions: &'a mut [ClientSession],
    window: OpenWindow<'a>,
    quit: &'a Quit,
    /// Seconds of the window that one report covers.
    slice: f64,
    is_paced: bool,
    /// Threads with sessions that have not ended their last call.
    working: usize,
}

impl Phase for Working<'_> {
    type Event = ThreadEvent;

    fn take(&mut self, event: ThreadEvent, now: Instant) -> Result<(), EngineError> {
        let window = &mut self.window;
        match event {
            ThreadEvent::Slice { number, totals, readings } => {
                // A slice without answers is reported too.
                if totals.calls > 0 {
                    window.note_progress(now);
                }
                window.outcome.totals.merge(&totals);
                window.outcome.readings.extend(readings);
                window.progress.covered += self.slice;
                window.add_slice(number, &totals);
                if self.is_paced {
                    add_latency(&mut window.outcome.timeline[number], &totals);
                }
            }
            ThreadEvent::Worked { seconds, first, late } => {
                window.outcome.seconds = window.outcome.seconds.max(seconds);
                window.outcome.late = window.outcome.late.max(late);
                window.outcome.first = window.outcome.first.min(first);
                self.working -= 1;
                if self.working == 0 {
                    window.close(window.start.at + span(window.outcome.seconds));
                }
            }
            ThreadEvent::Done { index, totals } => {
                let session = &mut self.sessions[index as usize];
                session.done = true;
                window.outcome.sessions[index as usize] =
                    SessionTotals { pid: session.pid, table: session.table.clone(), ..totals };
            }
            ThreadEvent::Failed { error } => return Err(error),
        }
        Ok(())
    }

    /// Sessions that were stopped send their totals too, as their last event.
    fn is_unfinished(&self, _ending: bool) -> bool {
        let unfinished = self.working > 0 || self.sessions.iter().any(|m| !m.done);
        unfinished && !self.window.has_given_up()
    }

    fn overdue(&mut self, now: Instant) -> Option<EngineError> {
        self.window.stuck_error(now, || alive(self.sessions).map(|session| session.pid).collect())
    }

    fn tick(&mut self, now: Instant) {
        if self.working > 0 {
            self.window.report_progress(now);
        }
    }

    fn end(&mut self, urgent: bool, now: Instant) {
        self.quit.request();
        let alive: Vec<Alive<'_>> = alive(self.sessions).collect();
        self.window.stop(&alive, urgent, now);
    }
}

/// Adds the latency to a slice, because in an open loop it shows the course of the window.
fn add_latency(slice: &mut Slice, totals: &Totals) {
    // The commit of a transaction is the transaction itself, and the latency includes the lag.
    for h in ["read", "update", "transaction"].iter().filter_map(|c| totals.histograms.get(*c)) {
        slice.timed += h.total_count();
        slice.latency_seconds += h.total_sum_ns() / 1e9;
    }
}

/// A window, the same for all threads; times are nanoseconds since `opens`.
pub(super) struct Window {
    pub opens: Instant,
    /// Infinite if the extent is a number of calls.
    pub seconds: f64,
    pub slice: f64,
    /// Number of calls of each session of this thread.
    pub shares: Vec<Option<u64>>,
    pub pace: Option<Pace>,
    pub pipeline: usize,
    /// The number of this process's first session.
    pub first: u32,
    /// Number of sessions of all processes.
    pub all_sessions: u64,
    pub seed: u64,
    pub quit: Quit,
}

impl Window {
    /// Returns when the last call may start.
    #[inline]
    pub(super) fn end(&self) -> i64 {
        // The conversion saturates.
        (self.seconds * 1e9) as i64
    }

    /// Returns whether the window has a length; otherwise it has a number of calls.
    pub(super) fn is_finite(&self) -> bool {
        self.seconds.is_finite()
    }

    /// Returns the end of a slice; the last one includes the rounding error.
    pub(super) fn boundary(&self, number: usize) -> i64 {
        let at = self.slice * (number + 1) as f64;
        if at + self.slice / 2.0 > self.seconds { i64::MAX } else { (at * 1e9) as i64 }
    }

    pub(super) fn now(&self) -> i64 {
        let now = Instant::now();
        match now.checked_duration_since(self.opens) {
            Some(since) => since.as_nanos() as i64,
            None => -((self.opens - now).as_nanos() as i64),
        }
    }
}

/// The order to stop, from the collecting thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Quit(Arc<AtomicU8>);

impl Quit {
    /// Start no more calls.
    pub(super) fn request(&self) {
        self.0.fetch_max(1, Ordering::Relaxed);
    }

    /// Do not wait for running calls either.
    pub(super) fn force(&self) {
        self.0.fetch_max(2, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    pub(super) fn is_forced(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }
}

/// An order to run one window.
pub(super) struct Order {
    pub(super) window: Window,
    /// The sender of its events; the window ends when all senders are dropped.
    pub(super) events: Sender<ThreadEvent>,
}

pub(super) enum ThreadEvent {
    /// The work of all sessions of a thread in one slice, and the condition's settings after it.
    Slice {
        number: usize,
        totals: Totals,
        readings: BTreeSet<(String, String)>,
    },
    /// All sessions of a thread have ended their last call: when, since the common start, and how late
    /// sessions began.
    Worked {
        seconds: f64,
        /// The moments of the first session and of the last.
        first: f64,
        late: f64,
    },
    /// A session has ended its work.
    Done {
        index: u32,
        totals: SessionTotals,
    },
    Failed {
        error: EngineError,
    },
}
