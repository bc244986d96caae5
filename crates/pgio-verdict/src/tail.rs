//! Decides whether a percentile is reliable: it needs enough operations, must be above the clock's
//! resolution, and must not be cut off by the window's end.
//!
//! A rule applies to all trials of a metric, because excluding only the trials that break it would favor
//! slow or fast ones. A percentile with fewer than [`MIN_BEYOND`] operations beyond it is the latency of
//! single operations. If values are lower bounds, the effect is a bound as well, because estimate and
//! interval rise with each pair's ratio; the unknown side of the interval is omitted.

use super::comparison::{Bound, Comparison, Verdict};
use super::pairing::{ByCondition, ConditionTrials, value};
use pgio_results::histogram::MIN_QUANTILE_NS;
use pgio_results::latency::{Class, Statistic};
use pgio_results::latency::{MIN_BEYOND, min_operations};
use pgio_results::metrics::{self, Kind, MetricDef};
use pgio_results::model::{SessionTotals, TargetResult};
use pgio_results::store::Manifest;
use pgio_results::units::human;

/// A percentile for which some trial has too few operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TooShort {
    /// Operations in the trial with the fewest; `None` if they are unknown for a single server.
    operations: Option<u64>,
    needed: u64,
}

impl TooShort {
    pub(super) fn reason(self) -> String {
        let Some(operations) = self.operations else {
            return "not compared: in some trial, the number of operations of this server is unknown; compare \
                    another metric"
                .to_owned();
        };
        format!(
            "not compared: a trial has {} operations, but this percentile needs {} so that {MIN_BEYOND} \
             are beyond it; lengthen the window, or compare another metric",
            human::count(operations),
            human::count(self.needed)
        )
    }
}

/// `None` if the metric is not a percentile, or the number of operations of all servers together is unknown.
pub(super) fn too_short<'a>(
    conditions: impl Iterator<Item = &'a ConditionTrials<'a>>,
    def: &MetricDef,
) -> Option<TooShort> {
    let Kind::Latency(class, statistic) = def.kind else { return None };
    let needed = min_operations(statistic.quantile()?);
    let conditions = conditions.filter(|condition| condition.has_metric(def.name));
    let operations = match def.target {
        None => conditions
            .filter_map(|condition| condition.min_operations(class.name()))
            .min()
            .map(Some),
        Some(target) => {
            let trials = conditions
                .flat_map(ConditionTrials::valid)
                .filter(|t| value(t, def.name).is_some());
            // An unknown number is the smallest.
            trials.map(|t| server_operations(t.targets.get(target)?, class)).min()
        }
    };
    let is_enough = |operations: &Option<u64>| operations.is_some_and(|n| n >= needed);
    let operations = operations.filter(|n| !is_enough(n))?;
    Some(TooShort { operations, needed })
}

/// The operations of a class on one server, whose histograms are not stored. `None` if they were not counted.
fn server_operations(part: &TargetResult, class: Class) -> Option<u64> {
    let count: fn(&SessionTotals) -> u64 = match class {
        Class::Read => |session| session.reads,
        Class::Update => |session| session.updates,
        Class::Commit | Class::Transaction => |session| session.commits,
        Class::Scan
        | Class::Insert
        | Class::Delete
        | Class::Call
        | Class::Delivery
        | Class::Device
        | Class::Lag => return None,
    };
    (!part.sessions.is_empty()).then(|| part.sessions.iter().map(count).sum())
}

/// Why a percentile of these conditions cannot be compared: too few operations, or the resolution of the clock.
pub(super) fn unreliable(conditions: &[&ConditionTrials<'_>], def: &MetricDef) -> Option<String> {
    let is_coarse = || conditions.iter().any(|condition| is_coarse(condition, def));
    let coarse = "not compared: some trial is below the resolution of the server's clock";
    too_short(conditions.iter().copied(), def)
        .map(TooShort::reason)
        .or_else(|| is_coarse().then(|| coarse.to_owned()))
}

/// Whether a percentile is below the resolution of the server's clock in any trial. fio's clock is
/// finer, and a command has its own.
pub(super) fn is_coarse(condition: &ConditionTrials<'_>, def: &MetricDef) -> bool {
    let by_the_server = match def.kind {
        Kind::Latency(Class::Device | Class::Lag, _)
        | Kind::Work(_)
        | Kind::Mean(_)
        | Kind::Quantity
        | Kind::Declared => false,
        Kind::Latency(_, statistic) => statistic.quantile().is_some(),
    };
    let is_coarse = |v: &f64| v * 1e9 < MIN_QUANTILE_NS;
    by_the_server && condition.values(def.name).iter().any(is_coarse)
}

/// A comparison without numbers, with the reason as a warning.
pub(super) fn not_compared(comparison: Comparison, why: String) -> Comparison {
    Comparison {
        ratio: None,
        verdict: Verdict::NotApplicable,
        warnings: vec![why],
        ..one_sided(comparison, None, None)
    }
}

/// Removes what is unknown if trials have lower bounds instead of values.
pub(super) fn bounded(comparison: Comparison, cut_off: [bool; 2]) -> Comparison {
    let bound = match cut_off {
        [false, false] => return comparison,
        [true, true] => {
            let why = "not compared: the window's end cut off operations on both sides, so both \
                       values are lower bounds; lengthen the window, or lower the rate";
            return not_compared(comparison, why.to_owned());
        }
        [true, false] => Bound::AtLeast,
        [false, true] => Bound::AtMost,
    };
    let (side, word, outside) = match bound {
        Bound::AtLeast => {
            ("the condition", "lower", comparison.interval.low.is_some_and(|low| low > 1.0))
        }
        Bound::AtMost => {
            ("the baseline", "upper", comparison.interval.high.is_some_and(|high| high < 1.0))
        }
    };
    let why = format!(
        "the window's end cut off operations under {side}: this is the {word} bound of an \
         effect of unknown size"
    );
    let mut bounded = one_sided(comparison, Some(bound), Some(why));
    // The unknown part could reverse the effect, so no difference was detected.
    if !outside && bounded.verdict != Verdict::TooFewBlocks {
        bounded.verdict = Verdict::NoDifference;
        (bounded.p, bounded.p_adjusted) = (None, None);
    }
    bounded
}

/// Removes the side of the interval that `bound` leaves open; both sides if it is `None`.
fn one_sided(mut c: Comparison, bound: Option<Bound>, why: Option<String>) -> Comparison {
    if bound != Some(Bound::AtLeast) {
        (c.interval.low, c.difference_low) = (None, None);
    }
    if bound != Some(Bound::AtMost) {
        (c.interval.high, c.difference_high) = (None, None);
    }
    if bound.is_none() {
        (c.difference, c.p, c.p_adjusted) = (None, None, None);
    }
    (c.blocks_needed, c.sd_log, c.bound) = (None, None, bound);
    c.warnings.extend(why);
    c
}

/// One line per class: which percentiles are left out, and why.
pub(super) fn notes(manifest: &Manifest, trials: &ByCondition<'_>) -> Vec<String> {
    let Some(baseline) = trials.get(manifest.baseline.as_str()) else { return Vec::new() };
    let others = || manifest.conditions.iter().filter(|c| c.name != manifest.baseline);
    let mut classes: Vec<(Class, Vec<Statistic>, TooShort)> = Vec::new();
    for def in metrics::table() {
        let Kind::Latency(class, statistic) = def.kind else { continue };
        let short = others()
            .filter_map(|c| too_short([trials.get(c.name.as_str())?, baseline].into_iter(), def));
        let Some(short) = short.min_by_key(|short| short.operations) else { continue };
        match classes.iter_mut().find(|(known, ..)| *known == class) {
            Some((_, statistics, _)) => statistics.push(statistic),
            None => classes.push((class, vec![statistic], short)),
        }
    }
    let note = |(class, statistics, short): &(Class, Vec<Statistic>, TooShort)| {
        let names: Vec<&str> = statistics.iter().map(|s| s.label()).collect();
        let class = class.name();
        let named = match names.as_slice() {
            [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
            _ => names.concat(),
        };
        format!(
            "{named} of {class} left out: a trial has {} operations, of which fewer than \
             {MIN_BEYOND} are beyond",
            human::count(short.operations.unwrap_or(0))
        )
    };
    classes.iter().map(note).collect()
}
