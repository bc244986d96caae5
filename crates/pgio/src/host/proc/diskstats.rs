//! /proc/diskstats: one line per block device, partitions included.
//!
//! A line has 14 fields, 18 since Linux 4.18 (discards), 20 since 5.5 (flushes); for other lengths
//! above 14 the known fields are parsed. Source: the kernel's
//! Documentation/admin-guide/iostats.rst.

use std::collections::BTreeMap;

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
    /// Number and time; absent before Linux 5.5.
    pub flushes: Option<(u64, u64)>,
}

impl Disk {
    pub fn was_used(&self) -> bool {
        self.reads > 0 || self.writes > 0 || self.flushes.is_some_and(|(n, _)| n > 0)
    }
}

/// Returns disks by their kernel names.
pub fn parse(text: &str) -> BTreeMap<String, Disk> {
    text.lines().filter_map(line).collect()
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
