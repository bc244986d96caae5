//! /proc/net/dev: bytes by interface.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Interface {
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

/// By the interface's name.
pub fn parse(text: &str) -> BTreeMap<String, Interface> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<(String, Interface)> {
    // The last colon: an alias such as eth0:1 has one in its name.
    let (name, counters) = line.rsplit_once(':')?;
    let mut numbers = counters.split_ascii_whitespace().map(str::parse);
    let received_bytes = numbers.next()?.ok()?;
    let sent_bytes = numbers.nth(7)?.ok()?;
    Some((name.trim().to_owned(), Interface { received_bytes, sent_bytes }))
}
