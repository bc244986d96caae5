//! Finds sessions that a killed run left on the server and distinguishes them from those of a live
//! run.
//!
//! Sessions have the application name `pgio:<run-id>`; those of a program that a run started have a
//! suffix. The run's own connection holds an advisory lock derived from the same id. A session
//! whose run holds no lock is a leftover: the server does not notice a lost client while a commit
//! waits for a synchronous standby.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

/// Timeout for the sessions of a killed run to end: the server lists them for a moment after their client is gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// First half of the advisory lock's key: "pgio" in ASCII.
const LOCK_CLASS: i32 = 0x7067_696f;

pub fn application_name(run_id: &str) -> String {
    format!("pgio:{run_id}")
}

/// Application name for the sessions of a program that a run or a driver started, whose own name is `owner`.
pub fn application_name_of_command(owner: &str) -> String {
    format!("{owner} command")
}

/// Application name for the sessions of one of several drivers.
pub fn application_name_of_driver(run_id: &str, rank: u32) -> String {
    format!("{} driver {rank}", application_name(run_id))
}

/// Application name of a connection before it is announced, and of connections outside runs.
pub const UNANNOUNCED: &str = "pgio";

/// Marks this run as live for as long as this connection exists. Takes the lock before setting the
/// name: until then the connection is [`UNANNOUNCED`], because the name without the lock would look
/// like a leftover.
pub fn announce(client: &mut Client, run_id: &str) -> Result<(), postgres::Error> {
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
pub fn terminate(client: &mut Client) -> Result<Vec<i32>, postgres::Error> {
    let query = format!(
        "SELECT a.pid, pg_terminate_backend(a.pid) FROM pg_stat_activity a \
         WHERE a.application_name LIKE 'pgio:%' AND a.pid <> pg_backend_pid() \
           AND a.datname = current_database() AND a.usename = current_user \
           AND NOT {IS_LIVE}"
    );
    let rows = client.query(&query, &[&i64::from(LOCK_CLASS)])?;
    // The function returns false for a session that has ended meanwhile.
    let terminated = rows.iter().filter(|row| row.get(1));
    Ok(terminated.map(|row| row.get(0)).collect())
}

/// Returns the ids of other runs that are alive and have sessions in these databases. Waits for sessions that may
/// be ending.
pub fn live_runs(
    client: &mut Client,
    databases: &[String],
) -> Result<Vec<String>, postgres::Error> {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    loop {
        let found = live_now(client, databases)?;
        if found.is_empty() || Instant::now() > deadline {
            return Ok(found);
        }
        thread::sleep(POLL);
    }
}

fn live_now(client: &mut Client, databases: &[String]) -> Result<Vec<String>, postgres::Error> {
    let query = format!(
        "SELECT DISTINCT split_part(substr(a.application_name, 6), ' ', 1) FROM pg_stat_activity a \
         WHERE a.application_name LIKE 'pgio:%' AND a.pid <> pg_backend_pid() \
           AND a.datname = ANY($2) AND {IS_LIVE} ORDER BY 1"
    );
    let rows = client.query(&query, &[&i64::from(LOCK_CLASS), &databases])?;
    Ok(rows.iter().map(|r| r.get(0)).collect())
}
