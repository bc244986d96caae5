//! Two stored experiments against each other: last month's and today's.
//!
//! Conditions of the same name are compared, the baseline first. The two were not interleaved, so
//! trials cannot be paired: ratios B / A of geometric means with Welch's interval on the logs of
//! the trials (`benchmath::welch`), which assumes that within each experiment trials are
//! independent. What changed between the two dates, intended or not, is in every one of these
//! ratios. Less of it is in the second view: each condition's effect against the baseline of its
//! own experiment, where a change that hits all conditions alike cancels.
//!
//! Next: `reasons` for why the two may not be comparable at all.

mod reasons;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use benchmath::summary::{geometric_mean, mean};
use benchmath::welch;
use serde::{Deserialize, Serialize};

use super::pairing::{self, Arm, Arms};
use super::{ALPHA, Verdict, compare, cross};
use crate::results::metrics::{self, DeclaredMetric, MetricDef};
use crate::results::store::{Manifest, Stored};

/// With fewer trials on a side nothing is decided.
const FEWEST: usize = 3;

#[derive(Debug, Clone, PartialEq)]
pub struct Across {
    pub a: Side,
    pub b: Side,
    /// Of A; judged unadjusted.
    pub primary_metric: String,
    /// Of A: what the metrics of its command mean.
    pub metrics: Vec<DeclaredMetric>,
    /// What differs and was no part of the question.
    pub reasons: Vec<Reason>,
    /// By condition, the baseline first, and metric, the primary one first.
    pub comparisons: Vec<AcrossComparison>,
    /// Of the primary metric, by condition without the baseline.
    pub effects: Vec<AcrossEffect>,
    /// Conditions that only one of the two has.
    pub only_in_a: Vec<String>,
    pub only_in_b: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Side {
    pub experiment: String,
    pub created_at: String,
    pub baseline: String,
    /// Trials that count.
    pub valid: usize,
}

/// Something besides the date that differs between the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reason {
    pub what: String,
    /// As found in A; null where it has no such thing.
    pub a: Option<String>,
    pub b: Option<String>,
}

/// One metric of one condition, B against A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AcrossComparison {
    pub condition: String,
    pub metric: String,
    pub primary: bool,
    /// Geometric means of the trials, arithmetic where a value is not positive.
    pub a: Option<f64>,
    pub b: Option<f64>,
    pub trials_a: usize,
    pub trials_b: usize,
    /// B / A, with Welch's 95 % interval.
    pub ratio: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub p: Option<f64>,
    /// Holm over the secondary metrics of the condition; `p` itself for the primary metric.
    pub p_adjusted: Option<f64>,
    /// `too_few_blocks` where a side has fewer than three trials.
    pub verdict: Verdict,
}

/// How much a condition's effect against its own baseline has changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AcrossEffect {
    pub condition: String,
    pub a: Effect,
    pub b: Effect,
    /// Effect in B / effect in A, with Welch's 95 % interval over blocks.
    pub ratio: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// condition / baseline as its own experiment has it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Effect {
    pub ratio: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub blocks: usize,
}

impl Across {
    /// Empty for a metric that nobody knows.
    pub fn unit(&self, metric: &str) -> &str {
        metrics::find(&self.metrics, metric).map_or("", |def| def.unit)
    }
}

pub fn across(a: &Stored, b: &Stored) -> Across {
    let (a, b) = (cross::judged(a), cross::judged(b));
    let (a, b) = (a.as_ref(), b.as_ref());
    let (arms_a, arms_b) =
        (pairing::arms(&a.manifest, &a.trials), pairing::arms(&b.manifest, &b.trials));
    let common = common(&a.manifest, &b.manifest);
    let (primary, declared) = (&a.manifest.primary_metric, &a.manifest.metrics);
    let comparisons = common
        .iter()
        .flat_map(|name| {
            let arms = (&arms_a[name.as_str()], &arms_b[name.as_str()]);
            condition(name, primary, declared, arms)
        })
        .collect();
    Across {
        a: side(a, &arms_a),
        b: side(b, &arms_b),
        primary_metric: primary.clone(),
        metrics: declared.clone(),
        reasons: reasons::all(a, b),
        comparisons,
        effects: effects(&common, (&a.manifest, &arms_a), (&b.manifest, &arms_b)),
        only_in_a: only(&a.manifest, &b.manifest),
        only_in_b: only(&b.manifest, &a.manifest),
    }
}

fn side(stored: &Stored, arms: &Arms<'_>) -> Side {
    let m = &stored.manifest;
    Side {
        experiment: m.name.clone(),
        created_at: m.created_at.clone(),
        baseline: m.baseline.clone(),
        valid: arms.values().map(|arm| arm.valid().count()).sum(),
    }
}

/// Names that both have: A's baseline, then in A's order.
fn common(a: &Manifest, b: &Manifest) -> Vec<String> {
    let there: BTreeSet<&String> = b.conditions.iter().map(|c| &c.name).collect();
    let mut names: Vec<String> =
        a.conditions.iter().map(|c| &c.name).filter(|n| there.contains(n)).cloned().collect();
    names.sort_by_key(|name| *name != a.baseline);
    names
}

fn only(a: &Manifest, b: &Manifest) -> Vec<String> {
    let has = |name: &String| b.conditions.iter().any(|c| c.name == *name);
    a.conditions.iter().map(|c| &c.name).filter(|n| !has(n)).cloned().collect()
}

fn condition(
    name: &str,
    primary: &str,
    declared: &[DeclaredMetric],
    (a, b): (&Arm<'_>, &Arm<'_>),
) -> Vec<AcrossComparison> {
    let one = |def: MetricDef<'_>| {
        let values = |arm: &Arm<'_>| -> Vec<f64> {
            arm.valid().filter_map(|t| pairing::value(t, def.name)).collect()
        };
        let (values_a, values_b) = (values(a), values(b));
        let is_primary = def.name == primary;
        let shown = is_primary || !(values_a.is_empty() || values_b.is_empty());
        shown.then(|| metric(name, &def, is_primary, &values_a, &values_b))
    };
    let mut family: Vec<AcrossComparison> = metrics::all(declared).filter_map(one).collect();
    family.sort_by_key(|c| !c.primary);
    adjust(&mut family);
    family
}

fn metric(
    condition: &str,
    def: &MetricDef,
    primary: bool,
    a: &[f64],
    b: &[f64],
) -> AcrossComparison {
    let central = |values: &[f64]| geometric_mean(values).or_else(|| mean(values));
    let ratio = geometric_mean(a).zip(geometric_mean(b)).map(|(a, b)| b / a);
    let found = ratio.and_then(|_| welch::test(&logs(b), &logs(a), ALPHA));
    let interval = found.map(|w| w.interval.exp());
    let too_few = a.len() < FEWEST || b.len() < FEWEST;
    let verdict = match (ratio, found) {
        (None, _) if !(a.is_empty() || b.is_empty()) => Verdict::NotApplicable,
        (Some(ratio), Some(w)) if !too_few && w.p <= ALPHA => compare::directed(ratio > 1.0, def),
        _ if too_few => Verdict::TooFewBlocks,
        _ => Verdict::NoDifference,
    };
    AcrossComparison {
        condition: condition.to_owned(),
        metric: def.name.to_owned(),
        primary,
        a: central(a),
        b: central(b),
        trials_a: a.len(),
        trials_b: b.len(),
        ratio,
        low: interval.map(|i| i.low),
        high: interval.map(|i| i.high),
        p: found.map(|w| w.p),
        p_adjusted: found.map(|w| w.p),
        verdict,
    }
}

fn logs(values: &[f64]) -> Vec<f64> {
    values.iter().map(|v| v.ln()).collect()
}

/// As within an experiment: the secondary metrics of a condition are one family.
fn adjust(family: &mut [AcrossComparison]) {
    let secondary = family.iter_mut().filter(|c| !c.primary);
    compare::adjust_together(secondary.map(|c| (c.p, &mut c.p_adjusted, &mut c.verdict)));
}

/// Only where both have the same baseline: an effect is against something.
fn effects(
    common: &[String],
    (a, arms_a): (&Manifest, &Arms<'_>),
    (b, arms_b): (&Manifest, &Arms<'_>),
) -> Vec<AcrossEffect> {
    if a.baseline != b.baseline || a.primary_metric != b.primary_metric {
        return Vec::new();
    }
    let (of_a, of_b) = (compare::with_baseline(a, arms_a), compare::with_baseline(b, arms_b));
    let others = common.iter().filter(|name| **name != a.baseline);
    let one = |name: &String| {
        let effect = |all: &[super::Comparison]| {
            let c = all.iter().find(|c| c.primary && c.condition == *name)?;
            Some(Effect { ratio: c.ratio, low: c.low, high: c.high, blocks: c.blocks })
        };
        let by_block = |m: &Manifest, arms: &Arms<'_>| -> Option<Vec<f64>> {
            let pairs = pairing::pairs(
                arms.get(name.as_str())?,
                arms.get(m.baseline.as_str())?,
                &m.primary_metric,
            );
            let ratios: Vec<f64> =
                pairs.condition.iter().zip(&pairs.baseline).map(|(c, b)| c / b).collect();
            ratios.iter().all(|r| r.is_finite() && *r > 0.0).then(|| logs(&ratios))
        };
        let (blocks_a, blocks_b) = (by_block(a, arms_a)?, by_block(b, arms_b)?);
        let change = mean(&blocks_b).zip(mean(&blocks_a)).map(|(b, a)| (b - a).exp());
        let interval = welch::test(&blocks_b, &blocks_a, ALPHA).map(|w| w.interval.exp());
        Some(AcrossEffect {
            condition: name.clone(),
            a: effect(&of_a)?,
            b: effect(&of_b)?,
            ratio: change,
            low: interval.map(|i| i.low),
            high: interval.map(|i| i.high),
        })
    };
    others.filter_map(one).collect()
}
