//! A comparison before its family is judged: the effect and its log-ratios by block, from
//! `benchmath::effect`.

use benchmath::effect::{self, Paired};
use benchmath::warning::Warning;
use pgio_results::metrics::{Direction, MetricDef};

use super::comparison::Comparison;
use super::interval::Interval;
use super::pairing::Pairs;
use super::verdict::{ALPHA, directed_decision};

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
        condition: String::new(),
        metric: def.name.to_owned(),
        primary: false,
        judged: false,
        explains: false,
        baseline_value,
        value,
        ratio: found.ratio,
        interval: Interval::from_ratio(found.low, found.high),
        difference: found.difference,
        difference_low: found.difference_low,
        difference_high: found.difference_high,
        totals: None,
        p: found.p,
        p_adjusted: found.p,
        verdict: directed_decision(found.decision, def.direction),
        blocks: found.blocks,
        blocks_needed: None,
        margin: None,
        decision: None,
        within_low: None,
        within_high: None,
        gate: None,
        open_by_totals: false,
        decision_blocks: None,
        gate_by_margin: None,
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
        let def = pgio_results::metrics::definition("wal_fpi_share").unwrap();
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
