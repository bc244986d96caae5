//! Orders to the threads of the client-side engine, and the events that the threads report.

use std::collections::BTreeSet;
use std::sync::mpsc::Sender;

use super::window::Window;
use crate::workload::Totals;
use crate::workload::error::EngineError;
use pgio_results::model::SessionTotals;

/// An order to run one window.
pub(super) struct Order {
    pub(super) window: Window,
    /// The sender of its events; the window ends when all senders are dropped.
    pub(super) events: Sender<Event>,
}

pub(super) enum Event {
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
