//! Scans of the whole table `pgio_scan`, which `pgio setup` creates with SCAN_SCALE.
//!
//! The table has no index, so a sequential scan is the only plan; this is checked like the other plans.
//! A scan is one operation of any length: the window ends when the last scan has ended.

use postgres::Client;

use crate::pg::trust::{Owners, find_untrusted};
use crate::workload::EngineError;
use crate::workload::sql;

pub const TABLE: &str = "pgio_scan";

/// Refuses, before anything is run, if pgio's table does not exist or may run code of others.
pub fn check(admin: &mut Client, schema: &str) -> Result<(), EngineError> {
    let failed = |source| EngineError::Postgres { doing: "finding pgio_scan", source };
    let row = admin.query_one(sql::SCAN_TABLE, &[&schema, &TABLE]).map_err(failed)?;
    if !row.try_get::<_, bool>(0)? {
        return Err(EngineError::NoScanTable);
    }
    let found = find_untrusted(admin, schema, &[TABLE], Owners::Trusted).map_err(failed)?;
    found.map_or(Ok(()), |untrusted| Err(EngineError::Untrusted(untrusted)))
}
