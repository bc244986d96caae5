//! The files of a private cluster and their owners.
//!
//! ```text
//! BASE/pgio-XXXXXX/   ours, mode 0710: the server's user can only enter it; 0700 if that is us
//!     marker          marks the directory as pgio's; the supervisor holds a lock on it
//!     primary/        data directory, mode 0700, owned by the server's user
//!     primary.log     the server's stderr; ours
//!     standby/, standby.log
//!     run/            sockets .s.PGSQL.5432 (primary), .s.PGSQL.5433 (first standby) …: mode 0700, owned
//!                     by the server's user, because the servers trust everyone who can enter
//! OTHER/pgio-YYYYYY/  the same for data or WAL elsewhere, with its own marker and lock
//!     cluster         names the main directory, whose servers must stop before this one is removed
//!     wal/ or b/      the primary's WAL, the data of standby b
//! ```
//!
//! BASE defaults to /var/tmp: on most systems it is on disk, while /tmp is often in memory, and
//! every user can enter it. `directory` creates these files; `server` starts and stops the servers.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::directory::{ClusterDirectory, SOCKETS};
use super::{Error, at};
use crate::host::exec::{Ids, Local};
use crate::host::rights::Rights;

const PREFIX: &str = "pgio-";

/// `sun_path` has 108 bytes including the terminating NUL.
const SOCKET_PATH_MAX: usize = 107;

pub(super) fn conninfo_value(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'"))
}

pub(super) fn default_base() -> PathBuf {
    let disk = PathBuf::from("/var/tmp");
    if disk.is_dir() { disk } else { std::env::temp_dir() }
}

/// Checks, before anything is started, whether the current user can create a directory in `base`
/// and the server's user can reach it.
pub fn check_base(base: &Path) -> Result<(), Error> {
    let absolute = std::path::absolute(base).map_err(at(base))?;
    let mut path_to_base: Vec<&Path> = absolute.ancestors().collect();
    path_to_base.reverse();
    for directory in path_to_base {
        if directory.is_dir() && access(directory, Access::EXEC_OK) == Err(Errno::ACCESS) {
            let (closed, path) = (directory.to_owned(), absolute.clone());
            return Err(Error::Closed { closed, path });
        }
    }
    if !absolute.is_dir() {
        return Err(Error::NoBase { directory: absolute });
    }
    if access(&absolute, Access::WRITE_OK | Access::EXEC_OK) == Err(Errno::ACCESS) {
        let user = Rights::find(&Local)?.name().to_owned();
        return Err(Error::NotWritable { directory: absolute, user });
    }
    // PostgreSQL warns of foreign files in its directory, and a backup would contain ours.
    if let Some(other) = absolute.ancestors().find(|d| d.join("PG_VERSION").exists()) {
        return Err(Error::OtherData { directory: absolute.clone(), other: other.to_owned() });
    }
    check_access(&absolute, server_user()?)
}

/// Returns a name that no other directory has.
pub(super) fn new_name() -> String {
    // RandomState takes its keys from the system's random numbers.
    format!("{PREFIX}{:08x}", RandomState::new().hash_one(std::process::id()) as u32)
}

/// Creates, marks and locks one directory of a cluster; `main` is the main one, if this is another.
pub(super) fn create(
    directory: &Path,
    main: Option<&Path>,
    owner: Option<Ids>,
) -> Result<(PathBuf, ClusterDirectory), Error> {
    let base = directory.parent().unwrap_or(directory);
    let base = fs::canonicalize(base).map_err(at(base))?;
    check_access(&base, owner)?;
    let root = base.join(directory.file_name().unwrap_or_default());
    if main.is_none() {
        check_socket_directory(&root)?;
    }
    fs::DirBuilder::new().mode(0o700).create(&root).map_err(at(&root))?;
    match ClusterDirectory::fill(&root, main, owner) {
        Ok(directory) => Ok((root, directory)),
        Err(error) => {
            let _ = fs::remove_dir_all(&root);
            Err(error)
        }
    }
}

fn check_socket_directory(root: &Path) -> Result<(), Error> {
    let directory = root.join(SOCKETS);
    let bytes = directory.as_os_str().as_bytes();
    let (length, most) = (bytes.len(), SOCKET_PATH_MAX - "/.s.PGSQL.5432".len());
    match bytes {
        _ if length > most => Err(Error::SocketPath { directory, length, most }),
        _ if bytes.contains(&b',') => Err(Error::SocketComma { directory }),
        _ => Ok(()),
    }
}

/// Checks whether the server's user can reach `path`; root itself would not notice a problem. ACLs
/// are ignored; if they matter, initdb fails.
pub(super) fn check_access(path: &Path, user: Option<Ids>) -> Result<(), Error> {
    let Some(ids) = user else { return Ok(()) };
    let path = fs::canonicalize(path).map_err(at(path))?;
    for directory in path.ancestors() {
        let metadata = fs::metadata(directory).map_err(at(directory))?;
        let execute = match () {
            () if metadata.uid() == ids.uid => 0o100,
            () if metadata.gid() == ids.gid => 0o010,
            () => 0o001,
        };
        if metadata.mode() & execute == 0 {
            return Err(Error::Closed { closed: directory.to_owned(), path });
        }
    }
    Ok(())
}

/// The marked directories in `base` whose supervisor has ended, each locked for the caller. Anyone
/// can create a directory or link of that name in /var/tmp, so only our own directories count.
pub(super) fn abandoned(base: &Path) -> Vec<(PathBuf, ClusterDirectory)> {
    let Ok(entries) = fs::read_dir(base) else { return Vec::new() };
    entries.flatten().filter_map(|entry| abandoned_at(entry.path(), Duration::ZERO)).collect()
}

/// Like [`abandoned`], for one directory.
pub(super) fn abandoned_at(root: PathBuf, wait: Duration) -> Option<(PathBuf, ClusterDirectory)> {
    let directory = is_named(&root).then(|| ClusterDirectory::claim(&root, wait))??;
    Some((root, directory))
}

/// Like [`abandoned_at`], for a directory that may have been left before it was marked.
pub(super) fn unfinished_at(root: PathBuf) -> Option<(PathBuf, ClusterDirectory)> {
    let directory = is_named(&root).then(|| ClusterDirectory::claim_unfinished(&root))??;
    Some((root, directory))
}

fn is_named(root: &Path) -> bool {
    root.file_name().is_some_and(|n| n.as_bytes().starts_with(PREFIX.as_bytes()))
}

/// The user that runs the servers: `None` means the current user, unless that is root, whom
/// PostgreSQL refuses.
pub(super) fn server_user() -> Result<Option<Ids>, Error> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let path = Path::new("/etc/passwd");
    let passwd = fs::read(path).map_err(at(path))?;
    let user = ["postgres", "nobody"].iter().find_map(|name| user_in(&passwd, name));
    user.map(Some).ok_or(Error::NoServerUser)
}

fn user_in(passwd: &[u8], name: &str) -> Option<Ids> {
    // The comment of another user may be in any encoding.
    let passwd = String::from_utf8_lossy(passwd);
    let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = fields.into_iter().find(|f| f.len() >= 4 && f[0] == name)?;
    let ids = Ids { uid: line[2].parse().ok()?, gid: line[3].parse().ok()? };
    (ids.uid != 0).then_some(ids)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use tempfile::TempDir;

    use super::*;

    /// The abandoned directories once there are any: a process that another test starts meanwhile
    /// inherits the lock until it executes its program.
    fn released(base: &Path) -> Vec<(PathBuf, ClusterDirectory)> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let found = abandoned(base);
            if !found.is_empty() || Instant::now() > deadline {
                return found;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_new_directory_is_closed_to_others_and_not_abandoned() {
        let base = TempDir::new().unwrap();
        let (root, lock) = create(&base.path().join("pgio-1"), None, None).unwrap();
        let mode = fs::metadata(&root).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(abandoned(base.path()).is_empty(), "its supervisor is running");
        drop(lock);
        let found = released(base.path());
        assert_eq!(found.len(), 1);
        assert!(abandoned(base.path()).is_empty(), "claimed by another clean-up");
    }

    #[test]
    fn only_our_marked_directories_count_as_abandoned() {
        let base = TempDir::new().unwrap();
        let named = base.path().join("pgio-results");
        fs::create_dir(&named).unwrap();
        fs::write(named.join("marker"), "something else").unwrap();
        fs::create_dir(base.path().join("pgio-empty")).unwrap();
        let (root, lock) = create(&base.path().join("pgio-1"), None, None).unwrap();
        drop(lock);
        std::os::unix::fs::symlink(&root, base.path().join("pgio-link")).unwrap();
        let found = released(base.path());
        let roots: Vec<_> = found.iter().map(|(root, _)| root.clone()).collect();
        assert_eq!(roots, std::slice::from_ref(&root));
        drop(found);
        if geteuid().is_root() {
            std::os::unix::fs::lchown(&root, Some(65534), None).unwrap();
            assert!(abandoned(base.path()).is_empty(), "owned by another user");
        }
    }

    #[test]
    fn an_inaccessible_parent_directory_is_named() {
        let base = TempDir::new().unwrap();
        let root = fs::canonicalize(base.path()).unwrap();
        let (shut, inner) = (root.join("shut"), root.join("shut/inner"));
        fs::create_dir_all(&inner).unwrap();
        for (directory, mode) in [(&root, 0o755), (&shut, 0o700), (&inner, 0o755)] {
            fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
        }
        let me = fs::metadata(&root).unwrap();
        let closed = |uid, gid| match check_access(&inner, Some(Ids { uid, gid })) {
            Err(Error::Closed { closed, .. }) => Some(closed),
            _ => None,
        };
        assert_eq!(closed(me.uid() + 1, me.gid() + 1), Some(shut.clone()));
        assert_eq!(closed(me.uid() + 1, me.gid()), Some(shut));
        assert_eq!(closed(me.uid(), me.gid()), None);
        assert!(check_access(&inner, None).is_ok(), "the current user created it");
    }

    #[test]
    fn an_unusable_base_is_refused_with_a_hint() {
        let base = TempDir::new().unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let none = base.path().join("none");
        assert!(matches!(check_base(&none), Err(Error::NoBase { .. })));
        fs::write(&none, "a file").unwrap();
        assert!(matches!(check_base(&none), Err(Error::NoBase { .. })));
        check_base(base.path()).unwrap();
        let other = base.path().join("pg/pg_wal");
        fs::create_dir_all(&other).unwrap();
        fs::set_permissions(base.path().join("pg"), fs::Permissions::from_mode(0o755)).unwrap();
        check_base(&other).unwrap();
        fs::write(base.path().join("pg/PG_VERSION"), "15\n").unwrap();
        let refused = check_base(&other).unwrap_err().to_string();
        assert!(refused.contains("in the data directory") && refused.contains("pg"), "{refused}");
        let user = "joe".to_owned();
        let message = Error::NotWritable { directory: "/mnt/x".into(), user }.to_string();
        assert!(message.contains("`sudo chown joe /mnt/x` is enough"), "{message}");
    }

    #[test]
    fn a_base_with_a_comma_is_refused() {
        let base = TempDir::new().unwrap();
        let listed = base.path().join("a,b");
        fs::create_dir(&listed).unwrap();
        assert!(matches!(
            create(&listed.join("pgio-1"), None, None),
            Err(Error::SocketComma { .. })
        ));
    }

    #[test]
    fn a_base_too_long_for_a_socket_is_refused_and_left_unchanged() {
        let base = TempDir::new().unwrap();
        let long = base.path().join("x".repeat(90));
        fs::create_dir(&long).unwrap();
        assert!(matches!(create(&long, None, None), Err(Error::SocketPath { .. })));
        assert_eq!(fs::read_dir(&long).unwrap().count(), 0);
    }

    #[test]
    fn the_server_user_comes_from_passwd_and_is_never_root() {
        let passwd = b"bob:x:9:9:M\xfcller:/:/bin/sh\n\
                       root:x:0:0::/:/bin/sh\npostgres:x:101:104:,,,:/:/bin/sh\nbad:x\n";
        assert_eq!(user_in(passwd, "postgres"), Some(Ids { uid: 101, gid: 104 }));
        assert_eq!(user_in(passwd, "nobody"), None);
        assert_eq!(user_in(passwd, "bad"), None);
        assert_eq!(user_in(b"nobody:x:0:0::/:/bin/sh", "nobody"), None);
    }
}
