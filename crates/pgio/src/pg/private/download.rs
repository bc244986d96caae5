//! Downloads a small build of PostgreSQL for machines without a server, once, and keeps it.
//!
//! The cache must be readable by the user that the server will run as: as root it is
//! /var/cache/pgio, never root's home, which other users may not enter. pgio runs programs from the
//! cache, so no other user may write there.
//!
//! Next: [`builds`] for the builds and their hashes, `fetch` for the download.

mod builds;
pub(super) mod error;
#[cfg(feature = "download")]
mod fetch;
#[cfg(test)]
#[cfg(feature = "download")]
mod fetch_tests;
#[cfg(feature = "download")]
mod http;
#[cfg(feature = "download")]
mod meter;
#[cfg(test)]
#[cfg(feature = "download")]
mod test_server;
#[cfg(feature = "download")]
mod unpack;

use std::env;
use std::path::{Path, PathBuf};

use self::builds::{BUILDS, Build, is_complete};
use self::error::DownloadError;
use super::progress::Observer;
use super::version::{ServerVersion, VersionRequest};
use crate::host::own_dir::{DirMode, OwnDir, check_tree};
use crate::host::stop::Stop;

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
