//! What the loop acts on, and the types that pass between the two.
//!
//! [`Stage`] is the one way to the outside: `live` implements it on real servers, the tests by a log.

use std::collections::BTreeMap;

use crate::experiment::plan::Planned;
use crate::results::model::Trial;

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
    fn decided(&mut self, decision: Decision<'_>);
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
pub enum Decision<'a> {
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
    pub(super) fn last_block(&self) -> u32 {
        self.0.last_key_value().map_or(0, |((block, _), _)| *block)
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
