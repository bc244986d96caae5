//! The ratio of totals: all work over all time under a condition, divided by the baseline's. Of a metric of which less
//! is better, all trials together: the mean time of all operations, or the sum of the values of a program's runs. A
//! percentile has no total, so nothing shows whether a condition stalls that keeps it.

use std::collections::{BTreeMap, BTreeSet};

use benchmath::summary::{geometric_mean, mean};
use benchmath::totals::{self, Block, Part};
use pgio_results::change::{Change, fact};
use pgio_results::danger::{Danger, from_fact};
use pgio_results::latency::Statistic;
use pgio_results::metrics::{self, Direction, Kind, MetricDef};
use pgio_results::model::Trial;
use pgio_results::store::{ConditionInfo, Manifest};
use pgio_results::{CheckVerdict, Metric};
use serde::{Deserialize, Serialize};

use super::comparison::{ALPHA, Interval};
use super::condition::{Condition, State, differing_factors};
use super::pairing::{self, ConditionTrials, PairedTrials};
use super::{degraded, steady, tail};

/// The ratio of totals. It differs from the typical block's ratio if some trials stall.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// (work / time) under the condition over the same under the baseline, all blocks together; of a metric of which
    /// less is better, the ratio of the means over all trials, or of a mean time over all operations.
    pub ratio: f64,
    /// Its interval, 95 % for all conditions together; null with fewer than two blocks or without spread.
    #[serde(flatten)]
    pub interval: Interval,
    /// One-sided 95 % bounds of the ratio. An effect does not matter, and a condition passes the gate, only if
    /// these are within the margin as well. Null beyond a factor of 100.
    #[serde(default)]
    pub at_least: Option<f64>,
    #[serde(default)]
    pub at_most: Option<f64>,
    /// The 95 % interval of the ratio divided by the ratio of the typical block; of the inverse if less is better. Below 1
    /// the totals are worse.
    #[serde(skip)]
    pub over_typical: Interval,
}

/// Two ratios that differ by less are the same to a reader.
pub(super) const APART: f64 = 0.01;

impl Totals {
    /// Both one-sided bounds; a side that is not known is as far as it can be.
    pub fn bounds(&self) -> (f64, f64) {
        (self.at_least.unwrap_or(0.0), self.at_most.unwrap_or(f64::INFINITY))
    }

    /// Whether the typical block's ratio contradicts it by more than 1 %. The two come from the same blocks, so
    /// neither has to lie outside the other's interval.
    pub fn disagrees(&self) -> bool {
        self.is_worse() || self.over_typical.low.is_some_and(|low| low > 1.0 + APART)
    }

    /// Whether all work over all time is worse for the condition than the typical block, by more than 1 %.
    pub fn is_worse(&self) -> bool {
        self.over_typical.high.is_some_and(|high| high < 1.0 - APART)
    }
}

/// Whether the metric has totals. Those without a better direction have none to stall in.
pub(super) fn exist(def: &MetricDef<'_>) -> bool {
    let is_percentile =
        matches!(def.kind, Kind::Latency(_, statistic) if statistic != Statistic::Mean);
    def.direction != Direction::Neutral && !is_percentile
}

/// All work over all time in words; of values of which less is better, what is added up is all trials.
pub fn in_words(direction: Direction) -> &'static str {
    match direction {
        Direction::LowerIsFaster => "all trials together",
        Direction::HigherIsFaster | Direction::Neutral => "all work over all time",
    }
}

/// Over the blocks in which both sides have a trial that counts; the interval at level `alpha`. `None` if the metric
/// has no totals.
pub(super) fn ratio(
    beside: &PairedTrials<'_, '_>,
    def: &MetricDef<'_>,
    alpha: f64,
) -> Option<Totals> {
    if !exist(def) {
        return None;
    }
    let part = |trial: &Trial| {
        let value = pairing::value(trial, def.name)?;
        let seconds = trial.window.seconds;
        Some(match (def.kind, def.direction) {
            (Kind::Latency(class, _), _) => {
                let timed = trial.histograms.get(class.name()).filter(|h| h.total_count() > 0)?;
                Part { work: timed.total_sum_ns(), seconds: timed.total_count() as f64 }
            }
            (Kind::Work(_), Direction::LowerIsFaster) => {
                Part { work: seconds, seconds: seconds / value }
            }
            (_, Direction::LowerIsFaster) => Part { work: value, seconds: 1.0 },
            (_, Direction::HigherIsFaster | Direction::Neutral) => {
                Part { work: value * seconds, seconds }
            }
        })
    };
    let blocks: Vec<Block> = beside
        .trials()
        .filter_map(|(ours, theirs)| {
            Some(Block { condition: part(ours)?, baseline: part(theirs)? })
        })
        .collect();
    let found = totals::ratio(&blocks, alpha)?;
    let over_typical = totals::over_typical(&blocks, ALPHA).map(|i| match def.direction {
        Direction::LowerIsFaster => (1.0 / i.high, 1.0 / i.low),
        Direction::HigherIsFaster | Direction::Neutral => (i.low, i.high),
    });
    let bounds = totals::bounds(&blocks, ALPHA);
    Some(Totals { over_typical: over_typical.into(), ..from_ratio(found, bounds) })
}

/// A ratio with its interval and its one-sided bounds, without the typical block's.
pub(super) fn from_ratio(
    (ratio, interval): (f64, Option<benchmath::summary::Interval>),
    bounds: Option<(f64, f64)>,
) -> Totals {
    let bounds = bounds.map_or(Interval::UNKNOWN, |(low, high)| Interval::from_ratio(low, high));
    Totals {
        ratio,
        interval: interval.map_or(Interval::UNKNOWN, |i| Interval::from_ratio(i.low, i.high)),
        at_least: bounds.low,
        at_most: bounds.high,
        over_typical: Interval::UNKNOWN,
    }
}

// Describes one condition: the number of trials, and each metric's value over those that count. The value describes
// the typical trial: the geometric mean of the trials' values if all are positive, because effects are ratios, and
// the arithmetic mean otherwise. This applies to mean, percentiles and maximum of a latency as well. Percentiles
// below the clock's resolution have no value, and percentiles of too few operations are left out.

pub(super) fn describe(
    info: &ConditionInfo,
    manifest: &Manifest,
    condition: &ConditionTrials<'_>,
) -> Condition {
    let baseline = manifest.conditions.iter().find(|c| c.name == manifest.baseline);
    let (checks_passed, checks_total) = checks(condition);
    Condition {
        name: info.name.clone(),
        treatments: info.treatments(),
        factors: baseline.map(|b| factors(info, b)).unwrap_or_default(),
        danger: danger(&info.changes, condition),
        trials: condition.all.len(),
        invalid: condition.invalid().len(),
        failed: condition.failed().len(),
        valid: condition.valid().count(),
        server_starts: server_starts(condition),
        counted: condition.counted().map(|(line, _)| line).collect(),
        state: State::default(),
        shares: Vec::new(),
        steady: steady::count(condition, &manifest.primary_metric),
        metrics: values(condition, manifest),
        checks_passed,
        checks_total,
    }
}

const COMMIT_LEVEL: &str = "synchronous_commit";

/// Without a synchronous standby a failover loses commits under any condition.
fn danger(changes: &[Change], condition: &ConditionTrials<'_>) -> Option<Danger> {
    let trials = || condition.all.iter().map(|(_, trial)| *trial);
    let names = fact::setting("synchronous_standby_names");
    let has_standby = || {
        trials().any(|t| t.environment.get(&names).is_some_and(|names| !names.is_empty()))
            || trials().filter_map(|t| t.telemetry.as_ref()).any(|t| {
                t.standbys.values().any(|s| ["sync", "quorum"].contains(&s.sync_state.as_str()))
            })
    };
    let applies = |sets_level: bool, danger: &Danger| {
        !sets_level || *danger != Danger::FailoverLosesCommits || has_standby()
    };
    let declared = changes.iter().filter_map(|change| {
        change.danger().filter(|danger| applies(change.sets(COMMIT_LEVEL), danger))
    });
    // Where neither a change nor the sessions set something else, the server is configured so already.
    let is_set = |trial: &Trial, name: &str| {
        trial.settings.contains_key(name) || changes.iter().any(|change| change.sets(name))
    };
    // Most trials of a condition are configured alike.
    let mut configured: Vec<&Trial> = trials().collect();
    configured.dedup_by(|a, b| a.environment == b.environment && a.settings == b.settings);
    let found = configured.iter().flat_map(|trial| {
        let facts = trial.environment.iter().map(|(name, value)| (name.as_str(), value));
        let facts =
            facts.filter(|(name, _)| !fact::setting_of(name).is_some_and(|s| is_set(trial, s)));
        facts.filter_map(|(name, value)| {
            from_fact(name, value).filter(|d| applies(name == fact::setting(COMMIT_LEVEL), d))
        })
    });
    let pinned =
        configured.iter().flat_map(|trial| trial.settings.iter()).filter_map(|(name, value)| {
            let danger = Change::server(name, value).danger();
            danger.filter(|danger| applies(name == COMMIT_LEVEL, danger))
        });
    // A private server may have been built with them.
    let off = |t: &Trial| t.server.fsync == "off" || t.server.full_page_writes == "off";
    let built = trials().any(off).then_some(Danger::PowerCutCorrupts);
    // A way to flush may be none on this device.
    let lies = |t: &Trial| {
        let check = t.checks.iter().find(|check| check.id == "lying-cache");
        check.is_some_and(|check| check.verdict != CheckVerdict::Ok)
    };
    let flushes_otherwise = changes.iter().any(|change| change.sets("wal_sync_method"));
    let unflushed = (flushes_otherwise && trials().any(lies)).then_some(Danger::PowerCutCorrupts);
    declared.chain(found).chain(pinned).chain(built).chain(unflushed).max()
}

fn factors(info: &ConditionInfo, baseline: &ConditionInfo) -> Vec<String> {
    differing_factors(info, baseline).iter().map(ToString::to_string).collect()
}

pub(super) fn values(
    condition: &ConditionTrials<'_>,
    manifest: &Manifest,
) -> BTreeMap<String, Metric> {
    let declared = &manifest.metrics;
    let mut found = degraded::metrics(condition, &manifest.primary_metric);
    for def in metrics::all(declared) {
        if !condition.has_metric(def.name)
            || !condition.valid().any(|t| t.metrics.contains_key(def.name))
        {
            continue;
        }
        // The latency of single operations.
        if tail::too_short(std::iter::once(condition), &def).is_some() {
            continue;
        }
        let values = condition.values(def.name);
        let value = central(&values).filter(|_| !tail::is_coarse(condition, &def));
        let at_least = condition.is_bounded(def.name);
        found.insert(def.name.to_owned(), Metric { at_least, ..Metric::new(value, def.unit) });
    }
    found
}

fn server_starts(condition: &ConditionTrials<'_>) -> usize {
    let start = |t: &&Trial| Some((t.server.target.clone(), t.server.started?));
    condition.valid().filter_map(|t| start(&t)).collect::<BTreeSet<_>>().len()
}

fn central(values: &[f64]) -> Option<f64> {
    geometric_mean(values).or_else(|| mean(values))
}

/// The number of checks that passed in the last attempt of every block, and the number of all checks.
fn checks(condition: &ConditionTrials<'_>) -> (usize, usize) {
    let mut names = BTreeSet::new();
    let mut not_passed = BTreeSet::new();
    for check in condition.last_attempts().flat_map(|t| &t.checks) {
        names.insert(&check.id);
        if check.verdict != CheckVerdict::Ok {
            not_passed.insert(&check.id);
        }
    }
    (names.len() - not_passed.len(), names.len())
}

#[cfg(test)]
mod tests {
    use crate::test_support::stalling;
    use crate::{Decision, Gate, STALLS, analyze};

    #[test]
    fn stalls_that_the_typical_block_does_not_show_disagree() {
        let analysis = analyze(&stalling("commits_per_second", |rate| rate));
        let primary = |name: &str| analysis.primary(name).unwrap();
        let (x, y) = (primary("x"), primary("y"));
        let totals = x.totals.unwrap();
        assert!(totals.disagrees() && totals.is_worse(), "{x:?}");
        assert!(!y.totals.unwrap().disagrees(), "{y:?}");
        // The typical block alone is within the margin on both sides.
        assert!(!x.interval.excludes(1.0) && x.ratio.unwrap() > 0.98, "{x:?}");
        assert_eq!((x.decision, x.gate), (Some(Decision::Undecided), Some(Gate::Undecided)));
        assert_eq!((y.decision, y.gate), (Some(Decision::DoesNotMatter), Some(Gate::Pass)));
        assert!(x.open_by_totals && !y.open_by_totals, "{x:?}");
        assert!(totals.at_least.unwrap() < 0.9 && totals.at_most.unwrap() < 0.97, "{totals:?}");
        // The interval beside a decision is the one that decides.
        assert_eq!(x.within_low, totals.at_least);
        assert!(y.within_low.unwrap() > 0.95 && y.within_high.unwrap() < 1.05, "{y:?}");
    }

    /// A mean time covers all operations, of which a stalled trial has few; each run of a program counts alike.
    #[test]
    fn where_less_is_better_stalls_do_not_hide_either() {
        for (metric, total) in [("commit_latency_mean", 1.122), ("seconds", 1.262)] {
            let analysis = analyze(&stalling(metric, |rate| 1.0 / rate));
            let primary = |name: &str| analysis.primary(name).unwrap();
            let (x, y) = (primary("x"), primary("y"));
            let totals = x.totals.unwrap();
            assert!((totals.ratio - total).abs() < 0.002, "{metric}: {totals:?}");
            assert!(totals.is_worse() && x.ratio.unwrap() < 1.02, "{metric}: {x:?}");
            assert_eq!((x.decision, x.gate), (Some(Decision::Undecided), Some(Gate::Undecided)));
            assert_eq!((y.decision, y.gate), (Some(Decision::DoesNotMatter), Some(Gate::Pass)));
            assert_eq!(x.within_high, totals.at_most);
            let stalls: Vec<_> = analysis.checks.iter().filter(|f| f.id == STALLS).collect();
            let [finding] = stalls.as_slice() else { panic!("{metric}: {stalls:?}") };
            assert_eq!(finding.condition.as_deref(), Some("x"), "{finding:?}");
            assert!(finding.message.contains("in all trials together"), "{finding:?}");
        }
    }
}
