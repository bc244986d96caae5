//! The server processes that serve a command. They are identified by the application name in the
//! command's environment; polling stops once they are found.

use std::time::{Duration, Instant};

use postgres::Client;

/// The processes must stay the same this long: a program may connect briefly before it opens its
/// working sessions.
const STABLE_TIME: Duration = Duration::from_millis(250);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Polling interval for a program that opens one session after the other.
const SLOW_POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Backends {
    application_name: String,
    begun: Instant,
    next_poll: Instant,
    pids: Vec<i32>,
    stable_since: Instant,
    reported: bool,
    /// The largest number of processes seen at once.
    pub(super) max_sessions: usize,
}

impl Backends {
    pub(super) fn new(application_name: &str) -> Backends {
        let now = Instant::now();
        Backends {
            application_name: application_name.to_owned(),
            begun: now,
            next_poll: now,
            pids: Vec::new(),
            stable_since: now,
            reported: false,
            max_sessions: 0,
        }
    }

    /// Returns the processes once, when they are stable.
    pub(super) fn poll(&mut self, admin: &mut Client) -> Option<Vec<i32>> {
        let now = Instant::now();
        if self.reported || now < self.next_poll {
            return None;
        }
        let is_young = now - self.begun < SLOW_POLL_INTERVAL;
        self.next_poll = now
            + if is_young || !self.pids.is_empty() { POLL_INTERVAL } else { SLOW_POLL_INTERVAL };
        // If the server is gone, the trial ends by other means.
        let pids = self.pids(admin).unwrap_or_default();
        self.max_sessions = self.max_sessions.max(pids.len());
        if pids != self.pids {
            self.pids = pids;
            self.stable_since = now;
        }
        self.reported = !self.pids.is_empty() && now - self.stable_since >= STABLE_TIME;
        // A program that reconnects constantly is never stable; it costs one query per second.
        if now - self.begun > 4 * SLOW_POLL_INTERVAL {
            self.next_poll = now + SLOW_POLL_INTERVAL;
        }
        self.reported.then(|| self.pids.clone())
    }

    fn pids(&self, admin: &mut Client) -> Result<Vec<i32>, postgres::Error> {
        let sql =
            "SELECT pid FROM pg_catalog.pg_stat_activity WHERE application_name = $1 ORDER BY 1";
        let rows = admin.query(sql, &[&self.application_name])?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Terminates the sessions: a session that waits for a standby does not notice that its client is
    /// gone.
    pub(super) fn terminate(&self, admin: &mut Client) {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity \
                   WHERE application_name = $1";
        // A server that is gone has no such sessions either.
        let _ = admin.execute(sql, &[&self.application_name]);
    }
}
