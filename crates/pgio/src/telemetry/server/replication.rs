//! Measures how far each standby is behind: distances in the WAL, and lags if the server reports
//! them.

use std::collections::BTreeMap;
use std::time::Instant;

use pgio_connect::Row;

use crate::telemetry::sampling::Span;
use pgio_results::series::Track;
use pgio_results::telemetry::StandbyLag;

pub(super) const SQL: &str = include_str!("../sql/replication.sql");

/// Tracks made from the columns after the first two.
const COLUMNS: [(&str, &str); 6] = [
    ("sent_bytes_behind", "bytes"),
    ("flush_bytes_behind", "bytes"),
    ("replay_bytes_behind", "bytes"),
    ("write_lag", "s"),
    ("flush_lag", "s"),
    ("replay_lag", "s"),
];
const REPLAY_BYTES: usize = 2;
const WRITE_LAG: usize = 3;

/// One row of pg_stat_replication.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Standby {
    name: String,
    sync_state: String,
    values: [Option<f64>; 6],
}

impl Standby {
    /// `None` if the role sees only that the standby exists; another source warns about that.
    pub(super) fn from_row(row: &Row) -> Option<Standby> {
        Some(Standby {
            name: row.try_get(0).ok()?,
            sync_state: row.try_get::<_, Option<String>>(1).ok()??,
            values: std::array::from_fn(|i| row.try_get(i + 2).ok().flatten()),
        })
    }
}

pub(super) fn summarize(
    readings: &[(Instant, Vec<Standby>)],
    span: Span,
) -> (BTreeMap<String, StandbyLag>, Vec<Track>) {
    let mut by_name: BTreeMap<String, Vec<(Instant, &Standby)>> = BTreeMap::new();
    for (at, standbys) in readings {
        for (i, standby) in standbys.iter().enumerate() {
            let namesakes = standbys[..i].iter().filter(|s| s.name == standby.name).count();
            let name = match namesakes {
                0 => standby.name.clone(),
                n => format!("{} {}", standby.name, n + 1),
            };
            by_name.entry(name).or_default().push((*at, standby));
        }
    }
    let mut lags = BTreeMap::new();
    let mut tracks = Vec::new();
    for (name, readings) in by_name {
        let at: Vec<f64> = readings.iter().map(|(at, _)| span.seconds_at(*at)).collect();
        for (i, (quantity, unit)) in COLUMNS.into_iter().enumerate() {
            let values: Vec<_> = readings.iter().map(|(_, s)| s.values[i]).collect();
            if values.iter().any(Option::is_some) {
                tracks.push(Track {
                    source: "server".to_owned(),
                    subject: name.clone(),
                    name: quantity.to_owned(),
                    unit: unit.to_owned(),
                    at: at.clone(),
                    values,
                });
            }
        }
        let inside: Vec<&Standby> =
            readings.iter().filter(|(at, _)| span.contains(*at)).map(|(_, s)| *s).collect();
        if !inside.is_empty() {
            lags.insert(name, lag(&inside));
        }
    }
    (lags, tracks)
}

fn lag(inside: &[&Standby]) -> StandbyLag {
    let values = |column: usize| inside.iter().filter_map(move |s| s.values[column]);
    let mean = |column| {
        let n = values(column).count();
        (n > 0).then(|| values(column).sum::<f64>() / n as f64)
    };
    let mut states: Vec<&str> = inside.iter().map(|s| s.sync_state.as_str()).collect();
    states.dedup();
    StandbyLag {
        sync_state: StandbyLag::join_states(&states),
        mean_bytes_behind: mean(REPLAY_BYTES),
        max_bytes_behind: values(REPLAY_BYTES).reduce(f64::max),
        write_seconds: mean(WRITE_LAG),
        flush_seconds: mean(WRITE_LAG + 1),
        replay_seconds: mean(WRITE_LAG + 2),
        ..StandbyLag::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn standby(name: &str, sync_state: &str, replay: f64, lag: Option<f64>) -> Standby {
        let values = [Some(0.0), Some(1.0), Some(replay), None, None, lag];
        Standby { name: name.to_owned(), sync_state: sync_state.to_owned(), values }
    }

    #[test]
    fn readings_outside_the_window_are_in_the_track_but_not_in_the_summary() {
        let opened = Instant::now();
        let second = Duration::from_secs(1);
        let span = Span { opened, closed: opened + 2 * second };
        let readings = [
            (opened - second, vec![standby("s1", "async", 9e9, Some(9.0))]),
            (opened + second / 2, vec![standby("s1", "sync", 10.0, Some(0.5))]),
            (
                opened + second,
                vec![standby("s1", "sync", 30.0, None), standby("s1", "async", 5.0, None)],
            ),
        ];
        let (lags, tracks) = summarize(&readings, span);
        let lag = &lags["s1"];
        assert_eq!(lag.sync_state, "sync");
        assert_eq!((lag.mean_bytes_behind, lag.max_bytes_behind), (Some(20.0), Some(30.0)));
        assert_eq!((lag.replay_seconds, lag.write_seconds), (Some(0.5), None));
        assert_eq!(lags["s1 2"].max_bytes_behind, Some(5.0));
        let lag_track = tracks.iter().find(|t| t.name == "replay_lag").unwrap();
        assert_eq!(
            (&lag_track.at, &lag_track.values),
            (&vec![-1.0, 0.5, 1.0], &vec![Some(9.0), Some(0.5), None])
        );
        assert!(tracks.iter().all(|t| t.name != "flush_lag"), "the server never reported it");
    }

    #[test]
    fn a_standby_that_was_promoted_to_sync_was_synchronous() {
        let [potential, sync] = ["potential", "sync"].map(|state| standby("s1", state, 0.0, None));
        let changed = lag(&[&potential, &potential, &sync]);
        assert_eq!(changed.sync_state, "potential, then sync");
        assert!(changed.was_synchronous() && !lag(&[&potential]).was_synchronous());
    }
}
