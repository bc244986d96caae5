//! What can go wrong between a connect string and a session, each with what to do about it.
//!
//! No variant holds a password or the text of a connect string. Warnings are for what libpq
//! passes over in silence although the user probably meant something else.
//!
//! Next: `resolve` and `open` make these.

use std::fmt;
use std::path::PathBuf;

use super::limits::Excess;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    #[error("bad connect string, {0}")]
    ConnectString(BadText),
    #[error("bad value of {keyword} from {from}: {problem}")]
    BadValue { keyword: &'static str, from: Source, problem: String },
    #[error("{keyword} from {from} is not supported; {otherwise}")]
    Unsupported { keyword: &'static str, from: Source, otherwise: String },
    #[error("no service `{name}` in {}", list(.looked_in))]
    ServiceNotFound { name: String, looked_in: Vec<PathBuf> },
    #[error("service file {}, line {line}: {problem}", .path.display())]
    ServiceFile { path: PathBuf, line: usize, problem: String },
    #[error("cannot read service file {}", .path.display())]
    ServiceFileUnreadable { path: PathBuf, source: std::io::Error },
    #[error("cannot tell the name of the operating system user; give user= or PGUSER")]
    NoUser,
    #[error("{at} asks for the password of user `{user}`, and {trouble}")]
    Passfile { at: String, user: String, trouble: ConnectWarning },
    #[error("TLS file {}: {problem}", .path.display())]
    TlsFile { path: PathBuf, problem: String },
    #[error("TLS with {at} failed: {problem}")]
    Tls { at: String, problem: String },
    #[error(
        "cannot reach PostgreSQL at {at}: {problem}; check {check}, or name another server: --connect-string, CONNECT_STRING, dsn"
    )]
    Unreachable { at: String, problem: String, check: &'static str },
    #[error("{at} did not answer within connect_timeout={seconds}; check the network and its load")]
    TimedOut { at: String, seconds: u64 },
    #[error("{at} accepts no connections now: {message}; wait until it has started")]
    NotReady { at: String, message: String },
    #[error("{at} is not {wanted}, which target_session_attrs asks for")]
    WrongSession { at: String, wanted: &'static str },
    #[error("none of {} addresses will do: {}", .0.len(), each(.0))]
    NoneOf(Vec<ConnectError>),
    #[error("{at} does not let user `{user}` in: {message}{hint}")]
    Authentication { at: String, user: String, message: String, hint: String },
    #[error("no database `{name}` at {at}; pgio never creates it: createdb {name}")]
    NoDatabase { at: String, name: String },
    #[error("too many connections at {at}: {message}; raise max_connections or use fewer sessions")]
    TooManyConnections { at: String, message: String },
    #[error("{at} refused the connection: {message} (SQLSTATE {code})")]
    Server { at: String, code: String, message: String },
    #[error("{at} does not behave as a PostgreSQL server; check what listens there")]
    Excess { at: String, source: Excess },
    #[error("the conversation with {at} broke off; check that a PostgreSQL server listens there")]
    Protocol { at: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{at} did not answer before pgio was asked to stop")]
    Stopped { at: String },
    #[error("cannot ask the server to cancel")]
    Cancel { source: Box<dyn std::error::Error + Send + Sync> },
    #[error("cannot start a thread for connecting")]
    Thread { source: std::io::Error },
}

/// Where in a text something is wrong, in characters from 1; never quotes values.
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
            Source::ConnectString => f.write_str("the connect string"),
            Source::ServiceFile(path) => write!(f, "service file {}", path.display()),
            Source::Environment(name) => f.write_str(name),
        }
    }
}

/// Something libpq would pass over in silence; not fatal by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectWarning {
    PassfileExposed(PathBuf),
    PassfileNotPlain(PathBuf),
    PassfileUnreadable(PathBuf, String),
    RootCertMissing(PathBuf),
    ClientCertMissing(PathBuf),
}

impl fmt::Display for ConnectWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PassfileExposed(path) => {
                let path = path.display();
                write!(f, "password file {path} was ignored: others may read it; chmod 0600 {path}")
            }
            Self::PassfileNotPlain(path) => {
                write!(f, "password file {} was ignored: it is not a plain file", path.display())
            }
            Self::PassfileUnreadable(path, why) => {
                write!(f, "password file {} was ignored: {why}; check its owner", path.display())
            }
            Self::RootCertMissing(path) => write!(
                f,
                "sslrootcert {} is not there, so the server's certificate is not checked; \
                 put the file there or set sslmode=verify-full",
                path.display()
            ),
            Self::ClientCertMissing(path) => write!(
                f,
                "sslcert {} is not there, so no client certificate is shown; check the path",
                path.display()
            ),
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    match paths {
        [] => "any service file (there is none); give PGSERVICEFILE".to_owned(),
        some => some.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" or "),
    }
}

fn each(errors: &[ConnectError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ")
}
