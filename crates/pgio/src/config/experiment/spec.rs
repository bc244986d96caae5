//! The type of an experiment: the content of a file, completed with defaults.

use std::collections::BTreeMap;
use std::time::Duration;

use super::background::BackgroundSpec;
use super::condition::Condition;
use super::drivers::DriverKeys;
use super::hosts::HostSpec;
use super::rules::{Reset, Rules};
use super::screening::ScreeningSpec;
use super::target::Target;
use super::workload::WorkloadSpec;
use pgio_results::sweep::SweepKind;

#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    pub name: String,
    /// Passes over all conditions.
    pub blocks: u32,
    /// For reports; each workload's layer already contains it, as well as `duration`.
    pub warmup: Duration,
    pub duration: Duration,
    /// Seed of the order of conditions. Absent: drawn and recorded.
    pub seed: Option<u64>,
    /// The name of one of the conditions.
    pub baseline: String,
    /// Whether the baseline runs twice in each block to measure the noise.
    pub aa: bool,
    /// Whether an uncounted trial of the baseline precedes block 1; absent: depends on the workload.
    pub burn_in: Option<bool>,
    /// Interval at which pgio observes server and hosts; zero: never.
    pub telemetry: Duration,
    /// The metric that is judged; absent: the workload's default.
    pub primary: Option<String>,
    /// Machines to observe, by their names in the file.
    pub hosts: BTreeMap<String, HostSpec>,
    pub rules: Rules,
    /// How the axes of a workload are combined into points.
    pub sweep: SweepKind,
    /// Empty: pgio.conf, then the PG* variables, apply.
    pub targets: BTreeMap<String, Target>,
    pub workloads: Vec<WorkloadSpec>,
    /// Work beside the judged workload.
    pub background: Vec<BackgroundSpec>,
    /// In the order of the file, without the A/A condition.
    pub conditions: Vec<Condition>,
    /// The factors that make up the conditions, if the file has factors.
    pub screening: Option<ScreeningSpec>,
    /// Which drivers generate the load, as far as the file says.
    pub drivers: DriverKeys,
}

impl Experiment {
    /// Returns the target of a condition; none if pgio.conf or the environment supplies it.
    pub fn target_of(&self, condition: &Condition) -> Option<&Target> {
        condition.target.as_ref().and_then(|name| self.targets.get(name))
    }

    /// Returns whether a burn-in trial comes first. By default it does if all trials share a data set,
    /// because the share of it that is cached differs; a command with `setup_once` counts as such.
    pub fn burns_in(&self, workload: &WorkloadSpec) -> bool {
        let prepared = workload.command.as_ref().is_some_and(|command| command.setup_once);
        self.burn_in.unwrap_or(prepared || workload.kind.def().data_set)
    }

    pub fn reset_of<'a>(&'a self, workload: &'a WorkloadSpec) -> &'a Reset {
        workload.reset.as_ref().unwrap_or(&self.rules.reset)
    }

    /// Returns the targets of a workload that are compared one by one, because conditions have several; in the
    /// order of the conditions.
    pub fn compared_targets(&self, workload: &WorkloadSpec) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        if self.conditions_of(workload).any(|condition| !condition.further_targets.is_empty()) {
            for name in self.conditions_of(workload).flat_map(Condition::targets) {
                if !all.contains(name) {
                    all.push(name.clone());
                }
            }
        }
        all
    }

    /// Returns the conditions of a workload, in the order of the file.
    pub fn conditions_of<'a>(
        &'a self,
        workload: &'a WorkloadSpec,
    ) -> impl Iterator<Item = &'a Condition> {
        self.conditions.iter().filter(|condition| workload.runs_under(&condition.name))
    }
}
