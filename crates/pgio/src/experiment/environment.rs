//! The environment as found, for the manifest: what a reader needs to judge a figure, and what has
//! to be the same in another experiment to compare with. Settings that can hold a secret
//! (connection strings, commands) are never read.

use std::collections::BTreeMap;

use postgres::Client;

use crate::pg::server::Server;

/// Settings that decide about storage and replication.
const SETTINGS: &[&str] = &[
    "block_size",
    "checkpoint_timeout",
    "commit_delay",
    "commit_siblings",
    "data_checksums",
    "effective_io_concurrency",
    "fsync",
    "full_page_writes",
    "huge_pages",
    "io_method",
    "max_connections",
    "max_wal_size",
    "shared_buffers",
    "synchronous_commit",
    "synchronous_standby_names",
    "track_io_timing",
    "wal_buffers",
    "wal_compression",
    "wal_level",
    "wal_sync_method",
];

/// The reading connection has pinned synchronous_commit for itself.
const AS_A_NEW_SESSION_HAS_IT: &str = "SELECT CASE name WHEN 'synchronous_commit' THEN reset_val \
     ELSE current_setting(name) END FROM pg_settings WHERE name = $1";

pub fn describe(admin: &mut Client, server: &Server) -> BTreeMap<String, String> {
    let mut found = BTreeMap::from([
        ("server_version".to_owned(), server.info.version.clone()),
        ("target".to_owned(), server.info.target.clone()),
        ("pgio".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ]);
    // Where the role may not read it, another server is known by less.
    let identifier = "SELECT system_identifier::text FROM pg_control_system()";
    if let Some(row) = admin.query_opt(identifier, &[]).ok().flatten() {
        found.insert("system_identifier".to_owned(), row.get(0));
    }
    for name in SETTINGS {
        let value = admin
            .query_opt(AS_A_NEW_SESSION_HAS_IT, &[name])
            .ok()
            .flatten()
            .and_then(|row| row.get::<_, Option<String>>(0));
        if let Some(value) = value {
            found.insert(format!("setting.{name}"), value);
        }
    }
    for (key, path) in
        [("kernel", "/proc/sys/kernel/osrelease"), ("hostname", "/proc/sys/kernel/hostname")]
    {
        if let Ok(text) = std::fs::read_to_string(path) {
            found.insert(format!("driver.{key}"), text.trim().to_owned());
        }
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    found.insert("driver.cores".to_owned(), cores.to_string());
    found
}
