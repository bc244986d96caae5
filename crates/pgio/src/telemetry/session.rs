//! The sampling sessions: bounded, and where it can be in another database than the workload's.
//!
//! What a session reads and commits counts for its own database. In the database `postgres` it
//! stays out of the workload's BEFORE and AFTER; the views it reads show the whole server anyway.

use std::time::Duration;

use postgres::Client;

use crate::pg::connect::{self, ConnectError, ConnectParams};
use crate::pg::server::{self, ServerError};
use crate::pg::words;

const APART: &str = "postgres";
/// A sampler that hangs must end by itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// Parameters for sampling sessions. Tried out once, since the password file or pg_hba.conf may
/// let the role in to its own database alone.
pub(super) fn choose(params: &ConnectParams) -> ConnectParams {
    let mut own = params.clone();
    own.connect_timeout.get_or_insert(PATIENCE);
    let apart = own.clone().with_dbname(APART);
    if params.dbname != APART && connect::connect(&apart).is_ok() { apart } else { own }
}

pub(super) fn open(params: &ConnectParams) -> Result<Client, SessionError> {
    let mut client = connect::connect(params)?;
    server::lift_limits(&mut client)?;
    let limit = format!("SET statement_timeout = {}", PATIENCE.as_millis());
    client.batch_execute(&limit)?;
    Ok(client)
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("{}", words::said(.0))]
    Postgres(#[from] postgres::Error),
}
