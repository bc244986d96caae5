//! What the threads of the client-side engine are ordered to do, and the events they report.

use std::collections::BTreeSet;
use std::sync::mpsc::Sender;

use super::window::Window;
use crate::results::model::SessionTotals;
use crate::workload::Totals;
use crate::workload::error::EngineError;

/// An order to run one window.
pub(super) struct Order {
    pub(super) window: Window,
    /// Where its events go; the end of all senders is the end of the window.
    pub(super) events: Sender<Event>,
}

pub(super) enum Event {
    /// What all sessions of a thread did in one slice, and what the condition's settings were after
    /// it.
    Slice {
        number: usize,
        totals: Totals,
        readings: BTreeSet<(String, String)>,
    },
    /// All sessions of a thread have ended their last call: when, since the common start, and how
    /// late the last of them began.
    Worked {
        seconds: f64,
        late: f64,
    },
    /// A session does nothing more.
    Done {
        index: u32,
        totals: SessionTotals,
    },
    Failed {
        error: EngineError,
    },
}
