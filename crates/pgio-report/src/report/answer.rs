//! The answer about one condition in a few words, for people who will read one cell:
//! `costs about half of the commits: shown (5 % risk for all conditions)`.
//!
//! The words follow from the verdict and its interval alone and claim no more than these: a size is named only if the
//! whole interval is near it, else the nearest one that the whole interval exceeds or stays below. `sentence` says the
//! same with figures. Next: `answers` has the table.

use std::collections::BTreeMap;

use super::{format, margin, outcomes};
use crate::analysis::shares::failed_more;
use crate::analysis::{ALPHA, Analysis, Comparison, Decision, Finding, STALLS, State, Verdict};
use pgio_results::danger::Danger;
use pgio_results::metrics::Direction;

/// The answer about the baseline.
pub(super) const BASELINE: &str = "the baseline";
/// The certainty of a verdict if no check contradicts it and the servers were started often enough.
const CERTAIN: &str = "certain";
/// One start of a server has one layout of memory and files, which no number of blocks averages out.
const MIN_STARTS: usize = 3;
/// Replaces it for a condition that failed in a larger share of its trials than the baseline.
const COMPLETED: &str = "shown in the trials that completed";

/// Shares that people have words for, in ascending order.
const NAMED_SHARES: [(f64, &str); 8] = [
    (0.1, "a tenth"),
    (0.2, "a fifth"),
    (0.25, "a quarter"),
    (1.0 / 3.0, "a third"),
    (0.5, "half"),
    (2.0 / 3.0, "two thirds"),
    (0.75, "three quarters"),
    (0.9, "nine tenths"),
];
/// `about`: both ends of the interval are this near, as a share of the whole and of the named share.
const TOLERANCE: f64 = 0.04;
const RELATIVE_TOLERANCE: f64 = 0.2;

/// What the interval of a change allows to be said about its size.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Size {
    About(&'static str),
    AtLeast(&'static str),
    AtMost(&'static str),
    /// At least this many times as much.
    Times(f64),
    Unclear,
}

/// The answer in words, with what the condition endangers.
pub fn answer(analysis: &Analysis, condition: &str) -> String {
    let text = judgment(analysis, condition);
    match danger(analysis, condition) {
        Some(danger) => format!("{text}; {danger}"),
        None => text,
    }
}

/// What the condition endangers; the twin does what the baseline does.
pub(super) fn danger(analysis: &Analysis, condition: &str) -> Option<Danger> {
    analysis.condition(condition).filter(|_| !analysis.is_aa(condition))?.danger
}

/// The name for the first cell of its row, marked if it endangers something.
pub(super) fn marked_name(analysis: &Analysis, condition: &str) -> String {
    let mark = danger(analysis, condition).map_or("", |_| " (unsafe)");
    format!("{condition}{mark}")
}

/// `Unsafe: under `off` a crash can lose acknowledged commits.`
pub(super) fn unsafe_conditions(analysis: &Analysis) -> Option<String> {
    let names = analysis.conditions.iter().map(|c| c.name.as_str());
    let own: Vec<&str> = names.filter(|name| !analysis.is_aa(name)).collect();
    let mut by_danger: BTreeMap<Danger, Vec<&str>> = BTreeMap::new();
    for name in &own {
        if let Some(danger) = danger(analysis, name) {
            by_danger.entry(danger).or_default().push(name);
        }
    }
    let parts = by_danger.iter().rev().map(|(danger, names)| {
        let under = match names.len() {
            n if n == own.len() => "every condition".to_owned(),
            _ => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
        };
        format!("under {under} {}", danger.what())
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("Unsafe: {}.", parts.join("; ")))
}

fn judgment(analysis: &Analysis, condition: &str) -> String {
    if condition == analysis.baseline {
        return BASELINE.to_owned();
    }
    let Some(c) = analysis.primary(condition) else { return "not compared".to_owned() };
    let described = analysis.condition(condition);
    if let Some(d) = described.filter(|d| d.state != State::Measured)
        && let Some(instead) = outcomes::instead_of_effect(analysis, d)
    {
        return instead;
    }
    let mut text = match c.verdict {
        Verdict::TooFewBlocks => "undecided: too few blocks".to_owned(),
        Verdict::NotApplicable | Verdict::NotJudged => return "cannot be compared".to_owned(),
        _ if analysis.is_aa(condition) => return describe_twin(c),
        Verdict::NoDifference => no_difference(analysis, c),
        Verdict::Slower | Verdict::Faster | Verdict::Higher | Verdict::Lower => {
            format!("{}: {}", change(analysis, c), certainty(analysis, c))
        }
    };
    if stalls(analysis, condition) {
        text += "; it stalls";
    }
    if let Some(share) = described.and_then(failed_more) {
        text += &format!("; it {}", outcomes::failed_in(share));
    }
    let factors = described.map_or(0, |d| d.factors.len());
    if factors > 1 && c.verdict.is_decided() {
        text += &format!("; the effect of {} treatments together", format::small(factors));
    }
    text
}

pub(super) fn stalls(analysis: &Analysis, condition: &str) -> bool {
    let is_it = |f: &Finding| f.id == STALLS && f.condition.as_deref() == Some(condition);
    analysis.checks.iter().any(is_it)
}

fn describe_twin(c: &Comparison) -> String {
    if c.verdict.is_decided() {
        "differs from itself: distrust this experiment".to_owned()
    } else if c.bound.is_some() {
        "the baseline again: only a bound is known".to_owned()
    } else {
        "the baseline again".to_owned()
    }
}

/// Whether the A/A twin shows a difference where there is none.
fn is_distrusted(analysis: &Analysis) -> bool {
    let twin = analysis.aa.as_ref().and_then(|aa| analysis.primary(aa));
    twin.is_some_and(|twin| twin.verdict.is_decided())
}

fn certainty(analysis: &Analysis, c: &Comparison) -> String {
    let sure = if is_distrusted(analysis) {
        "doubtful, because the baseline differs from itself"
    } else if analysis.own_baseline.is_some() {
        "to be confirmed, because this baseline was chosen afterwards"
    } else if !c.judged {
        "indicative, because `judge` does not name it"
    } else if fails_more(analysis, c) {
        COMPLETED
    } else if is_certain(analysis, c) {
        CERTAIN
    } else {
        &format!("shown ({} risk for all conditions)", margin::share(ALPHA))
    };
    let matters = match c.decision {
        Some(Decision::Matters) => ", and it matters",
        Some(Decision::DoesNotMatter) => ", and it does not matter",
        Some(Decision::Undecided) => ", whether it matters is open",
        None => "",
    };
    format!("{sure}{matters}")
}

/// Whether both sides ran on enough starts of their servers, on a machine that was not busy.
fn is_certain(analysis: &Analysis, c: &Comparison) -> bool {
    let starts = |name: &str| analysis.condition(name).map_or(0, |c| c.server_starts);
    let fewest = starts(&c.condition).min(starts(&analysis.baseline));
    fewest >= MIN_STARTS && outcomes::busy_trials(analysis) == 0
}

fn fails_more(analysis: &Analysis, c: &Comparison) -> bool {
    analysis.condition(&c.condition).and_then(failed_more).is_some()
}

/// How large a difference may have been missed, in the direction that is worse.
fn no_difference(analysis: &Analysis, c: &Comparison) -> String {
    if let (Some(Decision::DoesNotMatter), Some(share), false) =
        (c.decision, c.margin, is_distrusted(analysis))
    {
        // The tests are those of this comparison alone.
        let shown = if fails_more(analysis, c) { COMPLETED } else { "shown" };
        let risk = margin::share(ALPHA);
        return format!("no difference above {}: {shown} ({risk} risk each)", margin::share(share));
    }
    let open = match c.decision {
        Some(Decision::Undecided) => ", whether it matters is open",
        _ => "",
    };
    let direction = direction(analysis, c);
    let (less, more) =
        (c.interval.low.map(|low| 1.0 - low), c.interval.high.map(|high| high - 1.0));
    let missed = match direction {
        Direction::HigherIsFaster => less.map(|share| ("a loss", share)),
        Direction::LowerIsFaster => more.map(|share| ("a rise", share)),
        Direction::Neutral => less.zip(more).map(|(l, m)| ("a change", l.max(m))),
    };
    match missed {
        Some((what, share)) if share > 0.0 => {
            format!("not decided: {what} of up to {} is possible{open}", format::size(share))
        }
        Some((what, _)) => format!("not decided: {what} is unlikely{open}"),
        None => format!("not decided{open}"),
    }
}

fn direction(analysis: &Analysis, c: &Comparison) -> Direction {
    analysis.definition(&c.metric).map_or(Direction::Neutral, |def| def.direction)
}

/// The decided change, without how sure it is.
pub(super) fn change(analysis: &Analysis, c: &Comparison) -> String {
    let grows = c.ratio.is_some_and(|r| r > 1.0);
    let size = size(grows, c.interval.low, c.interval.high);
    let rate = format::rate_name(&c.metric);
    match rate.filter(|_| direction(analysis, c) == Direction::HigherIsFaster) {
        Some(rate) if grows => more(size, &rate.things),
        Some(rate) => fewer(size, &rate.things),
        None => raises_or_lowers(grows, size, &format::metric_name(&c.metric)),
    }
}

fn fewer(size: Size, things: &str) -> String {
    match size {
        Size::About(share) => format!("costs about {share} of the {things}"),
        Size::AtLeast(share) => format!("costs at least {share} of the {things}"),
        Size::AtMost(share) => format!("costs some {things}, at most {share}"),
        Size::Times(_) | Size::Unclear => format!("costs {things}, how many is unclear"),
    }
}

fn more(size: Size, things: &str) -> String {
    match size {
        Size::About("half") => format!("brings about half as many {things} again"),
        Size::AtLeast("half") => format!("brings at least half as many {things} again"),
        Size::About(share) => format!("brings about {share} more {things}"),
        Size::AtLeast(share) => format!("brings at least {share} more {things}"),
        Size::AtMost(share) => format!("brings some more {things}, at most {share}"),
        Size::Times(n) => format!("brings at least {n} times as many {things}"),
        Size::Unclear => format!("brings more {things}, how many is unclear"),
    }
}

fn raises_or_lowers(grows: bool, size: Size, what: &str) -> String {
    let verb = if grows { "raises" } else { "lowers" };
    match size {
        Size::About(share) => format!("{verb} the {what} by about {share}"),
        Size::AtLeast(share) => format!("{verb} the {what} by at least {share}"),
        Size::AtMost(share) => format!("{verb} the {what} by at most {share}"),
        Size::Times(n) => format!("{verb} the {what} to at least {n} times"),
        Size::Unclear => format!("{verb} the {what}, by how much is unclear"),
    }
}

/// The size of a change from the interval of its ratio; a side that is not known is as far as it can be.
fn size(grows: bool, low: Option<f64>, high: Option<f64>) -> Size {
    let (near, far) = if grows {
        (low.map_or(0.0, |r| r - 1.0), high.map_or(f64::INFINITY, |r| r - 1.0))
    } else {
        (high.map_or(0.0, |r| 1.0 - r), low.map_or(1.0, |r| 1.0 - r))
    };
    if grows && near >= 1.0 {
        return Size::Times((near + 1.0).floor());
    }
    let is_near =
        |named: f64, end: f64| (end - named).abs() <= TOLERANCE.min(named * RELATIVE_TOLERANCE);
    let middle = f64::midpoint(near, far);
    let about = NAMED_SHARES
        .iter()
        .filter(|(named, _)| is_near(*named, near) && is_near(*named, far))
        .min_by(|a, b| (a.0 - middle).abs().total_cmp(&(b.0 - middle).abs()));
    let exceeded = NAMED_SHARES.iter().rev().find(|(named, _)| near >= *named);
    let stayed_below = NAMED_SHARES.iter().find(|(named, _)| far <= *named);
    match (about, exceeded, stayed_below) {
        (Some((_, name)), ..) => Size::About(name),
        (None, Some((_, name)), _) => Size::AtLeast(name),
        (None, None, Some((_, name))) => Size::AtMost(name),
        (None, None, None) => Size::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyze;
    use crate::analysis::test_support::{demo, experiment, failing, trial};
    use pgio_results::Check;
    use pgio_results::change::Change;
    use pgio_results::store::StoredExperiment;
    use proptest::prelude::*;

    fn of(low: f64, high: f64) -> Size {
        size(low > 1.0, Some(low), Some(high))
    }

    fn share_of(name: &str) -> f64 {
        NAMED_SHARES.iter().find(|(_, known)| *known == name).unwrap().0
    }

    fn answers(stored: &StoredExperiment) -> Vec<String> {
        let analysis = analyze(stored);
        analysis.conditions.iter().map(|c| answer(&analysis, &c.name)).collect()
    }

    /// The rate of the trials of one condition, times a factor.
    fn with_factor(condition: &str, factor: f64) -> StoredExperiment {
        let mut stored = demo();
        for t in &mut stored.trials {
            let is_it = t.place.as_ref().is_some_and(|p| p.condition == condition);
            let rate = t.metrics.get_mut("commits_per_second");
            if let Some(rate) = rate.filter(|_| is_it) {
                rate.value = rate.value.map(|v| v * factor);
            }
        }
        stored
    }

    #[test]
    fn a_size_in_words_holds_for_the_whole_interval() {
        assert_eq!(of(0.48, 0.53), Size::About("half"));
        assert_eq!(of(0.45, 0.481), Size::AtLeast("half"));
        assert_eq!(of(0.2, 0.45), Size::AtLeast("half"));
        assert_eq!(of(0.93, 0.98), Size::AtMost("a tenth"));
        assert_eq!(of(0.05, 0.99), Size::Unclear);
        assert_eq!(of(1.24, 1.27), Size::About("a quarter"));
        assert_eq!(of(3.2, 9.0), Size::Times(3.0));
        assert_eq!(size(true, Some(1.4), None), Size::AtLeast("a third"));
        assert_eq!(size(false, None, Some(0.97)), Size::Unclear);
    }

    #[test]
    fn the_demo_in_words() {
        insta::assert_snapshot!(answers(&demo()).join("\n"));
    }

    #[test]
    fn a_gain_that_endangers_the_data_says_so() {
        let mut stored = with_factor("on", 10.0);
        let change = Change::server("fsync", "off");
        stored.manifest.conditions.iter_mut().find(|c| c.name == "on").unwrap().changes =
            vec![change];
        let all = answers(&stored);
        let unsafe_text = "; unsafe: a power cut can corrupt the cluster";
        assert!(all[3].starts_with("brings at least") && all[3].ends_with(unsafe_text), "{all:?}");
        assert!(all[..3].iter().all(|text| !text.contains("power cut")), "{all:?}");
        let analysis = analyze(&stored);
        let sentence = crate::report::sentence::sentence(&analysis, "on");
        let first = crate::report::lead::in_one_sentence(&analysis).unwrap();
        assert!(first.contains("many commits (unsafe)"), "{first}");
        assert!(
            sentence.ends_with(" It is unsafe: a power cut can corrupt the cluster."),
            "{sentence}"
        );
        // Commits that nobody has but the primary are lost at a failover, if a standby would have had them.
        let conditions = &mut stored.manifest.conditions;
        conditions[0].changes = vec![Change::server("synchronous_commit", "local")];
        let names = "setting.synchronous_standby_names".to_owned();
        let of_baseline = |stored: &StoredExperiment| answers(stored).remove(0);
        for t in &mut stored.trials {
            t.telemetry = None;
            std::sync::Arc::make_mut(&mut t.environment).insert(names.clone(), String::new());
        }
        assert_eq!(of_baseline(&stored), "the baseline");
        for t in &mut stored.trials {
            std::sync::Arc::make_mut(&mut t.environment).insert(names.clone(), "s1".to_owned());
        }
        let expected = "the baseline; unsafe: a failover can lose acknowledged commits";
        assert_eq!(of_baseline(&stored), expected);
        // Its rate is not what a failover can lose.
        let cell = &crate::report::answers::answers(&analyze(&stored)).unwrap().rows[0][1];
        assert!(
            cell.starts_with("the baseline: ") && cell.ends_with("acknowledged commits"),
            "{cell}"
        );
        // Once beside the gain, and in the row.
        let analysis = analyze(&stored);
        let both = "Unsafe: under `on` a power cut can corrupt the cluster; under `local` a failover can lose \
                    acknowledged commits.";
        let sentence = crate::report::lead::in_one_sentence(&analysis).unwrap();
        assert!(sentence.ends_with(both), "{sentence}");
        for rows in [
            crate::report::summary(&analysis, "x").tables.remove(0).rows,
            crate::report::comparison::primary(&analysis).rows,
        ] {
            let names: Vec<&str> = rows.iter().map(|cells| cells[0].as_str()).collect();
            assert_eq!(names, ["local (unsafe)", "local-aa", "remote_write", "on (unsafe)"]);
        }
    }

    #[test]
    fn a_server_that_is_configured_unsafely_is_said_to_be() {
        let of = |name: &str, value: &str, pinned: &str| {
            let mut stored = demo();
            for t in &mut stored.trials {
                let facts = std::sync::Arc::make_mut(&mut t.environment);
                facts.insert(name.to_owned(), value.to_owned());
                t.settings.insert("synchronous_commit".to_owned(), pinned.to_owned());
            }
            for condition in &mut stored.manifest.conditions {
                condition.changes.clear();
            }
            unsafe_conditions(&analyze(&stored))
        };
        let text = "Unsafe: under every condition a power cut can corrupt the cluster.";
        assert_eq!(of("data.mount", "ext4 rw,nobarrier on /srv", "on").as_deref(), Some(text));
        let commits = "Unsafe: under every condition a crash can lose acknowledged commits.";
        assert_eq!(of("host.kernel", "6", "off").as_deref(), Some(commits));
        assert_eq!(of("setting.synchronous_commit", "off", "on"), None);
    }

    #[test]
    fn a_margin_decides_what_matters() {
        let mut stored = demo();
        stored.manifest.rules.matters = Some(0.05);
        let all = answers(&stored);
        assert!(all[3].ends_with("for all conditions), and it matters"), "{all:?}");
        stored.manifest.rules.matters = Some(0.2);
        assert_eq!(answers(&stored)[2], "no difference above 20 %: shown (5 % risk each)");
    }

    #[test]
    fn no_answer_is_certain_if_the_twin_differs() {
        let all = answers(&with_factor("local-aa", 0.5));
        assert_eq!(all[1], "differs from itself: distrust this experiment");
        assert!(all[3].contains(": doubtful"), "{all:?}");
    }

    #[test]
    fn certain_needs_three_starts_of_the_servers_and_a_quiet_machine() {
        let of = |starts: i64, busy: bool| {
            let mut stored = demo();
            for t in &mut stored.trials {
                t.server.started = Some(i64::from(t.place.as_ref().unwrap().block) % starts);
            }
            let check = Check::warning("foreign-load", "1.4 of 2 cores", "stop it");
            stored.trials[3].checks.extend(busy.then_some(check));
            answers(&stored).remove(3)
        };
        assert!(of(3, false).ends_with(": certain"), "{}", of(3, false));
        for open in [of(2, false), of(3, true)] {
            assert!(open.ends_with(": shown (5 % risk for all conditions)"), "{open}");
        }
        let mut stored = demo();
        stored.manifest.rules.judge = vec!["remote_write".to_owned()];
        let on = answers(&stored).remove(3);
        assert!(on.ends_with(": indicative, because `judge` does not name it"), "{on}");
    }

    #[test]
    fn the_answer_on_a_failing_condition_states_its_failed_trials() {
        let told = |fails: fn(u32) -> bool, level: f64, matters: Option<f64>| {
            let mut stored = failing(level, fails);
            stored.manifest.rules.matters = matters;
            answers(&stored).remove(1)
        };
        let half = |block: u32| block % 2 == 1;
        assert_eq!(
            told(half, 1.0, Some(0.05)),
            "no difference above 5 %: shown in the trials that completed (5 % risk each); it failed in 6 of 12 \
             trials"
        );
        assert_eq!(
            told(half, 0.5, None),
            "costs about half of the commits: shown in the trials that completed; it failed in 6 of 12 trials"
        );
        let shown = "costs about half of the commits: shown (5 % risk for all conditions)";
        assert_eq!(told(|_| false, 0.5, None), shown);
    }

    /// A baseline that stalls in every fourth block; in the others the two are equal.
    #[test]
    fn a_stall_of_the_baseline_is_not_one_of_the_condition() {
        let block = |block: u32| {
            ["local", "x"].map(|name| {
                let noise = f64::from((block * 7 + u32::from(name == "x")) % 11);
                let stall = if name == "local" && block % 4 == 1 { 0.67 } else { 1.0 };
                trial(name, block, &[("commits_per_second", (1000.0 + noise) * stall)])
            })
        };
        let stored = experiment(&["local", "x"], (1..=20).flat_map(block).collect());
        let analysis = analyze(&stored);
        assert!(!answer(&analysis, "x").contains("stalls"), "{}", answer(&analysis, "x"));
        assert!(stalls(&analysis, "local"));
    }

    #[test]
    fn a_higher_rate_is_worded_as_a_gain() {
        let all = answers(&with_factor("on", 10.0));
        assert!(all[3].starts_with("brings at least "), "{all:?}");
    }

    #[test]
    fn a_condition_without_enough_blocks_is_undecided() {
        let mut stored = demo();
        stored
            .trials
            .retain(|t| t.place.as_ref().is_some_and(|p| p.condition != "on" || p.block <= 2));
        let all = answers(&stored);
        assert!(all[3].starts_with("undecided: "), "{all:?}");
    }

    proptest! {
        /// Whatever the interval, the words hold at both of its ends.
        #[test]
        fn no_size_claims_more_than_its_interval(low in 0.01f64..8.0, width in 1.0f64..3.0) {
            let high = low * width;
            prop_assume!(low > 1.0 || high < 1.0);
            let ends = if low > 1.0 { [low - 1.0, high - 1.0] } else { [1.0 - high, 1.0 - low] };
            match of(low, high) {
                Size::About(name) => {
                    let named = share_of(name);
                    prop_assert!(ends.iter().all(|e| (e - named).abs() <= 0.041));
                }
                Size::AtLeast(name) => prop_assert!(ends.iter().all(|e| *e >= share_of(name))),
                Size::AtMost(name) => prop_assert!(ends.iter().all(|e| *e <= share_of(name))),
                Size::Times(n) => prop_assert!(ends.iter().all(|e| e + 1.0 >= n)),
                Size::Unclear => {}
            }
        }
    }
}
