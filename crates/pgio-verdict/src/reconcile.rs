//! Compares the reads that PostgreSQL requested with the reads of the device.
//!
//! A buffer miss (RIOPS) is a requested read of 8 kB. The operating system's cache answers some; the
//! others reach the device, in requests that may contain several blocks. The classic manual check
//! compares the mean of iostat's r/s with RIOPS; here it is one line per condition. A device may read
//! more than requested, because of read-ahead and other readers.

use benchmath::summary::mean;
use serde::{Deserialize, Serialize};

use super::pairing::{ByCondition, value};
use pgio_results::Trial;
use pgio_results::store::Manifest;
use pgio_results::units::{BLOCK_BYTES, human};

/// Fewer misses per second are ignored: the device then mostly reads for others or ahead.
const MIN_MISSES: f64 = 100.0;

/// Device reads that differ from the misses by at most this share count as equal.
const EQUAL_SHARE: f64 = 0.1;

/// Reads of one trial or, averaged, of one condition; each a rate per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reads {
    /// Blocks that were not in shared buffers: RIOPS.
    pub buffer_misses: f64,
    /// Misses that the operating system's cache answered.
    pub page_cache_reads: Option<f64>,
    /// Requests, as iostat's r/s.
    pub device_reads: Option<f64>,
    /// Bytes read from the device in blocks of 8 kB.
    pub device_read_blocks: Option<f64>,
}

/// One condition's reads, in numbers and in a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reconciliation {
    pub condition: String,
    pub reads: Reads,
    pub sentence: String,
}

/// The conditions with known device reads.
pub(super) fn all(manifest: &Manifest, by_condition: &ByCondition<'_>) -> Vec<Reconciliation> {
    let one = |name: &str| {
        let trials: Vec<Reads> = by_condition[name].valid().filter_map(read_counts).collect();
        let reads = averaged(&trials)?;
        Some(Reconciliation { condition: name.to_owned(), reads, sentence: sentence(&reads)? })
    };
    let all: Vec<Reconciliation> =
        manifest.conditions.iter().filter_map(|c| one(&c.name)).collect();
    // A workload with few reads has nothing to reconcile.
    if all.iter().all(|r| r.reads.buffer_misses < MIN_MISSES) { Vec::new() } else { all }
}

/// The reads of one trial; `None` without RIOPS.
pub fn read_counts(trial: &Trial) -> Option<Reads> {
    let buffer_misses = value(trial, "riops")?;
    let blocks = device_blocks(trial);
    let cached = value(trial, "page_cache_reads_per_second");
    Some(Reads {
        buffer_misses,
        page_cache_reads: cached.or_else(|| blocks.map(|b| (buffer_misses - b).max(0.0))),
        device_reads: value(trial, "device_reads_per_second"),
        device_read_blocks: blocks,
    })
}

/// What the devices that hold the server's files read, in blocks of 8 kB per second, whatever the size of their
/// requests.
pub(super) fn device_blocks(trial: &Trial) -> Option<f64> {
    let devices = trial.telemetry.as_ref()?.devices_in_use()?;
    let bytes: f64 = devices.iter().map(|device| device.read_bytes_per_second).sum();
    Some(bytes / BLOCK_BYTES as f64)
}

fn averaged(trials: &[Reads]) -> Option<Reads> {
    let over =
        |one: fn(&Reads) -> Option<f64>| mean(&trials.iter().filter_map(one).collect::<Vec<_>>());
    Some(Reads {
        buffer_misses: over(|r| Some(r.buffer_misses))?,
        page_cache_reads: over(|r| r.page_cache_reads),
        device_reads: over(|r| r.device_reads),
        device_read_blocks: over(|r| r.device_read_blocks),
    })
}

fn sentence(reads: &Reads) -> Option<String> {
    // Bytes show how much of the requested amount came from the device; use requests, as in iostat's
    // r/s, only without them.
    let from_device = reads.device_read_blocks.or(reads.device_reads)?;
    let rate = |n: f64| human::count(n.round().max(0.0) as u64);
    let device = match (reads.device_reads, reads.device_read_blocks) {
        (Some(requests), _) => format!("device {} reads/s", rate(requests)),
        (None, _) => format!("device {} blocks/s", rate(from_device)),
    };
    let misses = reads.buffer_misses;
    let against = format!("{device} against {} buffer misses/s", rate(misses));
    let conclusion = if misses < MIN_MISSES {
        "PostgreSQL requested almost no reads".to_owned()
    } else {
        let ratio = from_device / misses;
        if ratio > 1.0 + EQUAL_SHARE {
            format!(
                "the device read {ratio:.1} times the requested amount, due to read-ahead or other readers"
            )
        } else if ratio >= 1.0 - EQUAL_SHARE {
            "the misses went to the device".to_owned()
        } else {
            format!("the operating system's cache answered {}", percent(1.0 - ratio))
        }
    };
    Some(format!("{against}: {conclusion}"))
}

/// Never rounds to 100 % if the share is below 1.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 99.95 && share < 1.0 {
        "more than 99.9 %".to_owned()
    } else if percent > 99.0 && share < 1.0 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze;
    use crate::test_support::{experiment, set, trial};
    use pgio_results::telemetry::{Device, DeviceUse, HostUse, Storage, Telemetry};
    use std::collections::BTreeMap;

    fn reads(misses: f64, requests: f64, blocks: Option<f64>) -> Reads {
        Reads {
            buffer_misses: misses,
            page_cache_reads: None,
            device_reads: Some(requests),
            device_read_blocks: blocks,
        }
    }

    /// The published check: `awk` over iostat's r/s gave 5131.47, RIOPS was 5032.
    #[test]
    fn buffer_misses_close_to_device_reads_went_to_the_device() {
        assert_eq!(
            sentence(&reads(5032.0, 5131.47, None)).unwrap(),
            "device 5,131 reads/s against 5,032 buffer misses/s: the misses went to the device"
        );
    }

    #[test]
    fn reconciling_reads_concludes_cache_read_ahead_or_no_requests() {
        let conclusion = |r: &Reads| sentence(r).unwrap().split_once(": ").unwrap().1.to_owned();
        assert_eq!(
            conclusion(&reads(99_352.0, 10.0, Some(993.5))),
            "the operating system's cache answered 99.0 %"
        );
        assert_eq!(
            conclusion(&reads(99_352.0, 0.0, Some(1.0))),
            "the operating system's cache answered more than 99.9 %"
        );
        assert_eq!(
            conclusion(&reads(100.0, 0.0, None)),
            "the operating system's cache answered 100 %"
        );
        assert!(conclusion(&reads(100.0, 40.0, Some(250.0))).contains("2.5 times"));
        assert!(conclusion(&reads(0.0, 4.0, None)).starts_with("PostgreSQL requested almost no"));
        let unknown = Reads { device_reads: None, ..reads(100.0, 0.0, None) };
        assert_eq!(sentence(&unknown), None);
    }

    fn storage(role: &str, devices: &[&str]) -> Storage {
        let device = |name: &&str| Device { name: (*name).to_owned(), ..Device::default() };
        Storage {
            role: role.to_owned(),
            host: "local".to_owned(),
            devices: devices.iter().map(device).collect(),
            ..Storage::default()
        }
    }

    #[test]
    fn each_device_counts_once_and_not_what_lies_below() {
        let used =
            |mb: f64| DeviceUse { read_bytes_per_second: mb * 8_192_000.0, ..DeviceUse::default() };
        let devices = [("dm-0", used(1.0)), ("vda", used(9.0)), ("vdb", used(2.0))];
        let host = HostUse {
            devices: devices.into_iter().map(|(n, d)| (n.to_owned(), d)).collect(),
            ..HostUse::default()
        };
        let telemetry = Telemetry {
            hosts: BTreeMap::from([("local".to_owned(), host)]),
            storage: vec![
                storage("data", &["dm-0", "vda"]),
                storage("wal", &["dm-0", "vda"]),
                storage("tablespace fast", &["vdb"]),
            ],
            ..Telemetry::default()
        };
        let mut t = trial("local", 1, &[("riops", 4000.0), ("device_reads_per_second", 2500.0)]);
        t.telemetry = Some(telemetry);
        let found = read_counts(&t).unwrap();
        assert_eq!(
            (found.device_read_blocks, found.page_cache_reads),
            (Some(3000.0), Some(1000.0))
        );
        set(&mut t, "page_cache_reads_per_second", 900.0);
        let analysis = analyze(&experiment(&["local"], vec![t]));
        let reads = &analysis.reconciliation[0];
        assert_eq!(reads.reads.page_cache_reads, Some(900.0));
        assert!(
            reads.sentence.ends_with("the operating system's cache answered 25 %"),
            "{reads:?}"
        );
    }

    #[test]
    fn without_a_device_there_is_no_line() {
        let analysis = analyze(&experiment(&["local"], vec![trial("local", 1, &[("riops", 5.0)])]));
        assert!(analysis.reconciliation.is_empty());
    }
}
