//! A file system of our own on a loop device, for what needs a disk that may be slowed down.
//!
//! Its image has no name once it is mounted, so the device detaches with the mount and nothing is
//! left then. In a [namespace](in_namespace) of the program's own even kill -9 leaves only an empty
//! directory, which the next [`sweep`] removes. For this machine, and root only.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::exec::{CommandLine, Exec, ExecError, Local};

/// A real disk, and open to every user on the way.
pub const PLACE: &str = "/var/tmp";

#[derive(Debug, thiserror::Error)]
pub enum LoopDiskError {
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot make a file system on a loop device")]
    Exec(#[from] ExecError),
}

/// Mounted, and unmounted when dropped.
#[derive(Debug)]
pub struct LoopDisk {
    dir: TempDir,
    number: String,
}

impl LoopDisk {
    /// A new ext4 of this size, sparse: it takes what is written. `prefix` begins the name of its
    /// directory.
    pub fn make(prefix: &str, bytes: u64) -> Result<LoopDisk, LoopDiskError> {
        let dir = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(PLACE)
            .map_err(at(Path::new(PLACE)))?;
        let number = mount(dir.path(), bytes)?;
        Ok(LoopDisk { dir, number })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// `MAJOR:MINOR`
    pub fn number(&self) -> &str {
        &self.number
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // What fails here goes with the namespace.
        let _ = Local.run(&CommandLine::new("umount").arg(self.dir.path()));
    }
}

/// Returns the device's number.
fn mount(dir: &Path, bytes: u64) -> Result<String, LoopDiskError> {
    let image = dir.with_extension("image");
    // Its place is open to all: nobody else's file or link is taken for it.
    let new = File::options().write(true).create_new(true).mode(0o600).open(&image);
    new.and_then(|f| f.set_len(bytes)).map_err(at(&image))?;
    // Nothing is to be initialised in the background later.
    let mkfs = CommandLine::new("mkfs.ext4")
        .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
        .arg(&image);
    let mount = CommandLine::new("mount").args(["-o", "loop,noatime"]).arg(&image).arg(dir);
    let done = Local.run(&mkfs).and_then(|_| Local.run(&mount));
    // The device keeps the file.
    fs::remove_file(&image).map_err(at(&image))?;
    done?;
    let device = fs::metadata(dir).map_err(at(dir))?.dev();
    Ok(format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device)))
}

/// Runs a program in a mount namespace of its own: what is mounted there goes with it.
pub fn in_namespace(program: impl AsRef<OsStr>) -> CommandLine {
    CommandLine::new("unshare").args(["--mount", "--propagation", "private", "--"]).arg(program)
}

/// Removes what killed ones left of these directories, whose names are `prefix`, a process id and
/// perhaps more behind a hyphen. Not what a living one has: its mount cannot be seen from here, and
/// would go with its directory.
pub fn sweep(prefix: &str, places: &[&str]) {
    for place in places {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if owner(prefix, &name.to_string_lossy()).is_some_and(|pid| !is_alive(pid)) {
                let path = entry.path();
                // An image has a name for a moment only, but may have been left in it.
                let _ = fs::remove_dir(&path).or_else(|_| fs::remove_file(&path));
            }
        }
    }
}

/// The process id in a name of ours.
fn owner(prefix: &str, name: &str) -> Option<u32> {
    name.strip_prefix(prefix)?.split('-').next()?.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> LoopDiskError {
    let path = path.to_owned();
    move |source| LoopDiskError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_a_process_are_ours() {
        let owner = |name| owner("pgio-truth-", name);
        assert_eq!(owner("pgio-truth-12-full"), Some(12));
        assert_eq!(owner("pgio-truth-12-a1B2.image"), Some(12));
        assert_eq!(owner("pgio-truth-results"), None);
        assert_eq!(owner("pgio-12"), None);
        assert!(is_alive(std::process::id()));
    }
}
