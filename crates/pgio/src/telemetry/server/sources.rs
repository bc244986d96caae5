//! Lists the counters to read for each server version. The column names of a statement are the
//! names of its tracks.

/// A statement that returns one row of numbers.
pub(super) struct Source {
    /// Name for warnings.
    pub(super) what: &'static str,
    pub(super) sql: &'static str,
    /// Whether the statement takes the workload's database as its parameter.
    pub(super) of_database: bool,
    pub(super) kind: Kind,
    /// Whether the server returns null if the role lacks the privilege.
    pub(super) hidden_is_null: bool,
    /// Major versions.
    since: u32,
    until: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A growing counter; the track shows its rate.
    Counter,
    /// A counter that grows with each event; each observed increase is a moment.
    Events,
    /// A number of processes; a moment is when the first one was observed.
    Running,
}

const ALWAYS: u32 = u32::MAX;

const fn counter(what: &'static str, sql: &'static str, since: u32, until: u32) -> Source {
    let kind = Kind::Counter;
    Source { what, sql, of_database: false, kind, hidden_is_null: false, since, until }
}

const SOURCES: &[Source] = &[
    Source {
        of_database: true,
        ..counter("pg_stat_database", include_str!("../sql/database.sql"), 13, ALWAYS)
    },
    counter("the write-ahead log's position", include_str!("../sql/wal.sql"), 13, ALWAYS),
    counter("pg_stat_wal", include_str!("../sql/wal_io_14.sql"), 14, 17),
    counter("pg_stat_io", include_str!("../sql/io_16.sql"), 16, 17),
    counter("pg_stat_io", include_str!("../sql/io_18.sql"), 18, ALWAYS),
    Source {
        kind: Kind::Events,
        ..counter("the number of checkpoints", include_str!("../sql/checkpoints.sql"), 13, ALWAYS)
    },
    Source {
        kind: Kind::Running,
        hidden_is_null: true,
        ..counter("the state of autovacuum", include_str!("../sql/autovacuum.sql"), 13, ALWAYS)
    },
];

pub(super) fn for_version(version_num: u32) -> impl Iterator<Item = &'static Source> {
    let major = version_num / 10_000;
    SOURCES.iter().filter(move |s| (s.since..=s.until).contains(&major))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_has_each_source_once() {
        for version in 13..=18 {
            let mut what: Vec<_> = for_version(version * 10_000 + 4).map(|s| s.what).collect();
            let all = what.len();
            what.sort_unstable();
            what.dedup();
            assert_eq!(what.len(), all, "{version}");
            assert_eq!(what.contains(&"pg_stat_io"), version >= 16, "{version}");
            assert_eq!(what.contains(&"pg_stat_wal"), (14..=17).contains(&version), "{version}");
        }
    }
}
