//! What a workload's run has to do: the planned trials, and which of them an interrupted run left.
//!
//! Decides from files and records alone; nothing is asked of a server here.

use super::cells::baseline_cell;
use super::job::Job;
use crate::config::experiment::{self, WorkloadSpec};
use crate::experiment::judging;
use crate::experiment::live::LiveCell;
use crate::experiment::plan::{Planned, burn_in, plan};
use crate::experiment::run::{self, Done, Rules};
use crate::results::store::Stored;
use crate::results::sweep::Cell;

#[derive(Debug)]
pub(super) struct Agenda {
    pub(super) plan: Vec<Planned>,
    /// As for [`run::run`].
    pub(super) baselines: Vec<usize>,
    pub(super) rules: Rules,
    pub(super) done: Done,
    /// Of the plan, what has to be run in any case.
    pub(super) left: Vec<Planned>,
}

impl Agenda {
    /// `earlier` is what an interrupted run left.
    pub(super) fn of(
        job: &Job,
        spec: &WorkloadSpec,
        rules: &experiment::Rules,
        cells: &[LiveCell],
        earlier: Option<&Stored>,
    ) -> Agenda {
        let e = &job.experiment;
        let mut plan = plan(cells.len(), rules.max_blocks, job.seed);
        if e.burns_in(spec) {
            plan.insert(0, burn_in(baseline_cell(e, cells)));
        }
        let ids: Vec<Cell> = cells.iter().map(|c| c.cell.clone()).collect();
        let done = earlier.map(|stored| judging::done(&stored.trials, &ids)).unwrap_or_default();
        let baselines = judging::baselines(&ids, &e.baseline);
        let left = run::left(&done, &plan, &baselines, e.blocks);
        let rules = Rules {
            blocks: e.blocks,
            repeats: rules.repeats,
            until_precise: rules.precision.is_some(),
            seed: job.seed,
        };
        Agenda { plan, baselines, rules, done, left }
    }

    /// With a precision only the intervals decide whether more blocks follow.
    pub(super) fn is_complete(&self) -> bool {
        self.left.is_empty() && !self.rules.until_precise
    }
}
