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

use pgio_connect::Client;

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
    given_up: bool,
}

/// What is due to end sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Cancel,
    Terminate,
    Wait,
}

impl Stopping {
    /// Takes the next step when it is due.
    ///
    /// `urgent` skips the wait, after a second Ctrl-C.
    pub(super) fn advance(
        &mut self,
        admin: &mut Client,
        alive: &[Alive<'_>],
        urgent: bool,
        now: Instant,
    ) {
        match self.next_step(urgent, now) {
            Step::Cancel => {
                cancel_in_background(alive.iter().filter_map(|m| m.canceller.cloned()).collect());
            }
            Step::Terminate => {
                let answered = server_answers(admin);
                // The check itself may have taken longer than the wait before the next one.
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
            Step::Wait => {}
        }
    }

    fn next_step(&mut self, urgent: bool, now: Instant) -> Step {
        let Some(since) = self.since else {
            self.since = Some(now);
            return Step::Cancel;
        };
        self.given_up = now - since > BEFORE_GIVING_UP;
        let is_due = |since: Instant| now - since >= BEFORE_TERMINATE;
        if (urgent || is_due(since)) && self.terminated.is_none_or(is_due) {
            self.terminated = Some(now);
            Step::Terminate
        } else {
            Step::Wait
        }
    }

    /// Returns whether the server has not answered for too long; `undo` and the next start handle its
    /// sessions.
    pub(super) fn has_given_up(&self) -> bool {
        self.given_up
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
    admin.is_valid(ANSWER_TIMEOUT)
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

    /// The moments of all steps but waits, in milliseconds, and when it gives up.
    fn steps(urgent_from: u64) -> (Vec<(u64, Step)>, Option<u64>) {
        let (mut stopping, start) = (Stopping::default(), Instant::now());
        let (mut steps, mut given_up) = (Vec::new(), None);
        for ms in (0..=10_100).step_by(50) {
            let now = start + Duration::from_millis(ms);
            match stopping.next_step(ms >= urgent_from, now) {
                Step::Wait => {}
                step => steps.push((ms, step)),
            }
            if stopping.has_given_up() {
                given_up.get_or_insert(ms);
            }
        }
        (steps, given_up)
    }

    #[test]
    fn sessions_are_cancelled_then_terminated_each_second_and_given_up_after_ten() {
        let (all, given_up) = steps(u64::MAX);
        let each_second = (1..=10).map(|second| (1000 * second, Step::Terminate));
        let expected: Vec<_> = std::iter::once((0, Step::Cancel)).chain(each_second).collect();
        assert_eq!(all, expected);
        assert_eq!(given_up, Some(10_050));
        // A second signal does not wait for what was cancelled.
        let (urgent, _) = steps(100);
        assert_eq!(
            urgent[..3],
            [(0, Step::Cancel), (100, Step::Terminate), (1100, Step::Terminate)]
        );
    }

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
