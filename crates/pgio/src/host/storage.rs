//! The storage below a directory on a host: mount, file system, and all devices down to the disks.
//!
//! One read-only script (survey.sh) collects all facts at once; [`super::device_tree`] interprets them. Unknown
//! facts are absent, never guessed. Next: `telemetry::storage` locates the data directory, the WAL and
//! the tablespaces.

use std::path::PathBuf;
use std::time::Duration;

pub use super::device_tree::Device;
use super::device_tree::{Tree, kernel_name};
use super::exec::{CommandLine, Exec, ExecError};
pub use super::mountinfo::Mount;

const SURVEY: &str = include_str!("storage/survey.sh");
const WHOLE_DISK: &str = include_str!("storage/whole_disk.sh");

const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Path without symbolic links.
    pub directory: PathBuf,
    pub mount: Mount,
    /// Each device precedes those below it. Empty for file systems without a device.
    pub devices: Vec<Device>,
}

/// Locates directories, in their order; `None` for a directory that cannot be read.
pub fn locate(exec: &dyn Exec, directories: &[&str]) -> Result<Vec<Option<Location>>, ExecError> {
    let survey =
        CommandLine::new("sh").args(["-c", SURVEY, "sh"]).args(directories).timeout(TIMEOUT);
    let tree = Tree::parse(&exec.run(&survey)?);
    let location = |at: usize| {
        let directory = tree.directories.get(at)?.clone()?;
        let mount = tree.mount_of(&directory)?.clone();
        let devices = tree.under(&mount);
        Some(Location { directory, mount, devices })
    };
    Ok((0..directories.len()).map(location).collect())
}

/// The path of a device that may be given by its kernel name.
pub fn path_of(device: &str) -> String {
    if device.starts_with('/') { device.to_owned() } else { format!("/dev/{device}") }
}

/// Returns the device of a path in /dev and all devices below it, each before those below it. Empty if
/// unknown.
pub fn stack(exec: &dyn Exec, device: &str) -> Result<Vec<Device>, ExecError> {
    let real = CommandLine::new("readlink").args(["-f", "--", device]).timeout(TIMEOUT);
    let real = exec.output(&real)?.stdout;
    let survey = CommandLine::new("sh").args(["-c", SURVEY, "sh"]).timeout(TIMEOUT);
    Ok(Tree::parse(&exec.run(&survey)?).stack(real.trim_end()))
}

/// A block device that is not a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeDisk {
    /// `MAJOR:MINOR`
    pub number: String,
    /// Kernel name, as in /proc/diskstats.
    pub name: String,
}

/// Returns the disk of a path in /dev; for a partition, the disk that contains it; `None` if the path
/// is not a block device.
pub fn whole_disk(exec: &dyn Exec, device: &str) -> Result<Option<WholeDisk>, ExecError> {
    let script = CommandLine::new("sh").args(["-c", WHOLE_DISK, "sh", device]).timeout(TIMEOUT);
    let text = exec.output(&script)?.stdout;
    Ok(text
        .trim_end()
        .split_once(' ')
        .map(|(number, name)| WholeDisk { number: number.to_owned(), name: kernel_name(name) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    #[test]
    fn only_block_devices_have_a_whole_disk() {
        let host = Host::local();
        for path in ["/dev/null", "/nonexistent", "/", "-x", ""] {
            assert_eq!(whole_disk(&host, path).unwrap(), None, "{path}");
        }
    }

    #[test]
    fn a_device_is_named_by_the_kernel_or_by_a_path() {
        assert_eq!(path_of("vdb"), "/dev/vdb");
        assert_eq!(path_of("cciss/c0d0"), "/dev/cciss/c0d0");
        for path in ["/dev/vdb", "/dev/mapper/vg0-pg"] {
            assert_eq!(path_of(path), path);
        }
    }

    /// DRBD 8.4 shows its disks to root alone.
    #[test]
    fn drbd_is_asked_through_sudo_where_it_requires_root() {
        let on_a_host_with = |programs: &str| {
            // The file only shows that DRBD is loaded.
            let script = programs.to_owned() + &SURVEY.replace("/proc/drbd", "/dev/null");
            let survey = CommandLine::new("sh").args(["-c", script.as_str()]).timeout(TIMEOUT);
            Host::local().run(&survey).unwrap()
        };
        let refused = "drbdsetup() { return 20; }\n";
        let sudo =
            "sudo() { [ \"$*\" = '-n drbdsetup show' ] && echo 'device minor 1;'; }\n".to_owned();
        let found = on_a_host_with(&(sudo + refused));
        assert!(found.lines().any(|line| line == "drbd - device minor 1;"), "{found}");
        let found =
            on_a_host_with("drbdsetup() { echo 'device minor 0;'; }\nsudo() { echo no; }\n");
        let drbd_lines: Vec<&str> =
            found.lines().filter(|line| line.starts_with("drbd ")).collect();
        assert_eq!(drbd_lines, ["drbd - device minor 0;"]);
    }

    #[test]
    fn the_stack_of_a_device_begins_with_itself() {
        let host = Host::local();
        for path in ["/dev/null", "/nonexistent/x", "/", ""] {
            assert!(stack(&host, path).unwrap().is_empty(), "{path}");
        }
        for entry in std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten().take(3) {
            let name = kernel_name(&entry.file_name().to_string_lossy());
            let found = stack(&host, &format!("/dev/{name}")).unwrap();
            assert_eq!(found.first().map(|d| d.name.as_str()), Some(name.as_str()), "{found:?}");
        }
    }

    #[test]
    fn the_whole_disk_of_a_partition_is_its_parent() {
        let host = Host::local();
        for entry in std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten() {
            let name = kernel_name(&entry.file_name().to_string_lossy());
            // A container lists devices without device files.
            let Ok(Some(disk)) = whole_disk(&host, &format!("/dev/{name}")) else { continue };
            let dev = |path: &std::path::Path| std::fs::read_to_string(path.join("dev")).unwrap();
            let own = entry.path();
            let expected = if own.join("partition").exists() {
                std::fs::canonicalize(&own).unwrap().parent().unwrap().to_owned()
            } else {
                own
            };
            assert_eq!(disk.number, dev(&expected).trim(), "{name}");
            assert!(name.starts_with(&disk.name), "{name}");
        }
    }

    #[test]
    fn locate_finds_directories_of_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        // As its shell would print them, \n and \c are something else.
        let path = dir.path().join("DOMAIN\\nina's \\carl\nunreadable");
        std::fs::create_dir(&path).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let directories = ["/nonexistent/x", link.to_str().unwrap(), "/proc/sys"];
        let found = locate(&Host::local(), &directories).unwrap();
        let [missing, Some(found), Some(proc)] = found.as_slice() else {
            panic!("two of three directories exist: {found:?}");
        };
        assert_eq!(*missing, None);
        assert_eq!(found.directory, path);
        assert!(path.starts_with(&found.mount.mount_point), "{found:?}");
        assert_eq!((proc.mount.file_system.as_str(), proc.devices.len()), ("proc", 0));
    }
}
