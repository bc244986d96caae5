//! Reasons why no server could be downloaded.

use std::io;
use std::path::PathBuf;

use super::super::version::ServerVersion;
#[cfg(feature = "download")]
use super::http::HttpError;
#[cfg(feature = "download")]
use super::unpack::UnpackError;
use crate::host::lock::LockError;
use crate::host::own_dir::OwnDirError;

#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error(
        "PostgreSQL {wanted} is not installed, and no build of it is available for download: install it, set PGIO_BINDIR to its directory, or choose one of {builds}"
    )]
    Unavailable { wanted: String, builds: String },
    #[error(
        "PostgreSQL is not installed, and the builds that pgio downloads need glibc, which this system lacks (no {}): install a server (Alpine: apk add postgresql), or set PGIO_BINDIR to the directory of its programs",
        loader.display()
    )]
    NoLoader { loader: PathBuf },
    #[error("no cache directory for a downloaded PostgreSQL: set HOME or XDG_CACHE_HOME")]
    NoCache,
    #[cfg(feature = "download")]
    #[error(
        "cannot download PostgreSQL {version} (install a server, set PGIO_BINDIR, or name a mirror by PGIO_DOWNLOAD_URL)"
    )]
    Transfer { version: ServerVersion, source: HttpError },
    #[cfg(feature = "download")]
    #[error("cannot unpack the downloaded PostgreSQL {version}")]
    Unpack { version: ServerVersion, source: UnpackError },
    #[cfg(feature = "download")]
    #[error(
        "the downloaded PostgreSQL {version} is not the build that pgio was tested with (SHA-256 {found}, expected {pinned}): install a server instead"
    )]
    WrongHash { version: ServerVersion, found: String, pinned: &'static str },
    #[cfg(feature = "download")]
    #[error(
        "pgio does not download PostgreSQL {version} for {processor}, because it does not know the SHA-256 of that archive: install a server, or set PGIO_BINDIR to the directory of its programs"
    )]
    NoHash { version: ServerVersion, processor: &'static str },
    #[cfg(not(feature = "download"))]
    #[error(
        "PostgreSQL {version} is not installed, and this pgio was built without downloads: install a server or set PGIO_BINDIR"
    )]
    BuiltWithoutDownloads { version: ServerVersion },
    #[error(
        "{} is reserved for a downloaded PostgreSQL, but contains files that pgio did not unpack: move it away, or set PGIO_BINDIR to the directory of the server's programs",
        path.display()
    )]
    NotABuild { path: PathBuf },
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Untrusted(#[from] OwnDirError),
    #[error("cannot lock {} to download PostgreSQL", path.display())]
    Locked { path: PathBuf, source: LockError },
    #[error("stopped while waiting for {holder}, which downloads the same PostgreSQL")]
    Stopped { holder: String },
}
