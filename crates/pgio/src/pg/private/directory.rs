//! The cluster's directory held open, for the one who makes files in it.
//!
//! The directories inside belong to the server's user, who is not trusted: as root, a link planted
//! there would make us write to any file. So each file is opened below a descriptor, and none through
//! a link; what only we write lies in the directory above, which the server's user may enter and not
//! change. Paths are in `layout`.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::process::geteuid;

use super::layout::Role;
use super::{Error, at};
use crate::files::{Directory, Refused};
use crate::host::exec::Ids;

const MARKER: &str = "marker";
const MARK: &str = "This directory belongs to a private PostgreSQL of pgio, which removes it.\n";
pub(super) const SOCKETS: &str = "run";

/// Of a log that is shown.
const TAIL: u64 = 64 << 10;
/// postmaster.pid has eight lines.
const PID_FILE: u64 = 16 << 10;

#[derive(Debug)]
pub(super) struct Place {
    directory: Directory,
    /// Held open for its lock.
    _marker: File,
    owner: Option<Ids>,
}

impl Place {
    /// Fills a new directory at `root`: marked, locked, and with a place for the sockets that nobody
    /// but the server's user and root may enter. The lock lasts as long as this.
    pub(super) fn fill(root: &Path, owner: Option<Ids>) -> Result<Place, Error> {
        let fill = || -> io::Result<Place> {
            let directory = Directory::open_exactly(root)?;
            let found = directory.stat()?;
            // Whoever may rename in the directory above may have put another in its place.
            if found.st_uid != geteuid().as_raw() {
                return Err(Refused::Owner(found.st_uid).into());
            }
            let mut marker = directory.create_new(MARKER, 0o600)?;
            // Locked before it says what it is: a sweeper never sees it marked but free.
            marker.lock()?;
            marker.write_all(MARK.as_bytes())?;
            let place = Place { directory, _marker: marker, owner };
            place.make(SOCKETS)?;
            if let Some(ids) = owner {
                place.directory.set_owner(None, Some(ids.gid))?;
                place.directory.set_mode(0o710)?;
            }
            Ok(place)
        };
        fill().map_err(at(root))
    }

    /// One that an ended supervisor left, locked for the caller; none where it is not ours.
    pub(super) fn claim(root: &Path) -> Option<Place> {
        let directory = Directory::open_exactly(root).ok()?;
        if directory.stat().ok()?.st_uid != geteuid().as_raw() {
            return None;
        }
        let mut marker = directory.open_file(Path::new(MARKER), MARK.len() as u64).ok()?;
        marker.try_lock().ok()?;
        let mut text = String::new();
        marker.read_to_string(&mut text).ok()?;
        (text == MARK).then_some(Place { directory, _marker: marker, owner: None })
    }

    /// An empty directory of the server's user.
    fn make(&self, name: &str) -> io::Result<()> {
        let made = self.directory.make_new_below(name, 0o700)?;
        match self.owner {
            Some(ids) => made.set_owner(Some(ids.uid), Some(ids.gid)),
            None => Ok(()),
        }
    }

    pub(super) fn make_data(&self, role: Role) -> io::Result<()> {
        self.make(role.name())
    }

    /// A new file in a data directory, of the server's user.
    pub(super) fn create_data_file(&self, role: Role, name: &str) -> io::Result<()> {
        let file = self.directory.below(role.name())?.create_new(name, 0o600)?;
        match self.owner {
            Some(ids) => std::os::unix::fs::fchown(&file, Some(ids.uid), Some(ids.gid)),
            None => Ok(()),
        }
    }

    /// Adds to a file in a data directory.
    pub(super) fn append(&self, role: Role, name: &str, text: &str) -> io::Result<()> {
        self.directory.below(role.name())?.append_to(name)?.write_all(text.as_bytes())
    }

    /// What the server writes to its stderr, opened for adding to it.
    pub(super) fn open_log(&self, role: Role) -> io::Result<File> {
        match self.directory.create_new(role.log(), 0o600) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.directory.append_to(role.log())
            }
            made => made,
        }
    }

    /// The end of the log.
    pub(super) fn log_tail(&self, role: Role) -> io::Result<String> {
        let mut log = self.directory.open_file(Path::new(role.log()), u64::MAX)?;
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        log.take(TAIL).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn pid_file(&self, role: Role) -> io::Result<String> {
        self.directory.below(role.name())?.read(Path::new("postmaster.pid"), PID_FILE)
    }

    /// Removes all that is in it, wherever the directory is by now.
    pub(super) fn clear(&self) -> io::Result<()> {
        // The marker goes last: what is left of an interrupted removal is swept.
        let by_descriptor = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        for entry in fs::read_dir(&by_descriptor)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false if entry.file_name() == MARKER => {}
                false => fs::remove_file(entry.path())?,
            }
        }
        self.directory.remove(MARKER).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use tempfile::TempDir;

    use super::*;

    fn place() -> (TempDir, Place) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("pgio-a")).unwrap();
        let place = Place::fill(&dir.path().join("pgio-a"), None).unwrap();
        place.make_data(Role::Standby).unwrap();
        fs::write(dir.path().join("victim"), "precious").unwrap();
        (dir, place)
    }

    /// As the server's user may plant them in his directory, whenever he likes.
    #[test]
    fn links_in_a_data_directory_are_refused() {
        let (dir, place) = place();
        let (victim, data) = (dir.path().join("victim"), dir.path().join("pgio-a/standby"));
        for name in ["standby.signal", "postgresql.conf", "postmaster.pid"] {
            symlink(&victim, data.join(name)).unwrap();
        }
        place.create_data_file(Role::Standby, "standby.signal").unwrap_err();
        place.append(Role::Standby, "postgresql.conf", "x = 'y'").unwrap_err();
        place.pid_file(Role::Standby).unwrap_err();
        fs::remove_file(data.join("postmaster.pid")).unwrap();
        // Opened without care it would wait for a writer.
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, data.join("postmaster.pid"), FileType::Fifo, mode, 0).unwrap();
        place.pid_file(Role::Standby).unwrap_err();
        fs::remove_dir_all(&data).unwrap();
        symlink(dir.path(), &data).unwrap();
        place.append(Role::Standby, "victim", "x").unwrap_err();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn what_is_cleared_is_the_directory_that_was_made() {
        let (dir, place) = place();
        let (root, away) = (dir.path().join("pgio-a"), dir.path().join("away"));
        fs::write(root.join("standby/file"), "").unwrap();
        // Whoever owns the directory above may rename.
        fs::rename(&root, &away).unwrap();
        fs::create_dir(&root).unwrap();
        fs::write(root.join("other"), "precious").unwrap();
        place.clear().unwrap();
        assert_eq!(fs::read_dir(&away).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(root.join("other")).unwrap(), "precious");
    }

    #[test]
    fn only_the_end_of_a_log_is_read() {
        let (_dir, place) = place();
        let mut log = place.open_log(Role::Primary).unwrap();
        log.write_all("x\n".repeat(100_000).as_bytes()).unwrap();
        log.write_all(b"the end\n").unwrap();
        let tail = place.log_tail(Role::Primary).unwrap();
        assert!(tail.len() as u64 == TAIL && tail.ends_with("x\nthe end\n"));
    }
}
