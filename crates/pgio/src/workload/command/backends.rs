//! The server processes that serve a command. They are identified by the application name in the
//! command's environment, and reported once they are found.
//!
//! Where that name stands in PGOPTIONS, it shows which sessions took those. A session of the same role and database
//! that began meanwhile without it may be the program's, too; polling goes on to count those.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::environment::CommandEnvironment;

/// The processes must stay the same this long: a program may connect briefly before it opens its
/// working sessions.
const STABLE_TIME: Duration = Duration::from_millis(250);
/// The same while there are fewer processes than the program is to have: on a busy server, one may come later than
/// [`STABLE_TIME`] after the other.
const STABLE_TIME_OF_FEW: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Polling interval for a program that opens one session after the other.
const SLOW_POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Backends {
    application_name: String,
    /// The sessions that the program is to have, where it has a number of them.
    expected: usize,
    begun: Instant,
    next_poll: Instant,
    pids: Vec<i32>,
    stable_since: Instant,
    reported: bool,
    /// The largest number of processes seen at once.
    most: usize,
    /// Whether sessions without the name are counted.
    counts_unproven: bool,
    /// The sessions without the name that were there before the program.
    before: BTreeSet<i32>,
    unproven: BTreeSet<i32>,
}

impl Backends {
    /// Call this before the program starts.
    pub(super) fn new(
        environment: &CommandEnvironment,
        expected: Option<u32>,
        admin: &mut Client,
    ) -> Backends {
        let mut backends = Backends::unseen(&environment.application_name, expected);
        backends.counts_unproven = environment.name_proves_options;
        backends.before = backends.others(admin);
        backends
    }

    fn unseen(application_name: &str, expected: Option<u32>) -> Backends {
        let now = Instant::now();
        Backends {
            application_name: application_name.to_owned(),
            expected: expected.unwrap_or_default() as usize,
            begun: now,
            next_poll: now,
            pids: Vec::new(),
            stable_since: now,
            reported: false,
            most: 0,
            counts_unproven: false,
            before: BTreeSet::new(),
            unproven: BTreeSet::new(),
        }
    }

    /// Returns the processes once, when they are stable.
    pub(super) fn poll(&mut self, admin: &mut Client) -> Option<Vec<i32>> {
        let now = Instant::now();
        if now < self.next_poll || self.reported && !self.counts_unproven {
            return None;
        }
        let others = self.others(admin);
        self.unproven.extend(others.difference(&self.before));
        if self.reported {
            self.next_poll = now + SLOW_POLL_INTERVAL;
            return None;
        }
        let is_young = now - self.begun < SLOW_POLL_INTERVAL;
        self.next_poll = now
            + if is_young || !self.pids.is_empty() { POLL_INTERVAL } else { SLOW_POLL_INTERVAL };
        // If the server is gone, the trial ends by other means.
        let pids = self.pids(admin).unwrap_or_default();
        self.note(pids, now);
        // A program that reconnects constantly is never stable; it costs one query per second.
        if now - self.begun > 4 * SLOW_POLL_INTERVAL {
            self.next_poll = now + SLOW_POLL_INTERVAL;
        }
        self.reported.then(|| self.pids.clone())
    }

    fn note(&mut self, pids: Vec<i32>, now: Instant) {
        self.most = self.most.max(pids.len());
        if pids != self.pids {
            self.pids = pids;
            self.stable_since = now;
        }
        let is_complete = self.pids.len() >= self.expected;
        let stable_time = if is_complete { STABLE_TIME } else { STABLE_TIME_OF_FEW };
        self.reported = !self.pids.is_empty() && now - self.stable_since >= stable_time;
    }

    /// The number of the program's sessions; the largest number seen at once if they were never stable.
    pub(super) fn sessions(&self) -> usize {
        if self.reported { self.pids.len() } else { self.most }
    }

    /// The number of sessions that may be the program's and lack its options.
    pub(super) fn unproven(&self) -> usize {
        self.unproven.len()
    }

    /// Returns the sessions of the same role in the same database that are not pgio's.
    fn others(&self, admin: &mut Client) -> BTreeSet<i32> {
        if !self.counts_unproven {
            return BTreeSet::new();
        }
        let sql = "SELECT pid FROM pg_catalog.pg_stat_activity \
                   WHERE usename = session_user AND datname = current_database() \
                     AND backend_type = 'client backend' AND application_name NOT LIKE 'pgio%'";
        // If the server is gone, the trial ends by other means.
        let rows = admin.query(sql, &[]).unwrap_or_default();
        rows.iter().map(|row| row.get(0)).collect()
    }

    fn pids(&self, admin: &mut Client) -> Result<Vec<i32>, pgio_connect::Error> {
        let sql =
            "SELECT pid FROM pg_catalog.pg_stat_activity WHERE application_name = $1 ORDER BY 1";
        let rows = admin.query(sql, &[&self.application_name])?;
        rows.iter().map(|row| row.try_get(0)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is seen after so many milliseconds; returns when the sessions are reported, and how many.
    fn watch(expected: Option<u32>, seen: &[(u64, &[i32])]) -> (Option<u64>, usize) {
        let mut backends = Backends::unseen("pgio", expected);
        let begun = backends.begun;
        let reported = seen.iter().find(|(after, pids)| {
            backends.note(pids.to_vec(), begun + Duration::from_millis(*after));
            backends.reported
        });
        (reported.map(|(after, _)| *after), backends.sessions())
    }

    #[test]
    fn sessions_that_come_late_are_waited_for() {
        let late: [(u64, &[i32]); 4] = [(0, &[1]), (300, &[1]), (600, &[1, 2]), (900, &[1, 2])];
        assert_eq!(watch(Some(2), &late), (Some(900), 2));
        assert_eq!(watch(None, &late), (Some(300), 1));
    }

    #[test]
    fn fewer_sessions_than_expected_are_reported_in_the_end() {
        assert_eq!(watch(Some(3), &[(0, &[1]), (900, &[1]), (1000, &[1])]), (Some(1000), 1));
    }

    #[test]
    fn a_session_that_is_gone_is_not_counted_unless_the_others_are_never_stable() {
        assert_eq!(watch(Some(1), &[(0, &[1, 2]), (50, &[2]), (300, &[2])]), (Some(300), 1));
        assert_eq!(watch(Some(1), &[(0, &[1, 2]), (50, &[3])]), (None, 2));
    }
}
