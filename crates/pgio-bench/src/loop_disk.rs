//! A temporary file system on a loop device, for tests that throttle a disk.
//!
//! The image file is unlinked after mounting, so that unmounting detaches the device and removes
//! everything. In a private [namespace](in_namespace), even kill -9 leaves only an empty directory,
//! which the next [`reap`] removes. Requires root; local machine only.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use pgio::host::exec::{CommandLine, Exec, ExecError, Local};

/// Parent of the mount points: usually on a real disk, and accessible to every user.
pub const BASE_DIR: &str = "/var/tmp";

#[derive(Debug, thiserror::Error)]
pub enum LoopDiskError {
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot create a file system on a loop device")]
    Exec(#[from] ExecError),
}

/// A mounted loop device; dropping it unmounts it.
#[derive(Debug)]
pub struct LoopDisk {
    dir: TempDir,
    number: String,
}

impl LoopDisk {
    /// Creates a sparse ext4 file system of this size. `prefix` is the prefix of its directory's name.
    pub fn create(prefix: &str, bytes: u64) -> Result<LoopDisk, LoopDiskError> {
        let dir = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(BASE_DIR)
            .map_err(at(Path::new(BASE_DIR)))?;
        let number = mount(dir.path(), bytes)?;
        Ok(LoopDisk { dir, number })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns `MAJOR:MINOR`.
    pub fn number(&self) -> &str {
        &self.number
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // If this fails, the mount ends with the namespace.
        let _ = Local.run(&CommandLine::new("umount").arg(self.dir.path()));
    }
}

/// Mounts a new image and returns the device number.
fn mount(dir: &Path, bytes: u64) -> Result<String, LoopDiskError> {
    let image = dir.with_extension("image");
    // The directory is writable by all users: create_new refuses existing files and links.
    let new = File::options().write(true).create_new(true).mode(0o600).open(&image);
    new.and_then(|f| f.set_len(bytes)).map_err(at(&image))?;
    // Initialize everything now, so that no background work disturbs later.
    let mkfs = CommandLine::new("mkfs.ext4")
        .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
        .arg(&image);
    let mount = CommandLine::new("mount").args(["-o", "loop,noatime"]).arg(&image).arg(dir);
    let done = Local.run(&mkfs).and_then(|_| Local.run(&mount));
    // The loop device keeps the unlinked file open.
    fs::remove_file(&image).map_err(at(&image))?;
    done?;
    let device = fs::metadata(dir).map_err(at(dir))?.dev();
    Ok(format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device)))
}

/// Returns a command that runs a program in a private mount namespace; its mounts end with it.
pub fn in_namespace(program: impl AsRef<OsStr>) -> CommandLine {
    CommandLine::new("unshare").args(["--mount", "--propagation", "private", "--"]).arg(program)
}

/// Removes directories that killed processes left in `parents`. Their names consist of `prefix`, a
/// process id, and optionally a hyphen with a suffix. Directories of running processes are kept: their
/// mounts are invisible here and would be affected.
pub fn reap(prefix: &str, parents: &[&str]) {
    for parent in parents {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if owner(prefix, &name.to_string_lossy()).is_some_and(|pid| !is_alive(pid)) {
                let path = entry.path();
                // Usually a directory; an image file remains if the process was killed before unlinking it.
                let _ = fs::remove_dir(&path).or_else(|_| fs::remove_file(&path));
            }
        }
    }
}

/// Returns the process id in a name created by this module.
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
    fn only_names_with_a_process_id_match() {
        let owner = |name| owner("pgio-truth-", name);
        assert_eq!(owner("pgio-truth-12-full"), Some(12));
        assert_eq!(owner("pgio-truth-12-a1B2.image"), Some(12));
        assert_eq!(owner("pgio-truth-results"), None);
        assert_eq!(owner("pgio-12"), None);
        assert!(is_alive(std::process::id()));
    }
}
