//! The single servers of conditions that run on several in one window: each one's part, its effect, and which
//! servers differ from all others.
//!
//! The effect is the comparison of the server's own metric (`METRIC@TARGET`), judged with the other secondary
//! metrics. Outliers are found among the servers of one condition by `benchmath::outliers`: by their effects, and
//! under the baseline by their values.

use benchmath::outliers;
use serde::{Deserialize, Serialize};

use super::comparison::{Bound, Comparison, Interval, Verdict};
use super::condition::Condition;
use pgio_results::joint::{self, SHARE};
use pgio_results::store::Manifest;

/// One server under one condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ServerV1"))]
pub struct Server {
    pub condition: String,
    pub target: String,
    /// The metric of which this is the server's own value.
    pub metric: String,
    pub value: Option<f64>,
    /// Its part of the condition's sum; null if the metric is no rate.
    pub share: Option<f64>,
    /// The condition's value divided by the baseline's, on this server; null for the baseline, and if the
    /// baseline does not run on it.
    pub ratio: Option<f64>,
    pub ratio_low: Option<f64>,
    pub ratio_high: Option<f64>,
    /// Whether the ratio is only a bound, as in a comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    pub verdict: Option<Verdict>,
    /// Distance from the median of the condition's servers, as a modified z-score of logarithms; null with fewer
    /// than five servers.
    pub deviation: Option<f64>,
    pub outlier: bool,
}

impl Server {
    /// The interval of the ratio.
    pub fn interval(&self) -> Interval {
        Interval { low: self.ratio_low, high: self.ratio_high }
    }
}

/// Returns the servers by condition; empty if every condition has one server.
pub(super) fn all(
    manifest: &Manifest,
    conditions: &[Condition],
    comparisons: &[Comparison],
) -> Vec<Server> {
    let primary = joint::base_metric(&manifest.primary_metric);
    let declared = manifest.metrics.iter().filter_map(|metric| metric.of.as_ref());
    let targets: Vec<&str> =
        declared.filter(|of| of.metric == primary).map(|of| of.target.as_str()).collect();
    let mut all = Vec::new();
    for condition in conditions {
        let server_comparison =
            |target: &&str| server(manifest, condition, (primary, target), comparisons);
        let mut servers: Vec<Server> = targets.iter().filter_map(server_comparison).collect();
        mark_outliers(&mut servers, condition.name == manifest.baseline);
        all.extend(servers);
    }
    all
}

/// Returns none if the condition does not run on the server.
fn server(
    manifest: &Manifest,
    condition: &Condition,
    (primary, target): (&str, &str),
    comparisons: &[Comparison],
) -> Option<Server> {
    let metric = joint::metric_name(primary, target);
    let value = condition.metrics.get(&metric)?.value;
    let share = condition.metrics.get(&joint::metric_name(SHARE, target)).and_then(|m| m.value);
    let is_baseline = condition.name == manifest.baseline;
    let compared = comparisons.iter().find(|c| c.condition == condition.name && c.metric == metric);
    let compared = compared.filter(|_| !is_baseline);
    Some(Server {
        condition: condition.name.clone(),
        target: target.to_owned(),
        metric: primary.to_owned(),
        value,
        share,
        ratio: compared.and_then(|c| c.ratio),
        ratio_low: compared.and_then(|c| c.interval.low),
        ratio_high: compared.and_then(|c| c.interval.high),
        bound: compared.and_then(|c| c.bound),
        verdict: compared.map(|c| c.verdict),
        deviation: None,
        outlier: false,
    })
}

/// Marks outliers among the servers that have an estimate. An effect of which only a bound is known is none.
fn mark_outliers(servers: &mut [Server], by_value: bool) {
    let estimate = |s: &Server| {
        let value = if by_value { s.value } else { s.ratio.filter(|_| s.bound.is_none()) };
        value.filter(|v| *v > 0.0).map(f64::ln)
    };
    let (logs, known): (Vec<f64>, Vec<&mut Server>) =
        servers.iter_mut().filter_map(|s| Some((estimate(s)?, s))).unzip();
    let Some(scores) = outliers::modified_z(&logs) else { return };
    let limit = outliers::limit(scores.len());
    for (server, score) in known.into_iter().zip(scores) {
        server.deviation = Some(score);
        server.outlier = score.abs() > limit;
    }
}

#[cfg(test)]
mod tests {
    use super::super::analyze;
    use super::super::test_support::{experiment, trial};
    use super::*;
    use pgio_results::model::{Metric, Trial};

    /// Six blocks of `base` and `slow` on these servers; `rate` is a server's rate under a condition.
    fn servers(names: &[&str], rate: impl Fn(&str, &str, u32) -> f64) -> Vec<Server> {
        let one = |condition: &str, block: u32| -> Trial {
            let mut trial = trial(condition, block, &[]);
            let rates: Vec<f64> = names.iter().map(|name| rate(condition, name, block)).collect();
            let sum: f64 = rates.iter().sum();
            let mut put = |name: String, value: f64| {
                trial.metrics.insert(name, Metric::new(Some(value), ""));
            };
            put("commits_per_second".to_owned(), sum);
            for (name, rate) in names.iter().zip(rates) {
                put(joint::metric_name("commits_per_second", name), rate);
                put(joint::metric_name(SHARE, name), rate / sum);
            }
            trial
        };
        let trials = (1..=6).flat_map(|block| ["base", "slow"].map(|c| one(c, block))).collect();
        let mut stored = experiment(&["base", "slow"], trials);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        stored.manifest.baseline = "base".to_owned();
        stored.manifest.primary_metric = "commits_per_second".to_owned();
        stored.manifest.metrics = joint::declare_metrics(&["commits_per_second"], &names);
        analyze(&stored).servers
    }

    #[test]
    fn each_server_has_its_share_and_its_effect() {
        let found = servers(&["a", "b"], |condition, name, block| {
            let rate = if name == "a" { 300.0 } else { 100.0 };
            let slow = if condition == "slow" && name == "b" { 0.5 } else { 1.0 };
            rate * slow * (1.0 + 0.001 * f64::from(block))
        });
        let compared = |condition: &str, target: &str| {
            found.iter().find(|s| s.condition == condition && s.target == target).unwrap()
        };
        assert!((compared("base", "a").share.unwrap() - 0.75).abs() < 1e-6);
        assert_eq!((compared("base", "a").ratio, compared("base", "b").verdict), (None, None));
        assert!((compared("slow", "b").ratio.unwrap() - 0.5).abs() < 1e-6);
        assert!((compared("slow", "a").ratio.unwrap() - 1.0).abs() < 1e-6);
        // Two servers have no median to be far from.
        assert!(found.iter().all(|s| s.deviation.is_none() && !s.outlier));
    }

    #[test]
    fn a_server_far_from_all_others_is_an_outlier() {
        let names = ["n1", "n2", "n3", "n4", "n5", "n6", "n7"];
        let found = servers(&names, |condition, name, block| {
            let number = f64::from(name.as_bytes()[1] - b'0');
            // The third server is slow by itself, the fifth under the condition alone.
            let own = if name == "n3" { 20.0 } else { 100.0 + number };
            let effect = match (condition, name) {
                ("base", _) => 1.0,
                (_, "n5") => 0.4,
                _ => 0.9 + 0.001 * number,
            };
            own * effect * (1.0 + 0.001 * f64::from(block))
        });
        let outliers: Vec<(&str, &str)> = found
            .iter()
            .filter(|s| s.outlier)
            .map(|s| (s.condition.as_str(), s.target.as_str()))
            .collect();
        assert_eq!(outliers, [("base", "n3"), ("slow", "n5")]);
        assert!(found.iter().all(|s| s.deviation.is_some()));
    }

    #[test]
    fn a_server_without_an_estimate_hides_no_outlier() {
        let server = |number: usize, ratio: Option<f64>| Server {
            condition: "slow".to_owned(),
            target: format!("n{number}"),
            metric: "commits_per_second".to_owned(),
            value: Some(100.0),
            share: None,
            ratio,
            ratio_low: ratio.map(|r| r * 0.99),
            ratio_high: ratio.map(|r| r * 1.01),
            bound: None,
            verdict: None,
            deviation: None,
            outlier: false,
        };
        let ratios = [1.0, 1.01, 0.99, 1.005, 0.995, 0.6, 5.0].map(Some);
        let all = ratios.into_iter().chain([None]).enumerate();
        let mut servers: Vec<Server> = all.map(|(n, ratio)| server(n, ratio)).collect();
        // Only a lower bound is known.
        servers[6].bound = Some(Bound::AtLeast);
        mark_outliers(&mut servers, false);
        let outliers: Vec<&str> =
            servers.iter().filter(|s| s.outlier).map(|s| s.target.as_str()).collect();
        assert_eq!(outliers, ["n5"]);
        assert_eq!((servers[6].deviation, servers[7].deviation), (None, None));
    }

    #[test]
    fn an_experiment_on_single_servers_has_none() {
        let stored = experiment(&["base"], vec![trial("base", 1, &[])]);
        assert!(analyze(&stored).servers.is_empty());
    }
}
