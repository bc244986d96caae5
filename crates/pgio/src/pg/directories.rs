//! Where a server keeps what it writes: data, WAL and the tablespaces in use, by its own word.
//!
//! What lies below them is for [`host::storage`](crate::host::storage) to find out there.

use postgres::Client;

const DIRECTORIES: &str = include_str!("sql/directories.sql");

/// What a role needs that is shown none.
pub const GRANT: &str = "pg_read_all_settings";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// `data`, `wal`, or `tablespace NAME`.
    pub role: String,
    /// On the server's host.
    pub path: String,
}

/// None for a role that may not see them.
pub fn directories(client: &mut Client) -> Result<Vec<Directory>, postgres::Error> {
    let rows = client.query(DIRECTORIES, &[])?;
    Ok(rows.iter().map(|row| Directory { role: row.get(0), path: row.get(1) }).collect())
}
