//! Scans of the whole table `pgio_scan`, which `pgio setup` creates with SCAN_SCALE.
//!
//! The table has no index, so a sequential scan is the only plan; this is checked like the other plans.
//! A scan is one operation of any length: the window ends when the last scan has ended.

use postgres::Client;

use crate::workload::EngineError;
use crate::workload::sql;

pub const TABLE: &str = "pgio_scan";

/// Refuses, before anything is run, if pgio's table does not exist.
pub fn check(admin: &mut Client, schema: &str) -> Result<(), EngineError> {
    let row = admin
        .query_one(sql::SCAN_TABLE, &[&schema, &TABLE])
        .map_err(|source| EngineError::Postgres { doing: "finding pgio_scan", source })?;
    if row.get(0) { Ok(()) } else { Err(EngineError::NoScanTable) }
}
