//! What a metric is: its name, its unit, what it measures, and which direction is better.

use serde::{Deserialize, Serialize};

use crate::operation::{Class, Statistic, Work};

/// The better direction of a metric, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Direction {
    #[serde(rename = "higher")]
    HigherIsFaster,
    #[serde(rename = "lower")]
    LowerIsFaster,
    /// Neither direction is better, as for bytes of WAL.
    #[serde(rename = "neither")]
    Neutral,
}

impl Direction {
    /// The name in an experiment file, and in stored records.
    pub fn name(self) -> &'static str {
        match self {
            Self::HigherIsFaster => "higher",
            Self::LowerIsFaster => "lower",
            Self::Neutral => "neither",
        }
    }
}

/// What a metric measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A statistic of the latencies of a class of operations.
    Latency(Class, Statistic),
    /// Follows from work that the slices of a timeline count.
    Work(Work),
    /// Any other rate, share or count.
    Quantity,
    /// Whatever a command prints, or a server's share.
    Declared,
}

#[derive(Debug, Clone, Copy)]
pub struct MetricDef<'a> {
    pub name: &'a str,
    pub kind: Kind,
    pub unit: &'a str,
    pub direction: Direction,
    pub help: &'a str,
    /// The server, if it is a metric of one of several servers.
    pub target: Option<&'a str>,
}

/// A metric declared by an experiment, as stored in its manifest: printed by its command, or of one of several
/// servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeclaredMetric {
    pub name: String,
    pub unit: String,
    pub better: Direction,
    /// The metric and the server, if it is one of pgio's metrics of one of several servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<OfTarget>,
}

/// Which metric of which server a declared metric is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OfTarget {
    pub metric: String,
    pub target: String,
}

impl DeclaredMetric {
    pub fn definition(&self) -> MetricDef<'_> {
        let Self { name, unit, better, of } = self;
        let help = if of.is_some() { "of one server" } else { "as printed by the command" };
        // A percentile of one server is no more reliable than that of all.
        let summed = of.as_ref().and_then(|of| super::definition(&of.metric));
        let kind = summed.map_or(Kind::Declared, |def| def.kind);
        let target = of.as_ref().map(|of| of.target.as_str());
        MetricDef { name, kind, unit, direction: *better, help, target }
    }
}
