//! The server's own view of what the drivers do: its count of the work, as the proof that the drivers counted
//! right, and their sessions.
//!
//! The counters of the workload's tables hold nothing but its own work. The commit counter of the
//! database counts telemetry and every other session as well, so it proves only that no commit is
//! missing. Sessions are found by their application names, and ended if their driver is lost.

use pgio_connect::Client;

use super::PartState;
use crate::pg::leftovers::{application_name_of_command, application_name_of_driver};
use crate::pg::server::FORCE_FLUSH_SINCE;
use crate::workload::drivers::DriverError;
use crate::workload::error::EngineError;
use crate::workload::slice::Totals;
use pgio_results::model::Check;
use pgio_results::thresholds::COUNTS_APART;

const ID: &str = "driver-sum";
/// Before 15 the collector may return values that are half a second old.
const STATISTICS_DELAY: std::time::Duration = std::time::Duration::from_millis(600);
/// Readings until two agree. Beyond, other sessions use the tables, which the check then finds.
const MAX_READINGS: u32 = 20;

/// Where the server counts the calls of a workload.
#[derive(Debug, Clone)]
pub enum Proof {
    /// Each call inserts `rows` into the table, whose name is quoted.
    Inserted { table: String, rows: u64 },
    /// Each call is one scan of an index of these tables.
    Scanned { tables: Vec<String> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    calls: i64,
    commits: i64,
}

impl Proof {
    pub(super) fn read(
        &self,
        admin: &mut Client,
        version: u32,
    ) -> Result<Counted, pgio_connect::Error> {
        if version >= FORCE_FLUSH_SINCE {
            return self.read_once(admin);
        }
        let wait = || std::thread::sleep(STATISTICS_DELAY);
        read_until_steady(|| self.read_once(admin), wait)
    }

    fn read_once(&self, admin: &mut Client) -> Result<Counted, pgio_connect::Error> {
        let commits = admin.query_one(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()",
            &[],
        )?;
        let row = match self {
            Proof::Inserted { table, rows } => admin.query_one(
                "SELECT pg_stat_get_tuples_inserted(to_regclass($1)) / $2",
                &[table, &(*rows as i64)],
            )?,
            Proof::Scanned { tables } => admin.query_one(
                "SELECT coalesce(sum(pg_stat_get_numscans(i.indexrelid)), 0)::bigint \
                 FROM pg_index i JOIN unnest($1::text[]) t ON i.indrelid = to_regclass(t)",
                &[tables],
            )?,
        };
        Ok(Counted { calls: row.try_get(0)?, commits: commits.try_get(0)? })
    }
}

/// Reads again, after a wait each time, until the calls of two readings agree; returns the former, or the last
/// of too many.
fn read_until_steady<E>(
    mut read: impl FnMut() -> Result<Counted, E>,
    mut wait: impl FnMut(),
) -> Result<Counted, E> {
    let mut counted = read()?;
    for _ in 1..MAX_READINGS {
        wait();
        let again = read()?;
        if again.calls == counted.calls {
            break;
        }
        counted = again;
    }
    Ok(counted)
}

/// Compares the drivers' sum with the server's.
pub(super) fn check(before: Counted, after: Counted, totals: &Totals) -> Check {
    let remedy =
        "find out which other sessions use the tables, or what is between drivers and server";
    let server = (after.calls - before.calls).max(0).unsigned_abs();
    let commits = (after.commits - before.commits).max(0).unsigned_abs();
    let drivers = totals.calls;
    // A call that ended in a deadlock was rolled back, but the server may have counted its rows.
    let off = match server {
        n if n < drivers => drivers - n,
        n => n.saturating_sub(drivers + totals.deadlocks),
    };
    let share = off as f64 / drivers.max(1) as f64;
    if share > COUNTS_APART.0 {
        let percent = 100.0 * share;
        let message = format!(
            "the drivers counted {drivers} calls, the server {server}: {percent:.2} % apart"
        );
        return Check::invalid(ID, message, remedy);
    }
    if (commits as f64) < drivers as f64 * (1.0 - COUNTS_APART.0) {
        let message = format!(
            "the drivers counted {drivers} committed calls, the server only {commits} commits"
        );
        return Check::invalid(ID, message, remedy);
    }
    Check::ok(ID, format!("the drivers counted {drivers} calls, the server {server}"))
}

/// Returns the check of drivers whose sessions the server does not see as theirs.
pub(super) fn hidden_sessions_check(ranks: &[u32]) -> Check {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    Check::invalid(
        ID,
        format!("pg_stat_activity does not show the sessions of driver {}", ranks.join(", ")),
        "connect drivers directly to PostgreSQL, as the same role",
    )
}

/// The sessions of a driver as the server sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct VisibleSessions {
    pub sessions: usize,
    pub addresses: Vec<String>,
}

/// Looks up a driver's sessions in pg_stat_activity.
pub(super) fn find_sessions(
    admin: &mut Client,
    application_name: &str,
    pids: &[i32],
) -> Result<VisibleSessions, pgio_connect::Error> {
    let row = admin.query_one(
        "SELECT count(*), coalesce(array_agg(DISTINCT host(client_addr)) \
                                   FILTER (WHERE client_addr IS NOT NULL), '{}') \
         FROM pg_stat_activity WHERE pid = ANY($1) AND application_name = $2",
        &[&pids, &application_name],
    )?;
    Ok(VisibleSessions { sessions: row.try_get::<_, i64>(0)? as usize, addresses: row.try_get(1)? })
}

/// Fills in the addresses of the drivers' sessions; returns the drivers whose sessions are not seen.
pub(super) fn find_addresses(
    parts: &mut [PartState],
    run_id: &str,
    pids: &[i32],
    admin: &mut Client,
) -> Result<Vec<u32>, pgio_connect::Error> {
    let mut unseen = Vec::new();
    for part in parts {
        let seen = find_sessions(admin, &application_name_of_driver(run_id, part.rank), pids)?;
        if seen.sessions != part.sessions as usize {
            unseen.push(part.rank);
        }
        part.addresses = seen.addresses;
    }
    Ok(unseen)
}

/// Ends what a lost driver has left on the server.
pub(super) fn terminate_lost(error: &EngineError, run_id: &str, admin: &mut Client) {
    if let EngineError::Drivers(DriverError::Lost { rank, .. }) = error {
        let name = application_name_of_driver(run_id, *rank);
        terminate(admin, &application_name_of_command(&name));
        terminate(admin, &name);
    }
}

/// Terminates the sessions that a lost driver has left; its sockets may never show that it is gone.
fn terminate(admin: &mut Client, application_name: &str) {
    // If the server is gone, its sessions are gone too; `undo` and the next start handle the rest.
    let _ = admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE application_name = $1 AND usename = current_user",
        &[&application_name],
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::model::CheckVerdict;

    fn judged(drivers: u64, deadlocks: u64, server: i64, commits: i64) -> CheckVerdict {
        let totals = Totals { calls: drivers, deadlocks, ..Totals::default() };
        let before = Counted { calls: 100, commits: 200 };
        let after = Counted { calls: 100 + server, commits: 200 + commits };
        check(before, after, &totals).verdict
    }

    #[test]
    fn counts_are_read_until_two_agree_but_not_forever() {
        let readings = |calls: fn(i64) -> i64| {
            let (mut made, mut waits) = (0, 0);
            let read = || {
                made += 1;
                Ok::<_, ()>(Counted { calls: calls(made), commits: made })
            };
            let counted = read_until_steady(read, || waits += 1).unwrap();
            (counted.calls, counted.commits, waits)
        };
        assert_eq!(readings(|made| made.min(3)), (3, 3, 3));
        let most = i64::from(MAX_READINGS);
        assert_eq!(readings(|made| made), (most, most, most - 1), "others use the table");
    }

    #[test]
    fn counts_of_drivers_and_server_must_agree_within_a_thousandth() {
        use CheckVerdict::{Invalid, Ok};
        assert_eq!(judged(10_000, 0, 10_000, 10_400), Ok);
        assert_eq!(judged(10_000, 0, 10_010, 10_400), Ok);
        assert_eq!(judged(10_000, 0, 10_011, 10_400), Invalid);
        assert_eq!(judged(10_000, 0, 9_989, 10_400), Invalid);
        assert_eq!(judged(10_000, 5, 10_014, 10_400), Ok);
        assert_eq!(judged(10_000, 0, 10_000, 9_980), Invalid);
        assert_eq!(judged(0, 0, 0, 0), Ok);
    }
}
