//! Which PostgreSQL settings follow from how a server was built: from its version, and from options
//! of initdb.
//!
//! Used by `change`, which names the facts. Settings that initdb writes into postgresql.conf differ
//! between versions, so they are no difference of their own. The table errs by omission: what it lacks is named as different.

/// Settings that initdb writes whatever its options, and those of which a version reports that it chose the
/// value itself.
const WRITTEN: &[&str] = &[
    "autovacuum_worker_slots",
    "DateStyle",
    "default_text_search_config",
    "dynamic_shared_memory_type",
    "lc_messages",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "log_timezone",
    "max_connections",
    "max_stack_depth",
    "max_wal_size",
    "min_wal_size",
    "shared_buffers",
    "TimeZone",
    "wal_buffers",
];

/// Options of initdb, with the settings that they decide.
const OPTIONS: &[(&[&str], &[&str])] = &[
    (&["--data-checksums", "-k", "--no-data-checksums"], &["data_checksums"]),
    (&["--wal-segsize"], &["wal_segment_size", "min_wal_size", "max_wal_size", "wal_buffers"]),
    (&["--text-search-config", "-T"], &["default_text_search_config"]),
    (&["--lc-messages", "--locale", "--no-locale"], &["lc_messages"]),
    (&["--lc-monetary", "--locale", "--no-locale"], &["lc_monetary"]),
    (&["--lc-numeric", "--locale", "--no-locale"], &["lc_numeric"]),
    (&["--lc-time", "--locale", "--no-locale"], &["lc_time"]),
];

/// Whether the setting may differ between two versions that were set up alike. Checksums are not among
/// these: users who compare versions must know them.
pub(super) fn follows_from_version(setting: &str) -> bool {
    WRITTEN.contains(&setting)
}

/// Whether an option of initdb, such as `--wal-segsize` with the value `64`, decides the setting.
pub(super) fn follows_from_initdb(setting: &str, option: &str, value: &str) -> bool {
    let of_table = |(options, settings): &(&[&str], &[&str])| {
        options.contains(&option) && settings.contains(&setting)
    };
    let is_set = ["-c", "--set"].contains(&option)
        && value.split_once('=').is_some_and(|(name, _)| name.trim().eq_ignore_ascii_case(setting));
    is_set || OPTIONS.iter().any(of_table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initdb_options_explain_only_the_settings_they_decide() {
        assert!(follows_from_initdb("wal_segment_size", "--wal-segsize", "64"));
        assert!(follows_from_initdb("data_checksums", "-k", ""));
        assert!(!follows_from_initdb("data_checksums", "--wal-segsize", "64"));
        assert!(follows_from_initdb("work_mem", "--set", "work_mem=8MB"));
        assert!(!follows_from_initdb("work_mem", "--set", "fsync=off"));
        assert!(follows_from_version("shared_buffers") && !follows_from_version("data_checksums"));
    }
}
