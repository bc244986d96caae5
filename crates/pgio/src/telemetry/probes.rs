//! What a commit should cost from first principles: a flush here, one there, and the way between.
//!
//! Measured without PostgreSQL, once per experiment, about a second for each file system. Never an
//! error: what could not be measured is absent, and the notes say why. Next: `analysis` sets what
//! the commits really took against it.

mod flush;
mod round_trip;

use std::net::IpAddr;

use crate::host::Host;
use crate::results::telemetry::Probes;

/// A host and the directory of the WAL there.
#[derive(Debug, Clone, Copy)]
pub struct Wal<'a> {
    pub host: &'a Host,
    pub directory: &'a str,
}

/// The standby's end of its connection, as pg_stat_replication has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walsender {
    /// `None`: a Unix socket.
    pub client_address: Option<IpAddr>,
    pub client_port: u16,
}

/// Without a standby only the flush of the primary.
pub fn probe(
    primary: Option<Wal<'_>>,
    standby: Option<Wal<'_>>,
    walsender: Option<Walsender>,
) -> Probes {
    let mut notes = Vec::new();
    let mut flush = |wal: Option<Wal<'_>>| {
        let (found, how) = flush::probe(wal?);
        notes.push(how);
        found
    };
    let (flush, standby_flush) = (flush(primary), flush(standby));
    let round_trip_seconds = walsender.and_then(|walsender| {
        let same = primary.zip(standby).is_some_and(|(a, b)| a.host.is_same_machine(b.host));
        let (found, how) = round_trip::probe(primary.map(|wal| wal.host), same, walsender);
        notes.push(how);
        found
    });
    Probes {
        flush_seconds: flush.map(|f| f.seconds),
        flush_error_seconds: flush.map(|f| f.error),
        standby_flush_seconds: standby_flush.map(|f| f.seconds),
        standby_flush_error_seconds: standby_flush.map(|f| f.error),
        round_trip_seconds,
        // Known when a condition is in force.
        link_seconds: None,
        notes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_servers_on_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let here = Host::local();
        let wal = Wal { host: &here, directory: dir.path().to_str().unwrap() };
        let socket = Walsender { client_address: None, client_port: 0 };
        let probes = probe(Some(wal), Some(wal), Some(socket));
        assert!(probes.flush_seconds.unwrap() > 0.0, "{probes:?}");
        assert!(probes.standby_flush_seconds.unwrap() > 0.0, "{probes:?}");
        assert_eq!((probes.round_trip_seconds, probes.notes.len()), (Some(0.0), 3), "{probes:?}");
        assert_eq!(probe(None, None, None), Probes::default());
    }
}
