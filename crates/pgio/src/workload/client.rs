//! The client-side engine: pgio itself sends the statements, prepared, one by one or several at a
//! time, as fast as they are answered (closed loop) or at a rate of its own (open loop).
//!
//! What it must not do is cost more than what it drives: one thread waits for all sessions in one
//! epoll, messages are made before the window, and of the answers only what counts is looked at
//! (ARCHITECTURE has the figures). [`Crew::assemble`] looks at what the sessions need by one of the
//! `postgres` crate, then opens them all; [`Crew`] runs them through warm-up and window as
//! [`super::engine::Gang`] does its own, and stops them in the same way.
//!
//! Next: `calls` for what is sent, `assemble` for connecting, `driver` for the thread, `session` for
//! one session of it, `pace` for the open loop, `told` for what threads tell.

mod assemble;
mod calls;
pub(super) mod commit;
mod driver;
mod pace;
mod session;
pub(super) mod slob;
mod told;

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postgres::Client;

use super::engine::{self, EngineError, Progress, Ran, Setup, WindowEvent, WindowPlan};
use super::notice::Notices;
use super::stall::Stall;
use super::stopping::{Alive, Stopping};
use super::{Ready, Totals};
use crate::config::resolve::Extent;
use crate::config::{Arrivals, ClientSettings, Pace};
use crate::pg::connect::Canceller;
use crate::results::model::{SessionTotals, Slice};
use crate::rng;
use calls::Calls;
use driver::{Driver, Go, Quit};
use told::Told;

/// Seconds that a fixed number of calls has to be meant to take before its rate is judged.
const LONG_ENOUGH: f64 = 10.0;

/// How often the caller hears of progress.
const TICK: Duration = Duration::from_millis(50);

/// Sessions that are ready and wait for their window.
pub(super) struct Crew {
    setup: Setup,
    settings: ClientSettings,
    members: Vec<Member>,
    /// Their sessions; absent while their threads have them.
    drivers: Vec<Driver>,
    notices: Notices,
    /// Every setting pinned, as read back.
    pinned: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Member {
    pid: i32,
    table: String,
    canceller: Canceller,
    done: bool,
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew").field("sessions", &self.members.len()).finish_non_exhaustive()
    }
}

impl Crew {
    /// Opens and closes a window: the warm-up, or the one that counts.
    fn window(
        &mut self,
        admin: &mut Client,
        extent: Extent,
        seed: u64,
        hear: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<Ran, EngineError> {
        let (opens, started) = engine::common_start(admin, Duration::from_millis(20))?;
        let plan = WindowPlan::new(extent, self.members.len() as u64, 1);
        let quit = Quit::default();
        let (tell, told) = mpsc::channel();
        let mut threads = Vec::new();
        for mut driver in self.drivers.drain(..) {
            let go = Go {
                opens,
                seconds: plan.seconds,
                slice: plan.slice,
                shares: driver.indices().map(|index| plan.share(u64::from(index))).collect(),
                pace: self.settings.pace,
                pipeline: self.settings.pipeline as usize,
                members: self.members.len() as u64,
                seed,
                quit: quit.clone(),
            };
            let tell = tell.clone();
            let thread = thread::Builder::new().name("client".to_owned()).spawn(move || {
                driver.run(&go, &tell);
                driver
            });
            threads.push(thread.map_err(|e| {
                quit.at_once();
                EngineError::Stuck(format!("cannot start a thread for sessions: {e}"))
            })?);
        }
        drop(tell);
        self.members.iter_mut().for_each(|member| member.done = false);
        thread::sleep(opens.saturating_duration_since(Instant::now()));
        hear(admin, WindowEvent::Opened(opens));
        let window = OpenWindow { opens, started, plan, quit };
        Ok(self.collect(admin, &window, &told, threads, hear))
    }

    fn collect(
        &mut self,
        admin: &mut Client,
        window: &OpenWindow,
        told: &Receiver<Told>,
        threads: Vec<JoinHandle<Driver>>,
        hear: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Ran {
        let OpenWindow { opens, started, plan, quit } = window;
        let mut ran = Ran::new(*started);
        ran.sessions = vec![SessionTotals::default(); self.members.len()];
        let mut progress = Progress::default();
        let mut stopping = Stopping::default();
        let mut stall = Stall::new(*opens);
        let mut next_tick = Instant::now();
        let mut working = threads.len();
        // Each thread reports every slice once, empty ones included.
        let slice = plan.slice / threads.len() as f64;
        // What was done is told last, also by those who were stopped.
        while (working > 0 || self.alive().next().is_some()) && !stopping.given_up() {
            match told.recv_timeout(TICK) {
                Ok(Told::Slice { number, totals, readings }) => {
                    // A slice in which nothing was answered is told as well.
                    if totals.calls > 0 {
                        stall.heard(Instant::now());
                    }
                    ran.totals.merge(&totals);
                    ran.readings.extend(readings);
                    progress.block_visits += totals.block_visits();
                    progress.commits += totals.commits();
                    progress.covered += slice;
                    engine::add_slice(&mut ran.timeline, number, plan, &totals);
                    if self.settings.pace.is_some() {
                        add_latency(&mut ran.timeline[number], &totals);
                    }
                }
                Ok(Told::Worked { seconds, late }) => {
                    ran.seconds = ran.seconds.max(seconds);
                    ran.late = ran.late.max(late);
                    working -= 1;
                    if working == 0 {
                        hear(admin, WindowEvent::Closed(*opens + engine::seconds(ran.seconds)));
                    }
                }
                Ok(Told::Done { index, totals }) => {
                    let member = &mut self.members[index as usize];
                    member.done = true;
                    ran.sessions[index as usize] =
                        SessionTotals { pid: member.pid, table: member.table.clone(), ..totals };
                }
                Ok(Told::Failed { error }) => {
                    ran.error.get_or_insert(error);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.setup.stop.requested() {
                ran.error.get_or_insert(EngineError::Stopped);
            }
            if ran.error.is_none() {
                let late = || -> Vec<i32> { self.alive().map(|m| m.pid).collect() };
                ran.error = plan.stuck(admin, &late, *opens, &mut stall);
            }
            if ran.error.is_some() {
                quit.gently();
                let alive: Vec<Alive<'_>> = self.alive().map(Member::as_alive).collect();
                stopping.advance(admin, &alive, self.setup.stop.urgent());
            } else if working > 0 && next_tick <= Instant::now() {
                progress.elapsed = opens.elapsed().as_secs_f64();
                hear(admin, WindowEvent::Progress(progress));
                next_tick = Instant::now() + TICK;
            }
        }
        // Whoever still waits for a server that does not answer waits no more.
        quit.at_once();
        // Those that do so all the same are left behind: nothing comes of their sessions.
        let given_up = stopping.given_up();
        let ended = threads.into_iter().filter(|thread| !given_up || thread.is_finished());
        // A panic of a thread was printed there, and its sessions are lost with it.
        self.drivers = ended.filter_map(|thread| thread.join().ok()).collect();
        ran.cancelled_sync_rep = self.notices.cancelled_sync_rep();
        ran
    }

    fn alive(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|m| !m.done)
    }

    /// Its own stream: the window's must not depend on how far the warm-up came.
    fn warm_up(&mut self, admin: &mut Client) -> Result<(), EngineError> {
        if self.setup.warmup.is_zero() {
            return Ok(());
        }
        let seed = rng::derive(self.setup.seed, "warm-up", 0);
        let ran = self.window(admin, Extent::Time(self.setup.warmup), seed, &mut |_, _| {})?;
        ran.error.map_or(Ok(()), Err)
    }
}

/// A window that has been agreed upon.
struct OpenWindow {
    opens: Instant,
    /// The same moment in seconds since the epoch on the server's clock.
    started: f64,
    plan: WindowPlan,
    quit: Quit,
}

impl Member {
    fn as_alive(&self) -> Alive<'_> {
        Alive { pid: self.pid, canceller: Some(&self.canceller) }
    }
}

impl Ready for Crew {
    fn pids(&self) -> Vec<i32> {
        self.members.iter().map(|m| m.pid).collect()
    }

    fn pinned(&self) -> BTreeMap<String, String> {
        self.pinned.clone()
    }

    fn run(
        mut self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        hear: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<Ran, EngineError> {
        let seed = self.setup.seed;
        self.window(admin, extent, seed, hear)
    }
}

/// All sessions of a workload, connected and prepared, or none.
pub(super) fn assemble(
    calls: Vec<Calls>,
    settings: ClientSettings,
    setup: Setup,
    admin: &mut Client,
) -> Result<Box<dyn Ready>, EngineError> {
    let mut crew = assemble::assemble(calls, settings, setup, admin)?;
    crew.warm_up(admin)?;
    Ok(Box::new(crew))
}

/// In an open loop it is the latency that says how the window went.
fn add_latency(slice: &mut Slice, totals: &Totals) {
    // The commit of a transaction is the transaction itself, and a lag is in the latency.
    for h in ["read", "update", "transaction"].iter().filter_map(|c| totals.histograms.get(*c)) {
        slice.timed += h.observed();
        slice.latency_seconds += h.observed_sum_ns() / 1e9;
    }
}

/// Metrics of this engine, beside those of the workload: what was begun of what was due.
pub(super) fn metrics(
    settings: &ClientSettings,
    totals: &Totals,
    seconds: f64,
) -> Vec<(&'static str, Option<f64>)> {
    let mut metrics = vec![("calls_per_second", Some(totals.calls as f64 / seconds))];
    if let Some(pace) = &settings.pace {
        metrics.push(("rate_reached", reached(pace, totals, seconds)));
    }
    metrics
}

/// In per cent. Of a fixed number all calls begin in the end, and none is due at its end: there the rate
/// itself tells, which chance may make a little smaller where arrivals are drawn. Not of a few seconds: how
/// long the last call takes would count as well.
fn reached(pace: &Pace, totals: &Totals, seconds: f64) -> Option<f64> {
    if totals.due > 0 {
        return Some(100.0 * totals.begun as f64 / totals.due as f64);
    }
    let chance = match pace.arrivals {
        Arrivals::Fixed => 0.0,
        Arrivals::Poisson => 3.0 / (totals.calls as f64).sqrt(),
    };
    let meant = totals.calls as f64 / pace.rate as f64;
    (meant >= LONG_ENOUGH).then(|| 100.0 * (meant / seconds + chance).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_not_reached_by_a_fixed_number_that_takes_too_long() {
        let of = |arrivals, totals: Totals, seconds| {
            reached(&Pace { rate: 1000, arrivals }, &totals, seconds).map(f64::round)
        };
        let fixed = |calls| Totals { calls, ..Totals::default() };
        assert_eq!(of(Arrivals::Fixed, fixed(10_000), 10.0), Some(100.0));
        assert_eq!(of(Arrivals::Fixed, fixed(10_000), 20.0), Some(50.0));
        assert_eq!(of(Arrivals::Poisson, fixed(10_000), 10.2), Some(100.0));
        assert_eq!(of(Arrivals::Poisson, fixed(10_000), 20.0), Some(53.0));
        assert_eq!(of(Arrivals::Fixed, fixed(100), 0.2), None);
        let in_a_window = Totals { calls: 9_000, begun: 9_000, due: 10_000, ..Totals::default() };
        assert_eq!(of(Arrivals::Fixed, in_a_window, 10.0), Some(90.0));
    }
}
