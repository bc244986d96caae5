//! The loop, separate from what it acts on, so that tests check the order of events with a fake.
//!
//! For each trial: reset, apply its condition, measure, store, undo. A trial is on disk
//! before the next begins; an applied condition is undone whatever happened in between.
//! Invalid trials are repeated at the end of their block, each with its baseline measured again beside it:
//! a repaired block is a new pair, not half of one from another time. Blocks beyond those requested
//! follow one at a time, until the intervals are narrow enough or the plan ends. A plan may begin with a
//! burn-in trial, a block of its own that is neither judged nor repeated. It runs right before the first other
//! trial, so never alone. Blocks without any valid trial end the run early (`validity`).

mod block;
mod stage;
#[cfg(test)]
mod tests;
mod validity;

use self::block::RunTally;
pub use self::stage::{Decision, Ended, Invalid, NoneValid, Rules, Stage, StoredAttempts};
use super::plan::Planned;
use pgio_results::BURN_IN_BLOCK;

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

/// Whether the last block that was begun holds invalid trials that may still be repeated. `invalid` are those of
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
pub fn run<S: Stage>(
    plan: &[Planned],
    baselines: &[usize],
    rules: Rules,
    done: &StoredAttempts,
    stage: &mut S,
) -> Result<Ended, S::Error> {
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
            if stage.stop_requested() {
                return Ok(Ended::Interrupted);
            }
            if stage.is_precise(false) {
                return Ok(Ended::Precise);
            }
            stage.report_decision(Decision::FurtherBlock { block: number, trials: block.len() });
        }
        if let Some(ended) = block::run(block, baselines, rules, done, &mut tally, stage)? {
            return Ok(ended);
        }
    }
    Ok(if !rules.until_precise {
        Ended::Complete
    } else if stage.is_precise(true) {
        Ended::Precise
    } else {
        Ended::BlockLimit
    })
}
