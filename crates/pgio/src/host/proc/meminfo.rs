//! /proc/meminfo: the values that pgio reports.

use std::collections::BTreeMap;

/// Names of the kernel and of pgio.
const NAMES: &[(&str, &str)] = &[
    ("MemTotal", "total"),
    ("MemFree", "free"),
    ("MemAvailable", "available"),
    ("Cached", "cached"),
    ("Dirty", "dirty"),
    ("Writeback", "writeback"),
];

/// Returns values in bytes by pgio's names.
pub fn parse(text: &str) -> BTreeMap<&'static str, u64> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<(&'static str, u64)> {
    let (name, value) = line.split_once(':')?;
    let (_, ours) = NAMES.iter().find(|(theirs, _)| *theirs == name)?;
    let kilobytes: u64 = value.split_ascii_whitespace().next()?.parse().ok()?;
    Some((ours, kilobytes.checked_mul(1024)?))
}
