//! The flag that stops the program: set by Ctrl-C, a failed session or a test, and shared by all threads.
//!
//! Waits for a server end soon after the first request, except during restoration, which continues
//! until the second request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Cheap to clone; all clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    requests: AtomicU8,
    restoring: AtomicUsize,
    /// Requests there count here too.
    parent: Option<Stop>,
}

/// A guard: while it exists, the program is restoring something.
#[derive(Debug)]
pub struct Restoring(Arc<State>);

impl Stop {
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Returns a flag for a part of the work: it is set by its own requests and by requests to `self`.
    pub fn child(&self) -> Stop {
        Stop(Arc::new(State { parent: Some(self.clone()), ..State::default() }))
    }

    /// Requests a stop. The first request stops, undoes changes and saves complete data; the second exits,
    /// and changes that are not undone stay in the journal.
    pub fn request(&self) {
        // Wraps only after 256 requests, which does not happen in practice.
        self.0.requests.fetch_add(1, Ordering::SeqCst);
    }

    pub fn requested(&self) -> bool {
        self.0.requests.load(Ordering::SeqCst) > 0
            || self.0.parent.as_ref().is_some_and(Stop::requested)
    }

    pub fn urgent(&self) -> bool {
        self.0.requests.load(Ordering::SeqCst) > 1
            || self.0.parent.as_ref().is_some_and(Stop::urgent)
    }

    /// Marks the start of a restoration, which lasts until the guard is dropped.
    pub fn restoring(&self) -> Restoring {
        self.0.restoring.fetch_add(1, Ordering::SeqCst);
        Restoring(self.0.clone())
    }

    pub fn is_restoring(&self) -> bool {
        self.0.restoring.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Restoring {
    fn drop(&mut self) {
        self.0.restoring.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_stops_with_its_parent_but_not_the_parent_with_it() {
        let whole = Stop::new();
        let (part, other) = (whole.child(), whole.child());
        part.request();
        assert!(part.requested() && !part.urgent());
        assert!(!whole.requested() && !other.requested());
        whole.request();
        whole.request();
        assert!(other.requested() && other.urgent());
    }
}
