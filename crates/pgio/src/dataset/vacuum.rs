//! Vacuums the data set, so that a trial can reuse the space of dead rows.
//!
//! VACUUM keeps dead rows that the snapshot of another session may see. Such a session is often an
//! automatic ANALYZE or one of ours that is about to end, so waiting for a moment is enough. If the
//! snapshot stays longer, the trial's check `data-size` says what became of the data.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use super::error::DatasetError;
use super::mark::Part;
use super::plan::LoadSpec;
use super::{sql, verify};

const OLD_SNAPSHOTS: &str = include_str!("sql/old_snapshots.sql");
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// Vacuums the tables that workloads update; the others never contain dead rows.
pub fn vacuum(client: &mut Client, spec: &LoadSpec) -> Result<(), DatasetError> {
    let schema = verify::current_schema(client)?;
    wait_for_snapshots(client).map_err(|e| DatasetError::from_pg("vacuum", "tables", e))?;
    for table in (1..=spec.tables).map(|n| Part::Table(n).to_string()) {
        // One statement per table, because VACUUM cannot run in a transaction.
        client
            .batch_execute(&format!("VACUUM {}", sql::qualified(&schema, &table)))
            .map_err(|e| DatasetError::from_pg("vacuum", &table, e))?;
    }
    Ok(())
}

/// Returns when no snapshot of before the call is left, or after [`SNAPSHOT_TIMEOUT`]. Snapshots
/// that the role may not see do not count.
fn wait_for_snapshots(client: &mut Client) -> Result<(), postgres::Error> {
    let now = "SELECT pg_snapshot_xmax(pg_current_snapshot())::xid::text";
    let now: String = client.query_one(now, &[])?.get(0);
    let old_snapshots = client.prepare(OLD_SNAPSHOTS)?;
    let deadline = Instant::now() + SNAPSHOT_TIMEOUT;
    while client.query_one(&old_snapshots, &[&now])?.get::<_, i64>(0) > 0
        && Instant::now() < deadline
    {
        thread::sleep(POLL);
    }
    Ok(())
}
