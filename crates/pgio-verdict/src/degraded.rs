//! Degraded time: the share of the window in which the rate was below half of the condition's own
//! median, and the longest such period.
//!
//! Users of a database notice stalls, but a mean hides them, and so does the typical block. The median is
//! the rate of all slices of the condition's trials, so a condition that is slow throughout is not degraded.
//! The resolution is a slice, about a second, or several where operations take so long that a slice holds only a
//! few of them. Shares may be 0, so they are compared by difference.

use std::collections::BTreeMap;

use benchmath::summary;

use super::compare::{self, Candidate};
use super::pairing::{ConditionTrials, PairedTrials, Pairs};
use super::steady;
use pgio_results::histogram::Histogram;
use pgio_results::latency::{Class, Work};
use pgio_results::metrics;
use pgio_results::model::Slice;
use pgio_results::store::Manifest;
use pgio_results::{Metric, Trial};

pub(super) use super::comparison::DEGRADED_TIME as SHARE;
pub(super) const LONGEST: &str = "degraded_longest";

/// A slice is degraded below this share of the median rate.
pub(super) const DEGRADED: f64 = 0.5;

/// With fewer stretches in all of a condition's trials, there is no meaningful median.
const MIN_STRETCHES: usize = 6;

/// A stretch holds at least so many operations on average. Of 20 that arrive at random, one stretch in 200 has less
/// than half.
pub(super) const MIN_OPERATIONS: f64 = 20.0;

/// A stretch holds at least so many operations of each session on average. Sessions that wait for one standby work
/// in step: while each operation takes more than a slice, every slice has either as many operations as there are
/// sessions, or none.
pub(super) const MIN_OPERATIONS_PER_SESSION: f64 = 2.0;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Degraded {
    /// Degraded time as a share of the window.
    share: f64,
    longest_seconds: f64,
}

impl Degraded {
    fn value(self, metric: &str) -> f64 {
        if metric == SHARE { self.share } else { self.longest_seconds }
    }
}

/// Successive slices of a trial that are judged as one.
#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    seconds: f64,
    done: u64,
}

/// What is usual for a condition: the work of its stretches, and the rate below which one is degraded.
#[derive(Debug, Clone, Copy)]
struct Limit {
    work: Work,
    /// The number of slices in a stretch.
    slices: usize,
    rate: f64,
}

impl Limit {
    /// `None` without enough slices that count the work.
    fn new(condition: &ConditionTrials<'_>, primary: &str) -> Option<Limit> {
        let work = steady::work_of(primary)?;
        let slices = slices_per_stretch(condition, work)?;
        let trials = condition.by_block().map(|(_, trial)| trial);
        let stretches = trials.flat_map(|trial| stretches(&trial.timeline, work, slices));
        let rates: Vec<f64> = stretches.filter_map(rate).collect();
        let usual = summary::median(&rates)?;
        let limit = Limit { work, slices, rate: DEGRADED * usual };
        (usual > 0.0 && rates.len() >= MIN_STRETCHES).then_some(limit)
    }

    fn judge(self, trial: &Trial) -> Degraded {
        let all = stretches(&trial.timeline, self.work, self.slices);
        degraded_time(all, |stretch| rate(stretch).is_some_and(|r| r < self.rate))
    }
}

fn rate(stretch: Stretch) -> Option<f64> {
    (stretch.seconds > 0.0).then(|| stretch.done as f64 / stretch.seconds)
}

/// How many slices hold enough operations to judge them; `None` if even whole trials do not.
fn slices_per_stretch(condition: &ConditionTrials<'_>, work: Work) -> Option<usize> {
    let (mut slices, mut operations, mut by_session, mut shortest) = (0.0, 0.0, 0.0, usize::MAX);
    for (_, trial) in condition.by_block() {
        let own = operations_of(trial, work) as f64;
        slices += trial.timeline.len() as f64;
        operations += own;
        by_session += own / trial.sessions.len().max(1) as f64;
        shortest = shortest.min(trial.timeline.len());
    }
    let needed = (MIN_OPERATIONS / operations).max(MIN_OPERATIONS_PER_SESSION / by_session);
    let needed = (needed * slices).ceil().max(1.0);
    (needed <= shortest as f64).then_some(needed as usize)
}

/// The operations that did this work. One that reads or updates may visit hundreds of blocks.
fn operations_of(trial: &Trial, work: Work) -> u64 {
    let classes: &[Class] = match work {
        Work::BlockVisits => &[Class::Read, Class::Update],
        Work::RowsUpdated => &[Class::Update],
        Work::Commits | Work::Messages => &[],
    };
    let calls = classes.iter().filter_map(|class| trial.histograms.get(class.name()));
    match calls.map(Histogram::count).sum() {
        0 => trial.timeline.iter().map(|slice| slice.done(work)).sum(),
        calls => calls,
    }
}

/// The last stretch includes the remaining slices.
fn stretches(timeline: &[Slice], work: Work, slices: usize) -> impl Iterator<Item = Stretch> {
    let last = (timeline.len() / slices).saturating_sub(1);
    let mut all = vec![Stretch::default(); if timeline.is_empty() { 0 } else { last + 1 }];
    for (n, slice) in timeline.iter().enumerate() {
        let stretch = &mut all[(n / slices).min(last)];
        stretch.seconds += slice.seconds;
        stretch.done += slice.done(work);
    }
    all.into_iter()
}

fn degraded_time(
    stretches: impl Iterator<Item = Stretch>,
    is_degraded: impl Fn(Stretch) -> bool,
) -> Degraded {
    let (mut total, mut degraded, mut period) = (0.0, 0.0, 0.0f64);
    let mut longest = 0.0f64;
    for stretch in stretches {
        total += stretch.seconds;
        if is_degraded(stretch) {
            degraded += stretch.seconds;
            period += stretch.seconds;
            longest = longest.max(period);
        } else {
            period = 0.0;
        }
    }
    let share = if total > 0.0 { degraded / total } else { 0.0 };
    Degraded { share, longest_seconds: longest }
}

/// The mean share and the longest degraded period over the condition's trials.
pub(super) fn metrics(condition: &ConditionTrials<'_>, primary: &str) -> BTreeMap<String, Metric> {
    let Some(limit) = Limit::new(condition, primary) else { return BTreeMap::new() };
    let all: Vec<Degraded> = condition.by_block().map(|(_, trial)| limit.judge(trial)).collect();
    let shares: Vec<f64> = all.iter().map(|d| d.share).collect();
    let longest = all.iter().map(|d| d.longest_seconds).reduce(f64::max);
    let metric = |name: &str, value: Option<f64>| {
        let unit = metrics::definition(name).map_or("", |def| def.unit).to_owned();
        value.map(|value| (name.to_owned(), Metric::new(Some(value), unit)))
    };
    let found = [metric(SHARE, summary::mean(&shares)), metric(LONGEST, longest)];
    found.into_iter().flatten().collect()
}

/// Whether some degraded period lasted two slices or more. A single slice varies by chance.
pub(super) fn lasts(condition: &ConditionTrials<'_>, primary: &str) -> bool {
    let Some(limit) = Limit::new(condition, primary) else { return false };
    condition.by_block().any(|(_, trial)| {
        let seconds: f64 = trial.timeline.iter().map(|slice| slice.seconds).sum();
        // Slices differ by the time that reading the counters takes.
        let two = 1.9 * seconds / trial.timeline.len() as f64;
        two > 0.0 && limit.judge(trial).longest_seconds >= two
    })
}

/// Compares both with the baseline, unless neither side has any degraded time.
pub(super) fn compared(
    beside: &PairedTrials<'_, '_>,
    manifest: &Manifest,
    name: &str,
) -> Vec<Candidate> {
    let limit = |condition| Limit::new(condition, &manifest.primary_metric);
    let (Some(ours), Some(theirs)) = (limit(beside.condition), limit(beside.baseline)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for metric in [SHARE, LONGEST] {
        let mut pairs = Pairs::default();
        for (block, condition, baseline) in beside.by_block() {
            pairs.blocks.push(block);
            pairs.condition.push(ours.judge(condition).value(metric));
            pairs.baseline.push(theirs.judge(baseline).value(metric));
        }
        if pairs.condition.iter().chain(&pairs.baseline).any(|v| *v > 0.0) {
            let Some(def) = metrics::definition(metric) else { continue };
            let mut candidate = compare::by_difference(def, &pairs);
            let c = &mut candidate.comparison;
            name.clone_into(&mut c.condition);
            c.judged = manifest.rules.judges(name, metric, false);
            found.push(candidate);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze;
    use crate::test_support::{experiment, trial};

    fn timed(condition: &str, block: u32, commits: &[u64]) -> Trial {
        let rate = commits.iter().sum::<u64>() as f64 / commits.len() as f64;
        let mut t = trial(condition, block, &[("commits_per_second", rate)]);
        t.window.seconds = commits.len() as f64;
        let slice = |(i, commits): (u32, &u64)| Slice {
            at: f64::from(i),
            seconds: 1.0,
            commits: *commits,
            ..Slice::default()
        };
        t.timeline = (1..).zip(commits).map(slice).collect();
        t
    }

    /// Five trials of twenty stall for a third of the window. The typical block barely changes, but the
    /// totals and the degraded time do.
    #[test]
    fn degraded_time_shows_stalls_that_the_typical_block_hides() {
        let mut trials = Vec::new();
        for block in 1..=20u64 {
            let number = u32::try_from(block).unwrap();
            let noise = |i: u64| 1000 + (block * 7 + i * 13) % 11;
            let good: Vec<u64> = (0..9).map(noise).collect();
            let mut stalled: Vec<u64> = (3..12).map(noise).collect();
            if block % 4 == 1 {
                stalled[3..6].fill(0);
            }
            trials.push(timed("local", number, &good));
            trials.push(timed("on", number, &stalled));
        }
        let analysis = analyze(&experiment(&["local", "on"], trials));
        let on = analysis.primary("on").unwrap();
        let totals = on.totals.unwrap();
        assert!(on.ratio.unwrap() > 0.97, "{on:?}");
        assert!((totals.ratio - 11.0 / 12.0).abs() < 0.01, "{totals:?}");
        let share = analysis.condition("on").unwrap().metrics[SHARE].value.unwrap();
        assert!((share - 1.0 / 12.0).abs() < 1e-9, "{share}");
        assert_eq!(analysis.condition("on").unwrap().metrics[LONGEST].value, Some(3.0));
        let compared = analysis.comparison("on", SHARE).unwrap();
        assert_eq!((compared.ratio, compared.blocks), (None, 20));
        assert!((compared.difference.unwrap() - share).abs() < 1e-9, "{compared:?}");
        assert!(compared.difference_low.is_some_and(|low| low > 0.0), "{compared:?}");
        assert_eq!(analysis.condition("local").unwrap().metrics[SHARE].value, Some(0.0));
        assert!(analysis.checks.iter().any(|f| f.id == "stalls"), "{:?}", analysis.checks);
    }

    /// Twenty blocks; the trials of one of the two stall for a third of the window in every fourth block.
    /// Without slices, only the rates show it.
    fn stalling(stalled: &str, with_slices: bool) -> crate::Analysis {
        let block = |block: u32| {
            ["local", "on"].map(|name| {
                let noise = |i: u32| u64::from(1000 + (block * 7 + i * 13) % 11);
                let from = if name == "on" { 3 } else { 0 };
                let mut commits: Vec<u64> = (from..from + 9).map(noise).collect();
                if name == stalled && block % 4 == 1 {
                    commits[3..6].fill(0);
                }
                let mut t = timed(name, block, &commits);
                if !with_slices {
                    t.timeline.clear();
                }
                t
            })
        };
        analyze(&experiment(&["local", "on"], (1..=20).flat_map(block).collect()))
    }

    #[test]
    fn a_baseline_that_stalls_is_not_a_stall_of_the_condition() {
        use crate::STALLS;
        for with_slices in [true, false] {
            for (stalled, message) in [
                ("on", "`on`: −"),
                (
                    "local",
                    "the baseline `local` is slower in some blocks than in the typical one; `on` against it +",
                ),
            ] {
                let analysis = stalling(stalled, with_slices);
                let found: Vec<_> = analysis.checks.iter().filter(|f| f.id == STALLS).collect();
                let [finding] = found.as_slice() else { panic!("{stalled}: {found:?}") };
                assert_eq!(finding.condition.as_deref(), Some(stalled), "{finding:?}");
                assert!(finding.message.starts_with(message), "{finding:?}");
                let has_share = finding.message.contains("of the time");
                assert_eq!(has_share, with_slices, "unknown without slices: {finding:?}");
            }
        }
    }

    /// In block 1 the baseline was measured again beside the repeat of another condition, and stalled there.
    #[test]
    fn a_trial_is_compared_with_the_baseline_beside_it() {
        let mut trials = Vec::new();
        let attempt = |mut t: Trial, attempt| {
            t.place.as_mut().unwrap().attempt = attempt;
            t
        };
        for block in 1..=6 {
            let on = if block == 2 { [1000, 1, 1000, 1000] } else { [1000; 4] };
            trials.extend([timed("local", block, &[1000; 4]), timed("on", block, &on)]);
            trials.push(timed("other", block, &[1000; 4]));
        }
        trials[2].checks.push(pgio_results::Check::invalid("steal", "30 %", "elsewhere"));
        trials.push(attempt(timed("other", 1, &[1000; 4]), 1));
        trials.push(attempt(timed("local", 1, &[1000, 1, 1, 1]), 1));
        let analysis = analyze(&experiment(&["local", "on", "other"], trials));
        let on = analysis.comparison("on", SHARE).unwrap();
        assert_eq!((on.blocks, on.baseline_value), (6, Some(0.0)), "{on:?}");
        let other = analysis.comparison("other", SHARE).unwrap();
        assert_eq!(other.baseline_value, Some(0.125), "{other:?}");
    }

    /// Equal conditions whose slices vary by 45 %, as on a busy machine, and equal ones that stall alike.
    #[test]
    fn equal_conditions_are_rarely_accused() {
        use benchmath::rng::SplitMix64;
        const NAMES: [&str; 5] = ["local", "local-aa", "x", "y", "z"];
        let mut rng = SplitMix64::new(3);
        let mut accused = 0;
        for experiment_number in 0..60 {
            let (blocks, slices, is_noisy) =
                if experiment_number < 40 { (6, 4, true) } else { (8, 12, false) };
            let mut trials = Vec::new();
            for block in 1..=blocks {
                for name in NAMES {
                    let mut slice = || {
                        // The sum of four uniform numbers is nearly normal.
                        let normal = (0..4).map(|_| rng.next_f64()).sum::<f64>() * 1.732 - 3.464;
                        let stalled = if !is_noisy && rng.next_f64() < 0.02 { 0.1 } else { 1.0 };
                        let noise = if is_noisy { 0.45 } else { 0.05 };
                        (1000.0 * stalled * (noise * normal).exp()) as u64
                    };
                    trials.push(timed(
                        name,
                        block,
                        &(0..slices).map(|_| slice()).collect::<Vec<_>>(),
                    ));
                }
            }
            let mut stored = experiment(&NAMES, trials);
            stored.manifest.aa = Some("local-aa".to_owned());
            let is_accused = |f: &crate::Finding| {
                f.id == crate::STALLS && f.condition.as_deref() != Some("local-aa")
            };
            accused += usize::from(analyze(&stored).checks.iter().any(is_accused));
        }
        assert!(accused <= 3, "{accused} of 60");
    }

    #[test]
    fn a_condition_that_is_slow_throughout_is_not_degraded() {
        let trials = (1..=6)
            .flat_map(|b| [timed("local", b, &[1000; 5]), timed("on", b, &[300; 5])])
            .collect();
        let analysis = analyze(&experiment(&["local", "on"], trials));
        assert_eq!(analysis.condition("on").unwrap().metrics[SHARE].value, Some(0.0));
        assert!(analysis.comparison("on", SHARE).is_none());
    }

    /// One session whose commits take 1.6 s: each second has one or none.
    #[test]
    fn operations_longer_than_a_slice_are_no_stalls() {
        let even = |block: u32, seconds_per_commit: f64| -> Vec<u64> {
            let ended = |second: u32| {
                ((f64::from(second) + 0.01 * f64::from(block)) / seconds_per_commit) as u64
            };
            (0..60).map(|second| ended(second + 1) - ended(second)).collect()
        };
        let both = |block| {
            [timed("local", block, &even(block, 0.2)), timed("on", block, &even(block, 1.6))]
        };
        let analysis = analyze(&experiment(&["local", "on"], (1..=6).flat_map(both).collect()));
        let checks: Vec<_> = analysis.checks.iter().filter(|c| c.id == "stalls").collect();
        assert_eq!(analysis.condition("on").unwrap().metrics[SHARE].value, Some(0.0));
        assert!(checks.is_empty(), "{checks:?}");
    }

    /// Stretches of 4 s show a stall of 12 s all the same.
    #[test]
    fn a_stall_of_slow_operations_is_degraded_time() {
        let with_stall = |block: u32| {
            let mut commits = [6; 60];
            if block == 2 {
                commits[20..32].fill(0);
            }
            [timed("local", block, &[6; 60]), timed("on", block, &commits)]
        };
        let analysis =
            analyze(&experiment(&["local", "on"], (1..=6).flat_map(with_stall).collect()));
        let on = &analysis.condition("on").unwrap().metrics;
        assert_eq!((on[SHARE].value, on[LONGEST].value), (Some(0.2 / 6.0), Some(12.0)));
    }

    #[test]
    fn a_stretch_takes_the_slices_that_remain() {
        let timeline: Vec<Slice> =
            (1..=7).map(|n| Slice { seconds: 1.0, commits: n, ..Slice::default() }).collect();
        let sums = |slices| -> Vec<u64> {
            stretches(&timeline, Work::Commits, slices).map(|s| s.done).collect()
        };
        assert_eq!(sums(1), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(sums(3), [6, 22]);
        assert_eq!(sums(8), [28]);
        assert_eq!(stretches(&[], Work::Commits, 3).count(), 0);
    }
}
