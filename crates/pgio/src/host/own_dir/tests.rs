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
        assert!(matches!(&error, OwnDirError::Owner { path, .. } if *path == directory), "{error}");
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
