//! The factors of a condition: the changes by which it differs from the baseline; and the question that the conditions
//! ask.

use std::fmt;

use pgio_results::change::Change;
use pgio_results::store::{ConditionInfo, Manifest};

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

/// The question of the experiment: its own, or one made from what its conditions change.
pub(super) fn question(manifest: &Manifest) -> String {
    if let Some(own) = &manifest.rules.question {
        return own.clone();
    }
    if let Some(screening) = &manifest.screening {
        let factors = screening.factors.iter().map(|f| format!("`{}`", f.name));
        return format!("Which of {} make a difference?", listed(&factors.collect::<Vec<_>>()));
    }
    let asked =
        |c: &&ConditionInfo| c.name != manifest.baseline && Some(&c.name) != manifest.aa.as_ref();
    let asked: Vec<&ConditionInfo> = manifest.conditions.iter().filter(asked).collect();
    let changes: Vec<&[Change]> = asked.iter().map(|c| c.changes.as_slice()).collect();
    let names = || listed(&asked.iter().map(|c| format!("`{}`", c.name)).collect::<Vec<_>>());
    let what = match changes.as_slice() {
        // One setting, of which each condition has another value.
        [[first], ..]
            if changes.iter().all(|c| matches!(c, [one] if one.is_of_same_setting(first))) =>
        {
            let values = asked.iter().skip(1).map(|c| c.changes[0].value.clone());
            listed(&std::iter::once(first.to_string()).chain(values).collect::<Vec<_>>())
        }
        [] => return format!("How fast is `{}`?", manifest.baseline),
        _ => names(),
    };
    format!("What difference does {what} make, compared with `{}`?", manifest.baseline)
}

/// `a, b or c`
fn listed(all: &[String]) -> String {
    match all {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => all.concat(),
    }
}
