//! Finds the programs of an installed PostgreSQL server, or else downloads them.
//!
//! If `PGIO_BINDIR` is set, only that directory is used. Otherwise all usual directories are
//! searched and the newest server that satisfies the request is used; without one, pgio downloads a
//! server. A directory counts only if it contains both `postgres` and `initdb`: many machines have
//! the client programs without a server.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::download::{self, CachedBuild};
use super::version::{SUPPORTED, ServerVersion, VersionRequest};
use super::{Error, Observer};
use crate::host::exec::{CommandLine, Exec, Local};
use crate::host::stop::Stop;

/// Where the server's programs come from; reports show it with absolute figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Installed(PathBuf),
    /// A small build for tests: optimized for size, without io_uring, lz4 and zstd.
    Downloaded(ServerVersion),
}

/// The programs of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    pub directory: PathBuf,
    pub version: ServerVersion,
    pub origin: Origin,
}

/// The newest installed server that satisfies the request, or else the newest available for
/// download.
pub fn find(request: Option<VersionRequest>) -> Result<Binaries, Error> {
    find_observed(request, &Stop::new(), &mut |_| {})
}

/// As [`find`], until a stop is requested; the observer receives the progress of a download.
pub(super) fn find_observed(
    request: Option<VersionRequest>,
    stop: &Stop,
    observer: Observer<'_>,
) -> Result<Binaries, Error> {
    if let Some(binaries) = find_installed(request)? {
        return Ok(binaries);
    }
    let CachedBuild { directory, version } = download::download(request, stop, observer)?;
    Ok(Binaries { directory, version, origin: Origin::Downloaded(version) })
}

/// Like [`find`], but returns `None` instead of downloading.
pub fn find_installed(request: Option<VersionRequest>) -> Result<Option<Binaries>, Error> {
    search_installed(&SearchPath::local(), &Local, request)
}

/// Directories to search. Separate from the search, for tests.
#[derive(Debug, Default)]
struct SearchPath {
    bindir: Option<PathBuf>,
    /// Directories with one subdirectory per version, each of which contains `bin`.
    roots: Vec<PathBuf>,
    path: Option<OsString>,
}

impl SearchPath {
    fn local() -> Self {
        Self {
            bindir: env::var_os("PGIO_BINDIR").filter(|d| !d.is_empty()).map(PathBuf::from),
            // Debian's packages, then the PostgreSQL project's packages for Red Hat and
            // derivatives.
            roots: vec!["/usr/lib/postgresql".into(), "/usr".into()],
            path: env::var_os("PATH"),
        }
    }
}

fn search_installed(
    search: &SearchPath,
    exec: &dyn Exec,
    request: Option<VersionRequest>,
) -> Result<Option<Binaries>, Error> {
    if let Some(bindir) = &search.bindir {
        let binaries =
            inspect(exec, bindir).ok_or_else(|| Error::Bindir { directory: bindir.clone() })?;
        return match request {
            Some(wanted) if !wanted.accepts(binaries.version) => Err(Error::BindirVersion {
                directory: bindir.clone(),
                found: binaries.version,
                wanted,
            }),
            _ => Ok(Some(binaries)),
        };
    }
    let acceptable = |version| match request {
        Some(wanted) => wanted.accepts(version),
        None => SUPPORTED.contains(&version.major),
    };
    let mut best: Option<Binaries> = None;
    for directory in candidates(search, exec) {
        let Some(found) = inspect(exec, &directory) else { continue };
        // If versions are equal, keep the first in search order.
        if acceptable(found.version) && best.as_ref().is_none_or(|b| found.version > b.version) {
            best = Some(found);
        }
    }
    Ok(best)
}

fn candidates(search: &SearchPath, exec: &dyn Exec) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Ok(bindir) = exec.run(&CommandLine::new("pg_config").arg("--bindir")) {
        found.push(PathBuf::from(bindir.trim_end()));
    }
    for root in &search.roots {
        found.extend(versioned_bins(root));
    }
    if let Some(path) = &search.path {
        found.extend(env::split_paths(path).filter(|d| d.is_absolute()));
    }
    found
}

/// Lists `ROOT/15/bin` and `ROOT/pgsql-15/bin`, highest version number first.
fn versioned_bins(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let mut found: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix("pgsql-").unwrap_or(&name).parse().ok()?;
            Some((number, entry.path().join("bin")))
        })
        .collect();
    found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    found.into_iter().map(|(_, path)| path).collect()
}

fn inspect(exec: &dyn Exec, directory: &Path) -> Option<Binaries> {
    let postgres = directory.join("postgres");
    if !postgres.is_file() || !directory.join("initdb").is_file() {
        return None;
    }
    let banner = exec.run(&CommandLine::new(postgres).arg("--version")).ok()?;
    Some(Binaries {
        directory: directory.to_owned(),
        version: ServerVersion::from_banner(&banner)?,
        origin: Origin::Installed(directory.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    /// Creates a `bin` directory whose programs only print their version.
    fn fake_server(bin: &Path, version: &str) {
        fs::create_dir_all(bin).unwrap();
        for program in ["postgres", "initdb"] {
            let file = bin.join(program);
            fs::write(&file, format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n"))
                .unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// Hides `pg_config`, so that this machine's servers do not affect the tests.
    struct NoPgConfig;

    impl Exec for NoPgConfig {
        fn output(
            &self,
            command: &CommandLine,
        ) -> Result<crate::host::exec::Output, crate::host::exec::ExecError> {
            if command.to_string().starts_with("pg_config") {
                return Local.output(&CommandLine::new("false"));
            }
            Local.output(command)
        }
    }

    fn version_found(search: &SearchPath, request: Option<&str>) -> Option<String> {
        let request = request.map(|r| r.parse().unwrap());
        search_installed(search, &NoPgConfig, request).unwrap().map(|b| b.version.to_string())
    }

    #[test]
    fn the_newest_supported_version_is_used() {
        let root = TempDir::new().unwrap();
        for version in ["9.6.24", "12.3", "14.2", "15.14", "19devel"] {
            let major = version.split(['.', 'd']).next().unwrap();
            fake_server(&root.path().join(major).join("bin"), version);
        }
        let search = SearchPath { roots: vec![root.path().into()], ..SearchPath::default() };
        assert_eq!(version_found(&search, None).as_deref(), Some("15.14"));
        assert_eq!(version_found(&search, Some("14")).as_deref(), Some("14.2"));
        assert_eq!(version_found(&search, Some("14.1")), None);

        let order = versioned_bins(root.path());
        assert_eq!(order.first().unwrap(), &root.path().join("19/bin"));
        assert_eq!(order.last().unwrap(), &root.path().join("9/bin"));
    }

    #[test]
    fn a_directory_without_initdb_does_not_count() {
        let root = TempDir::new().unwrap();
        fake_server(root.path(), "17.2");
        let search = SearchPath { path: Some(root.path().into()), ..SearchPath::default() };
        assert_eq!(version_found(&search, None).as_deref(), Some("17.2"));
        fs::remove_file(root.path().join("initdb")).unwrap();
        assert_eq!(version_found(&search, None), None);
    }

    #[test]
    fn pgio_bindir_excludes_other_directories() {
        let root = TempDir::new().unwrap();
        fake_server(&root.path().join("17/bin"), "17.2");
        fake_server(&root.path().join("mine"), "14.1");
        let search = SearchPath {
            bindir: Some(root.path().join("mine")),
            roots: vec![root.path().into()],
            path: None,
        };
        assert_eq!(version_found(&search, None).as_deref(), Some("14.1"));

        let other = search_installed(&search, &NoPgConfig, Some(VersionRequest::major(17)));
        assert!(matches!(other, Err(Error::BindirVersion { .. })), "{other:?}");
        fs::remove_file(root.path().join("mine/postgres")).unwrap();
        let none = search_installed(&search, &NoPgConfig, None);
        assert!(matches!(none, Err(Error::Bindir { .. })), "{none:?}");
    }
}
