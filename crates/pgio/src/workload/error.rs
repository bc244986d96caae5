//! Errors of a window: one type for all kinds of work.
//!
//! An error of a specific kind (fio, a command, mail) is a [`WorkError`], and its kind converts it. A stop by the user
//! is always [`EngineError::Stopped`], so that callers check for it once.

use std::error::Error;
use std::{fmt, io};

use super::output::Output;
use crate::exit_code::{HasExitCode, INTERRUPTED, REFUSED, TRIAL};
use crate::pg::server::{ConnectionLimit, ServerError};
use crate::pg::session::Untrusted;
use crate::pg::words;
use pgio_connect::{ConnectError, WireError};
use pgio_results::model::Check;

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
    #[error("cannot take up work `{kind}`: {why}")]
    Part { kind: String, why: String },
    /// What did not happen in time.
    #[error("{0}")]
    Overdue(String),
    /// What a window of this kind requires.
    #[error("{0}")]
    Unsuited(&'static str),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Work(WorkError),
    #[error("stopped")]
    Stopped,
}

impl HasExitCode for EngineError {
    fn code(&self) -> u8 {
        match self {
            EngineError::Stopped => INTERRUPTED,
            EngineError::Connect(source) => source.code(),
            EngineError::Work(source) => source.code,
            EngineError::TooFewConnections { .. }
            | EngineError::TooFewDescriptors { .. }
            | EngineError::Privilege { .. }
            | EngineError::Pooled
            | EngineError::Plan { .. }
            | EngineError::NoScanTable
            | EngineError::Published(_)
            | EngineError::Clock(_)
            | EngineError::NotOurs(_)
            | EngineError::Untrusted(_) => REFUSED,
            EngineError::Postgres { .. }
            | EngineError::Wire { .. }
            | EngineError::Slice(_)
            | EngineError::NotInForce(_)
            | EngineError::ClockSetBack
            | EngineError::Thread { .. }
            | EngineError::Panicked
            | EngineError::Overdue(_)
            | EngineError::Unsuited(_)
            | EngineError::Part { .. }
            | EngineError::Server(_) => TRIAL,
        }
    }
}

/// An error of one kind of work.
#[derive(Debug)]
pub struct WorkError {
    /// The exit code.
    pub code: u8,
    /// What the program that failed wrote.
    pub output: Option<Box<Output>>,
    /// The check of a trial that lost the processes of which it was a part, and so measured nothing.
    pub(crate) lost: Option<Check>,
    pub(crate) error: Box<dyn Error + Send + Sync>,
}

impl WorkError {
    pub fn new(error: impl HasExitCode) -> WorkError {
        WorkError { code: error.code(), output: None, lost: None, error: Box::new(error) }
    }
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for WorkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl EngineError {
    /// Returns the error of one kind of work, if it is one.
    pub fn work<E: Error + 'static>(&self) -> Option<&E> {
        match self {
            EngineError::Work(work) => work.error.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the check of a trial that lost processes that did its work.
    pub fn lost(&self) -> Option<&Check> {
        match self {
            EngineError::Work(work) => work.lost.as_ref(),
            _ => None,
        }
    }

    /// Returns the output of the program that failed.
    pub fn output(&self) -> Option<&Output> {
        match self {
            EngineError::Work(work) => work.output.as_deref(),
            _ => None,
        }
    }
}
