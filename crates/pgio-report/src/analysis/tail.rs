//! What a percentile is worth: of enough operations, above the clock's resolution, and not cut off by
//! the window's end.
//!
//! The rules hold for all trials of a metric or for none: leaving out just the trials that break one
//! would favor the slow ones or the fast ones. A percentile with fewer than [`MIN_BEYOND`]
//! operations beyond it is the latency of single operations. A lower bound in the place of a value
//! bounds the effect as well, as estimate and interval rise with each pair's ratio; of the interval
//! the other side, which is not known, is left out.

use std::collections::BTreeMap;

use super::comparison::Comparison;
use super::pairing::Arm;
use super::verdict::{Bound, Verdict};
use pgio_results::histogram::COARSEST_QUANTILE_NS;
use pgio_results::latency::{MIN_BEYOND, needed};
use pgio_results::metrics::{self, Kind, MetricDef};
use pgio_results::operation::{Class, Statistic};
use pgio_results::store::Manifest;
use pgio_results::units::human;

/// A percentile that some trial has too few operations for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TooShort {
    /// In the trial that has the fewest.
    operations: u64,
    needed: u64,
}

impl TooShort {
    pub(super) fn reason(self) -> String {
        format!(
            "not compared: a trial has {} operations, and with fewer than {} less than \
             {MIN_BEYOND} lie beyond this percentile; take longer windows, or compare another \
             metric",
            human::count(self.operations),
            human::count(self.needed)
        )
    }
}

/// `None` for what is no percentile, or where nobody knows of how many operations it is.
pub(super) fn too_short<'a>(
    arms: impl Iterator<Item = &'a Arm<'a>>,
    def: &MetricDef,
) -> Option<TooShort> {
    let Kind::Latency(class, statistic) = def.kind else { return None };
    let needed = needed(statistic.quantile()?);
    let counts =
        arms.filter(|arm| arm.measured(def.name)).filter_map(|arm| arm.fewest(class.name()));
    let operations = counts.min().filter(|n| *n < needed)?;
    Some(TooShort { operations, needed })
}

/// Whether a percentile is finer than the server's clock in any trial. fio's clock is finer, and a
/// command has its own.
pub(super) fn is_coarse(arm: &Arm<'_>, def: &MetricDef) -> bool {
    let by_the_server = match def.kind {
        Kind::Latency(Class::Device | Class::Lag, _) | Kind::Quantity | Kind::Declared => false,
        Kind::Latency(_, statistic) => statistic.quantile().is_some(),
    };
    let is_coarse = |v: &f64| v * 1e9 < COARSEST_QUANTILE_NS;
    by_the_server && arm.values(def.name).iter().any(is_coarse)
}

/// A comparison without its numbers, and why.
pub(super) fn not_compared(comparison: Comparison, why: String) -> Comparison {
    Comparison {
        ratio: None,
        verdict: Verdict::NotApplicable,
        warnings: vec![why],
        ..one_sided(comparison, None, None)
    }
}

/// Without what cannot be known, where trials have lower bounds in the place of values.
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
        "the window's end cut off operations under {side}: this is the {word} bound of an effect \
         whose size is not known"
    );
    let mut told = one_sided(comparison, Some(bound), Some(why));
    // What the unknown part could take back was not shown.
    if !outside && told.verdict != Verdict::TooFewBlocks {
        told.verdict = Verdict::NoDifference;
        (told.p, told.p_adjusted) = (None, None);
    }
    told
}

/// Without the side of the interval that `bound` leaves open; without any where it is `None`.
fn one_sided(mut c: Comparison, bound: Option<Bound>, why: Option<String>) -> Comparison {
    if bound != Some(Bound::AtLeast) {
        (c.interval.low, c.difference_interval.low) = (None, None);
    }
    if bound != Some(Bound::AtMost) {
        (c.interval.high, c.difference_interval.high) = (None, None);
    }
    if bound.is_none() {
        (c.difference, c.p, c.p_adjusted) = (None, None, None);
    }
    (c.blocks_needed, c.sd_log, c.bound) = (None, None, bound);
    c.warnings.extend(why);
    c
}

/// One line a class: which percentiles are not compared, and why.
pub(super) fn notes(manifest: &Manifest, arms: &BTreeMap<&str, Arm<'_>>) -> Vec<String> {
    let Some(baseline) = arms.get(manifest.baseline.as_str()) else { return Vec::new() };
    let others = || manifest.conditions.iter().filter(|c| c.name != manifest.baseline);
    let mut classes: Vec<(Class, Vec<Statistic>, TooShort)> = Vec::new();
    for def in metrics::METRICS {
        let Kind::Latency(class, statistic) = def.kind else { continue };
        let short = others()
            .filter_map(|c| too_short([arms.get(c.name.as_str())?, baseline].into_iter(), def));
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
            "{named} of {class} not compared: fewer than {MIN_BEYOND} operations lie beyond in a \
             trial, which has {}",
            human::count(short.operations)
        )
    };
    classes.iter().map(note).collect()
}
