//! Latency metrics of a class of operations: which are recorded, and which one a class is judged by.
//!
//! Next: `metrics` for the table of stored names.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::metrics::{self, Kind};
use crate::histogram::{Histogram, Reading};

/// Minimum number of operations beyond a percentile in every compared trial; with fewer, the
/// percentile is the latency of single operations.
pub const MIN_BEYOND: f64 = 20.0;

/// Percentiles by which an open loop is judged, in order of preference. The first one with enough
/// operations is used, with a margin for random arrivals.
const PREFERRED: [Statistic; 2] = [Statistic::P99, Statistic::P95];
const MARGIN: f64 = 1.1;

/// Statistics of a class by metric name.
pub fn class_metrics(class: Class, h: &Histogram) -> Vec<(&'static str, Reading)> {
    let reading = |statistic: Statistic| match statistic {
        Statistic::Mean => h.mean(),
        Statistic::Max => h.max(),
        Statistic::P50 | Statistic::P95 | Statistic::P99 | Statistic::P99_9 => {
            h.quantile(statistic.quantile()?)
        }
    };
    let one = |s: Statistic| Some((metrics::latency_metric(class, s)?.name, reading(s)?));
    Statistic::ALL.into_iter().filter_map(one).collect()
}

/// Number of operations needed so that enough of them are beyond a quantile.
pub fn min_operations(q: f64) -> u64 {
    (MIN_BEYOND / (1.0 - q)).round() as u64
}

/// The primary metric of a class for an expected number of operations; the mean if no percentile is
/// comparable.
pub fn primary(class: Class, operations: f64) -> &'static str {
    let enough = |s: &Statistic| {
        s.quantile().is_some_and(|q| operations >= MARGIN * min_operations(q) as f64)
    };
    metrics::latency_name(class, PREFERRED.into_iter().find(enough).unwrap_or(Statistic::Mean))
}

/// The operation that a session waits for from end to end: one of pgio's classes, or one that a
/// command measures and names itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Operation {
    Ours(Class),
    Declared(String),
}

/// Separates the name of a command's operation from its statistic.
const INFIX: &str = "_latency_";

impl Operation {
    /// The operation of which a metric is the mean latency, if it is one.
    pub fn from_mean(metric: &str) -> Option<Operation> {
        match metrics::definition(metric).map(|def| def.kind) {
            Some(Kind::Latency(Class::Lag, _)) => None,
            Some(Kind::Latency(class, Statistic::Mean)) => Some(Operation::Ours(class)),
            Some(_) => None,
            None => {
                let (name, statistic) = metric.rsplit_once(INFIX)?;
                (statistic == "mean").then(|| Operation::Declared(name.to_owned()))
            }
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Operation::Ours(class) => class.name(),
            Operation::Declared(name) => name,
        }
    }

    /// The name of the metric of one of its statistics.
    pub fn metric(&self, statistic: Statistic) -> Option<Cow<'static, str>> {
        match self {
            Operation::Ours(class) => {
                metrics::latency_metric(*class, statistic).map(|def| Cow::Borrowed(def.name))
            }
            Operation::Declared(name) => {
                let suffix = statistic.label().replace('.', "_");
                Some(Cow::Owned(format!("{name}{INFIX}{suffix}")))
            }
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Operation> for String {
    fn from(operation: Operation) -> String {
        operation.name().to_owned()
    }
}

impl From<String> for Operation {
    fn from(name: String) -> Operation {
        Class::named(&name).map_or(Operation::Declared(name), Operation::Ours)
    }
}

/// A class of operations that pgio times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Read,
    Update,
    Scan,
    Insert,
    Delete,
    Commit,
    /// An INSERT transaction, its commit included.
    Transaction,
    /// Any call of a mix, its commit included; known by its mean alone.
    Call,
    /// A message handed over to a mail server.
    Delivery,
    /// One I/O of the workload `device`.
    Device,
    /// How late a call was sent in an open loop, which is no latency of the server's.
    Lag,
}

impl Class {
    pub const ALL: [Class; 11] = [
        Class::Read,
        Class::Update,
        Class::Scan,
        Class::Insert,
        Class::Delete,
        Class::Commit,
        Class::Transaction,
        Class::Call,
        Class::Delivery,
        Class::Device,
        Class::Lag,
    ];

    /// As histograms are stored.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Read => "read",
            Class::Update => "update",
            Class::Scan => "scan",
            Class::Insert => "insert",
            Class::Delete => "delete",
            Class::Commit => "commit",
            Class::Transaction => "transaction",
            Class::Call => "call",
            Class::Delivery => "delivery",
            Class::Device => "device",
            Class::Lag => "lag",
        }
    }

    pub fn named(name: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.name() == name)
    }
}

/// A statistic of the latencies of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statistic {
    Mean,
    P50,
    P95,
    P99,
    P99_9,
    Max,
}

impl Statistic {
    pub const ALL: [Statistic; 6] = [
        Statistic::Mean,
        Statistic::P50,
        Statistic::P95,
        Statistic::P99,
        Statistic::P99_9,
        Statistic::Max,
    ];

    pub const PERCENTILES: [Statistic; 4] =
        [Statistic::P50, Statistic::P95, Statistic::P99, Statistic::P99_9];

    /// As people read it.
    pub const fn label(self) -> &'static str {
        match self {
            Statistic::Mean => "mean",
            Statistic::P50 => "p50",
            Statistic::P95 => "p95",
            Statistic::P99 => "p99",
            Statistic::P99_9 => "p99.9",
            Statistic::Max => "max",
        }
    }

    /// `None` for what is no percentile.
    pub const fn quantile(self) -> Option<f64> {
        match self {
            Statistic::P50 => Some(0.50),
            Statistic::P95 => Some(0.95),
            Statistic::P99 => Some(0.99),
            Statistic::P99_9 => Some(0.999),
            Statistic::Mean | Statistic::Max => None,
        }
    }
}

/// The work of a workload that the slices of a timeline count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    BlockVisits,
    RowsUpdated,
    Commits,
    Messages,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_primary_if_enough_operations_are_beyond_it() {
        assert_eq!([0.5, 0.95, 0.99, 0.999].map(min_operations), [40, 400, 2000, 20_000]);
        assert_eq!(primary(Class::Read, 4000.0), "read_latency_p99");
        assert_eq!(primary(Class::Transaction, 2100.0), "transaction_latency_p95");
        assert_eq!(primary(Class::Delivery, 120.0), "delivery_latency_mean");
    }

    #[test]
    fn every_statistic_of_every_class_is_in_the_table() {
        let mut h = Histogram::default();
        h.record(1e6);
        for class in Class::ALL.into_iter().filter(|class| *class != Class::Call) {
            let names: Vec<&str> =
                class_metrics(class, &h).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names.len(), Statistic::ALL.len(), "{class:?}");
            assert!(names.iter().all(|name| metrics::definition(name).is_some()), "{names:?}");
        }
        assert_eq!(class_metrics(Class::Read, &Histogram::default()), []);
    }

    #[test]
    fn percentiles_are_typed_in_the_table() {
        let percentile = |name: &str| match metrics::definition(name).unwrap().kind {
            Kind::Latency(class, statistic) => statistic.quantile().map(|q| (class, q)),
            Kind::Work(_) | Kind::Mean(_) | Kind::Quantity | Kind::Declared => None,
        };
        assert_eq!(percentile("read_latency_p99_9"), Some((Class::Read, 0.999)));
        assert_eq!(percentile("schedule_lag_p50"), Some((Class::Lag, 0.5)));
        for name in ["read_latency_mean", "read_latency_max", "riops", "schedule_lag_mean"] {
            assert_eq!(percentile(name), None, "{name}");
        }
    }

    #[test]
    fn a_command_names_its_own_operation() {
        let own = Operation::from_mean("new_order_latency_mean").unwrap();
        assert_eq!(own.metric(Statistic::P99_9).as_deref(), Some("new_order_latency_p99_9"));
        assert_eq!(Operation::from_mean("scan_latency_mean"), Some(Operation::Ours(Class::Scan)));
        for name in ["scan_latency_p99", "new_order_latency_p99", "schedule_lag_mean", "tps"] {
            assert_eq!(Operation::from_mean(name), None, "{name}");
        }
        let text = serde_json::to_string(&[Operation::Ours(Class::Call), own.clone()]).unwrap();
        assert_eq!(text, r#"["call","new_order"]"#);
        let read: Vec<Operation> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, [Operation::Ours(Class::Call), own]);
    }
}
