//! Work of drivers whose outcome the coordinator completes, such as by what it collects from all of them.

use std::collections::BTreeMap;
use std::fmt;

use postgres::Client;

use super::error::EngineError;
use super::outcome::{WindowEvent, WindowOutcome};
use super::participants::Participants;
use super::window::Listener;
use crate::config::resolve::Extent;

type Outcome = Result<WindowOutcome, EngineError>;

/// Prepared participants, and what is done once they have ended, whether they succeeded or failed.
pub(super) struct Completed<F> {
    pub(super) prepared: Box<dyn Participants>,
    pub(super) complete: F,
}

impl<F> fmt::Debug for Completed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Completed").field(&self.prepared).finish()
    }
}

impl<F> Participants for Completed<F>
where
    F: FnOnce(Outcome, &mut Client, Listener<'_>) -> Outcome,
{
    fn pids(&self) -> Vec<i32> {
        self.prepared.pids()
    }

    fn pinned(&self) -> BTreeMap<String, String> {
        self.prepared.pinned()
    }

    fn run(
        self: Box<Self>,
        admin: &mut Client,
        extent: Extent,
        listener: &mut dyn FnMut(&mut Client, WindowEvent),
    ) -> Outcome {
        let ran = self.prepared.run(admin, extent, listener);
        (self.complete)(ran, admin, listener)
    }
}
