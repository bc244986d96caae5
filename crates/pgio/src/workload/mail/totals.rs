//! The counts of all mail sessions as the totals and the timeline of a trial.

use std::collections::BTreeMap;

use pgio_mail::tally::{Completed, Tally};

use crate::workload::Totals;
use pgio_results::model::Slice;
use pgio_results::operation::Class;

/// Returns the complete slices of a window of this length. Those of an open loop have latencies, and
/// the last one contains the censored messages.
pub(super) fn timeline(tally: &Tally, slice: f64, seconds: f64, is_paced: bool) -> Vec<Slice> {
    let slice_count = (seconds / slice + 1e-6) as usize;
    let completed = tally.slices.iter().cloned().chain(std::iter::repeat(Completed::default()));
    let at = (1..=slice_count).map(|number| slice * number as f64);
    let one = |(at, completed): (f64, Completed)| Slice {
        at,
        seconds: slice,
        messages: completed.messages,
        timed: if is_paced { completed.messages } else { 0 },
        latency_seconds: if is_paced { completed.latency.as_secs_f64() } else { 0.0 },
        ..Slice::default()
    };
    let mut slices: Vec<Slice> = at.zip(completed).map(one).collect();
    if let (Some(last), Some(cut), true) = (slices.last_mut(), tally.latency.censored(), is_paced) {
        last.timed += cut.count();
        last.latency_seconds += cut.sum_ns() / 1e9;
    }
    slices
}

pub(super) fn totals(tally: &Tally) -> Totals {
    let counts = [
        ("messages", tally.messages),
        ("bytes", tally.bytes),
        ("recipients", tally.recipients),
        ("refused", tally.refused),
        ("deferred", tally.deferred),
        ("unknown", tally.unknown),
        ("undelivered", tally.undelivered),
        ("left_over", tally.left_over),
        ("retries", tally.retries),
        ("dropped", tally.dropped),
        ("due", tally.due),
        ("scheduled", tally.scheduled),
        ("lag_us", tally.lag.as_micros() as u64),
        ("unbegun", tally.unbegun),
        ("unbegun_lag_us", tally.unbegun_lag.as_micros() as u64),
    ];
    let counts = counts.map(|(name, n)| (name.to_owned(), n as f64)).into();
    let histograms = BTreeMap::from([(Class::Delivery.name().to_owned(), tally.latency.clone())]);
    Totals { histograms, counts, ..Totals::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_the_timeline_of_an_open_loop_has_latencies() {
        let completed = |messages, ms| Completed { messages, latency: Duration::from_millis(ms) };
        let slices = vec![
            completed(2, 100),
            completed(4, 200),
            completed(0, 0),
            completed(0, 0),
            completed(2, 100),
        ];
        let mut tally = Tally { messages: 8, slices, ..Tally::default() };
        let closed = timeline(&tally, 0.5, 2.0, false);
        assert!(closed.iter().all(|s| s.timed == 0 && s.latency_seconds == 0.0));
        assert_eq!(closed.iter().map(|s| s.messages).collect::<Vec<_>>(), [2, 4, 0, 0]);
        assert_eq!(closed[3].at, 2.0);
        assert_eq!(totals(&tally).counted("messages"), 8.0);
        tally.latency.record_censored(2e9, 3);
        let paced = timeline(&tally, 0.5, 2.0, true);
        assert_eq!(paced.iter().map(|s| s.timed).collect::<Vec<_>>(), [2, 4, 0, 3]);
        assert!((paced[1].latency_seconds - 0.2).abs() < 1e-9 && paced[3].latency_seconds > 5.9);
    }
}
