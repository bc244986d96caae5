//! /proc/diskstats: one line per block device, partitions included.
//!
//! A line has 14 fields, 18 since Linux 4.18 (discards), 20 since 5.5 (flushes); for other lengths
//! above 14 the known fields are parsed. Source: the kernel's
//! Documentation/admin-guide/iostats.rst.
//!
//! The kernel counts flushes where it queues requests: of whole disks. Partitions, and devices that only
//! pass requests on (device mapper, md, DRBD), show 0 however often they are flushed. So does the head of
//! an NVMe multipath device, whose paths count them.

use std::collections::BTreeMap;

use super::device_tree::is_stacked;

/// Size of a sector in this file, independent of the device's sector size.
pub const SECTOR_BYTES: u64 = 512;

/// Counters since boot. Times are milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disk {
    pub reads: u64,
    pub sectors_read: u64,
    pub read_ms: u64,
    pub writes: u64,
    pub writes_merged: u64,
    pub sectors_written: u64,
    pub write_ms: u64,
    /// Time during which at least one request was in flight.
    pub busy_ms: u64,
    /// Number and time; absent before Linux 5.5, and for devices that count none. Of the head of an NVMe
    /// multipath device the sum of its paths.
    pub flushes: Option<(u64, u64)>,
}

impl Disk {
    pub fn was_used(&self) -> bool {
        self.reads > 0 || self.writes > 0 || self.flushes.is_some_and(|(n, _)| n > 0)
    }
}

/// Returns disks by their kernel names.
pub fn parse(text: &str) -> BTreeMap<String, Disk> {
    let mut disks: BTreeMap<String, Disk> = text.lines().filter_map(line).collect();
    let uncounted = |(name, disk): (&String, &Disk)| {
        let none = disk.flushes.is_some_and(|(n, _)| n == 0);
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_part_of = |disk: &str| disks.contains_key(disk) && is_partition(name, disk);
        let counts_none = || {
            is_stacked(name) || is_part_of(stem) || stem.strip_suffix('p').is_some_and(is_part_of)
        };
        (none && counts_none()).then(|| name.clone())
    };
    let uncounted: Vec<String> = disks.iter().filter_map(uncounted).collect();
    for name in uncounted {
        if let Some(disk) = disks.get_mut(&name) {
            disk.flushes = None;
        }
    }
    for (head, flushes) in flushes_of_paths(&disks) {
        if let Some(disk) = disks.get_mut(&head) {
            // Older kernels count nothing at the head: flushes alone would seem to be all of its work.
            let counts = disk.reads > 0 || disk.writes > 0;
            disk.flushes = flushes.filter(|_| counts);
        }
    }
    disks
}

/// The flushes of all paths by the head of their device; `None` if a path counts none.
fn flushes_of_paths(disks: &BTreeMap<String, Disk>) -> BTreeMap<String, Option<(u64, u64)>> {
    let mut found: BTreeMap<String, Option<(u64, u64)>> = BTreeMap::new();
    for (name, path) in disks {
        let Some(head) = multipath_head(name) else { continue };
        let sum = found.entry(head).or_insert(Some((0, 0)));
        *sum = sum.zip(path.flushes).map(|((n, ms), (more, time))| (n + more, ms + time));
    }
    found
}

/// The head of the NVMe multipath device that this device is a path of, by the kernel's names: `nvme0n1` of
/// `nvme0c1n1`.
pub fn multipath_head(device: &str) -> Option<String> {
    let (subsystem, path) = device.strip_prefix("nvme")?.split_once('c')?;
    let (controller, namespace) = path.split_once('n')?;
    let is_path = [subsystem, controller, namespace].into_iter().all(is_number);
    is_path.then(|| format!("nvme{subsystem}n{namespace}"))
}

/// Whether a device is a partition of a disk, by the kernel's names: `sda1` of `sda`, `nvme0n1p1` of
/// `nvme0n1`.
pub fn is_partition(device: &str, disk: &str) -> bool {
    match device.strip_prefix(disk) {
        Some(rest) if disk.ends_with(|c: char| c.is_ascii_digit()) => {
            rest.strip_prefix('p').is_some_and(is_number)
        }
        Some(rest) => is_number(rest),
        None => false,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn line(line: &str) -> Option<(String, Disk)> {
    let mut words = line.split_ascii_whitespace().skip(2);
    let name = words.next()?;
    let n: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    let [
        reads,
        _,
        sectors_read,
        read_ms,
        writes,
        writes_merged,
        sectors_written,
        write_ms,
        _,
        busy_ms,
        _,
        ..,
    ] = n[..]
    else {
        return None;
    };
    let flushes = n.get(15).copied().zip(n.get(16).copied());
    let disk = Disk {
        reads,
        sectors_read,
        read_ms,
        writes,
        writes_merged,
        sectors_written,
        write_ms,
        busy_ms,
        flushes,
    };
    Some((name.to_owned(), disk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diskstats_of_three_kernel_generations_are_parsed() {
        let text = "   8       0 sda 10 1 200 30 40 2 600 70 0 90 100\n \
                    259      0 nvme0n1 10 1 200 30 40 2 600 70 0 90 100 5 0 8 1\n \
                    252      0 vda 10 1 200 30 40 2 600 70 0 90 100 5 0 8 1 7 3\n \
                    252      1 vda1 10 1 200 30\n";
        let disks = parse(text);
        let expected = Disk {
            reads: 10,
            sectors_read: 200,
            read_ms: 30,
            writes: 40,
            writes_merged: 2,
            sectors_written: 600,
            write_ms: 70,
            busy_ms: 90,
            flushes: None,
        };
        assert_eq!(disks["sda"], expected);
        assert_eq!(disks["nvme0n1"], expected);
        assert_eq!(disks["vda"], Disk { flushes: Some((7, 3)), ..expected });
        assert!(!disks.contains_key("vda1"), "a partition's short line of Linux 2.6");
        assert!(expected.was_used() && !Disk::default().was_used());
    }

    #[test]
    fn devices_that_count_no_flushes_have_none() {
        let disk_line = |name: &str, flushes: u64| {
            format!(" 8 0 {name} 10 1 200 30 40 2 600 70 0 90 100 5 0 8 1 {flushes} {flushes}\n")
        };
        let stacked = ["dm-0", "md127", "drbd1", "vda1", "nvme0n1p2"];
        let whole = ["vda", "nvme0n1", "loop0"];
        let text: String = stacked.iter().chain(&whole).map(|name| disk_line(name, 0)).collect();
        let disks = parse(&(text + &disk_line("dm-1", 7)));
        for name in stacked {
            assert_eq!(disks[name].flushes, None, "{name}");
        }
        for name in whole {
            assert_eq!(disks[name].flushes, Some((0, 0)), "{name}");
        }
        assert_eq!(disks["dm-1"].flushes, Some((7, 7)), "a request-based multipath device");
    }

    #[test]
    fn the_head_of_a_multipath_device_has_the_flushes_of_its_paths() {
        let disk_line = |name: &str, reads: u64, flushes: &str| {
            format!(" 8 0 {name} {reads} 1 200 30 0 2 600 70 0 90 100 5 0 8 1 {flushes}\n")
        };
        let head = disk_line("nvme0n1", 9, "0 0");
        let paths = disk_line("nvme0c0n1", 5, "3 30") + &disk_line("nvme0c1n1", 4, "4 50");
        let flushes = |text: String| parse(&text)["nvme0n1"].flushes;
        assert_eq!(flushes(head.clone() + &paths), Some((7, 80)));
        assert_eq!(
            flushes(head.clone() + &disk_line("nvme0c0n1", 5, "")),
            None,
            "a path that counts none"
        );
        assert_eq!(
            flushes(head + &disk_line("nvme1c0n1", 5, "3 30")),
            Some((0, 0)),
            "a disk without paths"
        );
        let uncounted = parse(&(disk_line("nvme0n1", 0, "0 0") + &paths));
        assert!(!uncounted["nvme0n1"].was_used(), "an older kernel");
        assert_eq!(uncounted["nvme0c1n1"].flushes, Some((4, 50)));
    }

    #[test]
    fn paths_are_known_by_their_names() {
        assert_eq!(multipath_head("nvme10c2n1").as_deref(), Some("nvme10n1"));
        for name in
            ["nvme0n1", "nvme0n1p1", "nvme0c1", "nvme0cn1", "nvme0c1n1p1", "sdc", "nvmec0n1"]
        {
            assert_eq!(multipath_head(name), None, "{name}");
        }
    }

    #[test]
    fn partitions_are_known_by_their_names() {
        assert!(is_partition("sda1", "sda") && is_partition("nvme0n1p2", "nvme0n1"));
        assert!(!is_partition("sdab", "sda") && !is_partition("dm-10", "dm-1"));
        assert!(!is_partition("sda", "sda"));
    }
}
