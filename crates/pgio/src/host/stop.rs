//! The one flag that says stop: set by Ctrl-C, a failed session or a test, seen by everyone.
//!
//! Whoever waits for a server is cut off soon after, unless it puts something back: that goes on
//! until the second word.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Cheap to clone; all clones are the same flag.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    requests: AtomicU8,
    restoring: AtomicUsize,
}

/// While it lives, something is being put back.
#[derive(Debug)]
pub struct Restoring(Arc<State>);

impl Stop {
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Once: stop, undo, save what is complete. Twice: leave; what is not undone stays in the journal.
    pub fn request(&self) {
        // Saturates in practice: nobody presses Ctrl-C 255 times within a second.
        self.0.requests.fetch_add(1, Ordering::SeqCst);
    }

    pub fn requested(&self) -> bool {
        self.0.requests.load(Ordering::SeqCst) > 0
    }

    pub fn urgent(&self) -> bool {
        self.0.requests.load(Ordering::SeqCst) > 1
    }

    /// What is done until the guard is dropped puts something back, and may take its time.
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
