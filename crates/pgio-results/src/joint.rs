//! Trials whose window several servers shared: the metrics of single servers, and their clocks; or of which several
//! drivers generated the load.
//!
//! The trial's own fields describe all servers together: rates are sums, latencies cover all operations;
//! `model::TargetResult` is what belongs to one server.
//! Metrics of one server that are compared between conditions are also among the trial's metrics, as
//! `METRIC@TARGET`; the manifest declares them ([`declare_metrics`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
#[cfg(feature = "schema")]
use crate::histogram::HistogramV1;
use crate::metrics::{self, DeclaredMetric, Direction, OfTarget};

/// A server's clock against the coordinator's monotonic one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClockOffset {
    /// The quickest and the slowest round trip before the window, in seconds.
    pub round_trip_seconds: f64,
    pub slowest_seconds: f64,
    /// When its first session began, in seconds after the agreed moment, by the reading before the window.
    pub began_seconds: f64,
    /// How far its clock moved against the coordinator's between the readings before and after the window;
    /// absent if it was not read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_seconds: Option<f64>,
}

impl ClockOffset {
    /// When its first session began, in seconds after the agreed moment: the earliest and the latest that the two
    /// readings allow.
    pub fn began(&self) -> (f64, f64) {
        let again = self.began_seconds - self.moved_seconds.unwrap_or(0.0);
        (self.began_seconds.min(again), self.began_seconds.max(again))
    }
}

/// The share of the sum of the primary metric.
pub const SHARE: &str = "share";

/// Metrics of one server that are compared between conditions, beside the primary one.
const COMPARED: &[&str] =
    &["read_latency_p99", "update_latency_p99", "commit_latency_p99", "transaction_latency_p99"];

/// The name of one server's metric among its trial's metrics.
pub fn metric_name(metric: &str, target: &str) -> String {
    format!("{metric}@{target}")
}

/// Splits the name of one server's metric into metric and target; `None` for a metric of all servers.
pub fn split_name(name: &str) -> Option<(&str, &str)> {
    name.split_once('@')
}

/// The metric's name without a server.
pub fn base_metric(name: &str) -> &str {
    split_name(name).map_or(name, |(metric, _)| metric)
}

/// Returns the metrics that an experiment judges for single servers: the primary one first, then those that
/// `also_judge` names for a server.
pub fn judged_metrics<'a>(primary: &'a str, also_judge: &'a [String]) -> Vec<&'a str> {
    let mut all = vec![base_metric(primary)];
    all.extend(also_judge.iter().filter_map(|name| Some(split_name(name)?.0)));
    all
}

/// Returns the metrics of single servers that a trial holds: the judged ones and `COMPARED`.
pub fn compared_metrics<'a>(judged: &[&'a str]) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for name in judged.iter().chain(COMPARED) {
        if !all.contains(name) {
            all.push(name);
        }
    }
    all
}

/// Declares the metrics of single servers for the manifest.
pub fn declare_metrics(judged: &[&str], targets: &[String]) -> Vec<DeclaredMetric> {
    let mut all = Vec::new();
    for target in targets {
        let one_target = |metric: &str, unit: &str, better| DeclaredMetric {
            name: metric_name(metric, target),
            unit: unit.to_owned(),
            better,
            of: Some(OfTarget { metric: metric.to_owned(), target: target.clone() }),
        };
        let built_in = compared_metrics(judged).into_iter().filter_map(metrics::definition);
        all.extend(built_in.map(|def| one_target(def.name, def.unit, def.direction)));
        all.push(one_target(SHARE, "share", Direction::Neutral));
    }
    all
}

/// One of several processes that generated the load, each with its range of the sessions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "DriverPart"))]
pub struct GeneratorPart {
    /// From 0.
    pub rank: u32,
    /// The name of its host, as the host says.
    pub host: String,
    /// The addresses of its sessions, as the server sees them; empty for a Unix-domain socket.
    pub addresses: Vec<String>,
    /// Its first session among the trial's, from 0, and how many it had.
    pub first_session: u32,
    pub sessions: u32,
    /// Its calls that were answered.
    pub calls: u64,
    /// Seconds from the common start to its last answer.
    pub seconds: f64,
    /// Seconds by which it opened its window after the common start, on the coordinator's clock.
    pub opened_late_seconds: f64,
    /// The quickest and the slowest of the round trips from which its clock's offset was taken.
    pub round_trip_seconds: f64,
    pub worst_round_trip_seconds: f64,
    /// CPU time of its process inside the window, and the processors that it may use.
    pub cpu_seconds: f64,
    pub cores: u32,
    /// Histograms by class of operation; the trial's are their sums.
    #[serde(with = "crate::histogram")]
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, HistogramV1>"))]
    pub histograms: BTreeMap<String, Histogram>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_of_each_target_are_declared_with_unit_and_direction() {
        let targets = ["a", "b"].map(str::to_owned);
        let all = declare_metrics(&["commits_per_second"], &targets);
        let names: Vec<&str> = all.iter().map(|m| m.name.as_str()).collect();
        assert!(names.contains(&"commits_per_second@a") && names.contains(&"share@b"), "{names:?}");
        let find = |name: &str| all.iter().find(|m| m.name == name).unwrap();
        assert_eq!(find("commits_per_second@b").unit, "commits/s");
        assert_eq!(find("commit_latency_p99@a").better, Direction::LowerIsFaster);
        let expected = OfTarget { metric: SHARE.to_owned(), target: "b".to_owned() };
        assert_eq!(find("share@b").of.as_ref(), Some(&expected));
    }

    #[test]
    fn a_metric_that_is_judged_for_one_server_is_declared_for_all() {
        let also = ["riops@a", "riops", "commits_per_second@b"].map(str::to_owned);
        let judged = judged_metrics("commits_per_second", &also);
        assert_eq!(judged, ["commits_per_second", "riops", "commits_per_second"]);
        assert_eq!(compared_metrics(&judged)[..2], ["commits_per_second", "riops"]);
    }

    #[test]
    fn a_primary_latency_is_declared_once() {
        assert_eq!(compared_metrics(&["commit_latency_p99"]).len(), COMPARED.len());
    }

    #[test]
    fn a_clock_that_moved_widens_the_moment_of_the_start() {
        let clock = ClockOffset { began_seconds: 0.001, ..ClockOffset::default() };
        assert_eq!(clock.began(), (0.001, 0.001));
        let moved = ClockOffset { moved_seconds: Some(-0.02), ..clock };
        assert_eq!(moved.began(), (0.001, 0.021));
    }
}
