//! /proc/net/dev: bytes per interface.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Interface {
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

/// Returns interfaces by name.
pub fn parse(text: &str) -> BTreeMap<String, Interface> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<(String, Interface)> {
    // Split at the last colon, because an alias such as eth0:1 contains one.
    let (name, counters) = line.rsplit_once(':')?;
    let mut numbers = counters.split_ascii_whitespace().map(str::parse);
    let received_bytes = numbers.next()?.ok()?;
    let sent_bytes = numbers.nth(7)?.ok()?;
    Some((name.trim().to_owned(), Interface { received_bytes, sent_bytes }))
}
