//! How long trials should take, with what lies between their windows: for `--plan`, and for the
//! progress line until trials were measured.
//!
//! Warm-up and windows are known; everything else is one of the stated figures below times how
//! often the file asks for it. They are round figures of one server with local disks: right within
//! a factor of about two, and always shown beside the time that they give.

use std::time::Duration;

use super::job::Job;
use crate::config::LoadSettings;
use crate::config::experiment::{Reset, Target, WorkloadKind, WorkloadSpec};
use crate::experiment::live::LiveCell;
use crate::treatment::Cost;
use crate::units::human;

/// Of every trial: CHECKPOINT, sessions, evidence, settling, judging.
const OVERHEAD: Duration = Duration::from_secs(1);
const RESTART: Duration = Duration::from_secs(3);
const NEW_FILE_SYSTEM: Duration = Duration::from_secs(2);
const RESYNC: Duration = Duration::from_secs(5);
const RECREATE: Duration = Duration::from_secs(1);
const PRIVATE_CLUSTER: Duration = Duration::from_secs(6);
/// At which a data set is loaded or copied.
const BYTES_PER_SECOND: u64 = 200 << 20;

/// What one trial, or several, should take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Estimate {
    /// Warm-up and windows.
    windows: Duration,
    trials: u32,
    restarts: u32,
    file_systems: u32,
    resyncs: u32,
    databases: u32,
    clusters: u32,
    bytes: u64,
    /// Loads or copies of a data set whose size only the server knows.
    unknown: u32,
}

impl Estimate {
    pub(super) fn total(&self) -> Duration {
        self.items().iter().fold(self.windows, |sum, (_, _, time)| sum.saturating_add(*time))
    }

    /// What it consists of beside the windows: how often, what at which figure, time in all.
    fn items(&self) -> Vec<(u64, String, Duration)> {
        let each = |times: u32, what: &str, cost: Duration| {
            let what = format!("{what} of {} s", cost.as_secs());
            (u64::from(times), what, cost.saturating_mul(times))
        };
        let mut items = vec![
            each(self.trials, "checkpoint, connecting and evidence", OVERHEAD),
            each(self.restarts, "restart", RESTART),
            each(self.file_systems, "new file system", NEW_FILE_SYSTEM),
            each(self.resyncs, "resync", RESYNC),
            each(self.databases, "new database", RECREATE),
            each(self.clusters, "private cluster", PRIVATE_CLUSTER),
        ];
        let rate = human::byte_rate(BYTES_PER_SECOND as f64);
        let time = Duration::from_secs_f64(self.bytes as f64 / BYTES_PER_SECOND as f64);
        items.push((self.bytes, format!("loaded or copied at {rate}"), time));
        items.retain(|(times, ..)| *times > 0);
        items
    }

    /// The basis of [`Estimate::total`], on one line.
    pub(super) fn basis(&self) -> String {
        let part = |(times, what, _): (u64, String, Duration)| match what.starts_with("loaded") {
            true => format!("{} {what}", human::bytes(times)),
            false => format!("{times} × {what}"),
        };
        let mut parts: Vec<String> = self.items().into_iter().map(part).collect();
        if self.unknown > 0 {
            parts.push(format!(
                "not counted: {} × a load or copy of the data set, whose size only the server knows",
                self.unknown
            ));
        }
        parts.join(", ")
    }

    pub(super) fn times(self, n: u32) -> Estimate {
        Estimate {
            windows: self.windows.saturating_mul(n),
            trials: self.trials.saturating_mul(n),
            restarts: self.restarts.saturating_mul(n),
            file_systems: self.file_systems.saturating_mul(n),
            resyncs: self.resyncs.saturating_mul(n),
            databases: self.databases.saturating_mul(n),
            clusters: self.clusters.saturating_mul(n),
            bytes: self.bytes.saturating_mul(u64::from(n)),
            unknown: self.unknown.saturating_mul(n),
        }
    }

    #[must_use]
    pub(super) fn plus(self, other: Estimate) -> Estimate {
        Estimate {
            windows: self.windows.saturating_add(other.windows),
            trials: self.trials.saturating_add(other.trials),
            restarts: self.restarts.saturating_add(other.restarts),
            file_systems: self.file_systems.saturating_add(other.file_systems),
            resyncs: self.resyncs.saturating_add(other.resyncs),
            databases: self.databases.saturating_add(other.databases),
            clusters: self.clusters.saturating_add(other.clusters),
            bytes: self.bytes.saturating_add(other.bytes),
            unknown: self.unknown.saturating_add(other.unknown),
        }
    }

    /// A data set written so many times.
    fn data(mut self, size: Option<u64>, times: u32) -> Estimate {
        match size {
            Some(size) => {
                self.bytes = self.bytes.saturating_add(size.saturating_mul(u64::from(times)));
            }
            None => self.unknown = self.unknown.saturating_add(times),
        }
        self
    }
}

impl Job {
    /// One trial of this cell; none where its window ends when the work does.
    pub(super) fn estimate(&self, spec: &WorkloadSpec, cell: &LiveCell) -> Option<Estimate> {
        let e = &self.experiment;
        let windows = e.size_of(spec).trial?;
        let mut estimate = Estimate { windows, trials: 1, ..Estimate::default() };
        let has_data = spec.kind == WorkloadKind::Slob;
        let size = if has_data { self.data_size(spec, &cell.target) } else { Some(0) };
        let costs: Vec<Cost> = cell.treatments.iter().flat_map(|t| t.declared().costs).collect();
        let count = |cost| u32::try_from(costs.iter().filter(|c| **c == cost).count());
        let count = |cost| count(cost).unwrap_or(u32::MAX);
        estimate.restarts = count(Cost::Restart);
        estimate.file_systems = count(Cost::NewFileSystem);
        estimate.resyncs = count(Cost::Resync);
        estimate = estimate.data(size, count(Cost::CopyData));
        match e.reset_of(spec) {
            Reset::Checkpoint | Reset::Vacuum => {}
            Reset::Reload => estimate = estimate.data(size, 1),
            Reset::Recreate { .. } => {
                estimate.databases = 1;
                estimate = estimate.data(size, 1);
            }
        }
        Some(estimate)
    }

    /// Before the first trial: private clusters, and the data sets that are loaded there.
    pub(super) fn estimate_start(&self, spec: &WorkloadSpec) -> Estimate {
        let mut estimate = Estimate::default();
        // All workloads share the clusters.
        let is_first = self.experiment.workloads.first().is_some_and(|w| w.name == spec.name);
        for (name, target) in &self.experiment.targets {
            if matches!(target, Target::Private { .. }) {
                estimate.clusters += u32::from(is_first);
                if spec.kind == WorkloadKind::Slob {
                    estimate = estimate.data(self.data_size(spec, name), 1);
                }
            }
        }
        estimate
    }

    /// Bytes of the data set, as far as the file and pgio.conf say; on a server of the user's its own
    /// mark does.
    fn data_size(&self, spec: &WorkloadSpec, target: &str) -> Option<u64> {
        let layer = spec.layer.clone().over(self.below.layer.clone());
        let is_private =
            matches!(self.experiment.targets.get(target), Some(Target::Private { .. }));
        if layer.scale.is_none() && !is_private {
            return None;
        }
        let load = LoadSettings::resolve(layer).ok()?;
        Some(load.scale.bytes().saturating_mul(u64::from(load.num_schemas)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_the_sum_of_what_it_names() {
        let one = Estimate {
            windows: Duration::from_secs(12),
            trials: 1,
            restarts: 2,
            bytes: 400 << 20,
            ..Estimate::default()
        };
        let four = one.times(4);
        assert_eq!(four.total(), Duration::from_secs(4 * (12 + 1 + 6 + 2)));
        assert_eq!(
            four.basis(),
            "4 × checkpoint, connecting and evidence of 1 s, 8 × restart of 3 s, 1.56 GiB loaded or copied at 200 MiB/s"
        );
        let more = four.plus(Estimate::default().data(None, 3));
        assert_eq!(more.total(), four.total());
        assert!(more.basis().ends_with(
            "not counted: 3 × a load or copy of the data set, whose size only the server knows"
        ));
    }
}
