//! What a driver finds out before it works: which server its admin session reaches, whether its host has what
//! the work needs, and where the cause lies if not.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::messages::{Fault, server_name};
use crate::exit_code::{REFUSED, USAGE};
use crate::host::stop::Stop;
use crate::pg::{leftovers, session};
use crate::workload::error::EngineError;
use pgio_connect::{ConnectError, ConnectParams, Env, RootCert, SslMode};

/// How long a driver whose host has no route to the server tries again. After the network was down, Linux says so
/// until its last search for the server's address has failed: three requests, a second apart.
const NO_ROUTE_TIMEOUT: Duration = Duration::from_secs(4);
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Resolves the coordinator's parameters here: the password comes from this host's own sources.
pub(super) fn resolve_params(
    dsn: &str,
    application_name: &str,
) -> Result<ConnectParams, ConnectError> {
    let params = pgio_connect::resolve(dsn, &Env::from_process())?;
    check_root(&params)?;
    Ok(params.with_application_name(application_name))
}

/// Refuses a missing root certificate. Below verify-ca libpq connects without it, but drivers must not accept a
/// server that the coordinator would not.
fn check_root(params: &ConnectParams) -> Result<(), ConnectError> {
    let mode = params.ssl.mode;
    // With less, the coordinator itself may go on without TLS.
    if mode < SslMode::Require || params.is_by_socket() {
        return Ok(());
    }
    let path = match &params.ssl.root {
        RootCert::File(path) if !path.exists() => path.clone(),
        RootCert::None if mode >= SslMode::VerifyCa => PathBuf::from("~/.postgresql/root.crt"),
        RootCert::File(_) | RootCert::None | RootCert::System => return Ok(()),
    };
    let problem = "does not exist on this host, so the server's certificate cannot be checked; \
                   copy the file here, or set sslrootcert to a file that every host has";
    Err(ConnectError::TlsFile { path, problem: problem.to_owned() })
}

pub(super) fn open_admin(params: &ConnectParams, stop: &Stop) -> Result<Client, EngineError> {
    let mut admin = connect(params, stop).map_err(EngineError::Connect)?;
    let failed = |source| EngineError::Postgres { doing: "preparing the admin session", source };
    admin.batch_execute("SET synchronous_commit = local").map_err(failed)?;
    Ok(admin)
}

fn connect(params: &ConnectParams, stop: &Stop) -> Result<Client, ConnectError> {
    let begun = Instant::now();
    loop {
        let opened = session::open(params);
        let may_pass = opened.as_ref().is_err_and(ConnectError::has_no_route);
        if !may_pass || begun.elapsed() >= NO_ROUTE_TIMEOUT || stop.requested() {
            return opened;
        }
        thread::sleep(RETRY_DELAY);
    }
}

/// Connects once and returns the name of the server that answers.
pub(super) fn reach(dsn: &str, application_name: &str) -> Result<String, EngineError> {
    let params = resolve_params(dsn, application_name).map_err(EngineError::Connect)?;
    // Outside a trial no lock of the run may protect it.
    let params = params.with_application_name(leftovers::UNANNOUNCED);
    let mut admin = open_admin(&params, &Stop::new())?;
    server_name(&mut admin)
        .map_err(|source| EngineError::Postgres { doing: "identifying the server", source })
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
        | EngineError::Untrusted(_) => Fault::Requirements,
        EngineError::Work(error) if [USAGE, REFUSED].contains(&error.code) => Fault::Requirements,
        _ => Fault::Work,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_without_the_root_certificate_is_refused() {
        let refusal = |rest: &str| {
            let text = format!("user=u dbname=d {rest}");
            let params = pgio_connect::resolve(&text, &Env::default()).unwrap();
            check_root(&params).err().map(|error| error.to_string())
        };
        for mode in ["require", "verify-ca", "verify-full"] {
            let refused = refusal(&format!("host=h sslmode={mode} sslrootcert=/none/ca.crt"));
            let expected = "TLS file /none/ca.crt: does not exist on this host";
            assert!(refused.is_some_and(|text| text.starts_with(expected)), "{mode}");
        }
        // The coordinator verifies by its default file, this host has none.
        let refused = refusal("host=h sslmode=verify-ca").unwrap();
        assert!(refused.contains("~/.postgresql/root.crt"), "{refused}");

        for accepted in [
            "host=h sslmode=prefer",
            "host=h sslmode=prefer sslrootcert=/none/ca.crt",
            "host=h sslmode=require",
            "host=h sslrootcert=system",
            "host=h sslmode=disable sslrootcert=/none/ca.crt",
            "host=/run/pg sslmode=require sslrootcert=/none/ca.crt",
        ] {
            assert_eq!(refusal(accepted), None, "{accepted}");
        }
    }
}
