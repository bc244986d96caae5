//! The clock by which waits are measured, and a fake one under which a test waits for nothing.
//!
//! Outside the tests of this crate a [`Clock`] is empty and its functions are the standard library.
//! [`Clock::fake`] stands still until somebody waits: then it has gone on by that time at once. It suits code
//! that waits on one thread; what other threads do meanwhile takes no time.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::stop::Stop;

/// How often a wait looks at the stop flag.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Cheap to clone; clones of a fake clock show the same time.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    #[cfg(test)]
    fake: Option<fake::Fake>,
}

impl Clock {
    /// Returns the present moment.
    #[inline]
    pub fn now(&self) -> Instant {
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            return fake.now();
        }
        Instant::now()
    }

    pub fn sleep(&self, length: Duration) {
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            fake.advance(length);
            return;
        }
        thread::sleep(length);
    }

    pub fn wait_until(&self, at: Instant) {
        self.sleep(at.saturating_duration_since(self.now()));
    }

    /// Sleeps, but ends soon after a request to stop; returns whether there was none.
    pub fn sleep_unless_stopped(&self, length: Duration, stop: &Stop) -> bool {
        let until = self.now() + length;
        while !stop.requested() {
            let left = until.saturating_duration_since(self.now());
            if left.is_zero() {
                return true;
            }
            self.sleep(left.min(STOP_INTERVAL));
        }
        false
    }

    /// Like [`Receiver::recv_timeout`].
    pub fn recv_timeout<T>(
        &self,
        events: &Receiver<T>,
        timeout: Duration,
    ) -> Result<T, RecvTimeoutError> {
        #[cfg(test)]
        if let Some(fake) = &self.fake {
            return fake.recv_timeout(events, timeout);
        }
        events.recv_timeout(timeout)
    }
}

/// Returns the seconds from one moment to another, which may be earlier.
pub fn seconds_between(from: Instant, to: Instant) -> f64 {
    match to.checked_duration_since(from) {
        Some(after) => after.as_secs_f64(),
        None => -(from - to).as_secs_f64(),
    }
}

#[cfg(test)]
mod fake {
    use std::sync::mpsc::TryRecvError;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Debug, Clone)]
    pub(super) struct Fake(Arc<Mutex<Instant>>);

    impl Clock {
        /// Returns a clock that goes on only when somebody waits by it or advances it.
        pub(crate) fn fake() -> Clock {
            Clock { fake: Some(Fake(Arc::new(Mutex::new(Instant::now())))) }
        }
    }

    impl Fake {
        pub(super) fn now(&self) -> Instant {
            *self.0.lock().unwrap()
        }

        pub(super) fn advance(&self, by: Duration) {
            *self.0.lock().unwrap() += by;
        }

        pub(super) fn recv_timeout<T>(
            &self,
            events: &Receiver<T>,
            timeout: Duration,
        ) -> Result<T, RecvTimeoutError> {
            events.try_recv().map_err(|error| match error {
                TryRecvError::Empty => {
                    self.advance(timeout);
                    RecvTimeoutError::Timeout
                }
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_fake_clock_goes_on_by_what_is_waited_for() {
        let (clock, begun) = (Clock::fake(), Instant::now());
        let start = clock.now();
        let passed = || clock.now() - start;
        clock.sleep(Duration::from_secs(3600));
        clock.clone().wait_until(start + Duration::from_secs(7200));
        clock.wait_until(start);
        assert_eq!(passed(), Duration::from_secs(7200));
        let (sender, events) = mpsc::channel();
        sender.send(1).unwrap();
        let day = Duration::from_secs(86_400);
        assert_eq!(clock.recv_timeout(&events, day), Ok(1));
        assert_eq!(clock.recv_timeout(&events, day), Err(RecvTimeoutError::Timeout));
        assert_eq!(passed(), Duration::from_secs(7200) + day);
        drop(sender);
        assert_eq!(clock.recv_timeout(&events, day), Err(RecvTimeoutError::Disconnected));
        assert!(begun.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_stop_ends_a_sleep() {
        let (clock, stop) = (Clock::fake(), Stop::new());
        let start = clock.now();
        assert!(clock.sleep_unless_stopped(Duration::from_millis(120), &stop));
        assert_eq!(clock.now() - start, Duration::from_millis(120));
        stop.request();
        assert!(!clock.sleep_unless_stopped(Duration::from_secs(60), &stop));
        assert_eq!(clock.now() - start, Duration::from_millis(120));
    }
}
