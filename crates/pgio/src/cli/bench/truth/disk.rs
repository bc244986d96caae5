//! A file system on a loop device, with a limit to the reads of one server on it.
//!
//! Nothing of it outlives the program, however that ends: the mount is in a namespace of the
//! program's own, the device detaches with the mount, and its image has no name any more. Only an
//! empty directory and an empty cgroup can be left by kill -9; the next start removes them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::cli::exit::{FAILED, FILES, Failure, REFUSED, USAGE};
use crate::host::exec::{self, CommandLine, Exec, Local};

/// Where the kernel has cgroup v1's blkio; v2 was not tried.
const BLKIO: &str = "/sys/fs/cgroup/blkio";
/// A real disk, and open to every user on the way.
const PLACE: &str = "/var/tmp";
/// Before the process id.
const PREFIX: &str = "pgio-truth-";
/// Set in the namespace.
const INSIDE: &str = "PGIO_TRUTH_INSIDE";
/// Sparse: it takes what is written.
const IMAGE_BYTES: u64 = 4 << 30;

/// Goes on in a mount namespace of its own: starts this very command again there, in its place.
pub(super) fn enter_namespace() -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        let text = "it makes loop devices and limits them, which only root may";
        return Err(Failure::message(USAGE, text));
    }
    let limit = Path::new(BLKIO).join("blkio.throttle.read_iops_device");
    if !limit.exists() {
        let text = format!("there is no {}: it needs cgroup v1's blkio", limit.display());
        return Err(Failure::message(REFUSED, text));
    }
    if std::env::var_os(INSIDE).is_some() {
        sweep();
        return Ok(());
    }
    let exe = std::env::current_exe().map_err(|e| Failure::new(FAILED, e))?;
    let again = CommandLine::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(exe)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1");
    Err(Failure::new(FAILED, exec::replace_self(&again)))
}

/// Removes what killed ones left. Not what a living one has: its mount cannot be seen from here, and
/// would go with its directory.
fn sweep() {
    for place in [BLKIO, PLACE] {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            if owner(&entry.file_name().to_string_lossy()).is_some_and(|pid| !is_alive(pid)) {
                let path = entry.path();
                // An image has a name for a moment only, but may have been left in it.
                let _ = fs::remove_dir(&path).or_else(|_| fs::remove_file(&path));
            }
        }
    }
}

/// The process id in a name of ours.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Mounted, and unmounted when dropped.
#[derive(Debug)]
pub(super) struct Disk {
    dir: TempDir,
    /// `MAJOR:MINOR`
    device: String,
    cgroup: PathBuf,
}

impl Disk {
    /// A new ext4 on which whoever is moved [here](Disk::limit) reads no more often than so.
    pub(super) fn make(name: &str, read_iops: u32) -> Result<Disk, Failure> {
        let own = format!("{PREFIX}{}-", std::process::id());
        let dir = tempfile::Builder::new()
            .prefix(&own)
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(PLACE)
            .map_err(at(Path::new(PLACE)))?;
        let device = mount(dir.path())?;
        let cgroup = Path::new(BLKIO).join(own + name);
        // From here on dropping it takes all back.
        let disk = Disk { dir, device, cgroup };
        fs::create_dir(&disk.cgroup).map_err(at(&disk.cgroup))?;
        let limit = disk.cgroup.join("blkio.throttle.read_iops_device");
        fs::write(&limit, format!("{} {read_iops}", disk.device)).map_err(at(&limit))?;
        Ok(disk)
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Limits a server: its first process, whose later children follow it, and those it has.
    pub(super) fn limit(&self, data_dir: &Path) -> Result<(), Failure> {
        let file = data_dir.join("postmaster.pid");
        let text = fs::read_to_string(&file).map_err(at(&file))?;
        let postmaster = text.lines().next().unwrap_or_default().trim();
        let procs = self.cgroup.join("cgroup.procs");
        fs::write(&procs, postmaster).map_err(at(&procs))?;
        for pid in children(postmaster) {
            // It may have ended since.
            let _ = fs::write(&procs, pid);
        }
        Ok(())
    }

    /// The kernel's count of reads completed, merged ones apart.
    pub(super) fn stat_file(&self) -> PathBuf {
        format!("/sys/dev/block/{}/stat", self.device).into()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What fails here goes with the namespace.
        let _ = Local.run(&CommandLine::new("umount").arg(self.dir.path()));
        let _ = fs::remove_dir(&self.cgroup);
    }
}

/// Returns the device's number.
fn mount(dir: &Path) -> Result<String, Failure> {
    let failed = |e: exec::ExecError| Failure::new(FAILED, e).context("cannot make a disk");
    let image = dir.with_extension("image");
    File::create(&image).and_then(|f| f.set_len(IMAGE_BYTES)).map_err(at(&image))?;
    // Nothing is to be initialised in the background later.
    let mkfs = CommandLine::new("mkfs.ext4")
        .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
        .arg(&image);
    let mount = CommandLine::new("mount").args(["-o", "loop,noatime"]).arg(&image).arg(dir);
    let done = Local.run(&mkfs).and_then(|_| Local.run(&mount));
    // The device keeps the file.
    fs::remove_file(&image).map_err(at(&image))?;
    done.map_err(failed)?;
    let device = fs::metadata(dir).map_err(at(dir))?.dev();
    Ok(format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device)))
}

fn children(parent: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    let is_child = |pid: &String| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The program's name, in parentheses, may hold blanks; state and parent follow it.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        rest.split_whitespace().nth(1) == Some(parent)
    };
    pids.filter(is_child).collect()
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Failure {
    let doing = format!("cannot use {}", path.display());
    move |e| Failure::new(FILES, e).context(doing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_a_process_are_ours() {
        assert_eq!(owner("pgio-truth-12-full"), Some(12));
        assert_eq!(owner("pgio-truth-12-a1B2.image"), Some(12));
        assert_eq!(owner("pgio-truth-results"), None);
        assert_eq!(owner("pgio-12"), None);
        assert!(is_alive(std::process::id()));
    }

    #[test]
    fn a_server_takes_its_children_along() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = children(&std::process::id().to_string());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id().to_string()), "{found:?}");
    }
}
