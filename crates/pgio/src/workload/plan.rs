//! Divides a window into slices of about a second, and a fixed amount of work into shares.
//!
//! Pure arithmetic; [`super::window`] has the clock.

use std::time::Duration;

use crate::config::resolve::Extent;
use pgio_results::model::Slice;

/// Time after the window's end before sessions that do not work count as stuck: longer than a
/// checkpoint's fsync delays a commit on a slow device.
pub(super) const GRACE: Duration = Duration::from_secs(20);

/// Minimum seconds at one table, if a session has several. Planning a block for a table that is new to
/// the session takes the server two milliseconds, and many times as long with many sessions.
pub const SHORTEST_TURN: f64 = 0.25;

/// The window in slices of about a second; short windows have four slices. Sessions with several tables
/// divide each slice into turns.
#[derive(Debug)]
pub(super) struct WindowPlan {
    /// Infinite if a number of transactions is given.
    pub seconds: f64,
    pub slice: f64,
    /// Turns per slice.
    pub turns: usize,
    transactions: Option<u64>,
    pub participants: u64,
}

impl WindowPlan {
    /// `round` is the number of turns in which a session visits all its tables once, if the window is
    /// long enough.
    pub(super) fn new(extent: Extent, participants: u64, round: u32) -> WindowPlan {
        match extent {
            Extent::Time(window) => {
                let seconds = window.as_secs_f64();
                let slice = slice_length(seconds);
                let turns = turns_in(slice, seconds, round);
                WindowPlan { seconds, slice, turns, transactions: None, participants }
            }
            Extent::Transactions(n) => {
                let turns = turns_in(1.0, 1.0, round);
                let seconds = f64::INFINITY;
                WindowPlan { seconds, slice: 1.0, turns, transactions: Some(n), participants }
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
        let number = number / self.turns;
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

fn turns_in(slice: f64, seconds: f64, round: u32) -> usize {
    let turn = (seconds / f64::from(round)).max(SHORTEST_TURN);
    (slice / turn).ceil().max(1.0) as usize
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
    fn turns_in_a_slice_suffice_to_visit_all_tables_in_the_window() {
        assert_eq!(turns_in(1.0, 60.0, 1), 1);
        assert_eq!(turns_in(1.0, 60.0, 128), 3);
        assert_eq!(turns_in(1.0, 60.0, 64), 2);
        // With any number of tables, a turn has its minimum length.
        assert_eq!(turns_in(1.0, 10.0, 4096), 4);
        assert_eq!(turns_in(1.0, 1.0, 2), 2);
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
