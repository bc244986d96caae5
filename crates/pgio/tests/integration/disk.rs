//! A loop device on a sparse file, for tests that only root can run. Gone when dropped; one that a
//! killed test leaves is detached with its file by the next `losetup -D`.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use pgio::host::exec::{Exec, Local};
use pgio::host::loop_disk::in_namespace;
use tempfile::TempDir;

/// In a test's process that runs in a mount namespace of its own.
const INSIDE: &str = "PGIO_TEST_INSIDE";

/// Where tests of real devices cannot run they say so instead of passing in silence.
pub(crate) fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("{test}: skipped, only root makes loop devices");
    }
    root
}

/// Whether this process is that of the test in its own mount namespace.
pub(crate) fn is_inside(test: &str) -> bool {
    std::env::var(INSIDE).is_ok_and(|inside| inside == test)
}

/// Runs a test, by its whole path, again as a process in a mount namespace of its own.
pub(crate) fn run_inside(test: &str) {
    let line = in_namespace(std::env::current_exe().unwrap())
        .arg(test)
        .args(["--exact", "--nocapture"])
        .env(INSIDE, test);
    let said = Local.output(&line).unwrap();
    assert!(said.status.success(), "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("1 passed"), "{}", said.stdout);
    eprint!("{}", said.stderr);
}

/// For whoever takes the next free device, and for whoever needs one to stay free: tests run in
/// processes beside each other. Until it is dropped nobody makes another, its holder neither.
pub(crate) fn lock_free_devices() -> File {
    let path = "/var/tmp/loop-devices-of-tests.lock";
    let lock = File::options().create(true).truncate(false).write(true).open(path).unwrap();
    lock.lock().unwrap();
    lock
}

#[derive(Debug)]
pub(crate) struct LoopDevice {
    dir: TempDir,
    pub(crate) path: String,
}

impl LoopDevice {
    pub(crate) fn new(bytes: u64) -> LoopDevice {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        // A server on it runs as another user.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let image = dir.path().join("image");
        File::create(&image).unwrap().set_len(bytes).unwrap();
        let lock = lock_free_devices();
        let path = run("losetup", &["--find", "--show", image.to_str().unwrap()]);
        drop(lock);
        LoopDevice { dir, path: path.trim().to_owned() }
    }

    /// The UUID of the new file system.
    pub(crate) fn format(&self) -> String {
        run("mkfs.ext4", &["-q", "-F", &self.path]);
        run("blkid", &["-p", "-o", "value", "-s", "UUID", &self.path]).trim().to_owned()
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.dir.path().join("image")
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
