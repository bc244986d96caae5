//! The environment as found: what a reader needs to judge a figure, and what must be the same in
//! another experiment, condition or trial for a comparison.
//!
//! [`describe`] is for the manifest, [`read_settings`] and [`read_host`] for each trial, before and after its window.
//! Settings that can hold a secret (connection strings, commands, keys) are never read.

use std::collections::BTreeMap;

use pgio_connect::Client;

use crate::feature::{self, Held};
use crate::pg::server::{self, Server, system_identifier};
use crate::pg::values;
use crate::pg::words::Shown;
use crate::telemetry::{Standbys, TelemetrySources};
use pgio_results::change::fact;
use pgio_results::model::Check;

/// Settings that affect storage and replication.
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

/// Reads settings as a new session has them: this connection has set synchronous_commit for itself.
const NEW_SESSION_VALUE: &str = "SELECT CASE name WHEN 'synchronous_commit' THEN reset_val \
     ELSE current_setting(name) END FROM pg_settings WHERE name = $1";

pub fn describe(admin: &mut Client, server: &Server) -> BTreeMap<String, String> {
    let mut found = BTreeMap::from([
        ("server_version".to_owned(), server.info.version.clone()),
        ("target".to_owned(), server.info.target.clone()),
        ("pgio".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
    ]);
    // If the role may not read it, fewer facts identify the server.
    if let Ok(identifier) = system_identifier(admin) {
        found.insert("system_identifier".to_owned(), identifier);
    }
    for name in SETTINGS {
        let value = admin
            .query_opt(NEW_SESSION_VALUE, &[name])
            .ok()
            .flatten()
            .and_then(|row| row.try_get::<_, Option<Shown>>(0).ok()?);
        if let Some(Shown(value)) = value {
            found.insert(fact::setting(name), value);
        }
    }
    if server::clock_reading(admin).is_some_and(|cost| cost >= server::SLOW_CLOCK) {
        found.insert(fact::SLOW_CLOCK.to_owned(), "yes".to_owned());
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

/// Returns what commands of pgio hold on this machine beyond their end.
pub fn held() -> Vec<Held> {
    feature::all().iter().filter_map(|feature| (feature.held)()).collect()
}

const NON_DEFAULT_SETTINGS: &str = include_str!("sql/non_default_settings.sql");

/// Reads the server's non-default settings.
pub fn read_settings(admin: &mut Client) -> Result<BTreeMap<String, String>, pgio_connect::Error> {
    let rows = admin.query(NON_DEFAULT_SETTINGS, &[&values::WORDS.join("|")])?;
    let setting = |row: &pgio_connect::Row| {
        Ok((fact::setting(row.try_get(0)?), row.try_get::<_, Shown>(1)?.into()))
    };
    rows.iter().map(setting).collect()
}

/// Reads the facts of the server's host and, before the window, also the facts of standbys.
pub fn read_host(
    sources: Option<&TelemetrySources>,
    standbys: Standbys,
) -> BTreeMap<String, String> {
    sources.and_then(|s| s.environment(standbys)).unwrap_or_default()
}

/// Checks that nothing changed inside the window.
pub fn check_unchanged(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Check {
    const ID: &str = "environment-changed";
    let value = |of: &BTreeMap<String, String>, name: &str| {
        of.get(name).cloned().unwrap_or_else(|| "its default".to_owned())
    };
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let changed: Vec<String> = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name))
        // A fact that a host did not report the second time is unknown, not changed.
        .filter(|name| {
            fact::is_setting(name) || before.contains_key(*name) && after.contains_key(*name)
        })
        .map(|name| format!("{name} was {} and then {}", value(before, name), value(after, name)))
        .collect();
    if changed.is_empty() {
        Check::ok(ID, "settings and host were the same before and after the window")
    } else {
        Check::invalid(ID, changed.join("; "), "find out what changes it, then run again")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::CheckVerdict;

    #[test]
    fn a_changed_environment_is_reported_with_both_values() {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let before = map(&[("setting.work_mem", "4MB"), ("data.scheduler", "none")]);
        assert_eq!(check_unchanged(&before, &before).verdict, CheckVerdict::Ok);
        let after = map(&[("data.scheduler", "bfq"), ("setting.work_mem", "4MB")]);
        let check = check_unchanged(&before, &after);
        assert_eq!(check.verdict, CheckVerdict::Invalid);
        assert_eq!(check.message, "data.scheduler was none and then bfq");
        let reset = check_unchanged(&before, &map(&[("data.scheduler", "none")]));
        assert_eq!(reset.message, "setting.work_mem was 4MB and then its default");
    }
}
