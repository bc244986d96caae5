//! Clears the data set's dead rows away, so that a trial finds the room that the last one left.

use postgres::Client;

use super::error::DatasetError;
use super::mark::Part;
use super::plan::LoadSpec;
use super::{sql, verify};

/// Of the tables that are visited and updated; the others never hold a dead row.
pub fn vacuum(client: &mut Client, spec: &LoadSpec) -> Result<(), DatasetError> {
    let schema = verify::current_schema(client)?;
    for table in (1..=spec.tables).map(|n| Part::Table(n).to_string()) {
        // Each by itself: VACUUM takes no part in a transaction.
        client
            .batch_execute(&format!("VACUUM {}", sql::qualified(&schema, &table)))
            .map_err(|e| DatasetError::from_pg("vacuum", &table, e))?;
    }
    Ok(())
}
