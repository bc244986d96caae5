//! The statistics of a class of operations, and the metrics that hold them.
//!
//! One place knows both ways: what is recorded of a histogram under which name, and which
//! class and statistic a metric's name stands for. Next: `metrics` for the names' meaning.

use crate::histogram::{Histogram, Reading};

/// What is recorded beside mean and maximum; in names a point becomes an underscore.
pub const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.50), ("p95", 0.95), ("p99", 0.99), ("p99_9", 0.999)];

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::metrics::METRICS;

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
