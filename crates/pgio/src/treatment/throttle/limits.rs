//! The limits of a block device: accepted values and their notation.
//!
//! A short file, since parsing, placement and judgment share it.

use std::collections::BTreeMap;

use crate::host::blkio::Limit;
use pgio_results::units::exact_bytes;

/// Requests or bytes per second.
pub(super) type Limits = BTreeMap<Limit, u64>;

/// A start of PostgreSQL 15 from a cold cache takes some 70 writes and 120 reads, a shutdown 50
/// writes: measured at this limit 11 s and 5 s, while pg_ctl waits for 60 s.
const MIN_IOPS: u64 = 10;
/// A WAL segment of 16 MB then takes a quarter of a minute, a start no longer than without.
const MIN_BYTES: u64 = 1 << 20;

pub(super) fn minimum(limit: Limit) -> u64 {
    match limit {
        Limit::ReadIops | Limit::WriteIops => MIN_IOPS,
        Limit::ReadBytes | Limit::WriteBytes => MIN_BYTES,
    }
}

pub(super) fn too_low(limit: Limit) -> String {
    format!(
        "must be at least {}: with less PostgreSQL barely starts, and 0 means no limit",
        format_value(limit, minimum(limit))
    )
}

/// The value as written in the file.
pub(super) fn format_value(limit: Limit, value: u64) -> String {
    match limit {
        Limit::ReadIops | Limit::WriteIops => value.to_string(),
        Limit::ReadBytes | Limit::WriteBytes => exact_bytes(value),
    }
}
