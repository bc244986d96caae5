//! Vacuums the data set, so that a trial can reuse the space of dead rows.

use postgres::Client;

use super::error::DatasetError;
use super::mark::Part;
use super::plan::LoadSpec;
use super::{sql, verify};

/// Vacuums the tables that workloads update; the others never contain dead rows.
pub fn vacuum(client: &mut Client, spec: &LoadSpec) -> Result<(), DatasetError> {
    let schema = verify::current_schema(client)?;
    for table in (1..=spec.tables).map(|n| Part::Table(n).to_string()) {
        // One statement per table, because VACUUM cannot run in a transaction.
        client
            .batch_execute(&format!("VACUUM {}", sql::qualified(&schema, &table)))
            .map_err(|e| DatasetError::from_pg("vacuum", &table, e))?;
    }
    Ok(())
}
