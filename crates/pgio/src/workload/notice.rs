//! Counts server notices that invalidate a measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A cancel during SyncRep does not undo the commit: it becomes local, with this warning.
const CANCELLED_SYNC_REP: &str = "canceling wait for synchronous replication";

/// Counts such notices of all sessions without storing them; cheap to clone and share.
#[derive(Debug, Clone, Default)]
pub(super) struct Notices(Arc<AtomicUsize>);

impl Notices {
    pub(super) fn push(&self, message: &str) {
        if message.contains(CANCELLED_SYNC_REP) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the commits that were acknowledged without the standby because a wait was canceled.
    pub(super) fn cancelled_sync_rep(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
