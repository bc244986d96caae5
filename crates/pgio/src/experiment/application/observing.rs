//! Chooses what telemetry observes on each target.

use std::time::Duration;

use postgres::Client;

use super::servers::TargetServer;
use crate::config::experiment::{Experiment, WorkloadSpec};
use crate::config::resolve::Extent;
use crate::host::LOCAL;
use crate::pg::server::Server;
use crate::telemetry::{Standby, Survey, TelemetrySources};
use crate::workload::Workload;

/// Total length of all windows above which pgio takes a second or two to measure flush and
/// round trip beside them.
const WORTH_A_PROBE: Duration = Duration::from_secs(20);

/// Returns none if the file turns telemetry off. `probing` allows a temporary file beside the WAL, to time a flush.
pub(super) fn sources(
    e: &Experiment,
    spec: &WorkloadSpec,
    of: &TargetServer,
    server: &Server,
    admin: &mut Client,
    workload: &dyn Workload,
    probing: bool,
) -> Option<TelemetrySources> {
    if e.telemetry.is_zero() {
        return None;
    }
    let survey = Survey {
        params: &of.params,
        server,
        cadence: e.telemetry,
        hosts: &of.hosts,
        host: of.host.as_deref(),
    };
    let mut sources = TelemetrySources::survey(&survey, admin);
    // A second per WAL directory is too much for an experiment of seconds.
    let window = match workload.extent() {
        Extent::Time(window) => window,
        Extent::Transactions(_) | Extent::Calls(_) => Duration::MAX,
    };
    let of_a_block = e.size_of(spec).trials_of_a_block;
    let trials = u32::try_from(of_a_block).unwrap_or(u32::MAX).saturating_mul(e.blocks);
    let commits = workload.info().primary_metric == "commits_per_second";
    if probing && commits && window.saturating_mul(trials) >= WORTH_A_PROBE {
        let data = of.cluster.as_ref().and_then(|c| c.standby_data_dir());
        let host = match &of.standby_host {
            Some(host) => Some(host.as_str()),
            None => data.is_some().then_some(LOCAL),
        };
        let standby = host.map(|host| Standby { host, data: data.as_deref() });
        sources.measure_expected(standby, admin);
    }
    Some(sources)
}
