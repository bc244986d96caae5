//! Compares every metric of every condition with the baseline.
//!
//! Comparisons are judged in families ([`families`]): those that answer the experiment's question, the mean
//! times that explain the answer, and all others. benchmath computes the statistics and cites their sources.

use super::comparison::{ALPHA, Comparison, Interval, directed_decision};
use super::pairing::{ByCondition, ConditionTrials, PairedTrials, Pairs};
use super::{condition, degraded, effects, families, margin, tail, totals, waits};
use benchmath::effect::{self, Paired};
use benchmath::warning::Warning;
use pgio_results::metrics::{self, Direction, Kind, MetricDef};
use pgio_results::store::Manifest;

pub(super) fn with_baseline(manifest: &Manifest, trials: &ByCondition<'_>) -> Vec<Comparison> {
    compare_metrics(manifest, trials, |_, _| true)
}

/// The judged comparisons of the primary metric, which the experiment loop needs between two blocks. Those of
/// `also_judge` are members of their family and are computed as well.
pub(super) fn judged_primary(manifest: &Manifest, trials: &ByCondition<'_>) -> Vec<Comparison> {
    let mut judged = compare_metrics(manifest, trials, |condition, metric| {
        manifest.rules.judges(condition, metric, metric == manifest.primary_metric)
    });
    judged.retain(|c| c.primary && c.judged);
    judged
}

/// Compares the primary metric of conditions with their baselines apart from the experiment's comparisons, as one
/// family of its own.
pub fn compare_apart(manifest: &Manifest, all: &[PairedTrials<'_, '_>]) -> Vec<Comparison> {
    let def = metrics::find(&manifest.metrics, &manifest.primary_metric);
    let mut candidates: Vec<Candidate> =
        def.iter().flat_map(|def| all.iter().map(|beside| paired(def, beside))).collect();
    let mut family: Vec<&mut Candidate> =
        candidates.iter_mut().filter(|c| !c.logs.is_empty()).collect();
    families::judge_together(&mut family);
    candidates.into_iter().map(|c| c.comparison).collect()
}

/// Compares the metrics of each condition that are `wanted`. Families must be whole, so either all members of
/// a family are wanted or none.
fn compare_metrics(
    manifest: &Manifest,
    trials: &ByCondition<'_>,
    wanted: impl Fn(&str, &str) -> bool,
) -> Vec<Comparison> {
    // A factorial design compares sides of all cells instead (`contrasts`): a cell alone answers nothing.
    if effects::factorial(manifest).is_some() {
        return Vec::new();
    }
    // A manifest that names no known baseline has nothing to compare with.
    let Some(baseline) = trials.get(manifest.baseline.as_str()) else { return Vec::new() };
    let is_timed = |mean: &str| trials.values().any(|condition| !condition.values(mean).is_empty());
    let operation = condition::shown(is_timed);
    let level = waits::level(manifest);
    let mut candidates = Vec::new();
    for info in manifest.conditions.iter().filter(|c| c.name != manifest.baseline) {
        let condition = &trials[info.name.as_str()];
        let beside = PairedTrials::new(condition, baseline);
        for def in metrics::all(&manifest.metrics).filter(|def| wanted(&info.name, def.name)) {
            let fit = || is_meaningful(condition, &def) && is_meaningful(baseline, &def);
            let long_enough = || tail::too_short([condition, baseline].into_iter(), &def).is_none();
            if !(is_primary(&def, manifest) || (fit() && long_enough())) {
                continue;
            }
            let mut candidate = paired(&def, &beside);
            let c = &mut candidate.comparison;
            c.condition.clone_from(&info.name);
            c.primary = is_primary(&def, manifest);
            c.judged = manifest.rules.judges(&info.name, def.name, c.primary);
            if let Some((class, _)) = operation.filter(|(_, mean)| *mean == def.name) {
                c.explains = manifest.rules.judges(&info.name, def.name, true);
                if let Some((means, interval)) = waits::added_time(&beside, class, level) {
                    let [ours, theirs] = means;
                    if !c.primary {
                        (c.value, c.baseline_value) = (Some(ours), Some(theirs));
                    }
                    c.difference = Some(ours - theirs);
                    (c.difference_low, c.difference_high) = (interval.low, interval.high);
                }
            }
            if c.primary {
                c.totals = totals::ratio(&beside, &def, level);
            }
            candidates.push(candidate);
        }
        drop_repeats(&mut candidates, &info.name, manifest);
        if [degraded::SHARE, degraded::LONGEST].iter().any(|metric| wanted(&info.name, metric)) {
            candidates.extend(degraded::compared(&beside, manifest, &info.name));
        }
    }
    families::judge(&mut candidates);
    margin::decide(manifest, &mut candidates);
    candidates.into_iter().map(|c| c.comparison).collect()
}

/// Whether it counts the work itself; WAL per commit is a quantity.
pub fn is_rate_of_work(def: &MetricDef) -> bool {
    matches!(def.kind, Kind::Work(_)) && def.direction != Direction::Neutral
}

/// Drops rates that are the primary metric in another unit, such as rows/s of one row per commit, so that one
/// measurement is not judged twice.
fn drop_repeats(candidates: &mut Vec<Candidate>, condition: &str, manifest: &Manifest) {
    const SAME: f64 = 1e-6;
    let is_its_primary =
        |c: &&Candidate| c.comparison.primary && c.comparison.condition == condition;
    let Some(primary) = candidates.iter().find(is_its_primary).map(|c| c.logs.clone()) else {
        return;
    };
    let is_same = |logs: &[f64], sign: f64| {
        logs.len() == primary.len()
            && logs.iter().zip(&primary).all(|(a, b)| (a - sign * b).abs() < SAME)
    };
    let is_rate = |metric: &str| {
        let def = metrics::find(&manifest.metrics, metric);
        def.is_some_and(|def| is_rate_of_work(&def))
    };
    candidates.retain(|c| {
        let own = &c.comparison;
        let is_other = own.condition == condition && !own.primary && !own.judged;
        let repeats = is_same(&c.logs, 1.0) || is_same(&c.logs, -1.0);
        !(is_other && !primary.is_empty() && repeats && is_rate(&own.metric))
    });
}

/// The primary metric is compared even if it is missing, so that each condition has a verdict.
fn is_primary(def: &MetricDef, manifest: &Manifest) -> bool {
    def.name == manifest.primary_metric
}

/// Whether the condition has meaningful values.
pub fn is_meaningful(condition: &ConditionTrials<'_>, def: &MetricDef) -> bool {
    !condition.values(def.name).is_empty() && !tail::is_coarse(condition, def)
}

/// Compares one metric of a condition with the baseline. A percentile of too few operations, or below the
/// clock's resolution, is not compared, and one that the window's end cut off becomes a bound when it is judged.
pub(super) fn paired(def: &MetricDef, beside: &PairedTrials<'_, '_>) -> Candidate {
    let mut candidate = by_ratio(def, &beside.values(def.name));
    if candidate.comparison.blocks == 0 {
        return candidate;
    }
    let sides = [beside.condition, beside.baseline];
    if let Some(why) = tail::unreliable(&sides, def) {
        if sides.iter().any(|condition| tail::is_coarse(condition, def)) {
            (candidate.comparison.baseline_value, candidate.comparison.value) = (None, None);
        }
        candidate.comparison = tail::not_compared(candidate.comparison, why);
        candidate.logs.clear();
    } else {
        candidate.cut_off = beside.bounds(def.name);
    }
    candidate
}

// A comparison before its family is judged: the effect and its log-ratios by block, from
// `benchmath::effect`.

/// A comparison, with the data that its family needs.
#[derive(Debug)]
pub(super) struct Candidate {
    pub comparison: Comparison,
    pub direction: Direction,
    pub blocks: Vec<u32>,
    /// Log-ratios by block, or differences if the metric is compared by difference; empty if there is
    /// nothing to judge.
    pub logs: Vec<f64>,
    /// The margin applies to this power of the ratio: 2 for an interaction, whose contrast is half of it.
    pub whole: f64,
    /// Whether trials of the condition, and of the baseline, have lower bounds instead of values.
    pub cut_off: [bool; 2],
}

/// A comparison by ratio.
pub(super) fn by_ratio(def: &MetricDef, pairs: &Pairs) -> Candidate {
    candidate(def, pairs, effect::compare(in_pairs(pairs), ALPHA))
}

/// A comparison by difference, for a metric that may be 0.
pub(super) fn by_difference(def: &MetricDef, pairs: &Pairs) -> Candidate {
    candidate(def, pairs, effect::compare_differences(in_pairs(pairs), ALPHA))
}

fn in_pairs(pairs: &Pairs) -> Paired<'_> {
    Paired::new(&pairs.condition, &pairs.baseline).expect("pairs are pushed to both sides together")
}

fn candidate(def: &MetricDef, pairs: &Pairs, found: effect::Comparison) -> Candidate {
    let [baseline_value, value] = typical(pairs, found.ratio, def.unit == "share");
    let comparison = Comparison {
        metric: def.name.to_owned(),
        baseline_value,
        value,
        ratio: found.ratio,
        interval: Interval::from_ratio(found.low, found.high),
        difference: found.difference,
        difference_low: found.difference_low,
        difference_high: found.difference_high,
        p: found.p,
        p_adjusted: found.p,
        verdict: directed_decision(found.decision, def.direction),
        blocks: found.blocks,
        sd_log: found.sd_log,
        warnings: found
            .warnings
            .iter()
            .map(|w| renumbered(*w, &pairs.blocks).to_string())
            .collect(),
        ..Comparison::default()
    };
    Candidate {
        comparison,
        direction: def.direction,
        blocks: pairs.blocks.clone(),
        logs: found.logs,
        whole: 1.0,
        cut_off: [false; 2],
    }
}

/// Two values with exactly this ratio: the baseline's typical trial in these blocks (the geometric mean, as everywhere),
/// and that times the ratio, both smaller if that would be a share above 1. Without a ratio, the means.
fn typical(pairs: &Pairs, ratio: Option<f64>, is_share: bool) -> [Option<f64>; 2] {
    let Some(ratio) = ratio else {
        return [&pairs.baseline, &pairs.condition].map(|v| benchmath::summary::mean(v));
    };
    let baseline = benchmath::summary::geometric_mean(&pairs.baseline);
    let baseline = if is_share { baseline.map(|b| b.min(1.0 / ratio)) } else { baseline };
    [baseline, baseline.map(|b| b * ratio)]
}

/// Replaces the pair numbers of benchmath by block numbers; they differ if a block was excluded.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_typical_share_is_at_most_1() {
        let def = metrics::definition("wal_fpi_share").unwrap();
        let pairs = Pairs {
            blocks: (1..=6).collect(),
            condition: vec![1.0, 0.99, 1.0, 0.9, 0.91, 1.0],
            baseline: vec![0.9, 0.95, 0.8, 0.9, 0.91, 0.9],
        };
        let c = by_ratio(def, &pairs).comparison;
        let (value, baseline) = (c.value.unwrap(), c.baseline_value.unwrap());
        assert!(value <= 1.0 && (value / baseline - c.ratio.unwrap()).abs() < 1e-9, "{c:?}");
    }
}
