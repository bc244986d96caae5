//! What a directory on a host lies on: mount, file system, and all devices below, down to disks.
//!
//! One script looks at everything at once (survey.sh, reads only); [`tree`] makes sense of it.
//! What cannot be found out is absent, never a guess. Next: `telemetry::storage` asks for the
//! data directory, the WAL and the tablespaces.

mod tree;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use self::tree::Tree;
use super::exec::{CommandLine, Exec, ExecError};
pub use super::proc::mountinfo::Mount;

const SURVEY: &str = include_str!("storage/survey.sh");
const WHOLE_DISK: &str = include_str!("storage/whole_disk.sh");

const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Without symbolic links.
    pub directory: PathBuf,
    pub mount: Mount,
    /// Each before those that it lies on. Empty for file systems without a device.
    pub devices: Vec<Device>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The kernel's name, as in /proc/diskstats.
    pub name: String,
    /// `disk`, `partition`, `lvm`, `md`, `drbd`, `loop`, `crypt`, `multipath`, `mapped`.
    pub kind: &'static str,
    /// Of its queue: `scheduler`, `write_cache`, `fua`, `rotational`, `read_ahead_kb`.
    pub queue: BTreeMap<String, String>,
}

/// One for each directory, in their order; `None` where it cannot be read.
pub fn locate(exec: &dyn Exec, directories: &[&str]) -> Result<Vec<Option<Location>>, ExecError> {
    let survey = CommandLine::new("sh").args(["-c", SURVEY, "sh"]).args(directories).timeout(LIMIT);
    let tree = Tree::parse(&exec.run(&survey)?);
    let of = |at: usize| {
        let directory = tree.directories.get(at)?.clone()?;
        let mount = tree.mount_of(&directory)?.clone();
        let devices = tree.under(&mount);
        Some(Location { directory, mount, devices })
    };
    Ok((0..directories.len()).map(of).collect())
}

/// What a path in /dev is and all that it lies on, each before those. Empty where that is not known.
pub fn stack(exec: &dyn Exec, device: &str) -> Result<Vec<Device>, ExecError> {
    let real = CommandLine::new("readlink").args(["-f", "--", device]).timeout(LIMIT);
    let real = exec.output(&real)?.stdout;
    let survey = CommandLine::new("sh").args(["-c", SURVEY, "sh"]).timeout(LIMIT);
    Ok(Tree::parse(&exec.run(&survey)?).stack(real.trim_end()))
}

/// A device that is no part of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeDisk {
    /// `MAJOR:MINOR`
    pub number: String,
    /// The kernel's name, as in /proc/diskstats.
    pub name: String,
}

/// What a path in /dev is, or for a partition what it is a part of; `None` where it is no block
/// device.
pub fn whole_disk(exec: &dyn Exec, device: &str) -> Result<Option<WholeDisk>, ExecError> {
    let ask = CommandLine::new("sh").args(["-c", WHOLE_DISK, "sh", device]).timeout(LIMIT);
    let text = exec.output(&ask)?.stdout;
    Ok(text.trim_end().split_once(' ').map(|(number, name)| WholeDisk {
        number: number.to_owned(),
        name: tree::kernel_name(name),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    #[test]
    fn what_is_no_block_device_is_no_disk() {
        let host = Host::local();
        for path in ["/dev/null", "/nonexistent", "/", "-x", ""] {
            assert_eq!(whole_disk(&host, path).unwrap(), None, "{path}");
        }
    }

    #[test]
    fn a_device_stands_on_itself_and_what_is_none_on_nothing() {
        let host = Host::local();
        for path in ["/dev/null", "/nonexistent/x", "/", ""] {
            assert!(stack(&host, path).unwrap().is_empty(), "{path}");
        }
        for entry in std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten().take(3) {
            let name = tree::kernel_name(&entry.file_name().to_string_lossy());
            let found = stack(&host, &format!("/dev/{name}")).unwrap();
            assert_eq!(found.first().map(|d| d.name.as_str()), Some(name.as_str()), "{found:?}");
        }
    }

    #[test]
    fn a_partition_is_a_part_of_its_disk() {
        let host = Host::local();
        for entry in std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten() {
            let name = tree::kernel_name(&entry.file_name().to_string_lossy());
            // A container shows devices that it has no files for.
            let Ok(Some(disk)) = whole_disk(&host, &format!("/dev/{name}")) else { continue };
            let dev = |path: &std::path::Path| std::fs::read_to_string(path.join("dev")).unwrap();
            let own = entry.path();
            let expected = match own.join("partition").exists() {
                true => std::fs::canonicalize(&own).unwrap().parent().unwrap().to_owned(),
                false => own,
            };
            assert_eq!(disk.number, dev(&expected).trim(), "{name}");
            assert!(name.starts_with(&disk.name), "{name}");
        }
    }

    #[test]
    fn a_directory_of_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a directory with 'quotes' and spaces");
        std::fs::create_dir(&path).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let directories = ["/nonexistent/x", link.to_str().unwrap(), "/proc/sys"];
        let found = locate(&Host::local(), &directories).unwrap();
        let [nothing, Some(found), Some(proc)] = found.as_slice() else {
            panic!("two of three are there: {found:?}");
        };
        assert_eq!(*nothing, None);
        assert_eq!(found.directory, path);
        assert!(path.starts_with(&found.mount.mount_point), "{found:?}");
        assert_eq!((proc.mount.file_system.as_str(), proc.devices.len()), ("proc", 0));
    }
}
