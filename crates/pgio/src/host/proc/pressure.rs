//! /proc/pressure/{cpu,io,memory}: time in which tasks waited for a resource (PSI).

/// Returns the microseconds since boot during which at least one task waited.
pub fn some_total_us(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}
