//! I/O of other processes on the devices of the servers.
//!
//! Two bounds, for reads and writes apart, and the smaller one counts. From the processes: what others
//! moved at least, less all other traffic of the host's devices, because it may have gone there. From the
//! devices: what they moved, less what the servers and pgio can have moved at most, with the journal and
//! dirty pages of before. So other processes must have moved the bytes, and the devices must have moved more
//! than the servers account for. Either bound may be too low; the check misses some load rather than accuse
//! a healthy trial.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::called;
use crate::host::diskstats::{is_partition, is_stacked, multipath_head};
use pgio_results::model::Check;
use pgio_results::telemetry::{DeviceUse, HostUse, IoRates, ProcessIo, Storage, Telemetry};
use pgio_results::thresholds::{FOREIGN_IO, FOREIGN_IO_BYTES};
use pgio_results::units::human;

const ID: &str = "foreign-io";

/// What the file system's journal may add to the servers' writes, as a share of them. No process accounts for
/// it; up to 45 % were seen beside sessions that commit (ext4).
const JOURNAL: f64 = 1.0;

/// Judges the hosts with files of the server. `None` if no process was observed on any.
pub(super) fn check(telemetry: &Telemetry) -> Option<Check> {
    let mut unknown = Vec::new();
    let mut judged = Vec::new();
    for (name, host) in &telemetry.hosts {
        let Some((io, used)) = host.process_io.as_ref().zip(used(telemetry, name, host)) else {
            continue;
        };
        match io.own {
            Some(own) => judged.push((name, by_others(io, own, &used), used.all, io)),
            None => unknown.push(name.as_str()),
        }
    }
    let worst = judged.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((name, others, all, io)) = worst
        && *others >= FOREIGN_IO_BYTES
        && *others >= FOREIGN_IO.0 * (all.read + all.written)
    {
        return Some(Check::warning(
            ID,
            format!(
                "other processes moved at least {} on the servers' devices on {}, of {} in all{}",
                human::byte_rate(*others),
                called(name),
                human::byte_rate(all.read + all.written),
                programs(&io.programs)
            ),
            "find them with `pidstat -d` or iotop, and stop them or move them to another device",
        ));
    }
    if !unknown.is_empty() {
        return Some(Check::ok(
            ID,
            format!(
                "I/O of others on {} is unknown: /proc/PID/io of the server's processes is readable for root and \
                 the server's user only",
                unknown.iter().map(|name| called(name)).collect::<Vec<_>>().join(", ")
            ),
        ));
    }
    let (name, _, _, io) = worst?;
    let unread = match io.unreadable {
        0 => String::new(),
        n => format!(", except for {n} that could not be read"),
    };
    let message = format!(
        "no other process used the servers' devices on {} to a relevant extent{unread}",
        called(name)
    );
    Some(Check::ok(ID, message))
}

fn programs(found: &BTreeMap<String, f64>) -> String {
    let mut sorted: Vec<(&String, &f64)> = found.iter().collect();
    sorted.sort_by(|a, b| b.1.total_cmp(a.1));
    let each = |(name, rate): (&String, &f64)| format!("{name} {}", human::byte_rate(*rate));
    if sorted.is_empty() {
        String::new()
    } else {
        let all: Vec<String> = sorted.into_iter().map(each).collect();
        format!(" (by program, on any device: {})", all.join(", "))
    }
}

/// Traffic of a host's devices.
struct Used {
    /// Traffic of the disks that the servers use, to whatever partition or volume.
    all: IoRates,
    /// Traffic of the other devices; for a device below a used one, what it carries besides that.
    elsewhere: IoRates,
}

/// `None` if no device of the servers was observed on the host.
fn used(telemetry: &Telemetry, name: &str, host: &HostUse) -> Option<Used> {
    let disks = telemetry.disks_in_use().into_iter().filter(|(of, _)| *of == name);
    let disks: BTreeSet<&str> = disks.map(|(_, disk)| disk).collect();
    // Partitions and paths repeat the traffic of their disks, volumes that of devices that are counted here as
    // well.
    let repeats = |name: &str| {
        is_stacked(name)
            || host.devices.keys().any(|disk| is_partition(name, disk))
            || multipath_head(name).is_some_and(|head| host.devices.contains_key(&head))
    };
    let mut above = BTreeSet::new();
    let mut below = BTreeSet::new();
    for stack in telemetry.storage.iter().filter(|s| s.host == name).flat_map(Storage::stacks) {
        let lowest = stack.iter().rposition(|device| disks.contains(device.name.as_str()));
        let (upper, lower) = stack.split_at(lowest.map_or(0, |n| n + 1));
        above.extend(upper.iter().map(|device| device.name.as_str()));
        below.extend(lower.iter().map(|device| device.name.as_str()));
    }
    let all = sum(disks.iter().filter_map(|disk| host.devices.get(*disk)));
    // A disk below, such as that of a loop device's file, may carry traffic that did not come from above.
    let beside = below.difference(&above).filter(|device| !repeats(device));
    let beside = beside.filter_map(|device| host.devices.get(*device)).map(|device| {
        let device = sum([device].into_iter());
        IoRates {
            read: (device.read - all.read).max(0.0),
            written: (device.written - all.written).max(0.0),
        }
    });
    let unused = host.devices.iter().filter(|(device, _)| {
        let known = above.contains(device.as_str()) || below.contains(device.as_str());
        !known && !repeats(device)
    });
    let elsewhere = beside.chain(unused.map(|(_, device)| sum([device].into_iter())));
    let elsewhere = elsewhere.fold(IoRates::default(), |sum, rates| IoRates {
        read: sum.read + rates.read,
        written: sum.written + rates.written,
    });
    let was_observed = disks.iter().any(|disk| host.devices.contains_key(*disk));
    was_observed.then_some(Used { all, elsewhere })
}

fn sum<'a>(devices: impl Iterator<Item = &'a DeviceUse>) -> IoRates {
    devices.fold(IoRates::default(), |sum, device| IoRates {
        read: sum.read + device.read_bytes_per_second,
        written: sum.written + device.written_bytes_per_second,
    })
}

/// Bytes per second that others moved at least on the servers' devices.
fn by_others(io: &ProcessIo, own: IoRates, used: &Used) -> f64 {
    let smaller = |by_processes: f64, by_devices: f64| by_processes.min(by_devices).max(0.0);
    let (all, elsewhere) = (used.all, used.elsewhere);
    let written_by_devices = all.written - own.written * (1.0 + JOURNAL) - io.dirty_before;
    smaller(io.others.read - elsewhere.read, all.read - own.read)
        + smaller(io.others.written - elsewhere.written, written_by_devices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::CheckVerdict;
    use pgio_results::telemetry::Device;

    const MB: f64 = 1e6;

    fn device(name: &str, kind: &str) -> Device {
        Device { name: name.to_owned(), kind: kind.to_owned(), ..Device::default() }
    }

    fn writing(rate: f64) -> DeviceUse {
        DeviceUse { written_bytes_per_second: rate * MB, ..DeviceUse::default() }
    }

    /// A server on vda1, with MB/s written by own and foreign processes, to vda1 and to another disk.
    fn observed(own: f64, others: f64, vda1: f64, sdb: f64) -> Telemetry {
        let devices = [("vda1", vda1), ("vda", vda1), ("sdb", sdb), ("sdb1", sdb)];
        let written = |rate: f64| IoRates { read: 0.0, written: rate * MB };
        let host = HostUse {
            devices: devices.map(|(name, rate)| (name.to_owned(), writing(rate))).into(),
            process_io: Some(ProcessIo {
                own: Some(written(own)),
                others: written(others),
                programs: [("dd".to_owned(), others * MB)].into(),
                ..ProcessIo::default()
            }),
            ..HostUse::default()
        };
        let storage = Storage {
            host: "db".to_owned(),
            devices: vec![device("vda1", "partition"), device("vda", "disk")],
            ..Storage::default()
        };
        let hosts = BTreeMap::from([("db".to_owned(), host)]);
        Telemetry { hosts, storage: vec![storage], ..Telemetry::default() }
    }

    fn judged(own: f64, others: f64, vda1: f64, sdb: f64) -> Check {
        check(&observed(own, others, vda1, sdb)).unwrap()
    }

    fn io(telemetry: &mut Telemetry) -> &mut ProcessIo {
        telemetry.hosts.get_mut("db").unwrap().process_io.as_mut().unwrap()
    }

    #[test]
    fn a_copy_beside_a_server_that_writes_is_reported() {
        let check = judged(33.0, 168.0, 207.0, 0.0);
        assert_eq!(check.verdict, CheckVerdict::Warning, "{}", check.message);
        assert_eq!(
            check.message,
            "other processes moved at least 134 MiB/s on the servers' devices on `db`, of 197 MiB/s in all \
             (by program, on any device: dd 160 MiB/s)"
        );
        // A backup of the same size to another disk does not hide it.
        assert_eq!(judged(33.0, 268.0, 207.0, 100.0).verdict, CheckVerdict::Warning);
    }

    #[test]
    fn reads_of_others_are_not_hidden_by_writes_of_the_server() {
        let mut found = observed(400.0, 0.0, 100.0, 0.0);
        io(&mut found).others.read = 50.0 * MB;
        let devices = &mut found.hosts.get_mut("db").unwrap().devices;
        for name in ["vda1", "vda"] {
            devices.get_mut(name).unwrap().read_bytes_per_second = 51.0 * MB;
        }
        let check = check(&found).unwrap();
        assert_eq!(check.verdict, CheckVerdict::Warning, "{}", check.message);
    }

    #[test]
    fn a_healthy_trial_is_not_accused() {
        for (own, others, vda1, sdb) in [
            // Alone, with the file system's journal.
            (20.0, 0.1, 25.0, 0.0),
            // A backup on another disk.
            (20.0, 80.0, 22.0, 80.0),
            // A copy to a network file system.
            (20.0, 80.0, 21.0, 0.0),
            // A log writer.
            (0.1, 0.5, 0.7, 0.0),
        ] {
            let check = judged(own, others, vda1, sdb);
            assert_eq!(check.verdict, CheckVerdict::Ok, "{}", check.message);
        }
        // A copy to a network file system while the servers' pages of before are written back.
        let mut found = observed(20.0, 80.0, 90.0, 0.0);
        io(&mut found).dirty_before = 66.0 * MB;
        assert_eq!(check(&found).unwrap().verdict, CheckVerdict::Ok);
        assert!(check(&Telemetry::default()).is_none());
    }

    /// As seen with a server on a loop device while others built programs on the disk below.
    #[test]
    fn the_disk_below_a_loop_device_may_serve_others() {
        let mut found = observed(5.1, 13.5, 21.0, 0.0);
        found.storage[0].devices.insert(0, device("loop0", "loop"));
        let devices = &mut found.hosts.get_mut("db").unwrap().devices;
        devices.insert("loop0".to_owned(), writing(6.7));
        assert_eq!(check(&found).unwrap().verdict, CheckVerdict::Ok);
        let both = observed(2.0, 13.5, 21.0, 0.0);
        assert_eq!(check(&both).unwrap().verdict, CheckVerdict::Warning);
    }

    #[test]
    fn another_partition_or_volume_of_the_same_disk_is_reported() {
        let on = |other: &str, vda1: f64, vda: f64, sdb: f64| {
            let mut found = observed(33.0, 168.0, vda1, sdb);
            let devices = &mut found.hosts.get_mut("db").unwrap().devices;
            devices.insert("vda".to_owned(), writing(vda));
            devices.insert(other.to_owned(), writing(168.0));
            check(&found).unwrap().verdict
        };
        for other in ["vda2", "dm-1", "md0"] {
            assert_eq!(on(other, 36.0, 204.0, 0.0), CheckVerdict::Warning, "{other}");
            assert_eq!(on(other, 36.0, 36.0, 168.0), CheckVerdict::Ok, "{other} is on sdb");
        }
        // A mirror of two disks: what each carries besides is not known.
        let mut found = observed(33.0, 168.0, 36.0, 204.0);
        found.storage[0].devices =
            vec![device("md0", "md"), device("vda", "disk"), device("sdb", "disk")];
        found.hosts.get_mut("db").unwrap().devices.insert("md0".to_owned(), writing(36.0));
        assert_eq!(check(&found).unwrap().verdict, CheckVerdict::Ok);
    }

    /// The kernel lists the paths of an NVMe multipath device beside the device.
    #[test]
    fn paths_of_the_servers_disk_are_not_other_devices() {
        let mut found = observed(33.0, 168.0, 0.0, 0.0);
        found.storage[0].devices = vec![device("nvme0n1", "disk")];
        let devices = &mut found.hosts.get_mut("db").unwrap().devices;
        for (name, rate) in [("nvme0n1", 207.0), ("nvme0c0n1", 107.0), ("nvme0c1n1", 100.0)] {
            devices.insert(name.to_owned(), writing(rate));
        }
        assert_eq!(check(&found).unwrap().verdict, CheckVerdict::Warning);
        // Older kernels count only on the paths.
        found.hosts.get_mut("db").unwrap().devices.remove("nvme0n1");
        assert!(check(&found).is_none());
    }

    /// The WAL on a loop device of the data directory's disk, beside a copy to a network file system.
    #[test]
    fn writes_through_a_loop_device_are_counted_once() {
        let mut found = observed(20.0, 80.0, 25.0, 0.0);
        let mut wal = found.storage[0].clone();
        wal.devices.insert(0, device("loop7", "loop"));
        found.storage.push(wal);
        let devices = &mut found.hosts.get_mut("db").unwrap().devices;
        devices.insert("loop7".to_owned(), writing(24.0));
        let check = check(&found).unwrap();
        assert_eq!(check.verdict, CheckVerdict::Ok, "{}", check.message);
    }

    #[test]
    fn writes_of_the_file_system_journal_are_not_foreign_io() {
        assert_eq!(judged(2.8, 8.0, 4.0, 0.0).verdict, CheckVerdict::Ok);
    }

    #[test]
    fn unreadable_process_io_is_stated_in_the_check() {
        let mut found = observed(33.0, 168.0, 207.0, 0.0);
        io(&mut found).own = None;
        let unknown = check(&found).unwrap();
        assert_eq!(unknown.verdict, CheckVerdict::Ok);
        assert!(unknown.message.starts_with("I/O of others on `db` is unknown: /proc/PID/io"));
        let mut found = observed(33.0, 0.0, 34.0, 0.0);
        io(&mut found).unreadable = 7;
        assert!(check(&found).unwrap().message.ends_with("except for 7 that could not be read"));
    }
}
