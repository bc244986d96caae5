//! Inserts and deletes: a queue of rows beside the data set, which itself keeps every row.
//!
//! A row that is deleted from a table with one row to a block leaves a block that only VACUUM gives
//! back, and a row that is inserted again takes another one: on the tables of the data set every pair
//! would move a row to the table's end. So the pairs work on the table `pgio_turnover`, made anew for
//! each trial: each session inserts at the head of its own queue and deletes at its tail, in turn, and
//! clears what it deleted between two slices, as autovacuum would in time. The table holds
//! [`DEPTH`] rows of each session throughout, and its file the deletes of a slice or two.

use postgres::Client;

use crate::workload::sql::{self, fill};

pub const TABLE: &str = "pgio_turnover";
/// In the table's comment; `destroy` takes what begins like this.
pub const MARK: &str = "pgio slob workload: made and dropped by pgio";

/// Rows of each session.
pub const DEPTH: u64 = 64;
/// Keys of each session: more than it can ever insert.
const KEYS: u64 = 1 << 40;

pub(super) fn first_key(session: u32) -> u64 {
    u64::from(session) * KEYS
}

/// Logged or not as the data set is.
pub(super) fn make(
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
            ("mark", MARK),
            ("keys_each", &KEYS.to_string()),
            ("sessions", &sessions.to_string()),
            ("depth", &DEPTH.to_string()),
        ],
    ))
}

/// Only what carries our mark; CREATE then fails on a stranger's.
pub(super) fn remove(admin: &mut Client, schema: &str) -> Result<(), postgres::Error> {
    match sql::is_marked(admin, schema, TABLE, MARK)? {
        true => admin.batch_execute(&format!("DROP TABLE {}", sql::qualified(schema, TABLE))),
        false => Ok(()),
    }
}

/// Between two slices of a session. Another that clears at the same time does it for all; to give
/// the file's end back would lock out everyone.
pub(super) fn clear(schema: &str) -> String {
    format!("VACUUM (SKIP_LOCKED, TRUNCATE off) {}", sql::qualified(schema, TABLE))
}
