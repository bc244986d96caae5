//! Errors between a connection string and a session, each with a hint.
//!
//! No variant contains a password or the text of a connection string. Warnings are for problems
//! in spite of which libpq connects.
//!
//! Next: `resolve` and `open` return these.

use std::fmt;
use std::io;
use std::path::PathBuf;

use tokio_postgres::error::SqlState;

use super::limits::Excess;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    #[error("invalid connection string {0}")]
    ConnectString(BadText),
    #[error("invalid value of {keyword} from {from}: {problem}")]
    BadValue { keyword: &'static str, from: Source, problem: String },
    #[error("{keyword} from {from} is not supported; {otherwise}")]
    Unsupported { keyword: &'static str, from: Source, otherwise: String },
    #[error("no service `{name}` in {}", join_paths(.looked_in))]
    ServiceNotFound { name: String, looked_in: Vec<PathBuf> },
    #[error("service file {}, line {line}: {problem}", .path.display())]
    ServiceFile { path: PathBuf, line: usize, problem: String },
    #[error("cannot read service file {}", .path.display())]
    ServiceFileUnreadable { path: PathBuf, source: io::Error },
    #[error("cannot determine the name of the operating system user; set user= or PGUSER")]
    NoUser,
    #[error("{at} requires a password for user `{user}`, but {trouble}")]
    Passfile { at: String, user: String, trouble: ConnectWarning },
    #[error("TLS file {}: {problem}", .path.display())]
    TlsFile { path: PathBuf, problem: String },
    #[error("TLS with {at} failed: {problem}")]
    Tls { at: String, problem: String },
    #[error("{0}")]
    TlsUnsupported(TlsUnsupported),
    #[error(
        "cannot reach PostgreSQL at {at}: {problem}; check {check}, or correct the connection string"
    )]
    Unreachable {
        at: String,
        problem: String,
        check: &'static str,
        /// The operating system's error, where it was one.
        kind: Option<io::ErrorKind>,
    },
    #[error("{at} did not answer within connect_timeout={seconds}; check the network and its load")]
    TimedOut { at: String, seconds: u64 },
    #[error("{at} does not accept connections yet: {message}; wait until it has started")]
    NotReady { at: String, message: String },
    #[error("{at} is not {wanted}, which target_session_attrs requires")]
    WrongSession { at: String, wanted: &'static str },
    #[error("cannot connect to any of {} addresses: {}", .0.len(), join_errors(.0))]
    NoneOf(Vec<ConnectError>),
    #[error("{at} rejected user `{user}`: {message}{hint}")]
    Authentication { at: String, user: String, message: String, hint: String },
    #[error("no database `{name}` at {at}; pgio does not create it: run createdb {name} there")]
    NoDatabase { at: String, name: String },
    #[error("too many connections at {at}: {message}; raise {raise} or use fewer sessions")]
    TooManyConnections { at: String, message: String, raise: String },
    #[error("{at} refused the connection: {message} (SQLSTATE {code})")]
    Server { at: String, code: String, message: String },
    #[error("{at} does not behave like a PostgreSQL server; check what listens there")]
    Excess { at: String, source: Excess },
    /// The first statements of a session failed, or what they set is not in force.
    #[error("cannot prepare a session at {at}: {problem}")]
    Session { at: String, problem: String },
    #[error("the connection to {at} failed; check that a PostgreSQL server listens there")]
    Protocol { at: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("stopped while waiting for {at}")]
    Stopped { at: String },
    #[error("cannot send a cancel request to the server")]
    Cancel { source: Box<dyn std::error::Error + Send + Sync> },
}

impl ConnectError {
    /// Whether the server starts, or recovers because one of its processes was killed: it may accept connections soon.
    pub fn is_recovery(&self) -> bool {
        match self {
            ConnectError::NotReady { .. } => true,
            ConnectError::Server { code, .. } => code == SqlState::CRASH_SHUTDOWN.code(),
            ConnectError::Protocol { source, .. } => {
                let source = source.downcast_ref::<io::Error>();
                source.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
            }
            ConnectError::NoneOf(errors) => errors.iter().any(ConnectError::is_recovery),
            _ => false,
        }
    }

    /// Whether there is no server or no such database any more, for all that can be seen from here.
    pub fn is_gone_server(&self) -> bool {
        match self {
            ConnectError::Unreachable { .. }
            | ConnectError::TimedOut { .. }
            | ConnectError::NoDatabase { .. } => true,
            ConnectError::NoneOf(errors) => errors.iter().all(ConnectError::is_gone_server),
            _ => false,
        }
    }

    /// Whether this host had no route to a server. That is so for some seconds more after its network was down.
    pub fn has_no_route(&self) -> bool {
        use io::ErrorKind::{HostUnreachable, NetworkUnreachable};
        match self {
            ConnectError::Unreachable { kind, .. } => {
                matches!(kind, Some(HostUnreachable | NetworkUnreachable))
            }
            ConnectError::NoneOf(errors) => errors.iter().any(ConnectError::has_no_route),
            _ => false,
        }
    }
}

/// A problem in a text and its position, in characters from 1; never quotes values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {problem}")]
pub struct BadText {
    pub at: usize,
    pub problem: String,
}

impl BadText {
    pub(super) fn new(at: usize, problem: impl Into<String>) -> Self {
        BadText { at, problem: problem.into() }
    }
}

/// What libpq can do with TLS and pgio cannot. Unlike a failure, it is no reason to go on without TLS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pgio does not support TLS with {with}: {problem}")]
pub struct TlsUnsupported {
    /// A file or a server.
    pub with: String,
    pub problem: String,
}

/// Where a parameter came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    ConnectString,
    ServiceFile(PathBuf),
    Environment(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::ConnectString => f.write_str("the connection string"),
            Source::ServiceFile(path) => write!(f, "service file {}", path.display()),
            Source::Environment(name) => f.write_str(name),
        }
    }
}

/// A problem in spite of which libpq connects; not fatal by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectWarning {
    PassfileExposed(PathBuf),
    PassfileNotPlain(PathBuf),
    PassfileUnreadable(PathBuf, String),
    RootCertMissing(PathBuf),
    ClientCertMissing(PathBuf),
    /// TLS was preferred and offered by the server at this address, and the session goes on without.
    NoTls {
        at: String,
        why: String,
    },
}

impl ConnectWarning {
    /// What was ignored.
    pub fn what(&self) -> String {
        match self {
            Self::PassfileExposed(path)
            | Self::PassfileNotPlain(path)
            | Self::PassfileUnreadable(path, _) => {
                format!("password file {} was ignored", path.display())
            }
            Self::RootCertMissing(path) => format!("sslrootcert {} was ignored", path.display()),
            Self::ClientCertMissing(path) => format!("sslcert {} was ignored", path.display()),
            Self::NoTls { at, .. } => format!("the connection to {at} has no TLS"),
        }
    }

    pub fn why(&self) -> &str {
        match self {
            Self::PassfileExposed(_) => "other users can read it",
            Self::PassfileNotPlain(_) => "it is not a plain file",
            Self::PassfileUnreadable(_, why) => why,
            Self::RootCertMissing(_) => {
                "the file does not exist, so the server's certificate is not checked"
            }
            Self::ClientCertMissing(_) => {
                "the file does not exist, so pgio sends no client certificate"
            }
            Self::NoTls { why, .. } => why,
        }
    }

    pub fn hint(&self) -> String {
        match self {
            Self::PassfileExposed(path) => format!("run chmod 0600 {}", path.display()),
            Self::PassfileNotPlain(_) => "name a plain file".to_owned(),
            Self::PassfileUnreadable(..) => "check its owner".to_owned(),
            Self::RootCertMissing(_) => {
                "create the file (sslmode=verify-full makes a missing file an error)".to_owned()
            }
            Self::ClientCertMissing(_) => "check the path".to_owned(),
            Self::NoTls { .. } => {
                "set sslmode=require for an error instead, or sslmode=disable".to_owned()
            }
        }
    }
}

impl fmt::Display for ConnectWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what(), self.why(), self.hint())
    }
}

fn join_paths(paths: &[PathBuf]) -> String {
    match paths {
        [] => "any service file (none exists); set PGSERVICEFILE".to_owned(),
        some => some.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" or "),
    }
}

fn join_errors(errors: &[ConnectError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ")
}
