//! The server that the samplers watch, and their sessions there: with a statement timeout and, if possible, in another database than
//! the workload's.
//!
//! Reads and commits of a session count for its own database. In the database `postgres` they do
//! not disturb the workload's BEFORE and AFTER statistics, and the views show the whole server
//! anyway.

use std::time::Duration;

use postgres::Client;

use crate::pg::server::ServerError;
use crate::pg::{session, words};
use pgio_connect::{ConnectError, ConnectParams};
use pgio_results::Warning;

const SEPARATE_DATABASE: &str = "postgres";
/// Connect and statement timeout, so that a sampler cannot hang.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Chooses the connection parameters for sampling sessions. Tests the separate database once,
/// because the password file or pg_hba.conf may allow the role only its own database.
pub(super) fn choose(params: &ConnectParams) -> ConnectParams {
    let mut own = params.clone();
    own.connect_timeout.get_or_insert(TIMEOUT);
    let separate = own.clone().with_dbname(SEPARATE_DATABASE);
    let usable = params.dbname != SEPARATE_DATABASE && session::open(&separate).is_ok();
    if usable { separate } else { own }
}

pub(super) fn open(params: &ConnectParams) -> Result<Client, SessionError> {
    let mut client = session::open(params)?;
    let limit = format!("SET statement_timeout = {}", TIMEOUT.as_millis());
    client.batch_execute(&limit)?;
    Ok(client)
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("{}", words::message(.0))]
    Postgres(#[from] postgres::Error),
}

/// Timeout for a sampler to return its samples.
pub(super) const SAMPLER_TIMEOUT: Duration = Duration::from_secs(6);

/// The server under observation.
#[derive(Debug, Clone)]
pub(super) struct WatchedServer {
    pub(super) params: ConnectParams,
    pub(super) version_num: u32,
    /// The database of the workload.
    pub(super) database: String,
}

pub(super) fn not_observed(what: &str, why: &str) -> Warning {
    Warning::new(format!("{what} were not observed"), why, "check the server log, then run again")
}
