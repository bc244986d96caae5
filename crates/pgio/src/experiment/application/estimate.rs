//! Estimates the duration of trials, including the time between their windows, for `--plan` and for the
//! progress line until trials were measured.
//!
//! Warm-up and windows are known; everything else is one of the figures below times how
//! often the file asks for it. They are round figures of one server with local disks: right within
//! a factor of about two, and always shown beside the time that they give.

use std::time::Duration;

use super::job::Job;
use crate::config::LoadSettings;
use crate::config::experiment::{Reset, Target, Weave, WorkloadSpec};
use crate::experiment::live::LiveCell;
use crate::treatment::Cost;
use pgio_results::units::human;

/// Per trial: CHECKPOINT, sessions, evidence, settling, judging.
const OVERHEAD: Duration = Duration::from_secs(1);
const RESTART: Duration = Duration::from_secs(3);
const NEW_FILE_SYSTEM: Duration = Duration::from_secs(2);
const RESYNC: Duration = Duration::from_secs(5);
const RECREATE: Duration = Duration::from_secs(1);
/// The first length of slices that `weave = "auto"` tries, for each condition.
const CALIBRATION: Duration = Duration::from_secs(2);
const PRIVATE_CLUSTER: Duration = Duration::from_secs(6);
/// A woven window takes longer than its counted time: guards, and switching between slices.
const WOVEN: f64 = 1.4;
/// Rate at which a data set is loaded or copied.
const BYTES_PER_SECOND: u64 = 200 << 20;

/// The estimated duration of one or several trials.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Warm-up and windows.
    windows: Duration,
    trials: u32,
    restarts: u32,
    file_systems: u32,
    resyncs: u32,
    databases: u32,
    clusters: u32,
    calibrated: u32,
    bytes: u64,
    /// Loads or copies of a data set whose size only the server knows.
    unknown: u32,
}

impl Estimate {
    pub fn total(&self) -> Duration {
        let counted = self.counted();
        let costs = counted.iter().map(|(times, _, each)| each.saturating_mul(*times));
        costs.fold(self.windows.saturating_add(self.copying()), Duration::saturating_add)
    }

    /// Returns what is counted besides the windows: how often, what, time of each.
    fn counted(&self) -> [(u32, &'static str, Duration); 7] {
        [
            (self.trials, "checkpoint, connecting and evidence", OVERHEAD),
            (self.restarts, "restart", RESTART),
            (self.file_systems, "new file system", NEW_FILE_SYSTEM),
            (self.resyncs, "resync", RESYNC),
            (self.databases, "new database", RECREATE),
            (self.clusters, "private cluster", PRIVATE_CLUSTER),
            (self.calibrated, "condition whose slices are calibrated", CALIBRATION),
        ]
    }

    /// Returns the time of loads and copies.
    fn copying(&self) -> Duration {
        Duration::from_secs_f64(self.bytes as f64 / BYTES_PER_SECOND as f64)
    }

    /// Describes the basis of [`Estimate::total`] on one line.
    pub fn basis(&self) -> String {
        let counted = self.counted().into_iter().filter(|(times, ..)| *times > 0);
        let each =
            counted.map(|(n, what, each)| format!("{n} × {what} ({} s each)", each.as_secs()));
        let mut parts: Vec<String> = each.collect();
        if self.bytes > 0 {
            let rate = human::byte_rate(BYTES_PER_SECOND as f64);
            parts.push(format!("{} loaded or copied at {rate}", human::bytes(self.bytes)));
        }
        if self.unknown > 0 {
            parts.push(format!(
                "not counted: {} × a load or copy of the data set, whose size only the server knows",
                self.unknown
            ));
        }
        parts.join(", ")
    }

    #[must_use]
    pub fn times(self, n: u32) -> Estimate {
        Estimate {
            windows: self.windows.saturating_mul(n),
            trials: self.trials.saturating_mul(n),
            restarts: self.restarts.saturating_mul(n),
            file_systems: self.file_systems.saturating_mul(n),
            resyncs: self.resyncs.saturating_mul(n),
            databases: self.databases.saturating_mul(n),
            clusters: self.clusters.saturating_mul(n),
            calibrated: self.calibrated.saturating_mul(n),
            bytes: self.bytes.saturating_mul(u64::from(n)),
            unknown: self.unknown.saturating_mul(n),
        }
    }

    #[must_use]
    pub fn plus(self, other: Estimate) -> Estimate {
        Estimate {
            windows: self.windows.saturating_add(other.windows),
            trials: self.trials.saturating_add(other.trials),
            restarts: self.restarts.saturating_add(other.restarts),
            file_systems: self.file_systems.saturating_add(other.file_systems),
            resyncs: self.resyncs.saturating_add(other.resyncs),
            databases: self.databases.saturating_add(other.databases),
            clusters: self.clusters.saturating_add(other.clusters),
            calibrated: self.calibrated.saturating_add(other.calibrated),
            bytes: self.bytes.saturating_add(other.bytes),
            unknown: self.unknown.saturating_add(other.unknown),
        }
    }

    /// Adds a data set that is written `times` times.
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

/// Estimates one trial of this cell; none if its window ends with the work.
pub fn estimate_trial(job: &Job, spec: &WorkloadSpec, cell: &LiveCell) -> Option<Estimate> {
    let e = &job.experiment;
    let windows = e.size_of(spec).trial?;
    // How many trials share what precedes a window.
    let (mut estimate, sharing) = match e.rules.weave {
        Weave::Off => (Estimate { windows, trials: 1, ..Estimate::default() }, 1),
        Weave::Slices(_) | Weave::Auto => {
            let (warmup, sharing) = (e.warmup_of(spec), conditions(job, spec));
            let windows = windows.saturating_sub(warmup).mul_f64(WOVEN);
            let windows = windows + (warmup + OVERHEAD) / sharing;
            (Estimate { windows, ..Estimate::default() }, sharing)
        }
    };
    let has_data = spec.kind.def().data_set;
    let sizes = cell.targets().map(|target| data_size(job, spec, target));
    let size = if has_data { sizes.sum::<Option<u64>>() } else { Some(0) };
    let costs: Vec<Cost> = cell.treatments.iter().flat_map(|t| t.declared().costs).collect();
    // Servers are changed one after the other.
    let servers = cell.targets().count();
    let count = |cost| costs.iter().filter(|c| **c == cost).count().saturating_mul(servers);
    let count = |cost| u32::try_from(count(cost)).unwrap_or(u32::MAX);
    estimate.restarts = count(Cost::Restart);
    estimate.file_systems = count(Cost::NewFileSystem);
    estimate.resyncs = count(Cost::Resync);
    estimate = estimate.data(size, count(Cost::CopyData));
    let shared = |size: Option<u64>| size.map(|bytes| bytes / u64::from(sharing));
    match e.reset_of(spec) {
        Reset::Checkpoint | Reset::Vacuum => {}
        Reset::Reload => estimate = estimate.data(shared(size), 1),
        Reset::Recreate { .. } => {
            estimate.databases = 1;
            estimate = estimate.data(shared(size), 1);
        }
    }
    Some(estimate)
}

/// Estimates the time of a workload's start and of all its trials; the burn-in trial counts like one of the first cell.
pub fn estimate_workload(
    job: &Job,
    workload: &WorkloadSpec,
    cells: &[LiveCell],
    blocks: u32,
) -> Option<Estimate> {
    let block = cells.iter().map(|cell| estimate_trial(job, workload, cell));
    let block: Vec<Estimate> = block.collect::<Option<_>>()?;
    let burns_in = job.experiment.burns_in(workload);
    let burn_in = block.first().copied().filter(|_| burns_in).unwrap_or_default();
    let block = block.into_iter().fold(Estimate::default(), Estimate::plus);
    Some(block.times(blocks).plus(burn_in).plus(estimate_start(job, workload)))
}

/// Estimates the start: private clusters and the data sets loaded there.
pub fn estimate_start(job: &Job, spec: &WorkloadSpec) -> Estimate {
    let mut estimate = Estimate::default();
    if job.experiment.rules.weave == Weave::Auto {
        estimate.calibrated = conditions(job, spec);
    }
    // All workloads share the clusters.
    let is_first = job.experiment.workloads.first().is_some_and(|w| w.name == spec.name);
    for (name, target) in &job.experiment.targets {
        if matches!(target, Target::Private(_)) {
            estimate.clusters += u32::from(is_first);
            if spec.kind.def().data_set {
                estimate = estimate.data(data_size(job, spec, name), 1);
            }
        }
    }
    estimate
}

/// Returns the number of conditions of a workload, the A/A twin included.
fn conditions(job: &Job, spec: &WorkloadSpec) -> u32 {
    job.experiment.conditions_of(spec).count() as u32 + u32::from(job.experiment.aa)
}

/// Returns the size of the data set, as far as the file and pgio.conf determine it; on a server of the user's the
/// mark determines it.
fn data_size(job: &Job, spec: &WorkloadSpec, target: &str) -> Option<u64> {
    let layer = spec.layer.clone().over(job.base_keys.layer.clone());
    let is_private = matches!(job.experiment.targets.get(target), Some(Target::Private(_)));
    if layer.scale.is_none() && !is_private {
        return None;
    }
    let load = LoadSettings::resolve(layer).ok()?;
    Some(load.scale.bytes().saturating_mul(u64::from(load.num_schemas)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::scripted::{COMMITS, first, job};

    #[test]
    fn a_trial_takes_its_windows_and_what_its_condition_costs() {
        let job = job(&format!(
            "{COMMITS}[[condition]]\nname = 'restarted'\npostgres = {{ wal_buffers = '8MB' }}\n"
        ));
        let (spec, cells) = first(&job);
        let estimated = |title: &str| {
            let cell = cells.iter().find(|c| c.title == title).unwrap();
            estimate_trial(&job, spec, cell).unwrap()
        };
        assert_eq!(estimated("local").total(), Duration::from_secs(2 + 10) + OVERHEAD);
        let restarts = estimated("restarted").total() - estimated("local").total();
        assert!(restarts >= RESTART, "{restarts:?}");
        assert_eq!(estimate_start(&job, spec).total(), PRIVATE_CLUSTER);
    }

    #[test]
    fn woven_trials_share_a_warm_up() {
        let job = job(&COMMITS.replace("seed = 7", "seed = 7\nweave = '20ms'"));
        let (spec, cells) = first(&job);
        let total = |cell| estimate_trial(&job, spec, cell).unwrap().total().as_secs_f64();
        let block: f64 = cells.iter().map(total).sum();
        let expected = 10.0 * WOVEN * cells.len() as f64 + 2.0 + OVERHEAD.as_secs_f64();
        assert!((block - expected).abs() < 0.01, "{block} and not {expected}");
    }

    #[test]
    fn a_data_set_of_unknown_size_is_named_and_not_counted() {
        let slob = COMMITS.replace("kind = 'commit'", "kind = 'slob'\nreset = 'reload'");
        let (private, users) = (job(&slob), job(&slob.replace("private = true", "dsn = 'host=h'")));
        let one = |job: &Job| {
            let (spec, cells) = first(job);
            estimate_trial(job, spec, &cells[0]).unwrap()
        };
        assert!(one(&private).basis().contains("loaded or copied"));
        assert!(one(&users).basis().contains("whose size only the server knows"));
    }

    #[test]
    fn estimates_add_up_and_name_each_part() {
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
            "4 × checkpoint, connecting and evidence (1 s each), 8 × restart (3 s each), 1.56 GiB loaded or copied at 200 MiB/s"
        );
        let more = four.plus(Estimate::default().data(None, 3));
        assert_eq!(more.total(), four.total());
        assert!(more.basis().ends_with(
            "not counted: 3 × a load or copy of the data set, whose size only the server knows"
        ));
    }
}
