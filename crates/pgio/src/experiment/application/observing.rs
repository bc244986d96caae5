//! What is observed beside an experiment: the hosts of its file, and each target's scene.

use std::time::Duration;

use postgres::Client;

use super::job::Job;
use super::targets::Reached;
use crate::cli::exit::Failure;
use crate::config::experiment::WorkloadSpec;
use crate::config::resolve::Extent;
use crate::host::{self, Hosts, LOCAL};
use crate::pg::server::Server;
use crate::telemetry::{Scene, Standby, Survey};
use crate::workload::Workload;

/// Windows of all trials together, from which on it is worth a second or two to measure flush and
/// round trip beside them.
const WORTH_A_PROBE: Duration = Duration::from_secs(20);

impl Job {
    /// Every host of the file, reached before anything is changed.
    pub(super) fn hosts(&self) -> Result<Hosts, Failure> {
        Ok(host::connect_all(&self.experiment.hosts)?)
    }

    /// What is observed on a target; nothing where the file says so. `probing` allows a file of ours
    /// beside the logs, for the time of a flush.
    pub(super) fn scene(
        &self,
        spec: &WorkloadSpec,
        reached: &Reached,
        server: &Server,
        admin: &mut Client,
        workload: &dyn Workload,
        probing: bool,
    ) -> Option<Scene> {
        if self.experiment.telemetry.is_zero() {
            return None;
        }
        let survey = Survey {
            params: &reached.params,
            server,
            cadence: self.experiment.telemetry,
            hosts: &reached.hosts,
            host: reached.host.as_deref(),
        };
        let mut scene = Scene::survey(&survey, admin);
        // A second for each log is out of proportion to an experiment of seconds.
        let window = match workload.extent() {
            Extent::Time(window) => window,
            Extent::Transactions(_) | Extent::Calls(_) => Duration::MAX,
        };
        let of_a_block = self.experiment.size_of(spec).trials_of_a_block;
        let trials =
            u32::try_from(of_a_block).unwrap_or(u32::MAX).saturating_mul(self.experiment.blocks);
        let commits = workload.info().primary_metric == "commits_per_second";
        if probing && commits && window.saturating_mul(trials) >= WORTH_A_PROBE {
            let data = reached.cluster.as_ref().and_then(|c| c.standby_data_dir());
            let host = match &reached.standby_host {
                Some(host) => Some(host.as_str()),
                None => data.is_some().then_some(LOCAL),
            };
            let standby = host.map(|host| Standby { host, data: data.as_deref() });
            scene.measure_expected(standby, admin);
        }
        Some(scene)
    }
}
