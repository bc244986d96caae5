//! Whether conditions that took turns in a woven window reached into each other.
//!
//! What one condition leaves behind, such as commits that a standby has still to apply, belongs to the next
//! condition's slice. Then the effect differs between the first and the second half of the slices, or the
//! rate of a condition depends on the condition that ran before, and the effect of all slices is not the effect of
//! slices which follow their own settings. All is measured in every block; slices are in random order, so the
//! slice is the unit (`benchmath::carry_over`). A difference is reported if it
//! is larger than a quarter of the margin and its interval excludes none, divided among all such
//! questions by Bonferroni's inequality. The same questions choose the length of slices before block 1.
//!
//! Where commits can wait for a standby, short slices distort rates in a way that no question sees, and
//! a length that the user names is not calibrated: then the length itself is reported.

use std::collections::BTreeMap;

use benchmath::carry_over::{self, Influence, LogRatio, Question, Slices};
use serde::{Deserialize, Serialize};

use super::comparison::ALPHA;
use super::condition::{Finding, WEAVE_CARRY_OVER, WEAVE_SHORT};
use super::pairing::ByCondition;
use pgio_results::change::fact;
use pgio_results::model::Woven;
use pgio_results::store::{
    Calibration, CarryOver, CarryOverQuestion, LengthVerdict, Manifest, Rules,
};
use pgio_results::units::human;
use pgio_results::{CheckVerdict, Trial};

/// The share of the margin that a difference may have ...
pub(super) const SHARE: f64 = 0.25;
/// ... and the margin if the file names none.
pub(super) const MARGIN: f64 = 0.05;
/// The shortest length of slices in seconds that is not doubted where commits can wait for a standby. In shorter
/// slices, effects of `synchronous_commit` were off by up to a fifth: a standby that starts each slice without a
/// backlog writes and flushes other amounts than one that follows a long window. That is the same in both halves
/// of a slice and after every condition, so no question sees it.
pub(super) const SHORTEST_WITH_STANDBY: f64 = 0.2;
/// The setting that makes commits wait for standbys.
const STANDBY_NAMES: &str = "synchronous_standby_names";
/// The largest difference worth naming as excluded.
const MAX_NAMED_DIFFERENCE: f64 = 0.5;

/// Returns the largest difference between slices that is accepted, as a share of a rate.
pub fn limit(rules: &Rules) -> f64 {
    SHARE * rules.matters.unwrap_or(MARGIN)
}

/// The slices of woven windows, and what they can tell about conditions that reach into each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WovenSlices {
    pub slice_seconds: f64,
    /// The largest difference between slices that is not excluded, as a share of a rate; null if it is above a half.
    pub excluded: Option<f64>,
}

/// `None` if each trial had a window of its own.
pub(super) fn slices(manifest: &Manifest, by_condition: &ByCondition<'_>) -> Option<WovenSlices> {
    let mut trials = by_condition.values().flat_map(|condition| condition.by_block());
    let slice_seconds = trials.find_map(|(_, t)| t.woven.as_ref())?.slice_seconds;
    let names: Vec<&str> = manifest.conditions.iter().map(|info| info.name.as_str()).collect();
    let influences = influences(manifest, &names, by_condition);
    let alpha = ALPHA / influences.len().max(1) as f64;
    Some(WovenSlices { slice_seconds, excluded: excluded(&influences, alpha) })
}

fn excluded(influences: &[Influence], alpha: f64) -> Option<f64> {
    let reach = |influence: &Influence| {
        let interval = influence.log.interval(alpha);
        interval.high.max(-interval.low)
    };
    let most = influences.iter().map(reach).reduce(f64::max)?.exp_m1();
    (most <= MAX_NAMED_DIFFERENCE).then_some(most)
}

pub(super) fn findings(manifest: &Manifest, by_condition: &ByCondition<'_>) -> Vec<Finding> {
    let names: Vec<&str> = manifest.conditions.iter().map(|info| info.name.as_str()).collect();
    let influences = influences(manifest, &names, by_condition);
    let limit = limit(&manifest.rules).ln_1p();
    let alpha = ALPHA / influences.len().max(1) as f64;
    let carried = influences.iter().filter_map(|one| finding(one, &names, alpha, limit));
    carried.chain(too_short(by_condition)).collect()
}

/// Reports slices that distort effects where commits can wait for a standby.
fn too_short(by_condition: &ByCondition<'_>) -> Option<Finding> {
    let names = fact::setting(STANDBY_NAMES);
    let waits = |t: &Trial| t.environment.get(&names).is_some_and(|names| !names.is_empty());
    let mut trials =
        by_condition.values().flat_map(|condition| condition.by_block()).map(|(_, trial)| trial);
    let slice = trials.find_map(|t| t.woven.as_ref().filter(|_| waits(t)))?.slice_seconds;
    // The stored length has the error of a conversion.
    if slice > SHORTEST_WITH_STANDBY * 0.999 {
        return None;
    }
    Some(Finding {
        id: WEAVE_SHORT.to_owned(),
        verdict: CheckVerdict::Warning,
        condition: None,
        trial: None,
        message: format!(
            "commits can wait for a standby, and effects in slices of less than {}, such as these of {}, were up to \
             a fifth off",
            ms(SHORTEST_WITH_STANDBY),
            ms(slice)
        ),
        remedy: format!("use slices of {} or more, or weave = false", ms(SHORTEST_WITH_STANDBY)),
    })
}

/// Says how to read results of a woven window.
pub(super) fn note(trials: &[Trial]) -> Option<String> {
    let woven = trials.iter().find_map(|trial| trial.woven.as_ref())?;
    Some(format!(
        "the conditions of a block were woven in slices of {}, each after {} that do not count; counters of the \
         server and its hosts are those of all conditions together and are not shown; checkpoints are counted in \
         the whole window",
        ms(woven.slice_seconds),
        ms(woven.guard_seconds)
    ))
}

/// Says in one line whether conditions take turns, and how that was found.
pub fn describe(calibration: &Calibration) -> String {
    let rejected: Vec<String> = calibration
        .tried
        .iter()
        .filter(|rung| Some(rung.slice_seconds) != calibration.slice_seconds)
        .map(|rung| {
            let length = ms(rung.slice_seconds);
            match (rung.verdict, rung.answers.first()) {
                (LengthVerdict::TooShort, _) | (_, None) => {
                    format!("{length}: shorter than a call")
                }
                (_, Some(worst)) => format!("{length}: {}", answer_text(worst)),
            }
        })
        .collect();
    let limit = calibration.limit * 100.0;
    let rejected = if rejected.is_empty() {
        String::new()
    } else {
        format!(" (rejected, {})", rejected.join("; "))
    };
    if let Some(why) = &calibration.obstacle {
        return format!("not woven: {why}{rejected}; each trial has a window of its own");
    }
    let Some(slice) = calibration.slice_seconds else {
        return format!(
            "not woven: slices of no length agree within {limit:.2} %{rejected}; each trial has a window of its own"
        );
    };
    let taken = calibration.tried.last();
    let how = match taken.map(|rung| rung.verdict) {
        Some(LengthVerdict::Agrees) => format!("agree within {limit:.2} %"),
        _ => {
            let reach = |answer: &CarryOver| answer.high.ln().max(-answer.low.ln());
            let answers = taken.iter().flat_map(|rung| &rung.answers);
            let most = answers.map(reach).fold(0.0, f64::max).exp_m1();
            if most < MAX_NAMED_DIFFERENCE {
                format!("show no difference above {:.1} %", most * 100.0)
            } else {
                "show no difference that exceeds the noise".to_owned()
            }
        }
    };
    format!("woven in slices of {}, which {how}{rejected}", ms(slice))
}

fn answer_text(answer: &CarryOver) -> String {
    let percent = (answer.ratio - 1.0) * 100.0;
    let question = match answer.question {
        CarryOverQuestion::SecondHalves => "in second halves under",
        CarryOverQuestion::After => "after",
        CarryOverQuestion::Turns => "by the turns under",
    };
    format!("{percent:+.1} % {question} `{}`", answer.condition)
}

fn ms(seconds: f64) -> String {
    human::latency(seconds * 1e9)
}

/// Returns the influences, averaged over all blocks.
fn influences(
    manifest: &Manifest,
    names: &[&str],
    by_condition: &ByCondition<'_>,
) -> Vec<Influence> {
    let mut blocks: BTreeMap<u32, Vec<Slices>> = BTreeMap::new();
    for (at, name) in names.iter().enumerate() {
        for (block, trial) in
            by_condition.get(*name).into_iter().flat_map(|condition| condition.by_block())
        {
            if let Some(woven) = &trial.woven {
                let slices =
                    blocks.entry(block).or_insert_with(|| vec![Slices::default(); names.len()]);
                slices[at] = slices_of(woven, names, at);
            }
        }
    }
    let baseline = names.iter().position(|name| *name == manifest.baseline).unwrap_or(0);
    let settings = settings(manifest, names.iter().copied());
    let mut found: BTreeMap<(usize, Question), Vec<LogRatio>> = BTreeMap::new();
    let answers = |slices: &Vec<Slices>| carry_over::estimate(slices, &settings, baseline);
    for influence in blocks.values().flat_map(answers) {
        found.entry((influence.condition, influence.question)).or_default().push(influence.log);
    }
    let over_all = found.into_iter().filter_map(|((condition, question), logs)| {
        LogRatio::mean(&logs).map(|log| Influence { condition, question, log })
    });
    over_all.collect()
}

/// Returns for each condition a number that those with the same settings share, such as baseline and A/A twin.
pub fn settings<'a>(manifest: &Manifest, names: impl Iterator<Item = &'a str>) -> Vec<usize> {
    let info = |name: &str| manifest.conditions.iter().find(|info| info.name == name);
    let first_alike = |name: &str| {
        let changes = &info(name)?.changes;
        manifest.conditions.iter().position(|other| other.changes == *changes)
    };
    // A condition that the manifest lacks is like no other.
    names.enumerate().map(|(n, name)| first_alike(name).unwrap_or(usize::MAX - n)).collect()
}

/// Records without standard errors give no estimates.
fn slices_of(woven: &Woven, names: &[&str], own: usize) -> Slices {
    let slices = f64::from(woven.slices);
    let after = |(at, before): (usize, &&str)| {
        let share = carry_over::share_after(names.len(), at == own);
        log_ratio(*woven.after.get(*before)?, *woven.after_errors.get(*before)?, slices * share)
    };
    let halves = woven.halves.zip(woven.halves_error);
    Slices {
        halves: halves.and_then(|(ratio, error)| log_ratio(ratio, error, slices)),
        after: names.iter().enumerate().map(after).collect(),
    }
}

fn log_ratio(ratio: f64, error: f64, slices: f64) -> Option<LogRatio> {
    let freedom = (slices - 1.0).max(1.0);
    (ratio > 0.0 && error >= 0.0).then(|| LogRatio { estimate: ratio.ln(), error, freedom })
}

fn finding(influence: &Influence, names: &[&str], alpha: f64, limit: f64) -> Option<Finding> {
    let interval = influence.log.interval(alpha);
    if !carry_over::contradicts(&interval, limit) {
        return None;
    }
    let condition = names[influence.condition];
    let percent = |log: f64| (log.exp() - 1.0) * 100.0;
    let shown = format!(
        "{:+.1} % [{:+.1} %, {:+.1} %]",
        percent(interval.estimate),
        percent(interval.low),
        percent(interval.high)
    );
    let message = match influence.question {
        Question::SecondHalves => format!(
            "the effect of `{condition}` is {shown} larger in the second halves of the slices than in the first"
        ),
        Question::After => format!(
            "the other conditions ran {shown} faster in the slices that followed `{condition}` than in their other \
             slices"
        ),
        Question::Turns => format!(
            "the effect of `{condition}` is {shown} larger in all slices than in those that followed their own \
             settings, as windows do"
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
    use crate::pairing::by_condition;
    use crate::test_support::{experiment, trial, woven};
    use benchmath::rng::SplitMix64;
    use pgio_results::store::{StoredExperiment, TriedLength};

    fn found(stored: &StoredExperiment) -> Vec<String> {
        let by_condition = by_condition(&stored.manifest, &stored.trials);
        findings(&stored.manifest, &by_condition).into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn woven_conditions_without_carry_over_are_not_reported() {
        // Both conditions alike are faster in the second half, which no ratio contains.
        assert_eq!(found(&woven(1.0, 1.0)), [""; 0]);
        // A difference below a quarter of the margin is real, but small. Three of four slices of `b` follow
        // `local`, so the others are faster by four times the difference to all.
        assert_eq!(found(&woven(1.008, 0.998)), [""; 0]);
    }

    #[test]
    fn carry_over_is_reported_from_halves_or_slices_after_a_condition() {
        let halves = found(&woven(1.10, 1.0));
        assert_eq!(halves.len(), 1);
        assert!(halves[0].contains("`b`") && halves[0].contains("second halves"), "{halves:?}");
        let after = found(&woven(1.0, 0.90));
        assert!(after.len() == 1 && after[0].contains("followed `local`"), "{after:?}");
    }

    /// Sixteen blocks of baseline, twin and a condition whose rate rises by a sixth after the other two.
    #[test]
    fn a_twin_does_not_hide_the_bias_caused_by_turns() {
        let mut random = SplitMix64::new(3);
        let mut trials = Vec::new();
        for block in 1..=16 {
            for (own, condition) in ["local", "local-aa", "on"].into_iter().enumerate() {
                let mut t = trial(condition, block, &[("commits_per_second", 100.0)]);
                let mut woven = Woven { slices: 60, ..Woven::default() };
                woven.halves = Some(1.0);
                woven.halves_error = Some(0.01);
                for (at, before) in ["local", "local-aa", "on"].into_iter().enumerate() {
                    let rate = if own == 2 && at == 2 { 1.0 / 1.16 } else { 1.0 };
                    let noise = 1.0 + 0.02 * (random.next_f64() - 0.5);
                    woven.after.insert(before.to_owned(), rate * noise);
                    let error = if own == at { 0.04 } else { 0.016 };
                    woven.after_errors.insert(before.to_owned(), error);
                }
                t.woven = Some(woven);
                trials.push(t);
            }
        }
        let found = found(&experiment(&["local", "local-aa", "on"], trials));
        assert!(found.len() == 1, "{found:?}");
        let start = "the effect of `on` is +16.";
        assert!(found[0].starts_with(start) && found[0].contains("in all slices"), "{found:?}");
    }

    #[test]
    fn short_slices_with_a_standby_are_reported_whatever_the_questions_find() {
        let with = |names: &str, seconds: f64| {
            let mut stored = woven(1.0, 1.0);
            for trial in &mut stored.trials {
                let environment = std::sync::Arc::make_mut(&mut trial.environment);
                environment
                    .insert("setting.synchronous_standby_names".to_owned(), names.to_owned());
                if let Some(woven) = &mut trial.woven {
                    woven.slice_seconds = seconds;
                }
            }
            found(&stored)
        };
        let short = with("standby", 0.02);
        assert_eq!(short.len(), 1, "{short:?}");
        assert!(
            short[0].contains("slices of less than 200 ms, such as these of 20.0 ms"),
            "{short:?}"
        );
        assert_eq!(with("standby", 0.2), [""; 0]);
        assert_eq!(with("", 0.02), [""; 0]);
    }

    /// Silence is no evidence: whatever was found, the report says what could have been.
    #[test]
    fn slices_say_how_large_a_carry_over_they_exclude() {
        let quiet = crate::analyze(&woven(1.0, 1.0));
        let excluded = quiet.woven.unwrap().excluded.unwrap();
        assert!(excluded > 0.0 && excluded < 0.05, "{excluded}");
        let carried = crate::analyze(&woven(1.1, 1.0)).woven.unwrap().excluded.unwrap();
        assert!(carried > 0.1, "{carried}");
        let mut few = woven(1.0, 1.0);
        for t in &mut few.trials {
            t.woven.as_mut().unwrap().halves_error = Some(5.0);
        }
        let few = crate::analyze(&few);
        assert_eq!(few.woven.unwrap().excluded, None);
        assert_eq!(crate::analyze(&experiment(&["local"], Vec::new())).woven, None);
    }

    #[test]
    fn the_limit_is_a_quarter_of_the_margin() {
        let mut stored = woven(1.03, 1.0);
        assert_eq!(found(&stored).len(), 1);
        stored.manifest.rules.matters = Some(0.2);
        assert_eq!(found(&stored), [""; 0]);
    }

    #[test]
    fn a_length_that_is_not_tried_hides_no_length_that_was_rejected() {
        let rung = |verdict| TriedLength {
            slice_seconds: 0.02,
            slices: 12,
            seconds: 1.0,
            verdict,
            answers: Vec::new(),
        };
        let calibration = Calibration {
            obstacle: Some("the time is over".to_owned()),
            tried: vec![rung(LengthVerdict::TooShort)],
            ..Calibration::default()
        };
        assert_eq!(
            describe(&calibration),
            "not woven: the time is over (rejected, 20.0 ms: shorter than a call); \
             each trial has a window of its own"
        );
    }

    #[test]
    fn plain_windows_raise_no_question() {
        let trials = (1..=6).map(|block| trial("local", block, &[])).collect();
        assert_eq!(found(&experiment(&["local"], trials)), [""; 0]);
    }
}
