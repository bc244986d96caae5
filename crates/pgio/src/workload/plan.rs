//! How a window is divided: in slices of about a second, in shares of a fixed amount of work.
//!
//! Arithmetic alone; [`super::window`] has the clock.

use std::time::Duration;

use crate::config::resolve::Extent;
use crate::results::model::Slice;

/// How long a session may go on after the window's end before it counts as stuck: longer than a
/// checkpoint's fsync holds up a commit on a slow device, shorter than anyone's patience.
pub(super) const GRACE: Duration = Duration::from_secs(20);

/// Seconds at one table, where a session has several. A block that is planned anew, on a table that its
/// session has not seen, takes the server two milliseconds, many times as long where sessions crowd.
pub const SHORTEST_TURN: f64 = 0.25;

/// The window in slices of about a second; short windows have four. Sessions that go round several
/// tables cut each into turns.
#[derive(Debug)]
pub(super) struct WindowPlan {
    /// Infinite where a number of transactions is asked for.
    pub seconds: f64,
    pub slice: f64,
    /// In a slice.
    pub turns: usize,
    transactions: Option<u64>,
    pub participants: u64,
}

impl WindowPlan {
    /// `round`: turns in which a session has been at all its tables, if the window lets it.
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
            // Shared out again, it is the number of each.
            Extent::Calls(n) => {
                let all = Extent::Transactions(n.saturating_mul(participants));
                WindowPlan::new(all, participants, round)
            }
        }
    }

    /// A session's part of a fixed number of transactions or calls.
    pub(super) fn share(&self, index: u64) -> Option<u64> {
        self.transactions.map(|n| n / self.participants + u64::from(index < n % self.participants))
    }

    /// How long to wait for the last session, where that is known.
    pub(super) fn patience(&self) -> Option<Duration> {
        let window = Duration::try_from_secs_f64(self.seconds).ok()?;
        Some(window.saturating_add(GRACE))
    }

    /// The slice of the timeline that a session's slice `number` belongs to, made where it is new.
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

fn slice_length(seconds: f64) -> f64 {
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
    fn windows_are_cut_into_about_seconds() {
        assert_eq!(slice_length(120.0), 1.0);
        assert_eq!(slice_length(1.0), 0.25);
        assert_eq!(slice_length(2.5), 0.625);
    }

    #[test]
    fn a_slice_has_as_many_turns_as_a_round_of_the_window_needs() {
        assert_eq!(turns_in(1.0, 60.0, 1), 1);
        assert_eq!(turns_in(1.0, 60.0, 128), 3);
        assert_eq!(turns_in(1.0, 60.0, 64), 2);
        // However many tables, a turn is no shorter than makes sense.
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
        assert_eq!(plan.patience(), None);
        let timed = WindowPlan::new(Extent::Time(GRACE), 4, 1);
        assert_eq!(timed.patience(), Some(2 * GRACE));
    }
}
