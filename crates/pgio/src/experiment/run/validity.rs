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
const BLOCKS: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Validity {
    any_valid: bool,
    /// The trials made by this run.
    made: NoneValid,
}

impl Validity {
    /// Whether no trial is known to be valid yet.
    pub(super) fn is_open(&self) -> bool {
        !self.any_valid
    }

    /// Adds the last attempts of a block that an earlier run stored.
    pub(super) fn earlier(&mut self, stored: &BTreeMap<usize, LastAttempt>, invalid: &[Invalid]) {
        self.any_valid |= stored.iter().any(|(cell, last)| is_valid(*cell, *last, invalid));
    }

    /// Adds all attempts that this run made in one block.
    pub(super) fn block(&mut self, made: &[(usize, LastAttempt)], invalid: &[Invalid]) {
        self.any_valid |= made.iter().any(|(cell, last)| is_valid(*cell, *last, invalid));
        self.made.blocks += u32::from(!made.is_empty());
        self.made.trials += made.len();
        self.made.failed += made.iter().filter(|(_, last)| !last.complete).count();
        let is_made = |i: &&Invalid| made.iter().any(|(cell, last)| is_of(i, *cell, *last));
        for check in invalid.iter().filter(is_made).flat_map(|i| &i.checks) {
            *self.made.checks.entry(check.clone()).or_default() += 1;
        }
    }

    /// Returns what was found if the run must end.
    pub(super) fn gives_up(&self) -> Option<NoneValid> {
        let NoneValid { blocks, trials, failed, .. } = self.made;
        let ends = !self.any_valid && blocks >= BLOCKS && trials > failed;
        ends.then(|| self.made.clone())
    }
}

fn is_of(invalid: &Invalid, cell: usize, last: LastAttempt) -> bool {
    (invalid.cell, invalid.attempt) == (cell, last.attempt)
}

fn is_valid(cell: usize, last: LastAttempt, invalid: &[Invalid]) -> bool {
    last.complete && !invalid.iter().any(|i| is_of(i, cell, last))
}
