//! I/O of other processes on the devices of the servers.
//!
//! Two bounds, and both must exceed the threshold. From the processes (/proc/PID/io): what others moved, less
//! all traffic of devices that the servers do not use, because it may have gone there. From the devices:
//! what they moved, less what the servers, pgio and the kernel moved. A file written to the page cache
//! counts when it is written, not when it reaches the device, so either bound may be too low, and the
//! check misses some load rather than accuse a healthy trial.

use std::collections::BTreeSet;

use pgio_results::model::Check;
use pgio_results::telemetry::{DeviceUse, HostUse, Telemetry};
use pgio_results::units::human;

/// Share of the bytes that the servers' devices moved ...
const SHARE: f64 = 0.10;
/// ... and bytes per second that others must have moved there.
const BYTES: f64 = 1e6;

/// `None` if the devices or the processes were not observed.
pub(super) fn check(telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "foreign-io";
    let judged = telemetry.hosts.iter().filter_map(|(name, host)| {
        let (others, all) = by_others(telemetry, name, host)?;
        Some((name, others, all))
    });
    let (name, others, all) = judged.max_by(|a, b| a.1.total_cmp(&b.1))?;
    if others < BYTES || others < SHARE * all {
        let shown = format!("no other process used the servers' devices on `{name}` to speak of");
        return Some(Check::ok(ID, shown));
    }
    Some(Check::warning(
        ID,
        format!(
            "other processes moved at least {} on the servers' devices on `{name}`, of {} in all",
            human::byte_rate(others),
            human::byte_rate(all)
        ),
        "find them with `pidstat -d` or iotop, and stop them or move them to another device",
    ))
}

/// Bytes per second that others moved at least on the servers' devices, and all that these moved.
fn by_others(telemetry: &Telemetry, name: &str, host: &HostUse) -> Option<(f64, f64)> {
    let storage = || telemetry.storage.iter().filter(|s| s.host == name);
    // Devices below the first repeat its traffic.
    let first: BTreeSet<&str> =
        storage().filter_map(|s| s.devices.first()).map(|d| d.name.as_str()).collect();
    let used: BTreeSet<&str> =
        storage().flat_map(|s| &s.devices).map(|d| d.name.as_str()).collect();
    let all: f64 = first.iter().filter_map(|name| host.devices.get(*name)).map(bytes).sum();
    let elsewhere = host.devices.iter().filter(|(name, _)| !used.contains(name.as_str()));
    let elsewhere: f64 = elsewhere.map(|(_, device)| bytes(device)).sum();
    let by_processes = host.foreign_bytes_per_second? - elsewhere;
    let by_devices = all - host.own_bytes_per_second?;
    (!first.is_empty()).then_some((by_processes.min(by_devices), all))
}

fn bytes(device: &DeviceUse) -> f64 {
    device.read_bytes_per_second + device.written_bytes_per_second
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::CheckVerdict;
    use pgio_results::telemetry::{Device, Storage};
    use std::collections::BTreeMap;

    const MB: f64 = 1e6;

    /// A server on vda1, with MB/s of own and foreign processes, of vda1 and of another disk.
    fn judged(own: f64, foreign: f64, vda1: f64, sdb: f64) -> Check {
        let device =
            |rate: f64| DeviceUse { written_bytes_per_second: rate * MB, ..DeviceUse::default() };
        let devices = [("vda1", vda1), ("vda", vda1), ("sdb", sdb)];
        let host = HostUse {
            devices: devices.map(|(name, rate)| (name.to_owned(), device(rate))).into(),
            own_bytes_per_second: Some(own * MB),
            foreign_bytes_per_second: Some(foreign * MB),
            ..HostUse::default()
        };
        let names = ["vda1", "vda"];
        let storage = Storage {
            host: "db".to_owned(),
            devices: names
                .map(|name| Device { name: name.to_owned(), ..Device::default() })
                .to_vec(),
            ..Storage::default()
        };
        let hosts = BTreeMap::from([("db".to_owned(), host)]);
        check(&Telemetry { hosts, storage: vec![storage], ..Telemetry::default() }).unwrap()
    }

    #[test]
    fn a_copy_beside_the_server_is_reported() {
        let check = judged(20.0, 80.0, 100.0, 0.0);
        assert_eq!(check.verdict, CheckVerdict::Warning, "{}", check.message);
        assert!(check.message.contains("at least 76.3 MiB/s"), "{}", check.message);
    }

    #[test]
    fn a_healthy_trial_is_not_accused() {
        for (own, foreign, vda1, sdb) in [
            // Alone, with the file system's journal.
            (20.0, 0.1, 25.0, 0.0),
            // A backup on another disk.
            (20.0, 80.0, 22.0, 80.0),
            // A copy to a network file system.
            (20.0, 80.0, 21.0, 0.0),
            // A log writer.
            (0.1, 0.5, 0.7, 0.0),
        ] {
            let check = judged(own, foreign, vda1, sdb);
            assert_eq!(check.verdict, CheckVerdict::Ok, "{}", check.message);
        }
        assert!(check(&Telemetry::default()).is_none());
    }
}
