//! The directories of PATH in which root looks for programs, as by sudo's secure_path: others could put a program of
//! theirs into one that they own or can write to. Nor does root start a program there that belongs to others.
//!
//! Next: [`super::command`], which gives this PATH to every program that pgio starts.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::geteuid;

const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// PATH for what this process starts; none if it runs as an ordinary user, who may trust any directory.
pub(super) fn secure_path() -> Option<&'static OsStr> {
    static PATH: OnceLock<Option<OsString>> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let path = env::var_os("PATH").filter(|_| geteuid().is_root())?;
        env::join_paths(env::split_paths(&path).filter_map(|dir| vetted(&dir))).ok()
    });
    path.as_deref()
}

/// Where PATH has a program that root does not start: one that others can change, or in a directory that root does
/// not use if no other has it.
pub(super) fn refused(program: &OsStr) -> Option<PathBuf> {
    let path = secure_path()?;
    if program.is_empty() || program.as_encoded_bytes().contains(&b'/') {
        return None;
    }
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0)
    };
    let first = |path: &OsStr| env::split_paths(path).map(|dir| dir.join(program)).find(is_program);
    match first(path) {
        Some(found) => Some(found).filter(|found| !is_safe_program(found)),
        None => first(&env::var_os("PATH")?),
    }
}

/// Whether nobody but root can change the program, or put another in its place.
fn is_safe_program(path: &Path) -> bool {
    let Ok(real) = fs::canonicalize(path) else { return false };
    let is_safe = fs::metadata(&real).is_ok_and(|file| is_safe(&file));
    is_safe && real.parent().is_some_and(|directory| vetted(directory).is_some())
}

/// Whether only root can write to it.
fn is_safe(found: &Metadata) -> bool {
    let by_group = found.mode() & GROUP_WRITE != 0 && has_members(found.gid());
    found.uid() == 0 && found.mode() & OTHERS_WRITE == 0 && !by_group
}

/// The directory without links, which others could turn elsewhere; none if others can change what it holds.
fn vetted(directory: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(directory).ok().filter(|_| directory.is_absolute())?;
    let is_safe = |at: &Path| {
        let Ok(found) = fs::metadata(at) else { return false };
        // With the sticky bit, others cannot replace what root has there.
        let is_shared = at != real && found.mode() & STICKY != 0 && found.uid() == 0;
        found.is_dir() && (is_shared || is_safe(&found))
    };
    real.ancestors().all(is_safe).then_some(real)
}

/// Whether anyone but root is in a group. /usr/local/bin of some systems is writable by an empty one.
fn has_members(gid: u32) -> bool {
    let gid = gid.to_string();
    let any = |file: &str, matches: &dyn Fn(&[&str]) -> bool| {
        let text = fs::read(file).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().any(|line| matches(&line.split(':').collect::<Vec<_>>()))
    };
    any("/etc/passwd", &|user| user.get(3) == Some(&gid.as_str()) && user.get(2) != Some(&"0"))
        || any("/etc/group", &|group| {
            group.get(2) == Some(&gid.as_str())
                && group.get(3).is_some_and(|names| !["", "root"].contains(&names.trim()))
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn root_looks_only_where_nobody_else_can_put_a_program() {
        assert!(vetted(Path::new("/usr/bin")).is_some());
        assert_eq!((vetted(Path::new("")), vetted(Path::new("usr"))), (None, None));
        if !geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (outer, bin, link) =
            (dir.path().join("outer"), dir.path().join("outer/bin"), dir.path().join("l"));
        fs::create_dir_all(&bin).unwrap();
        symlink(&bin, &link).unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for (mode, is_used) in [(0o755, true), (0o777, false), (0o1777, false)] {
            set(&bin, mode);
            assert_eq!(vetted(&bin).is_some(), is_used, "{mode:o}");
        }
        set(&bin, 0o755);
        assert_eq!(vetted(&link), vetted(&bin));
        set(&outer, 0o1777);
        assert!(vetted(&bin).is_some(), "as below /tmp");
        let (program, ours) = (bin.join("program"), outer.join("ours"));
        fs::write(&program, "").unwrap();
        symlink(&program, &ours).unwrap();
        let are_safe = || [&program, &ours].map(|path| is_safe_program(path));
        for (mode, safe) in [(0o755, true), (0o757, false), (0o755, true)] {
            set(&program, mode);
            assert_eq!(are_safe(), [safe; 2], "{mode:o}");
        }
        for owned in [&outer, &bin, &program] {
            chown(owned, Some(65534), None).unwrap();
            assert_eq!(are_safe(), [false; 2], "{}", owned.display());
            chown(owned, Some(0), None).unwrap();
        }
        for owned in [&outer, &bin] {
            chown(owned, Some(65534), None).unwrap();
            assert_eq!((vetted(&bin), vetted(&link)), (None, None), "{}", owned.display());
            chown(owned, Some(0), None).unwrap();
        }
    }
}
