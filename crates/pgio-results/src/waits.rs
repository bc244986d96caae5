//! Groups wait events for readers.
//!
//! During a WAL flush, the leading session waits for IO:WALSync and IO:WALWrite, and the sessions
//! that share the flush wait for LWLock:WALWrite; these events form one group. PostgreSQL 17
//! renamed some events (WALSync to WalSync), so comparison ignores case. Next:
//! `pgio_verdict` divides latencies by these groups.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::telemetry::Waits;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitGroup {
    /// Not waiting: running on the CPU or queued for it.
    Cpu,
    /// Reading blocks of tables and indexes.
    DataFileRead,
    /// Writing or extending data files.
    DataFileWrite,
    /// Writing and flushing the write-ahead log.
    Flush,
    /// Waiting for a synchronous standby.
    SyncRep,
    /// Waiting for locks on rows, tables and transactions, and for the server's own latches.
    Locks,
    /// Idle until the client sends the next statement.
    Client,
    Other,
}

pub const GROUPS: &[WaitGroup] = &[
    WaitGroup::Cpu,
    WaitGroup::DataFileRead,
    WaitGroup::DataFileWrite,
    WaitGroup::Flush,
    WaitGroup::SyncRep,
    WaitGroup::Locks,
    WaitGroup::Client,
    WaitGroup::Other,
];

impl WaitGroup {
    /// Name for people.
    pub fn title(self) -> &'static str {
        match self {
            WaitGroup::Cpu => "CPU",
            WaitGroup::DataFileRead => "data file read",
            WaitGroup::DataFileWrite => "data file write",
            WaitGroup::Flush => "WAL flush",
            WaitGroup::SyncRep => "SyncRep",
            WaitGroup::Locks => "locks",
            WaitGroup::Client => "client",
            WaitGroup::Other => "other",
        }
    }

    /// The metric for its share of the sessions' time.
    pub fn metric(self) -> &'static str {
        match self {
            WaitGroup::Cpu => "wait_share_cpu",
            WaitGroup::DataFileRead => "wait_share_data_file_read",
            WaitGroup::DataFileWrite => "wait_share_data_file_write",
            WaitGroup::Flush => "wait_share_flush",
            WaitGroup::SyncRep => "wait_share_sync_rep",
            WaitGroup::Locks => "wait_share_locks",
            WaitGroup::Client => "wait_share_client",
            WaitGroup::Other => "wait_share_other",
        }
    }
}

/// The group of an event of `Waits::sightings`.
pub fn group_of(event: &str) -> WaitGroup {
    let lower = event.to_ascii_lowercase();
    let (kind, name) = lower.split_once(':').unwrap_or((&lower, ""));
    match (kind, name) {
        ("cpu", _) => WaitGroup::Cpu,
        ("client", _) => WaitGroup::Client,
        ("ipc", "syncrep") => WaitGroup::SyncRep,
        ("io", "datafileread" | "datafileprefetch") => WaitGroup::DataFileRead,
        // Asynchronous reads have separate events since 18.
        ("io", "aioiocompletion" | "aioiouringexecution" | "aioiouringsubmit") => {
            WaitGroup::DataFileRead
        }
        (
            "io",
            "datafilewrite"
            | "datafileextend"
            | "datafileflush"
            | "datafilesync"
            | "datafileimmediatesync"
            | "datafiletruncate",
        ) => WaitGroup::DataFileWrite,
        ("io", wal) if wal.starts_with("wal") => WaitGroup::Flush,
        ("lwlock", "walwrite" | "walwritelock") => WaitGroup::Flush,
        ("lock" | "lwlock" | "bufferpin" | "buffer", _) => WaitGroup::Locks,
        _ => WaitGroup::Other,
    }
}

/// Whether a session called pg_sleep, as in a think time: it is no part of an operation. Results of earlier
/// versions lack these samples.
fn is_pause(event: &str) -> bool {
    event.eq_ignore_ascii_case("Timeout:PgSleep")
}

/// Number of samples of sessions that paused; they are among [`WaitGroup::Other`].
pub fn pauses(waits: &Waits) -> u64 {
    waits.sightings.iter().filter(|(event, _)| is_pause(event)).map(|(_, n)| n).sum()
}

/// Number of samples by group.
pub fn by_group(waits: &Waits) -> BTreeMap<WaitGroup, u64> {
    let mut groups = BTreeMap::new();
    for (event, n) in &waits.sightings {
        *groups.entry(group_of(event)).or_default() += n;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_events_of_a_wal_flush_are_one_group() {
        for event in ["LWLock:WALWrite", "IO:WALSync", "IO:WalSync", "IO:WALWrite", "IO:WalWrite"] {
            assert_eq!(group_of(event), WaitGroup::Flush, "{event}");
        }
    }

    #[test]
    fn unknown_events_are_other() {
        assert_eq!(group_of("Extension:Extension"), WaitGroup::Other);
        assert_eq!(group_of("CPU"), WaitGroup::Cpu);
        assert_eq!(group_of("Client"), WaitGroup::Client);
        assert_eq!(group_of("Lock:transactionid"), WaitGroup::Locks);
        assert_eq!(group_of("LWLock:BufferContent"), WaitGroup::Locks);
    }

    #[test]
    fn pauses_are_other_waits() {
        let sightings = [("Timeout:PgSleep", 3), ("Timeout:VacuumDelay", 1)];
        let sightings = sightings.map(|(event, n)| (event.to_owned(), n)).into();
        let waits = Waits { sightings, ..Waits::default() };
        assert_eq!((pauses(&waits), by_group(&waits)[&WaitGroup::Other]), (3, 4));
    }
}
