//! Finds sessions that a killed run left on the server and distinguishes them from sessions of a live
//! run. Finds the runs that are alive beside this one.
//!
//! Sessions have the application name `pgio:<run-id>`; sessions of a program that a run started have a
//! suffix. The run's own connection holds an advisory lock derived from the same id. A session
//! whose run holds no lock is a leftover: the server does not notice a lost client while a commit
//! waits for a synchronous standby.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::Client;

/// Timeout for the sessions of a killed run to end: the server lists them for a moment after their client is gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// First half of the advisory lock's key: "pgio" in ASCII.
const LOCK_CLASS: i32 = 0x7067_696f;
/// The same of the lock of a run that changes the server: "pgic".
const CHANGE_CLASS: i32 = 0x7067_6963;

pub fn application_name(run_id: &str) -> String {
    format!("pgio:{run_id}")
}

/// Application name for the sessions of a program that a run or a driver started, whose own name is `owner`.
pub fn application_name_of_command(owner: &str) -> String {
    format!("{owner} command")
}

/// Application name of a connection before it is announced, and of connections outside runs.
pub const UNANNOUNCED: &str = "pgio";

/// Marks this run as live for as long as this connection exists. Takes the lock before setting the
/// name: until then the connection is [`UNANNOUNCED`], because the name without the lock would look
/// like a leftover.
pub fn announce(client: &mut Client, run_id: &str) -> Result<(), pgio_connect::Error> {
    client.execute("SELECT pg_advisory_lock_shared($1, hashtext($2))", &[&LOCK_CLASS, &run_id])?;
    client
        .execute("SELECT set_config('application_name', $1, false)", &[&application_name(run_id)])
        .map(drop)
}

/// SQL: whether the run of session `a` is alive.
const IS_LIVE: &str = "EXISTS (SELECT 1 FROM pg_locks l \
    WHERE l.locktype = 'advisory' AND l.granted AND l.classid::bigint = $1 \
      AND l.objid::bigint = hashtext(split_part(substr(a.application_name, 6), ' ', 1))::bigint & 4294967295)";

/// Terminates the sessions of runs that are no longer alive and returns their process ids.
pub fn terminate(client: &mut Client) -> Result<Vec<i32>, pgio_connect::Error> {
    let query = format!(
        "SELECT a.pid, pg_terminate_backend(a.pid) FROM pg_stat_activity a \
         WHERE a.application_name LIKE 'pgio:%' AND a.pid <> pg_backend_pid() \
           AND a.datname = current_database() AND a.usename = current_user \
           AND NOT {IS_LIVE}"
    );
    let rows = client.query(&query, &[&i64::from(LOCK_CLASS)])?;
    // The function returns false for a session that has ended meanwhile.
    let terminated = rows.iter().filter(|row| row.try_get(1).unwrap_or(false));
    terminated.map(|row| row.try_get(0)).collect()
}

/// A run whose connection holds its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRun {
    /// None between its lock and its name.
    id: Option<String>,
    /// The database in which it works, or does something else for the moment.
    pub database: String,
    role: String,
    /// Whether it changes the server, and not only its own sessions and tables.
    pub changes_server: bool,
}

impl fmt::Display for LiveRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LiveRun { id, database, role, changes_server } = self;
        match id {
            Some(id) => write!(f, "run {id}")?,
            None => f.write_str("another run")?,
        }
        write!(f, " is at work in database {database} as role {role}")?;
        if *changes_server { f.write_str(", and changes the server") } else { Ok(()) }
    }
}

/// Announces as well that this run changes the server. Advisory locks belong to a database, but pg_locks shows
/// all sessions.
pub fn announce_change(client: &mut Client, run_id: &str) -> Result<(), pgio_connect::Error> {
    client
        .execute("SELECT pg_advisory_lock_shared($1, hashtext($2))", &[&CHANGE_CLASS, &run_id])
        .map(drop)
}

/// Returns other runs that are alive on the server, in any database and of any role. Waits while some are in the
/// way that may be ending.
pub fn live_runs(
    client: &mut Client,
    run_id: &str,
    is_in_the_way: impl Fn(&LiveRun) -> bool,
) -> Result<Vec<LiveRun>, pgio_connect::Error> {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    loop {
        let found = live_now(client, run_id)?;
        if !found.iter().any(&is_in_the_way) || Instant::now() > deadline {
            return Ok(found);
        }
        thread::sleep(POLL);
    }
}

fn live_now(client: &mut Client, run_id: &str) -> Result<Vec<LiveRun>, pgio_connect::Error> {
    let query = "SELECT DISTINCT substring(a.application_name FROM '^pgio:([^ ]+)'), \
            d.datname::text, coalesce(a.usename, '')::text, \
            EXISTS (SELECT FROM pg_locks c WHERE c.locktype = 'advisory' AND c.granted \
                    AND c.classid::bigint = $2 AND c.objid = l.objid) \
        FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
            JOIN pg_stat_activity a ON a.pid = l.pid \
        WHERE l.locktype = 'advisory' AND l.granted AND l.classid::bigint = $1 \
            AND l.objid::bigint <> hashtext($3)::bigint & 4294967295 \
        ORDER BY 1, 2";
    let classes = [LOCK_CLASS, CHANGE_CLASS].map(i64::from);
    let rows = client.query(query, &[&classes[0], &classes[1], &run_id])?;
    let run = |row: &pgio_connect::Row| -> Result<LiveRun, pgio_connect::Error> {
        Ok(LiveRun {
            id: row.try_get(0)?,
            database: row.try_get(1)?,
            role: row.try_get(2)?,
            changes_server: row.try_get(3)?,
        })
    };
    rows.iter().map(run).collect()
}
