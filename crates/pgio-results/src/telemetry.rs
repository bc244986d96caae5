//! Observations beside the workload during a window, summarized for the trial's record.
//!
//! Plain data in base units, stored unchanged; the samples are in `series`. Rates are means over
//! the window. A value that could not be read is absent, never 0. Next: `analysis` draws the
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
    /// The devices directly below the server's file systems, each once. Devices further down (the
    /// disks of a volume) repeat the same work. `None` if one of them was not observed, because the
    /// sum would be incomplete.
    pub fn devices_in_use(&self) -> Option<Vec<&DeviceUse>> {
        let first = |s: &'_ Storage| s.devices.first().map(|d| (s.host.clone(), d.name.clone()));
        let names: BTreeSet<(String, String)> =
            self.storage.iter().map(first).collect::<Option<_>>()?;
        let used = |(host, device): &(String, String)| self.hosts.get(host)?.devices.get(device);
        let found: Option<Vec<_>> = names.iter().map(used).collect();
        found.filter(|devices| !devices.is_empty())
    }
}

/// One host during the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostUse {
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
    pub foreign_cores: Option<f64>,
    /// Share of the window in which the servers' processes that ran at all were ready to run and waited for
    /// a core, on average; absent if the kernel does not account for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_delay: Option<f64>,
    /// Absent in older results, if the kernel keeps no accounts, and where the servers are not.
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
    /// Requires Linux 5.5 or later.
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
    pub mount_point: String,
    pub file_system: String,
    pub mount_options: String,
    /// The device of the file system, followed by the devices below it, such as `dm-0`, `vda3`,
    /// `vda`.
    pub devices: Vec<Device>,
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
    /// a session between two statements.
    pub sightings: BTreeMap<String, u64>,
}

/// How far a standby was behind during the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StandbyLag {
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

/// Times that determine the cost of a commit, measured without PostgreSQL, in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Probes {
    /// Median time of synchronous 8 kB writes to the primary's WAL file system.
    pub flush_seconds: Option<f64>,
    /// The same on the standby.
    pub standby_flush_seconds: Option<f64>,
    /// Half the width of the 95 % interval of each; absent in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_error_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby_flush_error_seconds: Option<f64>,
    /// Round-trip time to the standby, without the trial's link treatment.
    pub round_trip_seconds: Option<f64>,
    /// Additional round-trip time due to the trial's link treatment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_seconds: Option<f64>,
    /// How each value was measured, or why not.
    pub notes: Vec<String>,
}
