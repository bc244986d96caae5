//! Inserts and deletes: a queue of rows besides the data set, which itself keeps every row.
//!
//! In a table with one row per block, a deleted row leaves a block that only VACUUM frees, and a newly
//! inserted row takes another block: in the data set's tables, every pair would move a row to the
//! table's end. Therefore the pairs use the table `pgio_turnover`, which is created for each trial:
//! each session alternately inserts at the head of its own queue and deletes at its tail, and vacuums
//! between two slices, as autovacuum would in time. The table always holds [`DEPTH`] rows per session,
//! and its file additionally holds the deleted rows of a slice or two.

use postgres::Client;

use crate::dataset::mark::SLOB_TABLE;
use crate::workload::sql::{self, fill};

pub const TABLE: &str = "pgio_turnover";

/// Rows per session.
pub const DEPTH: u64 = 64;
/// Keys per session: more than it can ever insert.
const KEYS: u64 = 1 << 40;

pub(super) fn first_key(session: u32) -> u64 {
    u64::from(session) * KEYS
}

/// Creates the table, logged or unlogged like the data set.
pub(super) fn create(
    admin: &mut Client,
    schema: &str,
    sessions: u32,
    unlogged: bool,
) -> Result<(), postgres::Error> {
    remove(admin, schema)?;
    admin.batch_execute(&fill(
        sql::TURNOVER_TABLE,
        &[
            ("table", &sql::qualified(schema, TABLE)),
            ("unlogged", if unlogged { "UNLOGGED " } else { "" }),
            ("mark", SLOB_TABLE),
            ("keys_each", &KEYS.to_string()),
            ("sessions", &sessions.to_string()),
            ("depth", &DEPTH.to_string()),
        ],
    ))
}

/// Drops only a table with pgio's mark; otherwise CREATE fails.
pub(super) fn remove(admin: &mut Client, schema: &str) -> Result<(), postgres::Error> {
    if sql::is_marked(admin, schema, TABLE, SLOB_TABLE)? {
        admin.batch_execute(&format!("DROP TABLE {}", sql::qualified(schema, TABLE)))
    } else {
        Ok(())
    }
}

/// Returns the VACUUM that a session runs between two slices. It skips a table that another session is
/// vacuuming, and does not truncate the file, which would need an exclusive lock.
pub(super) fn vacuum_statement(schema: &str) -> String {
    format!("VACUUM (SKIP_LOCKED, TRUNCATE off) {}", sql::qualified(schema, TABLE))
}
