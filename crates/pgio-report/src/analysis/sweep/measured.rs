//! Which metrics a sweep shows of every cell, and which rate is plotted against latency along an axis.

use std::borrow::Cow;

use pgio_results::Trial;
use pgio_results::latency::Operation;
use pgio_results::metrics::{self, Direction};
use pgio_results::operation::{Class, Statistic};
use pgio_results::store::Manifest;
use pgio_results::sweep::Sweep;

use crate::analysis::pairing::value;

/// Statistics of the class of operations that a session waits for.
const STATISTICS: [Statistic; 5] =
    [Statistic::Mean, Statistic::P50, Statistic::P95, Statistic::P99, Statistic::P99_9];

/// Every cell shows the mean commit latency, because there is a prediction for it.
pub(crate) const COMMIT_MEAN: &str = metrics::latency_name(Class::Commit, Statistic::Mean);

/// The timed operation that a session waits for from end to end; for a command, any operation whose mean
/// it reports.
pub(super) fn operation(trials: &[Trial]) -> Option<Operation> {
    const KNOWN: [Class; 6] =
        [Class::Transaction, Class::Call, Class::Commit, Class::Update, Class::Read, Class::Device];
    let timed = |class: &Class| {
        let mean = metrics::latency_name(*class, Statistic::Mean);
        trials.iter().any(|t| value(t, mean).is_some())
    };
    KNOWN.into_iter().find(timed).map(Operation::Ours).or_else(|| {
        let measured = trials.iter().flat_map(|t| &t.metrics).filter(|(_, m)| m.value.is_some());
        let operations = measured.filter_map(|(name, _)| Operation::from_mean(name));
        operations.min_by(|a, b| a.name().cmp(b.name()))
    })
}

/// The metrics that every cell shows.
pub(super) fn shown_metrics(
    manifest: &Manifest,
    sweep: &Sweep,
    trials: &[Trial],
    operation: Option<&Operation>,
) -> Vec<String> {
    let mut names = vec![manifest.primary_metric.clone()];
    names.extend(sweep.axes.iter().map(|axis| throughput(manifest, trials, &axis.name)));
    names.extend(
        operation
            .iter()
            .flat_map(|o| STATISTICS.into_iter().filter_map(|s| o.metric(s)))
            .map(Cow::into_owned),
    );
    names.push(COMMIT_MEAN.to_owned());
    // The metrics that a command declares.
    names.extend(manifest.metrics.iter().map(|declared| declared.name.clone()));
    names.sort();
    names.dedup();
    names
}

/// Axes along which an operation does more work, with the metric that counts this work.
const BY_AMOUNT: &[(&str, &str)] = &[
    ("rows_per_transaction", "rows_per_second"),
    ("work_unit", "block_visits_per_second"),
    ("update_work_unit", "block_visits_per_second"),
    ("batch", "block_visits_per_second"),
    ("commit_every", "block_visits_per_second"),
    ("block_size", "device_bytes_per_second"),
];

/// The rate that is plotted against latency along an axis.
pub(super) fn throughput(manifest: &Manifest, trials: &[Trial], axis: &str) -> String {
    let measured = |name: &str| trials.iter().any(|t| value(t, name).is_some());
    let by_amount = BY_AMOUNT.iter().find(|(name, _)| *name == axis).map(|(_, metric)| *metric);
    if let Some(metric) = by_amount.filter(|metric| measured(metric)) {
        return metric.to_owned();
    }
    let is_rate = |name: &str| {
        let found = metrics::find(&manifest.metrics, name);
        found.is_none_or(|d| d.direction == Direction::HigherIsFaster)
    };
    let primary = &manifest.primary_metric;
    // With a given rate, the workload's own primary metric is a latency as well.
    let own = trials.first().map(|t| t.workload.primary_metric.as_str());
    let counted = ["calls_per_second", "messages_per_minute"].into_iter().filter(|n| measured(n));
    let known = [Some(primary.as_str()), own].into_iter().flatten().chain(counted);
    known.into_iter().find(|name| is_rate(name)).unwrap_or(primary).to_owned()
}
