//! The size of an experiment in cells, trials and time, and its limits.
//!
//! Times include only warm-ups and windows, because the time between them is not known in advance.

use std::time::Duration;

use super::keys;
use super::section::Section;
use super::workload::WorkloadSpec;
use super::{Experiment, limits};
use crate::config::resolve::Extent;
use crate::config::value::ConfigError;

/// For a key that has no effect without axes.
pub(crate) const NO_AXIS: &str =
    "requires an axis; write a list, such as sessions = [1, 4, 16], or [[axis]]";

/// The size of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Number of conditions at points, without the A/A condition.
    pub cells: u64,
    /// Trials per block: one per cell, and one for the A/A condition.
    pub trials_per_block: u64,
    /// Time of warm-up and window; absent if time does not limit the window.
    pub trial: Option<Duration>,
}

impl Size {
    /// Returns the time of warm-ups and windows in a number of blocks.
    pub fn total_duration(&self, blocks: u32) -> Option<Duration> {
        let trials = self.trials_per_block.saturating_mul(u64::from(blocks));
        let trials = u32::try_from(trials).unwrap_or(u32::MAX);
        self.trial.map(|trial| trial.saturating_mul(trials))
    }
}

impl Experiment {
    pub fn size_of(&self, workload: &WorkloadSpec) -> Size {
        let points = workload.count_points(self.combination);
        let points_of = |swept: bool| if swept { points } else { 1 };
        let cells: u64 = self.conditions_of(workload).map(|c| points_of(c.everywhere)).sum();
        let window = self.window_of(workload).and_then(Extent::time);
        let trial = window.map(|window| self.warmup_of(workload) + window);
        Size { cells, trials_per_block: cells + u64::from(self.aa), trial }
    }

    pub fn warmup_of(&self, workload: &WorkloadSpec) -> Duration {
        workload.layer.warmup.unwrap_or(self.warmup)
    }

    /// Returns what ends a window; absent if the command decides.
    pub fn window_of(&self, workload: &WorkloadSpec) -> Option<Extent> {
        let layer = &workload.layer;
        let command_decides =
            workload.command.as_ref().is_some_and(|c| !c.uses_placeholder("seconds"));
        let amount = layer.transactions.map(Extent::Transactions);
        let amount = amount.or(layer.work_loop.map(Extent::Calls));
        let time = Extent::Time(layer.run_time.unwrap_or(self.duration));
        (!command_decides).then_some(amount.unwrap_or(time))
    }
}

/// Refuses a limit of cells without axes or a design, and too many axes and trials.
pub(crate) fn check(head: &Section<'_>, experiment: &Experiment) -> Result<(), ConfigError> {
    let any = experiment.workloads.iter().any(|w| !w.axes.is_empty());
    if head.has(&keys::cells_limit) && !any && experiment.design.is_none() {
        return Err(head.error(&keys::cells_limit, NO_AXIS));
    }
    for workload in &experiment.workloads {
        refuse_too_many_axes(head, workload)?;
        refuse_too_many_trials(head, experiment, workload)?;
    }
    Ok(())
}

fn refuse_too_many_axes(head: &Section<'_>, workload: &WorkloadSpec) -> Result<(), ConfigError> {
    let (name, axes, limit) = (&workload.name, workload.axes.len(), limits::AXES);
    if axes > limit {
        Err(head.header_error(format!("workload `{name}` has {axes} axes; the maximum is {limit}")))
    } else {
        Ok(())
    }
}

/// Refuses too many trials in the maximum number of blocks.
fn refuse_too_many_trials(
    head: &Section<'_>,
    experiment: &Experiment,
    workload: &WorkloadSpec,
) -> Result<(), ConfigError> {
    let blocks = u64::from(experiment.rules.max_blocks);
    let trials = experiment.size_of(workload).trials_per_block.saturating_mul(blocks);
    let (name, limit) = (&workload.name, limits::TRIALS);
    if trials > limit {
        Err(head.error(
            &keys::blocks,
            format!(
                "workload `{name}` has {trials} trials in {blocks} blocks; the maximum is {limit}"
            ),
        ))
    } else {
        Ok(())
    }
}
