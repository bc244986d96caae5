//! A private PostgreSQL: a primary, with a synchronous standby if asked, that needs no
//! installation, listens on no network, and leaves no trace.
//!
//! Four processes take part. The owner (a pgio command) calls [`PrivateCluster::start`];
//! that starts the supervisor, which is pgio itself as `pgio supervise`, see
//! [`supervisor`]; the supervisor starts the servers. Between owner and supervisor is a
//! pipe: commands go down it, and its end means that the owner is gone, however it died.
//! Then the supervisor stops the servers and removes their directory. If it is killed
//! itself, the kernel stops the servers and the next start removes the directory ([`sweep`]).
//!
//! fsync stays on: these servers are measured. Nothing here knows what is measured.
//! Next: [`find`] and [`download`] for the programs, [`layout`] for the files on disk.

mod cluster;
mod download;
mod find;
mod layout;
mod place;
mod progress;
mod protocol;
mod server;
mod supervisor;
mod sweep;
mod version;

use std::io;
use std::path::{Path, PathBuf};

pub use cluster::{PrivateCluster, Spec};
pub use download::error::DownloadError;
pub use find::{Binaries, Origin, find, find_installed};
pub use layout::check_base;
pub use progress::{Observer, Progress};
pub use supervisor::supervise;
pub use sweep::{sweep, sweep_default, sweep_one};
pub use version::{InvalidVersion, SUPPORTED, ServerVersion, VersionRequest};

use crate::host::exec::ExecError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "no PostgreSQL server in PGIO_BINDIR ({}): set it to the directory that holds `postgres` and `initdb`",
        directory.display()
    )]
    Bindir { directory: PathBuf },
    #[error(
        "PGIO_BINDIR ({}) holds PostgreSQL {found}, but {wanted} is asked for: unset it or change it",
        directory.display()
    )]
    BindirVersion { directory: PathBuf, found: ServerVersion, wanted: VersionRequest },
    #[error(transparent)]
    Download(#[from] DownloadError),
    #[error(
        "no user to run PostgreSQL as: it refuses to run as root, and there is neither `postgres` nor `nobody` in /etc/passwd"
    )]
    NoServerUser,
    #[error(
        "{} is too long for a socket directory ({length} bytes, at most {most}): choose a shorter base directory",
        directory.display()
    )]
    SocketPath { directory: PathBuf, length: usize, most: usize },
    #[error(
        "{} has a comma in it, which libpq takes for a list of hosts: choose another base directory",
        directory.display()
    )]
    SocketComma { directory: PathBuf },
    #[error(
        "the user that the server runs as cannot enter {}, on the way to {}: open it, or choose another place",
        closed.display(), path.display()
    )]
    Closed { closed: PathBuf, path: PathBuf },
    #[error(
        "{} is no directory: make it, or mount there what is to be measured, or choose another place",
        directory.display()
    )]
    NoBase { directory: PathBuf },
    #[error(
        "{} cannot be written by {user}, and the directory of a private PostgreSQL is to be made there: `sudo chown {user} {}` is enough, or run pgio as root",
        directory.display(), directory.display()
    )]
    NotWritable { directory: PathBuf, user: String },
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error("the {role} did not start{}", tail(log))]
    NotStarted { role: &'static str, log: String },
    #[error("the {role} did not stop within {seconds} s")]
    NotStopped { role: &'static str, seconds: u64 },
    #[error("the cluster has no standby: ask for one when it is started")]
    NoStandby,
    /// What went wrong there, in its own words.
    #[error("{0}")]
    Supervisor(String),
    #[error("the private cluster's supervisor is gone; its servers are stopped")]
    SupervisorGone,
    #[error("the supervisor could not be understood: `{0}`")]
    Protocol(String),
    #[error("the private cluster did not answer as expected")]
    Postgres(#[from] postgres::Error),
    #[error("the standby did not become synchronous within {seconds} s; its state is `{state}`")]
    NotSynchronous { seconds: u64, state: String },
    /// The owner went away while the cluster was being made.
    #[error("stopped on the way")]
    Abandoned,
}

fn tail(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; its log ends:\n{log}") }
}

/// Names the path in an I/O error.
fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { path, source }
}
