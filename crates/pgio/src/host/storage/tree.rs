//! The tree of block devices of a host, parsed from the output of survey.sh. Pure, so that tests use
//! recorded output.
//!
//! A file system uses a device, which uses other devices (a logical volume uses partitions, a loop
//! device uses a file of another file system), down to the disks. Next: [`super::locate`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::host::proc::mountinfo::{self, Mount};

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
        tree.mounts = mountinfo::parse(&mountinfo);
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
        mountinfo::containing(&self.mounts, path)
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

#[cfg(test)]
mod tests;

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
