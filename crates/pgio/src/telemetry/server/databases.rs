//! Work that the server counted for databases which are not the workload's. Pure.
//!
//! A session publishes its counts when it is idle, at most once a second, so two readings that are
//! closer together may hold none of its work, or the work of two seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pgio_connect::Row;

use crate::pg::words::Shown;
use crate::telemetry::sampling::Span;
use pgio_results::telemetry::DatabaseUse;

/// The databases of the parameter are left out.
pub(super) const SQL: &str = include_str!("../sql/other_databases.sql");

/// Shortest time between two readings, if there are earlier ones.
const MIN_SPAN: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Reading {
    at: Instant,
    counts: BTreeMap<String, [f64; 3]>,
}

impl Reading {
    pub(super) fn new(at: Instant, rows: &[Row]) -> Reading {
        let count = |row: &Row| -> Result<_, pgio_connect::Error> {
            let counts = [row.try_get(1)?, row.try_get(2)?, row.try_get(3)?];
            Ok((row.try_get::<_, Shown>(0)?.into(), counts))
        };
        Reading { at, counts: rows.iter().flat_map(count).collect() }
    }
}

/// Returns the rates of the databases in which something was done.
pub(super) fn summarize(readings: &[Reading], span: Span) -> BTreeMap<String, DatabaseUse> {
    let Some(last) = readings.iter().min_by_key(|reading| {
        let (at, closed) = (reading.at, span.closed);
        at.saturating_duration_since(closed).max(closed.saturating_duration_since(at))
    }) else {
        return BTreeMap::new();
    };
    let latest = span.opened.min(last.at.checked_sub(MIN_SPAN).unwrap_or(span.opened));
    let before = readings.iter().take_while(|reading| reading.at <= latest).last();
    let Some(first) = before.or(readings.first()) else { return BTreeMap::new() };
    let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
    let rates = last.counts.iter().filter_map(|(name, now)| {
        let then = first.counts.get(name)?;
        let [transactions, tuples, blocks] = std::array::from_fn(|i| (now[i] - then[i]) / seconds);
        // Less than before: somebody reset the statistics.
        let is_work = seconds > 0.0 && transactions >= 0.0 && transactions + tuples + blocks > 0.0;
        is_work.then(|| (name.clone(), DatabaseUse { transactions, tuples, blocks }))
    });
    rates.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_window_is_judged_by_the_seconds_before_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let reading = |ms, work: f64| Reading {
            at: at(ms),
            counts: [("busy", work), ("idle", 7.0)]
                .map(|(name, n)| (name.to_owned(), [n, 2.0 * n, 10.0 * n]))
                .into(),
        };
        let all =
            [reading(0, 0.0), reading(1000, 100.0), reading(5000, 500.0), reading(5300, 500.0)];
        let span = Span { opened: at(5000), closed: at(5300) };
        let found = summarize(&all, span);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["busy"]);
        let DatabaseUse { transactions, tuples, blocks } = found["busy"];
        assert!((transactions - 400.0 / 4.3).abs() < 1e-9, "{transactions}");
        assert!((tuples - 800.0 / 4.3).abs() < 1e-9 && (blocks - 4000.0 / 4.3).abs() < 1e-9);
        assert!(summarize(&all[..1], span).is_empty() && summarize(&[], span).is_empty());
    }
}
