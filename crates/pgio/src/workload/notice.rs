//! What servers say beside their answers, as far as it spoils a measurement.

use std::sync::{Arc, Mutex, PoisonError};

/// A cancel during SyncRep does not undo the commit: it becomes local, with this warning.
const CANCELLED_SYNC_REP: &str = "canceling wait for synchronous replication";

/// Collects the notices of all sessions; cheap to clone and share.
#[derive(Debug, Clone, Default)]
pub(super) struct Notices(Arc<Mutex<Vec<String>>>);

impl Notices {
    pub(super) fn push(&self, message: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message.to_owned());
    }

    /// Commits that were acknowledged without the standby because a wait was cancelled.
    pub(super) fn cancelled_sync_rep(&self) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|m| m.contains(CANCELLED_SYNC_REP)).count()
    }
}
