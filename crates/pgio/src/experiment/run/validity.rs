//! Whether any trial is valid so far; a run without one ends early.
//!
//! What makes every trial of two blocks invalid, repeats included, rarely ends by itself: a busy host, a
//! setting that no condition declares. Going on would take hours and answer nothing. The rule is
//! conservative: one valid trial of any condition, also one of an earlier run that is continued, keeps
//! the run going to its end. A continued run gets two blocks of its own first, because the cause may be
//! gone. Trials that only failed are left to the rule of three failures in a row.

use std::collections::BTreeMap;

use super::stage::{Invalid, LastAttempt, NoneValid};

/// Number of whole blocks without a valid trial that end a run.
const BLOCKS_WITHOUT_VALID: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Validity {
    any_valid: bool,
    /// The trials made by this run.
    own_trials: NoneValid,
}

impl Validity {
    /// Whether no trial is known to be valid yet.
    pub(super) fn lacks_valid_trial(&self) -> bool {
        !self.any_valid
    }

    /// Adds the last attempts of a block that an earlier run stored.
    pub(super) fn add_stored(
        &mut self,
        stored: &BTreeMap<usize, LastAttempt>,
        invalid: &[Invalid],
    ) {
        self.any_valid |= stored.iter().any(|(cell, last)| is_valid(*cell, *last, invalid));
    }

    /// Adds all attempts that this run made in one block.
    pub(super) fn add_block(&mut self, attempts: &[(usize, LastAttempt)], invalid: &[Invalid]) {
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
