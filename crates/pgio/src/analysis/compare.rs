//! Every metric of every condition against the baseline's.
//!
//! benchmath decides whether a ratio is above or below 1; this file turns that into slower and
//! faster by the metric's direction, adjusts the secondary metrics of each condition together
//! (Holm, `benchmath::holm`), and takes the noise floor from the baseline's twin. The statistics
//! themselves are benchmath's; their sources are named there.

use std::collections::BTreeMap;

use benchmath::effect::{self, Decision, PLANNED_POWER, Paired};
use benchmath::warning::Warning;
use benchmath::{holm, power};

use super::findings;
use super::pairing::{self, Arm, Pairs};
use super::{ALPHA, Comparison, NoiseFloor, Verdict};
use crate::histogram::COARSEST_QUANTILE_NS;
use crate::results::metrics::{self, Direction, MetricDef};
use crate::results::store::Manifest;

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
    let mut all = Vec::new();
    for info in manifest.conditions.iter().filter(|c| c.name != manifest.baseline) {
        let condition = &arms[info.name.as_str()];
        let mut family: Vec<Comparison> = metrics::all(&manifest.metrics)
            .filter(|def| wanted(def))
            .filter(|def| is_primary(def, manifest) || (has(condition, def) && has(baseline, def)))
            .map(|def| {
                let pairs = pairing::pairs(condition, baseline, def.name);
                let mut comparison = one(&def, &pairs, manifest.seed);
                comparison.condition.clone_from(&info.name);
                comparison.primary = is_primary(&def, manifest);
                comparison
            })
            .collect();
        adjust(&mut family);
        all.append(&mut family);
    }
    all
}

/// The primary metric is compared even where it is missing, so that each condition has a verdict.
fn is_primary(def: &MetricDef, manifest: &Manifest) -> bool {
    def.name == manifest.primary_metric
}

/// Whether the arm has values that mean something: a percentile finer than the clock in any trial
/// is not compared at all, since leaving out just those trials would favour the slow ones.
pub(super) fn has(arm: &Arm<'_>, def: &MetricDef) -> bool {
    // fio's clock is finer than the server's, and a command has its own.
    let by_the_server = !def.name.starts_with("device_") && metrics::definition(def.name).is_some();
    let is_percentile = by_the_server && def.name.contains("_latency_p");
    let mut values = arm.valid().filter_map(|t| pairing::value(t, def.name)).peekable();
    values.peek().is_some() && values.all(|v| !is_percentile || v * 1e9 >= COARSEST_QUANTILE_NS)
}

pub(super) fn one(def: &MetricDef, pairs: &Pairs, seed: u64) -> Comparison {
    let paired = Paired::new(&pairs.condition, &pairs.baseline)
        .expect("pairs are pushed to both sides together");
    let found = effect::compare(paired, ALPHA, seed);
    Comparison {
        condition: String::new(),
        metric: def.name.to_owned(),
        primary: false,
        ratio: found.ratio,
        low: found.low,
        high: found.high,
        difference: found.difference,
        difference_low: found.difference_low,
        difference_high: found.difference_high,
        p: found.p,
        p_adjusted: found.p,
        verdict: verdict(found.decision, def),
        blocks: found.blocks,
        blocks_needed: found.blocks_needed,
        sd_log: found.sd_log,
        warnings: found
            .warnings
            .iter()
            .map(|w| renumbered(*w, &pairs.blocks).to_string())
            .collect(),
    }
}

fn verdict(decision: Decision, def: &MetricDef) -> Verdict {
    match decision {
        Decision::Above => directed(true, def),
        Decision::Below => directed(false, def),
        Decision::NoDifference => Verdict::NoDifference,
        Decision::TooFewBlocks => Verdict::TooFewBlocks,
        Decision::NotApplicable => Verdict::NotApplicable,
    }
}

/// What more or less of a metric means.
pub(super) fn directed(above: bool, def: &MetricDef) -> Verdict {
    match (above, def.direction) {
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
        Warning::WildBlock { block } => Warning::WildBlock { block: number(block) },
        other => other,
    }
}

fn adjust(family: &mut [Comparison]) {
    let secondary = family.iter_mut().filter(|c| !c.primary);
    adjust_together(secondary.map(|c| (c.p, &mut c.p_adjusted, &mut c.verdict)));
}

/// Adjusts the secondary metrics of one condition together, those that have a p; one that no longer
/// holds is told as no difference.
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

pub(super) fn noise_floor(aa: &str, comparisons: &[Comparison]) -> BTreeMap<String, NoiseFloor> {
    let twin = comparisons.iter().filter(|c| c.condition == aa && c.ratio.is_some());
    twin.map(|c| {
        let change = |sd| power::minimum_detectable_change(sd, c.blocks, ALPHA, PLANNED_POWER);
        let floor = NoiseFloor {
            ratio: c.ratio,
            low: c.low,
            high: c.high,
            minimum_detectable_effect: c.sd_log.and_then(change),
        };
        (c.metric.clone(), floor)
    })
    .collect()
}

/// How the verdicts must be read.
pub(super) fn notes(comparisons: &[Comparison]) -> Vec<String> {
    let mut families: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for c in comparisons.iter().filter(|c| !c.primary && c.p.is_some()) {
        let (blocks, metrics) = families.entry(&c.condition).or_default();
        *blocks = c.blocks.max(*blocks);
        *metrics += 1;
    }
    let most = families.values().copied().max();
    let cannot = |(blocks, metrics): &(usize, usize)| !holm::can_reject(*blocks, *metrics, ALPHA);
    match most {
        Some((blocks, metrics)) if families.values().all(cannot) => vec![format!(
            "secondary metrics are indicative only: with {} no p value adjusted for \
             {metrics} metrics (Holm) can reach {ALPHA}",
            findings::blocks(blocks)
        )],
        _ => Vec::new(),
    }
}
