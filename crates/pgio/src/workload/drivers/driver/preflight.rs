//! What a driver finds out before it works: which server its admin session reaches, whether its host has what
//! the work needs, and where the cause lies if not.

use postgres::Client;

use crate::host::Host;
use crate::pg::{leftovers, server};
use crate::workload::command::{self, CommandError};
use crate::workload::device::{self, DeviceError};
use crate::workload::drivers::error::Fault;
use crate::workload::drivers::identity::server_name;
use crate::workload::drivers::messages::Work;
use crate::workload::error::EngineError;
use pgio_connect::{ConnectError, ConnectParams, Env};

/// Resolves the coordinator's parameters here: the password comes from this host's own sources.
pub(super) fn resolve_params(
    dsn: &str,
    application_name: &str,
) -> Result<ConnectParams, ConnectError> {
    let params = pgio_connect::resolve(dsn, &Env::from_process())?;
    Ok(params.with_application_name(application_name))
}

pub(super) fn open_admin(params: &ConnectParams) -> Result<Client, EngineError> {
    let mut admin = pgio_connect::connect(params).map_err(EngineError::Connect)?;
    let failed = |source| EngineError::Postgres { doing: "preparing the admin session", source };
    server::lift_limits(&mut admin).map_err(failed)?;
    admin.batch_execute("SET synchronous_commit = local").map_err(failed)?;
    Ok(admin)
}

/// Connects once and returns the name of the server that answers.
pub(super) fn reach(dsn: &str, application_name: &str) -> Result<String, EngineError> {
    let params = resolve_params(dsn, application_name).map_err(EngineError::Connect)?;
    // Outside a trial no lock of the run may protect it.
    let mut admin = open_admin(&params.with_application_name(leftovers::UNANNOUNCED))?;
    server_name(&mut admin)
        .map_err(|source| EngineError::Postgres { doing: "identifying the server", source })
}

/// Refuses work for which this host lacks something.
pub(super) fn check(work: &Work) -> Result<(), EngineError> {
    match work {
        Work::Client { .. } | Work::Mail { .. } => {}
        Work::Device { settings, path } => {
            device::Device::on_this_host(settings.clone(), path.clone()).check_place()?;
        }
        Work::Command { settings } => {
            command::check_programs(&settings.spec, command::Lines::Driver, &Host::local())?;
        }
    }
    Ok(())
}

/// Returns where the cause of an error lies.
pub(super) fn fault(error: &EngineError) -> Fault {
    match error {
        EngineError::Connect(_) => Fault::Connect,
        EngineError::TooFewConnections { .. }
        | EngineError::TooFewDescriptors { .. }
        | EngineError::Privilege { .. }
        | EngineError::Plan { .. }
        | EngineError::Pooled
        | EngineError::NotOurs(_)
        | EngineError::Device(
            DeviceError::Place(_) | DeviceError::NoFio { .. } | DeviceError::Refused { .. },
        )
        | EngineError::Command(CommandError::Missing { .. } | CommandError::Refused(_)) => {
            Fault::Requirements
        }
        _ => Fault::Work,
    }
}
