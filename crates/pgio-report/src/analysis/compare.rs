//! Every metric of every condition against the baseline's.
//!
//! benchmath decides whether a ratio is above or below 1; this file turns that into slower and
//! faster by the metric's direction. Comparisons are judged in two families ([`families`]): those
//! that answer the experiment's question, and all others. The statistics themselves are
//! benchmath's; their sources are named there.

use std::collections::BTreeMap;

use benchmath::effect::{self, Decision, Paired};
use benchmath::warning::Warning;
use benchmath::{holm, signed_rank};

use super::families::{self, Candidate};
use super::pairing::{Arm, Beside, Pairs};
use super::{ALPHA, Comparison, Interval, Verdict, degraded, tail, totals};
use pgio_results::metrics::{self, Direction, MetricDef};
use pgio_results::store::Manifest;

pub(super) fn with_baseline(
    manifest: &Manifest,
    arms: &BTreeMap<&str, Arm<'_>>,
) -> Vec<Comparison> {
    of_metrics(manifest, arms, |_| true)
}

/// What the loop asks for between two blocks.
pub(super) fn of_primary(manifest: &Manifest, arms: &BTreeMap<&str, Arm<'_>>) -> Vec<Comparison> {
    of_metrics(manifest, arms, |def| is_primary(def, manifest))
}

fn of_metrics(
    manifest: &Manifest,
    arms: &BTreeMap<&str, Arm<'_>>,
    wanted: impl Fn(&MetricDef) -> bool,
) -> Vec<Comparison> {
    // A manifest that names no known baseline has nothing to compare with.
    let Some(baseline) = arms.get(manifest.baseline.as_str()) else { return Vec::new() };
    let mut candidates = Vec::new();
    for info in manifest.conditions.iter().filter(|c| c.name != manifest.baseline) {
        let condition = &arms[info.name.as_str()];
        let beside = Beside::new(condition, baseline);
        for def in metrics::all(&manifest.metrics).filter(|def| wanted(def)) {
            let fit = || has(condition, &def) && has(baseline, &def);
            let long_enough = || tail::too_short([condition, baseline].into_iter(), &def).is_none();
            if !(is_primary(&def, manifest) || (fit() && long_enough())) {
                continue;
            }
            let mut candidate = paired(&def, &beside);
            let c = &mut candidate.comparison;
            c.condition.clone_from(&info.name);
            c.primary = is_primary(&def, manifest);
            c.judged = manifest.rules.judges(&info.name, def.name, c.primary);
            if c.primary && def.direction == Direction::HigherIsFaster {
                c.totals = totals::ratio(&beside, def.name);
            }
            candidates.push(candidate);
        }
        if metrics::definition(degraded::SHARE).is_some_and(&wanted) {
            candidates.extend(degraded::compared(condition, baseline, manifest, &info.name));
        }
    }
    families::judge(&mut candidates);
    candidates.into_iter().map(|c| c.comparison).collect()
}

/// The primary metric is compared even where it is missing, so that each condition has a verdict.
fn is_primary(def: &MetricDef, manifest: &Manifest) -> bool {
    def.name == manifest.primary_metric
}

/// Whether the arm has values that mean something.
pub(super) fn has(arm: &Arm<'_>, def: &MetricDef) -> bool {
    !arm.values(def.name).is_empty() && !tail::is_coarse(arm, def)
}

/// One metric of a condition against the baseline's, with what its trials know of it: a percentile
/// of too few operations is not compared, and one that the window's end cut off is bounded once it
/// is judged.
pub(super) fn paired(def: &MetricDef, beside: &Beside<'_, '_>) -> Candidate {
    let mut candidate = one(def, &beside.values(def.name));
    if candidate.comparison.blocks == 0 {
        return candidate;
    }
    match tail::too_short([beside.condition, beside.baseline].into_iter(), def) {
        Some(short) => {
            candidate.comparison = tail::not_compared(candidate.comparison, short.reason());
            candidate.logs.clear();
        }
        None => candidate.cut_off = beside.bounds(def.name),
    }
    candidate
}

/// A comparison by its ratio, before it is judged in its family.
pub(super) fn one(def: &MetricDef, pairs: &Pairs) -> Candidate {
    candidate(def, pairs, effect::compare(in_pairs(pairs), ALPHA))
}

/// A comparison by its difference, for a metric that may be 0.
pub(super) fn by_difference(def: &MetricDef, pairs: &Pairs) -> Candidate {
    candidate(def, pairs, effect::compare_differences(in_pairs(pairs), ALPHA))
}

fn in_pairs(pairs: &Pairs) -> Paired<'_> {
    Paired::new(&pairs.condition, &pairs.baseline).expect("pairs are pushed to both sides together")
}

fn candidate(def: &MetricDef, pairs: &Pairs, found: effect::Comparison) -> Candidate {
    let [baseline_value, value] = typical(pairs, found.ratio);
    let comparison = Comparison {
        condition: String::new(),
        metric: def.name.to_owned(),
        primary: false,
        judged: false,
        baseline_value,
        value,
        ratio: found.ratio,
        interval: Interval { low: found.low, high: found.high },
        difference: found.difference,
        difference_interval: Interval { low: found.difference_low, high: found.difference_high },
        totals: None,
        p: found.p,
        p_adjusted: found.p,
        verdict: verdict(found.decision, def),
        blocks: found.blocks,
        blocks_needed: None,
        sd_log: found.sd_log,
        bound: None,
        warnings: found
            .warnings
            .iter()
            .map(|w| renumbered(*w, &pairs.blocks).to_string())
            .collect(),
    };
    Candidate {
        comparison,
        direction: def.direction,
        blocks: pairs.blocks.clone(),
        logs: found.logs,
        cut_off: [false; 2],
    }
}

/// The values of which the ratio is the ratio: the baseline's typical trial in these blocks (the
/// Hodges-Lehmann estimate of its logs), and that times the ratio. Without a ratio, plain means.
fn typical(pairs: &Pairs, ratio: Option<f64>) -> [Option<f64>; 2] {
    let Some(ratio) = ratio else {
        return [&pairs.baseline, &pairs.condition].map(|v| benchmath::summary::mean(v));
    };
    let logs: Vec<f64> = pairs.baseline.iter().map(|v| v.ln()).collect();
    let baseline = signed_rank::estimate(&logs).map(f64::exp);
    [baseline, baseline.map(|b| b * ratio)]
}

fn verdict(decision: Decision, def: &MetricDef) -> Verdict {
    directed_decision(decision, def.direction)
}

pub(super) fn directed_decision(decision: Decision, direction: Direction) -> Verdict {
    match decision {
        Decision::Above => directed(true, direction),
        Decision::Below => directed(false, direction),
        Decision::NoDifference => Verdict::NoDifference,
        Decision::TooFewBlocks => Verdict::TooFewBlocks,
        Decision::NotApplicable => Verdict::NotApplicable,
    }
}

/// What more or less of a metric means.
pub(super) fn directed(above: bool, direction: Direction) -> Verdict {
    match (above, direction) {
        (true, Direction::HigherIsFaster) | (false, Direction::LowerIsFaster) => Verdict::Faster,
        (false, Direction::HigherIsFaster) | (true, Direction::LowerIsFaster) => Verdict::Slower,
        (true, Direction::Neutral) => Verdict::Higher,
        (false, Direction::Neutral) => Verdict::Lower,
    }
}

/// benchmath counts the pairs it was given; people know the blocks of the experiment, and the two
/// differ where a block was left out.
fn renumbered(warning: Warning, blocks: &[u32]) -> Warning {
    let number = |pair: usize| {
        pair.checked_sub(1).and_then(|i| blocks.get(i)).map_or(pair, |block| *block as usize)
    };
    match warning {
        Warning::NotPositive { block, condition, baseline } => {
            Warning::NotPositive { block: number(block), condition, baseline }
        }
        Warning::NotFinite { block } => Warning::NotFinite { block: number(block) },
        Warning::OutlierBlock { block } => Warning::OutlierBlock { block: number(block) },
        other => other,
    }
}

/// Adjusts tests that share no blocks, those that have a p; one that no longer holds is shown as no
/// difference.
pub(super) fn adjust_together<'a>(
    family: impl Iterator<Item = (Option<f64>, &'a mut Option<f64>, &'a mut Verdict)>,
) {
    let judged: Vec<_> =
        family.filter_map(|(p, adjusted, told)| Some((p?, adjusted, told))).collect();
    let p_values: Vec<f64> = judged.iter().map(|(p, ..)| *p).collect();
    for ((_, p_adjusted, verdict), adjusted) in judged.into_iter().zip(holm::adjust(&p_values)) {
        *p_adjusted = Some(adjusted);
        if adjusted > ALPHA && verdict.is_decided() {
            *verdict = Verdict::NoDifference;
        }
    }
}
