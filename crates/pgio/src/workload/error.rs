//! Errors of a window: one type for all kinds of work.
//!
//! An error of a specific kind (fio, a command, mail) becomes a variant here. A stop by the user is
//! always [`EngineError::Stopped`], so that callers check for it once.

use std::io;

use super::command::{CommandError, Output};
use super::device::DeviceError;
use super::drivers::DriverError;
use crate::pg::server::{ConnectionLimit, ServerError};
use crate::pg::session::Untrusted;
use crate::pg::words;
use pgio_connect::{ConnectError, WireError};
use pgio_mail::MailError;

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("a session cannot connect")]
    Connect(#[source] ConnectError),
    #[error(
        "{needed} sessions are needed, but the {} has only {free} of {max} connections free: lower sessions (or NUM_SCHEMAS × NUM_THREADS), or raise {limit}",
        .limit.holder()
    )]
    TooFewConnections { needed: u32, free: i64, max: i64, limit: ConnectionLimit },
    #[error(
        "{needed} sessions need more open files than this process can open ({limit}): raise `ulimit -Hn`, or run fewer sessions"
    )]
    TooFewDescriptors { needed: u32, limit: u64 },
    #[error(
        "role {role} has no privilege to {what}, which its sessions need; run: GRANT {grant} TO {role}"
    )]
    Privilege { role: String, what: String, grant: String },
    #[error("{doing} failed in a session: {}", words::message(.source))]
    Postgres { doing: &'static str, source: pgio_connect::Error },
    #[error("{doing} failed in a session: {source}")]
    Wire { doing: &'static str, source: WireError },
    #[error(
        "`{statement}` would run as {found}, not as {wanted}: ANALYZE the table, or choose another access path"
    )]
    Plan { statement: String, found: String, wanted: String },
    #[error(
        "a transaction pooler between pgio and the server shares server processes among sessions; connect directly to PostgreSQL"
    )]
    Pooled,
    #[error(
        "table {0} exists but was not created by pgio as this role: rename it, or let the workload use another schema by the role's search_path"
    )]
    NotOurs(String),
    #[error("{0}; {remedy}", remedy = Untrusted::REMEDY)]
    Untrusted(Untrusted),
    #[error(
        "SCAN_PCT requires the table pgio_scan, which does not exist: load it with `pgio setup --scan-scale SIZE`"
    )]
    NoScanTable,
    #[error(
        "publication `{0}` replicates updates or deletes of pgio's tables, which have no replica identity, so that the server refuses them; use a database without it, or publish tables by name (REPLICA IDENTITY FULL would add the old rows to the WAL that is measured)"
    )]
    Published(String),
    #[error("cannot parse the result of a slice: {0}")]
    Slice(String),
    #[error("{0} before the sessions were started")]
    NotInForce(String),
    #[error("{0}: run a time service on the server's host, or run each server alone")]
    Clock(String),
    #[error(
        "the counted part of a slice began before the end of its guard; find out whether the server's clock was set back"
    )]
    ClockSetBack,
    #[error("cannot start a thread for {purpose}: {source}")]
    Thread { purpose: &'static str, source: io::Error },
    #[error("a thread of the workload panicked; see its message above")]
    Panicked,
    /// What did not happen in time.
    #[error("{0}")]
    Overdue(String),
    /// What a window of this kind requires.
    #[error("{0}")]
    Unsuited(&'static str),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Device(DeviceError),
    #[error(transparent)]
    Command(CommandError),
    #[error(transparent)]
    Mail(#[from] MailError),
    #[error(transparent)]
    Drivers(#[from] DriverError),
    #[error("stopped")]
    Stopped,
}

impl EngineError {
    /// Returns the output of the program that failed.
    pub fn output(&self) -> Option<&Output> {
        match self {
            EngineError::Command(error) => error.output(),
            _ => None,
        }
    }
}

impl From<DeviceError> for EngineError {
    fn from(error: DeviceError) -> EngineError {
        match error {
            DeviceError::Stopped => EngineError::Stopped,
            other => EngineError::Device(other),
        }
    }
}

impl From<CommandError> for EngineError {
    fn from(error: CommandError) -> EngineError {
        match error {
            CommandError::Stopped => EngineError::Stopped,
            other => EngineError::Command(other),
        }
    }
}
