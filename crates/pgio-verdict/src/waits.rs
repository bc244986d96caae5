//! Divides the mean time of an operation by kind of wait, for each condition and class, and the time that
//! a condition adds.
//!
//! Histogram sums give the exact total time of all operations of a class. Sampling shows which waits the
//! sessions were in, but not in which class. A rule assigns the samples of each trial to classes
//! (`divide`):
//!
//! 1. WAL flushes and waits for the synchronous standby belong to commits, up to the total time of
//!    commits. Further flushes belong to changes (updates, inserts, deletes), because evicting a page may
//!    flush WAL; further waits for the standby are sampling error and are dropped. If no commit was timed,
//!    both belong to changes, then to reads and scans.
//! 2. Reading and writing data files, locks and other waits belong to reads, scans and changes in
//!    proportion to their remaining time, then to commits.
//! 3. CPU is the remaining time of each class, including the wait for a processor.
//!
//! Pauses (pg_sleep) belong to no class. Client waits belong to none either, unless the client itself times
//! its calls one at a time; then they are the network round trip and are divided as in 2. A transaction is
//! its commit and a rest; the rest is treated like a change.
//!
//! Means are total time divided by the number of operations over all trials, so a slow trial weighs as
//! much as it has operations. Errors are half-widths of 95 % intervals. The trial is the unit: with three
//! or more trials, errors come from the spread between trials as for a ratio of totals (Cochran, Sampling
//! Techniques, 1977, chapter 6), for differences by block. With fewer they are binomial over the samples,
//! which assumes independent samples; neighboring samples are dependent, so the error is then a lower
//! bound. Next: `predicted`.

mod divide;
pub(super) mod predicted;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use benchmath::{student, summary};
use serde::{Deserialize, Serialize};

use self::divide::{Class, Divided};
pub use self::predicted::{Predicted, alone as predict};
use super::comparison::{ALPHA, Interval};
use super::pairing::{ByCondition, PairedTrials};
use pgio_results::Trial;
use pgio_results::store::Manifest;
use pgio_results::waits::{GROUPS, WaitGroup};

/// Classes in the order of the report.
const CLASSES: &[&str] = &["read", "scan", "update", "insert", "delete", "commit", "transaction"];

/// From this many trials on, their spread determines the error.
pub(super) const ENOUGH_TRIALS: usize = 3;

/// The 97.5 % quantile of the normal distribution, for the binomial error.
const REACH: f64 = 1.96;

/// One class of operation under one condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Decomposition {
    pub condition: String,
    /// `read`, `scan`, `update`, `insert`, `delete`, `commit` or `transaction`.
    pub class: String,
    /// Trials that count and were sampled.
    pub trials: usize,
    pub operations: u64,
    /// Exact.
    pub mean_seconds: f64,
    /// They add up to the mean.
    pub parts: Vec<Part>,
}

/// The part of the mean operation that one kind of wait takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Part {
    pub group: WaitGroup,
    pub seconds: f64,
    /// Half-width of the 95 % interval.
    pub error_seconds: f64,
    /// Share of the mean, 0 to 1.
    pub share: f64,
    /// Half-width of its 95 % interval.
    pub share_error: f64,
}

/// The time that a condition adds to the baseline's mean operation, by block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecompositionDifference {
    pub condition: String,
    pub class: String,
    pub blocks: usize,
    /// Condition - baseline: the difference of the means over all blocks, with its interval, 95 % for all
    /// conditions together; null with fewer than three blocks.
    pub seconds: f64,
    #[serde(flatten)]
    pub interval: Interval,
    /// They add up to the difference.
    pub parts: Vec<PartDifference>,
    /// The predicted difference, if there is a prediction.
    pub predicted: Option<Predicted>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PartDifference {
    pub group: WaitGroup,
    pub seconds: f64,
    #[serde(flatten)]
    pub interval: Interval,
}

pub(super) fn decompositions(
    manifest: &Manifest,
    by_condition: &ByCondition<'_>,
) -> Vec<Decomposition> {
    let mut all = Vec::new();
    for info in &manifest.conditions {
        let trials: Vec<Divided> =
            by_condition[info.name.as_str()].valid().filter_map(divide::divide).collect();
        for class in CLASSES {
            let classes: Vec<&Class> = trials.iter().filter_map(|t| t.get(class)).collect();
            all.extend(decompose(&info.name, class, &classes));
        }
    }
    all
}

fn decompose(condition: &str, class: &str, trials: &[&Class]) -> Option<Decomposition> {
    let operations: u64 = trials.iter().map(|t| t.operations).sum();
    if operations == 0 {
        return None;
    }
    let mean_seconds = trials.iter().map(|t| t.seconds).sum::<f64>() / operations as f64;
    let part = |group: &WaitGroup| {
        let seconds = trials.iter().map(|t| t.part(*group)).sum::<f64>() / operations as f64;
        let share = if mean_seconds > 0.0 { seconds / mean_seconds } else { 0.0 };
        let (error_seconds, share_error) = errors(trials, *group, mean_seconds, operations);
        Part { group: *group, seconds, error_seconds, share, share_error }
    };
    let is_shown = |p: &Part| p.group == WaitGroup::Cpu || p.seconds > 0.0;
    Some(Decomposition {
        condition: condition.to_owned(),
        class: class.to_owned(),
        trials: trials.len(),
        operations,
        mean_seconds,
        parts: GROUPS.iter().map(part).filter(is_shown).collect(),
    })
}

/// Errors of a part's seconds per operation, and of its share.
fn errors(trials: &[&Class], group: WaitGroup, mean: f64, operations: u64) -> (f64, f64) {
    if trials.len() >= ENOUGH_TRIALS {
        let parts: Vec<f64> = trials.iter().map(|t| t.part(group)).collect();
        let over = |totals: Vec<f64>| half_width(&around_ratio(&parts, &totals), ALPHA);
        let by_operation = over(trials.iter().map(|t| t.operations as f64).collect());
        let by_second = over(trials.iter().map(|t| t.seconds).collect());
        // Equal values have no spread but their rounding, which does not make them exact.
        let has_spread = |width: &f64, of: f64| *width > 1e-9 * of;
        if let Some(by_operation) = by_operation.filter(|width| has_spread(width, mean))
            && let Some(by_second) = by_second.filter(|width| has_spread(width, 1.0))
        {
            return (by_operation, by_second);
        }
    }
    let squared: f64 = trials.iter().map(|t| t.error(group).powi(2)).sum();
    let error = REACH * squared.sqrt() / operations as f64;
    (error, if mean > 0.0 { error / mean } else { 0.0 })
}

/// One value per trial. Their mean is the ratio of the two totals, and their spread gives its error.
fn around_ratio(parts: &[f64], totals: &[f64]) -> Vec<f64> {
    let total: f64 = totals.iter().sum();
    if total <= 0.0 {
        return vec![0.0; parts.len()];
    }
    let ratio = parts.iter().sum::<f64>() / total;
    let mean = total / totals.len() as f64;
    parts.iter().zip(totals).map(|(part, n)| ratio + (part - ratio * n) / mean).collect()
}

fn half_width(values: &[f64], alpha: f64) -> Option<f64> {
    student::test(values, alpha).map(|t| t.interval.high - t.interval.estimate)
}

/// The level of each comparison with the baseline, so that all judged conditions hold together (Bonferroni).
pub(super) fn level(manifest: &Manifest) -> f64 {
    let judged = |name: &String| {
        *name != manifest.baseline && manifest.rules.judges(name, &manifest.primary_metric, true)
    };
    let together = manifest.conditions.iter().filter(|c| judged(&c.name)).count();
    ALPHA / together.max(1) as f64
}

pub(super) fn differences(
    manifest: &Manifest,
    by_condition: &ByCondition<'_>,
) -> Vec<DecompositionDifference> {
    let Some(baseline) = manifest.conditions.iter().find(|c| c.name == manifest.baseline) else {
        return Vec::new();
    };
    let theirs = &by_condition[baseline.name.as_str()];
    let mut all = Vec::new();
    for info in manifest.conditions.iter().filter(|c| c.name != baseline.name) {
        let ours = &by_condition[info.name.as_str()];
        let divided = |(a, b): (&Trial, &Trial)| Some((divide::divide(a)?, divide::divide(b)?));
        let blocks: Vec<(Divided, Divided)> =
            PairedTrials::new(ours, theirs).trials().filter_map(divided).collect();
        for class in CLASSES {
            let pairs: Vec<(&Class, &Class)> =
                blocks.iter().filter_map(|(a, b)| Some((a.get(class)?, b.get(class)?))).collect();
            let mut found = difference(&info.name, class, &pairs, level(manifest));
            if let Some(found) = &mut found {
                found.predicted = predicted::predict(class, (info, ours), (baseline, theirs));
            }
            all.extend(found);
        }
    }
    all
}

fn difference(
    condition: &str,
    class: &str,
    pairs: &[(&Class, &Class)],
    alpha: f64,
) -> Option<DecompositionDifference> {
    let added = |seconds: &dyn Fn(&Class) -> f64| {
        let total = |c: &Class| (seconds(c), c.operations as f64);
        added(pairs.iter().map(|(a, b)| (total(a), total(b))), alpha)
    };
    let ([ours, theirs], interval) = added(&|c| c.seconds)?;
    let groups: BTreeSet<WaitGroup> =
        pairs.iter().flat_map(|(a, b)| a.groups().chain(b.groups())).collect();
    let part = |group: WaitGroup| {
        let ([ours, theirs], interval) = added(&|c| c.part(group))?;
        Some(PartDifference { group, seconds: ours - theirs, interval })
    };
    Some(DecompositionDifference {
        condition: condition.to_owned(),
        class: class.to_owned(),
        blocks: pairs.len(),
        seconds: ours - theirs,
        interval,
        parts: groups.into_iter().filter_map(part).collect(),
        predicted: None,
    })
}

/// Seconds of all operations of a trial, and their number.
type Total = (f64, f64);

/// The means over all operations of both sides, and the interval of their difference, whose parts add up.
fn added(blocks: impl Iterator<Item = (Total, Total)>, alpha: f64) -> Option<([f64; 2], Interval)> {
    let (ours, theirs): (Vec<Total>, Vec<Total>) = blocks.unzip();
    let side = |totals: &[Total]| {
        let (seconds, operations): (Vec<f64>, Vec<f64>) = totals.iter().copied().unzip();
        around_ratio(&seconds, &operations)
    };
    let (ours, theirs) = (side(&ours), side(&theirs));
    let by_block: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a - b).collect();
    let mean = summary::mean(&by_block)?;
    let means = [summary::mean(&ours)?, summary::mean(&theirs)?];
    let reach = half_width(&by_block, alpha).filter(|_| by_block.len() >= ENOUGH_TRIALS);
    Some((means, reach.map(|r| (mean - r, mean + r)).into()))
}

/// The same from the histograms of a class, of which no waits need to have been sampled. `None` unless all trials have
/// some.
pub(super) fn added_time(
    beside: &PairedTrials<'_, '_>,
    class: &str,
    alpha: f64,
) -> Option<([f64; 2], Interval)> {
    let total = |trial: &Trial| {
        let h = trial.histograms.get(class).filter(|h| h.count() > 0)?;
        Some((h.sum_ns() / 1e9, h.count() as f64))
    };
    let blocks: Option<Vec<(Total, Total)>> =
        beside.trials().map(|(a, b)| total(a).zip(total(b))).collect();
    added(blocks?.into_iter(), alpha)
}
