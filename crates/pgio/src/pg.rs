//! PostgreSQL: a server's version and settings ([`server`], [`values`]), its [`counters`] and standbys ([`replication`]),
//! sessions left by a killed run ([`leftovers`]), private servers ([`private`]), stopping and starting the user's server
//! ([`control`]), and error messages ([`words`]). Every session is opened by [`session`], over the crate `pgio_connect`.
//!
//! Names, comments and statements assembled from files are quoted here and nowhere else; values are sent as parameters.
//!
//! This module does not depend on the workload. Next: `dataset` loads through it, `workload` runs on
//! it.

pub mod control;
pub mod counters;
pub mod leftovers;
pub mod private;
pub mod replication;
pub mod server;
pub mod session;
pub mod values;
pub mod words;

use crate::host::exec::CommandLine;

/// A function for scripts: `postmaster_of PID`. The one rule by which processes of a server are known on its host.
pub const POSTMASTER_OF: &str = include_str!("pg/postmaster.sh");

/// Returns the command that prints the first process of the server that a process belongs to; it fails if that is no
/// process of PostgreSQL.
pub fn postmaster_of(pid: i32) -> CommandLine {
    let script = format!("{POSTMASTER_OF}postmaster_of \"$1\"");
    CommandLine::new("sh").args(["-c", &script, "sh", &pid.to_string()])
}

/// A quoted identifier, for any name.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A schema-qualified table name, which neither search_path nor a temporary table can redirect.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", identifier(schema), identifier(name))
}

/// A quoted string constant, independent of standard_conforming_strings.
pub fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!("E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

/// Replaces each `{name}` in the template, in the given order, so that a value may contain names
/// that come later. The caller has quoted the values.
pub fn fill(template: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(template.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_are_kept() {
        assert_eq!(qualified("My\"schema", "pgio1"), "\"My\"\"schema\".\"pgio1\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\'b"), "E'a\\\\''b'");
    }

    #[test]
    fn fill_does_not_replace_placeholders_inside_values() {
        assert_eq!(fill("{a}-{b}", &[("a", "x{b}"), ("b", "y")]), "xy-y");
    }
}
