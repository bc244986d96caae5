//! Stopping sessions, whatever they wait for.
//!
//! A slice ends by its own deadline, so mostly there is nothing to do. Else in this order: a
//! cancel, then after a second pg_terminate_backend. A cancel alone is not enough: during a wait
//! for a synchronous standby it turns that one commit into a local one, with a warning, and the
//! procedure goes on into the next wait; and a client that just leaves does not end the wait.

use std::time::{Duration, Instant};

use postgres::Client;

use super::engine::EngineError;
use crate::pg::connect::Canceller;

const BEFORE_TERMINATE: Duration = Duration::from_secs(1);
const BEFORE_GIVING_UP: Duration = Duration::from_secs(10);

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
                for member in alive {
                    if let Some(canceller) = member.canceller {
                        // One that cannot be cancelled is terminated next.
                        let _ = canceller.cancel();
                    }
                }
            }
            Some(since) if urgent || since.elapsed() >= BEFORE_TERMINATE => {
                if self.terminated.is_some_and(|at| at.elapsed() < BEFORE_TERMINATE) {
                    return;
                }
                self.terminated = Some(Instant::now());
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
