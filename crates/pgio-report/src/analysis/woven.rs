//! Whether conditions that took turns in a woven window reached into each other.
//!
//! What one condition leaves behind, such as commits that a standby has still to apply, belongs to the next
//! condition's slice. Then the effect differs between the first and the second half of the slices, or the
//! rate of a condition depends on the condition that ran before. Both are measured in every block; the
//! block is the unit. A difference is reported if it is larger than a quarter of the margin and its
//! interval excludes none: by Student's t, divided among all such questions by Bonferroni's inequality.

use std::collections::BTreeMap;

use benchmath::student;

use super::finding::{Finding, WEAVE_CARRY_OVER};
use super::pairing::{Arm, Arms};
use super::verdict::ALPHA;
use pgio_results::store::Manifest;
use pgio_results::units::human;
use pgio_results::{CheckVerdict, Trial};

/// The share of the margin that a difference may have ...
const SHARE: f64 = 0.25;
/// ... and the margin if the file names none.
const MARGIN: f64 = 0.05;

/// A question about one condition and its answer in each block, as log-ratios.
struct Question<'a> {
    condition: &'a str,
    /// The condition that ran before; none: the halves of the slices.
    after: Option<&'a str>,
    values: Vec<f64>,
}

pub(super) fn findings(manifest: &Manifest, arms: &Arms<'_>) -> Vec<Finding> {
    let questions = questions(manifest, arms);
    let limit = SHARE * manifest.rules.matters.unwrap_or(MARGIN);
    let alpha = ALPHA / questions.len().max(1) as f64;
    let found = questions.iter().filter_map(|question| finding(question, alpha, limit));
    found.collect()
}

/// Says how to read results of a woven window.
pub(super) fn note(trials: &[Trial]) -> Option<String> {
    let woven = trials.iter().find_map(|trial| trial.woven.as_ref())?;
    let ms = |seconds: f64| human::latency(seconds * 1e9);
    Some(format!(
        "the conditions of a block were woven in slices of {}, each after {} that do not count; counters of the \
         server are those of all conditions together and are not shown",
        ms(woven.slice_seconds),
        ms(woven.guard_seconds)
    ))
}

fn questions<'a>(manifest: &'a Manifest, arms: &Arms<'_>) -> Vec<Question<'a>> {
    let Some(baseline) = arms.get(manifest.baseline.as_str()) else { return Vec::new() };
    let halves = by_block(baseline, |trial| trial.woven.as_ref()?.halves);
    let names = || manifest.conditions.iter().map(|info| info.name.as_str());
    let mut all = Vec::new();
    for condition in names() {
        let Some(arm) = arms.get(condition) else { continue };
        if condition != manifest.baseline {
            let own = by_block(arm, |trial| trial.woven.as_ref()?.halves);
            let pairs = own.iter().filter_map(|(block, value)| Some(value - halves.get(block)?));
            all.push(Question { condition, after: None, values: pairs.collect() });
        }
        for before in names() {
            let of_trial = |trial: &Trial| trial.woven.as_ref()?.after.get(before).copied();
            let values = by_block(arm, of_trial).into_values().collect();
            all.push(Question { condition, after: Some(before), values });
        }
    }
    all.retain(|question| question.values.len() > 1);
    all
}

/// Returns the logarithm of a value of each block's trial that counts.
fn by_block(arm: &Arm<'_>, value: impl Fn(&Trial) -> Option<f64>) -> BTreeMap<u32, f64> {
    let logarithm = |trial: &Trial| Some(value(trial).filter(|v| *v > 0.0)?.ln());
    arm.by_block().filter_map(|(block, trial)| Some((block, logarithm(trial)?))).collect()
}

fn finding(question: &Question<'_>, alpha: f64, limit: f64) -> Option<Finding> {
    let interval = student::test(&question.values, alpha)?.interval;
    let excludes_none = interval.low > 0.0 || interval.high < 0.0;
    if !excludes_none || interval.estimate.abs() <= (1.0 + limit).ln() {
        return None;
    }
    let condition = question.condition;
    let percent = |log: f64| (log.exp() - 1.0) * 100.0;
    let shown = format!(
        "{:+.1} % [{:+.1} %, {:+.1} %]",
        percent(interval.estimate),
        percent(interval.low),
        percent(interval.high)
    );
    let message = match question.after {
        None => format!(
            "the effect of `{condition}` is {shown} larger in the second halves of the slices than in the first"
        ),
        Some(before) => format!(
            "`{condition}` ran {shown} faster in the slices that followed `{before}` than in all"
        ),
    };
    Some(Finding {
        id: WEAVE_CARRY_OVER.to_owned(),
        verdict: CheckVerdict::Warning,
        condition: Some(condition.to_owned()),
        trial: None,
        message,
        remedy: "use longer slices, or weave = false".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::pairing::arms;
    use crate::analysis::test_support::{experiment, trial};
    use benchmath::rng::SplitMix64;
    use pgio_results::model::Woven;
    use pgio_results::store::StoredExperiment;

    /// Twelve blocks of two conditions; the second has these true values.
    fn woven(halves: f64, after: f64) -> StoredExperiment {
        let mut random = SplitMix64::new(5);
        let mut trials = Vec::new();
        for block in 1..=12 {
            for (condition, halves, after) in [("local", 1.02, 1.0), ("b", halves * 1.02, after)] {
                let mut noise = || 1.0 + 0.01 * (random.next_f64() - 0.5);
                let mut t = trial(condition, block, &[("commits_per_second", 100.0)]);
                t.woven = Some(Woven {
                    halves: Some(halves * noise()),
                    after: [("local".to_owned(), after * noise()), ("b".to_owned(), noise())]
                        .into(),
                    ..Woven::default()
                });
                trials.push(t);
            }
        }
        experiment(&["local", "b"], trials)
    }

    fn found(stored: &StoredExperiment) -> Vec<String> {
        let arms = arms(&stored.manifest, &stored.trials);
        findings(&stored.manifest, &arms).into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn conditions_that_do_not_reach_into_each_other_are_not_accused() {
        // Both conditions alike are faster in the second half, which no ratio contains.
        assert_eq!(found(&woven(1.0, 1.0)), [""; 0]);
        // A difference below a quarter of the margin is real, but small.
        assert_eq!(found(&woven(1.008, 0.992)), [""; 0]);
    }

    #[test]
    fn what_is_left_behind_shows_in_the_halves_or_after_the_condition() {
        let halves = found(&woven(1.10, 1.0));
        assert_eq!(halves.len(), 1);
        assert!(halves[0].contains("`b`") && halves[0].contains("second halves"), "{halves:?}");
        let after = found(&woven(1.0, 0.90));
        assert!(after.len() == 1 && after[0].contains("followed `local`"), "{after:?}");
    }

    #[test]
    fn the_limit_is_a_quarter_of_the_margin() {
        let mut stored = woven(1.03, 1.0);
        assert_eq!(found(&stored).len(), 1);
        stored.manifest.rules.matters = Some(0.2);
        assert_eq!(found(&stored), [""; 0]);
    }

    #[test]
    fn plain_windows_raise_no_question() {
        let trials = (1..=6).map(|block| trial("local", block, &[])).collect();
        assert_eq!(found(&experiment(&["local"], trials)), [""; 0]);
    }
}
