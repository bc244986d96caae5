//! Sessions that a killed run left on the server, told apart from those of a run that lives.
//!
//! Sessions carry the application name `pgio:<run-id>`, those of a program that a run started with a
//! word behind it, and the run's own connection holds an advisory lock made from the same id. A session whose run holds no lock is nobody's: a client
//! that is gone does not end a wait for a synchronous standby.

use postgres::Client;

/// Spells "pgio" in ASCII: the first half of the advisory lock's key.
const LOCK_CLASS: i32 = 0x7067_696f;

pub fn application_name(run_id: &str) -> String {
    format!("pgio:{run_id}")
}

/// Of the sessions of a program that a run with this name started.
pub fn application_name_of_command(of_run: &str) -> String {
    format!("{of_run} command")
}

/// What a connection is called before it is announced, and one that is no run's.
pub const UNANNOUNCED: &str = "pgio";

/// Says that this run lives, as long as this connection does, which is [`UNANNOUNCED`] until now:
/// the name without the lock would be a leftover's to whoever looks just then.
pub fn announce(client: &mut Client, run_id: &str) -> Result<(), postgres::Error> {
    client.execute("SELECT pg_advisory_lock_shared($1, hashtext($2))", &[&LOCK_CLASS, &run_id])?;
    client
        .execute("SELECT set_config('application_name', $1, false)", &[&application_name(run_id)])
        .map(drop)
}

/// Ends the sessions of runs that do not live, and returns their process ids.
pub fn terminate(client: &mut Client) -> Result<Vec<i32>, postgres::Error> {
    let rows = client.query(
        "SELECT a.pid, pg_terminate_backend(a.pid) FROM pg_stat_activity a \
         WHERE a.application_name LIKE 'pgio:%' AND a.pid <> pg_backend_pid() \
           AND a.datname = current_database() AND a.usename = current_user \
           AND NOT EXISTS (SELECT 1 FROM pg_locks l \
                           WHERE l.locktype = 'advisory' AND l.granted \
                             AND l.classid::bigint = $1 \
                             AND l.objid::bigint = hashtext(split_part(substr(a.application_name, 6), ' ', 1))::bigint & 4294967295)",
        &[&i64::from(LOCK_CLASS)],
    )?;
    Ok(rows.iter().map(|r| r.get(0)).collect())
}
