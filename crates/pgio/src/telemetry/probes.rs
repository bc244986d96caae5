//! Expected cost of a commit: a flush on the primary, a flush on the standby, and the round trip.
//!
//! Measured without PostgreSQL, once per experiment, in about one second per file system. Probes
//! never fail: a value that cannot be measured is absent, and the notes give the reason. Next:
//! `analysis` compares the measured commits with it.

mod flush;
mod round_trip;

pub use self::flush::Wal;
pub use self::round_trip::Walsender;
use pgio_results::telemetry::Probes;

/// Without a standby, measures only the flush of the primary.
pub fn probe(
    primary: Option<Wal<'_>>,
    standby: Option<Wal<'_>>,
    walsender: Option<Walsender>,
) -> Probes {
    let mut notes = Vec::new();
    let mut flush = |wal: Option<Wal<'_>>| {
        let (flush, note) = flush::probe(wal?);
        notes.push(note);
        flush
    };
    let (flush, standby_flush) = (flush(primary), flush(standby));
    let round_trip_seconds = walsender.and_then(|walsender| {
        let same = primary.zip(standby).is_some_and(|(a, b)| a.host.is_same_machine(b.host));
        let (seconds, note) = round_trip::probe(primary.map(|wal| wal.host), same, walsender);
        notes.push(note);
        seconds
    });
    Probes {
        flush_seconds: flush.map(|f| f.seconds),
        flush_error_seconds: flush.map(|f| f.error),
        standby_flush_seconds: standby_flush.map(|f| f.seconds),
        standby_flush_error_seconds: standby_flush.map(|f| f.error),
        round_trip_seconds,
        // Set later, when a condition is applied.
        link_seconds: None,
        notes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;

    #[test]
    fn probes_measure_both_flushes_and_a_zero_round_trip_by_socket() {
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
