//! Counts server notices that invalidate a measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A cancel during SyncRep does not undo the commit: it becomes local, with a warning of this function
/// of the server. The warning's text may be translated.
const WAIT_FOR_STANDBY: &str = "SyncRepWaitForLSN";

/// Counts such notices of all sessions without storing them; cheap to clone and share.
#[derive(Debug, Clone, Default)]
pub(super) struct Notices(Arc<AtomicUsize>);

impl Notices {
    /// Counts a notice by the function of the server that sent it.
    pub(super) fn push(&self, routine: &str) {
        if routine == WAIT_FOR_STANDBY {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the commits that were acknowledged without the standby because a wait was canceled.
    pub(super) fn cancelled_sync_rep(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_connect::routine;

    #[test]
    fn a_canceled_wait_counts_in_any_language() {
        let notices = Notices::default();
        for body in [
            &b"SWARNUNG\0VWARNING\0C01000\0Mstorniere Warten\0RSyncRepWaitForLSN\0\0"[..],
            b"SWARNUNG\0VWARNING\0C01000\0Metwas anderes\0RExecuteDoStmt\0\0",
        ] {
            notices.push(routine(body));
        }
        assert_eq!(notices.cancelled_sync_rep(), 1);
    }
}
