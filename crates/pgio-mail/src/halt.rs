//! The order to stop, shared by all sessions of a trial.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a wait checks for the order.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Stops all sessions: on the caller's request, or because one of them failed. Clones share the order.
#[derive(Clone)]
pub struct Halt {
    caller_stops: Arc<dyn Fn() -> bool + Send + Sync>,
    failed: Arc<AtomicBool>,
}

impl Halt {
    /// `caller_stops` returns whether the caller wants to stop.
    pub fn new(caller_stops: impl Fn() -> bool + Send + Sync + 'static) -> Halt {
        Halt { caller_stops: Arc::new(caller_stops), failed: Arc::default() }
    }

    pub fn requested(&self) -> bool {
        self.failed.load(Ordering::SeqCst) || (self.caller_stops)()
    }

    /// Stops the sessions, whatever the caller wants.
    pub fn request(&self) {
        self.failed.store(true, Ordering::SeqCst);
    }

    /// Takes [`Halt::request`] back, once all sessions have stopped.
    pub fn withdraw(&self) {
        self.failed.store(false, Ordering::SeqCst);
    }

    /// Sleeps; returns false if it was stopped.
    pub(crate) fn sleep_until(&self, moment: Instant) -> bool {
        loop {
            if self.requested() {
                return false;
            }
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(POLL_INTERVAL));
        }
    }
}

impl Default for Halt {
    fn default() -> Halt {
        Halt::new(|| false)
    }
}

impl fmt::Debug for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Halt").field("requested", &self.requested()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_and_a_failed_session_stop_all_clones() {
        let asked = Arc::new(AtomicBool::new(false));
        let caller = Arc::clone(&asked);
        let halt = Halt::new(move || caller.load(Ordering::SeqCst));
        assert!(halt.sleep_until(Instant::now()));
        asked.store(true, Ordering::SeqCst);
        assert!(halt.requested() && !halt.sleep_until(Instant::now()));
        let [halt, other] = [(); 2].map(|()| halt.clone());
        asked.store(false, Ordering::SeqCst);
        other.request();
        assert!(halt.requested());
    }
}
