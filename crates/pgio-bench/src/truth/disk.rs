//! A file system on a loop device, with limited reads for one server.
//!
//! Everything disappears with the program; only kill -9 leaves an empty directory and an empty cgroup,
//! which the next start removes. The treatment `throttle` limits all processes in the root group; here,
//! each server has its own group, so that two can run side by side.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pgio::cli::exit::{FAILED, FILES, Failure, REFUSED, USAGE};
use pgio::host::blkio::{self, Controller, DeviceLimits, Limit, Version};
use pgio::host::exec::{self, Local};
use pgio_bench::loop_disk::{self, LoopDisk};
use pgio_results::files::Directory;

/// Precedes the process ID.
const PREFIX: &str = "pgio-truth-";
/// Marks the process inside the namespace.
const INSIDE: &str = "PGIO_TRUTH_INSIDE";
const IMAGE_BYTES: u64 = 4 << 30;

/// Continues in a private mount namespace: executes this command again there.
pub(super) fn enter_namespace() -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        let text = "it requires root, because it creates and limits loop devices";
        return Err(Failure::message(USAGE, text));
    }
    let controller = controller()?;
    if std::env::var_os(INSIDE).is_some() {
        let groups = controller.mount_point.to_string_lossy().into_owned();
        loop_disk::reap(PREFIX, &[loop_disk::BASE_DIR, &groups]);
        return Ok(());
    }
    let exe = std::env::current_exe().map_err(|e| Failure::new(FAILED, e))?;
    let again = loop_disk::in_namespace(exe).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    Err(Failure::new(FAILED, exec::replace_self(&again)))
}

fn controller() -> Result<Controller, Failure> {
    let found = blkio::find(&Local).map_err(|e| Failure::new(FAILED, e))?;
    found.filter(|c| c.version == Version::V1).ok_or_else(|| {
        Failure::message(REFUSED, "cgroup v1's blkio is not mounted, which it needs")
    })
}

/// Removed when dropped.
#[derive(Debug)]
pub(super) struct Disk {
    disk: LoopDisk,
    controller: Controller,
    /// The path below the root.
    group: String,
}

impl Disk {
    /// Creates an ext4 file system on which processes under [a limit](Disk::limit) read at most at this
    /// rate.
    pub(super) fn make(name: &str, read_iops: u32) -> Result<Disk, Failure> {
        let own = format!("{PREFIX}{}-", std::process::id());
        let disk = LoopDisk::create(&own, IMAGE_BYTES).map_err(|e| Failure::new(FILES, e))?;
        let disk = Disk { disk, controller: controller()?, group: format!("/{own}{name}") };
        let directory = disk.directory();
        fs::create_dir(&directory).map_err(at(&directory))?;
        let limits = DeviceLimits {
            version: Version::V1,
            group: directory,
            device: disk.disk.number().to_owned(),
        };
        limits
            .set(&Local, Limit::ReadIops, Some(read_iops.into()))
            .map_err(|e| Failure::new(FAILED, e))?;
        Ok(disk)
    }

    fn directory(&self) -> PathBuf {
        self.controller.directory(&self.group)
    }

    pub(super) fn path(&self) -> &Path {
        self.disk.path()
    }

    /// Limits a server: its first process, whose future children inherit the group, and its existing
    /// children.
    pub(super) fn limit(&self, data_dir: &Path) -> Result<(), Failure> {
        let file = data_dir.join("postmaster.pid");
        let read = |open: Directory| open.read(Path::new("postmaster.pid"), 16 << 10);
        let text = Directory::open(data_dir).and_then(read).map_err(at(&file))?;
        let postmaster = text.lines().next().and_then(|line| line.trim().parse().ok());
        let lost = || Failure::message(FAILED, format!("no process id in {}", file.display()));
        let postmaster = postmaster.ok_or_else(lost)?;
        let moved = self.controller.group_of(&Local, postmaster).and_then(|from| {
            let from = from.unwrap_or_default();
            blkio::move_with_children(&Local, &self.controller, postmaster, &from, &self.group)
        });
        moved.map_err(|e| Failure::new(FAILED, e))
    }

    /// Returns the kernel's count of completed reads, without merged ones.
    pub(super) fn stat_file(&self) -> PathBuf {
        format!("/sys/dev/block/{}/stat", self.disk.number()).into()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The server has stopped, so the group contains no process.
        let _ = fs::remove_dir(self.directory());
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Failure {
    let doing = format!("cannot use {}", path.display());
    move |e| Failure::new(FILES, e).context(doing)
}
