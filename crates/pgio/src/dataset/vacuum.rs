//! Vacuums the data set, so that a trial can reuse the space of dead rows.
//!
//! VACUUM keeps dead rows that the snapshot of another session may see. Such a session is often an
//! automatic ANALYZE or one of ours that is about to end, so waiting for a moment is enough. A session that
//! does not end soon is named to the caller. If its snapshot stays longer than pgio waits, the trial's check
//! `data-size` says what became of the data.

use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::error::DatasetError;
use super::mark::Part;
use super::plan::LoadSpec;
use super::verify;
use crate::host::stop::Stop;
use crate::pg::words::Shown;
use pgio_results::Warning;

const OLD_SNAPSHOTS: &str = include_str!("sql/old_snapshots.sql");
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a session may delay a VACUUM without being named.
const UNNAMED_WAIT: Duration = Duration::from_secs(1);
/// How often a table that kept dead rows is vacuumed, at most.
const ATTEMPTS: usize = 3;
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
///
/// The tables keep empty pages at their end. Whether VACUUM can cut them off depends on what is by chance in
/// the last pages, and the next trial would extend the table again.
///
/// A session that begins after the wait may still take a snapshot that is as old as the oldest transaction
/// of any database. Tables that kept dead rows are therefore vacuumed again, up to [`ATTEMPTS`] times.
pub fn vacuum(
    client: &mut Client,
    spec: &LoadSpec,
    stop: &Stop,
    on_wait: &mut dyn FnMut(&OldSnapshot),
) -> Result<(), DatasetError> {
    let schema = verify::current_schema(client)?;
    let mut waiting = SnapshotWait::begin(client)?;
    let mut tables: Vec<String> = (1..=spec.tables).map(|n| Part::Table(n).to_string()).collect();
    for _ in 0..ATTEMPTS {
        waiting.wait(client, stop, on_wait)?;
        let mut dirty = Vec::new();
        for table in tables {
            if stop.requested() {
                return Ok(());
            }
            let qualified = super::qualified(&schema, &table);
            let failed = |e| DatasetError::from_pg("vacuum", &table, e);
            // One statement per table, because VACUUM cannot run in a transaction.
            client.batch_execute(&format!("VACUUM (TRUNCATE off) {qualified}")).map_err(failed)?;
            if keeps_dead_rows(client, &qualified).map_err(failed)? {
                dirty.push(table);
            }
        }
        if dirty.is_empty() || waiting.has_timed_out() {
            break;
        }
        tables = dirty;
    }
    Ok(())
}

/// Whether the last VACUUM of a table left dead rows. Known only from PostgreSQL 15 on: older servers report
/// statistics later.
fn keeps_dead_rows(client: &mut Client, qualified: &str) -> Result<bool, pgio_connect::Error> {
    let sql = "SELECT n_dead_tup > 0 FROM pg_stat_all_tables WHERE relid = to_regclass($1) \
               AND current_setting('server_version_num')::int >= 150000";
    let row = client.query_opt(sql, &[&qualified])?;
    row.map_or(Ok(false), |row| row.try_get(0))
}

/// The wait for snapshots of before the reset.
struct SnapshotWait {
    /// Transactions from this one on began after the last trial.
    first_new: String,
    begun: Instant,
    named: bool,
}

impl SnapshotWait {
    fn begin(client: &mut Client) -> Result<SnapshotWait, DatasetError> {
        let now = "SELECT pg_snapshot_xmax(pg_current_snapshot())::xid::text";
        let row = client.query_one(now, &[]).map_err(wait_error)?;
        Ok(SnapshotWait { first_new: row.try_get(0)?, begun: Instant::now(), named: false })
    }

    /// Returns when no snapshot of before the reset is left, after a stop, or after [`SNAPSHOT_TIMEOUT`].
    /// Snapshots that the role may not see do not count.
    fn wait(
        &mut self,
        client: &mut Client,
        stop: &Stop,
        on_wait: &mut dyn FnMut(&OldSnapshot),
    ) -> Result<(), DatasetError> {
        let old_snapshots = client.prepare(OLD_SNAPSHOTS).map_err(wait_error)?;
        while !self.has_timed_out() && !stop.requested() {
            let row = client.query_opt(&old_snapshots, &[&self.first_new]).map_err(wait_error)?;
            let Some(row) = row else { break };
            if !self.named && self.begun.elapsed() >= UNNAMED_WAIT {
                self.named = true;
                on_wait(&OldSnapshot {
                    pid: row.try_get("pid")?,
                    who: row.try_get::<_, Shown>("who")?.into(),
                    application_name: row.try_get::<_, Shown>("application_name")?.into(),
                    seconds: row.try_get("seconds")?,
                });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    fn has_timed_out(&self) -> bool {
        self.begun.elapsed() >= SNAPSHOT_TIMEOUT
    }
}

fn wait_error(error: pgio_connect::Error) -> DatasetError {
    DatasetError::from_pg("vacuum", "tables", error)
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
