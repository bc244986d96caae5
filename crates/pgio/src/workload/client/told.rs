//! What the threads of the client-side engine tell.

use std::collections::BTreeSet;

use crate::results::model::SessionTotals;
use crate::workload::{EngineError, Totals};

pub(super) enum Told {
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
