//! PostgreSQL: a server's version, settings, counters and data directories ([`server`]), the cost of its
//! clock ([`clock`]), sessions left by a killed run ([`leftovers`]), private servers ([`private`]),
//! stopping and starting the user's server ([`control`]), its settings ([`values`], [`pending`]), quoting in SQL
//! text ([`quote`]), whose objects may be used ([`trust`]), and error messages ([`words`]). Every session is opened by [`session`], over the crate
//! `pgio_connect`.
//!
//! This module does not depend on the workload. Next: `dataset` loads through it, `workload` runs on
//! it.

pub mod clock;
pub mod control;
pub mod leftovers;
pub mod pending;
pub mod private;
pub mod quote;
pub mod secrets;
pub mod server;
pub mod session;
pub mod standby_names;
pub mod trust;
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
