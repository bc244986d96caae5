//! Foreign load: processor time that others used on a measured host, or that the hypervisor took.
//!
//! The share of all cores is not enough: on a host of 64 cores, three busy programs use less than 5 %, and
//! still take the core that a session needs. So a whole core counts at any size of host, and so does the
//! time in which the servers' processes were ready to run and waited for a core (`/proc/PID/schedstat`).
//! They wait for each other as well; the part that others cause is taken to be their share of the processor
//! time in use.

use std::collections::{BTreeMap, BTreeSet};

use pgio_results::checks::remedy;
use pgio_results::model::{Check, CheckVerdict, Trial};
use pgio_results::telemetry::{
    DatabaseUse, DeviceUse, HostUse, IoRates, ProcessIo, Storage, Telemetry,
};
use pgio_results::thresholds::{
    FOREIGN_CORES, FOREIGN_INVALID, FOREIGN_IO, FOREIGN_IO_BYTES, FOREIGN_WARNING, UNSEEN_BLOCKS,
    UNSEEN_TRANSACTIONS,
};
use pgio_results::units::human;

use crate::config::kinds::WorkloadKind;
use crate::host::called;
use crate::host::diskstats::{is_partition, multipath_head};
use crate::host::storage::is_stacked;

/// A session that is seen fewer times in a short window may be one short query.
const INVALID_SIGHTINGS: f64 = 2.5;
const WARNING_SIGHTINGS: f64 = 1.5;
/// Number of other databases that are named.
const DATABASES: usize = 3;

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Returns the host with the largest share.
pub(super) fn worst(
    telemetry: &Telemetry,
    share: impl Fn(&HostUse) -> Option<f64>,
) -> Option<(&str, &HostUse, f64)> {
    let shares =
        telemetry.hosts.iter().filter_map(|(name, host)| Some((name.as_str(), host, share(host)?)));
    shares.max_by(|a, b| a.2.total_cmp(&b.2))
}

pub(super) fn load(trial: &Trial, telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "foreign-load";
    // Such a server is not distinguished from other programs.
    let server = WorkloadKind::named(&trial.workload.kind).and_then(|kind| kind.def().other_server);
    let invalid_above = if server.is_some() { f64::INFINITY } else { FOREIGN_INVALID.0 };
    let included = server.map_or_else(String::new, |server| format!(", including {server},"));
    let judged = telemetry.hosts.iter().filter_map(|(name, host)| {
        let (cores, foreign) = (host.cores.filter(|n| *n > 0)?, host.foreign_cores?);
        let share = foreign / f64::from(cores);
        let delay = delay(host, foreign);
        let worse = share.max(delay.unwrap_or_default());
        let by_cores =
            if foreign >= FOREIGN_CORES { CheckVerdict::Warning } else { CheckVerdict::Ok };
        let verdict = verdict_of(worse, invalid_above).max(by_cores);
        let waited = delay.filter(|d| *d > FOREIGN_WARNING.0).map_or_else(String::new, |d| {
            let all = percent(host.run_delay.unwrap_or_default());
            format!(
                "; the servers' processes waited for a core {all} of the time, {} because of others",
                percent(d)
            )
        });
        let message = format!(
            "other processes{included} used {foreign:.2} of {cores} cores ({}) on {}{waited}",
            percent(share),
            called(name)
        );
        Some((verdict, worse, message))
    });
    let (verdict, _, message) = judged.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
    Some(check(ID, verdict, message, remedy(ID)))
}

/// The share of the window by which others delayed the servers' processes.
fn delay(host: &HostUse, foreign: f64) -> Option<f64> {
    let used = |state: &str| host.cpu.get(state).copied().unwrap_or_default();
    let busy = (used("user") + used("system")) * f64::from(host.cores?);
    let busy = busy.max(foreign);
    (busy > 0.0).then_some(host.run_delay? * foreign / busy)
}

/// Judges what others did on the server itself: their processes are the server's, and no foreign load of the host.
pub(super) fn sessions(trial: &Trial, telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "foreign-sessions";
    let found = telemetry.foreign_sessions.as_ref()?;
    let cores = telemetry.hosts.values().filter_map(|host| {
        let (cores, used) = (host.cores.filter(|n| *n > 0)?, host.foreign_session_cores?);
        Some((used, cores))
    });
    let cores = cores.max_by(|a, b| a.0.total_cmp(&b.0));
    let mut parts = Vec::new();
    let mut verdict = CheckVerdict::Ok;
    match (&found.active, &telemetry.waits) {
        (Some(active), Some(waits)) => {
            // A program may give its sessions any name.
            let own = Some(&trial.server.database).filter(|_| trial.workload.kind == "command");
            let active = || active.iter().filter(|(database, _)| Some(*database) != own);
            let sessions: f64 = active().map(|(_, sessions)| sessions).sum();
            let seen = sessions * waits.rounds as f64;
            let share = sessions / f64::from(waits.sessions.max(1));
            verdict = match verdict_of(share, FOREIGN_INVALID.0) {
                CheckVerdict::Invalid if seen < INVALID_SIGHTINGS => CheckVerdict::Warning,
                CheckVerdict::Warning if seen < WARNING_SIGHTINGS => CheckVerdict::Ok,
                verdict => verdict,
            };
            parts.extend(active().map(|(database, sessions)| {
                format!("{sessions:.2} sessions of others were active on average in {database}")
            }));
        }
        _ => {
            let busy = |work: &DatabaseUse| {
                work.transactions > UNSEEN_TRANSACTIONS || work.blocks > UNSEEN_BLOCKS
            };
            if found.databases.values().any(busy) {
                verdict = CheckVerdict::Warning;
            }
            parts.push("whether sessions of others were active is unknown".to_owned());
        }
    }
    if let Some((used, cores)) = cores {
        verdict = verdict.max(verdict_of(used / f64::from(cores), FOREIGN_INVALID.0));
        parts.push(format!("they used {used:.2} of {cores} cores"));
    }
    if parts.is_empty() {
        return Some(Check::ok(ID, "no session of others was active on the server"));
    }
    let mut databases: Vec<(&String, &DatabaseUse)> = found.databases.iter().collect();
    databases.sort_by(|a, b| b.1.blocks.total_cmp(&a.1.blocks));
    parts.extend(databases.into_iter().take(DATABASES).map(|(name, work)| {
        let DatabaseUse { transactions, tuples, blocks } = work;
        format!(
            "{name} had {transactions:.0} transactions, {tuples:.0} changed tuples and {blocks:.0} block visits a second"
        )
    }));
    Some(check(ID, verdict, parts.join("; "), remedy(ID)))
}

pub(super) fn steal(telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = "steal";
    let (name, _, share) = worst(telemetry, |h| h.cpu.get("steal").copied())?;
    let message = format!("the hypervisor took {} of the time of {}", percent(share), called(name));
    Some(check(ID, verdict_of(share, FOREIGN_INVALID.0), message, remedy(ID)))
}

/// Judges processor time that the work did not get; above `invalid_above` the trial does not count.
fn verdict_of(share: f64, invalid_above: f64) -> CheckVerdict {
    match share {
        s if s > invalid_above => CheckVerdict::Invalid,
        s if s > FOREIGN_WARNING.0 => CheckVerdict::Warning,
        _ => CheckVerdict::Ok,
    }
}

fn check(id: &str, verdict: CheckVerdict, message: String, remedy: &str) -> Check {
    match verdict {
        CheckVerdict::Ok => Check::ok(id, message),
        CheckVerdict::Warning => Check::warning(id, message, remedy),
        CheckVerdict::Invalid => Check::invalid(id, message, remedy),
    }
}

// I/O of other processes on the devices of the servers. Two bounds, for reads and writes apart, and the smaller one
// counts. From the processes: what others moved at least, less all other traffic of the host's devices, because it
// may have gone there. From the devices: what they moved, less what the servers and pgio can have moved at most,
// with the journal and dirty pages of before. So other processes must have moved the bytes, and the devices must
// have moved more than the servers account for. Either bound may be too low; the check misses some load rather than
// accuse a healthy trial.

const ID: &str = "foreign-io";

/// What the file system's journal may add to the servers' writes, as a share of them. No process accounts for
/// it; up to 45 % were seen beside sessions that commit (ext4).
const JOURNAL: f64 = 1.0;

/// Judges the hosts with files of the server. `None` if no process was observed on any.
pub(super) fn device_io(telemetry: &Telemetry) -> Option<Check> {
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
    // Partitions and paths repeat the traffic of their disks, volumes the traffic of devices that are counted here as
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
    // A disk below, such as the disk of a loop device's file, may carry traffic that did not come from above.
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
    use pgio_results::telemetry::{Device, ForeignSessions, Waits};
    use pgio_results::test_support::full_trial;
    use std::collections::BTreeMap;

    /// A host on which all processes together used `busy` cores.
    fn judged(cores: u32, busy: f64, foreign: f64, run_delay: Option<f64>) -> Check {
        let host = HostUse {
            cores: Some(cores),
            cpu: BTreeMap::from([("user".to_owned(), busy / f64::from(cores))]),
            foreign_cores: Some(foreign),
            run_delay,
            ..HostUse::default()
        };
        let hosts = BTreeMap::from([("db".to_owned(), host)]);
        load(&full_trial(), &Telemetry { hosts, ..Telemetry::default() }).unwrap()
    }

    #[test]
    fn three_busy_programs_are_not_hidden_by_64_cores() {
        let check = judged(64, 7.0, 3.0, Some(0.01));
        assert_eq!(check.verdict, CheckVerdict::Warning, "{}", check.message);
        assert!(check.message.starts_with("other processes used 3.00 of 64 cores (4.7 %)"));
        assert_eq!(judged(64, 5.0, 0.4, Some(0.01)).verdict, CheckVerdict::Ok);
        assert_eq!(judged(64, 5.0, 0.4, None).verdict, CheckVerdict::Ok);
    }

    #[test]
    fn foreign_load_on_a_shared_core_invalidates_the_trial() {
        // One core that a session and a foreign program share, of 64.
        let check = judged(64, 1.0, 0.5, Some(0.5));
        assert_eq!(check.verdict, CheckVerdict::Invalid, "{}", check.message);
        assert!(
            check
                .message
                .ends_with("waited for a core 50.0 % of the time, 25.0 % because of others"),
            "{}",
            check.message
        );
    }

    #[test]
    fn sessions_of_others_on_the_server_are_judged_against_those_of_the_workload() {
        let judged = |active: Option<&[(&str, f64)]>, cores: Option<f64>, edit: fn(&mut Trial)| {
            let mut trial = full_trial();
            trial.workload.kind = "commit".to_owned();
            edit(&mut trial);
            let named = |(name, n): &(&str, f64)| ((*name).to_owned(), *n);
            let busy = DatabaseUse { transactions: 540.0, tuples: 2160.0, blocks: 9800.0 };
            let host =
                HostUse { cores: Some(4), foreign_session_cores: cores, ..HostUse::default() };
            let telemetry = Telemetry {
                hosts: BTreeMap::from([("db".to_owned(), host)]),
                waits: Some(Waits { rounds: 40, sessions: 4, ..Waits::default() }),
                foreign_sessions: Some(ForeignSessions {
                    active: active.map(|all| all.iter().map(named).collect()),
                    databases: BTreeMap::from([("shop".to_owned(), busy)]),
                }),
                ..Telemetry::default()
            };
            sessions(&trial, &telemetry).unwrap()
        };
        let verdict = |active: &[_], cores| judged(Some(active), cores, |_| {}).verdict;
        assert_eq!(verdict(&[], None), CheckVerdict::Ok);
        assert_eq!(verdict(&[("shop", 0.1)], None), CheckVerdict::Ok);
        assert_eq!(verdict(&[("shop", 0.4)], None), CheckVerdict::Warning);
        assert_eq!(verdict(&[("shop", 0.5), ("mine", 0.5)], None), CheckVerdict::Invalid);
        assert_eq!(verdict(&[("shop", 0.1)], Some(1.0)), CheckVerdict::Invalid, "a core of four");
        let check = judged(Some(&[("shop", 1.9)]), Some(0.3), |_| {});
        assert_eq!(
            check.message,
            "1.90 sessions of others were active on average in shop; they used 0.30 of 4 cores; \
             shop had 540 transactions, 2160 changed tuples and 9800 block visits a second"
        );
        assert_eq!(judged(None, None, |_| {}).verdict, CheckVerdict::Warning, "work is seen");
        // The sessions of a program may have any name.
        let program = |trial: &mut Trial| {
            trial.workload.kind = "command".to_owned();
            trial.server.database = "shop".to_owned();
        };
        assert_eq!(judged(Some(&[("shop", 3.0)]), None, program).verdict, CheckVerdict::Ok);
    }

    #[test]
    fn servers_that_wait_for_each_other_are_not_accused() {
        // Sixteen sessions on two cores; a monitoring agent uses 2 % of the time.
        let check = judged(2, 2.0, 0.04, Some(0.8));
        assert_eq!(check.verdict, CheckVerdict::Ok, "{}", check.message);
    }

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

    fn io_judged(own: f64, others: f64, vda1: f64, sdb: f64) -> Check {
        device_io(&observed(own, others, vda1, sdb)).unwrap()
    }

    fn io(telemetry: &mut Telemetry) -> &mut ProcessIo {
        telemetry.hosts.get_mut("db").unwrap().process_io.as_mut().unwrap()
    }

    #[test]
    fn a_copy_beside_a_server_that_writes_is_reported() {
        let check = io_judged(33.0, 168.0, 207.0, 0.0);
        assert_eq!(check.verdict, CheckVerdict::Warning, "{}", check.message);
        assert_eq!(
            check.message,
            "other processes moved at least 134 MiB/s on the servers' devices on `db`, of 197 MiB/s in all \
             (by program, on any device: dd 160 MiB/s)"
        );
        // A backup of the same size to another disk does not hide it.
        assert_eq!(io_judged(33.0, 268.0, 207.0, 100.0).verdict, CheckVerdict::Warning);
    }

    #[test]
    fn reads_of_others_are_not_hidden_by_writes_of_the_server() {
        let mut found = observed(400.0, 0.0, 100.0, 0.0);
        io(&mut found).others.read = 50.0 * MB;
        let devices = &mut found.hosts.get_mut("db").unwrap().devices;
        for name in ["vda1", "vda"] {
            devices.get_mut(name).unwrap().read_bytes_per_second = 51.0 * MB;
        }
        let check = device_io(&found).unwrap();
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
            let check = io_judged(own, others, vda1, sdb);
            assert_eq!(check.verdict, CheckVerdict::Ok, "{}", check.message);
        }
        // A copy to a network file system while the servers' pages of before are written back.
        let mut found = observed(20.0, 80.0, 90.0, 0.0);
        io(&mut found).dirty_before = 66.0 * MB;
        assert_eq!(device_io(&found).unwrap().verdict, CheckVerdict::Ok);
        assert!(device_io(&Telemetry::default()).is_none());
    }

    /// As seen with a server on a loop device while others built programs on the disk below.
    #[test]
    fn the_disk_below_a_loop_device_may_serve_others() {
        let mut found = observed(5.1, 13.5, 21.0, 0.0);
        found.storage[0].devices.insert(0, device("loop0", "loop"));
        let devices = &mut found.hosts.get_mut("db").unwrap().devices;
        devices.insert("loop0".to_owned(), writing(6.7));
        assert_eq!(device_io(&found).unwrap().verdict, CheckVerdict::Ok);
        let both = observed(2.0, 13.5, 21.0, 0.0);
        assert_eq!(device_io(&both).unwrap().verdict, CheckVerdict::Warning);
    }

    #[test]
    fn another_partition_or_volume_of_the_same_disk_is_reported() {
        let on = |other: &str, vda1: f64, vda: f64, sdb: f64| {
            let mut found = observed(33.0, 168.0, vda1, sdb);
            let devices = &mut found.hosts.get_mut("db").unwrap().devices;
            devices.insert("vda".to_owned(), writing(vda));
            devices.insert(other.to_owned(), writing(168.0));
            device_io(&found).unwrap().verdict
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
        assert_eq!(device_io(&found).unwrap().verdict, CheckVerdict::Ok);
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
        assert_eq!(device_io(&found).unwrap().verdict, CheckVerdict::Warning);
        // Older kernels count only on the paths.
        found.hosts.get_mut("db").unwrap().devices.remove("nvme0n1");
        assert!(device_io(&found).is_none());
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
        let check = device_io(&found).unwrap();
        assert_eq!(check.verdict, CheckVerdict::Ok, "{}", check.message);
    }

    #[test]
    fn writes_of_the_file_system_journal_are_not_foreign_io() {
        assert_eq!(io_judged(2.8, 8.0, 4.0, 0.0).verdict, CheckVerdict::Ok);
    }

    #[test]
    fn unreadable_process_io_is_stated_in_the_check() {
        let mut found = observed(33.0, 168.0, 207.0, 0.0);
        io(&mut found).own = None;
        let unknown = device_io(&found).unwrap();
        assert_eq!(unknown.verdict, CheckVerdict::Ok);
        assert!(unknown.message.starts_with("I/O of others on `db` is unknown: /proc/PID/io"));
        let mut found = observed(33.0, 0.0, 34.0, 0.0);
        io(&mut found).unreadable = 7;
        assert!(
            device_io(&found).unwrap().message.ends_with("except for 7 that could not be read")
        );
    }
}
