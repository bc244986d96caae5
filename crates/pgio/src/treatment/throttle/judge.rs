//! Proves a throttle by what the device did inside the window, from the trial's record alone.
//!
//! The controller counts requests before they are merged, so completed and merged requests together are
//! compared with the limit; an empty flush counts as a write. It grants requests by slices of a tenth of
//! a second, and after sparse work three slices' at once. Measured on a loop device (Linux 6.18), in
//! seconds of the limit's requests in excess of a span's share: under steady demand at most 0.10, on a
//! busy machine 0.18, and over long spans within 0.2 %; when sparse work becomes dense, 0.25 over 50 ms,
//! 0.21 over 0.1 s and longer, and on a busy machine 0.24. With cgroup v2 flushes are charged to no group (seen on Linux 6.1: 200 writes/s
//! and as many flushes), so they are allowed for.

use super::limits::{Limits, format_value};
use crate::host::blkio::{Limit, Version};
use pgio_results::model::{Check, Trial};
use pgio_results::telemetry::DeviceUse;
use pgio_results::thresholds::{THROTTLE_BURST_SECONDS, THROTTLE_EXCESS, THROTTLE_REACHED};

const ID: &str = "throttle";

#[derive(Debug, Clone, Copy)]
pub(super) struct Device<'a> {
    pub(super) host: &'a str,
    /// The kernel's name.
    pub(super) name: &'a str,
    /// The controller's version.
    pub(super) version: Version,
}

/// One verdict for each limit.
pub(super) fn judge(trial: &Trial, device: Device<'_>, limits: &Limits) -> Vec<Check> {
    let Device { host, name, .. } = device;
    let telemetry = trial.telemetry.as_ref();
    let Some(used) = telemetry.and_then(|t| t.hosts.get(host)?.devices.get(name)) else {
        return vec![Check::invalid(
            ID,
            format!("{name} on {host} was not observed, so its limits are unproven"),
            "turn telemetry on, and see its warnings",
        )];
    };
    limits.iter().map(|(limit, value)| judge_limit(*limit, *value, used, trial, device)).collect()
}

fn judge_limit(
    limit: Limit,
    value: u64,
    used: &DeviceUse,
    trial: &Trial,
    Device { host, name, version }: Device<'_>,
) -> Check {
    let (measured, unit) = measured(limit, used);
    let uncharged = match (version, limit) {
        (Version::V2, Limit::WriteIops) => used.flushes_per_second.unwrap_or(0.0),
        _ => 0.0,
    };
    let asked = value as f64;
    let most = asked
        * (1.0
            + THROTTLE_EXCESS.0
            + THROTTLE_BURST_SECONDS / trial.window.seconds.max(THROTTLE_BURST_SECONDS));
    let message = format!(
        "{name} on {host} did {measured:.0} {unit}, with {} = {}",
        limit.name(),
        format_value(limit, value)
    );
    if measured - uncharged > most {
        Check::invalid(
            ID,
            format!("{message}: the limit was not in force"),
            "processes that write there must be in the limited group; kernel threads are in cgroup v1's root group",
        )
    } else if measured < asked * THROTTLE_REACHED.0 {
        Check::warning(
            ID,
            format!("{message}: below the limit on average, so only bursts can have been delayed"),
            "check what the sessions waited for; lower the limit, or run more work",
        )
    } else {
        Check::ok(ID, message)
    }
}

fn measured(limit: Limit, used: &DeviceUse) -> (f64, &'static str) {
    match limit {
        Limit::ReadIops => (used.reads_per_second, "reads/s"),
        Limit::WriteIops => (
            used.writes_per_second + used.merged_writes_per_second,
            "writes/s (completed and merged)",
        ),
        Limit::ReadBytes => (used.read_bytes_per_second, "bytes/s of reads"),
        Limit::WriteBytes => (used.written_bytes_per_second, "bytes/s of writes"),
    }
}
