//! What was observed beside the workload during a window, summed up for the trial's record.
//!
//! Plain data in base units, stored as it stands; the samples behind it are in `series`. Rates are
//! means over the window. What could not be read is absent, never 0. Next: `analysis` draws the
//! reconciliation and the wait decomposition from this.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Telemetry {
    /// By the host's name; this machine is `local`.
    pub hosts: BTreeMap<String, HostUse>,
    /// Where the server keeps what it writes.
    pub storage: Vec<Storage>,
    pub waits: Option<Waits>,
    /// By the standby's application_name.
    pub standbys: BTreeMap<String, StandbyLag>,
    /// What a commit should cost from first principles, measured beside the trials.
    pub probes: Option<Probes>,
    /// CPU seconds that this program used inside the window, sampling included.
    pub driver_cpu_seconds: Option<f64>,
    /// Of these, in the threads that only sample.
    pub sampling_cpu_seconds: Option<f64>,
}

impl Telemetry {
    /// The devices that the server's file systems lie on, each once. Those below them (the disks of
    /// a volume) do the same work a second time. None where any of them was not observed: a sum
    /// without it would be of something else.
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
    /// Ticks that came so late that the next was due.
    pub missed: u64,
    /// CPU seconds of the sampling itself on that host, its processes included.
    pub sampling_cpu_seconds: Option<f64>,
    /// The host's clock minus this machine's, with half the round trip as its error.
    pub clock_offset_seconds: Option<f64>,
    pub clock_error_seconds: Option<f64>,
    pub cores: Option<u32>,
    /// Shares of all cores, 0 to 1: `user`, `system`, `iowait`, `steal`, `idle`.
    pub cpu: BTreeMap<String, f64>,
    /// Cores used by neither our servers nor this program.
    pub foreign_cores: Option<f64>,
    /// Bytes at the window's end: `total`, `free`, `available`, `cached`, `dirty`, `writeback`.
    pub memory: BTreeMap<String, u64>,
    /// Share of time in which some task waited, by resource: `cpu`, `io`, `memory` (PSI).
    pub pressure: BTreeMap<String, f64>,
    /// By kernel name, such as `vda` or `dm-0`.
    pub devices: BTreeMap<String, DeviceUse>,
    /// Bytes per second by interface: received, sent.
    pub network: BTreeMap<String, (f64, f64)>,
    /// By kernel name, such as `drbd1`; empty without DRBD.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drbd: BTreeMap<String, DrbdUse>,
}

/// One block device, from /proc/diskstats.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceUse {
    pub reads_per_second: f64,
    pub writes_per_second: f64,
    /// Requests that were merged into others before they reached the device.
    pub merged_writes_per_second: f64,
    pub read_bytes_per_second: f64,
    pub written_bytes_per_second: f64,
    /// Linux 5.5 and later.
    pub flushes_per_second: Option<f64>,
    /// Mean seconds from request to completion; absent without requests.
    pub read_seconds: Option<f64>,
    pub write_seconds: Option<f64>,
    pub flush_seconds: Option<f64>,
    /// Share of the time in which requests were in flight, 0 to 1.
    pub utilisation: f64,
}

/// One device of DRBD's as its host saw it, all peers together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DrbdUse {
    /// Absent where only root may know.
    pub resource: Option<String>,
    /// The kernel's name of the disk below it; absent where only root may know.
    pub backing: Option<String>,
    pub sent_bytes_per_second: Option<f64>,
    pub received_bytes_per_second: Option<f64>,
    /// Of the activity log.
    pub al_writes_per_second: Option<f64>,
    /// Requests that wait for the peer, and requests of the peer's that wait here: over the samples.
    pub pending_mean: f64,
    pub pending_max: u64,
    pub unacked_mean: f64,
    pub unacked_max: u64,
    /// At the window's ends.
    pub out_of_sync_bytes_before: u64,
    pub out_of_sync_bytes_after: u64,
    /// How often the connection's counters began anew between two samples: it was ended and made again.
    #[serde(default)]
    pub connected_anew: u64,
    /// The states seen, each with its number of samples; one for each peer and sample.
    pub states: Vec<DrbdState>,
}

/// In the words of drbdsetup; ours first, then the peer's.
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
    /// `A`, `B` or `C`; absent where the state does not tell it.
    pub protocol: Option<String>,
    pub suspended: bool,
    /// Whether the buffer towards the peer was full; absent with module 8.4, which does not tell.
    pub congested: Option<bool>,
    pub samples: u64,
}

/// What a directory of the server's lies on.
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
    /// The device under the file system and those below it, such as `dm-0`, `vda3`, `vda`.
    pub devices: Vec<Device>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device {
    /// The kernel's name, as in /proc/diskstats.
    pub name: String,
    /// `disk`, `partition`, `lvm`, `md`, `drbd`, `loop`, `crypt`.
    pub kind: String,
    /// Of its queue: `scheduler`, `write_cache`, `fua`, `rotational`, `read_ahead_kb`.
    pub queue: BTreeMap<String, String>,
}

/// What our sessions were seen doing, sampled from pg_stat_activity.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waits {
    pub rounds: u64,
    pub missed_rounds: u64,
    pub hertz: f64,
    pub sessions: u32,
    /// Sightings by `type:event`; `CPU` is a session at work that waits for nothing, `Client` one
    /// between two statements.
    pub sightings: BTreeMap<String, u64>,
}

/// How far a standby was behind, over the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StandbyLag {
    pub sync_state: String,
    pub mean_bytes_behind: Option<f64>,
    pub max_bytes_behind: Option<f64>,
    /// Means of write_lag, flush_lag and replay_lag, where the server gave any.
    pub write_seconds: Option<f64>,
    pub flush_seconds: Option<f64>,
    pub replay_seconds: Option<f64>,
}

/// Measured without PostgreSQL, in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Probes {
    /// Median of synchronous 8 kB writes to the primary's WAL file system.
    pub flush_seconds: Option<f64>,
    /// The same on the standby.
    pub standby_flush_seconds: Option<f64>,
    /// Half of the 95 % interval of each; absent in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_error_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby_flush_error_seconds: Option<f64>,
    /// To the standby and back, as the way was found.
    pub round_trip_seconds: Option<f64>,
    /// What the trial's link treatment adds to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_seconds: Option<f64>,
    /// How each was measured, or why it was not.
    pub notes: Vec<String>,
}
