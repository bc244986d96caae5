//! The factors of a condition: the changes by which it differs from the baseline.

use std::fmt;

use pgio_results::change::Change;
use pgio_results::store::ConditionInfo;

/// One difference between a condition and the baseline.
#[derive(Debug)]
pub(super) struct Factor<'a> {
    pub change: &'a Change,
    /// Whether only the baseline makes the change.
    without: bool,
}

impl fmt::Display for Factor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let without = if self.without { "without " } else { "" };
        write!(f, "{without}{}", self.change)
    }
}

/// The differences between two conditions. A changed value counts once: `a = 1` against `a = 2` is one
/// factor, and so is a treatment that only one side has.
pub(super) fn differing_factors<'a>(
    condition: &'a ConditionInfo,
    baseline: &'a ConditionInfo,
) -> Vec<Factor<'a>> {
    let ours = condition.changes.iter().filter(|change| !baseline.changes.contains(change));
    let mut differing: Vec<Factor<'_>> =
        ours.map(|change| Factor { change, without: false }).collect();
    for theirs in baseline.changes.iter().filter(|change| !condition.changes.contains(change)) {
        let is_changed =
            |ours: &Factor<'_>| !ours.without && ours.change.is_of_same_setting(theirs);
        if !differing.iter().any(is_changed) {
            differing.push(Factor { change: theirs, without: true });
        }
    }
    differing
}
