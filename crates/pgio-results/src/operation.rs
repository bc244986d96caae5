//! Classes of operations, the statistics of their latencies, and the work that they do.
//!
//! A latency metric is a class × a statistic. Its stored name, such as `commit_latency_p99`, stands in
//! the table of `metrics` and nowhere else.

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
