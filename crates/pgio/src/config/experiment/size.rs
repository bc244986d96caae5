//! How large an experiment is: cells, trials, time; and what is too large to be begun by a slip.
//!
//! A list too many multiplies a grid, so a sweep beyond [`CELLS`] or [`HOURS`] is refused unless the
//! file says that it is meant. Times are those of warm-up and windows: what comes between them is
//! not known beforehand.

use std::time::Duration;

use super::Experiment;
use super::limits;
use super::section::Section;
use super::sweep::SweepKind;
use super::workload::WorkloadSpec;
use crate::config::error::{ConfigError, nearest};
use crate::config::resolve::Extent;

/// Cells of a workload.
const CELLS: u64 = 200;
/// Of warm-up and windows in all blocks that are asked for.
const HOURS: u64 = 8;

/// Keys of `[experiment]` that mean nothing without a sweep.
const KEYS: &[&str] = &["sweep", "cells_limit"];
const KINDS: &[(&str, SweepKind)] =
    &[("one-at-a-time", SweepKind::OneAtATime), ("grid", SweepKind::Grid)];

/// How much a workload asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Conditions at points; the baseline's twin repeats one of them.
    pub cells: u64,
    /// One for each cell, and the twin.
    pub trials_of_a_block: u64,
    /// Of warm-up and window; absent where the work does not end by time.
    pub trial: Option<Duration>,
}

impl Size {
    /// Warm-up and windows of so many blocks.
    pub fn lasts(&self, blocks: u32) -> Option<Duration> {
        let trials = self.trials_of_a_block.saturating_mul(u64::from(blocks));
        let trials = u32::try_from(trials).unwrap_or(u32::MAX);
        self.trial.map(|trial| trial.saturating_mul(trials))
    }
}

impl Experiment {
    pub fn size_of(&self, workload: &WorkloadSpec) -> Size {
        let points = workload.count_points(self.sweep);
        let of = |swept: bool| if swept { points } else { 1 };
        let cells: u64 = self.conditions_of(workload).map(|c| of(c.sweep)).sum();
        let trial = match self.window_of(workload) {
            Some(Extent::Time(window)) => Some(self.warmup_of(workload) + window),
            _ => None,
        };
        Size { cells, trials_of_a_block: cells + u64::from(self.aa), trial }
    }

    pub fn warmup_of(&self, workload: &WorkloadSpec) -> Duration {
        workload.layer.warmup.unwrap_or(self.warmup)
    }

    /// What ends a window; absent where its command does when it likes.
    pub fn window_of(&self, workload: &WorkloadSpec) -> Option<Extent> {
        let layer = &workload.layer;
        let by_itself = workload.command.as_ref().is_some_and(|c| !c.says("seconds"));
        let amount = layer.transactions.map(Extent::Transactions);
        let amount = amount.or(layer.work_loop.map(Extent::Calls));
        let time = Extent::Time(layer.run_time.unwrap_or(self.duration));
        (!by_itself).then_some(amount.unwrap_or(time))
    }
}

pub(super) fn kind(head: &Section<'_>) -> Result<SweepKind, ConfigError> {
    let Some(text) = head.string("sweep")? else { return Ok(SweepKind::OneAtATime) };
    let found = KINDS.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind);
    found.ok_or_else(|| {
        let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
        head.error("sweep", format!("`{text}` is no way to sweep; {}", nearest(text, &names)))
    })
}

/// Refuses what makes no sense beside the axes, and a sweep that is larger than may be meant.
pub(super) fn check(head: &Section<'_>, experiment: &Experiment) -> Result<(), ConfigError> {
    let swept = |w: &&WorkloadSpec| !w.axes.is_empty();
    let any = experiment.workloads.iter().any(|w| swept(&w));
    if let Some(key) = KEYS.iter().find(|key| head.has(key) && !any) {
        let message = "means nothing without an axis: write a list, such as sessions = [1, 4, 16], or [[axis]]";
        return Err(head.error(key, message));
    }
    let stated = head.whole("cells_limit", 1..=limits::CELLS)?;
    for workload in &experiment.workloads {
        refuse_too_many_axes(head, workload)?;
        refuse_too_many_trials(head, experiment, workload)?;
    }
    for workload in experiment.workloads.iter().filter(swept) {
        let size = experiment.size_of(workload);
        let allowed = stated.unwrap_or(CELLS);
        let key = if stated.is_some() { "cells_limit" } else { "sweep" };
        let (name, cells) = (&workload.name, size.cells);
        if cells > allowed {
            let way = match cells <= limits::CELLS {
                true => format!(", or write cells_limit = {cells}"),
                false => String::new(),
            };
            let message = format!(
                "workload `{name}` has {cells} cells, and {allowed} are allowed: take values away{way}"
            );
            return Err(head.error(key, message));
        }
        let blocks = experiment.blocks;
        let lasts = size.lasts(blocks).unwrap_or_default();
        if stated.is_none() && lasts > Duration::from_secs(HOURS * 3600) {
            let message = format!(
                "workload `{name}` has {cells} cells in {blocks} blocks, {:.1} h of warm-up and windows, and more than {HOURS} h must be meant: take values away, or write cells_limit = {cells}",
                lasts.as_secs_f64() / 3600.0
            );
            return Err(head.error(key, message));
        }
    }
    Ok(())
}

fn refuse_too_many_axes(head: &Section<'_>, workload: &WorkloadSpec) -> Result<(), ConfigError> {
    let (name, axes, most) = (&workload.name, workload.axes.len(), limits::AXES);
    match axes > most {
        true => {
            Err(head
                .error_here(format!("workload `{name}` has {axes} axes, at most {most} are taken")))
        }
        false => Ok(()),
    }
}

/// Of all blocks that there may be.
fn refuse_too_many_trials(
    head: &Section<'_>,
    experiment: &Experiment,
    workload: &WorkloadSpec,
) -> Result<(), ConfigError> {
    let blocks = u64::from(experiment.rules.max_blocks);
    let trials = experiment.size_of(workload).trials_of_a_block.saturating_mul(blocks);
    let (name, most) = (&workload.name, limits::TRIALS);
    match trials > most {
        true => Err(head.error(
            "blocks",
            format!(
                "workload `{name}` has {trials} trials in {blocks} blocks, at most {most} are taken"
            ),
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::error::ConfigError;
    use crate::config::experiment::{Experiment, parse};
    use crate::config::resolve::Extent;

    fn read(head: &str, workload: &str) -> Result<Experiment, ConfigError> {
        let text = format!(
            "[experiment]\n{head}\n[workload]\nkind = \"commit\"\n{workload}\n\
             [[condition]]\nname = \"a\"\n[[condition]]\nname = \"b\"\n"
        );
        parse(&text, "f.toml", "f", &["postgres"], &[])
    }

    #[test]
    fn the_size_is_known_before_anything_is_run() {
        let lists = "sessions = [1, 4, 16]\nrows_per_transaction = [1, 10]";
        for (sweep, cells) in [("one-at-a-time", 8), ("grid", 12)] {
            let e =
                read(&format!("sweep = \"{sweep}\"\nduration = \"5s\"\nwarmup = \"1s\""), lists);
            let e = e.unwrap();
            let size = e.size_of(&e.workloads[0]);
            assert_eq!((size.cells, size.trials_of_a_block), (cells, cells + 1), "{sweep}");
            assert_eq!(size.lasts(2).unwrap().as_secs(), 12 * (cells + 1));
        }
        let e = read("aa = false", "transactions = 100").unwrap();
        let size = e.size_of(&e.workloads[0]);
        assert_eq!((size.trials_of_a_block, size.trial), (2, None));
        // What does not end by time is refused for no length, whatever the duration would make of it.
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
    fn what_may_not_be_meant_is_refused_unless_it_is_said() {
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
            "workload `commit` has 8192 cells, and 200 are allowed: take values away, or write \
             cells_limit = 8192"
        );
        let limited = |limit: u64| read(&format!("{head}\ncells_limit = {limit}"), &grid);
        assert!(limited(8192).is_ok());
        assert_eq!(limited(8191).unwrap_err().key.as_deref(), Some("experiment.cells_limit"));

        let lists = "sessions = [1, 2, 3]";
        let long = "duration = \"1h\"";
        let error = read(long, lists).unwrap_err();
        assert!(error.message.contains("6 cells in 6 blocks, 42.0 h of"), "{error}");
        assert!(read(&format!("{long}\ncells_limit = 6"), lists).is_ok());
        assert!(read(long, "").is_ok(), "without a sweep nothing multiplies");
    }

    #[test]
    fn keys_of_sweeps_need_one() {
        let error = read("sweep = \"grid\"", "").unwrap_err();
        assert!(error.message.starts_with("means nothing without an axis"), "{error}");
        let error = read("sweep = \"gird\"", "sessions = [1, 2]").unwrap_err();
        assert!(error.message.ends_with("the nearest valid one is `grid`"), "{error}");
    }
}
