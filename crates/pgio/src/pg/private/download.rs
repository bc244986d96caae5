//! Downloads a small build of PostgreSQL for machines without a server, once, and keeps it.
//!
//! The cache must be readable by the user that the server will run as: as root it is
//! /var/cache/pgio, never root's home, which other users may not enter. pgio runs programs from the
//! cache, so no other user may write there.
//!
//! Next: [`builds`] for the builds and their hashes, `fetch` for the download.

mod builds;
#[cfg(feature = "download")]
mod fetch;
#[cfg(test)]
#[cfg(feature = "download")]
mod fetch_tests;
#[cfg(feature = "download")]
mod http;

use std::path::{Path, PathBuf};
use std::{env, io};

use self::builds::{BUILDS, Build, is_complete};
use super::Observer;
use super::version::{ServerVersion, VersionRequest};
use crate::exit_code::{FAILED, FILES, HasExitCode, INTERRUPTED, REFUSED};
use crate::host::lock::LockError;
use crate::host::own_dir::{DirMode, OwnDir, OwnDirError, check_tree};
use crate::host::stop::Stop;

#[cfg(feature = "download")]
use self::fetch::UnpackError;
#[cfg(feature = "download")]
use self::http::HttpError;

/// The programs of a build in the cache.
#[derive(Debug)]
pub(super) struct CachedBuild {
    pub(super) directory: PathBuf,
    pub(super) version: ServerVersion,
}

/// The cached build that fits the request; it is fetched first if it is not there.
pub(super) fn download(
    request: Option<VersionRequest>,
    stop: &Stop,
    observer: Observer<'_>,
) -> Result<CachedBuild, DownloadError> {
    let build = choose_build(request)?;
    check_loader(loader_path(env::consts::ARCH).map(Path::new))?;
    let cache = cache_directory()?;
    let server = cache.join(format!("postgresql-{}-{}", build.version(), env::consts::ARCH));
    let directory = server.join("bin");
    // The directory appears by a rename when it is complete, but a clean-up of the cache may remove files later.
    if !is_complete(&server) {
        fetch_into_cache(build, &cache, &server, stop, observer)?;
    }
    // These programs will be run, as this user or as the server's.
    OwnDir::open(&directory, DirMode::Unchanged)?;
    check_tree(&server)?;
    Ok(CachedBuild { directory, version: build.version() })
}

#[cfg(feature = "download")]
fn fetch_into_cache(
    build: &Build,
    cache: &Path,
    server: &Path,
    stop: &Stop,
    observer: Observer<'_>,
) -> Result<(), DownloadError> {
    let url = build.address(builds::mirror().as_deref());
    fetch::into_cache(build, (&http::Client::new(), &url), cache, server, stop, observer)
}

#[cfg(not(feature = "download"))]
fn fetch_into_cache(
    build: &Build,
    _: &Path,
    _: &Path,
    _: &Stop,
    _: Observer<'_>,
) -> Result<(), DownloadError> {
    Err(DownloadError::BuiltWithoutDownloads { version: build.version() })
}

/// The dynamic loader that the builds name. A system without glibc (Alpine) lacks it, and none of their programs starts
/// there.
fn loader_path(processor: &str) -> Option<&'static str> {
    match processor {
        "x86_64" => Some("/lib64/ld-linux-x86-64.so.2"),
        "aarch64" => Some("/lib/ld-linux-aarch64.so.1"),
        _ => None,
    }
}

fn check_loader(loader: Option<&Path>) -> Result<(), DownloadError> {
    match loader.filter(|path| !path.exists()) {
        Some(missing) => Err(DownloadError::NoLoader { loader: missing.to_owned() }),
        None => Ok(()),
    }
}

/// The newest build that fits; without a request, the newest with a hash for this processor.
fn choose_build(request: Option<VersionRequest>) -> Result<&'static Build, DownloadError> {
    let fits = |build: &&Build| match request {
        Some(wanted) => wanted.accepts(build.version()),
        None => build.pinned_here().is_some(),
    };
    BUILDS.iter().rev().find(fits).ok_or_else(|| DownloadError::Unavailable {
        wanted: request.map_or_else(|| "for this processor".to_owned(), |r| r.to_string()),
        builds: BUILDS.iter().map(|b| b.version().to_string()).collect::<Vec<_>>().join(", "),
    })
}

fn cache_directory() -> Result<PathBuf, DownloadError> {
    if rustix::process::geteuid().is_root() {
        return Ok("/var/cache/pgio".into());
    }
    xdg_cache(env::var_os("XDG_CACHE_HOME").map(PathBuf::from), env::home_dir())
        .ok_or(DownloadError::NoCache)
}

/// The XDG base directory specification: relative paths in the variable are invalid.
fn xdg_cache(variable: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let cache = variable.filter(absolute);
    cache.or_else(|| home.filter(absolute).map(|h| h.join(".cache"))).map(|c| c.join("pgio"))
}

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

impl HasExitCode for DownloadError {
    fn code(&self) -> u8 {
        match self {
            DownloadError::Stopped { .. } => INTERRUPTED,
            DownloadError::Io { .. } | DownloadError::Locked { .. } => FILES,
            DownloadError::NotABuild { .. } => REFUSED,
            DownloadError::Untrusted(source) => source.code(),
            DownloadError::Unavailable { .. }
            | DownloadError::NoLoader { .. }
            | DownloadError::NoCache => FAILED,
            #[cfg(feature = "download")]
            DownloadError::Transfer { .. }
            | DownloadError::Unpack { .. }
            | DownloadError::WrongHash { .. }
            | DownloadError::NoHash { .. } => FAILED,
            #[cfg(not(feature = "download"))]
            DownloadError::BuiltWithoutDownloads { .. } => FAILED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_build_is_chosen_unless_a_version_is_requested() {
        let chosen =
            |r: Option<&str>| choose_build(r.map(|r| r.parse().unwrap())).map(Build::version);
        assert_eq!(chosen(None).unwrap().to_string(), "18.6");
        assert_eq!(chosen(Some("15")).unwrap().to_string(), "15.19");
        let error = chosen(Some("15.2")).unwrap_err().to_string();
        assert!(error.contains("15.2") && error.contains("15.19"), "{error}");
    }

    #[test]
    fn without_glibc_nothing_is_downloaded() {
        let error = check_loader(Some(Path::new("/nonexistent/ld.so"))).unwrap_err().to_string();
        assert!(error.contains("need glibc") && error.contains("/nonexistent/ld.so"), "{error}");
        assert!(check_loader(Some(Path::new("/"))).is_ok());
        assert!(check_loader(loader_path("riscv64").map(Path::new)).is_ok());
    }

    #[test]
    fn the_cache_follows_the_xdg_rules() {
        let home = || Some(PathBuf::from("/home/ann"));
        let cache = |variable: Option<&str>, home| xdg_cache(variable.map(PathBuf::from), home);
        assert_eq!(cache(None, home()).unwrap(), Path::new("/home/ann/.cache/pgio"));
        assert_eq!(cache(Some("/c"), home()).unwrap(), Path::new("/c/pgio"));
        assert_eq!(cache(Some("c"), home()).unwrap(), Path::new("/home/ann/.cache/pgio"));
        assert_eq!(cache(None, None), None);
    }
}
