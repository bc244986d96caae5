//! The counters to read for each server version, and their readings as tracks and moments. The column names of a
//! statement are the names of its tracks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::telemetry::sampling::Span;
use pgio_results::Warning;
use pgio_results::telemetry::{DatabaseUse, StandbyLag};
use pgio_results::telemetry::{Moment, Track};

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
        ..counter("pg_stat_database", include_str!("sql/database.sql"), 13, ALWAYS)
    },
    counter("the write-ahead log's position", include_str!("sql/wal.sql"), 13, ALWAYS),
    counter("pg_stat_wal", include_str!("sql/wal_io_14.sql"), 14, 17),
    counter("pg_stat_io", include_str!("sql/io_16.sql"), 16, 17),
    counter("pg_stat_io", include_str!("sql/io_18.sql"), 18, ALWAYS),
    Source {
        kind: Kind::Events,
        ..counter("the number of checkpoints", include_str!("sql/checkpoints.sql"), 13, ALWAYS)
    },
    Source {
        kind: Kind::Running,
        hidden_is_null: true,
        ..counter("the state of autovacuum", include_str!("sql/autovacuum.sql"), 13, ALWAYS)
    },
];

pub(super) fn for_version(version_num: u32) -> impl Iterator<Item = &'static Source> {
    let major = version_num / 10_000;
    SOURCES.iter().filter(move |s| (s.since..=s.until).contains(&major))
}

/// Readings closer than this count as one moment, such as a tick next to a mark. A rate over the
/// span between them would be noise, so only the later one counts.
const ONE_MOMENT: Duration = Duration::from_millis(50);

pub(super) fn add(log: &Log, span: Span, usage: &mut ServerUse) {
    for (i, name) in log.names.iter().enumerate() {
        let values: Vec<(Instant, Option<f64>)> =
            log.rows.iter().map(|(at, row)| (*at, row[i])).collect();
        let points: Vec<(f64, Option<f64>)> =
            values.iter().map(|(at, value)| (span.seconds_at(*at), *value)).collect();
        match log.source.kind {
            Kind::Counter => usage.tracks.push(rate(name, &points)),
            Kind::Events => usage.moments.extend(increases(name, &points)),
            Kind::Running => usage.moments.extend(starts(name, &points)),
        }
    }
}

fn rate(name: &str, points: &[(f64, Option<f64>)]) -> Track {
    let mut kept: Vec<(f64, Option<f64>)> = Vec::new();
    for point in points {
        if kept.last().is_some_and(|(at, _)| point.0 - at < ONE_MOMENT.as_secs_f64()) {
            kept.pop();
        }
        kept.push(*point);
    }
    let rates = kept.windows(2).map(|pair| {
        let ((from, before), (to, after)) = (pair[0], pair[1]);
        // A counter that decreased was reset.
        let grown = before.zip(after).map(|(b, a)| a - b).filter(|d| *d >= 0.0);
        (to, grown.map(|d| d / (to - from)))
    });
    let (at, values) = rates.unzip();
    Track {
        source: "server".to_owned(),
        subject: String::new(),
        name: format!("{name}_per_second"),
        unit: unit(name),
        at,
        values,
    }
}

fn unit(name: &str) -> String {
    let what = match name {
        _ if name.starts_with("blocks") => "blocks",
        _ => name.rsplit('_').next().unwrap_or(name),
    };
    format!("{what}/s")
}

fn increases(what: &str, points: &[(f64, Option<f64>)]) -> Vec<Moment> {
    let grew = |pair: &&[(f64, Option<f64>)]| pair[1].1 > pair[0].1 && pair[0].1.is_some();
    points.windows(2).filter(grew).map(|pair| moment(pair[1].0, what)).collect()
}

/// When the first process was observed, and again at the start of the window if it was already
/// running.
fn starts(what: &str, points: &[(f64, Option<f64>)]) -> Vec<Moment> {
    let mut moments = Vec::new();
    let mut before: Option<f64> = None;
    for (at, running) in points {
        let runs = running.is_some_and(|n| n > 0.0);
        let known = before.is_some_and(|since| since >= 0.0 || *at < 0.0);
        if runs && !known {
            moments.push(moment(*at, what));
        }
        before = runs.then_some(*at);
    }
    moments
}

fn moment(at: f64, what: &str) -> Moment {
    Moment { at, what: what.to_owned() }
}

/// The readings of one source.
pub(super) struct Log {
    pub(super) source: &'static Source,
    pub(super) names: Vec<String>,
    pub(super) rows: Vec<(Instant, Vec<Option<f64>>)>,
}

/// Summary of one window.
#[derive(Debug, Default)]
pub(crate) struct ServerUse {
    pub(crate) tracks: Vec<Track>,
    pub(crate) moments: Vec<Moment>,
    pub(crate) standbys: BTreeMap<String, StandbyLag>,
    /// Work of other databases.
    pub(crate) databases: BTreeMap<String, DatabaseUse>,
    pub(crate) warnings: Vec<Warning>,
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

    #[test]
    fn a_rate_covers_the_span_between_readings() {
        let points = [(-1.0, Some(100.0)), (0.0, Some(100.0)), (2.0, Some(300.0))];
        let track = rate("wal_bytes", &points);
        assert_eq!((track.name.as_str(), track.unit.as_str()), ("wal_bytes_per_second", "bytes/s"));
        assert_eq!((track.at, track.values), (vec![0.0, 2.0], vec![Some(0.0), Some(100.0)]));
    }

    #[test]
    fn a_mark_replaces_a_reading_next_to_it() {
        let points = [(0.0, Some(0.0)), (0.99, Some(50.0)), (1.0, Some(100.0))];
        let track = rate("blocks_hit", &points);
        assert_eq!((track.at, track.values), (vec![1.0], vec![Some(100.0)]));
        assert_eq!(track.unit, "blocks/s");
    }

    #[test]
    fn a_reset_and_a_gap_are_missing_not_zero() {
        let points = [(0.0, Some(9.0)), (1.0, Some(2.0)), (2.0, None), (3.0, Some(4.0))];
        assert_eq!(rate("commits", &points).values, [None, None, None]);
    }

    #[test]
    fn a_checkpoint_is_a_moment_when_its_position_changes() {
        let points = [(0.0, None), (1.0, Some(5.0)), (2.0, Some(5.0)), (3.0, Some(6.0))];
        let at: Vec<f64> = increases("checkpoint", &points).iter().map(|m| m.at).collect();
        assert_eq!(at, [3.0]);
    }

    #[test]
    fn autovacuum_that_continues_into_the_window_is_a_moment_inside_it() {
        let points = [-1.0, -0.5, 0.0, 1.0, 2.0, 3.0, 4.0].map(|at| (at, Some(1.0)));
        let mut points = points.to_vec();
        points[5].1 = Some(0.0);
        let at: Vec<f64> = starts("autovacuum", &points).iter().map(|m| m.at).collect();
        assert_eq!(at, [-1.0, 0.0, 4.0]);
    }
}
