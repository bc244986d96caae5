//! Runs a woven window on sessions of the server: one slice after the other, all sessions at once.
//!
//! Between two slices every session has ended its work, so that no session still works under the last
//! condition when the next one begins. Then, if commits wait for standbys, one commit waits until a
//! synchronous standby has applied everything: what the last condition left to replay is not charged
//! to the next one. See [`super::weave`] for the plan.

use std::sync::Arc;
use std::time::{Duration, Instant};

use benchmath::carry_over::SliceSample;
use pgio_connect::Client;

use super::Totals;
use super::clock::{self, Start};
use super::error::EngineError;
use super::participants::{Progress, WindowEvent, WindowOutcome};
use super::phase::{self, Phase};
use super::pool::{PooledSession, SessionPool, alive};
use super::prepare::Switches;
use super::session::{Order, SessionEvent, SliceOrder, SliceWork, WovenDone, server_seed};
use super::stall::{Pulse, Stall};
use super::stopping::Stopping;
use super::weave::{self, PlannedSlice, WeavePlan, WovenCondition, WovenFailure, WovenOutcome};
use super::window::{slice_length, span};
use crate::pg::replication;
use pgio_results::model::Slice;
use pgio_results::thresholds::{CATCH_UP_SECONDS, GUARD_SPENT};

/// Longest wait for a standby before a slice.
const CATCH_UP: Duration = Duration::from_secs(CATCH_UP_SECONDS);
/// A window ends after this many times the rounds that its duration needs.
const MAX_ROUNDS_FACTOR: usize = 3;
/// How often the server's clock is read again. Two machines may drift apart by half a millisecond a second, and
/// slices that are placed late by more than the lead have a shorter guard.
const READ_CLOCK_EVERY: Duration = Duration::from_secs(2);
/// Seconds from the order of a slice to its start, in which sessions receive the order and switch their settings: at
/// least this, and more for each session.
const LEAD: f64 = 0.001;
const LEAD_PER_SESSION: f64 = 0.000_2;
/// The least number of round trips in this time. Switching takes one, and the order of the work reaches the server
/// half a round trip later.
const LEAD_ROUND_TRIPS: f64 = 3.0;
/// Interval of progress, as in a plain window.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

impl SessionPool {
    /// Runs a woven window and ends the sessions. `listener` as for [`super::Participants::run`].
    pub fn weave(
        mut self,
        admin: &mut Client,
        plan: &WeavePlan,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<WovenOutcome, EngineError> {
        let count = self.sessions.len();
        let mut clock = SliceClock::start(admin, count)?;
        let pulse = Pulse::start();
        listener(admin, WindowEvent::Opened(clock.reading.at));
        let mut woven = Woven::new(plan, clock.reading, count);
        let mut failure = self.run_rounds(admin, plan, &mut clock, &mut woven, listener)?;
        listener(admin, WindowEvent::Closed(woven.ended));
        let stood_still = pulse.longest_gap(woven.opened, woven.ended);
        woven.conditions.iter_mut().for_each(|c| c.outcome.stood_still = stood_still);
        if failure.is_none() {
            // A server that does not answer is reported by what is read of it next.
            let _ = clock.read(admin);
            // Sessions publish their statistics and end.
            (0..count).for_each(|index| self.threads.send_order(index, Order::End));
            failure = self.await_sessions(admin, Duration::ZERO).failure;
        }
        let given_up = failure.as_ref().is_some_and(|failure| failure.given_up);
        let outcome = woven.finish(&self, clock.moved, failure.map(|failure| failure.failure));
        self.threads.close();
        // Without further orders, sessions end by themselves.
        self.threads.join(|_| !given_up);
        Ok(outcome)
    }

    /// Runs rounds of slices until every condition has its duration, or until a session fails.
    fn run_rounds(
        &mut self,
        admin: &mut Client,
        plan: &WeavePlan,
        clock: &mut SliceClock,
        woven: &mut Woven,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Result<Option<Failure>, EngineError> {
        let catch_up = CatchUp::new(admin)?;
        let settings = switches(plan);
        let mut schedule = plan.schedule();
        let mut reported_at = Instant::now();
        loop {
            for slice in schedule.next_round() {
                let is_first = woven.last.is_none();
                if !is_first {
                    woven.not_caught_up += u32::from(!catch_up.wait(admin)?);
                }
                let ends = clock.place(admin, plan.guard(), slice.seconds)?;
                self.order_slice(&settings[slice.condition], ends, is_first);
                let length = span(plan.guard() + slice.seconds);
                let FinishedSlice { done, failure } = self.await_sessions(admin, length);
                if let Some(mut failure) = failure {
                    failure.failure.condition = Some(slice.condition);
                    return Ok(Some(failure));
                }
                let condition = &mut woven.conditions[slice.condition];
                condition.spans.push(clock.counted(ends));
                let late = ends[0] - plan.guard() * (1.0 - GUARD_SPENT.0);
                condition.late_slices += usize::from(done.iter().any(|d| d.began > Some(late)));
                woven.add(slice, done);
                if reported_at.elapsed() >= PROGRESS_EVERY {
                    reported_at = Instant::now();
                    listener(admin, WindowEvent::Progress(woven.progress()));
                }
            }
            if woven.is_complete(plan) {
                return Ok(None);
            }
        }
    }

    /// Gives all sessions the order of a slice; with the first one, each gets its seed.
    fn order_slice(&self, settings: &Arc<Switches>, ends: [f64; 3], is_first: bool) {
        for index in 0..self.sessions.len() {
            let seed = server_seed(self.setup.seed, "session", index as u64);
            let order =
                SliceOrder { settings: Arc::clone(settings), ends, seed: is_first.then_some(seed) };
            self.threads.send_order(index, Order::Slice(order));
        }
    }

    /// Waits until every session has done its slice of this length or has ended.
    fn await_sessions(&mut self, admin: &mut Client, length: Duration) -> FinishedSlice {
        let mut phase = SlicePhase {
            sessions: &mut self.sessions,
            admin,
            stopping: Stopping::default(),
            stall: Stall::new(Instant::now()),
            length,
            done: Vec::new(),
        };
        let error = phase::run(&mut phase, &self.events, &self.setup.stop);
        // Without an error no session was stopped, and nothing was given up.
        let given_up = phase.stopping.has_given_up();
        let failure = error.map(|error| Failure { failure: error.into(), given_up });
        FinishedSlice { done: phase.done, failure }
    }
}

/// What the sessions did after an order.
struct FinishedSlice {
    done: Vec<WovenDone>,
    failure: Option<Failure>,
}

/// What ended a window early.
struct Failure {
    failure: WovenFailure,
    /// The server does not answer, so that threads are not waited for.
    given_up: bool,
}

/// Places slices on the server's clock.
struct SliceClock {
    reading: Start,
    /// The round trip of the reading.
    round_trip: Duration,
    sessions: usize,
    /// Seconds from an order to the start of its slice.
    lead: f64,
    /// The largest move of the server's clock between two readings, in seconds.
    moved: f64,
}

impl SliceClock {
    /// Its first reading is the start of the window, which is as far ahead as a slice's.
    fn start(admin: &mut Client, sessions: usize) -> Result<SliceClock, EngineError> {
        let (round_trip, read) = Start::now(admin)?;
        let lead = lead(round_trip, sessions);
        let at = Instant::now() + span(lead);
        let reading = Start { at, epoch: read.epoch_of(at) };
        Ok(SliceClock { reading, round_trip, sessions, lead, moved: 0.0 })
    }

    /// Reads the server's clock again.
    fn read(&mut self, admin: &mut Client) -> Result<(), EngineError> {
        let (round_trip, now) = Start::now(admin)?;
        let moved = clock::moved((self.round_trip, self.reading), (round_trip, now));
        if moved.abs() > self.moved.abs() {
            self.moved = moved;
        }
        self.lead = lead(round_trip, self.sessions);
        (self.reading, self.round_trip) = (now, round_trip);
        Ok(())
    }

    /// Returns when the guard and both halves end of a slice that is ordered now, in seconds since the epoch
    /// on the server's clock.
    fn place(
        &mut self,
        admin: &mut Client,
        guard: f64,
        seconds: f64,
    ) -> Result<[f64; 3], EngineError> {
        if self.reading.at.elapsed() >= READ_CLOCK_EVERY {
            self.read(admin)?;
        }
        let begins = self.reading.epoch_of(Instant::now()) + self.lead;
        let counted = begins + guard;
        Ok([counted, counted + seconds / 2.0, counted + seconds])
    }

    /// Returns start and end of the counted part of the slice that was placed last, on this machine's clock.
    fn counted(&self, ends: [f64; 3]) -> (Instant, Instant) {
        let [from, _, to] = ends.map(|at| self.reading.at + span(at - self.reading.epoch));
        (from, to)
    }
}

/// Returns the seconds from an order to the start of its slice.
fn lead(round_trip: Duration, sessions: usize) -> f64 {
    LEAD.max(LEAD_ROUND_TRIPS * round_trip.as_secs_f64()) + LEAD_PER_SESSION * sessions as f64
}

/// Returns the settings that sessions switch to for each condition.
fn switches(plan: &WeavePlan) -> Vec<Arc<Switches>> {
    let names = plan.settings();
    plan.conditions.iter().map(|own| Arc::new(switches_of(&names, own))).collect()
}

/// Returns a value, or none, for every name.
fn switches_of(names: &[String], own: &[(String, String)]) -> Switches {
    let value = |name: &String| own.iter().rfind(|(n, _)| n == name).map(|(_, v)| v.clone());
    names.iter().map(|name| (name.clone(), value(name))).collect()
}

/// The wait for standbys between two slices.
struct CatchUp {
    /// Whether commits can wait for a standby.
    is_synchronous: bool,
}

impl CatchUp {
    fn new(admin: &mut Client) -> Result<CatchUp, EngineError> {
        let replication = replication::current(admin)?;
        Ok(CatchUp { is_synchronous: replication.is_required() })
    }

    /// Returns whether the standbys that commits wait for have applied everything.
    fn wait(&self, admin: &mut Client) -> Result<bool, EngineError> {
        if !self.is_synchronous {
            return Ok(true);
        }
        let limit = CATCH_UP.as_millis();
        let begun = Instant::now();
        let sql = format!(
            "BEGIN; SET LOCAL synchronous_commit = remote_apply; \
             SET LOCAL statement_timeout = {limit}; \
             SELECT pg_logical_emit_message(true, 'pgio', ''); COMMIT"
        );
        admin.batch_execute(&sql).map_err(wait_failed)?;
        // The timeout does not make COMMIT fail: it ends the wait with a warning.
        Ok(begun.elapsed() < CATCH_UP)
    }
}

fn wait_failed(source: pgio_connect::Error) -> EngineError {
    EngineError::Postgres { doing: "waiting for standbys between slices", source }
}

/// The sums of a woven window so far.
struct Woven {
    conditions: Vec<WovenCondition>,
    totals: Vec<Vec<Totals>>,
    /// Counted seconds of each session, by condition.
    counted: Vec<Vec<f64>>,
    /// Work of the halves of each slice, by condition.
    halves: Vec<Vec<[Work; 2]>>,
    /// The condition of the last slice.
    last: Option<usize>,
    opened: Instant,
    /// When the last slice ended; until there is one, when the window opened.
    ended: Instant,
    bin: f64,
    progress: Progress,
    not_caught_up: u32,
}

impl Woven {
    fn new(plan: &WeavePlan, start: Start, sessions: usize) -> Woven {
        let conditions = plan.conditions.len();
        let condition = || WovenCondition {
            outcome: WindowOutcome::new(start.epoch),
            spans: Vec::new(),
            slices: Vec::new(),
            slowest: None,
            late_slices: 0,
        };
        Woven {
            conditions: (0..conditions).map(|_| condition()).collect(),
            totals: vec![vec![Totals::default(); sessions]; conditions],
            counted: vec![vec![0.0; sessions]; conditions],
            halves: vec![Vec::new(); conditions],
            last: None,
            opened: start.at,
            ended: start.at,
            bin: slice_length(plan.duration.as_secs_f64()),
            progress: Progress::default(),
            not_caught_up: 0,
        }
    }

    fn add(&mut self, slice: PlannedSlice, done: Vec<WovenDone>) {
        let condition = &mut self.conditions[slice.condition];
        let sessions = done.len().max(1) as f64;
        let mut sum = Totals::default();
        let mut work = [Work::default(); 2];
        let mut sample = SliceSample { previous: self.last, work: [0.0; 2], seconds: [0.0; 2] };
        for WovenDone { index, halves, readings, .. } in done {
            condition.outcome.readings.extend(readings);
            for (half, SliceWork { totals, began, ended }) in halves.into_iter().enumerate() {
                let took = (ended - began).max(0.0);
                work[half].add(&totals);
                sample.seconds[half] += took;
                self.counted[slice.condition][index as usize] += took;
                self.totals[slice.condition][index as usize].merge(&totals);
                sum.merge(&totals);
            }
        }
        self.last = Some(slice.condition);
        condition.slices.push(sample);
        self.halves[slice.condition].push(work);
        let seconds = sample.seconds.iter().sum::<f64>() / sessions;
        self.progress.covered += seconds;
        self.progress.block_visits += sum.block_visits();
        self.progress.blocks_scanned += sum.blocks_scanned();
        self.progress.commits += sum.commits();
        add_to_timeline(&mut condition.outcome.timeline, self.bin, seconds, &sum);
        condition.outcome.totals.merge(&sum);
        self.ended = Instant::now();
    }

    /// Returns whether every condition has its duration or has used up its rounds: a call that takes longer
    /// than a slice leaves nothing of it to count.
    fn is_complete(&self, plan: &WeavePlan) -> bool {
        let least = self.counted.iter().map(|own| mean(own)).fold(f64::INFINITY, f64::min);
        let rounds = self.conditions.iter().map(|c| c.spans.len()).max().unwrap_or(0);
        least >= plan.duration.as_secs_f64() || rounds >= plan.rounds() * MAX_ROUNDS_FACTOR
    }

    fn progress(&mut self) -> Progress {
        self.progress.elapsed = self.opened.elapsed().as_secs_f64();
        self.progress
    }

    fn finish(
        mut self,
        pool: &SessionPool,
        clock_moved: f64,
        failure: Option<WovenFailure>,
    ) -> WovenOutcome {
        let seconds = (self.ended - self.opened).as_secs_f64();
        let cancelled = pool.notices.cancelled_sync_rep();
        let unit = Work::unit(&self.halves);
        for (at, condition) in self.conditions.iter_mut().enumerate() {
            for (sample, halves) in condition.slices.iter_mut().zip(&self.halves[at]) {
                sample.work = halves.map(|work| work.0[unit]);
            }
            let outcome = &mut condition.outcome;
            outcome.seconds = mean(&self.counted[at]);
            outcome.cancelled_sync_rep = cancelled;
            outcome.clock_moved = clock_moved;
            let sessions = self.counted[at].iter().zip(&self.totals[at]);
            condition.slowest =
                weave::slowest_call(sessions.map(|(seconds, own)| (*seconds, own.ended_calls())));
            let totals = pool.sessions.iter().zip(&self.totals[at]);
            outcome.sessions = totals
                .map(|(member, own)| own.to_session_totals(member.pid, &member.table))
                .collect();
        }
        let (conditions, not_caught_up) = (self.conditions, self.not_caught_up);
        WovenOutcome { conditions, seconds, not_caught_up, failure }
    }
}

fn mean(seconds: &[f64]) -> f64 {
    seconds.iter().sum::<f64>() / seconds.len().max(1) as f64
}

/// Work in every unit that may count it: block visits, scanned blocks, commits.
#[derive(Debug, Clone, Copy, Default)]
struct Work([f64; 3]);

impl Work {
    fn add(&mut self, totals: &Totals) {
        let counts = [totals.block_visits(), totals.blocks_scanned(), totals.commits()];
        self.0.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count as f64);
    }

    /// Returns the first unit in which anything was done, one for all slices of a window: of a few calls, often
    /// none commits.
    fn unit(halves: &[Vec<[Work; 2]>]) -> usize {
        let all = halves.iter().flatten().flatten();
        (0..2).find(|unit| all.clone().any(|work| work.0[*unit] > 0.0)).unwrap_or(2)
    }
}

/// Adds a slice to a timeline of bins that are as long as the slices of a plain window, so that the
/// spread of short slices does not look like a stall.
fn add_to_timeline(timeline: &mut Vec<Slice>, bin: f64, seconds: f64, work: &Totals) {
    let at = timeline.last().map_or(0.0, |last| last.at) + seconds;
    match timeline.last_mut() {
        Some(last) if last.seconds + seconds / 2.0 < bin => last.seconds += seconds,
        _ => timeline.push(Slice { seconds, ..Slice::default() }),
    }
    if let Some(last) = timeline.last_mut() {
        last.at = at;
        last.block_visits += work.block_visits();
        last.rows_updated += work.rows_updated;
        last.commits += work.commits();
    }
}

/// All sessions during one slice, or after the last one.
struct SlicePhase<'a> {
    sessions: &'a mut [PooledSession],
    admin: &'a mut Client,
    stopping: Stopping,
    stall: Stall,
    /// The length of the slice.
    length: Duration,
    done: Vec<WovenDone>,
}

impl Phase for SlicePhase<'_> {
    type Event = SessionEvent;

    fn take(&mut self, event: SessionEvent, _: Instant) -> Result<(), EngineError> {
        match event {
            SessionEvent::Woven(done) => self.done.push(*done),
            SessionEvent::Failed { index, error } => {
                self.sessions[index as usize].done = true;
                return Err(error);
            }
            SessionEvent::Done { index } => self.sessions[index as usize].done = true,
            SessionEvent::Connected { .. }
            | SessionEvent::Ready { .. }
            | SessionEvent::Slice(_) => {}
        }
        Ok(())
    }

    /// After an error, sessions end their slice, and the caller dismisses them.
    fn is_unfinished(&self, _ending: bool) -> bool {
        let has_answered = |index: usize| self.done.iter().any(|d| d.index as usize == index);
        let mut sessions = self.sessions.iter().enumerate();
        sessions.any(|(index, member)| !member.done && !has_answered(index))
            && !self.stopping.has_given_up()
    }

    fn overdue(&mut self, now: Instant) -> Option<EngineError> {
        let over = self.stall.quiet_time(now).saturating_sub(self.length);
        let pids = || -> Vec<i32> { alive(self.sessions).iter().map(|m| m.pid).collect() };
        self.stall.overdue_error(self.admin, now, over, pids, "did not end with their slice")
    }

    fn end(&mut self, urgent: bool, now: Instant) {
        self.stopping.advance(self.admin, &alive(self.sessions), urgent, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_have_time_to_travel() {
        let lead = |ms| lead(Duration::from_millis(ms), 4);
        assert!((lead(0) - 0.0018).abs() < 1e-9, "{}", lead(0));
        // Over a network, the switch and half of the next round trip come before the work.
        assert!(lead(20) >= 1.5 * 0.020, "{}", lead(20));
    }

    #[test]
    fn woven_slices_are_counted_in_a_unit_common_to_all() {
        let [reads, updates, scans, commits] =
            [[9.0, 0.0, 0.0], [10.0, 0.0, 1.0], [0.0, 64.0, 0.0], [0.0, 0.0, 5.0]].map(Work);
        let unit = |halves| Work::unit(&[Vec::new(), vec![halves]]);
        assert_eq!(unit([reads, updates]), 0, "not the commits of some");
        assert_eq!(unit([scans, scans]), 1);
        assert_eq!(unit([Work::default(), commits]), 2);
        assert_eq!(Work::unit(&[]), 2);
    }
}
