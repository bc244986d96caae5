//! The tree of block devices of a host, parsed from the output of survey.sh. Pure, so that tests use
//! recorded output.
//!
//! A file system uses a device, which uses other devices (a logical volume uses partitions, a loop
//! device uses a file of another file system), down to the disks. Next: [`super::storage::locate`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::host::storage::{self, Mount};

/// Queue attributes, in the order of survey.sh.
const QUEUE: &[&str] = &["scheduler", "write_cache", "fua", "rotational", "read_ahead_kb"];

#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The requested directories, in their order; `None` if one cannot be read.
    pub(super) directories: Vec<Option<PathBuf>>,
    mounts: Vec<Mount>,
    devices: BTreeMap<String, Node>,
    /// Devices by file system.
    btrfs: BTreeMap<String, Vec<String>>,
    /// Minor number of a DRBD device, and path of its disk.
    drbd: Vec<(String, String)>,
}

#[derive(Debug, Default)]
struct Node {
    number: String,
    below: Vec<String>,
    queue: BTreeMap<String, String>,
    partition: bool,
    dm_uuid: Option<String>,
    dm_name: Option<String>,
    md: bool,
    backing: Option<String>,
}

impl Tree {
    pub(super) fn parse(text: &str) -> Tree {
        let mut tree = Tree::default();
        let mut mountinfo = String::new();
        let mut minor = String::new();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            match kind {
                "directory" => {
                    tree.directories.push(Some(PathBuf::from(rest.replace('\u{1}', "\n"))));
                }
                "unreadable" => tree.directories.push(None),
                "mount" => mountinfo.extend([rest, "\n"]),
                _ => {
                    if let Some((name, value)) = rest.split_once(' ') {
                        tree.add_fact(kind, name, value, &mut minor);
                    }
                }
            }
        }
        tree.mounts = storage::parse_mounts(&mountinfo);
        tree
    }

    fn add_fact(&mut self, kind: &str, name: &str, value: &str, minor: &mut String) {
        match kind {
            "btrfs" => self.btrfs.entry(name.to_owned()).or_default().push(kernel_name(value)),
            "drbd" => match drbd_words(value).as_slice() {
                ["device", .., number] => *minor = (*number).to_owned(),
                ["disk", path] => self.drbd.push((minor.clone(), (*path).to_owned())),
                _ => {}
            },
            _ => {
                let node = self.devices.entry(kernel_name(name)).or_default();
                node.add_fact(kind, value);
            }
        }
    }

    pub(super) fn mount_of(&self, path: &Path) -> Option<&Mount> {
        storage::containing(&self.mounts, path)
    }

    /// Returns the devices below a file system without duplicates, each before those below it.
    pub(super) fn under(&self, mount: &Mount) -> Vec<Device> {
        let mut found = Vec::new();
        self.descend_mount(mount, &mut BTreeSet::new(), &mut found);
        found
    }

    /// Returns the device of a path in /dev and those below it.
    pub(super) fn stack(&self, path: &str) -> Vec<Device> {
        let mut found = Vec::new();
        if let Some(name) = self.named(path) {
            self.descend(&name, &mut BTreeSet::new(), &mut found);
        }
        found
    }

    fn descend_mount(&self, mount: &Mount, seen: &mut BTreeSet<String>, found: &mut Vec<Device>) {
        let by_number = self.devices.iter().find(|(_, node)| node.number == mount.device);
        let top = by_number.map(|(name, _)| name.clone()).or_else(|| self.named(&mount.source));
        let Some(top) = top else { return };
        let siblings = self.btrfs.values().find(|devices| devices.contains(&top));
        match siblings.filter(|_| mount.file_system == "btrfs") {
            Some(all) => {
                // Below a loop device, members are no devices of the file system in question.
                let is_top = found.is_empty();
                for name in all {
                    let from = found.len();
                    self.descend(name, seen, found);
                    if let Some(device) = found.get_mut(from) {
                        device.member = is_top && from > 0;
                    }
                }
            }
            None => self.descend(&top, seen, found),
        }
    }

    fn descend(&self, name: &str, seen: &mut BTreeSet<String>, found: &mut Vec<Device>) {
        let Some(node) = self.devices.get(name) else { return };
        if !seen.insert(name.to_owned()) {
            return;
        }
        found.push(Device {
            name: name.to_owned(),
            kind: node.kind(name),
            queue: node.queue.clone(),
            member: false,
        });
        for lower in &node.below {
            self.descend(lower, seen, found);
        }
        let minor = node.number.split(':').next_back();
        for (_, path) in
            self.drbd.iter().filter(|(m, _)| is_drbd(name) && Some(m.as_str()) == minor)
        {
            if let Some(lower) = self.named(path) {
                self.descend(&lower, seen, found);
            }
        }
        if let Some(mount) = node.backing.as_ref().and_then(|file| self.mount_of(Path::new(file))) {
            self.descend_mount(mount, seen, found);
        }
    }

    /// Returns the kernel name of a path in /dev, which may be a device-mapper name in one of two forms.
    fn named(&self, path: &str) -> Option<String> {
        let path = path.strip_prefix("/dev/")?;
        if self.devices.contains_key(path) {
            return Some(path.to_owned());
        }
        let mapped = match path.split_once('/')? {
            ("mapper", name) => name.to_owned(),
            // /dev/GROUP/VOLUME; LVM doubles hyphens within each.
            (group, volume) => {
                format!("{}-{}", group.replace('-', "--"), volume.replace('-', "--"))
            }
        };
        let (name, _) =
            self.devices.iter().find(|(_, node)| node.dm_name.as_ref() == Some(&mapped))?;
        Some(name.clone())
    }
}

impl Node {
    fn add_fact(&mut self, kind: &str, value: &str) {
        match kind {
            "block" => self.number = value.to_owned(),
            "below" => self.below.push(kernel_name(value)),
            "partition" => self.partition = true,
            "dm-uuid" => self.dm_uuid = Some(value.to_owned()),
            "dm-name" => self.dm_name = Some(value.to_owned()),
            "md" => self.md = true,
            "backing" => self.backing = Some(value.to_owned()),
            // `none [mq-deadline]`: brackets mark the active scheduler.
            "scheduler" => {
                let used = value.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
                self.queue.insert(kind.to_owned(), used.map_or(value, |(used, _)| used).to_owned());
            }
            _ if QUEUE.contains(&kind) => {
                self.queue.insert(kind.to_owned(), value.to_owned());
            }
            _ => {}
        }
    }

    fn kind(&self, name: &str) -> &'static str {
        let mapped = |prefix: &str| self.dm_uuid.as_ref().is_some_and(|u| u.starts_with(prefix));
        if self.partition || mapped("part") {
            "partition"
        } else if mapped("LVM-") {
            "lvm"
        } else if mapped("CRYPT-") {
            "crypt"
        } else if mapped("mpath-") {
            "multipath"
        } else if self.dm_name.is_some() {
            "mapped"
        } else if self.md {
            "md"
        } else if is_drbd(name) {
            "drbd"
        } else if name.starts_with("loop") {
            "loop"
        } else {
            "disk"
        }
    }
}

/// Devices that pass requests on. The kernel's request-based multipath devices count flushes nevertheless.
const STACKED: &[&str] = &["dm-", "md", "drbd", "bcache"];

/// Whether a device passes requests on to others, by the kernel's names: its traffic is theirs as well.
pub fn is_stacked(device: &str) -> bool {
    STACKED.iter().any(|prefix| device.starts_with(prefix))
}

fn is_drbd(name: &str) -> bool {
    name.strip_prefix("drbd").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Converts a device name of /sys, where `!` represents a slash.
pub(super) fn kernel_name(name: &str) -> String {
    name.replace('!', "/")
}

fn drbd_words(line: &str) -> Vec<&str> {
    let line = line.split(';').next().unwrap_or("");
    line.split_whitespace().map(|word| word.trim_matches('"')).collect()
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// Kernel name, as in /proc/diskstats.
    pub name: String,
    /// `disk`, `partition`, `lvm`, `md`, `drbd`, `loop`, `crypt`, `multipath`, `mapped`.
    pub kind: &'static str,
    /// Attributes of the queue: `scheduler`, `write_cache`, `fua`, `rotational`, `read_ahead_kb`.
    pub queue: BTreeMap<String, String>,
    /// Whether it is a further device of the file system, not below the one before it.
    pub member: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tree: &Tree, path: &str) -> Vec<String> {
        let devices = tree.under(tree.mount_of(Path::new(path)).unwrap());
        devices.iter().map(|d| format!("{} {}", d.name, d.kind)).collect()
    }

    /// XFS on an LVM volume on an array of partitions of two disks.
    #[test]
    fn lvm_on_md_on_partitions() {
        let tree = Tree::parse(
            "directory /srv/pg/15/main
mount 22 1 259:2 / / rw,relatime - ext4 /dev/nvme2n1p1 rw
mount 40 22 253:3 / /srv/pg rw,noatime - xfs /dev/mapper/vg0-pg--data rw,attr2,inode64
block dm-3 253:3
below dm-3 md127
scheduler dm-3 none
write_cache dm-3 write back
fua dm-3 1
rotational dm-3 0
read_ahead_kb dm-3 128
dm-uuid dm-3 LVM-q1w2e3r4t5
dm-name dm-3 vg0-pg--data
block md127 9:127
below md127 nvme0n1p3
below md127 nvme1n1p3
md md127 raid1
block nvme0n1 259:0
scheduler nvme0n1 [none] mq-deadline kyber
block nvme0n1p3 259:5
below nvme0n1p3 nvme0n1
partition nvme0n1p3 3
block nvme1n1 259:1
scheduler nvme1n1 none [mq-deadline] kyber
block nvme1n1p3 259:6
below nvme1n1p3 nvme1n1
partition nvme1n1p3 3
",
        );
        assert_eq!(tree.directories, [Some(PathBuf::from("/srv/pg/15/main"))]);
        let expected = [
            "dm-3 lvm",
            "md127 md",
            "nvme0n1p3 partition",
            "nvme0n1 disk",
            "nvme1n1p3 partition",
            "nvme1n1 disk",
        ];
        assert_eq!(names(&tree, "/srv/pg/15/main"), expected);
        for path in ["/dev/mapper/vg0-pg--data", "/dev/vg0/pg-data", "/dev/dm-3"] {
            let stack: Vec<String> = tree.stack(path).into_iter().map(|d| d.name).collect();
            assert_eq!(stack, ["dm-3", "md127", "nvme0n1p3", "nvme0n1", "nvme1n1p3", "nvme1n1"]);
        }
        assert!(tree.stack("/dev/vg0/other").is_empty());
        assert!(names(&tree, "/").is_empty(), "its device is not in the output");
        let devices = tree.under(tree.mount_of(Path::new("/srv/pg")).unwrap());
        assert_eq!(devices[0].queue["write_cache"], "write back");
        assert_eq!(devices[0].queue.len(), QUEUE.len());
        assert_eq!(devices[3].queue["scheduler"], "none");
        assert_eq!(devices[5].queue["scheduler"], "mq-deadline");
    }

    /// Module 8.4 lists no slaves; module 9 does, and no device must appear twice.
    #[test]
    fn drbd_disks_are_found_from_drbdsetup_and_from_the_kernel() {
        let text = |slave: &str, disk: &str| {
            format!(
                "mount 40 22 147:1 / /pg rw - ext4 /dev/drbd1 rw
block drbd0 147:0
block drbd1 147:1
{slave}
block vdb 252:16
block dm-0 253:0
below dm-0 vdb
dm-uuid dm-0 LVM-x
dm-name dm-0 v--g-pg
drbd - resource r0 {{
drbd - volume 0 {{
drbd - device minor 0;
drbd - disk \"/dev/vdc\";
drbd - volume 1 {{
drbd - device minor 1;
drbd - disk \"{disk}\";
drbd - disk {{
"
            )
        };
        let expected = ["drbd1 drbd", "dm-0 lvm", "vdb disk"];
        for disk in ["/dev/v-g/pg", "/dev/mapper/v--g-pg", "/dev/dm-0"] {
            assert_eq!(names(&Tree::parse(&text("", disk)), "/pg"), expected, "{disk}");
        }
        assert_eq!(names(&Tree::parse(&text("below drbd1 dm-0", "/dev/v-g/pg")), "/pg"), expected);
        assert_eq!(names(&Tree::parse(&text("", "/dev/unknown")), "/pg"), ["drbd1 drbd"]);
    }

    #[test]
    fn btrfs_with_an_anonymous_device_number_has_all_its_devices() {
        let tree = Tree::parse(
            "mount 40 22 0:45 /@pg /pg rw - btrfs /dev/sdb rw,space_cache=v2
block sdb 8:16
block sdc 8:32
block sdd 8:48
btrfs f00-ba4 sdb
btrfs f00-ba4 sdc
btrfs features sdd
",
        );
        assert_eq!(names(&tree, "/pg"), ["sdb disk", "sdc disk"]);
        let found = tree.under(tree.mount_of(Path::new("/pg")).unwrap());
        assert_eq!(found.iter().map(|d| d.member).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn members_below_a_loop_device_are_below_it() {
        let tree = Tree::parse(
            "mount 40 22 0:45 / / rw - btrfs /dev/sdb rw
mount 41 40 7:0 / /pg rw - ext4 /dev/loop0 rw
block loop0 7:0
backing loop0 /img
block sdb 8:16
block sdc 8:32
btrfs f00-ba4 sdb
btrfs f00-ba4 sdc
",
        );
        let found = tree.under(tree.mount_of(Path::new("/pg")).unwrap());
        assert_eq!(
            found.iter().map(|d| (d.name.as_str(), d.member)).collect::<Vec<_>>(),
            [("loop0", false), ("sdb", false), ("sdc", false)]
        );
    }

    #[test]
    fn loop_devices_use_a_file_system_and_crypt_uses_a_partition() {
        let tree = Tree::parse(
            "mount 22 1 253:0 / / rw - ext4 /dev/mapper/luks rw
mount 41 22 7:0 / /pg rw - ext4 /dev/loop0 rw
mount 42 22 0:50 / /run rw - tmpfs tmpfs rw
block loop0 7:0
backing loop0 /var/lib/a file.img
block dm-0 253:0
below dm-0 cciss!c0d0p1
dm-uuid dm-0 CRYPT-LUKS2-x
dm-name dm-0 luks
block cciss!c0d0p1 104:1
partition cciss!c0d0p1 1
below cciss!c0d0p1 cciss!c0d0
block cciss!c0d0 104:0
",
        );
        let disk = ["dm-0 crypt", "cciss/c0d0p1 partition", "cciss/c0d0 disk"];
        assert_eq!(names(&tree, "/pg/data"), [&["loop0 loop"], &disk[..]].concat());
        assert_eq!(names(&tree, "/home"), disk);
        assert!(names(&tree, "/run/x").is_empty());
    }

    #[test]
    fn cycles_terminate() {
        let tree = Tree::parse(
            "mount 22 1 7:0 / / rw - ext4 /dev/loop0 rw\nblock loop0 7:0\nbacking loop0 /img\n",
        );
        assert_eq!(names(&tree, "/"), ["loop0 loop"]);
    }

    #[test]
    fn fuzzed_answers_are_parsed_and_followed() {
        let samples = [
            "mount 22 1 7:0 / / rw - ext4 /dev/loop0 rw\nblock loop0 7:0\nbacking loop0 /img\n",
            "mount 23 1 0:5 / / rw - btrfs /dev/a rw\nbtrfs /dev/a /dev/b\nblock a 8:1\nbelow a b\nblock b 8:2\nbelow b a\n\
             drbd 0 /dev/a r\ndevice /dev/a 8:1\ndisk a ssd\n",
        ];
        pgio_fuzz::fuzz(&samples, |bytes| {
            let tree = Tree::parse(&String::from_utf8_lossy(bytes));
            tree.mounts.iter().for_each(|mount| drop(tree.under(mount)));
        });
    }
}
