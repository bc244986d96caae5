//! One block: its trials in their order, then those again that turned out invalid.

use std::collections::{BTreeMap, BTreeSet};

use super::{Done, Ended, News, Outcome, Planned, Rules, Stage};

/// After so many failures in a row the next one would tell nothing new.
const FAILURES_IN_A_ROW: u32 = 3;

/// Something only where the whole loop ends.
pub(super) fn run<S: Stage>(
    block: &[Planned],
    rules: Rules,
    done: &Done,
    failures: &mut u32,
    stage: &mut S,
) -> Result<Option<Ended>, S::Error> {
    let number = block[0].block;
    let mut turn: Vec<Planned> = block.iter().filter_map(|p| done.due(p)).collect();
    // What was complete before stays as it is, but for the block that was cut short.
    if turn.is_empty() && number < done.last_block() {
        return Ok(None);
    }
    let earlier = done.0.range((number, 0)..=(number, usize::MAX));
    let mut attempts: BTreeMap<usize, u32> =
        earlier.map(|((_, cell), last)| (*cell, last.attempt)).collect();
    let mut given_up = BTreeSet::new();
    loop {
        for planned in &turn {
            if let Some(ended) = one_trial(planned, failures, stage)? {
                return Ok(Some(ended));
            }
            attempts.insert(planned.cell, planned.attempt);
        }
        let invalid = stage.invalid(number);
        turn.clear();
        for planned in block {
            let Some(found) = invalid.iter().find(|i| i.cell == planned.cell) else {
                continue;
            };
            let attempt = attempts.get(&planned.cell).copied().unwrap_or_default();
            if attempt < rules.repeats {
                let again = Planned { attempt: attempt + 1, ..*planned };
                stage.tell(News::Repeats {
                    planned: &again,
                    why: &found.why,
                    checks: &found.checks,
                });
                turn.push(again);
            } else if given_up.insert(planned.cell) {
                let planned = Planned { attempt, ..*planned };
                stage.tell(News::GivesUp { planned: &planned, why: &found.why });
            }
        }
        if turn.is_empty() {
            return Ok(None);
        }
    }
}

pub(super) fn one_trial<S: Stage>(
    planned: &Planned,
    failures: &mut u32,
    stage: &mut S,
) -> Result<Option<Ended>, S::Error> {
    if stage.stop_requested() {
        return Ok(Some(Ended::Interrupted));
    }
    let reset = stage.reset(planned);
    // A load that was stopped is no error, and nothing to measure on.
    if stage.stop_requested() {
        return Ok(Some(Ended::Interrupted));
    }
    let ready = reset.and_then(|()| stage.put_in_force(planned));
    let measured = ready.and_then(|()| {
        let trial = stage.trial(planned);
        stage.store(&trial).map(|()| trial.outcome)
    });
    let taken_back = stage.take_back(planned);
    // What could not be taken back is said first: it is still in place.
    let outcome = match measured {
        Err(error) if S::is_stop(&error) => return taken_back.map(|()| Some(Ended::Interrupted)),
        measured => measured?,
    };
    taken_back?;
    Ok(match outcome {
        Outcome::Complete => {
            *failures = 0;
            None
        }
        Outcome::Interrupted => Some(Ended::Interrupted),
        Outcome::Failed { error } => {
            *failures += 1;
            (*failures == FAILURES_IN_A_ROW).then_some(Ended::Failing(error))
        }
    })
}
