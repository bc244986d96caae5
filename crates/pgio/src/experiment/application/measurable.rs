//! Which metrics a kind of workload can measure at all, as far as its kind tells.
//!
//! A metric that is never measured would leave every condition undecided after all blocks.

use crate::config::experiment::WorkloadKind;
use pgio_results::metrics::{Kind, MetricDef};
use pgio_results::operation::{Class, Work};

/// Whether trials of this kind may have the metric. Metrics of servers and hosts come with every kind.
pub(super) fn may_measure(kind: WorkloadKind, metric: &MetricDef<'_>) -> bool {
    use WorkloadKind::{Commit, Device, Mail, Slob};
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| metric.name.starts_with(prefix));
    let by_these: &[WorkloadKind] = match metric.kind {
        Kind::Work(Work::Messages) | Kind::Latency(Class::Delivery, _) => &[Mail],
        Kind::Latency(Class::Device, _) => &[Device],
        Kind::Work(Work::BlockVisits | Work::RowsUpdated) => &[Slob],
        Kind::Latency(
            Class::Read | Class::Update | Class::Scan | Class::Insert | Class::Delete,
            _,
        ) => &[Slob],
        Kind::Latency(Class::Transaction, _) => &[Commit],
        Kind::Work(Work::Commits) | Kind::Latency(Class::Commit, _) => &[Slob, Commit],
        Kind::Quantity if begins(&["mail_"]) => &[Mail],
        Kind::Quantity if begins(&["device_bytes_", "device_operations_"]) => &[Device],
        Kind::Quantity if begins(&["blocks_scanned_", "inserts_", "deletes_"]) => &[Slob],
        _ => return true,
    };
    by_these.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::metrics;

    #[test]
    fn work_is_measured_by_those_that_do_it() {
        use WorkloadKind::{Command, Commit, Device, Mail, Slob};
        let all = [Slob, Commit, Device, Command, Mail];
        let by = |name: &str| {
            let metric = metrics::definition(name).unwrap();
            all.into_iter().filter(|kind| may_measure(*kind, metric)).collect::<Vec<_>>()
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
}
