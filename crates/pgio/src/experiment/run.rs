//! The loop, apart from what it acts on, so that its order of events is tested with a fake.
//!
//! For each trial: reset, put its condition in force, measure, store, take back. A trial is on disk
//! before the next begins; what was put in force is taken back whatever happened in between.
//! Invalid trials are repeated at the end of their block, each with its baseline measured again beside it:
//! a repaired block is a new pair, not half of one from another stretch of time. Blocks beyond those asked
//! for come one at a time, until the intervals are narrow enough or the plan ends. A plan may begin with a
//! burn-in trial, a block of its own that is neither judged nor repeated.

mod block;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::plan::Planned;
use crate::results::BURN_IN_BLOCK;
use crate::results::model::{Outcome, Trial};

/// What the loop acts on.
pub trait Stage {
    type Error;
    /// Makes the data the same as before the first trial.
    fn reset(&mut self, planned: &Planned) -> Result<(), Self::Error>;
    fn put_in_force(&mut self, planned: &Planned) -> Result<(), Self::Error>;
    /// A failed trial is a record too.
    fn trial(&mut self, planned: &Planned) -> Trial;
    fn store(&mut self, trial: &Trial) -> Result<(), Self::Error>;
    fn take_back(&mut self, planned: &Planned) -> Result<(), Self::Error>;
    fn stop_requested(&self) -> bool;
    /// Whether the error says no more than that it was asked to stop.
    fn is_stop(_error: &Self::Error) -> bool {
        false
    }
    /// Of a block's trials, those that are complete and must not count.
    fn invalid(&mut self, block: u32) -> Vec<Invalid>;
    /// Whether the intervals are as narrow as was asked for. Before the `last` answer it may skip a look
    /// that cannot find them so.
    fn is_precise(&mut self, last: bool) -> bool;
    fn tell(&mut self, news: News<'_>);
}

/// A trial that must not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// Both as in [`Planned`].
    pub cell: usize,
    pub attempt: u32,
    pub why: String,
    /// Ids of the checks that say so.
    pub checks: Vec<String>,
}

/// What the loop decided, beside what was planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News<'a> {
    /// The trial is measured again, now.
    Repeats { planned: &'a Planned, why: &'a str, checks: &'a [String] },
    /// It is measured again beside a trial that is repeated.
    Beside { planned: &'a Planned },
    /// It was repeated as often as allowed and stays invalid.
    GivesUp { planned: &'a Planned, why: &'a str },
    /// The intervals are still too wide.
    FurtherBlock { block: u32, trials: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Blocks that run in any case; the plan may hold more, for the sake of precision.
    pub blocks: u32,
    pub repeats: u32,
    /// Whether the plan ends where the intervals are narrow enough.
    pub until_precise: bool,
    /// The experiment's, for the order of repairs.
    pub seed: u64,
}

/// The last attempt of each trial that an earlier run left, by block and cell.
#[derive(Debug, Clone, Default)]
pub struct Done(pub BTreeMap<(u32, usize), Last>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Last {
    pub attempt: u32,
    pub complete: bool,
}

impl Done {
    fn last_block(&self) -> u32 {
        self.0.last_key_value().map_or(0, |((block, _), _)| *block)
    }

    /// Trials of these blocks that have to be run, and the burn-in trial where it was not complete and
    /// others are left that need it. `baselines` as for [`run`].
    pub fn left(&self, plan: &[Planned], baselines: &[usize], blocks: u32) -> Vec<Planned> {
        let asked = plan.chunk_by(|a, b| a.block == b.block);
        let asked = asked.filter(|block| block[0].block <= blocks.max(self.last_block()));
        let due: Vec<Planned> =
            asked.flat_map(|block| block::due(block, baselines, self)).collect();
        let only_burn_in = due.iter().all(|p| p.block == BURN_IN_BLOCK);
        if only_burn_in { Vec::new() } else { due }
    }
}

/// How the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// All blocks that were asked for.
    Complete,
    /// The intervals are narrow enough.
    Precise,
    /// They are not, and no more blocks are allowed.
    BlockLimit,
    Interrupted,
    /// Trials kept failing; the last one's error.
    Failing(String),
}

/// `baselines` has for each cell the one that it is compared with: the baseline at the same point, which
/// for the baseline is itself.
pub fn run<S: Stage>(
    plan: &[Planned],
    baselines: &[usize],
    rules: Rules,
    done: &Done,
    stage: &mut S,
) -> Result<Ended, S::Error> {
    let mut failures = 0;
    for block in plan.chunk_by(|a, b| a.block == b.block) {
        let number = block[0].block;
        if number == BURN_IN_BLOCK {
            // Where nothing is left it would warm the server up for nothing.
            let left = done.left(plan, baselines, rules.blocks);
            for planned in left.iter().filter(|p| p.block == BURN_IN_BLOCK) {
                if let (_, Some(ended)) = block::one_trial(planned, &mut failures, stage)? {
                    return Ok(ended);
                }
            }
            continue;
        }
        if number > rules.blocks && number > done.last_block() {
            if stage.stop_requested() {
                return Ok(Ended::Interrupted);
            }
            if stage.is_precise(false) {
                return Ok(Ended::Precise);
            }
            stage.tell(News::FurtherBlock { block: number, trials: block.len() });
        }
        if let Some(ended) = block::run(block, baselines, rules, done, &mut failures, stage)? {
            return Ok(ended);
        }
    }
    Ok(match rules.until_precise {
        false => Ended::Complete,
        true if stage.is_precise(true) => Ended::Precise,
        true => Ended::BlockLimit,
    })
}
