//! Did the rate stay level inside each window: `benchmath::steady` on the timelines. Of an open
//! loop it is the mean latency that is judged: its rate is given, and stays level while calls wait.
//!
//! A trial is one number and enters comparisons as such; this only says where that number is the
//! average of things that differ, such as a cache that still filled or a device that used up its
//! credit. It warns and never leaves a trial out. The first slice is skipped where no warm-up ran
//! before it, since it holds the start. A trial has both tests at half of [`LEVEL`] each, and is
//! called unsteady only where the change is one that matters ([`MATTERS`]).

use std::collections::BTreeMap;

use benchmath::steady::{self, Steadiness};

use super::condition::Steady;
use super::finding::Finding;
use super::pairing::Arm;
use pgio_results::model::Slice;
use pgio_results::store::Manifest;
use pgio_results::{CheckVerdict, Trial};

/// Chance alone calls 1 steady trial in 100 unsteady: an experiment has dozens.
const LEVEL: f64 = 0.01;

/// Smaller changes than 5 % are no news, however sure.
const MATTERS: f64 = 0.05;

/// Longer timelines are averaged down: the tests take the square of this.
const MOST_POINTS: usize = 240;

/// What a window's timeline shows.
#[derive(Debug, Clone, PartialEq)]
enum Shown {
    Steady,
    Unsteady(String),
    TooShort,
}

/// Counts the steady ones among the trials that count.
pub(super) fn count(arm: &Arm<'_>, primary: &str) -> Steady {
    let mut counts = Steady::default();
    for (_, trial) in arm.counted() {
        match look(trial, primary) {
            Shown::Steady => counts.steady += 1,
            Shown::Unsteady(_) => counts.unsteady += 1,
            Shown::TooShort => counts.too_short += 1,
        }
    }
    counts
}

pub(super) fn findings(manifest: &Manifest, arms: &BTreeMap<&str, Arm<'_>>) -> Vec<Finding> {
    let of = |name: &str| {
        let arm = &arms[name];
        let unsteady =
            arm.counted().filter_map(|(line, t)| match look(t, &manifest.primary_metric) {
                Shown::Unsteady(how) => Some(format!("trial {line}: {how}")),
                Shown::Steady | Shown::TooShort => None,
            });
        let told: Vec<String> = unsteady.collect();
        (!told.is_empty()).then(|| Finding {
            id: "not-steady".to_owned(),
            verdict: CheckVerdict::Warning,
            condition: Some(name.to_owned()),
            trial: None,
            message: format!(
                "{} of {} trials of `{name}` did not stay level ({})",
                told.len(),
                arm.counted().count(),
                told.join("; ")
            ),
            remedy:
                "warm up for longer, or lengthen the window until it holds what changes several \
                     times"
                    .to_owned(),
        })
    };
    manifest.conditions.iter().filter_map(|c| of(&c.name)).collect()
}

fn look(trial: &Trial, primary: &str) -> Shown {
    let slices = judged(trial);
    let Some(first) = slices.first() else { return Shown::TooShort };
    let together = slices.len().div_ceil(MOST_POINTS);
    let is_paced = slices.iter().any(|s| s.timed > 0);
    let done = counted_by(primary);
    let values = slices.chunks_exact(together).map(|some| {
        let seconds: f64 = some.iter().map(|s| s.seconds).sum();
        match is_paced {
            true => mean_latency(some, seconds),
            false => some.iter().map(done).sum::<u64>() as f64 / seconds,
        }
    });
    let Ok(found) = steady::judge(&values.collect::<Vec<_>>()) else { return Shown::TooShort };
    let seconds_at = |point: usize| first.at + first.seconds * ((point * together) as f64 - 1.0);
    match change(&found, seconds_at(found.shift.at)) {
        Some(how) if is_paced => Shown::Unsteady(format!("latency {how}")),
        Some(how) => Shown::Unsteady(how),
        None => Shown::Steady,
    }
}

/// In seconds. Where nothing was answered at all, whatever was due waited for that long.
fn mean_latency(some: &[Slice], seconds: f64) -> f64 {
    match some.iter().map(|s| s.timed).sum::<u64>() {
        0 => seconds,
        calls => some.iter().map(|s| s.latency_seconds).sum::<f64>() / calls as f64,
    }
}

/// The more significant of trend and step, where it matters.
fn change(found: &Steadiness, step_seconds: f64) -> Option<String> {
    let matters = |p: f64, change: Option<f64>| {
        let change = change.filter(|c| c.is_finite() && c.abs() >= MATTERS)?;
        (p <= LEVEL / 2.0).then_some((p, change))
    };
    let trend = matters(found.trend.p, found.trend.change);
    let step = matters(found.shift.p, found.shift.change);
    match (trend, step) {
        (Some((trend_p, _)), Some((p, by))) if p < trend_p => Some(stepped(by, step_seconds)),
        (Some((_, by)), _) => Some(format!("{} from start to end", moved("rises", "falls", by))),
        (None, Some((_, by))) => Some(stepped(by, step_seconds)),
        (None, None) => None,
    }
}

fn stepped(by: f64, seconds: f64) -> String {
    format!("{} after about {seconds:.0} s", moved("jumps", "drops", by))
}

fn moved(up: &str, down: &str, by: f64) -> String {
    format!("{} by {:.0} %", if by > 0.0 { up } else { down }, by.abs() * 100.0)
}

/// The slices that are looked at.
fn judged(trial: &Trial) -> &[Slice] {
    let mut slices = trial.timeline.as_slice();
    if slices.first().is_some_and(|s| trial.window.warmup_seconds < s.seconds) {
        slices = &slices[1..];
    }
    // Where a number of transactions was asked for, the last slice ends when they are done.
    if trial.window.asked_seconds.is_none() {
        slices = &slices[..slices.len().saturating_sub(1)];
    }
    slices
}

/// What the primary metric counts, as far as slices hold it.
pub(super) fn counted_by(primary: &str) -> fn(&Slice) -> u64 {
    match primary {
        "updates_per_second" | "update_calls_per_second" => |s| s.rows_updated,
        "messages_per_minute" | "mail_bytes_per_second" => |s| s.messages,
        _ if primary.contains("commit") || primary.contains("transaction") => |s| s.commits,
        _ => |s| s.block_visits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::analysis::test_support::{experiment, set, trial};

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
    fn level_falling_stepped_and_short_windows() {
        assert_eq!(look(&timed((0..30).map(|i| 1000 + jitter(i))), PRIMARY), Shown::Steady);
        let falling = look(&timed((0..30).map(|i| 1000 - 10 * i + jitter(i))), PRIMARY);
        assert_eq!(falling, Shown::Unsteady("falls by 34 % from start to end".to_owned()));
        let step = |i| if i < 12 { 1000 } else { 600 };
        let stepped = look(&timed((0..30).map(|i| step(i) + jitter(i))), PRIMARY);
        assert_eq!(stepped, Shown::Unsteady("drops by 40 % after about 13 s".to_owned()));
        assert_eq!(look(&timed((0..7).map(jitter)), PRIMARY), Shown::TooShort);
        assert_eq!(look(&timed([]), PRIMARY), Shown::TooShort);
    }

    /// A given rate stays level while calls wait longer and longer, and may move where they do not.
    #[test]
    fn an_open_loop_is_judged_by_its_latency() {
        let paced = |commits: fn(u64) -> u64, milliseconds: fn(u64) -> f64| {
            let mut t = timed((0..30).map(commits));
            for (i, slice) in (0..).zip(&mut t.timeline) {
                slice.timed = slice.commits;
                slice.latency_seconds = slice.commits as f64 * milliseconds(i) / 1e3;
            }
            look(&t, "commit_latency_p99")
        };
        // Neighbors do not resemble each other here, as those of `jitter` do.
        let step = |i: u64| if i < 12 { 1.0 } else { 1.6 } + ((i * 5) % 11) as f64 / 1e3;
        let waiting = paced(|_| 1000, step);
        let Shown::Unsteady(how) = waiting else { panic!("{waiting:?}") };
        assert_eq!(how, "latency jumps by 60 % after about 12 s");
        let level = paced(|i| 1000 - 10 * i, |i| 2.0 + jitter(i) as f64 / 1e3);
        assert_eq!(level, Shown::Steady);
        let standing = |i: u64| if (20..25).contains(&i) { 0 } else { 1000 };
        let slice = |commits| Slice { seconds: 1.0, timed: commits, ..Slice::default() };
        assert_eq!(mean_latency(&[slice(standing(21)), slice(standing(22))], 2.0), 2.0);
    }

    #[test]
    fn a_small_change_does_not_matter_and_long_windows_are_averaged() {
        let small = look(&timed((0..30).map(|i| 1000 - i)), PRIMARY);
        assert_eq!(small, Shown::Steady);
        let step = |i| if i < 1500 { 1000 } else { 600 };
        let long = look(&timed((0..3000).map(|i| step(i) + jitter(i))), PRIMARY);
        assert_eq!(long, Shown::Unsteady("drops by 40 % after about 1495 s".to_owned()));
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
    fn a_condition_counts_its_trials_and_says_what_happened() {
        let mut trials = vec![timed((0..30).map(|i| 1000 - 10 * i)), timed((0..30).map(jitter))];
        trials.push(timed([1, 2]));
        for (block, t) in (1..).zip(&mut trials) {
            t.place.as_mut().unwrap().block = block;
            set(t, PRIMARY, 100.0);
        }
        let analysis = analyse(&experiment(&["local"], trials));
        let counts = Steady { steady: 1, unsteady: 1, too_short: 1 };
        assert_eq!(analysis.condition("local").unwrap().steady, counts);
        let told = analysis.checks.iter().find(|c| c.id == "not-steady").unwrap();
        let text = "1 of 3 trials of `local` did not stay level (trial 1: falls by 34 % from start \
                    to end)";
        assert_eq!(told.message, text);
    }
}
