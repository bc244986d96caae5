//! Scans of a whole table: the table `pgio_scan`, which `pgio setup` makes with SCAN_SCALE.
//!
//! It has no index, so that there is no plan but a sequential scan; that is checked like the other
//! plans. A scan is one operation however long it takes: the window ends when the last one has.

use postgres::Client;

use crate::workload::EngineError;
use crate::workload::sql;

pub const TABLE: &str = "pgio_scan";

/// Refuses, before anything is run, where there is no such table of ours.
pub fn check(admin: &mut Client, schema: &str) -> Result<(), EngineError> {
    let row = admin
        .query_one(sql::SCAN_TABLE, &[&schema, &TABLE])
        .map_err(|source| EngineError::Postgres { doing: "looking for pgio_scan", source })?;
    match row.get(0) {
        true => Ok(()),
        false => Err(EngineError::NoScanTable),
    }
}
