//! Converts the driver's errors into errors with hints for the user.
//!
//! The driver does not expose the kind of its errors. Without a SQLSTATE or a known cause, this
//! module compares their text; the integration tests detect a change of it.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use postgres::error::SqlState;

use crate::tls;
use crate::{ConnectError, ConnectParams, ConnectWarning, Endpoint, Excess, TlsUnsupported};
use printable::{self, MAX_MESSAGE, truncate};

pub(crate) const NO_TLS: &str = "the server does not support TLS; set ssl=on on the server, or sslmode=prefer in the connection";

/// One connection attempt to one address.
pub(crate) struct Attempt<'a> {
    pub(crate) params: &'a ConnectParams,
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) address: Option<SocketAddr>,
}

impl Attempt<'_> {
    pub(crate) fn at(&self) -> String {
        match (self.endpoint, self.address) {
            (Endpoint::Tcp { host, .. }, Some(address))
                if host.split('%').next() != Some(&*address.ip().to_string()) =>
            {
                format!("{} ({})", self.endpoint, address.ip())
            }
            _ => self.endpoint.to_string(),
        }
    }
}

pub(crate) fn classify(error: postgres::Error, attempt: &Attempt<'_>) -> ConnectError {
    let at = attempt.at();
    if let Some(db) = error.as_db_error() {
        return refused(db.code(), db.message(), db.routine().unwrap_or_default(), attempt);
    }
    if let Some(excess) = find::<Excess>(&error) {
        return ConnectError::Excess { at, source: excess.clone() };
    }
    if let Some(limit) = attempt.params.connect_timeout
        && find::<io::Error>(&error).is_some_and(|e| e.kind() == io::ErrorKind::TimedOut)
    {
        return ConnectError::TimedOut { at, seconds: limit.as_secs() };
    }
    if let Some(unsupported) = find::<TlsUnsupported>(&error) {
        return ConnectError::TlsUnsupported(unsupported.clone());
    }
    if let Some(tls) = find::<rustls::Error>(&error) {
        return tls::failure(at, tls, &attempt.params.ssl);
    }
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    match error.to_string().as_str() {
        "error connecting to server" => {
            let kind = error.source().and_then(|e| e.downcast_ref()).map(io::Error::kind);
            unreachable(kind, cause, attempt)
        }
        "error performing TLS handshake" if cause == "server does not support TLS" => {
            ConnectError::Tls { at, problem: NO_TLS.to_owned() }
        }
        "error performing TLS handshake" => ConnectError::Tls { at, problem: cause },
        "invalid configuration" if cause == "password missing" => no_password(attempt),
        "authentication error" => {
            let user = attempt.params.user.clone();
            ConnectError::Authentication { at, user, message: cause, hint: String::new() }
        }
        _ => ConnectError::Protocol { at, source: Box::new(error) },
    }
}

/// Converts the server's ErrorResponse during login.
pub(crate) fn refused(
    code: &SqlState,
    message: &str,
    routine: &str,
    attempt: &Attempt<'_>,
) -> ConnectError {
    let (at, params) = (attempt.at(), attempt.params);
    let message = printable::line(&truncate(message, MAX_MESSAGE)).into_owned();
    if *code == SqlState::INVALID_CATALOG_NAME {
        ConnectError::NoDatabase { at, name: params.dbname.clone() }
    } else if *code == SqlState::TOO_MANY_CONNECTIONS {
        // The message may be translated; the function that refuses is not.
        let raise = match routine {
            "InitializeSessionUserId" => format!("the CONNECTION LIMIT of role `{}`", params.user),
            "CheckMyDatabase" => format!("the CONNECTION LIMIT of database `{}`", params.dbname),
            _ => "max_connections".to_owned(),
        };
        ConnectError::TooManyConnections { at, message, raise }
    } else if *code == SqlState::CANNOT_CONNECT_NOW {
        ConnectError::NotReady { at, message }
    } else if *code == SqlState::INVALID_PASSWORD {
        ConnectError::Authentication {
            at,
            user: params.user.clone(),
            message,
            hint: origin(attempt),
        }
    } else if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
        let hint = "; check pg_hba.conf and the role on the server".to_owned();
        ConnectError::Authentication { at, user: params.user.clone(), message, hint }
    } else {
        ConnectError::Server { at, code: code.code().to_owned(), message }
    }
}

/// A hint that names the source of the rejected password.
fn origin(attempt: &Attempt<'_>) -> String {
    match (&attempt.params.password, &attempt.params.passfile.path) {
        (None, Some(path)) => format!(
            "; the password is from {}: correct its line or set PGPASSWORD",
            path.display()
        ),
        _ => {
            "; check the password in PGPASSWORD, the connection string, the service file or ~/.pgpass"
                .to_owned()
        }
    }
}

pub(crate) fn no_password(attempt: &Attempt<'_>) -> ConnectError {
    let at = attempt.at();
    let user = attempt.params.user.clone();
    let passfile = attempt.params.warnings.iter().find(|warning| {
        use ConnectWarning::{PassfileExposed, PassfileNotPlain, PassfileUnreadable};
        matches!(warning, PassfileExposed(_) | PassfileNotPlain(_) | PassfileUnreadable(..))
    });
    match passfile {
        Some(trouble) => ConnectError::Passfile { at, user, trouble: trouble.clone() },
        None => {
            let message = "the server requires a password, and none was given".to_owned();
            let hint = match &attempt.params.passfile.path {
                Some(path) => format!("; no line of {} matches", path.display()),
                None => "; use ~/.pgpass, PGPASSWORD or a service file".to_owned(),
            };
            ConnectError::Authentication { at, user, message, hint }
        }
    }
}

pub(crate) fn unreachable(
    kind: Option<io::ErrorKind>,
    problem: String,
    attempt: &Attempt<'_>,
) -> ConnectError {
    let check = what_to_check(kind, attempt.endpoint);
    ConnectError::Unreachable { at: attempt.at(), problem, check, kind }
}

fn what_to_check(kind: Option<io::ErrorKind>, endpoint: &Endpoint) -> &'static str {
    match (endpoint, kind) {
        (Endpoint::Socket { .. }, Some(io::ErrorKind::PermissionDenied)) => {
            "unix_socket_permissions on the server"
        }
        (Endpoint::Socket { .. }, _) => {
            "that the server runs on this machine, its port, and unix_socket_directories"
        }
        (Endpoint::Tcp { .. }, Some(io::ErrorKind::ConnectionRefused)) => {
            "that the server is running, its port, and listen_addresses"
        }
        (Endpoint::Tcp { .. }, _) => "the address, the network, and firewalls",
    }
}

/// Searches the causes; an `io::Error` does not return the error that it wraps from `source`.
fn find<E: Error + 'static>(error: &postgres::Error) -> Option<&E> {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(found) = wrapped.and_then(|inner| inner.downcast_ref()) {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
