//! A loop device on a sparse file, for tests that only root can run. Gone when dropped; one that a
//! killed test leaves is detached with its file by the next `losetup -D`.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use pgio::host::exec::{Exec, Local};
use pgio_bench::loop_disk::in_namespace;
use rustix::fs::{StatVfs, statvfs};
use tempfile::TempDir;

use pgio_tests::timing;
pub(crate) use pgio_tests::timing::is_inside;

/// Returns whether tests of real devices can run; prints the reason if not.
pub(crate) fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("{test}: skipped, only root makes loop devices");
    }
    root
}

/// Runs a test, by its whole path, again as a process in a mount namespace of its own.
pub(crate) fn run_inside(test: &str) {
    timing::begin();
    let line = in_namespace(std::env::current_exe().unwrap())
        .arg(test)
        .args(["--exact", "--nocapture"])
        .env(timing::INSIDE, test);
    let result = Local.output(&line).unwrap();
    assert!(result.status.success(), "{}{}", result.stdout, result.stderr);
    assert!(result.stdout.contains("1 passed"), "{}", result.stdout);
    eprint!("{}", result.stderr);
}

/// Held while a test takes the next free loop device, or needs one to stay free: tests run in
/// parallel processes. Until it is dropped, no test creates another device, not even the holder.
pub(crate) fn lock_free_devices() -> File {
    let path = "/var/tmp/loop-devices-of-tests.lock";
    let lock = File::options().create(true).truncate(false).write(true).open(path).unwrap();
    lock.lock().unwrap();
    lock
}

/// Directory of images: in memory if there is room for several at a time. The tests are about the loop
/// device with its file system, queue and limits, which are the same above any file; a real disk below
/// only makes mkfs, copies and umount slow.
fn place_of_images() -> &'static str {
    const MEMORY: &str = "/dev/shm";
    const ROOM: u64 = 4 << 30;
    let free = |space: StatVfs| space.f_bavail * space.f_frsize;
    let has_room = statvfs(MEMORY).is_ok_and(|space| free(space) >= ROOM);
    if has_room && available_memory().is_some_and(|bytes| bytes >= ROOM) {
        MEMORY
    } else {
        "/var/tmp"
    }
}

/// A memory file system may be larger than the memory.
fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

#[derive(Debug)]
pub(crate) struct LoopDevice {
    /// For what is mounted, and what lies beside it.
    dir: TempDir,
    image: TempDir,
    pub(crate) path: String,
}

impl LoopDevice {
    pub(crate) fn new(bytes: u64) -> LoopDevice {
        timing::begin();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        // A server on it runs as another user.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let image = tempfile::tempdir_in(place_of_images()).unwrap();
        let file = image.path().join("image");
        File::create(&file).unwrap().set_len(bytes).unwrap();
        let lock = lock_free_devices();
        let path = run("losetup", &["--find", "--show", file.to_str().unwrap()]);
        drop(lock);
        LoopDevice { dir, image, path: path.trim().to_owned() }
    }

    /// The UUID of the new file system.
    pub(crate) fn format(&self) -> String {
        run("mkfs.ext4", &["-q", "-F", &self.path]);
        run("blkid", &["-p", "-o", "value", "-s", "UUID", &self.path]).trim().to_owned()
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.image.path().join("image")
    }

    /// A path that nothing has yet.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Mounted on a directory beside its image until it is dropped.
    pub(crate) fn mount(&self) -> PathBuf {
        let point = self.dir.path().join("mounted");
        fs::create_dir_all(&point).unwrap();
        run("mount", &[&self.path, point.to_str().unwrap()]);
        point
    }

    pub(crate) fn unmount(&self) {
        run("umount", &[self.dir.path().join("mounted").to_str().unwrap()]);
        run("blockdev", &["--flushbufs", &self.path]);
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let point = self.dir.path().join("mounted");
        let deadline = Instant::now() + Duration::from_secs(10);
        // A server on it may take a moment to go.
        while is_mounted(&point) && Instant::now() < deadline {
            let _ = Command::new("umount").arg(&point).output();
            thread::sleep(Duration::from_millis(50));
        }
        let _ = Command::new("losetup").args(["--detach", &self.path]).output();
    }
}

fn is_mounted(point: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|m| m.dev()).ok();
    point.exists() && device(point) != point.parent().and_then(device)
}

/// Returns stdout; a failure fails the test.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let result = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {result}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
