//! Whether a setting of a condition is in force, although the server may show its value in another spelling.
//!
//! What values mean whatever their setting is in `pg::values`; here is what depends on the name: a list is shown with
//! the server's blanks and quotes, an automatic value as the number that the server computed. Pure; it asks no server.
//! Next: the treatment, in the parent module.

use super::list::same_line;
use crate::pg::values::{SettingDescription, is_current_value};

/// Settings for which the server computes a number when it starts if they have this value.
const AUTOMATIC: &[(&str, &str)] = &[
    ("commit_timestamp_buffers", "0"),
    ("io_max_concurrency", "-1"),
    ("subtransaction_buffers", "0"),
    ("transaction_buffers", "0"),
    ("wal_buffers", "-1"),
];

/// Sources of a number that the server computed, the first of one that a configuration file asks for.
const COMPUTED: &[&str] = &["override", "default"];

/// Whether the server runs with the value that was asked for.
pub(super) fn is_in_force(name: &str, found: &SettingDescription, asked: &str) -> bool {
    is_current_value(found, asked)
        || same_line(name, Some(&found.setting), Some(asked))
        || is_automatic(name, found, asked) && COMPUTED.contains(&found.source.as_str())
}

fn is_automatic(name: &str, found: &SettingDescription, asked: &str) -> bool {
    AUTOMATIC.iter().any(|(automatic, value)| {
        let as_set = SettingDescription { setting: (*value).to_owned(), ..found.clone() };
        *automatic == name && is_current_value(&as_set, asked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_in_force_with_other_blanks_and_quotes() {
        let in_force = |name: &str, shown: &str, asked: &str| {
            let found = SettingDescription {
                setting: shown.to_owned(),
                vartype: "string".to_owned(),
                ..SettingDescription::default()
            };
            is_in_force(name, &found, asked)
        };
        let libraries = |shown, asked| in_force("shared_preload_libraries", shown, asked);
        assert!(libraries("auto_explain, pg_stat_statements", "auto_explain,pg_stat_statements"));
        assert!(libraries("a, \"$libdir/x\", \"Upper\"", "a,$libdir/x , Upper"));
        assert!(libraries("\"Upper\"", "\"Upper\""));
        for other in ["a", "b, a", "a, b, c", "A, b", ""] {
            assert!(!libraries("a, b", other), "{other}");
        }
        assert!(in_force("unix_socket_directories", "/run, /tmp", "/run,/tmp"));
        assert!(!in_force("cluster_name", "a, b", "a,b"), "no list");
    }

    #[test]
    fn an_automatic_value_is_in_force_if_the_server_computed_the_number() {
        let in_force = |name: &str, source: &str, asked: &str| {
            let found = SettingDescription {
                setting: "2048".to_owned(),
                unit: Some("8kB".to_owned()),
                vartype: "integer".to_owned(),
                source: source.to_owned(),
                ..SettingDescription::default()
            };
            is_in_force(name, &found, asked)
        };
        assert!(in_force("wal_buffers", "override", "-1"), "set in a file");
        assert!(in_force("wal_buffers", "default", "-1"), "set nowhere, from 15 on");
        assert!(in_force("transaction_buffers", "override", "0"));
        assert!(!in_force("wal_buffers", "configuration file", "-1"), "16MB is set");
        assert!(!in_force("wal_buffers", "override", "64MB"));
        assert!(!in_force("transaction_buffers", "override", "-1"));
        assert!(!in_force("autovacuum_work_mem", "override", "-1"), "not computed");
        assert!(in_force("wal_buffers", "configuration file", "16MB"));
    }
}
