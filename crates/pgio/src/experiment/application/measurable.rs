//! Which metrics a workload can measure at all, as far as its kind and its mix of calls tell.
//!
//! A metric that is never measured would leave every condition undecided after all blocks. What a server or a
//! host measures comes with every workload.

use crate::config::Layer;
use crate::config::experiment::WorkloadKind;
use crate::config::value::Decimal;
use pgio_results::metrics::{Kind, MetricDef};
use pgio_results::operation::{Class, Work};

/// A call of `slob` on which a metric depends.
#[derive(Debug, Clone, Copy)]
enum Call {
    Read,
    Update,
    Scan,
    Turnover,
}

/// The hint for a metric that workloads of this kind never measure.
pub(super) const OTHER_METRIC: &str = "; choose a metric that it measures (docs/KEYS.md)";

/// Returns why no trial can have the metric: nothing where another kind of workload has it, else what to
/// change. `layers` are the workload's keys at each of its points.
pub(super) fn obstacle(
    kind: WorkloadKind,
    layers: &[Layer],
    metric: &MetricDef<'_>,
) -> Option<&'static str> {
    use WorkloadKind::{Command, Commit, Device, Mail, Slob};
    let has_prefix =
        |prefixes: &[&str]| prefixes.iter().any(|prefix| metric.name.starts_with(prefix));
    let (kinds, calls): (&[WorkloadKind], &[Call]) = match metric.kind {
        Kind::Work(Work::Messages) | Kind::Latency(Class::Delivery, _) => (&[Mail], &[]),
        Kind::Latency(Class::Device, _) => (&[Device], &[]),
        Kind::Work(Work::BlockVisits) => (&[Slob], &[Call::Read, Call::Update]),
        Kind::Work(Work::RowsUpdated) | Kind::Latency(Class::Update, _) => {
            (&[Slob], &[Call::Update])
        }
        Kind::Latency(Class::Read, _) => (&[Slob], &[Call::Read]),
        Kind::Latency(Class::Scan, _) => (&[Slob], &[Call::Scan]),
        Kind::Latency(Class::Insert | Class::Delete, _) => (&[Slob], &[Call::Turnover]),
        Kind::Latency(Class::Transaction, _) => (&[Commit], &[]),
        Kind::Work(Work::Commits) | Kind::Latency(Class::Commit, _) => {
            (&[Slob, Commit], &[Call::Update, Call::Turnover])
        }
        Kind::Quantity if has_prefix(&["mail_"]) => (&[Mail], &[]),
        Kind::Quantity if has_prefix(&["device_bytes_", "device_operations_"]) => (&[Device], &[]),
        Kind::Quantity if has_prefix(&["blocks_scanned_"]) => (&[Slob], &[Call::Scan]),
        Kind::Quantity if has_prefix(&["inserts_", "deletes_"]) => (&[Slob], &[Call::Turnover]),
        _ => return None,
    };
    if !kinds.contains(&kind) {
        return Some(OTHER_METRIC);
    }
    match kind {
        Slob if !calls.is_empty()
            && !layers.iter().any(|l| calls.iter().any(|c| c.occurs_in(l))) =>
        {
            Some(hint(calls))
        }
        Slob | Commit | Device | Command | Mail => None,
    }
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
    fn metrics_are_measurable_by_the_workloads_that_do_the_work() {
        use WorkloadKind::{Command, Commit, Device, Mail, Slob};
        let all = [Slob, Commit, Device, Command, Mail];
        let everything = [layer(20, "10", "10")];
        let by = |name: &str| {
            let metric = metrics::definition(name).unwrap();
            let measures = |kind: &WorkloadKind| obstacle(*kind, &everything, metric).is_none();
            all.into_iter().filter(measures).collect::<Vec<_>>()
        };
        assert_eq!(by("messages_per_minute"), [Mail]);
        assert_eq!(by("delivery_latency_p99"), [Mail]);
        assert_eq!(by("device_operations_per_second"), [Device]);
        assert_eq!(by("commits_per_second"), [Slob, Commit]);
        assert_eq!(by("read_latency_p99"), [Slob]);
        assert_eq!(by("blocks_scanned_per_second"), [Slob]);
        assert_eq!(by("device_writes_per_second"), all, "of the server's device");
        assert_eq!(by("riops"), all);
    }

    #[test]
    fn slob_measures_the_calls_of_its_mix() {
        let found = |name: &str, layers: &[Layer]| {
            obstacle(WorkloadKind::Slob, layers, metrics::definition(name).unwrap()).is_none()
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
