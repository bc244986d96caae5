//! The size of an experiment in cells, trials and time, and limits against accidental large sweeps.
//!
//! One additional list multiplies a grid, so a sweep above [`DEFAULT_CELLS_LIMIT`] or [`MAX_HOURS`] is
//! refused unless the file sets `cells_limit`. Times include only warm-ups and windows, because the
//! time between them is not known in advance.

use std::time::Duration;

use super::keys;
use super::section::Section;
use super::workload::WorkloadSpec;
use super::{Combination, Experiment, limits};
use crate::config::resolve::Extent;
use crate::config::value::ConfigError;

/// Default maximum number of cells of a workload.
const DEFAULT_CELLS_LIMIT: u64 = 200;
/// Default maximum time of warm-ups and windows in all requested blocks.
const MAX_HOURS: u64 = 8;

/// Keys of `[experiment]` that require a sweep.
const KEYS: &[&str] = &[keys::sweep.key.name, keys::cells_limit.name];
pub(super) const KINDS: &[(&str, Combination)] =
    &[("one-at-a-time", Combination::OneAtATime), ("grid", Combination::Grid)];

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

/// Refuses sweep keys without axes, and sweeps that are probably larger than intended.
pub(super) fn check(head: &Section<'_>, experiment: &Experiment) -> Result<(), ConfigError> {
    let swept = |w: &&WorkloadSpec| !w.axes.is_empty();
    let any = experiment.workloads.iter().any(|w| swept(&w));
    let designed = |key: &str| key == keys::cells_limit.name && experiment.screening.is_some();
    if let Some(key) = KEYS.iter().find(|key| head.has(key) && !any && !designed(key)) {
        let message = "requires an axis; write a list, such as sessions = [1, 4, 16], or [[axis]]";
        return Err(head.error(key, message));
    }
    let stated = head.read(&keys::cells_limit)?;
    for workload in &experiment.workloads {
        refuse_too_many_axes(head, workload)?;
        refuse_too_many_trials(head, experiment, workload)?;
    }
    for workload in experiment.workloads.iter().filter(swept) {
        let size = experiment.size_of(workload);
        let allowed = stated.unwrap_or(DEFAULT_CELLS_LIMIT);
        let key = if stated.is_some() { keys::cells_limit.name } else { &keys::sweep };
        let (name, cells) = (&workload.name, size.cells);
        if cells > allowed {
            let hint = if cells <= limits::CELLS {
                format!(", or set cells_limit = {cells}")
            } else {
                String::new()
            };
            let message = format!(
                "workload `{name}` has {cells} cells, but only {allowed} are allowed; remove values{hint}"
            );
            return Err(head.error(key, message));
        }
        let blocks = experiment.blocks;
        let lasts = size.total_duration(blocks).unwrap_or_default();
        if stated.is_none() && lasts > Duration::from_secs(MAX_HOURS * 3600) {
            let message = format!(
                "workload `{name}` has {cells} cells in {blocks} blocks, which take {:.1} h of warm-ups and windows; remove values, or set cells_limit = {cells} to allow more than {MAX_HOURS} h",
                lasts.as_secs_f64() / 3600.0
            );
            return Err(head.error(key, message));
        }
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

#[cfg(test)]
mod tests {
    use crate::config::experiment::{Experiment, parse};
    use crate::config::resolve::Extent;
    use crate::config::value::ConfigError;

    fn read(head: &str, workload: &str) -> Result<Experiment, ConfigError> {
        let text = format!(
            "[experiment]\n{head}\n[workload]\nkind = \"commit\"\n{workload}\n\
             [[condition]]\nname = \"a\"\n[[condition]]\nname = \"b\"\n"
        );
        parse(&text, "f.toml", "f", &["postgres"], &[])
    }

    #[test]
    fn sweep_size_counts_cells_trials_and_duration() {
        let lists = "sessions = [1, 4, 16]\nrows_per_transaction = [1, 10]";
        for (sweep, cells) in [("one-at-a-time", 8), ("grid", 12)] {
            let e =
                read(&format!("sweep = \"{sweep}\"\nduration = \"5s\"\nwarmup = \"1s\""), lists);
            let e = e.unwrap();
            let size = e.size_of(&e.workloads[0]);
            assert_eq!((size.cells, size.trials_per_block), (cells, cells + 1), "{sweep}");
            assert_eq!(size.total_duration(2).unwrap().as_secs(), 12 * (cells + 1));
        }
        let e = read("aa = false", "transactions = 100").unwrap();
        let size = e.size_of(&e.workloads[0]);
        assert_eq!((size.trials_per_block, size.trial), (2, None));
        // The time limit does not apply if the window does not end by time.
        let hours = "duration = \"9h\"";
        read(hours, "sessions = [1, 2]\ntransactions = 100").unwrap();
        read(hours, "sessions = [1, 2]").unwrap_err();
        let slob = |keys| {
            let text = format!(
                "[experiment]\n{hours}\n[workload]\nkind = \"slob\"\n{keys}\n\
                 [[condition]]\nname = \"a\"\n[[condition]]\nname = \"b\"\n"
            );
            parse(&text, "f.toml", "f", &["postgres"], &[])
        };
        let e = slob("work_unit = [1, 8]\nwork_loop = 1000").unwrap();
        assert_eq!(e.window_of(&e.workloads[0]), Some(Extent::Calls(1000)));
        slob("work_unit = [1, 8]").unwrap_err();
    }

    #[test]
    fn large_sweeps_require_cells_limit() {
        let many: Vec<String> = (1..=16).map(|n| n.to_string()).collect();
        let grid = format!(
            "sessions = [{0}]\nrows_per_transaction = [{0}]\npayload = [{0}]",
            many.join(", ")
        );
        let head = "sweep = \"grid\"\nduration = \"1s\"\nwarmup = \"0s\"\nblocks = 1";
        let error = read(head, &grid).unwrap_err();
        assert_eq!(error.line, 2);
        assert_eq!(
            error.message,
            "workload `commit` has 8192 cells, but only 200 are allowed; remove values, or set \
             cells_limit = 8192"
        );
        let limited = |limit: u64| read(&format!("{head}\ncells_limit = {limit}"), &grid);
        assert!(limited(8192).is_ok());
        assert_eq!(limited(8191).unwrap_err().key.as_deref(), Some("experiment.cells_limit"));

        let lists = "sessions = [1, 2, 3]";
        let long = "duration = \"1h\"";
        let error = read(long, lists).unwrap_err();
        assert!(error.message.contains("6 cells in 7 blocks, which take 49.0 h of"), "{error}");
        assert!(read(&format!("{long}\ncells_limit = 6"), lists).is_ok());
        assert!(read(long, "").is_ok(), "the limit applies only to sweeps");
    }

    #[test]
    fn sweep_keys_require_an_axis() {
        let error = read("sweep = \"grid\"", "").unwrap_err();
        assert!(error.message.starts_with("requires an axis"), "{error}");
        let error = read("sweep = \"gird\"", "sessions = [1, 2]").unwrap_err();
        assert!(error.message.ends_with("the nearest valid one is `grid`"), "{error}");
    }
}
