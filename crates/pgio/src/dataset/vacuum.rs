//! Vacuums the data set, so that a trial can reuse the space of dead rows.
//!
//! VACUUM keeps dead rows that the snapshot of another session may see. Such a session is often an
//! automatic ANALYZE or one of ours that is about to end, so waiting for a moment is enough. A session that
//! does not end soon is named to the caller. If its snapshot stays longer than pgio waits, the trial's check
//! `data-size` says what became of the data.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use super::error::DatasetError;
use super::mark::Part;
use super::plan::LoadSpec;
use super::{sql, verify};
use crate::host::stop::Stop;
use pgio_results::Warning;

const OLD_SNAPSHOTS: &str = include_str!("sql/old_snapshots.sql");
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a session may delay a VACUUM without being named.
const BRIEF: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// A session whose snapshot keeps dead rows from being removed.
#[derive(Debug, Clone, PartialEq)]
pub struct OldSnapshot {
    pub pid: i32,
    /// The user; for a process of the server, its type.
    pub who: String,
    pub application_name: String,
    /// The age of its transaction.
    pub seconds: f64,
}

impl OldSnapshot {
    pub fn warning(&self) -> Warning {
        let Self { pid, who, application_name, seconds } = self;
        let application = match application_name.as_str() {
            "" => String::new(),
            name => format!(", application_name `{name}`"),
        };
        Warning::new(
            format!(
                "VACUUM before a trial waits up to {} s for session {pid} (user `{who}`{application})",
                SNAPSHOT_TIMEOUT.as_secs()
            ),
            format!(
                "its transaction is {seconds:.0} s old, and VACUUM keeps the dead rows that it may see"
            ),
            "end that transaction, or use reset = \"reload\"",
        )
    }
}

/// Vacuums the tables that workloads update; the others never contain dead rows. `on_wait` is called once
/// if a session delays that. A stop ends the wait, and then nothing is vacuumed.
pub fn vacuum(
    client: &mut Client,
    spec: &LoadSpec,
    stop: &Stop,
    on_wait: &mut dyn FnMut(&OldSnapshot),
) -> Result<(), DatasetError> {
    let schema = verify::current_schema(client)?;
    wait_for_snapshots(client, stop, on_wait)
        .map_err(|e| DatasetError::from_pg("vacuum", "tables", e))?;
    for table in (1..=spec.tables).map(|n| Part::Table(n).to_string()) {
        if stop.requested() {
            return Ok(());
        }
        // One statement per table, because VACUUM cannot run in a transaction.
        client
            .batch_execute(&format!("VACUUM {}", sql::qualified(&schema, &table)))
            .map_err(|e| DatasetError::from_pg("vacuum", &table, e))?;
    }
    Ok(())
}

/// Returns when no snapshot of before the call is left, after a stop, or after [`SNAPSHOT_TIMEOUT`].
/// Snapshots that the role may not see do not count.
fn wait_for_snapshots(
    client: &mut Client,
    stop: &Stop,
    on_wait: &mut dyn FnMut(&OldSnapshot),
) -> Result<(), postgres::Error> {
    let now = "SELECT pg_snapshot_xmax(pg_current_snapshot())::xid::text";
    let now: String = client.query_one(now, &[])?.get(0);
    let old_snapshots = client.prepare(OLD_SNAPSHOTS)?;
    let begun = Instant::now();
    let mut named = false;
    while begun.elapsed() < SNAPSHOT_TIMEOUT && !stop.requested() {
        let Some(row) = client.query_opt(&old_snapshots, &[&now])? else { break };
        if !named && begun.elapsed() >= BRIEF {
            named = true;
            on_wait(&OldSnapshot {
                pid: row.get("pid"),
                who: row.get("who"),
                application_name: row.get("application_name"),
                seconds: row.get("seconds"),
            });
        }
        thread::sleep(POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_names_the_session() {
        let session = |application_name: &str| OldSnapshot {
            pid: 4711,
            who: "app".to_owned(),
            application_name: application_name.to_owned(),
            seconds: 90.0,
        };
        let Warning { what, why, .. } = session("psql").warning();
        assert_eq!(
            what,
            "VACUUM before a trial waits up to 10 s for session 4711 (user `app`, application_name `psql`)"
        );
        assert_eq!(
            why,
            "its transaction is 90 s old, and VACUUM keeps the dead rows that it may see"
        );
        assert!(session("").warning().what.ends_with("(user `app`)"));
    }
}
