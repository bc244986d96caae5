//! Fetches a build into the cache: downloads it, checks the hash, unpacks it, and renames the directory
//! last, so that the cache never contains an incomplete server.
//!
//! One process at a time fetches a version; other processes wait for it. A build whose server was removed by a
//! clean-up of the cache is replaced.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, io};

use lzma_rust2::XzReader;
use rawzip::{CompressionMethod, ZipArchive};
use sha2::{Digest, Sha256};

use super::super::version::ServerVersion;
use super::super::{Observer, Progress};
use super::DownloadError;
use super::builds::{Build, is_complete};
use super::http::Client;
use crate::host::lock::{LockError, LockFile};
use crate::host::own_dir::{DirMode, OwnDir, check_tree};
use crate::host::stop::Stop;

/// Timeout for another process that fetches the same build, which usually takes seconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(180);

/// The only names in the directory of a build.
const PARTS: [&str; 3] = ["bin", "lib", "share"];

pub(super) fn into_cache(
    build: &Build,
    (client, url): (&Client, &str),
    cache: &Path,
    server: &Path,
    stop: &Stop,
    observer: Observer<'_>,
) -> Result<(), DownloadError> {
    let version = build.version();
    let unknown = || DownloadError::NoHash { version, processor: env::consts::ARCH };
    let pinned = build.pinned_here().ok_or_else(unknown)?;
    let own = Arc::new(OwnDir::create(cache, DirMode::Unchanged)?);
    if rustix::process::geteuid().is_root() {
        // Do not depend on root's umask.
        open_to_all(cache).map_err(at(cache))?;
    }
    let _lock = lock(own, cache, build, LOCK_TIMEOUT, stop)?;
    // Another process may have fetched it while we waited.
    if is_complete(server) {
        return Ok(());
    }
    let is_incomplete = exists_incomplete(server)?;
    let mut meter = Meter::new(version, observer);
    let archive = client.fetch(url, &mut |received, total| meter.count(received, total));
    let archive = archive.map_err(|source| DownloadError::Transfer { version, source })?;
    check(build, pinned, &archive)?;
    observer(&Progress::Unpack(version));
    let prefix = format!(".fetch-{version}-");
    remove_leftovers(cache, &prefix).map_err(at(cache))?;
    let work = tempfile::Builder::new().prefix(&prefix).tempdir_in(cache);
    let work = work.map_err(at(cache))?;
    let unpacked = work.path().join("server");
    unpack(&archive, &unpacked).map_err(|source| DownloadError::Unpack { version, source })?;
    readable_by_all(&unpacked).map_err(at(&unpacked))?;
    if is_incomplete {
        // It is removed with the scratch directory.
        fs::rename(server, work.path().join("incomplete")).map_err(at(server))?;
    }
    fs::rename(&unpacked, server).map_err(at(server))
}

/// Whether a part of a build is there. Anything else may be the user's and is refused.
fn exists_incomplete(server: &Path) -> Result<bool, DownloadError> {
    let kind = match fs::symlink_metadata(server) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found.map_err(at(server))?.file_type(),
    };
    let not_a_build = || DownloadError::NotABuild { path: server.to_owned() };
    if !kind.is_dir() {
        return Err(not_a_build());
    }
    for entry in fs::read_dir(server).map_err(at(server))? {
        let name = entry.map_err(at(server))?.file_name();
        if !PARTS.iter().any(|part| name == *part) {
            return Err(not_a_build());
        }
    }
    check_tree(server)?;
    Ok(true)
}

/// Removes what a killed pgio unpacked; nobody else unpacks this version while it is locked.
fn remove_leftovers(cache: &Path, prefix: &str) -> io::Result<()> {
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        if is_ours && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn lock(
    own: Arc<OwnDir>,
    cache: &Path,
    build: &Build,
    timeout: Duration,
    stop: &Stop,
) -> Result<LockFile, DownloadError> {
    let name = format!("{}.lock", build.version());
    LockFile::take_unless_stopped(own, &name, timeout, stop).map_err(|error| match error {
        LockError::Stopped { holder } => DownloadError::Stopped { holder },
        source => DownloadError::Locked { path: cache.join(name), source },
    })
}

fn check(build: &Build, pinned: &'static str, archive: &[u8]) -> Result<(), DownloadError> {
    let found: String = Sha256::digest(archive).iter().map(|b| format!("{b:02x}")).collect();
    if found == pinned {
        return Ok(());
    }
    Err(DownloadError::WrongHash { version: build.version(), found, pinned })
}

/// Names the path in an I/O error.
fn at(path: &Path) -> impl FnOnce(io::Error) -> DownloadError {
    let path = path.to_owned();
    move |source| DownloadError::Io { path, source }
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

/// Interval of reports; more would make the terminal the slowest part of the download.
const INTERVAL: Duration = Duration::from_millis(100);
/// Minimum time for a meaningful rate.
const SHORTEST_MEASURED: Duration = Duration::from_millis(500);

/// Converts byte counts into reports.
pub(super) struct Meter<'a> {
    version: ServerVersion,
    observer: Observer<'a>,
    /// Time and value of the first count; the rate excludes bytes of an earlier run.
    first: Option<(Instant, u64)>,
    last_report: Option<Instant>,
}

impl<'a> Meter<'a> {
    pub(super) fn new(version: ServerVersion, observer: Observer<'a>) -> Meter<'a> {
        Meter { version, observer, first: None, last_report: None }
    }

    /// Reports the count unless the last report is too recent. The last byte is always reported.
    pub(super) fn count(&mut self, received: u64, total: Option<u64>) {
        let now = Instant::now();
        let complete = total == Some(received);
        let recent = self.last_report.is_some_and(|last| now - last < INTERVAL);
        if recent && !complete {
            return;
        }
        self.last_report = Some(now);
        // The count falls if the server starts over.
        let (since, base) = match self.first {
            Some((since, base)) if received >= base => (since, base),
            _ => *self.first.insert((now, received)),
        };
        let left = total.and_then(|t| time_left(received - base, now - since, t - received));
        (self.observer)(&Progress::Download { version: self.version, received, total, left });
    }
}

/// Extrapolates from the mean rate so far.
fn time_left(received: u64, elapsed: Duration, remaining: u64) -> Option<Duration> {
    if received == 0 || elapsed < SHORTEST_MEASURED {
        return None;
    }
    Duration::try_from_secs_f64(elapsed.as_secs_f64() * remaining as f64 / received as f64).ok()
}

// Unpacks a build: a jar, which is a zip, with one tar inside, compressed by xz. The caller has checked the hash of
// the bytes. Paths that lead out of the directory are refused nevertheless.

/// Three times the size of the largest compressed tar of a build.
const MAX_BYTES: usize = 100_000_000;

#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("the archive is not a zip file")]
    Zip(#[from] rawzip::Error),
    #[error("the archive contains no .txz file")]
    NoTar,
    #[error("cannot decompress the .txz file in the archive: {0}")]
    Inflate(String),
    #[error("cannot write the unpacked files")]
    Tar(#[source] io::Error),
}

/// Creates the directory. Owner, times and extended attributes are not restored.
pub(super) fn unpack(jar: &[u8], into: &Path) -> Result<(), UnpackError> {
    let compressed = compressed_tar(jar)?;
    let mut tar = tar::Archive::new(XzReader::new(compressed.as_slice(), false));
    tar.set_preserve_mtime(false);
    tar.unpack(into).map_err(UnpackError::Tar)
}

fn compressed_tar(jar: &[u8]) -> Result<Vec<u8>, UnpackError> {
    let zip = ZipArchive::from_slice(jar)?;
    for entry in zip.entries() {
        let entry = entry?;
        if !entry.file_path().as_ref().ends_with(b".txz") {
            continue;
        }
        let data = zip.get_entry(entry.wayfinder())?.data();
        return match entry.compression_method() {
            CompressionMethod::STORE => Ok(data.to_owned()),
            CompressionMethod::DEFLATE => {
                miniz_oxide::inflate::decompress_to_vec_with_limit(data, MAX_BYTES)
                    .map_err(|e| UnpackError::Inflate(e.to_string()))
            }
            other => Err(UnpackError::Inflate(format!("method {other:?}"))),
        };
    }
    Err(UnpackError::NoTar)
}

/// Like a build: a manifest and a tar of `bin/postgres` (0700), `lib/libpq.so` (a symbolic link)
/// and two more files, made by Python's zipfile, lzma (CRC64) and tarfile.
#[cfg(test)]
pub(super) const SAMPLE: &[u8] = include_bytes!("sample.jar");

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_archive_with_another_hash_is_refused() {
        // SHA-256 of "abc", FIPS 180-2, appendix B.1.
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let build = Build { major: 18, minor: 6, sha256: &[] };
        assert!(check(&build, hash, b"abc").is_ok());
        let refused = check(&build, hash, b"abd");
        assert!(matches!(refused, Err(DownloadError::WrongHash { .. })), "{refused:?}");
    }

    #[test]
    fn what_a_killed_pgio_unpacked_is_removed_and_nothing_else() {
        let cache = tempfile::TempDir::new().unwrap();
        for name in [".fetch-18.6-a", ".fetch-18.5-b", "18.6"] {
            fs::create_dir_all(cache.path().join(name).join("server/bin")).unwrap();
        }
        fs::write(cache.path().join(".fetch-18.6-file"), "").unwrap();
        remove_leftovers(cache.path(), ".fetch-18.6-").unwrap();
        let mut left: Vec<_> =
            fs::read_dir(cache.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".fetch-18.5-b", ".fetch-18.6-file", "18.6"]);
    }

    #[test]
    fn without_a_pinned_hash_nothing_is_fetched() {
        let cache = tempfile::TempDir::new().unwrap();
        let build = Build { major: 18, minor: 6, sha256: &[("another-cpu", "")] };
        let server = cache.path().join("server");
        let from = (&Client::new(), "");
        let error = into_cache(&build, from, cache.path(), &server, &Stop::new(), &mut |_| {});
        let error = error.unwrap_err();
        let message = error.to_string();
        assert!(message.contains("PGIO_BINDIR") && message.contains("18.6"), "{message}");
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0, "no lock, no directory");
    }

    #[test]
    fn waiting_for_another_download_times_out_and_names_its_process() {
        let cache = tempfile::TempDir::new().unwrap();
        let own = OwnDir::open(cache.path(), DirMode::Unchanged).unwrap().unwrap();
        let own = Arc::new(own);
        let build = Build { major: 18, minor: 6, sha256: &[] };
        let stop = Stop::new();
        let lock = |timeout| lock(own.clone(), cache.path(), &build, timeout, &stop);
        let mut held = lock(Duration::ZERO).unwrap();
        let mode = held.file().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "no other user can hold it");
        let Err(DownloadError::Locked { source, .. }) = lock(Duration::from_millis(100)) else {
            panic!("it is held");
        };
        let message = source.to_string();
        assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
        stop.request();
        let stopped = lock(LOCK_TIMEOUT);
        assert!(matches!(stopped, Err(DownloadError::Stopped { .. })), "{stopped:?}");
        drop(held);
        lock(Duration::ZERO).unwrap();
    }

    #[test]
    fn files_unpacked_by_root_are_readable_by_the_server_user() {
        let root = tempfile::TempDir::new().unwrap();
        let bin = root.path().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::set_permissions(&bin, fs::Permissions::from_mode(0o700)).unwrap();
        let file = |name: &str, mode| {
            let file = bin.join(name);
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            file
        };
        let (program, data) = (file("postgres", 0o700), file("data", 0o600));
        readable_by_all(root.path()).unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&bin), mode(&program), mode(&data)), (0o755, 0o755, 0o644));
    }

    const VERSION: ServerVersion = ServerVersion { major: 18, minor: 6 };

    #[test]
    fn time_left_follows_from_the_mean_rate() {
        let two = Duration::from_secs(2);
        assert_eq!(time_left(1000, two, 4000), Some(Duration::from_secs(8)));
        assert_eq!(time_left(1000, two, 0), Some(Duration::ZERO));
        assert_eq!(time_left(0, two, 4000), None, "nothing arrived");
        assert_eq!(time_left(1000, Duration::from_millis(1), 4000), None, "too early");
    }

    #[test]
    fn the_first_and_the_last_count_are_reported_and_few_between() {
        let mut seen = Vec::new();
        let mut observer = |progress: &Progress| seen.push(progress.clone());
        let mut meter = Meter::new(VERSION, &mut observer);
        for received in 500..=1000 {
            meter.count(received, Some(1000));
        }
        let counts: Vec<u64> = seen
            .iter()
            .map(|p| match p {
                Progress::Download { received, .. } => *received,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((counts.first(), counts.last()), (Some(&500), Some(&1000)));
        assert!(counts.len() < 100, "{counts:?}");
    }

    #[test]
    fn files_modes_and_links_are_unpacked() {
        let dir = tempfile::TempDir::new().unwrap();
        let into = dir.path().join("server");
        unpack(SAMPLE, &into).unwrap();
        let mode = |name: &str| fs::metadata(into.join(name)).unwrap().permissions().mode() & 0o777;
        let modes = ["bin", "bin/postgres", "lib/libpq.so.5.18", "share/postgresql/README"];
        assert_eq!(modes.map(mode), [0o700, 0o700, 0o600, 0o640]);
        assert_eq!(fs::read_to_string(into.join("lib/libpq.so")).unwrap(), "a library\n");
        let link = fs::read_link(into.join("lib/libpq.so")).unwrap();
        assert_eq!(link, Path::new("libpq.so.5.18"));
    }

    #[test]
    fn an_archive_that_is_not_a_build_is_refused() {
        let dir = tempfile::TempDir::new().unwrap();
        let refused = |jar: &[u8]| unpack(jar, &dir.path().join("server")).unwrap_err();
        assert!(matches!(refused(b""), UnpackError::Zip(_)));
        assert!(matches!(refused(&SAMPLE[..SAMPLE.len() - 30]), UnpackError::Zip(_)));
        // An empty zip: its end record alone.
        let empty = [b"PK\x05\x06".as_slice(), &[0; 18]].concat();
        assert!(matches!(refused(&empty), UnpackError::NoTar));
        // A bit in the compressed tar.
        let mut damaged = SAMPLE.to_owned();
        damaged[300] ^= 1;
        assert!(matches!(refused(&damaged), UnpackError::Inflate(_) | UnpackError::Tar(_)));
    }
}
