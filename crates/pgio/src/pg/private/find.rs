//! Finding the programs of a PostgreSQL server: an installed one, else a downloaded one.
//!
//! `PGIO_BINDIR`, when set, decides alone. Otherwise every usual place is looked at and
//! the newest server that fits the request wins; only when none does, one is downloaded.
//! A place counts only with both `postgres` and `initdb` in it: many machines have the
//! client programs without a server.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::Error;
use super::download::{self, Cached};
use super::progress::Observer;
use super::version::{SUPPORTED, ServerVersion, VersionRequest};
use crate::host::exec::{CommandLine, Exec, Local};

/// Where the server's programs come from; a report shows it beside absolute figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Installed(PathBuf),
    /// A small build for tests: optimised for size, without io_uring, lz4 and zstd.
    Downloaded(ServerVersion),
}

/// The programs of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    pub directory: PathBuf,
    pub version: ServerVersion,
    pub origin: Origin,
}

/// The newest installed server that fits, else the newest that can be downloaded.
pub fn find(request: Option<VersionRequest>) -> Result<Binaries, Error> {
    find_observed(request, &mut |_| {})
}

/// As [`find`]; the observer receives the progress of a download.
pub(super) fn find_observed(
    request: Option<VersionRequest>,
    observer: Observer<'_>,
) -> Result<Binaries, Error> {
    if let Some(binaries) = find_installed(request)? {
        return Ok(binaries);
    }
    let Cached { directory, version } = download::download(request, observer)?;
    Ok(Binaries { directory, version, origin: Origin::Downloaded(version) })
}

/// As [`find`], but fetches nothing: none when it would have to.
pub fn find_installed(request: Option<VersionRequest>) -> Result<Option<Binaries>, Error> {
    installed(&Places::of_this_machine(), &Local, request)
}

/// Where to look, apart from the looking.
#[derive(Debug, Default)]
struct Places {
    bindir: Option<PathBuf>,
    /// Directories that hold one directory per version, in each of which is `bin`.
    roots: Vec<PathBuf>,
    path: Option<OsString>,
}

impl Places {
    fn of_this_machine() -> Self {
        Self {
            bindir: env::var_os("PGIO_BINDIR").filter(|d| !d.is_empty()).map(PathBuf::from),
            // Debian's packages, then those of the PostgreSQL project for Red Hat's relatives.
            roots: vec!["/usr/lib/postgresql".into(), "/usr".into()],
            path: env::var_os("PATH"),
        }
    }
}

fn installed(
    places: &Places,
    exec: &dyn Exec,
    request: Option<VersionRequest>,
) -> Result<Option<Binaries>, Error> {
    if let Some(bindir) = &places.bindir {
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
    let fits = |version| match request {
        Some(wanted) => wanted.accepts(version),
        None => SUPPORTED.contains(&version.major),
    };
    let mut best: Option<Binaries> = None;
    for directory in candidates(places, exec) {
        let Some(found) = inspect(exec, &directory) else { continue };
        // Of equals the first stays, as the order of places says.
        if fits(found.version) && best.as_ref().is_none_or(|b| found.version > b.version) {
            best = Some(found);
        }
    }
    Ok(best)
}

fn candidates(places: &Places, exec: &dyn Exec) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Ok(printed) = exec.run(&CommandLine::new("pg_config").arg("--bindir")) {
        found.push(PathBuf::from(printed.trim_end()));
    }
    for root in &places.roots {
        found.extend(versioned_bins(root));
    }
    if let Some(path) = &places.path {
        found.extend(env::split_paths(path).filter(|d| d.is_absolute()));
    }
    found
}

/// `ROOT/15/bin`, `ROOT/pgsql-15/bin`: highest number first, 9 below 10.
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

    /// A `bin` directory whose programs only tell their version.
    fn fake_server(bin: &Path, version: &str) {
        fs::create_dir_all(bin).unwrap();
        for program in ["postgres", "initdb"] {
            let file = bin.join(program);
            fs::write(&file, format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n"))
                .unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// Without `pg_config`, so that this machine's own servers stay out of the tests.
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

    fn version_found(places: &Places, request: Option<&str>) -> Option<String> {
        let request = request.map(|r| r.parse().unwrap());
        installed(places, &NoPgConfig, request).unwrap().map(|b| b.version.to_string())
    }

    #[test]
    fn the_newest_is_taken_by_number_and_the_unsupported_are_passed_over() {
        let root = TempDir::new().unwrap();
        for version in ["9.6.24", "12.3", "14.2", "15.14", "19devel"] {
            let major = version.split(['.', 'd']).next().unwrap();
            fake_server(&root.path().join(major).join("bin"), version);
        }
        let places = Places { roots: vec![root.path().into()], ..Places::default() };
        assert_eq!(version_found(&places, None).as_deref(), Some("15.14"));
        assert_eq!(version_found(&places, Some("14")).as_deref(), Some("14.2"));
        assert_eq!(version_found(&places, Some("14.1")), None);

        let order = versioned_bins(root.path());
        assert_eq!(order.first().unwrap(), &root.path().join("19/bin"));
        assert_eq!(order.last().unwrap(), &root.path().join("9/bin"));
    }

    #[test]
    fn a_place_without_initdb_is_no_server() {
        let root = TempDir::new().unwrap();
        fake_server(root.path(), "17.2");
        let places = Places { path: Some(root.path().into()), ..Places::default() };
        assert_eq!(version_found(&places, None).as_deref(), Some("17.2"));
        fs::remove_file(root.path().join("initdb")).unwrap();
        assert_eq!(version_found(&places, None), None);
    }

    #[test]
    fn pgio_bindir_decides_alone() {
        let root = TempDir::new().unwrap();
        fake_server(&root.path().join("17/bin"), "17.2");
        fake_server(&root.path().join("mine"), "14.1");
        let places = Places {
            bindir: Some(root.path().join("mine")),
            roots: vec![root.path().into()],
            path: None,
        };
        assert_eq!(version_found(&places, None).as_deref(), Some("14.1"));

        let other = installed(&places, &NoPgConfig, Some(VersionRequest::major(17)));
        assert!(matches!(other, Err(Error::BindirVersion { .. })), "{other:?}");
        fs::remove_file(root.path().join("mine/postgres")).unwrap();
        let none = installed(&places, &NoPgConfig, None);
        assert!(matches!(none, Err(Error::Bindir { .. })), "{none:?}");
    }
}
