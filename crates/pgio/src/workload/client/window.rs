//! The window of the client-side engine as its threads see it, the orders that they receive and the events that
//! they report.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::config::Pace;
use crate::workload::Totals;
use crate::workload::error::EngineError;
use pgio_results::model::SessionTotals;

/// A window, the same for all threads; times are nanoseconds since `opens`.
pub(super) struct Window {
    pub opens: Instant,
    /// Infinite if the extent is a number of calls.
    pub seconds: f64,
    pub slice: f64,
    /// Number of calls of each session of this thread.
    pub shares: Vec<Option<u64>>,
    pub pace: Option<Pace>,
    pub pipeline: usize,
    /// The number of this process's first session.
    pub first: u32,
    /// Number of sessions of all processes.
    pub all_sessions: u64,
    pub seed: u64,
    pub quit: Quit,
}

impl Window {
    /// Returns when the last call may start.
    #[inline]
    pub(super) fn end(&self) -> i64 {
        // The conversion saturates.
        (self.seconds * 1e9) as i64
    }

    /// Returns whether the window has a length; otherwise it has a number of calls.
    pub(super) fn is_finite(&self) -> bool {
        self.seconds.is_finite()
    }

    /// Returns the end of a slice; the last one includes the rounding error.
    pub(super) fn boundary(&self, number: usize) -> i64 {
        let at = self.slice * (number + 1) as f64;
        if at + self.slice / 2.0 > self.seconds { i64::MAX } else { (at * 1e9) as i64 }
    }

    pub(super) fn now(&self) -> i64 {
        let now = Instant::now();
        match now.checked_duration_since(self.opens) {
            Some(since) => since.as_nanos() as i64,
            None => -((self.opens - now).as_nanos() as i64),
        }
    }
}

/// The order to stop, from the collecting thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Quit(Arc<AtomicU8>);

impl Quit {
    /// Start no more calls.
    pub(super) fn request(&self) {
        self.0.fetch_max(1, Ordering::Relaxed);
    }

    /// Do not wait for running calls either.
    pub(super) fn force(&self) {
        self.0.fetch_max(2, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    pub(super) fn is_forced(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }
}

/// An order to run one window.
pub(super) struct Order {
    pub(super) window: Window,
    /// The sender of its events; the window ends when all senders are dropped.
    pub(super) events: Sender<ThreadEvent>,
}

pub(super) enum ThreadEvent {
    /// The work of all sessions of a thread in one slice, and the condition's settings after it.
    Slice {
        number: usize,
        totals: Totals,
        readings: BTreeSet<(String, String)>,
    },
    /// All sessions of a thread have ended their last call: when, since the common start, and how late
    /// sessions began.
    Worked {
        seconds: f64,
        /// The moments of the first session and of the last.
        first: f64,
        late: f64,
    },
    /// A session has ended its work.
    Done {
        index: u32,
        totals: SessionTotals,
    },
    Failed {
        error: EngineError,
    },
}
