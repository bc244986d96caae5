//! Why a command cannot run or its output cannot be used.

use std::time::Duration;

use super::output::Output;
use crate::host::called;
use crate::host::exec::ExecError;
use crate::pg::words;
use pgio_connect::ConnectError;

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("program `{program}` is not on {}: install it there, or write its path", called(host))]
    Missing { program: String, host: String },
    #[error("{name} {how}: {excerpt}")]
    Failed { name: String, how: String, excerpt: String, output: Box<Output> },
    #[error(
        "{name} did not end within {} s and was killed; raise {key}, or find the cause in its output: {excerpt}",
        limit.as_secs_f64()
    )]
    TimedOut {
        name: String,
        limit: Duration,
        key: &'static str,
        excerpt: String,
        output: Box<Output>,
    },
    #[error("metric `{name}`: {why}; end of {place}: {excerpt}")]
    Metric { name: String, why: String, place: String, excerpt: String },
    #[error(
        "schema {0} exists and was not created by pgio as this role: rename it, or set another schema in [workload]"
    )]
    NotOurs(String),
    #[error(
        "the condition sets {settings} in the command's sessions, but pgio saw no session with it: programs that use libpq take PGOPTIONS from the environment; for other programs, set it for all sessions, for example with ALTER ROLE"
    )]
    Unproven { settings: String },
    #[error(
        "{name} was {found} instead of {expected} in a session that began with the command's PGOPTIONS: a pooler that drops the options of sessions (ignore_startup_parameters of PgBouncer) may be in between; connect to the server itself"
    )]
    NotInForce { name: String, found: String, expected: String },
    #[error(
        "setup {0}: its sessions did not take search_path from PGOPTIONS, as programs that use libpq do; have the program use the schema by its own means, or set schema = \"\" and give it a database of its own"
    )]
    Elsewhere(String),
    #[error("{0}")]
    Refused(String),
    #[error("{doing} failed: {}", words::message(.source))]
    Postgres { doing: &'static str, source: pgio_connect::Error },
    #[error("cannot connect with the settings given to the command")]
    Connect(#[from] ConnectError),
    #[error("stopped")]
    Stopped,
    #[error(transparent)]
    Host(#[from] ExecError),
}

impl CommandError {
    /// Returns the output of the failed program.
    pub fn output(&self) -> Option<&Output> {
        match self {
            CommandError::Failed { output, .. } | CommandError::TimedOut { output, .. } => {
                Some(output)
            }
            _ => None,
        }
    }
}
