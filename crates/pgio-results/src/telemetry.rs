//! Observations beside the workload during a window, summarized for the trial's record.
//!
//! Plain data in base units, stored unchanged; the samples are a [`Series`]. Rates are means over
//! the window. A value that could not be read is absent, never 0. Next: `pgio_verdict` draws the
//! reconciliation and the wait decomposition from this.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Telemetry {
    /// Hosts by name; this machine is `local`.
    pub hosts: BTreeMap<String, HostUse>,
    /// File systems and devices below the server's directories.
    pub storage: Vec<Storage>,
    pub waits: Option<Waits>,
    /// Absent where nothing was sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_sessions: Option<ForeignSessions>,
    /// Standbys by application_name.
    pub standbys: BTreeMap<String, StandbyLag>,
    /// The expected cost of a commit, measured outside the trials.
    pub probes: Option<Probes>,
    /// CPU seconds used by pgio inside the window, including sampling.
    pub driver_cpu_seconds: Option<f64>,
    /// CPU seconds of the sampling threads, included in the above.
    pub sampling_cpu_seconds: Option<f64>,
}

impl Telemetry {
    /// The devices directly below the server's file systems, each once and none above another: devices
    /// further down (the disks of a volume) repeat the same work. `None` if one of them is unknown or was
    /// not observed, because the sum would be incomplete.
    pub fn devices_in_use(&self) -> Option<Vec<&DeviceUse>> {
        if self.storage.iter().any(|storage| storage.devices.is_empty()) {
            return None;
        }
        self.observed(self.names_in_use())
    }

    /// Host and name of [`Telemetry::devices_in_use`], as far as they are known.
    pub fn names_in_use(&self) -> BTreeSet<(&str, &str)> {
        self.each_stack(|_, top, _| top)
    }

    /// Host and name of the disks below the server's file systems, with what else is on them: other
    /// partitions and volumes. Where there is more than one disk or a loop device, the traffic of
    /// [`Telemetry::names_in_use`].
    pub fn disks_in_use(&self) -> BTreeSet<(&str, &str)> {
        self.each_stack(|host, top, stack| {
            let observed = |disk: &&str| {
                self.hosts.get(host).is_some_and(|host| host.devices.contains_key(*disk))
            };
            only_disk(stack).filter(observed).unwrap_or(top)
        })
    }

    /// One device of each stack, each once and none above another. `choose` gets the host, the first device of the
    /// stack, and the whole stack.
    fn each_stack<'a>(
        &'a self,
        choose: impl Fn(&'a str, &'a str, &'a [Device]) -> &'a str,
    ) -> BTreeSet<(&'a str, &'a str)> {
        let mut names = BTreeSet::new();
        for storage in &self.storage {
            let host = storage.host.as_str();
            let chosen = storage
                .stacks()
                .filter_map(|stack| Some((host, choose(host, &stack.first()?.name, stack))));
            names.extend(chosen);
        }
        self.without_those_above(names)
    }

    /// The devices that count the flushes of [`Telemetry::devices_in_use`], each once. `None` if one is
    /// unknown: the kernel counts flushes neither of partitions nor of devices that only pass them on.
    pub fn flushed_devices(&self) -> Option<Vec<&DeviceUse>> {
        let mut names = BTreeSet::new();
        for storage in &self.storage {
            let found = self.hosts.get(&storage.host)?.flushed_below(storage)?;
            names.extend(found.into_iter().map(|name| (storage.host.as_str(), name)));
        }
        self.observed(self.without_those_above(names))
    }

    /// Leaves out the devices that lie above another of them, whose counters include their work: the WAL may
    /// be on a loop device whose file is on the data directory's disk.
    fn without_those_above<'a>(
        &'a self,
        mut names: BTreeSet<(&'a str, &'a str)>,
    ) -> BTreeSet<(&'a str, &'a str)> {
        let mut above = BTreeSet::new();
        for storage in &self.storage {
            let name = |device: &'a Device| (storage.host.as_str(), device.name.as_str());
            for stack in storage.stacks() {
                let lowest = stack.iter().rposition(|device| names.contains(&name(device)));
                above.extend(stack[..lowest.unwrap_or(0)].iter().map(name));
            }
        }
        names.retain(|name| !above.contains(name));
        names
    }

    /// `None` if there is none, or one was not observed.
    fn observed(&self, names: BTreeSet<(&str, &str)>) -> Option<Vec<&DeviceUse>> {
        let used = |(host, device): (&str, &str)| self.hosts.get(host)?.devices.get(device);
        let found: Option<Vec<_>> = names.into_iter().map(used).collect();
        found.filter(|devices| !devices.is_empty())
    }
}

/// The disk below a device, if all its traffic goes there as it is.
fn only_disk(stack: &[Device]) -> Option<&str> {
    let mut disks = stack.iter().filter(|device| device.kind == "disk");
    let (Some(disk), None) = (disks.next(), disks.next()) else { return None };
    (!stack.iter().any(|device| device.kind == "loop")).then_some(&disk.name)
}

/// What others did on the server during the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForeignSessions {
    /// Mean number of active sessions by database; absent if the role may not see the state of sessions.
    pub active: Option<BTreeMap<String, f64>>,
    /// Work that the server counted for databases other than the workload's and telemetry's. Sessions publish
    /// their counts once a second, so it is over some seconds where the window is shorter and they were observed.
    pub databases: BTreeMap<String, DatabaseUse>,
}

/// Work per second in one database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DatabaseUse {
    /// Transactions, with those that were rolled back.
    pub transactions: f64,
    /// Tuples inserted, updated and deleted.
    pub tuples: f64,
    /// Blocks hit or read.
    pub blocks: f64,
}

/// One host during the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostUse {
    /// Seconds between two samples.
    pub cadence_seconds: f64,
    pub ticks: u64,
    /// Ticks missed because the previous one took too long.
    pub missed: u64,
    /// CPU seconds of the sampling on that host, including its processes.
    pub sampling_cpu_seconds: Option<f64>,
    /// The host's clock minus this machine's; the error is half the round trip.
    pub clock_offset_seconds: Option<f64>,
    pub clock_error_seconds: Option<f64>,
    pub cores: Option<u32>,
    /// Shares of all cores, 0 to 1: `user`, `system`, `iowait`, `steal`, `idle`.
    pub cpu: BTreeMap<String, f64>,
    /// Cores used by processes other than the servers under test and pgio.
    /// Processes below those whose ids are in PGIO_OURS, such as virtual hosts under measurement, do not count.
    pub foreign_cores: Option<f64>,
    /// Cores used by sessions of others on the server under test, at least; not included in the above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_session_cores: Option<f64>,
    /// Share of the window in which the servers' processes that ran at all were ready to run and waited for
    /// a core, on average; absent if the kernel does not account for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_delay: Option<f64>,
    /// Absent if the kernel keeps no accounts, and where the servers are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_io: Option<ProcessIo>,
    /// Bytes at the end of the window: `total`, `free`, `available`, `cached`, `dirty`,
    /// `writeback`.
    pub memory: BTreeMap<String, u64>,
    /// Share of time in which some task stalled, by resource: `cpu`, `io`, `memory` (PSI).
    pub pressure: BTreeMap<String, f64>,
    /// Devices by kernel name, such as `vda` or `dm-0`.
    pub devices: BTreeMap<String, DeviceUse>,
    /// Bytes per second by interface: received, sent.
    pub network: BTreeMap<String, (f64, f64)>,
    /// DRBD devices by kernel name, such as `drbd1`; empty without DRBD.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drbd: BTreeMap<String, DrbdUse>,
}

/// A replicated device of a host.
#[derive(Debug, Clone, Copy)]
pub struct ReplicatedDevice<'a> {
    /// The kernel's name.
    pub device: &'a str,
    /// Common to all its hosts; absent, as the next, if it could not be read.
    pub resource: Option<&'a str>,
    /// The kernel's name of the disk below it.
    pub backing: Option<&'a str>,
}

impl HostUse {
    pub fn replicated(&self) -> impl Iterator<Item = ReplicatedDevice<'_>> {
        self.drbd.iter().map(|(device, of)| ReplicatedDevice {
            device,
            resource: of.resource.as_deref(),
            backing: of.backing.as_deref(),
        })
    }

    /// Names the devices that count the flushes of a file system: of each device directly below it, the
    /// next one from there downward with a counter. `None` if one has none.
    pub fn flushed_below<'a>(&self, storage: &'a Storage) -> Option<Vec<&'a str>> {
        let counts = |device: &&Device| {
            self.devices.get(&device.name).is_some_and(|used| used.flushes_per_second.is_some())
        };
        // The disk of a partition may be in the stack of an earlier one.
        let stack_use = |stack: &'a [Device]| {
            let found = stack.iter().chain(&storage.devices).find(counts)?;
            Some(found.name.as_str())
        };
        let found: Option<Vec<_>> = storage.stacks().map(stack_use).collect();
        found.filter(|names| !names.is_empty())
    }
}

/// What processes moved, from /proc/PID/io. Writes to the page cache count when they are made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessIo {
    /// What servers and pgio moved at most; absent if their processes could not be read, which may require
    /// root.
    pub own: Option<IoRates>,
    /// What other processes moved at least.
    pub others: IoRates,
    /// Dirty pages of the host when the window opened: bytes per second of it that devices may have written
    /// although nobody made them inside the window.
    pub dirty_before: f64,
    /// Bytes per second of the other programs that moved most.
    pub programs: BTreeMap<String, f64>,
    /// Number of other processes that could not be read.
    pub unreadable: u64,
}

/// Bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IoRates {
    pub read: f64,
    pub written: f64,
}

/// One block device, from /proc/diskstats.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceUse {
    pub reads_per_second: f64,
    pub writes_per_second: f64,
    /// Write requests merged into others before they reached the device.
    pub merged_writes_per_second: f64,
    pub read_bytes_per_second: f64,
    pub written_bytes_per_second: f64,
    /// Requires Linux 5.5 or later. Absent for partitions, volumes (device mapper, md) and DRBD, which count
    /// none.
    pub flushes_per_second: Option<f64>,
    /// Mean seconds from request to completion; absent without requests.
    pub read_seconds: Option<f64>,
    pub write_seconds: Option<f64>,
    pub flush_seconds: Option<f64>,
    /// Share of time with requests in flight, 0 to 1.
    pub utilisation: f64,
}

/// One DRBD device as seen by its host; counters are summed over its peers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DrbdUse {
    /// Absent if it could not be read, which may require root.
    pub resource: Option<String>,
    /// Kernel name of its backing disk; absent if it could not be read, which may require root.
    pub backing: Option<String>,
    pub sent_bytes_per_second: Option<f64>,
    pub received_bytes_per_second: Option<f64>,
    /// Writes to the activity log.
    pub al_writes_per_second: Option<f64>,
    /// Over the samples: requests waiting for the peer (pending), and the peer's requests waiting
    /// here (unacked).
    pub pending_mean: f64,
    pub pending_max: u64,
    pub unacked_mean: f64,
    pub unacked_max: u64,
    /// Out-of-sync bytes at the start and end of the window.
    pub out_of_sync_bytes_before: u64,
    pub out_of_sync_bytes_after: u64,
    /// How often the connection's counters restarted between two samples, because the connection
    /// was closed and created again.
    #[serde(default)]
    pub connected_anew: u64,
    /// The observed states, each with its number of samples; each sample counts once per peer.
    pub states: Vec<DrbdState>,
}

/// A state in the terms of drbdsetup: the host's own values, then the peer's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DrbdState {
    pub role: String,
    pub peer_role: String,
    /// `StandAlone`, `Connecting`, `Connected` and others.
    pub connection: String,
    /// `Established`, `SyncSource`, `Ahead` and others; `Off` without a connection.
    pub replication: String,
    pub disk: String,
    pub peer_disk: String,
    /// `A`, `B` or `C`; absent if unknown in this state.
    pub protocol: Option<String>,
    pub suspended: bool,
    /// Whether the send buffer to the peer was full; absent with module 8.4, which does not report
    /// it.
    pub congested: Option<bool>,
    pub samples: u64,
}

/// The file system and devices below a directory of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Storage {
    /// `data`, `wal`, or `tablespace NAME`.
    pub role: String,
    pub host: String,
    pub directory: String,
    /// Empty, like the fields below, if the directory could not be read.
    pub mount_point: String,
    pub file_system: String,
    pub mount_options: String,
    /// The device of the file system, followed by the devices below it, such as `dm-0`, `vda3`,
    /// `vda`. Then the same of each further device of the file system.
    pub devices: Vec<Device>,
}

impl Storage {
    /// Whether the directory could be read; otherwise its devices are unknown.
    pub fn is_located(&self) -> bool {
        !self.mount_point.is_empty()
    }

    /// The devices of the file system, usually one, each with those below it.
    pub fn stacks(&self) -> impl Iterator<Item = &[Device]> {
        let mut rest = self.devices.as_slice();
        std::iter::from_fn(move || {
            let (_, below) = rest.split_first()?;
            let end = below.iter().position(|device| device.member).map_or(rest.len(), |n| n + 1);
            let (stack, others) = rest.split_at(end);
            rest = others;
            Some(stack)
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device {
    /// The kernel's name, as in /proc/diskstats.
    pub name: String,
    /// `disk`, `partition`, `lvm`, `md`, `drbd`, `loop`, `crypt`.
    pub kind: String,
    /// Queue settings: `scheduler`, `write_cache`, `fua`, `rotational`, `read_ahead_kb`.
    pub queue: BTreeMap<String, String>,
    /// Whether it is a further device of the file system (btrfs) and not below the one before it; absent if
    /// not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub member: bool,
}

/// Wait events of the workload's sessions, sampled from pg_stat_activity.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waits {
    pub rounds: u64,
    pub missed_rounds: u64,
    pub hertz: f64,
    pub sessions: u32,
    /// Number of samples by `type:event`. `CPU` is an active session that is not waiting, `Client`
    /// a session between two statements. Of several servers, each counts by its sessions.
    pub sightings: BTreeMap<String, u64>,
}

/// How far a standby was behind during the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StandbyLag {
    /// If it changed, each state in turn, such as `potential, then sync`.
    pub sync_state: String,
    pub mean_bytes_behind: Option<f64>,
    pub max_bytes_behind: Option<f64>,
    /// Means of write_lag, flush_lag and replay_lag, if the server reported any.
    pub write_seconds: Option<f64>,
    pub flush_seconds: Option<f64>,
    pub replay_seconds: Option<f64>,
    /// The standby that it streams from, to which the distances refer; absent for the primary's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its configured recovery_min_apply_delay; absent for standbys that pgio did not create.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_delay_seconds: Option<f64>,
    /// What lies below its data; absent for standbys that pgio did not create.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
}

/// Separates the states in [`StandbyLag::sync_state`].
const THEN: &str = ", then ";

impl StandbyLag {
    /// Joins the states in which a standby was seen, for `sync_state`.
    pub fn join_states(states: &[&str]) -> String {
        states.join(THEN)
    }

    /// Whether commits could wait for it at some time.
    pub fn was_synchronous(&self) -> bool {
        self.sync_state.split(THEN).any(|state| matches!(state, "sync" | "quorum"))
    }
}

/// Times that determine the cost of a commit, measured without PostgreSQL, in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Probes {
    /// Median time of synchronous 8 kB writes to the primary's WAL file system.
    pub flush_seconds: Option<f64>,
    /// The same on the standby.
    pub standby_flush_seconds: Option<f64>,
    /// Half the width of the 95 % interval of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_error_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby_flush_error_seconds: Option<f64>,
    /// Both WAL directories are on one file system, and one measurement serves both flushes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared_flush: bool,
    /// Round-trip time to the standby, without the trial's link treatment.
    pub round_trip_seconds: Option<f64>,
    /// Additional round-trip time due to the trial's link treatment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_seconds: Option<f64>,
    /// How each value was measured, or why not.
    pub notes: Vec<String>,
}

// `pgio.series/1`: the samples of one trial, one file per trial under `series/`. A track is one quantity of one
// subject over time. Times are seconds from the start of the window on this machine's monotonic clock; the warm-up
// is negative. Series are separate from the trial's record, so that records stay small.

pub const SERIES_SCHEMA: &str = "pgio.series/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series {
    /// Always `pgio.series/1`.
    pub schema: String,
    pub window_seconds: f64,
    pub tracks: Vec<Track>,
    pub moments: Vec<Moment>,
}

impl Series {
    pub fn new(window_seconds: f64) -> Series {
        Series {
            schema: SERIES_SCHEMA.to_owned(),
            window_seconds,
            tracks: Vec::new(),
            moments: Vec::new(),
        }
    }

    pub fn track(&self, source: &str, subject: &str, name: &str) -> Option<&Track> {
        self.tracks.iter().find(|t| t.source == source && t.subject == subject && t.name == name)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Track {
    /// A host's name, or `server`.
    pub source: String,
    /// A device or a standby; empty for the whole source.
    pub subject: String,
    /// Such as `reads_per_second`, `busy_share`, `wal_bytes_per_second`.
    pub name: String,
    pub unit: String,
    /// Time of each value; for a rate, the end of its interval.
    pub at: Vec<f64>,
    /// As many values as `at`; null if a sample is missing.
    pub values: Vec<Option<f64>>,
}

/// An event, such as `checkpoint` or `autovacuum`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moment {
    pub at: f64,
    pub what: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(role: &str, devices: &[(&str, bool)]) -> Storage {
        let device = |(name, member): &(&str, bool)| Device {
            name: (*name).to_owned(),
            member: *member,
            ..Device::default()
        };
        Storage {
            role: role.to_owned(),
            host: "local".to_owned(),
            mount_point: "/".to_owned(),
            devices: devices.iter().map(device).collect(),
            ..Storage::default()
        }
    }

    /// Each device with its reads and flushes.
    fn observed(devices: &[(&str, f64, Option<f64>)], storage: Vec<Storage>) -> Telemetry {
        let used = |(name, reads, flushes): &(&str, f64, Option<f64>)| {
            let (reads_per_second, flushes_per_second) = (*reads, *flushes);
            let used = DeviceUse { reads_per_second, flushes_per_second, ..DeviceUse::default() };
            ((*name).to_owned(), used)
        };
        let devices = devices.iter().map(used).collect();
        let host = HostUse { devices, ..HostUse::default() };
        Telemetry { hosts: [("local".to_owned(), host)].into(), storage, ..Telemetry::default() }
    }

    fn reads(telemetry: &Telemetry) -> Option<f64> {
        Some(telemetry.devices_in_use()?.iter().map(|d| d.reads_per_second).sum())
    }

    fn flushes(telemetry: &Telemetry) -> Option<f64> {
        telemetry.flushed_devices()?.iter().map(|d| d.flushes_per_second).sum()
    }

    #[test]
    fn a_directory_of_unknown_place_leaves_the_sums_unknown() {
        let devices = [("vda", 5.0, Some(1.0))];
        let data = storage("data", &[("vda", false)]);
        let known = observed(&devices, vec![data.clone()]);
        assert_eq!((reads(&known), flushes(&known)), (Some(5.0), Some(1.0)));
        let wal =
            Storage { role: "wal".to_owned(), host: "local".to_owned(), ..Storage::default() };
        assert!(data.is_located() && !wal.is_located());
        let unknown = observed(&devices, vec![data, wal]);
        assert_eq!((reads(&unknown), flushes(&unknown)), (None, None));
    }

    #[test]
    fn every_device_of_a_file_system_counts() {
        let devices = [
            ("sda1", 1.0, None),
            ("sda", 1.0, Some(10.0)),
            ("sdb", 2.0, Some(20.0)),
            ("sda2", 4.0, None),
        ];
        let btrfs = [("sda1", false), ("sda", false), ("sdb", true), ("sda2", true)];
        let telemetry = observed(&devices, vec![storage("data", &btrfs)]);
        assert_eq!(telemetry.storage[0].stacks().map(<[_]>::len).collect::<Vec<_>>(), [2, 1, 1]);
        assert_eq!(reads(&telemetry), Some(7.0));
        assert_eq!(flushes(&telemetry), Some(30.0), "the disk of both partitions counts once");
    }

    /// The counters of vda1 and vda include the work of the loop device.
    #[test]
    fn a_loop_device_on_a_device_in_use_is_not_counted_again() {
        let devices = [("loop7", 4.0, Some(2.0)), ("vda1", 9.0, None), ("vda", 11.0, Some(5.0))];
        let data = storage("data", &[("vda1", false), ("vda", false)]);
        let wal = storage("wal", &[("loop7", false), ("vda1", false), ("vda", false)]);
        for storages in [vec![data.clone(), wal.clone()], vec![wal.clone(), data]] {
            let telemetry = observed(&devices, storages);
            assert_eq!((reads(&telemetry), flushes(&telemetry)), (Some(9.0), Some(5.0)));
        }
        // The same names on another host are other devices.
        let elsewhere = Storage { host: "db2".to_owned(), ..storage("data", &[("vda1", false)]) };
        let mut telemetry = observed(&devices, vec![wal, elsewhere]);
        telemetry.hosts.insert("db2".to_owned(), telemetry.hosts["local"].clone());
        assert_eq!(reads(&telemetry), Some(13.0));
    }

    #[test]
    fn flushes_are_those_of_the_next_lower_device_that_counts_them() {
        let devices = [("dm-0", 7.0, None), ("vda1", 7.0, None), ("vda", 9.0, Some(3.0))];
        let data = storage("data", &[("dm-0", false), ("vda1", false), ("vda", false)]);
        let wal = storage("wal", &[("vda1", false), ("vda", false)]);
        let telemetry = observed(&devices, vec![data, wal]);
        assert_eq!(reads(&telemetry), Some(7.0), "vda1 does the work of dm-0 too");
        assert_eq!(flushes(&telemetry), Some(3.0));
        let alone = observed(&devices, vec![storage("data", &[("dm-0", false)])]);
        assert_eq!((reads(&alone), flushes(&alone)), (Some(7.0), None));
    }
}
