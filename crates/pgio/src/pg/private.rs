//! Private PostgreSQL servers: a primary and optionally standbys. They need no
//! installation, listen on no network, and leave nothing behind.
//!
//! Four processes take part. The owner (a pgio command) calls [`PrivateCluster::start`]; that
//! starts the supervisor (`pgio supervise`, see [`supervisor`]), which starts the servers. The
//! owner sends commands to the supervisor through a pipe. When the pipe closes, the owner has
//! ended, for whatever reason; the supervisor then stops the servers and removes their directory.
//! If the supervisor itself is killed, the kernel stops the servers, and the next start removes the
//! directory ([`reap()`]).
//!
//! fsync stays on because these servers are measured. This module does not depend on the workload.
//! Next: [`find`] and [`download`] for the programs, [`layout`] for the files on disk.

mod cluster;
mod directory;
mod download;
mod find;
mod layout;
mod reap;
mod server;
mod supervisor;
mod task;
mod version;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

use pgio_connect::ConnectError;

use crate::exit_code::{FAILED, FILES, HasExitCode, INTERRUPTED, REFUSED};
use crate::host::exec::ExecError;

pub use self::download::DownloadError;
pub use self::version::check_version_options;
pub use cluster::{PrivateCluster, Spec};
pub use find::{Binaries, Origin, find, find_installed};
pub use layout::check_base;
pub use reap::{KILLED_WAIT, reap, reap_default, reap_noted};
pub use supervisor::supervise;
pub use task::PRIMARY;
pub use version::{InvalidVersion, SUPPORTED, ServerVersion, VersionRequest};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "no PostgreSQL server in PGIO_BINDIR ({}): set it to the directory that contains `postgres` and `initdb`",
        directory.display()
    )]
    Bindir { directory: PathBuf },
    #[error(
        "PGIO_BINDIR ({}) contains PostgreSQL {found}, but {wanted} was requested: unset it or change it",
        directory.display()
    )]
    BindirVersion { directory: PathBuf, found: ServerVersion, wanted: VersionRequest },
    #[error(transparent)]
    Download(#[from] DownloadError),
    #[error(
        "no user to run PostgreSQL: it refuses to run as root, and /etc/passwd has neither `postgres` nor `nobody`; create the user `postgres`"
    )]
    NoServerUser,
    #[error(
        "{} is too long for a socket directory ({length} bytes, maximum {most}): choose a shorter base directory",
        directory.display()
    )]
    SocketPath { directory: PathBuf, length: usize, most: usize },
    #[error(
        "{} contains a comma, which libpq reads as a list of hosts: choose another base directory",
        directory.display()
    )]
    SocketComma { directory: PathBuf },
    #[error(
        "the server's user cannot enter {}, which is on the path to {}: add the execute permission, or choose another directory",
        closed.display(), path.display()
    )]
    Closed { closed: PathBuf, path: PathBuf },
    #[error(
        "{} is not a directory: create it, mount the file system to be measured there, or choose another directory",
        directory.display()
    )]
    NoBase { directory: PathBuf },
    #[error(
        "{user} cannot write to {}, where pgio creates the directory of a private PostgreSQL: `sudo chown {user} {}` is enough, or run pgio as root",
        directory.display(), directory.display()
    )]
    NotWritable { directory: PathBuf, user: String },
    #[error(
        "{} is in the data directory of another PostgreSQL, {}: choose another directory",
        directory.display(), other.display()
    )]
    OtherData { directory: PathBuf, other: PathBuf },
    #[error(
        "initdb of PostgreSQL {version} has no option `{option}`: remove it from initdb, or choose another version by pg"
    )]
    UnknownOption { option: String, version: ServerVersion },
    #[error("a private server cannot have the directory {}, which is not UTF-8: choose another directory", path.display())]
    NotUtf8 { path: PathBuf },
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error("the {role} did not start{}", tail(log))]
    NotStarted { role: String, log: String },
    #[error("the {role} did not stop within {seconds} s")]
    NotStopped { role: String, seconds: u64 },
    #[error("the cluster has no standby: request one when starting it")]
    NoStandby,
    /// Error message sent by the supervisor.
    #[error("{0}")]
    Supervisor(String),
    #[error(
        "the private cluster's supervisor has ended and its servers are stopped: run the command again"
    )]
    SupervisorGone,
    #[error("invalid answer from the supervisor: `{0}`")]
    Protocol(String),
    #[error(transparent)]
    Session(#[from] ConnectError),
    #[error("a statement on the private server failed")]
    Postgres(#[from] pgio_connect::Error),
    #[error("{standby} did not {goal} within {seconds} s; its state is `{state}`")]
    NotReplicating { standby: String, goal: &'static str, seconds: u64, state: String },
    /// The owner ended while the cluster was being created.
    #[error("interrupted while creating the cluster")]
    Abandoned,
    #[error("stopped while a private PostgreSQL was starting")]
    Stopped,
}

impl HasExitCode for Error {
    fn code(&self) -> u8 {
        match self {
            Error::NoBase { .. }
            | Error::NotWritable { .. }
            | Error::Closed { .. }
            | Error::OtherData { .. }
            | Error::UnknownOption { .. } => REFUSED,
            Error::Io { .. } => FILES,
            Error::Download(source) => source.code(),
            Error::Stopped => INTERRUPTED,
            Error::Bindir { .. }
            | Error::BindirVersion { .. }
            | Error::NoServerUser
            | Error::SocketPath { .. }
            | Error::SocketComma { .. }
            | Error::NotUtf8 { .. }
            | Error::Exec(_)
            | Error::NotStarted { .. }
            | Error::NotStopped { .. }
            | Error::NoStandby
            | Error::Supervisor(_)
            | Error::SupervisorGone
            | Error::Protocol(_)
            | Error::Session(_)
            | Error::Postgres(_)
            | Error::NotReplicating { .. }
            | Error::Abandoned => FAILED,
        }
    }
}

fn tail(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; its log ends:\n{log}") }
}

/// Adds the path to an I/O error.
fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { path, source }
}

/// A step on the way to a running private server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    Download {
        version: ServerVersion,
        received: u64,
        /// Absent if the server does not state a length.
        total: Option<u64>,
        left: Option<Duration>,
    },
    Unpack(ServerVersion),
    Start,
}

/// Receives each step; a program without a terminal ignores them.
pub type Observer<'a> = &'a mut dyn FnMut(&Progress);

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Progress::Download { version, received, total, left } => {
                write!(f, "downloading PostgreSQL {version}: {}", megabytes(*received))?;
                if let Some(total) = total {
                    write!(f, " of {}", megabytes(*total))?;
                }
                f.write_str(" MB")?;
                match left {
                    Some(left) if left.as_secs() >= 120 => {
                        write!(f, ", {} min left", left.as_secs().div_ceil(60))
                    }
                    Some(left) => write!(f, ", {} s left", left.as_secs_f64().ceil()),
                    None => Ok(()),
                }
            }
            Progress::Unpack(version) => write!(f, "unpacking PostgreSQL {version} …"),
            Progress::Start => f.write_str("starting PostgreSQL …"),
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: ServerVersion = ServerVersion { major: 18, minor: 6 };

    fn text(received: u64, total: Option<u64>, seconds: Option<u64>) -> String {
        let left = seconds.map(Duration::from_secs);
        Progress::Download { version: VERSION, received, total, left }.to_string()
    }

    #[test]
    fn a_download_shows_size_and_time_left() {
        let total = Some(15_119_738);
        assert_eq!(text(0, None, None), "downloading PostgreSQL 18.6: 0.0 MB");
        assert_eq!(text(0, total, None), "downloading PostgreSQL 18.6: 0.0 of 15.1 MB");
        let shown = text(3_100_000, total, Some(4));
        assert_eq!(shown, "downloading PostgreSQL 18.6: 3.1 of 15.1 MB, 4 s left");
        let shown = text(3_100_000, total, Some(150));
        assert_eq!(shown, "downloading PostgreSQL 18.6: 3.1 of 15.1 MB, 3 min left");
    }
}
