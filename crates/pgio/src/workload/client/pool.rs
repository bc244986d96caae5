//! The session pool of the client-side engine: a few threads, each with its part of the sessions.
//!
//! The pool opens two windows: the warm-up, whose counts are discarded, and the measured one. A thread
//! sums up the work of its sessions and reports once per slice, so that the number of sessions does not
//! matter here.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::driver::Driver;
use super::window::{Order, Quit, ThreadEvent, Window};
use crate::config::ClientSettings;
use crate::config::resolve::Extent;
use crate::rng;
use crate::workload::Totals;
use crate::workload::clock::Start;
use crate::workload::error::EngineError;
use crate::workload::outcome::{WindowEvent, WindowOutcome};
use crate::workload::participants::{Participants, Setup};
use crate::workload::phase::{self, Phase, Threads};
use crate::workload::stopping::{Alive, Notices};
use crate::workload::window::{OpenWindow, WindowPlan, span};
use pgio_connect::Canceller;
use pgio_results::model::{SessionTotals, Slice};

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
