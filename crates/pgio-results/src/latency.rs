//! Latency statistics of a class of operations, and their metrics.
//!
//! Converts in both directions: from a histogram to named metrics, and from a metric's name to
//! class and statistic. Next: `metrics` for the meaning of the names.

use super::metrics;
use crate::histogram::{Histogram, Reading};

/// Quantiles recorded in addition to mean and maximum; in names, an underscore replaces the point.
pub const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.50), ("p95", 0.95), ("p99", 0.99), ("p99_9", 0.999)];

/// Minimum number of operations beyond a percentile in every compared trial; with fewer, the
/// percentile is the latency of single operations.
pub const MIN_BEYOND: f64 = 20.0;

/// Percentiles by which an open loop is judged, in order of preference. The first one with enough
/// operations is used, with a margin for random arrivals.
const PREFERRED: [(&str, f64); 2] = [("p99", 0.99), ("p95", 0.95)];
const MARGIN: f64 = 1.1;

/// The class for the delay of sending calls, which is not a latency of the server.
const LAG: &str = "lag";
const LAG_PREFIX: &str = "schedule_lag_";
const INFIX: &str = "_latency_";

/// Statistics of a class by metric name.
pub fn of_class(class: &str, h: &Histogram) -> Vec<(String, Reading)> {
    let name = |statistic: &str| match class {
        LAG => format!("{LAG_PREFIX}{statistic}"),
        _ => format!("{class}{INFIX}{statistic}"),
    };
    let quantiles = QUANTILES.iter().map(|(suffix, q)| (*suffix, h.quantile(*q)));
    let all = [("mean", h.mean())].into_iter().chain(quantiles).chain([("max", h.longest())]);
    all.filter_map(|(statistic, reading)| Some((name(statistic), reading?))).collect()
}

/// Class and quantile of a metric; `None` if it is not a percentile.
pub fn percentile(metric: &str) -> Option<(&str, f64)> {
    let (class, statistic) = match metric.strip_prefix(LAG_PREFIX) {
        Some(statistic) => (LAG, statistic),
        None => metric.split_once(INFIX)?,
    };
    let (_, q) = QUANTILES.iter().find(|(suffix, _)| *suffix == statistic)?;
    Some((class, *q))
}

/// Number of operations needed so that enough of them are beyond a quantile.
pub fn needed(q: f64) -> u64 {
    (MIN_BEYOND / (1.0 - q)).round() as u64
}

/// The primary metric of a class for an expected number of operations; the mean if no percentile is
/// comparable.
pub fn primary(class: &str, operations: f64) -> &'static str {
    let enough = |(_, q): &&(&str, f64)| operations >= MARGIN * needed(*q) as f64;
    let statistic = PREFERRED.iter().find(enough).map_or("mean", |(statistic, _)| *statistic);
    let name = format!("{class}{INFIX}{statistic}");
    metrics::definition(&name).expect("the table has these statistics of every class").name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_primary_if_enough_operations_are_beyond_it() {
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
    fn parses_names_of_percentiles() {
        assert_eq!(percentile("read_latency_p99_9"), Some(("read", 0.999)));
        assert_eq!(percentile("schedule_lag_p50"), Some((LAG, 0.5)));
        for name in ["read_latency_mean", "read_latency_max", "riops", "schedule_lag_mean"] {
            assert_eq!(percentile(name), None, "{name}");
        }
    }
}
