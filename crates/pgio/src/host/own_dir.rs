//! A directory whose files pgio will act on later: nobody else may put anything there.
//!
//! A journal holds commands that `pgio undo` runs, a cached server is a program. So the directory and
//! every file in it must belong to this user or to root and be closed to writers, and so must
//! every directory and symbolic link on the way, or another user could put a directory of theirs in its
//! place; in a directory with the sticky bit, such as /tmp, only the owner can. The path is
//! walked one component at a time without following links, and files are opened relative to what was
//! checked, so that there is no gap between the check and the use.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fchmod, fstat, fsync, mkdirat, open, openat,
    readlinkat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// As the kernel's limit.
const MOST_LINKS: u32 = 40;
const ROOT: u32 = 0;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

#[derive(Debug, thiserror::Error)]
pub enum OwnDirError {
    #[error(
        "{} belongs to user {owner}, and pgio runs as user {user}: nothing there is trusted; remove it, or name another directory",
        path.display()
    )]
    Owner { path: PathBuf, owner: u32, user: u32 },
    #[error(
        "{} can be written by other users (mode {mode:04o}): nothing there is trusted; `chmod go-w {}` after a look at what it holds, or name another directory",
        path.display(), path.display()
    )]
    Writable { path: PathBuf, mode: u32 },
    #[error("{} is not a {expected}", path.display())]
    Kind { path: PathBuf, expected: &'static str },
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

/// Who else may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// A directory is made and kept with mode 0700, a file with 0600.
    Nobody,
    /// As they are.
    Everybody,
}

/// A checked directory, open.
#[derive(Debug)]
pub struct OwnDir {
    path: PathBuf,
    directory: OwnedFd,
    readers: Readers,
}

impl OwnDir {
    /// `None` where it does not exist.
    pub fn open(path: &Path, readers: Readers) -> Result<Option<OwnDir>, OwnDirError> {
        walk(path, readers, false)
    }

    /// Makes what is missing of the path, each directory with mode 0700 whatever the umask is.
    pub fn create(path: &Path, readers: Readers) -> Result<OwnDir, OwnDirError> {
        let made = walk(path, readers, true)?;
        made.ok_or_else(|| failed("create", path)(Errno::NOENT))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn path_of(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Names with this extension, sorted.
    pub fn names(&self, extension: &str) -> Result<Vec<PathBuf>, OwnDirError> {
        let entries = Dir::read_from(&self.directory).map_err(failed("list", &self.path))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed("list", &self.path))?;
            let name = PathBuf::from(OsString::from_vec(entry.file_name().to_bytes().to_vec()));
            if name.extension().is_some_and(|found| found == extension) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// For reading and appending; `None` where it does not exist.
    pub fn open_file(&self, name: impl AsRef<Path>) -> Result<Option<File>, OwnDirError> {
        match self.open_with(name.as_ref(), OFlags::RDWR | OFlags::APPEND, self.readers) {
            Err(OwnDirError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }

    /// For appending; refused where it exists.
    pub fn create_file(&self, name: impl AsRef<Path>) -> Result<File, OwnDirError> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        self.open_with(name.as_ref(), flags, self.readers)
    }

    /// For reading and writing, made where it does not exist: for locks, which nobody else may read, since
    /// whoever may open a file may lock it.
    pub fn open_or_create_file(&self, name: impl AsRef<Path>) -> Result<File, OwnDirError> {
        self.open_with(name.as_ref(), OFlags::RDWR | OFlags::CREATE, Readers::Nobody)
    }

    fn open_with(&self, name: &Path, flags: OFlags, readers: Readers) -> Result<File, OwnDirError> {
        let path = self.path_of(name);
        // Not to wait for the other end of a FIFO.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let private = Mode::RUSR | Mode::WUSR;
        let file = match openat(&self.directory, name, flags, private) {
            Err(Errno::LOOP | Errno::NXIO) => {
                return Err(OwnDirError::Kind { path, expected: "regular file" });
            }
            opened => opened.map_err(failed("open", &path))?,
        };
        let found = fstat(&file).map_err(failed("open", &path))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(OwnDirError::Kind { path, expected: "regular file" });
        }
        check_owner(&found, &path)?;
        check_writers(&found, &path)?;
        if readers == Readers::Nobody {
            close_to_others(&file, &found, private).map_err(failed("close to others", &path))?;
        }
        Ok(File::from(file))
    }

    pub fn remove_file(&self, name: impl AsRef<Path>) -> Result<(), OwnDirError> {
        unlinkat(&self.directory, name.as_ref(), AtFlags::empty())
            .map_err(failed("remove", &self.path_of(name)))
    }

    /// An open file keeps its locks.
    pub fn rename_file(&self, from: &str, to: &str) -> Result<(), OwnDirError> {
        renameat(&self.directory, from, &self.directory, to)
            .map_err(failed("rename", &self.path_of(from)))
    }

    /// Makes the names in it durable.
    pub fn sync(&self) -> Result<(), OwnDirError> {
        fsync(&self.directory).map_err(failed("sync", &self.path))
    }
}

fn walk(path: &Path, readers: Readers, make: bool) -> Result<Option<OwnDir>, OwnDirError> {
    let cannot = failed("open", path);
    let absolute = std::path::absolute(path).map_err(|source| io_error("open", path, source))?;
    let way = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = || open("/", way | OFlags::DIRECTORY, Mode::empty()).map_err(failed("open", path));
    let mut todo = VecDeque::from(names_of(&absolute));
    let (mut here, mut at, mut links) = (root()?, PathBuf::from("/"), 0);
    while let Some(name) = todo.pop_front() {
        check_ancestor(&fstat(&here).map_err(failed("open", &at))?, &at)?;
        let next = at.join(&name);
        let opened = match openat(&here, &name, way, Mode::empty()) {
            Err(Errno::NOENT) if make => make_directory(&here, &name, &next).and_then(|()| {
                openat(&here, &name, way, Mode::empty()).map_err(failed("open", &next))
            })?,
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(failed("open", &next))?,
        };
        let found = fstat(&opened).map_err(failed("open", &next))?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(cannot(Errno::LOOP));
                }
                check_owner(&found, &next)?;
                let target = readlinkat(&opened, "", Vec::new()).map_err(failed("open", &next))?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                if target.is_absolute() {
                    (here, at) = (root()?, PathBuf::from("/"));
                }
                for name in names_of(&target).into_iter().rev() {
                    todo.push_front(name);
                }
            }
            FileType::Directory if name == ".." => {
                at.pop();
                here = opened;
            }
            FileType::Directory => (here, at) = (opened, next),
            _ => return Err(OwnDirError::Kind { path: next, expected: "directory" }),
        }
    }
    let listed = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(&here, ".", listed, Mode::empty()).map_err(failed("open", &at))?;
    let found = fstat(&directory).map_err(failed("open", &at))?;
    check_owner(&found, &at)?;
    check_writers(&found, &at)?;
    if readers == Readers::Nobody {
        close_to_others(&directory, &found, Mode::RWXU).map_err(failed("close to others", &at))?;
    }
    Ok(Some(OwnDir { path: absolute, directory, readers }))
}

/// Refuses a tree of programs in which somebody else could have written.
pub fn check_tree(path: &Path) -> Result<(), OwnDirError> {
    let found = rustix::fs::lstat(path).map_err(failed("open", path))?;
    check_owner(&found, path)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Symlink => return Ok(()),
        FileType::Directory => {}
        _ => return check_writers(&found, path),
    }
    check_writers(&found, path)?;
    let listed = |source| io_error("list", path, source);
    for entry in std::fs::read_dir(path).map_err(listed)? {
        check_tree(&entry.map_err(listed)?.path())?;
    }
    Ok(())
}

fn names_of(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

fn make_directory(parent: &OwnedFd, name: &OsStr, path: &Path) -> Result<(), OwnDirError> {
    match mkdirat(parent, name, Mode::RWXU) {
        // Another pgio was faster.
        Err(Errno::EXIST) => return Ok(()),
        made => made.map_err(failed("create", path))?,
    }
    // A umask may have taken bits that are needed; a path descriptor cannot be changed.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(parent, name, flags, Mode::empty()) {
        Ok(made) => fchmod(&made, Mode::RWXU),
        Err(_) => rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty()),
    }
    .map_err(failed("create", path))
}

/// Of a directory on the way: whoever may write there may put another one in place of the next.
fn check_ancestor(found: &Stat, path: &Path) -> Result<(), OwnDirError> {
    check_owner(found, path)?;
    if found.st_mode & STICKY != 0 { Ok(()) } else { check_writers(found, path) }
}

fn check_owner(found: &Stat, path: &Path) -> Result<(), OwnDirError> {
    let (owner, user) = (found.st_uid, geteuid().as_raw());
    match owner == user || owner == ROOT {
        true => Ok(()),
        false => Err(OwnDirError::Owner { path: path.to_owned(), owner, user }),
    }
}

fn check_writers(found: &Stat, path: &Path) -> Result<(), OwnDirError> {
    let mode = found.st_mode & 0o7777;
    match mode & WRITABLE_BY_OTHERS {
        0 => Ok(()),
        _ => Err(OwnDirError::Writable { path: path.to_owned(), mode }),
    }
}

/// Of earlier versions that left it to the umask, or of a umask that took too much.
fn close_to_others(file: &OwnedFd, found: &Stat, private: Mode) -> Result<(), Errno> {
    let is_private = Mode::from_raw_mode(found.st_mode) & Mode::from_raw_mode(0o777) == private;
    match found.st_uid == geteuid().as_raw() && !is_private {
        true => fchmod(file, private),
        false => Ok(()),
    }
}

fn failed(doing: &'static str, path: &Path) -> impl Fn(Errno) -> OwnDirError {
    let path = path.to_owned();
    move |errno| io_error(doing, &path, errno.into())
}

fn io_error(doing: &'static str, path: &Path, source: io::Error) -> OwnDirError {
    OwnDirError::Io { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
