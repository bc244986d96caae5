//! Stopping sessions, whatever they wait for.
//!
//! A slice ends by its own deadline, so mostly there is nothing to do. Else in this order: a
//! cancel, then after a second pg_terminate_backend. A cancel alone is not enough: during a wait
//! for a synchronous standby it turns that one commit into a local one, with a warning, and the
//! procedure goes on into the next wait; and a client that just leaves does not end the wait.
//!
//! Nothing here waits for a server that does not answer: whoever collects has to see a second Ctrl-C.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use super::error::EngineError;
use crate::pg::connect::Canceller;

const BEFORE_TERMINATE: Duration = Duration::from_secs(1);
const BEFORE_GIVING_UP: Duration = Duration::from_secs(10);
/// For the connection that terminates to show that the server is there.
const ANSWER: Duration = Duration::from_secs(2);

/// A session that has not ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alive<'a> {
    /// 0 while it is not known.
    pub pid: i32,
    pub canceller: Option<&'a Canceller>,
}

#[derive(Debug, Default)]
pub(super) struct Stopping {
    since: Option<Instant>,
    terminated: Option<Instant>,
}

impl Stopping {
    /// Takes the next step when its time has come.
    ///
    /// `urgent` skips the wait: whoever presses Ctrl-C twice has waited enough.
    pub(super) fn advance(&mut self, admin: &mut Client, alive: &[Alive<'_>], urgent: bool) {
        match self.since {
            None => {
                self.since = Some(Instant::now());
                cancel_beside(alive.iter().filter_map(|m| m.canceller.cloned()).collect());
            }
            Some(since) if urgent || since.elapsed() >= BEFORE_TERMINATE => {
                if self.terminated.is_some_and(|at| at.elapsed() < BEFORE_TERMINATE) {
                    return;
                }
                let there = answers(admin);
                self.terminated = Some(Instant::now());
                if !there {
                    return;
                }
                let pids: Vec<i32> = alive.iter().map(|m| m.pid).filter(|pid| *pid > 0).collect();
                // A server that is gone has no sessions of ours either.
                let _ = admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) pid",
                    &[&pids],
                );
            }
            Some(_) => {}
        }
    }

    /// The server does not answer any more: leave its sessions to `undo` and the next start.
    pub(super) fn given_up(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > BEFORE_GIVING_UP)
    }

    /// Sessions that are long over their time, and what they wait for.
    pub(super) fn stuck(admin: &mut Client, pids: &[i32], failure: &str) -> EngineError {
        if !answers(admin) {
            return EngineError::Stuck(format!(
                "{} sessions {failure}, and the server does not answer: see whether it and the network to it are up",
                pids.len()
            ));
        }
        let waits = admin
            .query(
                "SELECT DISTINCT wait_event_type || ':' || wait_event FROM pg_stat_activity \
                 WHERE pid = ANY($1) AND wait_event IS NOT NULL",
                &[&pids],
            )
            .map(|rows| rows.iter().map(|r| r.get::<_, String>(0)).collect::<Vec<_>>().join(", "))
            .unwrap_or_default();
        let hint = if waits.contains("SyncRep") {
            ": the synchronous standby does not answer; see pg_stat_replication"
        } else {
            ""
        };
        EngineError::Stuck(format!(
            "{} sessions {failure}, waiting for {}{hint}",
            pids.len(),
            if waits.is_empty() { "an unknown event" } else { &waits },
        ))
    }
}

/// On a thread of its own, which is left behind: where the server stands still or is cut off, a request
/// may hang for minutes. After one that fails the others would fail as well; their sessions are
/// terminated next.
fn cancel_beside(cancellers: Vec<Canceller>) {
    let one_by_one = move || cancellers.iter().try_for_each(Canceller::cancel);
    // Without a thread all of them are terminated next.
    let _ = thread::Builder::new().name("cancel".to_owned()).spawn(one_by_one);
}

/// Within a moment.
pub(super) fn answers(admin: &mut Client) -> bool {
    admin.is_valid(ANSWER).is_ok()
}
