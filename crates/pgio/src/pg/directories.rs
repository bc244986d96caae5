//! Reads from the server where it stores data, WAL and the tablespaces in use.
//!
//! [`host::storage`](crate::host::storage) finds the file systems and devices below them.

use postgres::Client;

const DIRECTORIES: &str = include_str!("sql/directories.sql");

/// The role to grant if the result is empty.
pub const GRANT: &str = "pg_read_all_settings";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// `data`, `wal`, or `tablespace NAME`.
    pub role: String,
    /// Path on the server's host.
    pub path: String,
}

/// Empty if the role may not read data_directory.
pub fn directories(client: &mut Client) -> Result<Vec<Directory>, postgres::Error> {
    let rows = client.query(DIRECTORIES, &[])?;
    Ok(rows.iter().map(|row| Directory { role: row.get(0), path: row.get(1) }).collect())
}
