//! DRBD as a node tells it: one model for kernel modules 8.4 and 9, parsed from text. Pure.
//!
//! | | module 9 | module 8.4 |
//! |---|---|---|
//! | state | [`status`]: `drbdsetup status --json --statistics` | [`events`]: `drbdsetup events2 --now --statistics` |
//! | state, cheaper | the same | [`proc`]: /proc/drbd, without names |
//! | configuration | [`show`]: `drbdsetup show --json --show-defaults` | [`show`]: `drbdsetup show --show-defaults` |
//!
//! What is not known is passed over, since fields come and go with versions; what is needed and
//! missing is an error that names it. Nothing here starts a program: `treatment::drbd` and
//! `telemetry::host` do.

pub mod events;
pub mod proc;
pub mod show;
pub mod status;

/// One volume of a resource towards one peer, as one node sees them at one moment. Names of states
/// are those of `drbdsetup`, whichever program told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// /proc/drbd does not say.
    pub resource: Option<String>,
    /// The device is /dev/drbdMINOR.
    pub minor: u32,
    pub role: String,
    pub peer_role: String,
    /// `StandAlone`, `Connecting`, `Connected` or on the way there.
    pub connection: String,
    /// `Off`, `Established`, `SyncSource`, `Ahead` and others.
    pub replication: String,
    pub disk: String,
    pub peer_disk: String,
    /// `A`, `B` or `C`; only where the state tells it.
    pub protocol: Option<String>,
    /// No I/O is taken at present.
    pub suspended: bool,
    /// The buffer towards the peer is full; /proc/drbd does not say.
    pub congested: Option<bool>,
    /// Counters since the device or the connection came up.
    pub sent_kib: u64,
    pub received_kib: u64,
    pub al_writes: u64,
    /// Requests sent that the peer has not answered yet.
    pub pending: u64,
    /// Requests of the peer that are not answered yet.
    pub unacked: u64,
    pub out_of_sync_kib: u64,
    pub percent_in_sync: Option<f64>,
}

impl State {
    /// Without a word about a peer.
    fn alone() -> State {
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

    /// Neither connected nor trying to be.
    pub fn is_standalone(&self) -> bool {
        self.connection == STANDALONE
    }

    /// Both disks hold the same, and DRBD does nothing beside what it is asked for.
    pub fn is_in_sync(&self) -> bool {
        self.is_connected()
            && self.replication == ESTABLISHED
            && self.disk == UP_TO_DATE
            && self.peer_disk == UP_TO_DATE
            && self.out_of_sync_kib == 0
    }

    /// `Connected/Established`, or the connection alone where that says it all.
    pub fn link(&self) -> String {
        match self.is_connected() {
            true => format!("{}/{}", self.connection, self.replication),
            false => self.connection.clone(),
        }
    }

    /// `UpToDate/UpToDate`: ours, the peer's.
    pub fn disks(&self) -> String {
        format!("{}/{}", self.disk, self.peer_disk)
    }
}

/// The kernel's name.
pub fn device(minor: u32) -> String {
    format!("drbd{minor}")
}

/// Whether a resync or an online verification runs, or is about to.
pub fn is_resync(replication: &str) -> bool {
    let starts = ["StartingSync", "WFBitMap", "WFSyncUUID", "Sync", "PausedSync", "Verify"];
    starts.iter().any(|s| replication.starts_with(s))
}

/// Whether the peer is left behind on purpose, which on-congestion allows.
pub fn is_behind(replication: &str) -> bool {
    matches!(replication, "Ahead" | "Behind")
}

const STANDALONE: &str = "StandAlone";
const CONNECTED: &str = "Connected";
const ESTABLISHED: &str = "Established";
pub const UP_TO_DATE: &str = "UpToDate";
const UNKNOWN_ROLE: &str = "Unknown";

/// Which language the kernel module speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// 8.4
    V84,
    V9,
}

/// From /proc/drbd, which either module has.
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
    #[error("DRBD's kernel module is version `{0}`, and pgio knows 8.4 and 9")]
    Version(String),
    #[error("what `{from}` printed is not understood")]
    Json { from: &'static str, source: serde_json::Error },
    #[error("`{from}` does not tell {what}{place}: use drbd-utils that fit the kernel module")]
    Missing { from: &'static str, what: &'static str, place: String },
}

impl DrbdError {
    fn missing(from: &'static str, what: &'static str, of: &str) -> DrbdError {
        let place = if of.is_empty() { String::new() } else { format!(" of {of}") };
        DrbdError::Missing { from, what, place }
    }
}

#[cfg(test)]
mod tests;
