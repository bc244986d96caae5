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
    let mut measure = |wal: Option<Wal<'_>>| {
        let (flush, note) = flush::probe(wal?);
        notes.push(note);
        flush
    };
    let flush = measure(primary);
    let is_shared = primary.zip(standby).is_some_and(|(a, b)| flush::share_file_system(a, b));
    let shared_flush = flush.filter(|_| is_shared);
    let standby_flush = shared_flush.or_else(|| measure(standby));
    if let (Some(_), Some(wal)) = (shared_flush, standby) {
        notes.push(format!(
            "flush: the same file system on host {} holds the standby's WAL",
            wal.host.name()
        ));
    }
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
        shared_flush: shared_flush.is_some(),
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
    fn another_file_system_is_measured_itself() {
        let (disk, memory) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let here = Host::local();
        let [disk, memory] = [&disk, &memory].map(|dir| dir.path().to_str().unwrap());
        let wal = |directory| Some(Wal { host: &here, directory });
        let probes = probe(wal(disk), wal(memory), None);
        assert!(!probes.shared_flush, "{probes:?}");
        assert!(probes.standby_flush_seconds.unwrap() > 0.0, "{probes:?}");
        let missing = probe(wal(disk), wal("/nonexistent"), None);
        assert!(!missing.shared_flush && missing.standby_flush_seconds.is_none(), "{missing:?}");
    }

    #[test]
    fn probes_measure_both_flushes_and_a_zero_round_trip_by_socket() {
        let dir = tempfile::tempdir().unwrap();
        let here = Host::local();
        let wal = Wal { host: &here, directory: dir.path().to_str().unwrap() };
        let socket = Walsender { client_address: None, client_port: 0 };
        let probes = probe(Some(wal), Some(wal), Some(socket));
        assert!(probes.flush_seconds.unwrap() > 0.0, "{probes:?}");
        assert!(probes.shared_flush, "{probes:?}");
        assert_eq!(probes.standby_flush_seconds, probes.flush_seconds, "{probes:?}");
        assert_eq!((probes.round_trip_seconds, probes.notes.len()), (Some(0.0), 3), "{probes:?}");
        assert_eq!(probe(None, None, None), Probes::default());
    }
}
