//! An open window: its clock, its counts, and the end of sessions that hang.
//!
//! Every kind of participant opens its window here and adds the counts of its own events; the loop in
//! [`super::phase`] limits the wait. All participants start at one moment of the server's clock.
//! Between the readings before and after the window, the caller receives only [`WindowEvent`]s, so that
//! the window contains nothing but the work.

use std::time::{Duration, Instant};

use postgres::Client;

use super::Totals;
use super::clock::{Start, wait_until};
use super::error::EngineError;
use super::outcome::{Progress, WindowEvent, WindowOutcome};
use super::phase::TICK;
use super::plan::{WindowPlan, end_timeline};
use super::pulse::Pulse;
use super::stall::{self, Stall};
use super::stopping::{Alive, Stopping};

/// The caller's callback for events; the connection is free for reading evidence.
pub(super) type Listener<'a> = &'a mut dyn FnMut(&mut Client, WindowEvent);

/// Converts seconds; a clock that was set back gives zero.
pub(super) fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

pub(super) struct OpenWindow<'a> {
    admin: &'a mut Client,
    listener: Listener<'a>,
    pub(super) start: Start,
    pub(super) plan: WindowPlan,
    pub(super) outcome: WindowOutcome,
    pub(super) progress: Progress,
    stall: Stall,
    /// Until the window closes.
    pulse: Option<Pulse>,
    stopping: Stopping,
    next_tick: Instant,
}

impl<'a> OpenWindow<'a> {
    /// Waits for the start time, which the participants already have, and reports it.
    pub(super) fn open(
        admin: &'a mut Client,
        start: Start,
        plan: WindowPlan,
        listener: Listener<'a>,
    ) -> OpenWindow<'a> {
        let pulse = Some(Pulse::start());
        wait_until(start.at);
        listener(admin, WindowEvent::Opened(start.at));
        OpenWindow {
            admin,
            listener,
            start,
            plan,
            outcome: WindowOutcome::new(start.epoch),
            progress: Progress::default(),
            stall: Stall::new(start.at),
            pulse,
            stopping: Stopping::default(),
            next_tick: Instant::now(),
        }
    }

    /// Adds the work of one or more sessions in their slice `number` to the timeline and the progress.
    pub(super) fn add_slice(&mut self, number: usize, totals: &Totals) {
        self.progress.block_visits += totals.block_visits();
        self.progress.blocks_scanned += totals.blocks_scanned();
        self.progress.commits += totals.commits();
        let slice = self.plan.slice_of(&mut self.outcome.timeline, number);
        slice.block_visits += totals.block_visits();
        slice.rows_updated += totals.rows_updated;
        slice.commits += totals.commits();
    }

    /// Records progress: the window is not stuck.
    pub(super) fn note_progress(&mut self) {
        self.stall.note_event(Instant::now());
    }

    /// Reports the progress, at most twenty times a second.
    pub(super) fn report_progress(&mut self) {
        if self.next_tick <= Instant::now() {
            self.progress.elapsed = self.start.at.elapsed().as_secs_f64();
            (self.listener)(self.admin, WindowEvent::Progress(self.progress));
            self.next_tick = Instant::now() + TICK;
        }
    }

    /// Reports the server processes that serve programs.
    pub(super) fn report_serving(&mut self, pids: Vec<i32>) {
        (self.listener)(self.admin, WindowEvent::Serving(pids));
    }

    /// Returns the admin session, which is free while no event is reported.
    pub(super) fn admin(&mut self) -> &mut Client {
        self.admin
    }

    /// Reports that the last operation ended at this moment.
    pub(super) fn close(&mut self, at: Instant) {
        (self.listener)(self.admin, WindowEvent::Closed(at));
        if let Some(pulse) = self.pulse.take() {
            self.outcome.stood_still = pulse.longest_gap(self.start.at, at);
        }
        // The listener may have waited for other drivers.
        self.note_progress();
    }

    /// Returns the time since the last progress.
    pub(super) fn quiet_time(&self) -> Duration {
        self.stall.quiet_time()
    }

    /// Returns the error of sessions that are no longer waited for: after the window's end, if none of
    /// them works, or, for a fixed number of transactions, in a standstill.
    pub(super) fn stuck_error(&mut self, pids: impl Fn() -> Vec<i32>) -> Option<EngineError> {
        if let Some(length) = self.plan.length() {
            let over = self.start.at.elapsed().saturating_sub(length);
            return self.stall.overdue_error(self.admin, over, pids, "did not end with the window");
        }
        let look = || stall::standstill(self.admin, &pids());
        let stuck = self.stall.is_stuck(Instant::now(), look);
        stuck.then(|| Stopping::stuck_error(self.admin, &pids(), stall::FAILURE))
    }

    /// Takes the next step to stop sessions that have not ended.
    pub(super) fn stop(&mut self, alive: &[Alive<'_>], urgent: bool) {
        self.stopping.advance(self.admin, alive, urgent);
    }

    /// Returns the outcome, with a timeline that ends with the window.
    pub(super) fn into_outcome(mut self) -> WindowOutcome {
        end_timeline(&mut self.outcome.timeline, self.outcome.seconds);
        self.outcome
    }

    /// Returns whether the server does not answer, so that its sessions are not waited for.
    pub(super) fn has_given_up(&self) -> bool {
        self.stopping.has_given_up()
    }
}
