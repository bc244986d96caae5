//! Runs one block: its trials in order, then repairs of invalid trials.
//!
//! A repair is a round of its own right after the block: the baseline and every condition whose pair is
//! broken, in random order, all with the same attempt number. A pair is broken if the condition's trial
//! or the baseline's of the same attempt is invalid. Trials that failed are outcomes and are not repeated.
//! What an interruption left without a pair is such a round as well.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{self, AssertUnwindSafe};
use std::thread;

use super::{Decision, Ended, Invalid, LastAttempt, NoneValid, Rules, Runner, StoredAttempts};
use crate::experiment::plan::Planned;
use crate::rng::{SplitMix64, derive};
use pgio_results::model::Outcome;

/// Number of consecutive failures that end the run.
const FAILURES_IN_A_ROW: u32 = 3;
/// Number of whole blocks without a valid trial that end a run.
const BLOCKS_WITHOUT_VALID: u32 = 2;

/// What blocks pass on to those after them: the burn-in, and what ends a run early, counted over its trials so far.
#[derive(Debug, Default)]
pub(super) struct RunTally {
    /// The burn-in trial until it runs, right before the first other trial. That may be a repeat alone, or one of a
    /// further block.
    pub(super) burn_in: Option<Planned>,
    /// Failed trials in a row.
    pub(super) failures: u32,
    pub(super) validity: Validity,
}

/// The last attempt of each cell of the block.
type Attempts = BTreeMap<usize, LastAttempt>;

/// Returns how the loop ended; none if it continues.
pub(super) fn run<R: Runner>(
    block: &[Planned],
    baselines: &[usize],
    rules: Rules,
    done: &StoredAttempts,
    tally: &mut RunTally,
    runner: &mut R,
) -> Result<Option<Ended>, R::Error> {
    let RunTally { burn_in, failures, validity } = tally;
    let number = block[0].block;
    let mut pass = due_trials(block, baselines, done);
    let mut attempts = done.last_attempts(number);
    // In the planned order, a baseline whose first pairs stay would come before all that is missing.
    let mut position = block.iter().map(|planned| planned.position).max().unwrap_or(0);
    if pass.len() < block.len() && pass.iter().any(|planned| planned.attempt > 0) {
        draw_order(&mut pass, rules.seed);
        renumber(&mut pass, &mut position);
    }
    // Complete blocks stay as they are; only the interrupted block is repaired.
    if pass.is_empty() && number < done.last_block() {
        if validity.lacks_valid_trial() {
            validity.add_stored(&attempts, &runner.invalid_trials(number));
        }
        return Ok(None);
    }
    // Every attempt made here, and whether it completed.
    let mut made: Vec<(usize, LastAttempt)> = Vec::new();
    let mut given_up = BTreeSet::new();
    loop {
        for shared in windows(&mut pass, baselines, runner.weaves()) {
            if let Some(first) = burn_in.take()
                && let (_, Some(ended)) = run_window(&[first], failures, runner)?
            {
                return Ok(Some(ended));
            }
            let (complete, ended) = run_window(shared, failures, runner)?;
            if ended.is_some() {
                return Ok(ended);
            }
            if let Some(why) = runner.outgrown(number) {
                return Ok(Some(Ended::Outgrown(why)));
            }
            for (planned, complete) in shared.iter().zip(complete) {
                let before = attempts.get(&planned.cell).map_or(0, |last| last.completed);
                let completed = before + u32::from(complete);
                let last = LastAttempt { attempt: planned.attempt, complete, completed };
                attempts.insert(planned.cell, last);
                made.push((planned.cell, last));
            }
        }
        let invalid = runner.invalid_trials(number);
        pass = repair(block, baselines, rules, &attempts, &invalid, &mut given_up, runner);
        renumber(&mut pass, &mut position);
        if pass.is_empty() {
            validity.add_stored(&done.last_attempts(number), &invalid);
            validity.add_block(&made, &invalid);
            return Ok(None);
        }
    }
}

/// Sorts the trials into windows: one each, or one for each baseline with its conditions. Shared windows are in the
/// order of their first trials, so that their order is drawn as well: in a fixed one, drift within a block would fall on
/// the same points each time.
fn windows<'a>(pass: &'a mut [Planned], baselines: &[usize], weaves: bool) -> Vec<&'a [Planned]> {
    if weaves {
        let mut first = BTreeMap::new();
        for (at, planned) in pass.iter().enumerate() {
            first.entry(baselines[planned.cell]).or_insert(at);
        }
        pass.sort_by_key(|planned| first[&baselines[planned.cell]]);
        pass.chunk_by(|a, b| baselines[a.cell] == baselines[b.cell]).collect()
    } else {
        pass.chunks(1).collect()
    }
}

/// Returns how the loop ended if it did. In a shared window, one condition may fail and end it for the others.
fn record_outcome(outcomes: Vec<Outcome>, failures: &mut u32) -> Option<Ended> {
    match outcomes.into_iter().find(|outcome| *outcome != Outcome::Complete) {
        Some(Outcome::Failed { error }) => {
            *failures += 1;
            (*failures == FAILURES_IN_A_ROW).then_some(Ended::Failing(error))
        }
        Some(Outcome::Interrupted) => Some(Ended::Interrupted),
        Some(Outcome::Complete) | None => {
            *failures = 0;
            None
        }
    }
}

/// Returns the trials of a block still to run, in order: each condition without a pair, and its baseline beside it. The
/// trials of a pair have the same attempt: between two runs the machine changes, and a private server is another one.
/// So what never ran in a block that was begun has a baseline of its own, and pairs that are complete stay.
pub(super) fn due_trials(
    block: &[Planned],
    baselines: &[usize],
    done: &StoredAttempts,
) -> Vec<Planned> {
    let number = block[0].block;
    let known = done.last_attempts(number);
    let has_pair = |cell: usize| {
        let last = known.get(&cell).filter(|last| last.complete);
        last.is_some_and(|last| done.is_complete(number, baselines[cell], last.attempt))
    };
    let lacking = block.iter().map(|planned| planned.cell).filter(|cell| !has_pair(*cell));
    let mut due: BTreeSet<usize> =
        lacking.filter(|cell| !only_beside_others(*cell, block, baselines)).collect();
    let beside: Vec<usize> = due.iter().map(|cell| baselines[*cell]).collect();
    due.extend(beside);
    let due_trials = block.iter().filter(|planned| due.contains(&planned.cell));
    due_trials.map(|p| p.with_attempt(next_round(baselines[p.cell], baselines, &known))).collect()
}

/// Whether the cell is the baseline of others in the block. Its trial is useless alone: it is repeated only beside a
/// condition.
fn only_beside_others(cell: usize, block: &[Planned], baselines: &[usize]) -> bool {
    baselines[cell] == cell && block.iter().any(|p| p.cell != cell && baselines[p.cell] == cell)
}

/// Returns the next attempt of a baseline and its conditions, the same for all.
fn next_round(baseline: usize, baselines: &[usize], attempts: &Attempts) -> u32 {
    let same_window = attempts.iter().filter(|(cell, _)| baselines[**cell] == baseline);
    same_window.map(|(_, last)| last.attempt + 1).max().unwrap_or(0)
}

/// Draws the order of trials that are measured again.
fn draw_order(pass: &mut [Planned], seed: u64) {
    if let Some(round) = pass.iter().map(|t| t.attempt).max() {
        let block_seed = derive(seed, "repair", u64::from(pass[0].block));
        SplitMix64::new(derive(block_seed, "round", u64::from(round))).shuffle(pass);
    }
}

/// Positions in the block continue after the planned trials.
fn renumber(pass: &mut [Planned], last: &mut u32) {
    for planned in pass {
        *last += 1;
        planned.position = *last;
    }
}

/// A condition whose trial or whose baseline's is invalid.
struct BrokenPair<'a> {
    planned: &'a Planned,
    /// Its own last attempt: in a round that was interrupted, only its baseline may have run.
    attempt: u32,
    /// How many of its attempts completed; an interruption uses up no repeat.
    completed: u32,
    why: String,
    checks: &'a [String],
}

/// Returns the broken pairs of a block. A failed trial has no pair.
fn broken_pairs<'a>(
    block: &'a [Planned],
    baselines: &[usize],
    attempts: &Attempts,
    invalid: &'a [Invalid],
) -> Vec<BrokenPair<'a>> {
    let find_invalid =
        |cell: usize, attempt: u32| invalid.iter().find(|i| i.cell == cell && i.attempt == attempt);
    let broken_pair = |planned: &'a Planned| {
        let LastAttempt { attempt, completed, .. } =
            *attempts.get(&planned.cell).filter(|last| last.complete)?;
        let baseline = baselines[planned.cell];
        if only_beside_others(planned.cell, block, baselines) {
            return None;
        }
        let baseline_reason = || {
            let invalid_baseline = find_invalid(baseline, attempt)?;
            let why = format!("the baseline beside it is invalid: {}", invalid_baseline.why);
            Some((why, invalid_baseline.checks.as_slice()))
        };
        let own = find_invalid(planned.cell, attempt).map(|i| (i.why.clone(), i.checks.as_slice()));
        let (why, checks) = own.or_else(baseline_reason)?;
        Some(BrokenPair { planned, attempt, completed, why, checks })
    };
    block.iter().filter_map(broken_pair).collect()
}

/// Whether an earlier run ended before it repeated everything in the block that may be repeated.
pub(super) fn is_unrepaired(
    block: &[Planned],
    baselines: &[usize],
    repeats: u32,
    done: &StoredAttempts,
    invalid: &[Invalid],
) -> bool {
    let Some(first) = block.first() else { return false };
    let attempts = done.last_attempts(first.block);
    broken_pairs(block, baselines, &attempts, invalid).iter().any(|pair| pair.completed <= repeats)
}

/// Returns what to repeat after this round, in random order.
fn repair<R: Runner>(
    block: &[Planned],
    baselines: &[usize],
    rules: Rules,
    attempts: &Attempts,
    invalid: &[Invalid],
    given_up: &mut BTreeSet<usize>,
    runner: &mut R,
) -> Vec<Planned> {
    let mut pass: Vec<Planned> = Vec::new();
    for BrokenPair { planned, attempt, completed, why, checks } in
        broken_pairs(block, baselines, attempts, invalid)
    {
        if completed <= rules.repeats {
            let round = next_round(baselines[planned.cell], baselines, attempts);
            let again = planned.with_attempt(round);
            runner.report_decision(Decision::Repeats { planned: &again, why: &why, checks });
            pass.push(again);
        } else if given_up.insert(planned.cell) {
            runner.report_decision(Decision::Excludes {
                planned: &planned.with_attempt(attempt),
                why: &why,
            });
        }
    }
    for planned in block.iter().filter(|p| baselines[p.cell] == p.cell) {
        let beside = pass.iter().find(|t| baselines[t.cell] == planned.cell);
        let known = pass.iter().any(|t| t.cell == planned.cell);
        if let (Some(attempt), false) = (beside.map(|t| t.attempt), known) {
            let again = planned.with_attempt(attempt);
            runner.report_decision(Decision::RepeatsBaseline { planned: &again });
            pass.push(again);
        }
    }
    draw_order(&mut pass, rules.seed);
    pass
}

/// Undoes the condition if a panic unwinds the stack past [`run_window`]'s own undo. The journal keeps what is not
/// undone, as after a kill.
struct UndoOnPanic<'a, R: Runner> {
    runner: &'a mut R,
    planned: &'a Planned,
}

impl<R: Runner> Drop for UndoOnPanic<'_, R> {
    fn drop(&mut self) {
        if thread::panicking() {
            // Nobody is left to receive an error. A second panic, such as an observer's, would abort here.
            let undo = AssertUnwindSafe(|| self.runner.undo(self.planned));
            let _ = panic::catch_unwind(undo);
        }
    }
}

/// Runs one trial, or several that share a woven window. Returns whether each is complete, and how the loop ended if
/// it did.
fn run_window<R: Runner>(
    shared: &[Planned],
    failures: &mut u32,
    runner: &mut R,
) -> Result<(Vec<bool>, Option<Ended>), R::Error> {
    let interrupted = (Vec::new(), Some(Ended::Interrupted));
    let first = &shared[0];
    if runner.stop_requested() {
        return Ok(interrupted);
    }
    let stored = {
        let guard = UndoOnPanic { runner: &mut *runner, planned: first };
        let runner = &mut *guard.runner;
        let reset = runner.reset(first);
        // A stopped load is not an error, but there is nothing to measure.
        if runner.stop_requested() {
            return Ok(interrupted);
        }
        let measured = reset.and_then(|()| match shared {
            [alone] => runner.put_in_force(alone).map(|()| vec![runner.run_trial(alone)]),
            several => runner.weave(several),
        });
        measured.and_then(|trials| {
            trials.iter().try_for_each(|trial| runner.store(trial))?;
            Ok(trials.into_iter().map(|trial| trial.outcome).collect::<Vec<Outcome>>())
        })
    };
    let undone = runner.undo(first);
    match stored {
        Err(error) if R::is_stop(&error) => undone.map(|()| interrupted),
        // What is still in place is named with the error, by its journal.
        Err(error) => Err(error),
        Ok(outcomes) => undone.map(|()| {
            let complete = outcomes.iter().map(|outcome| *outcome == Outcome::Complete).collect();
            (complete, record_outcome(outcomes, failures))
        }),
    }
}

/// Whether any trial is valid so far; a run without one ends early.
///
/// What makes every trial of two blocks invalid, repeats included, rarely ends by itself: a busy host, a
/// setting that no condition declares. Going on would take hours and answer nothing. The rule is
/// conservative: one valid trial of any condition, also one of an earlier run that is continued, keeps
/// the run going to its end. A continued run gets two blocks of its own first, because the cause may be
/// gone. Trials that only failed are left to the rule of three failures in a row.
#[derive(Debug, Default)]
pub(super) struct Validity {
    any_valid: bool,
    /// The trials made by this run.
    own_trials: NoneValid,
}

impl Validity {
    /// Whether no trial is known to be valid yet.
    fn lacks_valid_trial(&self) -> bool {
        !self.any_valid
    }

    /// Adds the last attempts of a block that an earlier run stored.
    fn add_stored(&mut self, stored: &BTreeMap<usize, LastAttempt>, invalid: &[Invalid]) {
        self.any_valid |= stored.iter().any(|(cell, last)| is_valid(*cell, *last, invalid));
    }

    /// Adds all attempts that this run made in one block.
    fn add_block(&mut self, attempts: &[(usize, LastAttempt)], invalid: &[Invalid]) {
        self.any_valid |= attempts.iter().any(|(cell, last)| is_valid(*cell, *last, invalid));
        self.own_trials.blocks += u32::from(!attempts.is_empty());
        self.own_trials.trials += attempts.len();
        self.own_trials.failed += attempts.iter().filter(|(_, last)| !last.complete).count();
        let is_own = |i: &&Invalid| attempts.iter().any(|(cell, last)| is_attempt(i, *cell, *last));
        for check in invalid.iter().filter(is_own).flat_map(|i| &i.checks) {
            *self.own_trials.checks.entry(check.clone()).or_default() += 1;
        }
    }

    /// Returns what was found if the run must end.
    pub(super) fn none_valid(&self) -> Option<NoneValid> {
        let NoneValid { blocks, trials, failed, .. } = self.own_trials;
        let ends = !self.any_valid && blocks >= BLOCKS_WITHOUT_VALID && trials > failed;
        ends.then(|| self.own_trials.clone())
    }
}

fn is_attempt(invalid: &Invalid, cell: usize, last: LastAttempt) -> bool {
    (invalid.cell, invalid.attempt) == (cell, last.attempt)
}

fn is_valid(cell: usize, last: LastAttempt, invalid: &[Invalid]) -> bool {
    last.complete && !invalid.iter().any(|i| is_attempt(i, cell, last))
}
