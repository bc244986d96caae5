//! The loop over the trials of a plan, and the [`Runner`] that it acts on: `live` is the one on real servers.
//!
//! For each trial: reset, apply its condition, measure, store, undo. A trial is on disk
//! before the next begins; an applied condition is undone whatever happened in between.
//! Invalid trials are repeated at the end of their block, each with its baseline measured again beside it:
//! a repaired block is a new pair, not half of one from another time. Blocks beyond those requested
//! follow one at a time, until the intervals are narrow enough or the plan ends. A plan may begin with a
//! burn-in trial, a block of its own that is neither judged nor repeated. It runs right before the first other
//! trial, so never alone. Blocks without any valid trial end the run early.

mod block;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::block::RunTally;
use super::plan::Planned;
use pgio_results::BURN_IN_BLOCK;
use pgio_results::model::Trial;

/// Returns the trials of these blocks still to run, and the burn-in trial if it was incomplete and
/// other trials need it. Each has its baseline beside it, at the same attempt. Repeats of invalid trials and further
/// blocks are not foreseen. `baselines` as for [`run`].
pub fn remaining(
    done: &StoredAttempts,
    plan: &[Planned],
    baselines: &[usize],
    blocks: u32,
) -> Vec<Planned> {
    let asked = plan.chunk_by(|a, b| a.block == b.block);
    let asked = asked.filter(|block| block[0].block <= blocks.max(done.last_block()));
    let due: Vec<Planned> =
        asked.flat_map(|block| block::due_trials(block, baselines, done)).collect();
    let only_burn_in = due.iter().all(|p| p.block == BURN_IN_BLOCK);
    if only_burn_in { Vec::new() } else { due }
}

/// Whether the last block that was begun holds invalid trials that may still be repeated. `invalid` are the invalid trials of
/// [`StoredAttempts::last_block`].
pub fn is_unrepaired(
    done: &StoredAttempts,
    plan: &[Planned],
    baselines: &[usize],
    repeats: u32,
    invalid: &[Invalid],
) -> bool {
    let last = plan.chunk_by(|a, b| a.block == b.block);
    // A burn-in trial is never repeated.
    let mut last = last.filter(|b| b[0].block == done.last_block() && b[0].block != BURN_IN_BLOCK);
    last.any(|block| block::is_unrepaired(block, baselines, repeats, done, invalid))
}

/// `baselines` holds for each cell the cell it is compared with: the baseline at the same point, which
/// for a baseline is the cell itself.
pub fn run<R: Runner>(
    plan: &[Planned],
    baselines: &[usize],
    rules: Rules,
    done: &StoredAttempts,
    runner: &mut R,
) -> Result<Ended, R::Error> {
    let mut tally = RunTally::default();
    for block in plan.chunk_by(|a, b| a.block == b.block) {
        let number = block[0].block;
        if number == BURN_IN_BLOCK {
            tally.burn_in = block::due_trials(block, baselines, done).pop();
            continue;
        }
        if let Some(none_valid) = tally.validity.none_valid() {
            return Ok(Ended::NoneValid(none_valid));
        }
        if number > rules.blocks && number > done.last_block() {
            if runner.stop_requested() {
                return Ok(Ended::Interrupted);
            }
            if runner.is_precise(false) {
                return Ok(Ended::Precise);
            }
            runner.report_decision(Decision::FurtherBlock { block: number, trials: block.len() });
        }
        if let Some(ended) = block::run(block, baselines, rules, done, &mut tally, runner)? {
            return Ok(ended);
        }
    }
    Ok(if !rules.until_precise {
        Ended::Complete
    } else if runner.is_precise(true) {
        Ended::Precise
    } else {
        Ended::BlockLimit
    })
}

/// External effects of the loop.
pub trait Runner {
    type Error;
    /// Restores the data as before the first trial.
    fn reset(&mut self, planned: &Planned) -> Result<(), Self::Error>;
    fn put_in_force(&mut self, planned: &Planned) -> Result<(), Self::Error>;
    /// Runs a trial; a failed trial is a record too.
    fn run_trial(&mut self, planned: &Planned) -> Trial;
    /// Whether the trials of one baseline and its conditions take turns in one window.
    fn weaves(&self) -> bool;
    /// Runs trials in a woven window, everything in force included; returns one record each. Called only if
    /// [`Runner::weaves`].
    fn weave(&mut self, shared: &[Planned]) -> Result<Vec<Trial>, Self::Error>;
    fn store(&mut self, trial: &Trial) -> Result<(), Self::Error>;
    fn undo(&mut self, planned: &Planned) -> Result<(), Self::Error>;
    fn stop_requested(&self) -> bool;
    /// Whether the error only reports a requested stop.
    fn is_stop(_error: &Self::Error) -> bool {
        false
    }
    /// Returns the block's trials that are complete but must not count.
    fn invalid_trials(&mut self, block: u32) -> Vec<Invalid>;
    /// Why the data of further trials cannot be the first one's any more, if a trial of the block shows it.
    fn outgrown(&mut self, _block: u32) -> Option<String> {
        None
    }
    /// Whether the intervals are as narrow as requested. Before the `last` call it may skip a check
    /// that cannot succeed.
    fn is_precise(&mut self, last: bool) -> bool;
    fn report_decision(&mut self, decision: Decision<'_>);
}

/// A trial that must not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// See [`Planned`].
    pub cell: usize,
    pub attempt: u32,
    pub why: String,
    /// Ids of the checks that failed.
    pub checks: Vec<String>,
}

/// A decision of the loop beyond the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision<'a> {
    /// The trial is repeated now.
    Repeats { planned: &'a Planned, why: &'a str, checks: &'a [String] },
    /// The baseline is repeated beside a repeated trial.
    RepeatsBaseline { planned: &'a Planned },
    /// The trial stays invalid after all allowed repeats.
    Excludes { planned: &'a Planned, why: &'a str },
    /// The intervals are too wide; another block follows.
    FurtherBlock { block: u32, trials: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Blocks that run in any case; with a precision the plan holds more.
    pub blocks: u32,
    pub repeats: u32,
    /// Whether the run ends when the intervals are narrow enough.
    pub until_precise: bool,
    /// The experiment's seed, for the order of repairs.
    pub seed: u64,
}

/// The trials of an earlier run by block, cell and attempt, and whether each is complete.
#[derive(Debug, Clone, Default)]
pub struct StoredAttempts(pub BTreeMap<(u32, usize, u32), bool>);

/// The last attempt of a cell in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastAttempt {
    attempt: u32,
    complete: bool,
    /// How many attempts completed, this one included.
    completed: u32,
}

impl StoredAttempts {
    /// The last block with a trial; 0 if there is none.
    pub fn last_block(&self) -> u32 {
        self.0.last_key_value().map_or(0, |((block, ..), _)| *block)
    }

    fn is_complete(&self, block: u32, cell: usize, attempt: u32) -> bool {
        self.0.get(&(block, cell, attempt)).is_some_and(|complete| *complete)
    }

    /// Returns the last attempt of each cell of the block.
    fn last_attempts(&self, block: u32) -> BTreeMap<usize, LastAttempt> {
        let attempts = self.0.range((block, 0, 0)..=(block, usize::MAX, u32::MAX));
        let mut last: BTreeMap<usize, LastAttempt> = BTreeMap::new();
        for ((_, cell, attempt), complete) in attempts {
            let before = last.get(cell).map_or(0, |last| last.completed);
            let completed = before + u32::from(*complete);
            // Attempts ascend, so the last one stays.
            last.insert(*cell, LastAttempt { attempt: *attempt, complete: *complete, completed });
        }
        last
    }

    /// Has the burn-in repeated if trials are left: the server that it warmed up is gone.
    pub fn expire_burn_in(&mut self) {
        let burn_ins = (BURN_IN_BLOCK, 0, 0)..=(BURN_IN_BLOCK, usize::MAX, u32::MAX);
        self.0.range_mut(burn_ins).for_each(|(_, complete)| *complete = false);
    }
}

/// How the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// All requested blocks ran.
    Complete,
    /// The intervals are narrow enough.
    Precise,
    /// The intervals are too wide, and no more blocks are allowed.
    BlockLimit,
    Interrupted,
    /// Trials failed repeatedly; the error of the last one.
    Failing(String),
    /// The data set has grown too much, which no repeat can mend.
    Outgrown(String),
    /// Blocks and their repeats have no valid trial, and more blocks would follow.
    NoneValid(NoneValid),
}

/// The trials of blocks without a valid one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoneValid {
    pub blocks: u32,
    pub trials: usize,
    pub failed: usize,
    /// How many trials each check made invalid.
    pub checks: BTreeMap<String, usize>,
}
