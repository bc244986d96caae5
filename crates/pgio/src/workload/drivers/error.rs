//! Errors of drivers and of what starts them.

use pgio_link::LinkError;
use serde::{Deserialize, Serialize};

use crate::host::exec::ExecError;

/// Where the cause of a driver's failure lies; decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The server cannot be reached or refuses the login.
    Connect,
    /// The server does not meet the requirements.
    Requirements,
    /// Anything else.
    Work,
}

#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error(
        "{drivers} drivers are more than the workload has sessions ({sessions}): use fewer drivers, or raise sessions"
    )]
    MoreThanSessions { drivers: u32, sessions: usize },
    #[error("{connected} of {drivers} drivers have connected within {seconds} s{detail}")]
    Missing { connected: usize, drivers: u32, seconds: u64, detail: String },
    #[error("driver {rank} on {host}: {message}")]
    Failed { rank: u32, host: String, message: String, fault: Fault },
    #[error("driver {rank} on {host} was lost {}: {why}", if *.inside { "inside the window" } else { "before the window" })]
    Lost { rank: u32, host: String, why: String, inside: bool },
    #[error(
        "driver {rank} on {host} reached another server ({found}) than the coordinator ({expected}): write a host name that is the same on all machines into dsn"
    )]
    OtherServer { rank: u32, host: String, found: String, expected: String },
    #[error("{engine} starts the drivers, but `{program}` is not installed here: {hint}")]
    NoProgram { engine: &'static str, program: String, hint: &'static str },
    #[error("{0}")]
    Refused(String),
    #[error("the engine that starts the drivers ended: {0}")]
    Ended(String),
    #[error("the coordinator gave an unexpected order")]
    UnexpectedOrder,
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error(transparent)]
    Link(#[from] LinkError),
}
