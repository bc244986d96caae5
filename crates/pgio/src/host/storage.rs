//! The storage below a directory on a host: mount, file system, and all devices down to the disks.
//!
//! One read-only script (survey.sh) collects all facts at once; [`super::device_tree`] interprets them. Unknown
//! facts are absent, never guessed. Next: `telemetry::storage` locates the data directory, the WAL and
//! the tablespaces.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::device_tree::{Tree, kernel_name};
use super::exec::{CommandLine, Exec, ExecError};

pub use super::device_tree::{Device, is_stacked};

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

// /proc/self/mountinfo: mounts with their devices. Source: proc_pid_mountinfo(5). Names are unescaped. A mount at a
// parent directory hides what was mounted below before, and the file lists both. The numbers of the parents tell:
// the kernel finds a mount at a path only in the mount that it has reached by then.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mount {
    /// `major:minor`; major 0 means no block device (btrfs, overlay, tmpfs, NFS).
    pub device: String,
    /// The mounted directory of the file system: `/` except for bind mounts and subvolumes.
    pub root: String,
    pub mount_point: String,
    pub file_system: String,
    /// The source, such as /dev/mapper/vg-pg; its meaning depends on the file system.
    pub source: String,
    /// Options of the mount, followed by the file system's.
    pub options: String,
    /// Whether another mount lies over it or above it, so that no path leads to it. It keeps its device in use.
    pub hidden: bool,
}

/// The kernel's number of a mount, and the number of the mount which it is mounted in.
type Ids<'a> = (&'a str, &'a str);

pub fn parse_mounts(text: &str) -> Vec<Mount> {
    let (ids, mut mounts): (Vec<Ids<'_>>, Vec<Mount>) = text.lines().filter_map(line).unzip();
    let children: BTreeMap<(&str, &str), usize> = ids
        .iter()
        .zip(&mounts)
        .enumerate()
        .map(|(at, ((_, parent), mount))| ((*parent, mount.mount_point.as_str()), at))
        .collect();
    let is_root = |at: &usize| mounts[*at].mount_point == "/";
    let roots: Vec<usize> = (0..mounts.len()).filter(is_root).collect();
    // What is mounted over the root is not seen by who had this root before.
    let is_over = |at: usize, other: usize| at != other && ids[at].1 == ids[other].0;
    let root = roots.iter().copied().find(|at| !roots.iter().any(|other| is_over(*at, *other)));
    // Part of a list, without the root.
    let Some(root) = root else { return mounts };
    let reached = |point: &str| {
        let ends = point.match_indices('/').skip(1).map(|(at, _)| at).chain([point.len()]);
        let mut at = root;
        for end in ends.filter(|end| *end > 1) {
            // At most all lie over each other; damaged text may have a circle.
            for _ in 0..ids.len() {
                let Some(over) = children.get(&(ids[at].0, &point[..end])) else { break };
                at = *over;
            }
        }
        at
    };
    let hidden: Vec<bool> =
        mounts.iter().enumerate().map(|(at, mount)| reached(&mount.mount_point) != at).collect();
    mounts.iter_mut().zip(hidden).for_each(|(mount, hidden)| mount.hidden = hidden);
    mounts
}

/// Returns the mount that contains a path without symbolic links.
pub fn containing<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let within = mounts.iter().filter(|m| !m.hidden && path.starts_with(&m.mount_point));
    within.max_by_key(|m| Path::new(&m.mount_point).components().count())
}

fn line(line: &str) -> Option<(Ids<'_>, Mount)> {
    // A single hyphen follows any number of optional fields.
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ');
    let ids = (mount.next()?, mount.next()?);
    let (device, root, mount_point, own) =
        (mount.next()?, mount.next()?, mount.next()?, mount.next()?);
    let mut rest = file_system.split(' ');
    let (file_system, source) = (rest.next()?, rest.next()?);
    let mount = Mount {
        device: device.to_owned(),
        root: unescaped(root),
        mount_point: unescaped(mount_point),
        file_system: unescaped(file_system),
        source: unescaped(source),
        options: joined(own, rest.next().unwrap_or("")),
        hidden: false,
    };
    Some((ids, mount))
}

/// Joins the options of the mount and of the file system, without duplicates.
fn joined(own: &str, super_options: &str) -> String {
    let own_options: Vec<&str> = own.split(',').collect();
    // `rw` and `ro` of the mount take precedence over the file system's.
    let more = super_options
        .split(',')
        .filter(|option| !option.is_empty() && !matches!(*option, "rw" | "ro"))
        .filter(|option| !own_options.contains(option));
    own_options.iter().copied().chain(more).collect::<Vec<_>>().join(",")
}

/// Decodes spaces, tabs, newlines and backslashes, which are written as three octal digits.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|d| *first == b'\\' && d.iter().all(u8::is_ascii_digit));
        let octal = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
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
            let dev = |path: &Path| std::fs::read_to_string(path.join("dev")).unwrap();
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

    #[test]
    fn paths_belong_to_the_deepest_mount_that_they_reach() {
        let text = "\
    22 1 252:0 / / rw,relatime shared:1 - ext4 /dev/root rw,errors=remount-ro
30 22 253:0 / /data rw,noatime shared:2 master:1 - xfs /dev/mapper/vg-pg rw,attr2,noquota
33 30 0:41 / /data/old rw - tmpfs none rw
34 22 0:42 / /srv/pg/data rw - ext4 /dev/old rw
35 22 0:43 / /srv/pg rw - tmpfs none rw
36 35 0:44 / /srv/pg/new rw - ext4 /dev/new rw
32 30 253:1 / /data rw - ext4 /dev/mapper/vg-new ro,data=ordered
31 32 0:40 /sub /data/my\\040db rw - btrfs /dev/sdb rw,space_cache
37 22 0:45 / / rw - tmpfs over rw
";
        let mounts = parse_mounts(text);
        assert_eq!(mounts.len(), 9);
        let hidden: Vec<&str> =
            mounts.iter().filter(|m| m.hidden).map(|m| m.device.as_str()).collect();
        assert_eq!(hidden, ["253:0", "0:41", "0:42", "0:45"]);
        let mount = |path: &str| containing(&mounts, Path::new(path)).unwrap();
        assert_eq!(mount("/data/pg").source, "/dev/mapper/vg-new", "it hides the earlier mount");
        assert_eq!(mount("/data/my db/x").device, "0:40");
        assert_eq!(mount("/data/old/x").device, "253:1");
        assert_eq!(
            (mount("/srv/pg/data/x").device.as_str(), mount("/srv/pg/new").device.as_str()),
            ("0:43", "0:44")
        );
        assert_eq!(mount("/database").mount_point, "/", "paths are compared by components");
        assert_eq!(mount("/data/pg").options, "rw,data=ordered");
        assert_eq!(mount("/").options, "rw,relatime,errors=remount-ro");
    }
}
