//! The one flag that says stop: set by Ctrl-C, a failed session or a test, seen by everyone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Cheap to clone; all clones are the same flag.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicU8>);

impl Stop {
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Once: stop, undo, save what is complete. Twice: undo and leave.
    pub fn request(&self) {
        // Saturates in practice: nobody presses Ctrl-C 255 times within a second.
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub fn requested(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    pub fn urgent(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 1
    }
}
