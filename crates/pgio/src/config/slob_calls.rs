//! The calls of `slob`, and which of its metrics depend on which.

use super::keys::Layer;
use super::value::Decimal;
use pgio_results::latency::{Class, Work};
use pgio_results::metrics::{Kind, MetricDef};

/// A call of `slob` on which a metric depends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Read,
    Update,
    Scan,
    Turnover,
}

/// Returns the calls, each of which is enough for the metric; none: it is no metric of `slob` alone.
pub(super) fn calls_of(metric: &MetricDef<'_>) -> Option<&'static [Call]> {
    Some(match metric.kind {
        Kind::Work(Work::BlockVisits) => &[Call::Read, Call::Update],
        Kind::Work(Work::RowsUpdated) | Kind::Latency(Class::Update, _) => &[Call::Update],
        Kind::Latency(Class::Read, _) => &[Call::Read],
        Kind::Latency(Class::Scan, _) => &[Call::Scan],
        Kind::Latency(Class::Insert | Class::Delete, _) => &[Call::Turnover],
        Kind::Work(Work::Commits) | Kind::Latency(Class::Commit, _) => {
            &[Call::Update, Call::Turnover]
        }
        Kind::Quantity if metric.name.starts_with("blocks_scanned_") => &[Call::Scan],
        Kind::Quantity
            if ["inserts_", "deletes_"].iter().any(|prefix| metric.name.starts_with(prefix)) =>
        {
            &[Call::Turnover]
        }
        _ => return None,
    })
}

/// Returns what to change where no point makes a call that the metric needs. `keys` are those at each point.
pub(super) fn lacks(metric: &MetricDef<'_>, keys: &[Layer]) -> Option<&'static str> {
    let calls = calls_of(metric)?;
    let made = |keys: &Layer| calls.iter().any(|call| call.occurs_in(keys));
    (!keys.iter().any(made)).then(|| hint(calls))
}

impl Call {
    /// Returns whether a workload with these keys makes it.
    fn occurs_in(self, keys: &Layer) -> bool {
        let updates = f64::from(keys.update_pct.unwrap_or(0)) / 100.0;
        let share = |key: Option<Decimal>| key.map_or(0.0, |pct| pct.share());
        let (scans, inserts) = (share(keys.scan_pct), share(keys.insert_pct));
        match self {
            Call::Read => updates + scans + inserts + share(keys.delete_pct) < 1.0 - 1e-9,
            Call::Update => updates > 0.0,
            Call::Scan => scans > 0.0,
            Call::Turnover => inserts > 0.0,
        }
    }
}

fn hint(calls: &[Call]) -> &'static str {
    match calls {
        [Call::Update, ..] => ", because it changes nothing: set update_pct above 0",
        [Call::Scan, ..] => ", because it scans nothing: set scan_pct above 0",
        [Call::Turnover, ..] => {
            ", because it inserts nothing: set insert_pct and delete_pct above 0"
        }
        [Call::Read, ..] | [] => ", because it reads nothing: lower the percentages of other calls",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::metrics;

    fn layer(update_pct: u8, scan_pct: &str, insert_pct: &str) -> Layer {
        let mut layer = Layer { update_pct: Some(update_pct), ..Layer::default() };
        for (name, text) in
            [("scan_pct", scan_pct), ("insert_pct", insert_pct), ("delete_pct", insert_pct)]
        {
            crate::config::Key::named(name).unwrap().set(&mut layer, text).unwrap();
        }
        layer
    }

    #[test]
    fn slob_measures_the_calls_of_its_mix() {
        let found = |name: &str, layers: &[Layer]| {
            lacks(metrics::definition(name).unwrap(), layers).is_none()
        };
        let [reads, updates, turnover, scans] =
            [layer(0, "0", "0"), layer(100, "0", "0"), layer(0, "0", "5"), layer(0, "100", "0")]
                .map(|layer| [layer]);
        for name in ["commits_per_second", "commit_latency_p99"] {
            assert_eq!(
                [&reads, &updates, &turnover, &scans].map(|l| found(name, l)),
                [false, true, true, false]
            );
        }
        assert_eq!([&reads, &updates].map(|l| found("update_latency_p99", l)), [false, true]);
        assert_eq!([&reads, &updates].map(|l| found("read_latency_p99", l)), [true, false]);
        assert_eq!([&reads, &scans].map(|l| found("scan_latency_p99", l)), [false, true]);
        assert_eq!([&reads, &scans].map(|l| found("block_visits_per_second", l)), [true, false]);
        assert_eq!([&reads, &turnover].map(|l| found("inserts_per_second", l)), [false, true]);
        // One point of a sweep is enough.
        let sweep = [reads, updates].concat();
        assert!(found("commits_per_second", &sweep) && found("read_latency_p99", &sweep));
    }
}
