//! The stage that the loop acts on, and the types that pass between them.
//!
//! [`Stage`] covers all external effects: `live` implements it on real servers, the tests with a log.

use std::collections::BTreeMap;

use crate::experiment::plan::Planned;
use pgio_results::BURN_IN_BLOCK;
use pgio_results::model::Trial;

/// External effects of the loop.
pub trait Stage {
    type Error;
    /// Restores the data as before the first trial.
    fn reset(&mut self, planned: &Planned) -> Result<(), Self::Error>;
    fn put_in_force(&mut self, planned: &Planned) -> Result<(), Self::Error>;
    /// Runs a trial; a failed trial is a record too.
    fn run_trial(&mut self, planned: &Planned) -> Trial;
    /// Whether the trials of one baseline and its conditions take turns in one window.
    fn weaves(&self) -> bool;
    /// Runs trials in a woven window, everything in force included; returns one record each. Called only if
    /// [`Stage::weaves`].
    fn weave(&mut self, turn: &[Planned]) -> Result<Vec<Trial>, Self::Error>;
    fn store(&mut self, trial: &Trial) -> Result<(), Self::Error>;
    fn undo(&mut self, planned: &Planned) -> Result<(), Self::Error>;
    fn stop_requested(&self) -> bool;
    /// Whether the error only reports a requested stop.
    fn is_stop(_error: &Self::Error) -> bool {
        false
    }
    /// Returns the block's trials that are complete but must not count.
    fn invalid_trials(&mut self, block: u32) -> Vec<Invalid>;
    /// Why the data of further trials cannot be those of the first one any more, if a trial of the block shows it.
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
pub(super) struct LastAttempt {
    pub(super) attempt: u32,
    pub(super) complete: bool,
    /// How many attempts completed, this one included.
    pub(super) completed: u32,
}

impl StoredAttempts {
    /// The last block with a trial; 0 if there is none.
    pub fn last_block(&self) -> u32 {
        self.0.last_key_value().map_or(0, |((block, ..), _)| *block)
    }

    pub(super) fn is_complete(&self, block: u32, cell: usize, attempt: u32) -> bool {
        self.0.get(&(block, cell, attempt)).is_some_and(|complete| *complete)
    }

    /// Returns the last attempt of each cell of the block.
    pub(super) fn last_attempts(&self, block: u32) -> BTreeMap<usize, LastAttempt> {
        let of_block = self.0.range((block, 0, 0)..=(block, usize::MAX, u32::MAX));
        let mut last: BTreeMap<usize, LastAttempt> = BTreeMap::new();
        for ((_, cell, attempt), complete) in of_block {
            let before = last.get(cell).map_or(0, |last| last.completed);
            let completed = before + u32::from(*complete);
            // Attempts ascend, so the last one stays.
            last.insert(*cell, LastAttempt { attempt: *attempt, complete: *complete, completed });
        }
        last
    }

    /// Has the burn-in repeated if trials are left: the server that it warmed up is gone.
    pub fn expire_burn_in(&mut self) {
        let of_burn_in = (BURN_IN_BLOCK, 0, 0)..=(BURN_IN_BLOCK, usize::MAX, u32::MAX);
        self.0.range_mut(of_burn_in).for_each(|(_, complete)| *complete = false);
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
