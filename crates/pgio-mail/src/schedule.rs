//! The schedule that all sessions of an open loop share: which message is due next, and who starts it.
//!
//! A session takes a message when it is due, not before: a session that reserved one might be delivering
//! another when it falls due, while others are idle. Of the idle sessions one watches the clock, and the
//! others wait for it. If all of them woke up for every message, they would cost more than the messages.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::wire::{Halt, POLL_INTERVAL};

/// The messages of one span.
#[derive(Debug, Default)]
pub struct Schedule {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    taken: u64,
    /// An idle session watches the clock.
    is_watched: bool,
}

/// What an idle session does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It starts the message that was due at this moment.
    Start(Instant),
    /// It repeats a message of its own.
    Retry,
    /// No further message is due in this span.
    Over,
    Stopped,
}

impl Schedule {
    /// A schedule of which this many messages are taken already.
    pub fn with_taken(taken: u64) -> Schedule {
        Schedule { state: Mutex::new(State { taken, is_watched: false }), ..Schedule::default() }
    }

    /// Returns the number of messages that sessions of this process have started.
    pub fn taken(&self) -> u64 {
        self.lock().taken
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Both values are valid even if another thread panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next message and takes it, unless the session's own retry is due before. `intended` returns when
    /// a message is due, none from `end` on.
    pub(super) fn take(
        &self,
        (intended, end): (impl Fn(u64) -> Instant, Instant),
        retry: Option<Instant>,
        halt: &Halt,
    ) -> Turn {
        let mut state = self.lock();
        let turn = loop {
            let now = Instant::now();
            let due = intended(state.taken);
            if halt.requested() {
                break Turn::Stopped;
            }
            if retry.is_some_and(|retry| retry <= now) {
                break Turn::Retry;
            }
            if due >= end {
                break Turn::Over;
            }
            // Also after the end: this session was free when the message fell due.
            if due <= now {
                state.taken += 1;
                break Turn::Start(due);
            }
            let watches = !state.is_watched;
            state.is_watched = true;
            let own = if watches { due } else { now + POLL_INTERVAL };
            let until = retry.map_or(own, |retry| own.min(retry)).saturating_duration_since(now);
            state = self.wait(state, until.min(POLL_INTERVAL));
            if watches {
                state.is_watched = false;
            }
        };
        if !state.is_watched {
            self.changed.notify_one();
        }
        turn
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, most);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_message_is_started_once_and_in_time() {
        let (schedule, start) = (Schedule::default(), Instant::now());
        let intended = |number: u64| start + SECOND.mul_f64(number as f64 / 50.0);
        let session = || {
            let mut lags = Vec::new();
            let take = || schedule.take((intended, start + SECOND), None, &Halt::default());
            while let Turn::Start(due) = take() {
                lags.push(due.elapsed());
            }
            lags
        };
        let mut lags: Vec<Duration> = thread::scope(|scope| {
            let sessions: Vec<_> = (0..4).map(|_| scope.spawn(session)).collect();
            sessions.into_iter().flat_map(|session| session.join().unwrap()).collect()
        });
        assert_eq!((lags.len(), schedule.taken()), (50, 50));
        lags.sort_unstable();
        assert!(lags[25] < Duration::from_millis(20), "{:?}", lags[25]);
    }

    #[test]
    fn a_session_leaves_for_its_retry_at_the_end_and_when_it_is_stopped() {
        let (schedule, start) = (Schedule::default(), Instant::now());
        let intended = |number: u64| start + SECOND * number as u32;
        let take = |retry, halt: &Halt| schedule.take((intended, start + SECOND), retry, halt);
        assert_eq!(take(None, &Halt::default()), Turn::Start(start));
        let retry = start + Duration::from_millis(50);
        let until_two =
            schedule.take((intended, start + 2 * SECOND), Some(retry), &Halt::default());
        assert_eq!(until_two, Turn::Retry);
        assert!(Instant::now() >= retry);
        assert_eq!(take(None, &Halt::default()), Turn::Over, "the next is due at the end");
        assert_eq!(take(None, &Halt::new(|| true)), Turn::Stopped);
        assert_eq!(schedule.taken(), 1);
    }
}
