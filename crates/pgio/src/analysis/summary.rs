//! One condition on its own: how many trials, and each metric's value over those that count.
//!
//! A rate or a quantity is the geometric mean of its trials where all are positive, since effects
//! are ratios, and the arithmetic mean otherwise. A latency is that of all operations together:
//! the trials' histograms merge, their mean and maximum are exact, and a percentile under the
//! clock's resolution is left out. No comparison happens here; that is `compare`'s.

use std::collections::{BTreeMap, BTreeSet};

use benchmath::summary::{geometric_mean, mean};

use super::findings::differing_factors;
use super::pairing::{Arm, value};
use super::shares::State;
use super::{Condition, steady};
use crate::histogram::{COARSEST_QUANTILE_NS, Histogram};
use crate::results::metrics::{self, DeclaredMetric};
use crate::results::store::{ConditionInfo, Manifest};
use crate::results::{CheckVerdict, Metric};

pub(super) fn describe(info: &ConditionInfo, manifest: &Manifest, arm: &Arm<'_>) -> Condition {
    let baseline = manifest.conditions.iter().find(|c| c.name == manifest.baseline);
    let (checks_passed, checks_total) = checks(arm);
    Condition {
        name: info.name.clone(),
        treatments: info.treatments.clone(),
        factors: baseline.map(|b| differing_factors(info, b)).unwrap_or_default(),
        trials: arm.all.len(),
        invalid: arm.invalid().len(),
        failed: arm.failed().len(),
        valid: arm.valid().count(),
        counted: arm.counted().map(|(line, _)| line).collect(),
        state: State::default(),
        shares: Vec::new(),
        steady: steady::count(arm, &manifest.primary_metric),
        metrics: values(arm, &manifest.metrics),
        checks_passed,
        checks_total,
    }
}

fn values(arm: &Arm<'_>, declared: &[DeclaredMetric]) -> BTreeMap<String, Metric> {
    let histograms = merged(arm);
    let mut found = BTreeMap::new();
    for def in metrics::all(declared) {
        if !arm.valid().any(|t| t.metrics.contains_key(def.name)) {
            continue;
        }
        let value = match latency(def.name, &histograms) {
            Some(seconds) => seconds,
            None => central(&arm.valid().filter_map(|t| value(t, def.name)).collect::<Vec<_>>()),
        };
        found.insert(def.name.to_owned(), Metric { value, unit: def.unit.to_owned() });
    }
    found
}

fn central(values: &[f64]) -> Option<f64> {
    geometric_mean(values).or_else(|| mean(values))
}

fn merged(arm: &Arm<'_>) -> BTreeMap<String, Histogram> {
    let mut all: BTreeMap<String, Histogram> = BTreeMap::new();
    for (class, histogram) in arm.valid().flat_map(|t| &t.histograms) {
        all.entry(class.clone()).or_default().merge(histogram);
    }
    all
}

/// A latency metric from the merged histogram of its class. The outer `None`: it is no latency, or
/// there is no histogram for it; the inner one: the clock is too coarse for it.
fn latency(metric: &str, histograms: &BTreeMap<String, Histogram>) -> Option<Option<f64>> {
    let (class, statistic) = metric.split_once("_latency_")?;
    let histogram = histograms.get(class).filter(|h| h.count() > 0)?;
    let quantile = |q| histogram.quantile_ns(q).filter(|ns| *ns >= COARSEST_QUANTILE_NS);
    let nanoseconds = match statistic {
        "mean" => histogram.mean_ns(),
        "p50" => quantile(0.50),
        "p95" => quantile(0.95),
        "p99" => quantile(0.99),
        "max" => histogram.max_ns(),
        _ => return None,
    };
    Some(nanoseconds.map(|ns| ns / 1e9))
}

/// Named checks that were in order in the last attempt of every block, and how many there are.
fn checks(arm: &Arm<'_>) -> (usize, usize) {
    let mut names = BTreeSet::new();
    let mut not_passed = BTreeSet::new();
    for check in arm.last_attempts().flat_map(|t| &t.checks) {
        names.insert(&check.id);
        if check.verdict != CheckVerdict::Ok {
            not_passed.insert(&check.id);
        }
    }
    (names.len() - not_passed.len(), names.len())
}
