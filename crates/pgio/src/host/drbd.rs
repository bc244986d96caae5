//! The state of DRBD on a node: one model for kernel modules 8.4 and 9, parsed from text. Pure.
//!
//! | | module 9 | module 8.4 |
//! |---|---|---|
//! | state | [`status`]: `drbdsetup status --json --statistics` | [`events`]: `drbdsetup events2 --now --statistics` |
//! | state, cheaper | the same | [`proc`]: /proc/drbd, without names |
//! | configuration | [`show`]: `drbdsetup show --json --show-defaults` | [`show`]: `drbdsetup show --show-defaults` |
//!
//! The parsers ignore unknown fields, because fields differ between versions; a missing required
//! field is an error that names it. This module starts no program; `treatment::drbd` and
//! `telemetry::host` do.

pub mod events;
pub mod loss;
pub mod proc;
pub mod show;
pub mod status;

/// The state of one volume of a resource and of its connection to one peer, as seen by one node. State
/// names are those of `drbdsetup` for every source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Absent in /proc/drbd.
    pub resource: Option<String>,
    /// The device is /dev/drbdMINOR.
    pub minor: u32,
    pub role: String,
    pub peer_role: String,
    /// `StandAlone`, `Connecting`, `Connected` or a transitional state.
    pub connection: String,
    /// `Off`, `Established`, `SyncSource`, `Ahead` and others.
    pub replication: String,
    pub disk: String,
    pub peer_disk: String,
    /// `A`, `B` or `C`; present only if the source reports it.
    pub protocol: Option<String>,
    /// Whether I/O is suspended.
    pub suspended: bool,
    /// Whether the send buffer to the peer is full; absent in /proc/drbd.
    pub congested: Option<bool>,
    /// Counters since the device or the connection was established.
    pub sent_kib: u64,
    pub received_kib: u64,
    pub al_writes: u64,
    /// Requests sent to the peer and not yet acknowledged.
    pub pending: u64,
    /// Requests received from the peer and not yet acknowledged.
    pub unacked: u64,
    pub out_of_sync_kib: u64,
    pub percent_in_sync: Option<f64>,
}

impl State {
    /// The state without any information about a peer.
    fn without_peer() -> State {
        State {
            peer_role: UNKNOWN_ROLE.to_owned(),
            connection: STANDALONE.to_owned(),
            replication: "Off".to_owned(),
            peer_disk: "DUnknown".to_owned(),
            ..State::default()
        }
    }

    pub fn is_primary(&self) -> bool {
        self.role == "Primary"
    }

    pub fn is_connected(&self) -> bool {
        self.connection == CONNECTED
    }

    /// Returns whether the node is neither connected nor connecting.
    pub fn is_standalone(&self) -> bool {
        self.connection == STANDALONE
    }

    /// Returns whether both disks have the same data and no resync or similar work is in progress.
    pub fn is_in_sync(&self) -> bool {
        self.is_connected()
            && self.replication == ESTABLISHED
            && self.disk == UP_TO_DATE
            && self.peer_disk == UP_TO_DATE
            && self.out_of_sync_kib == 0
    }

    /// Returns `Connected/Established`, or only the connection state if there is no connection.
    pub fn link(&self) -> String {
        if self.is_connected() {
            format!("{}/{}", self.connection, self.replication)
        } else {
            self.connection.clone()
        }
    }

    /// Returns the disk states of this node and of the peer: `UpToDate/UpToDate`.
    pub fn disks(&self) -> String {
        format!("{}/{}", self.disk, self.peer_disk)
    }
}

/// Returns the kernel's name of a device.
pub fn device(minor: u32) -> String {
    format!("drbd{minor}")
}

/// Returns whether a resync or an online verification is running or about to start.
pub fn is_resync(replication: &str) -> bool {
    let prefixes = ["StartingSync", "WFBitMap", "WFSyncUUID", "Sync", "PausedSync", "Verify"];
    prefixes.iter().any(|prefix| replication.starts_with(prefix))
}

/// Returns whether replication is paused on purpose, which on-congestion allows.
pub fn is_behind(replication: &str) -> bool {
    matches!(replication, "Ahead" | "Behind")
}

pub const STANDALONE: &str = "StandAlone";
pub const CONNECTED: &str = "Connected";
const ESTABLISHED: &str = "Established";
pub const UP_TO_DATE: &str = "UpToDate";
const UNKNOWN_ROLE: &str = "Unknown";

/// The generation of the kernel module, which determines the output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// Module 8.4.
    V84,
    V9,
}

/// Parses the generation from /proc/drbd, which both modules have.
pub fn generation(proc_drbd: &str) -> Result<Generation, DrbdError> {
    let version = proc_drbd.lines().find_map(|line| line.strip_prefix("version:"));
    let version = version.and_then(|v| v.split_whitespace().next()).unwrap_or_default();
    match version.split('.').collect::<Vec<_>>().as_slice() {
        ["8", "4", ..] => Ok(Generation::V84),
        ["9", ..] => Ok(Generation::V9),
        _ => Err(DrbdError::Version(version.to_owned())),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DrbdError {
    #[error("DRBD kernel module version `{0}` is not supported; pgio supports 8.4 and 9")]
    Version(String),
    #[error("cannot parse the output of `{from}`")]
    Json { from: &'static str, source: serde_json::Error },
    #[error(
        "`{from}` does not report {field}{object}; use drbd-utils that match the kernel module"
    )]
    Missing { from: &'static str, field: &'static str, object: String },
}

impl DrbdError {
    fn missing(from: &'static str, field: &'static str, of: &str) -> DrbdError {
        let object = if of.is_empty() { String::new() } else { format!(" of {of}") };
        DrbdError::Missing { from, field, object }
    }
}

#[cfg(test)]
mod tests;
