//! Checks whether the rate stayed level inside each window, with `benchmath::steady` on the timelines. In
//! an open loop the mean latency is checked instead: the rate is given and stays level while calls wait.
//!
//! A comparison uses one number per trial. This check warns if that number averages over a change, such
//! as a cache that was still filling or a device that used up its burst credit; it never excludes a
//! trial. The first slice is skipped without a warm-up, because it includes the start. The tests of a
//! trial share [`LEVEL`], and only a relevant change ([`MIN_CHANGE`]) makes it unsteady. A window whose slices do
//! not count the compared work, such as scans, is not judged.

use benchmath::steady::{self, Steadiness};

use super::condition::{Finding, Steady};
use super::pairing::{ByCondition, ConditionTrials};
use pgio_results::joint;
use pgio_results::latency::{Class, Work};
use pgio_results::metrics::{self, Kind};
use pgio_results::model::Slice;
use pgio_results::store::Manifest;
use pgio_results::{CheckVerdict, Trial};

/// By chance, 1 of 100 steady trials is reported as unsteady; an experiment has dozens of trials.
const LEVEL: f64 = 0.01;

/// An episode's test assumes more than the ranks of the others do, and finds large ones anyway.
pub(super) const LEVEL_OF_EPISODE: f64 = LEVEL / 5.0;
pub(super) const LEVEL_OF_OTHERS: f64 = (LEVEL - LEVEL_OF_EPISODE) / 2.0;

/// Changes below 5 % are irrelevant, however significant.
pub(super) const MIN_CHANGE: f64 = 0.05;

/// Longer timelines are averaged, because the tests take quadratic time.
const MAX_POINTS: usize = 240;

/// The result for one window.
#[derive(Debug, Clone, PartialEq)]
enum WindowVerdict {
    Steady,
    Unsteady(String),
    NotJudged,
}

/// Counts steady and unsteady trials among those that count.
pub(super) fn count(condition: &ConditionTrials<'_>, primary: &str) -> Steady {
    let mut counts = Steady::default();
    for (_, trial) in condition.counted() {
        match window_verdict(trial, primary) {
            WindowVerdict::Steady => counts.steady += 1,
            WindowVerdict::Unsteady(_) => counts.unsteady += 1,
            WindowVerdict::NotJudged => counts.too_short += 1,
        }
    }
    counts
}

pub(super) fn findings(manifest: &Manifest, by_condition: &ByCondition<'_>) -> Vec<Finding> {
    let finding = |name: &str| {
        let condition = &by_condition[name];
        let unsteady = condition.counted().filter_map(|(line, t)| {
            match window_verdict(t, &manifest.primary_metric) {
                WindowVerdict::Unsteady(how) => Some(format!("trial {line}: {how}")),
                WindowVerdict::Steady | WindowVerdict::NotJudged => None,
            }
        });
        let changes: Vec<String> = unsteady.collect();
        (!changes.is_empty()).then(|| Finding {
            id: "not-steady".to_owned(),
            verdict: CheckVerdict::Warning,
            condition: Some(name.to_owned()),
            trial: None,
            message: format!(
                "{} of {} trials of `{name}` did not stay level ({})",
                changes.len(),
                condition.counted().count(),
                changes.join("; ")
            ),
            remedy:
                "lengthen the warm-up, or lengthen the window to cover several cycles of the change"
                    .to_owned(),
        })
    };
    manifest.conditions.iter().filter_map(|c| finding(&c.name)).collect()
}

fn window_verdict(trial: &Trial, primary: &str) -> WindowVerdict {
    let slices = judged(trial);
    let Some(first) = slices.first() else { return WindowVerdict::NotJudged };
    let together = slices.len().div_ceil(MAX_POINTS);
    let is_paced = is_paced(slices);
    let values: Option<Vec<f64>> = if is_paced {
        Some(slices.chunks_exact(together).map(mean_latency).collect())
    } else {
        rates_of(slices, primary)
    };
    let Some(Ok(found)) = values.map(|values| steady::judge(&values)) else {
        return WindowVerdict::NotJudged;
    };
    let seconds_at = |point: usize| first.at + first.seconds * ((point * together) as f64 - 1.0);
    match change(&found, seconds_at) {
        Some(how) if is_paced => WindowVerdict::Unsteady(format!("latency {how}")),
        Some(how) => WindowVerdict::Unsteady(how),
        None => WindowVerdict::Steady,
    }
}

/// The rate over the time of a window, for a primary metric that slices count. `None` in an open loop,
/// where the rate is given.
pub(super) fn rates(trial: &Trial, primary: &str) -> Option<Vec<f64>> {
    let slices = judged(trial);
    let is_rate = !slices.is_empty() && !is_paced(slices);
    is_rate.then(|| rates_of(slices, primary)).flatten()
}

/// `None` if the slices do not count the work, or none of it was done.
fn rates_of(slices: &[Slice], primary: &str) -> Option<Vec<f64>> {
    let work = work_of(primary)?;
    let done = |some: &[Slice]| some.iter().map(|s| s.done(work)).sum::<u64>();
    let rate = |some: &[Slice]| done(some) as f64 / seconds(some);
    let rates = || slices.chunks_exact(slices.len().div_ceil(MAX_POINTS)).map(rate).collect();
    (done(slices) > 0).then(rates)
}

fn is_paced(slices: &[Slice]) -> bool {
    slices.iter().any(|s| s.timed > 0)
}

fn seconds(slices: &[Slice]) -> f64 {
    slices.iter().map(|s| s.seconds).sum()
}

/// In seconds. If nothing was answered, the pending calls waited for the whole time.
fn mean_latency(some: &[Slice]) -> f64 {
    match some.iter().map(|s| s.timed).sum::<u64>() {
        0 => seconds(some),
        calls => some.iter().map(|s| s.latency_seconds).sum::<f64>() / calls as f64,
    }
}

/// The most significant of trend, step and episode, if it is relevant. `seconds_at` is the time of a point.
fn change(found: &Steadiness, seconds_at: impl Fn(usize) -> f64) -> Option<String> {
    let matters = |level: f64, p: f64, change: Option<f64>| {
        let change = change.filter(|c| c.is_finite() && c.abs() >= MIN_CHANGE)?;
        (p <= level).then_some((p, change))
    };
    let trend = matters(LEVEL_OF_OTHERS, found.trend.p, found.trend.change);
    let step = matters(LEVEL_OF_OTHERS, found.shift.p, found.shift.change);
    let episode = found.episode.and_then(|e| {
        let (p, by) = matters(LEVEL_OF_EPISODE, e.p, Some(e.change))?;
        let moved = describe_change("jumps", "drops", by);
        let (from, to) = (seconds_at(e.from), seconds_at(e.to));
        Some((p, format!("{moved} from about {from:.0} s to {to:.0} s")))
    });
    let trend =
        trend.map(|(p, by)| (p, describe_change("rises", "falls", by) + " from start to end"));
    let step = step.map(|(p, by)| (p, describe_step(by, seconds_at(found.shift.at))));
    // Among equal candidates, take the first.
    let found = [trend, step, episode].into_iter().flatten();
    found.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, how)| how)
}

fn describe_step(by: f64, seconds: f64) -> String {
    format!("{} after about {seconds:.0} s", describe_change("jumps", "drops", by))
}

fn describe_change(up: &str, down: &str, by: f64) -> String {
    format!("{} by {:.0} %", if by > 0.0 { up } else { down }, by.abs() * 100.0)
}

/// The slices that are checked.
fn judged(trial: &Trial) -> &[Slice] {
    let mut slices = trial.timeline.as_slice();
    if slices.first().is_some_and(|s| trial.window.warmup_seconds < s.seconds) {
        slices = &slices[1..];
    }
    // With a fixed number of transactions, the last slice ends when they are done.
    if trial.window.asked_seconds.is_none() {
        slices = &slices[..slices.len().saturating_sub(1)];
    }
    slices
}

/// The work whose rate stands for the primary metric over the time of a window; `None` if slices do not count
/// it. For a metric of one of several servers, it covers all of them.
pub(super) fn work_of(primary: &str) -> Option<Work> {
    match metrics::definition(joint::base_metric(primary))?.kind {
        Kind::Work(work) => Some(work),
        Kind::Latency(Class::Commit | Class::Transaction, _) => Some(Work::Commits),
        Kind::Latency(Class::Read | Class::Update | Class::Call, _) => Some(Work::BlockVisits),
        Kind::Latency(Class::Delivery, _) => Some(Work::Messages),
        Kind::Latency(
            Class::Scan | Class::Insert | Class::Delete | Class::Device | Class::Lag,
            _,
        )
        | Kind::Mean(_)
        | Kind::Quantity
        | Kind::Declared => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze;
    use crate::test_support::{experiment, set, trial};

    const PRIMARY: &str = "commits_per_second";

    /// A trial whose seconds hold these numbers of commits, after a warm-up.
    fn timed(commits: impl IntoIterator<Item = u64>) -> Trial {
        let mut t = trial("local", 1, &[(PRIMARY, 100.0)]);
        t.window.warmup_seconds = 2.0;
        let slice =
            |(i, commits)| Slice { at: f64::from(i), seconds: 1.0, commits, ..Slice::default() };
        t.timeline = (1..).zip(commits).map(slice).collect();
        t
    }

    fn jitter(i: u64) -> u64 {
        (i * 7919) % 11
    }

    #[test]
    fn windows_are_steady_falling_stepped_or_too_short_to_judge() {
        assert_eq!(
            window_verdict(&timed((0..30).map(|i| 1000 + jitter(i))), PRIMARY),
            WindowVerdict::Steady
        );
        let falling = window_verdict(&timed((0..30).map(|i| 1000 - 10 * i + jitter(i))), PRIMARY);
        assert_eq!(falling, WindowVerdict::Unsteady("falls by 34 % from start to end".to_owned()));
        let step = |i| if i < 12 { 1000 } else { 600 };
        let stepped = window_verdict(&timed((0..30).map(|i| step(i) + jitter(i))), PRIMARY);
        assert_eq!(stepped, WindowVerdict::Unsteady("drops by 40 % after about 12 s".to_owned()));
        // As injected on a busy machine: 80 % less for 14 of 30 s.
        let episode = |i| if (8..22).contains(&i) { 200 } else { 1000 };
        let found = window_verdict(&timed((0..30).map(|i| episode(i) + 5 * jitter(i))), PRIMARY);
        let WindowVerdict::Unsteady(how) = found else { panic!("{found:?}") };
        assert!(how.ends_with("from about 8 s to 22 s") && how.starts_with("drops by 7"), "{how}");
        assert_eq!(window_verdict(&timed((0..7).map(jitter)), PRIMARY), WindowVerdict::NotJudged);
        assert_eq!(window_verdict(&timed([]), PRIMARY), WindowVerdict::NotJudged);
    }

    #[test]
    fn work_that_slices_do_not_count_is_not_judged() {
        let t = timed((0..30).map(|i| 1000 - 10 * i + jitter(i)));
        for primary in ["blocks_scanned_per_second", "scan_latency_p99", "tps"] {
            assert_eq!(window_verdict(&t, primary), WindowVerdict::NotJudged, "{primary}");
        }
        // The workload counts no visits.
        let visits = window_verdict(&t, "block_visits_per_second");
        assert_eq!(visits, WindowVerdict::NotJudged);
        let falls = WindowVerdict::Unsteady("falls by 34 % from start to end".to_owned());
        assert_eq!(window_verdict(&t, "commits_per_second@a"), falls);
    }

    /// A given rate stays level while calls wait ever longer, and may change while latency does not.
    #[test]
    fn an_open_loop_is_judged_by_its_latency() {
        let paced = |commits: fn(u64) -> u64, milliseconds: fn(u64) -> f64| {
            let mut t = timed((0..30).map(commits));
            for (i, slice) in (0..).zip(&mut t.timeline) {
                slice.timed = slice.commits;
                slice.latency_seconds = slice.commits as f64 * milliseconds(i) / 1e3;
            }
            window_verdict(&t, "commit_latency_p99")
        };
        // Neighbors do not resemble each other here, as in `jitter`.
        let step = |i: u64| if i < 12 { 1.0 } else { 1.6 } + ((i * 5) % 11) as f64 / 1e3;
        let waiting = paced(|_| 1000, step);
        let WindowVerdict::Unsteady(how) = waiting else { panic!("{waiting:?}") };
        assert_eq!(how, "latency jumps by 60 % after about 12 s");
        let level = paced(|i| 1000 - 10 * i, |i| 2.0 + jitter(i) as f64 / 1e3);
        assert_eq!(level, WindowVerdict::Steady);
        let standing = |i: u64| if (20..25).contains(&i) { 0 } else { 1000 };
        let slice = |commits| Slice { seconds: 1.0, timed: commits, ..Slice::default() };
        assert_eq!(mean_latency(&[slice(standing(21)), slice(standing(22))]), 2.0);
    }

    #[test]
    fn a_small_change_does_not_matter_and_long_windows_are_averaged() {
        let small = window_verdict(&timed((0..30).map(|i| 1000 - i)), PRIMARY);
        assert_eq!(small, WindowVerdict::Steady);
        let step = |i| if i < 1500 { 1000 } else { 600 };
        let long = window_verdict(&timed((0..3000).map(|i| step(i) + jitter(i))), PRIMARY);
        assert_eq!(long, WindowVerdict::Unsteady("drops by 40 % after about 1495 s".to_owned()));
    }

    #[test]
    fn the_start_is_skipped_without_a_warm_up_and_the_end_of_a_fixed_number() {
        let mut t = timed((0..30).map(|i| 1000 + jitter(i)));
        t.window.warmup_seconds = 0.0;
        t.window.asked_seconds = None;
        assert_eq!(judged(&t).len(), 28);
        assert_eq!(judged(&t)[0].at, 2.0);
        t.timeline.truncate(1);
        assert!(judged(&t).is_empty());
    }

    #[test]
    fn a_condition_counts_its_unsteady_trials_and_describes_the_change() {
        let mut trials = vec![timed((0..30).map(|i| 1000 - 10 * i)), timed((0..30).map(jitter))];
        trials.push(timed([1, 2]));
        for (block, t) in (1..).zip(&mut trials) {
            t.place.as_mut().unwrap().block = block;
            set(t, PRIMARY, 100.0);
        }
        let analysis = analyze(&experiment(&["local"], trials));
        let counts = Steady { steady: 1, unsteady: 1, too_short: 1 };
        assert_eq!(analysis.condition("local").unwrap().steady, counts);
        let finding = analysis.checks.iter().find(|c| c.id == "not-steady").unwrap();
        let text = "1 of 3 trials of `local` did not stay level (trial 1: falls by 34 % from start \
                    to end)";
        assert_eq!(finding.message, text);
    }
}
