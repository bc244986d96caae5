//! The statistics of a class of operations, and the metrics that hold them.
//!
//! One place knows both ways: what is recorded of a histogram under which name, and which
//! class and statistic a metric's name stands for. Next: `metrics` for the names' meaning.

use super::metrics;
use crate::histogram::{Histogram, Reading};

/// What is recorded beside mean and maximum; in names a point becomes an underscore.
pub const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.50), ("p95", 0.95), ("p99", 0.99), ("p99_9", 0.999)];

/// Operations slower than a percentile, in every trial that is compared by it: of fewer it is the
/// latency of single operations.
pub const FEWEST_BEYOND: f64 = 20.0;

/// What an open loop is judged by: the first of these that its calls are enough for, with room for
/// arrivals that are drawn.
const JUDGED: [(&str, f64); 2] = [("p99", 0.99), ("p95", 0.95)];
const ROOM: f64 = 1.1;

/// The class of how late calls are sent, which is no latency of the server's.
const LAG: &str = "lag";
const LAG_PREFIX: &str = "schedule_lag_";
const INFIX: &str = "_latency_";

/// By name, of everything that was recorded in the class.
pub fn of_class(class: &str, h: &Histogram) -> Vec<(String, Reading)> {
    let name = |statistic: &str| match class {
        LAG => format!("{LAG_PREFIX}{statistic}"),
        _ => format!("{class}{INFIX}{statistic}"),
    };
    let quantiles = QUANTILES.iter().map(|(suffix, q)| (*suffix, h.quantile(*q)));
    let all = [("mean", h.mean())].into_iter().chain(quantiles).chain([("max", h.longest())]);
    all.filter_map(|(statistic, reading)| Some((name(statistic), reading?))).collect()
}

/// The class and the quantile that a metric is of; `None` where it is no percentile.
pub fn percentile(metric: &str) -> Option<(&str, f64)> {
    let (class, statistic) = match metric.strip_prefix(LAG_PREFIX) {
        Some(statistic) => (LAG, statistic),
        None => metric.split_once(INFIX)?,
    };
    let (_, q) = QUANTILES.iter().find(|(suffix, _)| *suffix == statistic)?;
    Some((class, *q))
}

/// Operations in a trial that leave enough of them beyond a quantile.
pub fn needed(q: f64) -> u64 {
    (FEWEST_BEYOND / (1.0 - q)).round() as u64
}

/// The metric to judge a class by in which so many operations are expected; without a percentile
/// that can be compared it is the mean.
pub fn primary(class: &str, operations: f64) -> &'static str {
    let enough = |(_, q): &&(&str, f64)| operations >= ROOM * needed(*q) as f64;
    let statistic = JUDGED.iter().find(enough).map_or("mean", |(statistic, _)| *statistic);
    let name = format!("{class}{INFIX}{statistic}");
    metrics::definition(&name).expect("every class has these in the table").name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_judged_where_enough_lie_beyond_it() {
        assert_eq!([0.5, 0.95, 0.99, 0.999].map(needed), [40, 400, 2000, 20_000]);
        assert_eq!(primary("read", 4000.0), "read_latency_p99");
        assert_eq!(primary("transaction", 2100.0), "transaction_latency_p95");
        assert_eq!(primary("delivery", 120.0), "delivery_latency_mean");
    }
    use crate::metrics::METRICS;

    #[test]
    fn every_statistic_of_every_class_is_in_the_table() {
        let mut h = Histogram::default();
        h.record(1e6);
        let latencies = METRICS.iter().filter_map(|m| m.name.strip_suffix("_latency_p50"));
        for class in latencies.chain([LAG]) {
            for (name, _) in of_class(class, &h) {
                assert!(METRICS.iter().any(|m| m.name == name), "{name}");
            }
        }
        assert_eq!(of_class("read", &Histogram::default()), []);
    }

    #[test]
    fn names_of_percentiles_are_read() {
        assert_eq!(percentile("read_latency_p99_9"), Some(("read", 0.999)));
        assert_eq!(percentile("schedule_lag_p50"), Some((LAG, 0.5)));
        for name in ["read_latency_mean", "read_latency_max", "riops", "schedule_lag_mean"] {
            assert_eq!(percentile(name), None, "{name}");
        }
    }
}
