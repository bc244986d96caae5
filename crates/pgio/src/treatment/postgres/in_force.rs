//! Whether a setting of a condition is in force, although the server may show its value in another spelling.
//!
//! What values mean whatever their setting is in `pg::values`; here is what depends on the name: a list is shown with
//! the server's blanks and quotes. Pure; it asks no server. Next: the treatment, in the parent module.

use super::setting::is_list;
use crate::pg::values::{SettingDescription, is_current_value};

/// Whether the server runs with the value that was asked for.
pub(super) fn is_in_force(name: &str, found: &SettingDescription, asked: &str) -> bool {
    is_current_value(found, asked) || is_list(name) && elements(&found.setting).eq(elements(asked))
}

/// The elements of a list without their quotes, of which the server adds those that it needs.
fn elements(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(|element| element.trim().trim_matches('"'))
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
}
