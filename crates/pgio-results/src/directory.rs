//! An open directory, and operations on the files below it.
//!
//! Every name is resolved from the descriptor, component by component and without following links,
//! so that later changes of the path have no effect.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fchmod, fchown, fstat, fsync, mkdirat, open, openat,
    readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};

use crate::files::Refused;

/// Flags for opening a directory.
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
/// Flags for opening an untrusted file. `NONBLOCK`: opening a FIFO must not wait for its other end.
const UNTRUSTED: OFlags =
    OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Maximum number of symbolic links on a path, as in the kernel.
const MAX_LINKS: u32 = 40;

/// Attempts to create a file; another process may create the same name first.
const MAX_ATTEMPTS: usize = 16;

#[derive(Debug)]
pub struct Directory(OwnedFd);

impl Directory {
    /// Follows links in the path, because the user chose it.
    pub fn open(path: &Path) -> io::Result<Directory> {
        Ok(Directory(open(path, DIRECTORY | OFlags::RDONLY, Mode::empty())?))
    }

    /// Opens a directory to write there. Root follows no link that another user could turn elsewhere.
    pub fn open_to_write(path: &Path) -> io::Result<Directory> {
        open_checked(path, |_, _| Ok(false))
    }

    /// Like [`Directory::open_to_write`], but creates missing directories. Only the owner may write to them,
    /// whatever the umask.
    pub fn open_or_create(path: &Path) -> io::Result<Directory> {
        open_checked(path, |parent, name| match mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => Ok(true),
            Err(error) => Err(error.into()),
        })
    }

    /// Like [`Directory::open`], but fails if the last component is a link.
    pub fn open_no_follow(path: &Path) -> io::Result<Directory> {
        let flags = DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW;
        Ok(Directory(open(path, flags, Mode::empty())?))
    }

    pub fn open_subdirectory(&self, name: impl AsRef<OsStr>) -> io::Result<Directory> {
        let name = name.as_ref();
        let flags = DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW;
        match openat(&self.0, name, flags, Mode::empty()) {
            Ok(directory) => Ok(Directory(directory)),
            Err(Errno::NOTDIR | Errno::LOOP) if self.is_link(name) => Err(Refused::Link.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a directory with exactly this mode; fails if it exists.
    pub fn create_subdirectory(&self, name: &str, mode: u32) -> io::Result<Directory> {
        mkdirat(&self.0, name, Mode::from_raw_mode(0o700))?;
        let created = self.open_subdirectory(name)?;
        fchmod(&created.0, Mode::from_raw_mode(mode))?;
        Ok(created)
    }

    /// Creates a directory unless it exists, and opens it.
    pub fn ensure_subdirectory(&self, name: &str) -> io::Result<Directory> {
        match mkdirat(&self.0, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => self.open_subdirectory(name),
            Err(error) => Err(error.into()),
        }
    }

    pub fn stat(&self) -> io::Result<Stat> {
        Ok(fstat(&self.0)?)
    }

    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fchmod(&self.0, Mode::from_raw_mode(mode))?)
    }

    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        set_owner(&self.0, uid, gid)
    }

    /// Whether the name exists, even as a dangling link.
    pub fn has(&self, name: &str) -> bool {
        statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Whether the name still refers to this open file.
    pub fn is_named(&self, name: &str, file: &File) -> io::Result<bool> {
        let open = fstat(file)?;
        match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok((found.st_dev, found.st_ino) == (open.st_dev, open.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a regular file of at most `limit` bytes for reading. `name` may have several
    /// components; none may be a link.
    pub fn open_file(&self, name: &Path, limit: u64) -> io::Result<File> {
        let invalid = || Refused::Name(name.display().to_string());
        let mut components = Vec::new();
        for component in name.components() {
            let Component::Normal(part) = component else { return Err(invalid().into()) };
            components.push(part);
        }
        let (last, parents) = components.split_last().ok_or_else(invalid)?;
        let mut inner = None;
        for parent in parents {
            inner = Some(inner.as_ref().unwrap_or(self).open_subdirectory(parent)?);
        }
        let directory = inner.as_ref().unwrap_or(self);
        let file = directory.open_regular(last, OFlags::RDONLY)?;
        let bytes = file.metadata()?.len();
        if bytes > limit {
            return Err(Refused::TooLarge { bytes, limit }.into());
        }
        Ok(file)
    }

    pub fn read_bytes(&self, name: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        // The file may grow while it is read.
        let bytes = self.open_file(name, limit)?.take(limit + 1).read_to_end(&mut all)? as u64;
        if bytes > limit { Err(Refused::TooLarge { bytes, limit }.into()) } else { Ok(all) }
    }

    /// Reads a file as text.
    pub fn read(&self, name: &Path, limit: u64) -> io::Result<String> {
        let text = String::from_utf8(self.read_bytes(name, limit)?);
        text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Opens a regular file without other hard links for appending.
    pub fn append_to(&self, name: &str) -> io::Result<File> {
        let file = self.open_regular(OsStr::new(name), OFlags::RDWR | OFlags::APPEND)?;
        match fstat(&file)?.st_nlink {
            0 | 1 => Ok(file),
            _ => Err(Refused::HardLink.into()),
        }
    }

    /// Creates a file; fails if it exists. The umask applies to the mode.
    pub fn create_new(&self, name: &str, mode: u32) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | UNTRUSTED;
        Ok(openat(&self.0, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Creates a file, replacing an existing file or link of that name.
    pub fn replace(&self, name: &str, mode: u32) -> io::Result<File> {
        for _ in 0..MAX_ATTEMPTS {
            self.remove(name)?;
            match self.create_new(name, mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => return result,
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Removes a file or a link, not the link's target. Returns whether it existed.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<bool> {
        match unlinkat(&self.0, name.as_ref(), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.0)?)
    }

    /// Replaces a file: writes a temporary file with an unpredictable name, syncs and renames it.
    pub fn write(&self, name: &Path, bytes: &[u8]) -> io::Result<()> {
        let (mut file, temporary) = self.create_temporary()?;
        let mut write = || -> io::Result<()> {
            file.write_all(bytes)?;
            if let Some(mode) = self.mode_of_file(name) {
                fchmod(&file, mode)?;
            }
            file.sync_all()?;
            renameat(&self.0, &temporary, &self.0, name)?;
            self.sync()
        };
        write().inspect_err(|_| {
            // Ignore a failure to remove the temporary file.
            let _ = self.remove(&temporary);
        })
    }

    /// Only the owner may write to the file, whatever the umask: `--resume` trusts it.
    fn create_temporary(&self) -> io::Result<(File, String)> {
        for attempt in 0..MAX_ATTEMPTS {
            // RandomState takes its keys from the system's random numbers.
            let name = format!(".pgio-{:016x}.partial", RandomState::new().hash_one(attempt));
            match self.create_new(&name, 0o644) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return Ok((created?, name)),
            }
        }
        Err(Errno::EXIST.into())
    }

    /// The mode of the file to be replaced, for the new file.
    fn mode_of_file(&self, name: &Path) -> Option<Mode> {
        let found = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let regular = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        regular.then(|| Mode::from_raw_mode(found.st_mode & 0o755))
    }

    /// Checks the type before opening, because opening a device may have side effects, and again
    /// afterwards, because the file may have been replaced.
    fn open_regular(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        check_regular(&statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?)?;
        let opened = match openat(&self.0, name, flags | UNTRUSTED, Mode::empty()) {
            Err(Errno::LOOP) => return Err(Refused::Link.into()),
            opened => opened?,
        };
        check_regular(&fstat(&opened)?)?;
        Ok(opened.into())
    }

    fn is_link(&self, name: &OsStr) -> bool {
        statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
    }
}

impl AsRawFd for Directory {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn open_checked(
    path: &Path,
    make: impl Fn(&OwnedFd, &OsStr) -> io::Result<bool>,
) -> io::Result<Directory> {
    let check = |found: &Stat, at: &Path| match FileType::from_raw_mode(found.st_mode) {
        FileType::Symlink if geteuid().is_root() && found.st_uid != 0 => {
            Err(Refused::ForeignLink(at.to_owned()).into())
        }
        _ => Ok(()),
    };
    let make = |parent: &OwnedFd, name: &OsStr, _: &Path| make(parent, name);
    let opened = walk(path, check, make, |_, error| error.into())?;
    let (directory, _) = opened.ok_or(io::ErrorKind::NotFound)?;
    Ok(Directory(directory))
}

/// Opens a directory one component at a time, so that nobody can turn a checked path elsewhere; returns it with its
/// path without links. `check` gets each directory before it is searched, and each link before it is followed. `make`
/// creates what is missing, or returns false: then the result is `None`.
///
/// # Errors
///
/// Those of `check` and `make`; `failed` makes the others.
pub fn walk<E>(
    path: &Path,
    check: impl Fn(&Stat, &Path) -> Result<(), E>,
    make: impl Fn(&OwnedFd, &OsStr, &Path) -> Result<bool, E>,
    failed: impl Fn(&Path, Errno) -> E,
) -> Result<Option<(OwnedFd, PathBuf)>, E> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let start = |at: &str| {
        let opened = open(at, flags | OFlags::DIRECTORY, Mode::empty());
        Ok((opened.map_err(|e| failed(path, e))?, PathBuf::from(at)))
    };
    // The directories above the working directory may not be searchable.
    let (mut here, mut at) = start(if path.is_absolute() { "/" } else { "." })?;
    let (mut todo, mut links) = (VecDeque::from(names_of(path)), 0);
    while let Some(name) = todo.pop_front() {
        check(&fstat(&here).map_err(|e| failed(&at, e))?, &at)?;
        let next = at.join(&name);
        let mut opened = openat(&here, &name, flags, Mode::empty());
        if matches!(opened, Err(Errno::NOENT)) {
            if !make(&here, &name, &next)? {
                return Ok(None);
            }
            opened = openat(&here, &name, flags, Mode::empty());
        }
        let opened = opened.map_err(|e| failed(&next, e))?;
        let found = fstat(&opened).map_err(|e| failed(&next, e))?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(failed(path, Errno::LOOP));
                }
                check(&found, &next)?;
                let target = readlinkat(&opened, "", Vec::new()).map_err(|e| failed(&next, e))?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                if target.is_absolute() {
                    (here, at) = start("/")?;
                }
                for name in names_of(&target).into_iter().rev() {
                    todo.push_front(name);
                }
            }
            FileType::Directory if name == ".." && at.file_name().is_some() => {
                at.pop();
                here = opened;
            }
            FileType::Directory => (here, at) = (opened, next),
            _ => return Err(failed(&next, Errno::NOTDIR)),
        }
    }
    let flags = DIRECTORY | OFlags::RDONLY;
    let directory = openat(&here, ".", flags, Mode::empty()).map_err(|e| failed(&at, e))?;
    Ok(Some((directory, at)))
}

fn names_of(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

fn set_owner(fd: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    Ok(fchown(fd, uid.map(Uid::from_raw), gid.map(Gid::from_raw))?)
}

fn check_regular(found: &Stat) -> Result<(), Refused> {
    Err(match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Symlink => Refused::Link,
        FileType::Directory => Refused::NotRegular("a directory"),
        FileType::Fifo => Refused::NotRegular("a FIFO"),
        FileType::Socket => Refused::NotRegular("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Refused::NotRegular("a device"),
        FileType::Unknown => Refused::NotRegular("a file of an unknown type"),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;
    use crate::files::write_durably;

    fn fixture() -> (TempDir, Directory, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        (dir, directory, victim)
    }

    fn refused(error: &io::Error) -> Option<&Refused> {
        error.get_ref()?.downcast_ref()
    }

    fn fifo(path: &Path) {
        rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0)
            .unwrap();
    }

    #[test]
    fn a_planted_link_is_replaced_and_not_followed() {
        let (dir, _, victim) = fixture();
        let file = dir.path().join("manifest.json");
        symlink(&victim, &file).unwrap();
        write_durably(&file, "new").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(fs::symlink_metadata(&file).unwrap().is_file());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 2, "no temporary file is left");
    }

    #[test]
    fn a_failed_replacement_leaves_no_temporary_file() {
        let (dir, _, _) = fixture();
        let taken = dir.path().join("taken");
        fs::create_dir(&taken).unwrap();
        write_durably(&taken, "text").unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_replaced_file_keeps_its_mode_without_write_permission_for_others() {
        let (dir, _, victim) = fixture();
        for (before, after) in [(0o600, 0o600), (0o666, 0o644)] {
            fs::set_permissions(&victim, fs::Permissions::from_mode(before)).unwrap();
            write_durably(&victim, "new").unwrap();
            assert_eq!(fs::metadata(&victim).unwrap().permissions().mode() & 0o777, after);
        }
        write_durably(&dir.path().join("fresh"), "new").unwrap();
        let mode = fs::metadata(dir.path().join("fresh")).unwrap().permissions().mode();
        assert_eq!(mode & 0o022, 0);
    }

    #[test]
    fn only_regular_files_are_read_without_blocking() {
        let (dir, directory, victim) = fixture();
        let read = |name: &str| directory.read(Path::new(name), 100);
        assert_eq!(read("victim").unwrap(), "precious");
        symlink(&victim, dir.path().join("link")).unwrap();
        symlink("/dev/zero", dir.path().join("device")).unwrap();
        fifo(&dir.path().join("fifo"));
        for name in ["link", "device"] {
            assert_eq!(refused(&read(name).unwrap_err()), Some(&Refused::Link), "{name}");
        }
        let error = read("fifo").unwrap_err();
        assert_eq!(error.to_string(), "it is a FIFO and not a regular file");
        let devices = Directory::open(Path::new("/dev")).unwrap();
        let error = devices.read(Path::new("zero"), 100).unwrap_err();
        assert_eq!(refused(&error), Some(&Refused::NotRegular("a device")));
    }

    #[test]
    fn names_stay_below_the_directory() {
        let (dir, directory, _) = fixture();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("a"), "a").unwrap();
        symlink(&inner, dir.path().join("linked")).unwrap();
        let read = |name: &str| directory.read(Path::new(name), 100);
        assert_eq!(read("inner/a").unwrap(), "a");
        for name in ["../x", "inner/../victim", "/etc/passwd", "", "."] {
            let error = read(name).unwrap_err();
            assert!(matches!(refused(&error), Some(Refused::Name(_))), "{name}: {error}");
        }
        assert_eq!(refused(&read("linked/a").unwrap_err()), Some(&Refused::Link));
    }

    #[test]
    fn a_file_too_large_is_refused_with_both_sizes() {
        let (_dir, directory, _) = fixture();
        let error = directory.read(Path::new("victim"), 7).unwrap_err();
        assert_eq!(refused(&error), Some(&Refused::TooLarge { bytes: 8, limit: 7 }));
        assert_eq!(directory.read(Path::new("victim"), 8).unwrap(), "precious");
    }

    #[test]
    fn a_file_with_a_second_hard_link_is_not_appended_to() {
        let (dir, directory, victim) = fixture();
        fs::hard_link(&victim, dir.path().join("other")).unwrap();
        let error = directory.append_to("other").unwrap_err();
        assert_eq!(refused(&error), Some(&Refused::HardLink));
        fs::remove_file(dir.path().join("other")).unwrap();
        let mut file = directory.append_to("victim").unwrap();
        file.write_all(b"!").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious!");
        assert!(directory.is_named("victim", &file).unwrap());
        fs::rename(&victim, dir.path().join("away")).unwrap();
        assert!(!directory.is_named("victim", &file).unwrap());
    }

    #[test]
    fn replacing_a_link_creates_a_regular_file() {
        let (dir, directory, victim) = fixture();
        symlink(&victim, dir.path().join("iostat.out")).unwrap();
        directory.replace("iostat.out", 0o644).unwrap().write_all(b"x").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(dir.path().join("iostat.out")).unwrap(), "x");
    }
}
