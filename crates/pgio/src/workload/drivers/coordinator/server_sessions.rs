//! The drivers' sessions as the server sees them: found by their application names, and ended if their driver
//! is lost.

use postgres::Client;

use super::part::PartState;
use crate::pg::leftovers::{application_name_of_command, application_name_of_driver};
use crate::workload::drivers::error::DriverError;
use crate::workload::error::EngineError;

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
) -> Result<VisibleSessions, postgres::Error> {
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
) -> Result<Vec<u32>, postgres::Error> {
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
