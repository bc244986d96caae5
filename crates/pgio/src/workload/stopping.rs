//! Stops sessions in any state.
//!
//! A slice ends by its own deadline, so usually nothing is to be done. Otherwise pgio first cancels the
//! query and a second later calls pg_terminate_backend. A cancel alone is not enough: during a wait for
//! a synchronous standby it only makes that one commit local, with a warning, and the block continues
//! into the next wait. [`Notices`] counts those warnings. Closing the connection does not end the wait either.
//!
//! Nothing here waits for a server that does not answer: the caller must notice a second Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use super::error::EngineError;
use pgio_connect::Canceller;

const BEFORE_TERMINATE: Duration = Duration::from_secs(1);
const BEFORE_GIVING_UP: Duration = Duration::from_secs(10);
/// Time limit for the check that the server answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A session that has not ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alive<'a> {
    /// 0 while it is unknown.
    pub pid: i32,
    pub canceller: Option<&'a Canceller>,
}

#[derive(Debug, Default)]
pub(super) struct Stopping {
    since: Option<Instant>,
    terminated: Option<Instant>,
}

impl Stopping {
    /// Takes the next step when it is due.
    ///
    /// `urgent` skips the wait, after a second Ctrl-C.
    pub(super) fn advance(&mut self, admin: &mut Client, alive: &[Alive<'_>], urgent: bool) {
        match self.since {
            None => {
                self.since = Some(Instant::now());
                cancel_in_background(alive.iter().filter_map(|m| m.canceller.cloned()).collect());
            }
            Some(since) if urgent || since.elapsed() >= BEFORE_TERMINATE => {
                if self.terminated.is_some_and(|at| at.elapsed() < BEFORE_TERMINATE) {
                    return;
                }
                let answered = server_answers(admin);
                self.terminated = Some(Instant::now());
                if !answered {
                    return;
                }
                let pids: Vec<i32> = alive.iter().map(|m| m.pid).filter(|pid| *pid > 0).collect();
                // If the server is gone, its sessions are gone too.
                let _ = admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) pid",
                    &[&pids],
                );
            }
            Some(_) => {}
        }
    }

    /// Returns whether the server has not answered for too long; `undo` and the next start handle its
    /// sessions.
    pub(super) fn has_given_up(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > BEFORE_GIVING_UP)
    }

    /// Returns the error of sessions that exceed their time, with their wait events.
    pub(super) fn stuck_error(admin: &mut Client, pids: &[i32], failure: &str) -> EngineError {
        if !server_answers(admin) {
            return EngineError::Overdue(format!(
                "{} sessions {failure}, and the server does not answer; check the server and the network",
                pids.len()
            ));
        }
        let waits = admin
            .query(
                "SELECT DISTINCT wait_event_type || ':' || wait_event FROM pg_stat_activity \
                 WHERE pid = ANY($1) AND wait_event IS NOT NULL",
                &[&pids],
            )
            .map(|rows| {
                rows.iter().flat_map(|r| r.try_get::<_, String>(0)).collect::<Vec<_>>().join(", ")
            })
            .unwrap_or_default();
        let hint = if waits.contains("SyncRep") {
            ": the synchronous standby does not answer; see pg_stat_replication"
        } else {
            ""
        };
        EngineError::Overdue(format!(
            "{} sessions {failure}, waiting for {}{hint}",
            pids.len(),
            if waits.is_empty() { "an unknown event" } else { &waits },
        ))
    }
}

/// Sends the cancel requests on a separate, detached thread: if the server is stopped or disconnected,
/// a request can hang for minutes. After the first failure the rest are skipped; their sessions are
/// terminated next.
fn cancel_in_background(cancellers: Vec<Canceller>) {
    let one_by_one = move || cancellers.iter().try_for_each(Canceller::cancel);
    // Without a thread, all sessions are terminated next.
    let _ = thread::Builder::new().name("cancel".to_owned()).spawn(one_by_one);
}

/// Returns whether the server answers within a short time.
pub(super) fn server_answers(admin: &mut Client) -> bool {
    admin.is_valid(ANSWER_TIMEOUT).is_ok()
}

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
