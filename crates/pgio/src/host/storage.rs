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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

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
