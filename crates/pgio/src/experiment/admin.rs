//! The connection that a run reads and changes with.

use postgres::{Client, SimpleQueryMessage};

use super::error::LiveError;
use crate::pg::connect::{self, ConnectParams};
use crate::pg::leftovers;
use crate::pg::server::{self, Server};
use crate::workload::EngineError;

/// Opens the connection that a run reads and changes with, says that the run lives, and ends what
/// killed ones left, which would hold the tables.
pub fn open_admin(params: &ConnectParams, run_id: &str) -> Result<(Client, Server), LiveError> {
    let unannounced = params.clone().with_application_name(leftovers::UNANNOUNCED);
    let mut admin = connect::connect(&unannounced)?;
    server::lift_limits(&mut admin)?;
    check_unpooled(&mut admin, params)?;
    let server = server::inspect(&mut admin, &params.describe())?;
    // What it makes and drops is no part of the work, and must not wait for a standby that is gone.
    admin.batch_execute("SET synchronous_commit = local")?;
    leftovers::announce(&mut admin, run_id)?;
    leftovers::terminate(&mut admin)?;
    Ok((admin, server))
}

/// As [`open_admin`] for whoever only looks: announces nothing, ends nobody's session, and can change
/// nothing.
pub fn open_reader(params: &ConnectParams) -> Result<(Client, Server), LiveError> {
    let unannounced = params.clone().with_application_name(leftovers::UNANNOUNCED);
    let mut reader = connect::connect(&unannounced)?;
    server::lift_limits(&mut reader)?;
    check_unpooled(&mut reader, params)?;
    let server = server::inspect(&mut reader, &params.describe())?;
    reader.batch_execute("SET default_transaction_read_only = on")?;
    Ok((reader, server))
}

/// Two idle connections of a transaction-pooling proxy are served by one process in turn. Asked in
/// the simple protocol, since prepared statements fail there in ways that say nothing.
pub fn check_unpooled(admin: &mut Client, params: &ConnectParams) -> Result<(), LiveError> {
    let pid = |client: &mut Client| -> Option<String> {
        let messages = client.simple_query("SELECT pg_backend_pid()").ok()?;
        messages.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })
    };
    // One that is not let in proves nothing; what it needs is checked later.
    let Ok(mut second) = connect::connect(params) else { return Ok(()) };
    match (pid(admin), pid(&mut second)) {
        (Some(first), Some(second)) if first == second => Err(EngineError::Pooled.into()),
        _ => Ok(()),
    }
}
