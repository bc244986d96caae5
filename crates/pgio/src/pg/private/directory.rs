//! One open directory of a cluster, and safe creation of files in it.
//!
//! The subdirectories belong to the server's user, who is not trusted: as root, pgio would follow a
//! link planted there and could overwrite any file. Therefore each file is opened relative to a
//! descriptor and never through a link. Files that only pgio writes are in the top directory, which
//! the server's user may enter but not change. `layout` defines the paths.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;

use super::{Error, at};
use crate::host::exec::Ids;
use crate::host::lock::LockedFile;
use pgio_results::files::{Directory, Refused};

const MARKER: &str = "marker";
const MARK: &str = "This directory belongs to a private PostgreSQL of pgio, which removes it.\n";
/// Names the main directory of the cluster, in each of its other directories.
const MAIN_LINK: &str = "cluster";
pub(super) const SOCKETS: &str = "run";
/// The primary's WAL, if it is apart from its data.
pub(super) const WAL: &str = "wal";

/// Timeout for the lock of a new marker: a clean-up may hold it while it looks for the mark.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of a log to show.
const MAX_LOG_TAIL: u64 = 64 << 10;
/// Maximum length of a path.
const MAX_PATH: u64 = 4096;
/// Maximum size of postmaster.pid, which has eight lines.
const MAX_PID_FILE: u64 = 16 << 10;

#[derive(Debug)]
pub(super) struct ClusterDirectory {
    directory: Directory,
    /// Kept open to hold the lock.
    _marker: LockedFile,
    owner: Option<Ids>,
}

impl ClusterDirectory {
    /// Prepares a new directory at `root`: marks and locks it. The main directory gets the socket
    /// directory, which only the server's user and root may enter; each other one names the main
    /// one. The lock is released when this value is dropped.
    pub(super) fn fill(
        root: &Path,
        main: Option<&Path>,
        owner: Option<Ids>,
    ) -> Result<ClusterDirectory, Error> {
        let fill = || -> io::Result<ClusterDirectory> {
            let directory = Directory::open_no_follow(root)?;
            let stat = directory.stat()?;
            // Someone who may rename in the parent directory may have replaced it.
            if stat.st_uid != geteuid().as_raw() {
                return Err(Refused::Owner(stat.st_uid).into());
            }
            // Lock before writing the mark: a clean-up must never see a marked directory without a
            // lock.
            let marker = directory.create_new(MARKER, 0o600)?;
            let mut marker = LockedFile::lock(marker, LOCK_TIMEOUT).map_err(io::Error::other)?;
            if let Some(main) = main {
                directory.create_new(MAIN_LINK, 0o600)?.write_all(main.as_os_str().as_bytes())?;
            }
            marker.write_all(MARK.as_bytes())?;
            let cluster = ClusterDirectory { directory, _marker: marker, owner };
            if main.is_none() {
                cluster.make(SOCKETS)?;
            }
            if let Some(ids) = owner {
                cluster.directory.set_owner(None, Some(ids.gid))?;
                cluster.directory.set_mode(0o710)?;
            }
            Ok(cluster)
        };
        fill().map_err(at(root))
    }

    /// Opens and locks a directory left by a supervisor that has ended; `None` if it is not ours. `wait` is for a
    /// supervisor that was killed a moment ago.
    pub(super) fn claim(root: &Path, wait: Duration) -> Option<ClusterDirectory> {
        let directory = open_own(root)?;
        let marker = directory.open_file(Path::new(MARKER), MARK.len() as u64).ok()?;
        let mut marker = LockedFile::lock(marker, wait).ok()?;
        let mut text = String::new();
        marker.read_to_string(&mut text).ok()?;
        (text == MARK).then_some(ClusterDirectory { directory, _marker: marker, owner: None })
    }

    /// Like [`claim`](Self::claim), for a directory that may lack the mark; `None` if it holds anything else.
    pub(super) fn claim_unfinished(root: &Path) -> Option<ClusterDirectory> {
        let directory = open_own(root)?;
        for entry in fs::read_dir(root).ok()? {
            if ![MARKER, MAIN_LINK]
                .iter()
                .any(|name| entry.as_ref().is_ok_and(|e| e.file_name() == *name))
            {
                return None;
            }
        }
        let marker = match directory.create_new(MARKER, 0o600) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                directory.open_file(Path::new(MARKER), MARK.len() as u64)
            }
            created => created,
        };
        let marker = LockedFile::lock(marker.ok()?, Duration::ZERO).ok()?;
        Some(ClusterDirectory { directory, _marker: marker, owner: None })
    }

    /// The main directory of the cluster; `None` if this is it.
    pub(super) fn main(&self) -> Option<PathBuf> {
        let bytes = self.directory.read_bytes(Path::new(MAIN_LINK), MAX_PATH).ok()?;
        Some(PathBuf::from(OsString::from_vec(bytes)))
    }

    /// Creates an empty directory owned by the server's user.
    pub(super) fn make(&self, name: &str) -> io::Result<()> {
        let created = self.directory.create_subdirectory(name, 0o700)?;
        match self.owner {
            Some(ids) => created.set_owner(Some(ids.uid), Some(ids.gid)),
            None => Ok(()),
        }
    }

    /// Creates a file in a data directory, owned by the server's user.
    pub(super) fn create_data_file(&self, data: &str, name: &str) -> io::Result<()> {
        let file = self.directory.open_subdirectory(data)?.create_new(name, 0o600)?;
        match self.owner {
            Some(ids) => std::os::unix::fs::fchown(&file, Some(ids.uid), Some(ids.gid)),
            None => Ok(()),
        }
    }

    /// Appends to a file in a data directory.
    pub(super) fn append(&self, data: &str, name: &str, text: &str) -> io::Result<()> {
        self.directory.open_subdirectory(data)?.append_to(name)?.write_all(text.as_bytes())
    }

    /// Opens the log of the server's stderr for appending.
    pub(super) fn open_log(&self, log: &str) -> io::Result<File> {
        match self.directory.create_new(log, 0o600) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.directory.append_to(log)
            }
            created => created,
        }
    }

    /// The end of the log.
    pub(super) fn log_tail(&self, log: &str) -> io::Result<String> {
        let mut log = self.directory.open_file(Path::new(log), u64::MAX)?;
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(MAX_LOG_TAIL)))?;
        let mut bytes = Vec::new();
        log.take(MAX_LOG_TAIL).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn pid_file(&self, data: &str) -> io::Result<String> {
        self.directory.open_subdirectory(data)?.read(Path::new("postmaster.pid"), MAX_PID_FILE)
    }

    /// Removes the content of the directory, even if the directory was renamed.
    pub(super) fn clear(&self) -> io::Result<()> {
        // Remove the marker last, so that an interrupted removal is completed later.
        let by_descriptor = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        for entry in fs::read_dir(&by_descriptor)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else if entry.file_name() != MARKER {
                fs::remove_file(entry.path())?;
            }
        }
        self.directory.remove(MARKER).map(drop)
    }
}

/// `None` if it is not a directory of this user's.
fn open_own(root: &Path) -> Option<Directory> {
    let directory = Directory::open_no_follow(root).ok()?;
    (directory.stat().ok()?.st_uid == geteuid().as_raw()).then_some(directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use tempfile::TempDir;

    use super::*;

    fn fixture() -> (TempDir, ClusterDirectory) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("pgio-a")).unwrap();
        let cluster = ClusterDirectory::fill(&dir.path().join("pgio-a"), None, None).unwrap();
        cluster.make("standby").unwrap();
        fs::write(dir.path().join("victim"), "precious").unwrap();
        (dir, cluster)
    }

    /// The server's user may plant links in its directory at any time.
    #[test]
    fn links_in_a_data_directory_are_refused() {
        let (dir, cluster) = fixture();
        let (victim, data) = (dir.path().join("victim"), dir.path().join("pgio-a/standby"));
        for name in ["standby.signal", "postgresql.conf", "postmaster.pid"] {
            symlink(&victim, data.join(name)).unwrap();
        }
        cluster.create_data_file("standby", "standby.signal").unwrap_err();
        cluster.append("standby", "postgresql.conf", "x = 'y'").unwrap_err();
        cluster.pid_file("standby").unwrap_err();
        fs::remove_file(data.join("postmaster.pid")).unwrap();
        // A plain open would wait for a writer.
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, data.join("postmaster.pid"), FileType::Fifo, mode, 0).unwrap();
        cluster.pid_file("standby").unwrap_err();
        fs::remove_dir_all(&data).unwrap();
        symlink(dir.path(), &data).unwrap();
        cluster.append("standby", "victim", "x").unwrap_err();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn clear_affects_only_the_original_directory() {
        let (dir, cluster) = fixture();
        let (root, away) = (dir.path().join("pgio-a"), dir.path().join("away"));
        fs::write(root.join("standby/file"), "").unwrap();
        // The owner of the parent directory may rename it.
        fs::rename(&root, &away).unwrap();
        fs::create_dir(&root).unwrap();
        fs::write(root.join("other"), "precious").unwrap();
        cluster.clear().unwrap();
        assert_eq!(fs::read_dir(&away).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(root.join("other")).unwrap(), "precious");
    }

    /// The parser of experiments refuses standbys with these names.
    #[test]
    fn no_standby_has_the_name_of_a_file() {
        use crate::config::experiment::RESERVED_NAMES;
        for name in [MARKER, MAIN_LINK, SOCKETS, WAL, super::super::PRIMARY] {
            assert!(RESERVED_NAMES.contains(&name), "{name}");
        }
    }

    #[test]
    fn log_tail_reads_only_the_end() {
        let (_dir, cluster) = fixture();
        let mut log = cluster.open_log("primary.log").unwrap();
        log.write_all("x\n".repeat(100_000).as_bytes()).unwrap();
        log.write_all(b"the end\n").unwrap();
        let tail = cluster.log_tail("primary.log").unwrap();
        assert!(tail.len() as u64 == MAX_LOG_TAIL && tail.ends_with("x\nthe end\n"));
    }
}
