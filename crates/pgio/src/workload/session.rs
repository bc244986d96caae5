//! One session: a thread and a connection that runs a DO block slice by slice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::Client;
use pgio_connect::SqlState;

use super::error::EngineError;
use super::participants::Setup;
use super::prepare::{
    Prior, Switches, backend_pid, check_plan, check_privileges, current_values, expressions,
    failed, first_row, pin, server_clock, version_num,
};
use super::slice::{SliceResult, seconds, woven_statement};
use super::sql::fill;
use super::stopping::Notices;
use super::window::SHORTEST_PASS;
use super::{Script, Sessions, SliceArgs, Totals};
use crate::pg::server::FORCE_FLUSH_SINCE;
use crate::pg::session;
use crate::rng;
use pgio_connect::{self, Canceller};
use pgio_results::histogram::Histogram;

/// Statistics are published at most so often: less than the shortest slice of a plain window.
const PUBLISH_EVERY: Duration = Duration::from_millis(200);

/// An event of a session.
pub(super) enum SessionEvent {
    Connected { index: u32, pid: i32, canceller: Box<Canceller> },
    Ready { index: u32, table: String, pinned: BTreeMap<String, String> },
    Slice(Box<SliceDone>),
    Woven(Box<WovenDone>),
    Done { index: u32 },
    Failed { index: u32, error: EngineError },
}

/// One slice of one session.
pub(super) struct SliceDone {
    pub index: u32,
    pub number: usize,
    /// This was the session's last slice.
    pub last: bool,
    pub work: SliceWork,
    /// The condition's settings after the slice.
    pub readings: Vec<(String, String)>,
}

/// The work of a slice and its times, in seconds since the epoch on the server's clock.
pub(super) struct SliceWork {
    pub totals: Totals,
    pub began: f64,
    pub ended: f64,
}

/// The window, in seconds since the epoch on the server's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowOrder {
    pub start: f64,
    pub end: f64,
    pub slice: f64,
    pub at_most: Option<u64>,
    pub seed: f64,
}

/// The next slice of a woven window; times are seconds since the epoch on the server's clock.
#[derive(Debug, Clone)]
pub(super) struct SliceOrder {
    pub settings: Arc<Switches>,
    /// The end of the guard, of the first half and of the second.
    pub ends: [f64; 3],
    /// In the first slice only.
    pub seed: Option<f64>,
}

/// A slice of a woven window that one session has done.
pub(super) struct WovenDone {
    pub index: u32,
    /// When its work began, the guard's included; `None` after a deadlock that the block did not catch.
    pub began: Option<f64>,
    pub halves: [SliceWork; 2],
    /// The settings before and after the slice.
    pub readings: Vec<(String, String)>,
}

/// What a session does after it is ready.
pub(super) enum Order {
    Window(WindowOrder),
    Slice(SliceOrder),
    /// No slice follows.
    End,
}

/// Runs the thread from start to end. If the receiver has been dropped, the events are not needed.
pub(super) fn run(
    index: u32,
    sessions: &dyn Sessions,
    setup: &Setup,
    notices: &Notices,
    events: &Sender<SessionEvent>,
    orders: &Receiver<Order>,
) {
    let script = sessions.script(index);
    // Nothing is sent before all sessions are ready; if this wait ends early, the caller has given up.
    if !matches!(orders.recv_timeout(script.delay), Err(RecvTimeoutError::Timeout)) {
        let _ = events.send(SessionEvent::Failed { index, error: EngineError::Stopped });
        return;
    }
    if let Err(error) = work(index, &script, setup, notices, events, orders) {
        let _ = events.send(SessionEvent::Failed { index, error });
    }
}

fn work(
    index: u32,
    script: &Script,
    setup: &Setup,
    notices: &Notices,
    events: &Sender<SessionEvent>,
    orders: &Receiver<Order>,
) -> Result<(), EngineError> {
    let received = notices.clone();
    let params = setup.params.clone().with_notices(move |routine| received.push(routine));
    let mut client = session::open(&params).map_err(EngineError::Connect)?;
    let pid = backend_pid(&mut client)?;
    let canceller = Box::new(client.canceller());
    let _ = events.send(SessionEvent::Connected { index, pid, canceller });

    let pinned = pin(&mut client, script, &setup.settings)?;
    check_privileges(&mut client, script)?;
    for plan in &script.plans {
        check_plan(&mut client, plan)?;
    }
    let prior = Prior::default();
    let mut session =
        Session { client, setup, script, version: 0, pass: 0, prior, published: None };
    session.version = version_num(&mut session.client)?;
    session.warm_up(index)?;
    if backend_pid(&mut session.client)? != pid {
        return Err(EngineError::Pooled);
    }
    let _ = events.send(SessionEvent::Ready { index, table: script.table.clone(), pinned });

    // If the sender has been dropped, the caller has given up and no window follows.
    loop {
        match orders.recv().map_err(|_| EngineError::Stopped)? {
            Order::Window(window) => {
                session.run_window(index, &window, events)?;
                break;
            }
            Order::Slice(order) => {
                let done = session.run_woven_slice(index, &order)?;
                let _ = events.send(SessionEvent::Woven(Box::new(done)));
            }
            Order::End => break,
        }
    }
    session.flush_statistics()?;
    let _ = events.send(SessionEvent::Done { index });
    // Keep the session until the sender is dropped: the kernel's counters of its process are still to
    // be read.
    let _ = orders.recv();
    Ok(())
}

/// Returns the argument of a session's setseed(): from 0 to below 1.
pub(super) fn server_seed(seed: u64, purpose: &str, index: u64) -> f64 {
    (rng::derive(seed, purpose, index) >> 11) as f64 / (1u64 << 53) as f64
}

/// The result of a DO block.
struct Executed {
    /// The JSON of its result; none after a deadlock.
    result: Option<String>,
    readings: Vec<(String, String)>,
}

fn parse_result<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, EngineError> {
    serde_json::from_str(text).map_err(|e| EngineError::Slice(e.to_string()))
}

fn slice_work(slice: SliceResult) -> Result<SliceWork, EngineError> {
    let (began, ended) = (seconds(slice.began_us), seconds(slice.ended_us));
    let totals = Totals::from_slice(slice)
        .ok_or_else(|| EngineError::Slice("too many buckets".to_owned()))?;
    Ok(SliceWork { totals, began, ended })
}

struct Session<'a> {
    client: Client,
    setup: &'a Setup,
    script: &'a Script,
    version: u32,
    /// Passes over tables so far.
    pass: usize,
    /// The values from before the first slice of a woven window.
    prior: Prior,
    /// When the server was last made to publish statistics.
    published: Option<Instant>,
}

impl Session<'_> {
    fn warm_up(&mut self, index: u32) -> Result<(), EngineError> {
        if self.setup.warmup.is_zero() {
            return Ok(());
        }
        let warmup = self.setup.warmup.saturating_sub(self.script.delay);
        let end = server_clock(&mut self.client)? + warmup.as_secs_f64();
        // Use a separate random stream: the window's must not depend on the warm-up's progress.
        let mut seed = Some(server_seed(self.setup.seed, "warm-up", u64::from(index)));
        while !self.setup.stop.requested() {
            let now = server_clock(&mut self.client)?;
            if now >= end {
                break;
            }
            let length = if self.script.rotation.is_empty() { 1.0 } else { SHORTEST_PASS };
            let until_at = (now + length).min(end);
            let args = SliceArgs { until_at, seed: seed.take(), ..SliceArgs::default() };
            self.run_slice(args, &Vec::new())?;
        }
        self.flush_statistics()
    }

    fn run_window(
        &mut self,
        index: u32,
        window: &WindowOrder,
        events: &Sender<SessionEvent>,
    ) -> Result<(), EngineError> {
        let one_transaction = self.script.one_transaction;
        let report = |number, last, work, readings| {
            let slice = SliceDone { index, number, last, work, readings };
            let _ = events.send(SessionEvent::Slice(Box::new(slice)));
        };
        if one_transaction {
            self.client.batch_execute("BEGIN").map_err(failed("BEGIN"))?;
        }
        let settings: Switches = self
            .setup
            .settings
            .iter()
            .map(|(name, value)| (name.clone(), Some(value.clone())))
            .collect();
        let mut left = window.at_most;
        let mut number = 0;
        loop {
            let boundary = window.start + window.slice * (number + 1) as f64;
            // The last boundary is the window's end, not the sum of rounded slices.
            let last = boundary + window.slice / 2.0 > window.end;
            let args = SliceArgs {
                start_at: (number == 0).then_some(window.start),
                until_at: if last { window.end } else { boundary },
                seed: (number == 0).then_some(window.seed),
                at_most: left,
            };
            let (work, readings) = self.run_slice(args, &settings)?;
            left = left.map(|n| n.saturating_sub(work.totals.work_units()));
            let done = left.map_or(last, |n| n == 0) || self.setup.stop.requested();
            report(number, done && !one_transaction, work, readings);
            if done {
                break;
            }
            number += 1;
        }
        if one_transaction {
            let work = self.final_commit()?;
            report(number, true, work, Vec::new());
        }
        Ok(())
    }

    /// Puts a condition's settings in force and runs its slice: the guard, which is not counted, and
    /// two halves. A deadlock that the block cannot catch costs the slice.
    fn run_woven_slice(
        &mut self,
        index: u32,
        order: &SliceOrder,
    ) -> Result<WovenDone, EngineError> {
        let mut readings = self.prior.switch(&mut self.client, &order.settings)?;
        let block = woven_statement(&self.script.body, order.ends, order.seed);
        let statement = self.fill_table(block);
        let done = self.execute(&statement, &order.settings)?;
        readings.extend(done.readings);
        let (began, halves) = match done.result {
            None => {
                let now = server_clock(&mut self.client)?;
                let empty = || SliceWork { totals: Totals::default(), began: now, ended: now };
                let mut halves = [empty(), empty()];
                halves[0].totals.deadlocks = 1;
                (None, halves)
            }
            Some(text) => {
                let (began, first, second): (i64, SliceResult, SliceResult) = parse_result(&text)?;
                // A timestamptz is rounded to a microsecond.
                if seconds(first.began_us) < order.ends[0] - 2e-6 {
                    return Err(EngineError::ClockSetBack);
                }
                (Some(seconds(began)), [slice_work(first)?, slice_work(second)?])
            }
        };
        self.advance_pass(&halves);
        Ok(WovenDone { index, began, halves, readings })
    }

    /// Runs the one commit of `commit_every = 0`; its time includes the round trip.
    fn final_commit(&mut self) -> Result<SliceWork, EngineError> {
        let began = server_clock(&mut self.client)?;
        let begun = Instant::now();
        self.client.batch_execute("COMMIT").map_err(failed("COMMIT"))?;
        let mut h = Histogram::default();
        h.record(begun.elapsed().as_nanos() as f64);
        let totals =
            Totals { histograms: BTreeMap::from([("commit".to_owned(), h)]), ..Totals::default() };
        Ok(SliceWork { totals, began, ended: server_clock(&mut self.client)? })
    }

    /// Runs one DO block; returns the values of these settings after it, which cost no round trip of their own:
    /// conditions with settings would be slower than conditions without. A deadlock that the block does not catch
    /// costs the slice: its counts end with the block's variables. The deadlock is counted, and the session
    /// continues. Our own sessions never deadlock each other, since a statement that is a transaction locks its rows
    /// in order of their keys.
    fn run_slice(
        &mut self,
        args: SliceArgs,
        settings: &Switches,
    ) -> Result<(SliceWork, Vec<(String, String)>), EngineError> {
        let statement = self.fill_table(args.statement(&self.script.body));
        let Executed { result, readings } = self.execute(&statement, settings)?;
        let work = match result {
            Some(text) => {
                let work = slice_work(parse_result(&text)?)?;
                self.advance_pass(std::slice::from_ref(&work));
                work
            }
            None => {
                let totals = Totals { deadlocks: 1, ..Totals::default() };
                let now = server_clock(&mut self.client)?;
                SliceWork { totals, began: now, ended: now }
            }
        };
        Ok((work, readings))
    }

    /// Runs a DO block; with its result, the server returns the values of these settings.
    fn execute(&mut self, statement: &str, settings: &Switches) -> Result<Executed, EngineError> {
        // Send two queries: one message would be one transaction, in which COMMIT is not allowed.
        let done = self.client.batch_execute(statement).and_then(|()| {
            let query = self.result_query(settings);
            self.client.simple_query(&query)
        });
        let messages = match done {
            Ok(messages) => messages,
            Err(e) if e.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED) => {
                let readings = current_values(&mut self.client, settings)?;
                return Ok(Executed { result: None, readings });
            }
            Err(source) => return Err(EngineError::Postgres { doing: "the workload", source }),
        };
        let row = first_row(&messages).ok_or_else(|| EngineError::Slice("no row".to_owned()))?;
        let value = |at: usize| row.try_get(at).ok().flatten().unwrap_or_default().to_owned();
        let readings = settings.iter().enumerate().map(|(at, (name, _))| (name.clone(), value(at)));
        let readings = readings.collect();
        let result = Some(value(settings.len()));
        if let Some(statement) = &self.script.after_slice {
            self.client.batch_execute(statement).map_err(failed("clearing up"))?;
        }
        Ok(Executed { result, readings })
    }

    /// Fills in the table of this pass.
    fn fill_table(&self, statement: String) -> String {
        let tables = &self.script.rotation;
        if tables.is_empty() {
            return statement;
        }
        fill(&statement, &[("table", &tables[self.pass % tables.len()])])
    }

    /// Goes on to the next table, unless the slice came too late to do any work.
    fn advance_pass(&mut self, work: &[SliceWork]) {
        let mut histograms = work.iter().flat_map(|part| part.totals.histograms.values());
        self.pass += usize::from(histograms.any(|h| h.count() > 0));
    }

    /// Returns the query for settings and the result. It also makes the server publish the session's
    /// statistics, so that counters read inside a window are not seconds old, but not after every slice of
    /// some milliseconds.
    fn result_query(&mut self, settings: &Switches) -> String {
        let mut columns = expressions(settings);
        columns.push("current_setting('pgio.result')".to_owned());
        let is_fresh = self.published.is_some_and(|at| at.elapsed() < PUBLISH_EVERY);
        if self.version >= FORCE_FLUSH_SINCE && !is_fresh {
            self.published = Some(Instant::now());
            columns.push("pg_stat_force_next_flush()".to_owned());
        }
        format!("SELECT {}", columns.join(", "))
    }

    /// Makes the server publish this session's statistics before its counters are read.
    fn flush_statistics(&mut self) -> Result<(), EngineError> {
        if self.version >= FORCE_FLUSH_SINCE {
            self.client
                .simple_query("SELECT pg_stat_force_next_flush()")
                .map_err(failed("flushing statistics"))?;
        } else {
            // Before version 15, an idle session reports at most twice a second.
            thread::sleep(Duration::from_millis(600));
            self.client.simple_query("SELECT 1").map_err(failed("flushing statistics"))?;
        }
        Ok(())
    }
}
