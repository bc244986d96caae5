//! An open window: its plan, its clock, its counts, and the end of sessions that hang.
//!
//! [`WindowPlan`] divides a window into slices of about a second, and a fixed amount of work into shares. Every
//! kind of participant opens its window here and adds the counts of its own events; the loop in
//! [`super::phase`] limits the wait. All participants start at one moment of the server's clock.
//! Between the readings before and after the window, the caller receives only [`WindowEvent`]s, so that
//! the window contains nothing but the work.

use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::Totals;
use super::clock::{Start, wait_until};
use super::error::EngineError;
use super::participants::{Progress, WindowEvent, WindowOutcome};
use super::phase::TICK;
use super::stall::{self, Pulse, Stall};
use super::stopping::{Alive, Stopping};
use crate::config::resolve::Extent;
use pgio_results::model::Slice;

/// The caller's callback for events; the connection is free for reading evidence.
pub(crate) type Listener<'a> = &'a mut dyn FnMut(&mut Client, WindowEvent);

/// Converts seconds; a clock that was set back gives zero.
pub(crate) fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

pub(crate) struct OpenWindow<'a> {
    admin: &'a mut Client,
    listener: Listener<'a>,
    pub(crate) start: Start,
    pub(super) plan: WindowPlan,
    pub(crate) outcome: WindowOutcome,
    pub(crate) progress: Progress,
    stall: Stall,
    /// Until the window closes.
    pulse: Option<Pulse>,
    stopping: Stopping,
    next_tick: Instant,
}

impl<'a> OpenWindow<'a> {
    /// Waits for the start time, which the participants already have, and reports it.
    pub(crate) fn open(
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
    pub(crate) fn note_progress(&mut self, now: Instant) {
        self.stall.note_event(now);
    }

    /// Reports the progress, at most twenty times a second.
    pub(crate) fn report_progress(&mut self, now: Instant) {
        if self.next_tick <= now {
            self.progress.elapsed = (now - self.start.at).as_secs_f64();
            (self.listener)(self.admin, WindowEvent::Progress(self.progress));
            // The listener may have taken a while.
            self.next_tick = Instant::now() + TICK;
        }
    }

    /// Reports the server processes that serve programs.
    pub(crate) fn report_serving(&mut self, pids: Vec<i32>) {
        (self.listener)(self.admin, WindowEvent::Serving(pids));
    }

    /// Returns the admin session, which is free while no event is reported.
    pub(crate) fn admin(&mut self) -> &mut Client {
        self.admin
    }

    /// Reports that the last operation ended at this moment.
    pub(crate) fn close(&mut self, at: Instant) {
        (self.listener)(self.admin, WindowEvent::Closed(at));
        if let Some(pulse) = self.pulse.take() {
            self.outcome.stood_still = pulse.longest_gap(self.start.at, at);
        }
        // The listener may have waited for other drivers.
        self.note_progress(Instant::now());
    }

    /// Returns the time since the last progress.
    pub(crate) fn quiet_time(&self, now: Instant) -> Duration {
        self.stall.quiet_time(now)
    }

    /// Returns the error of sessions that are no longer waited for: after the window's end, if none of
    /// them works, or, for a fixed number of transactions, in a standstill.
    pub(super) fn stuck_error(
        &mut self,
        now: Instant,
        pids: impl Fn() -> Vec<i32>,
    ) -> Option<EngineError> {
        if let Some(length) = self.plan.length() {
            let over = (now - self.start.at).saturating_sub(length);
            let failure = "did not end with the window";
            return self.stall.overdue_error(self.admin, now, over, pids, failure);
        }
        let look = || stall::standstill(self.admin, &pids());
        let stuck = self.stall.is_stuck(now, look);
        stuck.then(|| Stopping::stuck_error(self.admin, &pids(), stall::FAILURE))
    }

    /// Takes the next step to stop sessions that have not ended.
    pub(super) fn stop(&mut self, alive: &[Alive<'_>], urgent: bool, now: Instant) {
        self.stopping.advance(self.admin, alive, urgent, now);
    }

    /// Returns the outcome, with a timeline that ends with the window.
    pub(crate) fn into_outcome(mut self) -> WindowOutcome {
        end_timeline(&mut self.outcome.timeline, self.outcome.seconds);
        self.outcome
    }

    /// Returns whether the server does not answer, so that its sessions are not waited for.
    pub(super) fn has_given_up(&self) -> bool {
        self.stopping.has_given_up()
    }
}

/// Time after the window's end before sessions that do not work count as stuck: longer than a
/// checkpoint's fsync delays a commit on a slow device.
pub(crate) const GRACE: Duration = Duration::from_secs(20);

/// Minimum seconds at one table, if a session has several. Planning a block for a table that is new to
/// the session takes the server two milliseconds, and many times as long with many sessions.
pub const SHORTEST_PASS: f64 = 0.25;

/// The window in slices of about a second; short windows have four slices. Sessions with several tables
/// divide each slice into passes, one at each table.
#[derive(Debug)]
pub(crate) struct WindowPlan {
    /// Infinite if a number of transactions is given.
    pub seconds: f64,
    pub slice: f64,
    /// Passes per slice.
    pub passes: usize,
    transactions: Option<u64>,
    pub participants: u64,
}

impl WindowPlan {
    /// `round` is the number of passes in which a session visits all its tables once, if the window is
    /// long enough.
    pub(crate) fn new(extent: Extent, participants: u64, round: u32) -> WindowPlan {
        match extent {
            Extent::Time(window) => {
                let seconds = window.as_secs_f64();
                let slice = slice_length(seconds);
                let passes = passes_in(slice, seconds, round);
                WindowPlan { seconds, slice, passes, transactions: None, participants }
            }
            Extent::Transactions(n) => {
                let passes = passes_in(1.0, 1.0, round);
                let seconds = f64::INFINITY;
                WindowPlan { seconds, slice: 1.0, passes, transactions: Some(n), participants }
            }
            // Dividing the total among the sessions gives the number per session.
            Extent::Calls(n) => {
                let all = Extent::Transactions(n.saturating_mul(participants));
                WindowPlan::new(all, participants, round)
            }
        }
    }

    /// Returns a session's share of a fixed number of transactions or calls.
    pub(super) fn share(&self, index: u64) -> Option<u64> {
        self.transactions.map(|n| n / self.participants + u64::from(index < n % self.participants))
    }

    /// Returns the window's length, if it has one.
    pub(super) fn length(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.seconds).ok()
    }

    /// Returns the timeline's slice for a session's slice `number`, and creates it if it is missing.
    pub(super) fn slice_of<'a>(
        &self,
        timeline: &'a mut Vec<Slice>,
        number: usize,
    ) -> &'a mut Slice {
        let number = number / self.passes;
        while timeline.len() <= number {
            let at = self.slice * (timeline.len() + 1) as f64;
            timeline.push(Slice { at, seconds: self.slice, ..Slice::default() });
        }
        &mut timeline[number]
    }
}

/// Ends the last slice with the window, whose last operation may end later than planned or, with a fixed number of
/// transactions, in mid slice: a stall at the end would otherwise be no part of it, and a remainder would look like
/// one.
pub(super) fn end_timeline(timeline: &mut [Slice], seconds: f64) {
    let Some(last) = timeline.last_mut() else { return };
    let begins = last.at - last.seconds;
    if seconds > begins {
        (last.at, last.seconds) = (seconds, seconds - begins);
    }
}

/// Returns the length of a slice: about a second, at most a quarter of the window.
pub(super) fn slice_length(seconds: f64) -> f64 {
    let slices = seconds.round().max(4.0);
    seconds / slices
}

fn passes_in(slice: f64, seconds: f64, round: u32) -> usize {
    let pass = (seconds / f64::from(round)).max(SHORTEST_PASS);
    (slice / pass).ceil().max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_slice_ends_with_the_window() {
        let slice = |n: u32| Slice { at: f64::from(n), seconds: 1.0, ..Slice::default() };
        let ended = |seconds| {
            let mut timeline = vec![slice(1), slice(2), slice(3)];
            end_timeline(&mut timeline, seconds);
            (timeline[1].seconds, timeline[2].at, timeline[2].seconds)
        };
        assert_eq!(ended(2.25), (1.0, 2.25, 0.25), "of a fixed number of transactions");
        assert_eq!(ended(7.5), (1.0, 7.5, 5.5), "after a stall");
        // Nothing ended in it.
        assert_eq!(ended(1.5), (1.0, 3.0, 1.0));
        end_timeline(&mut [], 1.0);
    }

    #[test]
    fn windows_are_cut_into_about_seconds() {
        assert_eq!(slice_length(120.0), 1.0);
        assert_eq!(slice_length(1.0), 0.25);
        assert_eq!(slice_length(2.5), 0.625);
    }

    #[test]
    fn passes_in_a_slice_suffice_to_visit_all_tables_in_the_window() {
        assert_eq!(passes_in(1.0, 60.0, 1), 1);
        assert_eq!(passes_in(1.0, 60.0, 128), 3);
        assert_eq!(passes_in(1.0, 60.0, 64), 2);
        // With any number of tables, a pass has its minimum length.
        assert_eq!(passes_in(1.0, 10.0, 4096), 4);
        assert_eq!(passes_in(1.0, 1.0, 2), 2);
    }

    #[test]
    fn a_fixed_number_is_shared_out_completely() {
        let plan = WindowPlan::new(Extent::Transactions(10), 4, 1);
        let shares: Vec<u64> = (0..4).filter_map(|i| plan.share(i)).collect();
        assert_eq!(shares, [3, 3, 2, 2]);
        let each = WindowPlan::new(Extent::Calls(10), 4, 1);
        assert!((0..4).all(|i| each.share(i) == Some(10)));
        assert_eq!(plan.length(), None);
        let timed = WindowPlan::new(Extent::Time(GRACE), 4, 1);
        assert_eq!(timed.length(), Some(GRACE));
    }
}
