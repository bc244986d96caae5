//! The server processes that serve a command. They are identified by the application name in the
//! command's environment; polling stops once they are found.

use std::time::{Duration, Instant};

use postgres::Client;

/// The processes must stay the same this long: a program may connect briefly before it opens its
/// working sessions.
const SETTLED: Duration = Duration::from_millis(250);
const OFTEN: Duration = Duration::from_millis(50);
/// Polling interval for a program that opens one session after the other.
const SELDOM: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Backends {
    application_name: String,
    begun: Instant,
    next: Instant,
    pids: Vec<i32>,
    since: Instant,
    reported: bool,
    /// The largest number of processes seen at once.
    pub(super) most: usize,
}

impl Backends {
    pub(super) fn new(application_name: &str) -> Backends {
        let now = Instant::now();
        Backends {
            application_name: application_name.to_owned(),
            begun: now,
            next: now,
            pids: Vec::new(),
            since: now,
            reported: false,
            most: 0,
        }
    }

    /// Returns the processes once, when they are stable.
    pub(super) fn look(&mut self, admin: &mut Client) -> Option<Vec<i32>> {
        let now = Instant::now();
        if self.reported || now < self.next {
            return None;
        }
        let young = now - self.begun < SELDOM;
        self.next = now + if young || !self.pids.is_empty() { OFTEN } else { SELDOM };
        // If the server is gone, the trial ends by other means.
        let pids = self.pids(admin).unwrap_or_default();
        self.most = self.most.max(pids.len());
        if pids != self.pids {
            self.pids = pids;
            self.since = now;
        }
        self.reported = !self.pids.is_empty() && now - self.since >= SETTLED;
        // A program that reconnects constantly is never stable; it costs one query per second.
        if now - self.begun > 4 * SELDOM {
            self.next = now + SELDOM;
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
