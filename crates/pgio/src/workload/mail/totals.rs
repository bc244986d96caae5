//! The counts of all mail sessions as the totals and the timeline of a trial.

use std::collections::BTreeMap;

use pgio_mail::tally::{Completed, Tally};

use crate::workload::Totals;
use pgio_results::model::Slice;
use pgio_results::operation::Class;

/// Returns the slices of a window that was planned for this many seconds; the last one contains what was answered after
/// them. In an open loop they have latencies, and the last one contains the censored messages.
pub(super) fn timeline(tally: &Tally, slice: f64, seconds: f64, is_paced: bool) -> Vec<Slice> {
    let slice_count = (seconds / slice + 1e-6) as usize;
    let empty =
        |number: usize| Slice { at: slice * number as f64, seconds: slice, ..Slice::default() };
    let mut slices: Vec<Slice> = (1..=slice_count).map(empty).collect();
    for (number, Completed { messages, latency }) in tally.slices.iter().enumerate() {
        let Some(one) = slices.get_mut(number.min(slice_count.saturating_sub(1))) else { break };
        one.messages += messages;
        if is_paced {
            one.timed += messages;
            one.latency_seconds += latency.as_secs_f64();
        }
    }
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
        // Two were answered after the planned end.
        assert_eq!(closed.iter().map(|s| s.messages).collect::<Vec<_>>(), [2, 4, 0, 2]);
        assert_eq!(closed[3].at, 2.0);
        assert_eq!(totals(&tally).counted("messages"), 8.0);
        tally.latency.record_censored(2e9, 3);
        let paced = timeline(&tally, 0.5, 2.0, true);
        assert_eq!(paced.iter().map(|s| s.messages).sum::<u64>(), 8);
        assert_eq!(paced.iter().map(|s| s.timed).collect::<Vec<_>>(), [2, 4, 0, 5]);
        assert!((paced[1].latency_seconds - 0.2).abs() < 1e-9);
        assert!((paced[3].latency_seconds - 6.1).abs() < 1e-3, "{}", paced[3].latency_seconds);
    }
}
