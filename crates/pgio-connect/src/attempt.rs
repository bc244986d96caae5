//! One attempt to log in at one address, and its errors, each with a hint for the user.

use std::io;

use tokio_postgres::error::SqlState;

use super::error::{ConnectError, ConnectWarning};
use super::limits::Excess;
use super::params::ConnectParams;
use super::socket::{Endpoint, Route};
use super::tls;
use printable::{self, MAX_MESSAGE, truncate};

#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) params: &'a ConnectParams,
    pub(crate) route: &'a Route,
}

impl Attempt<'_> {
    pub(crate) fn at(&self) -> String {
        self.route.to_string()
    }

    /// The socket could not be connected.
    pub(crate) fn unreachable(&self, error: &io::Error) -> ConnectError {
        let kind = error.kind();
        match self.params.connect_timeout {
            Some(limit) if kind == io::ErrorKind::TimedOut => {
                ConnectError::TimedOut { at: self.at(), seconds: limit.as_secs() }
            }
            _ => ConnectError::Unreachable {
                at: self.at(),
                problem: error.to_string(),
                check: what_to_check(kind, &self.route.endpoint),
                kind: Some(kind),
            },
        }
    }

    /// The connection failed, or the server broke the protocol.
    pub(crate) fn broken(&self, error: io::Error) -> ConnectError {
        let at = self.at();
        let inner = error.get_ref();
        if let Some(excess) = inner.and_then(|inner| inner.downcast_ref::<Excess>()) {
            return ConnectError::Excess { at, source: excess.clone() };
        }
        if let Some(tls) = inner.and_then(|inner| inner.downcast_ref()) {
            return tls::failure(at, tls, &self.params.ssl);
        }
        match self.params.connect_timeout {
            Some(limit) if is_timeout(&error) => {
                ConnectError::TimedOut { at, seconds: limit.as_secs() }
            }
            _ => ConnectError::Protocol { at, source: Box::new(error) },
        }
    }

    /// A statement at the begin of the session failed.
    pub(crate) fn failed(&self, error: tokio_postgres::Error) -> ConnectError {
        if let Some(sent) = error.as_db_error() {
            let routine = sent.routine().unwrap_or_default();
            return self.refused(sent.code(), sent.message(), routine);
        }
        if error.is_closed() {
            return self.broken(io::ErrorKind::UnexpectedEof.into());
        }
        let text = error.to_string();
        match error.into_source().map(|source| source.downcast::<io::Error>()) {
            Some(Ok(error)) => self.broken(*error),
            _ => self.broken(io::Error::other(text)),
        }
    }

    /// The server's ErrorResponse.
    pub(crate) fn refused(&self, code: &SqlState, message: &str, routine: &str) -> ConnectError {
        let (at, user, dbname) = (self.at(), &self.params.user, &self.params.dbname);
        let message = printable::line(&truncate(message, MAX_MESSAGE)).into_owned();
        if *code == SqlState::INVALID_CATALOG_NAME {
            ConnectError::NoDatabase { at, name: dbname.clone() }
        } else if *code == SqlState::TOO_MANY_CONNECTIONS {
            // The message may be translated; the function that refuses is not.
            let raise = match routine {
                "InitializeSessionUserId" => format!("the CONNECTION LIMIT of role `{user}`"),
                "CheckMyDatabase" => format!("the CONNECTION LIMIT of database `{dbname}`"),
                _ => "max_connections".to_owned(),
            };
            ConnectError::TooManyConnections { at, message, raise }
        } else if *code == SqlState::CANNOT_CONNECT_NOW {
            ConnectError::NotReady { at, message }
        } else if *code == SqlState::INVALID_PASSWORD {
            let hint = self.password_source();
            ConnectError::Authentication { at, user: user.clone(), message, hint }
        } else if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
            let hint = "; check pg_hba.conf and the role on the server".to_owned();
            ConnectError::Authentication { at, user: user.clone(), message, hint }
        } else {
            ConnectError::Server { at, code: code.code().to_owned(), message }
        }
    }

    /// A hint that names the source of the rejected password.
    fn password_source(&self) -> String {
        match (&self.params.password, &self.params.passfile.path) {
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

    pub(crate) fn no_password(&self) -> ConnectError {
        let (at, user) = (self.at(), self.params.user.clone());
        let passfile = self.params.warnings.iter().find(|warning| {
            use ConnectWarning::{PassfileExposed, PassfileNotPlain, PassfileUnreadable};
            matches!(warning, PassfileExposed(_) | PassfileNotPlain(_) | PassfileUnreadable(..))
        });
        match passfile {
            Some(trouble) => ConnectError::Passfile { at, user, trouble: trouble.clone() },
            None => {
                let message = "the server requires a password, and none was given".to_owned();
                let hint = match &self.params.passfile.path {
                    Some(path) => format!("; no line of {} matches", path.display()),
                    None => "; use ~/.pgpass, PGPASSWORD or a service file".to_owned(),
                };
                ConnectError::Authentication { at, user, message, hint }
            }
        }
    }
}

/// Whether a deadline ended a wait.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn what_to_check(kind: io::ErrorKind, endpoint: &Endpoint) -> &'static str {
    match (endpoint, kind) {
        (Endpoint::Socket { .. }, io::ErrorKind::PermissionDenied) => {
            "unix_socket_permissions on the server"
        }
        (Endpoint::Socket { .. }, _) => {
            "that the server runs on this machine, its port, and unix_socket_directories"
        }
        (Endpoint::Tcp { .. }, io::ErrorKind::ConnectionRefused) => {
            "that the server is running, its port, and listen_addresses"
        }
        (Endpoint::Tcp { .. }, _) => "the address, the network, and firewalls",
    }
}
