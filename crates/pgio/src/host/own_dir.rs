//! A directory whose files pgio trusts: no other user may write to it.
//!
//! A journal contains commands that `pgio undo` runs, and a cached server is a program. Therefore the
//! directory and every file in it must belong to this user or to root and must not be writable by
//! others. The same applies to every directory and symbolic link on the path, because another user
//! could replace a component; in a directory with the sticky bit, such as /tmp, only the owner can.
//! The path is resolved one component at a time without following links, and files are opened relative
//! to the checked directory, so that there is no race between check and use.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fchmod, fstat, fsync, mkdirat, openat, renameat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::exit_code::{FILES, HasExitCode, REFUSED};
use pgio_results::files;

const ROOT: u32 = 0;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

#[derive(Debug, thiserror::Error)]
pub enum OwnDirError {
    #[error(
        "{} belongs to user {owner}, but pgio runs as user {user} and does not trust it; remove it, or use another directory",
        path.display()
    )]
    Owner { path: PathBuf, owner: u32, user: u32 },
    #[error(
        "{} is writable by other users (mode {mode:04o}), so pgio does not trust it; check its contents and run `chmod go-w {}`, or use another directory",
        path.display(), path.display()
    )]
    Writable { path: PathBuf, mode: u32 },
    #[error("{} is not a {expected}", path.display())]
    Kind { path: PathBuf, expected: &'static str },
    #[error(
        "cannot create {}: {source}; set {variables} to a directory that only this user may write to",
        path.display()
    )]
    Create { path: PathBuf, variables: &'static str, source: io::Error },
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

impl HasExitCode for OwnDirError {
    fn code(&self) -> u8 {
        match self {
            OwnDirError::Io { .. } | OwnDirError::Create { .. } => FILES,
            OwnDirError::Owner { .. } | OwnDirError::Writable { .. } | OwnDirError::Kind { .. } => {
                REFUSED
            }
        }
    }
}

/// The permissions of a directory and its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirMode {
    /// Set the mode of directories to 0700 and of files to 0600.
    Private,
    /// Leave existing modes unchanged.
    Unchanged,
}

impl DirMode {
    /// The environment variables that decide where such a directory is: private ones hold pgio's state, the
    /// others are caches.
    fn variables(self) -> &'static str {
        match self {
            DirMode::Private => "PGIO_STATE_DIR, XDG_STATE_HOME or HOME",
            DirMode::Unchanged => "XDG_CACHE_HOME or HOME",
        }
    }
}

/// A checked directory, open.
#[derive(Debug)]
pub struct OwnDir {
    path: PathBuf,
    directory: OwnedFd,
    mode: DirMode,
}

impl OwnDir {
    /// Opens and checks a directory; `None` if it does not exist.
    pub fn open(path: &Path, mode: DirMode) -> Result<Option<OwnDir>, OwnDirError> {
        walk(path, mode, false)
    }

    /// Creates missing directories of the path, with mode 0700 for any umask.
    pub fn create(path: &Path, mode: DirMode) -> Result<OwnDir, OwnDirError> {
        let created = walk(path, mode, true)?;
        created.ok_or_else(|| not_created(path, mode)(Errno::NOENT))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn path_of(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the names with this extension, sorted.
    pub fn names(&self, extension: &str) -> Result<Vec<PathBuf>, OwnDirError> {
        let entries = Dir::read_from(&self.directory).map_err(failed("list", &self.path))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed("list", &self.path))?;
            let name = PathBuf::from(OsString::from_vec(entry.file_name().to_bytes().to_vec()));
            if name.extension().is_some_and(|own| own == extension) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Opens a file for reading and appending; `None` if it does not exist.
    pub fn open_file(&self, name: impl AsRef<Path>) -> Result<Option<File>, OwnDirError> {
        match self.open_with(name.as_ref(), OFlags::RDWR | OFlags::APPEND, self.mode) {
            Err(OwnDirError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }

    /// Creates a file for appending; fails if it exists.
    pub fn create_file(&self, name: impl AsRef<Path>) -> Result<File, OwnDirError> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        self.open_with(name.as_ref(), flags, self.mode)
    }

    /// Opens or creates a lock file for reading and writing. Its mode is always private, because any user
    /// who may open a file may lock it.
    pub fn open_or_create_file(&self, name: impl AsRef<Path>) -> Result<File, OwnDirError> {
        self.open_with(name.as_ref(), OFlags::RDWR | OFlags::CREATE, DirMode::Private)
    }

    fn open_with(&self, name: &Path, flags: OFlags, mode: DirMode) -> Result<File, OwnDirError> {
        let path = self.path_of(name);
        // NONBLOCK avoids waiting for the other end of a FIFO.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let private = Mode::RUSR | Mode::WUSR;
        let file = match openat(&self.directory, name, flags, private) {
            Err(Errno::LOOP | Errno::NXIO) => {
                return Err(OwnDirError::Kind { path, expected: "regular file" });
            }
            opened => opened.map_err(failed("open", &path))?,
        };
        let stat = fstat(&file).map_err(failed("open", &path))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(OwnDirError::Kind { path, expected: "regular file" });
        }
        check_owner(&stat, &path)?;
        check_writers(&stat, &path)?;
        if mode == DirMode::Private {
            make_private(&file, &stat, private).map_err(failed("restrict the mode of", &path))?;
        }
        Ok(File::from(file))
    }

    pub fn remove_file(&self, name: impl AsRef<Path>) -> Result<(), OwnDirError> {
        unlinkat(&self.directory, name.as_ref(), AtFlags::empty())
            .map_err(failed("remove", &self.path_of(name)))
    }

    /// Renames a file; an open file keeps its locks.
    pub fn rename_file(&self, from: &str, to: &str) -> Result<(), OwnDirError> {
        renameat(&self.directory, from, &self.directory, to)
            .map_err(failed("rename", &self.path_of(from)))
    }

    /// Makes the names in the directory durable.
    pub fn sync(&self) -> Result<(), OwnDirError> {
        fsync(&self.directory).map_err(failed("sync", &self.path))
    }
}

fn walk(path: &Path, mode: DirMode, create: bool) -> Result<Option<OwnDir>, OwnDirError> {
    let absolute = std::path::absolute(path).map_err(|source| io_error("open", path, source))?;
    let check = |stat: &Stat, at: &Path| match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => check_owner(stat, at),
        _ => check_ancestor(stat, at),
    };
    let make = |parent: &OwnedFd, name: &OsStr, at: &Path| {
        if create { make_directory(parent, name, at, mode).map(|()| true) } else { Ok(false) }
    };
    let cannot = |at: &Path, errno| match errno {
        Errno::NOTDIR => OwnDirError::Kind { path: at.to_owned(), expected: "directory" },
        _ => io_error("open", at, errno.into()),
    };
    let Some((directory, at)) = files::walk(&absolute, check, make, cannot)? else {
        return Ok(None);
    };
    let stat = fstat(&directory).map_err(failed("open", &at))?;
    check_owner(&stat, &at)?;
    check_writers(&stat, &at)?;
    if mode == DirMode::Private {
        make_private(&directory, &stat, Mode::RWXU).map_err(failed("restrict the mode of", &at))?;
    }
    Ok(Some(OwnDir { path: absolute, directory, mode }))
}

/// Checks that no other user could have written anything in a directory tree.
pub fn check_tree(path: &Path) -> Result<(), OwnDirError> {
    let stat = rustix::fs::lstat(path).map_err(failed("open", path))?;
    check_owner(&stat, path)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => return Ok(()),
        FileType::Directory => {}
        _ => return check_writers(&stat, path),
    }
    check_writers(&stat, path)?;
    let cannot_list = |source| io_error("list", path, source);
    for entry in std::fs::read_dir(path).map_err(cannot_list)? {
        check_tree(&entry.map_err(cannot_list)?.path())?;
    }
    Ok(())
}

fn make_directory(
    parent: &OwnedFd,
    name: &OsStr,
    path: &Path,
    mode: DirMode,
) -> Result<(), OwnDirError> {
    match mkdirat(parent, name, Mode::RWXU) {
        // Another pgio has created it in the meantime.
        Err(Errno::EXIST) => return Ok(()),
        created => created.map_err(not_created(path, mode))?,
    }
    // The umask may have removed required bits. fchmod requires a descriptor without O_PATH.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(parent, name, flags, Mode::empty()) {
        Ok(directory) => fchmod(&directory, Mode::RWXU),
        Err(_) => rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty()),
    }
    .map_err(not_created(path, mode))
}

/// Checks a directory on the path: a user who may write there could replace the next component.
fn check_ancestor(stat: &Stat, path: &Path) -> Result<(), OwnDirError> {
    check_owner(stat, path)?;
    if others_may_replace_entries(stat.st_mode) { check_writers(stat, path) } else { Ok(()) }
}

/// Whether other users may replace what a directory of this mode contains.
pub fn others_may_replace_entries(mode: u32) -> bool {
    mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0
}

fn check_owner(stat: &Stat, path: &Path) -> Result<(), OwnDirError> {
    let (owner, user) = (stat.st_uid, geteuid().as_raw());
    if owner == user || owner == ROOT {
        Ok(())
    } else {
        Err(OwnDirError::Owner { path: path.to_owned(), owner, user })
    }
}

fn check_writers(stat: &Stat, path: &Path) -> Result<(), OwnDirError> {
    let mode = stat.st_mode & 0o7777;
    match mode & WRITABLE_BY_OTHERS {
        0 => Ok(()),
        _ => Err(OwnDirError::Writable { path: path.to_owned(), mode }),
    }
}

/// Sets the mode if it differs: a umask may remove required bits.
fn make_private(file: &OwnedFd, stat: &Stat, private: Mode) -> Result<(), Errno> {
    let is_private = Mode::from_raw_mode(stat.st_mode) & Mode::from_raw_mode(0o777) == private;
    if stat.st_uid == geteuid().as_raw() && !is_private { fchmod(file, private) } else { Ok(()) }
}

fn failed(doing: &'static str, path: &Path) -> impl Fn(Errno) -> OwnDirError {
    let path = path.to_owned();
    move |errno| io_error(doing, &path, errno.into())
}

fn not_created(path: &Path, mode: DirMode) -> impl Fn(Errno) -> OwnDirError {
    move |errno| OwnDirError::Create {
        path: path.to_owned(),
        variables: mode.variables(),
        source: errno.into(),
    }
}

fn io_error(doing: &'static str, path: &Path, source: io::Error) -> OwnDirError {
    OwnDirError::Io { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    const OTHER_USER: u32 = 4242;

    fn open_private(path: &Path) -> Result<Option<OwnDir>, OwnDirError> {
        OwnDir::open(path, DirMode::Private)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Only root can change owners.
    fn is_root() -> bool {
        geteuid().is_root()
    }

    #[test]
    fn created_files_and_directories_are_private() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("a/b");
        assert!(open_private(&path).unwrap().is_none(), "opening creates nothing");
        let own = OwnDir::create(&path, DirMode::Private).unwrap();
        own.create_file("x.journal").unwrap();
        own.open_or_create_file("lock").unwrap();
        assert_eq!((mode(&base.path().join("a")), mode(&path)), (0o700, 0o700));
        assert_eq!((mode(&path.join("x.journal")), mode(&path.join("lock"))), (0o600, 0o600));
        assert!(own.create_file("x.journal").is_err(), "an existing file is not created again");
        assert_eq!(own.names("journal").unwrap(), [PathBuf::from("x.journal")]);
        own.remove_file("x.journal").unwrap();
        assert!(own.open_file("x.journal").unwrap().is_none());
    }

    #[test]
    fn modes_of_existing_files_are_restricted() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("a");
        fs::create_dir(&path).unwrap();
        chmod(&path, 0o755);
        fs::write(path.join("f"), "x").unwrap();
        chmod(&path.join("f"), 0o644);
        let own = open_private(&path).unwrap().unwrap();
        own.open_file("f").unwrap().unwrap();
        assert_eq!((mode(&path), mode(&path.join("f"))), (0o700, 0o600));
        chmod(&path, 0o755);
        OwnDir::open(&path, DirMode::Unchanged).unwrap().unwrap();
        assert_eq!(mode(&path), 0o755, "a cache may be readable");
    }

    #[test]
    fn files_writable_by_others_are_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("a/b");
        let own = OwnDir::create(&path, DirMode::Private).unwrap();
        fs::write(path.join("f"), "x").unwrap();
        for (file, bad, good) in [(path.join("f"), 0o620, 0o600), (path.join("f"), 0o602, 0o600)] {
            chmod(&file, bad);
            assert!(matches!(own.open_file("f"), Err(OwnDirError::Writable { .. })), "{bad:o}");
            chmod(&file, good);
        }
        // The directory itself, and its parent.
        for (directory, bad) in [(&path, 0o770), (&path, 0o1777), (&base.path().join("a"), 0o777)] {
            chmod(directory, bad);
            let error = open_private(&path).unwrap_err();
            assert!(
                matches!(&error, OwnDirError::Writable { path, .. } if path == directory),
                "{error}"
            );
            chmod(directory, 0o700);
        }
        chmod(&base.path().join("a"), 0o1777);
        open_private(&path).unwrap().expect("other users cannot replace it in a sticky directory");
    }

    #[test]
    fn files_of_other_users_are_refused() {
        if !is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("a/b");
        let own = OwnDir::create(&path, DirMode::Private).unwrap();
        fs::write(path.join("f"), "x").unwrap();
        chmod(&path.join("f"), 0o600);
        chown(path.join("f"), Some(OTHER_USER), None).unwrap();
        let error = own.open_file("f").unwrap_err();
        assert!(matches!(error, OwnDirError::Owner { owner: OTHER_USER, .. }), "{error}");
        for directory in [path.clone(), base.path().join("a")] {
            chown(&directory, Some(OTHER_USER), None).unwrap();
            let error = open_private(&path).unwrap_err();
            assert!(
                matches!(&error, OwnDirError::Owner { path, .. } if *path == directory),
                "{error}"
            );
            chown(&directory, Some(0), None).unwrap();
        }
        // A link of another user in a sticky directory that points to our directory.
        chmod(base.path(), 0o1777);
        let link = base.path().join("link");
        symlink(&path, &link).unwrap();
        open_private(&link).unwrap().expect("our own link is accepted");
        lchown(&link, Some(OTHER_USER), None).unwrap();
        let error = open_private(&link).unwrap_err();
        assert!(matches!(&error, OwnDirError::Owner { path, .. } if *path == link), "{error}");
    }

    #[test]
    fn only_regular_files_are_opened() {
        let base = tempfile::tempdir().unwrap();
        let own = OwnDir::create(&base.path().join("a"), DirMode::Private).unwrap();
        fs::write(base.path().join("target"), "").unwrap();
        symlink("../target", own.path_of("link")).unwrap();
        fs::create_dir(own.path_of("dir")).unwrap();
        let fifo = rustix::fs::CWD;
        rustix::fs::mknodat(fifo, own.path_of("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        for name in ["link", "fifo"] {
            let error = own.open_file(name).unwrap_err();
            assert!(matches!(error, OwnDirError::Kind { .. }), "{name}: {error}");
            let error = own.open_or_create_file(name).unwrap_err();
            assert!(matches!(error, OwnDirError::Kind { .. }), "{name}: {error}");
        }
        assert!(own.open_file("dir").is_err());
        let below_a_file = open_private(&base.path().join("target/x"));
        assert!(matches!(below_a_file, Err(OwnDirError::Kind { .. })), "{below_a_file:?}");
        let looped = base.path().join("loop");
        symlink("loop", &looped).unwrap();
        assert!(open_private(&looped).is_err());
    }

    #[test]
    fn relative_links_and_parents_are_followed() {
        let base = tempfile::tempdir().unwrap();
        let deep = base.path().join("a/b");
        OwnDir::create(&deep, DirMode::Private).unwrap();
        symlink("../a/./b", base.path().join("a/link")).unwrap();
        let own = OwnDir::create(&base.path().join("a/link/../link/c"), DirMode::Private).unwrap();
        own.create_file("f").unwrap();
        assert!(deep.join("c/f").exists());
    }

    #[test]
    fn a_directory_that_cannot_be_created_names_the_variables() {
        // Nothing can be created below /proc, by root either.
        let fails = |mode| OwnDir::create(Path::new("/proc/pgio/journal"), mode).unwrap_err();
        assert_eq!(
            fails(DirMode::Private).to_string(),
            "cannot create /proc/pgio: No such file or directory (os error 2); set PGIO_STATE_DIR, \
         XDG_STATE_HOME or HOME to a directory that only this user may write to"
        );
        assert!(fails(DirMode::Unchanged).to_string().contains("set XDG_CACHE_HOME or HOME to"));
    }
}
