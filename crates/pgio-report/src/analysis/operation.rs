//! The operation whose mean time is shown beside the answer, because it explains the answer.

use pgio_results::metrics;
use pgio_results::operation::{Class, Statistic};

/// The operations whose time is shown, with their metrics: the first one that was measured.
pub(crate) const OPERATIONS: [(&str, &str); 5] = [
    ("commit", metrics::latency_name(Class::Commit, Statistic::Mean)),
    ("transaction", metrics::latency_name(Class::Transaction, Statistic::Mean)),
    ("update", metrics::latency_name(Class::Update, Statistic::Mean)),
    ("read", metrics::latency_name(Class::Read, Statistic::Mean)),
    ("delivery", metrics::latency_name(Class::Delivery, Statistic::Mean)),
];

/// The first operation whose metric `has` a value in any condition.
pub(crate) fn shown(has: impl Fn(&str) -> bool) -> Option<(&'static str, &'static str)> {
    OPERATIONS.into_iter().find(|(_, mean)| has(mean))
}
