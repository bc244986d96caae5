//! Effects of factors: which factors matter here, and which of them act together.
//!
//! In a factorial design each effect is a contrast of all cells ([`mod@contrasts`]): per block, the mean
//! log of the cells at the high level minus the mean of the cells at the low level. The block stays the
//! unit of inference, and all contrasts form one family, whichever cell is the baseline. The factors of a detected
//! interaction are decided at the worse level of each other, and nothing is called too small to matter if the cells
//! show more than single factors and pairs explain. In a one-at-a-time
//! design the effects are the comparisons of the cells with the baseline, if all factors are low there.
//! Effects are ranked, decided ones first. Next: `report::screening` words them.

#[cfg(test)]
#[path = "effects_tests.rs"]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use benchmath::effect;
use benchmath::family::{self, Series};
use benchmath::spread::Spread;
use serde::{Deserialize, Serialize};

use super::comparison::{ALPHA, Comparison, Decision, FamilyKind, Interval};
pub use super::contrasts::title;
use super::contrasts::{self, ContrastResult, Values};
use super::margin;
use super::pairing::ByCondition;
use super::resolution::{self, Family, Spreads};
use pgio_results::factors::{DesignCell, DesignKind, Factor, FactorDesign};
use pgio_results::store::Manifest;

/// The effects of an experiment's factors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ScreeningResult"))]
pub struct FactorEffects {
    pub design: DesignKind,
    pub cells: Vec<DesignCell>,
    /// 4: no main effect is aliased with another or with an interaction of two factors. 5: nor are these
    /// with each other. Null for one-at-a-time.
    pub resolution: Option<u32>,
    pub factors: Vec<Factor>,
    /// Decided effects first, then by size.
    pub effects: Vec<Effect>,
    /// The smallest effect on the primary metric that as many blocks detect with 80 % power, as a share.
    pub minimum_detectable_effect: Option<f64>,
    /// Remarks on how to read the effects.
    pub notes: Vec<String>,
}

/// The effect of one factor, or of two together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Effect {
    /// One factor, or two for an interaction.
    pub factors: Vec<String>,
    /// Interactions that this design cannot tell from this one.
    pub aliases: Vec<[String; 2]>,
    /// High against low; `condition` names the effect. For an interaction, the cells in which both
    /// factors have the same level against the others; its `decision` is about the square of that ratio: the ratio of the
    /// effects of one factor at both levels of the other.
    pub comparison: Comparison,
    /// For one factor, others with which a detected interaction joins it. Its `decision` is then that at their worse
    /// levels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// For a decided interaction, the effect of one factor at both levels of the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditional: Option<Conditional>,
}

/// The effect of a factor at each level of another one. The intervals of all these effects hold 95 % together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Conditional {
    pub factor: String,
    /// The other factor.
    pub given: String,
    pub low: LevelEffect,
    pub high: LevelEffect,
}

/// High against low of a factor while another one is at one level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LevelEffect {
    pub ratio: Option<f64>,
    #[serde(flatten)]
    pub interval: Interval,
}

impl Effect {
    pub fn is_interaction(&self) -> bool {
        self.factors.len() > 1
    }

    /// The size of the effect on the log scale; 0 if it is unknown.
    fn size(&self) -> f64 {
        self.comparison.ratio.map_or(0.0, |ratio| ratio.ln().abs())
    }
}

/// The experiment's factors, if its effects are contrasts of all cells.
pub(super) fn factorial(manifest: &Manifest) -> Option<&FactorDesign> {
    manifest.design.as_ref().filter(|design| design.kind.is_factorial())
}

/// The effects of a factorial design, without ranks and plans; empty for other experiments.
pub(super) fn contrasts(manifest: &Manifest, trials: &ByCondition<'_>) -> Vec<Comparison> {
    let judged = factorial(manifest).map(|design| contrasts::judge(design, manifest, trials));
    judged.into_iter().flatten().map(|j| j.candidate.comparison).collect()
}

/// All effects; `None` for an experiment without factors. `comparisons` are those with the baseline.
pub(super) fn all(
    manifest: &Manifest,
    trials: &ByCondition<'_>,
    comparisons: &[Comparison],
) -> Option<FactorEffects> {
    let design = manifest.design.as_ref()?;
    let mut screened = FactorEffects {
        design: design.kind,
        cells: design.cells.clone(),
        resolution: contrasts::resolution(design),
        factors: design.factors.clone(),
        effects: Vec::new(),
        minimum_detectable_effect: None,
        notes: Vec::new(),
    };
    if design.kind.is_factorial() {
        let judged = contrasts::judge(design, manifest, trials);
        let (effects, detectable) = planned(manifest, trials, design, &judged);
        screened.effects = effects;
        screened.minimum_detectable_effect = detectable;
        screened.notes = notes(design, trials, manifest);
        if let Some((detected, tested)) = contrasts::remaining(design, manifest, trials) {
            if detected.is_some() {
                doubt(&mut screened.effects);
            }
            screened.notes.extend(remaining_note(design, detected, tested));
        }
    } else if let Some(why) = why_no_effects(design, manifest) {
        screened.notes.push(why);
    } else {
        screened.effects = compared_alone(design, comparisons);
        screened.notes.push(
            "this design has no cell with two factors high, so it cannot show whether factors act together"
                .to_owned(),
        );
    }
    screened.effects.sort_by(by_rank);
    Some(screened)
}

/// The primary metric before others, decided effects before open ones, large ones before small ones.
fn by_rank(a: &Effect, b: &Effect) -> Ordering {
    let key = |e: &Effect| (e.comparison.primary, e.comparison.verdict.is_decided());
    key(b).cmp(&key(a)).then(b.size().total_cmp(&a.size()))
}

/// Whether a condition and the baseline differ in one factor at most, so that the design attributes each effect.
pub(super) fn attributes_effects(design: &FactorDesign, manifest: &Manifest) -> bool {
    design.kind.is_factorial() || high_in_baseline(design, manifest).is_empty()
}

/// The factors that are high in the baseline. Its A/A twin is no cell, but makes the changes of one.
fn high_in_baseline<'a>(design: &'a FactorDesign, manifest: &Manifest) -> &'a [String] {
    let changes =
        |name: &str| manifest.conditions.iter().find(|c| c.name == name).map(|c| &c.changes);
    let own = changes(&manifest.baseline);
    let is_alike = |cell: &&DesignCell| own.is_some() && changes(&cell.condition) == own;
    let cell = design.cell(&manifest.baseline);
    let cell = cell.or_else(|| design.cells.iter().find(is_alike));
    cell.map(|cell| cell.high.as_slice()).unwrap_or_default()
}

/// Why a one-at-a-time design has no effects: against a cell with a factor high, a ratio shows two factors.
fn why_no_effects(design: &FactorDesign, manifest: &Manifest) -> Option<String> {
    let high = high_in_baseline(design, manifest);
    let all_low = design.cells.iter().find(|cell| cell.high.is_empty());
    let hint = all_low.map_or_else(String::new, |cell| {
        format!("; --baseline '{}' shows the effects", cell.condition)
    });
    (!high.is_empty()).then(|| {
        format!(
            "this design has no effects against the baseline `{}`, where {} is high: a ratio is then that of \
             two factors{hint}",
            manifest.baseline,
            high.join(", ")
        )
    })
}

fn compared_alone(design: &FactorDesign, comparisons: &[Comparison]) -> Vec<Effect> {
    let effect = |c: &Comparison| {
        let [factor] = design.cell(&c.condition)?.high.as_slice() else { return None };
        let (factors, comparison) = (vec![factor.clone()], c.clone());
        let (aliases, depends_on) = (Vec::new(), Vec::new());
        Some(Effect { factors, aliases, comparison, depends_on, conditional: None })
    };
    comparisons.iter().filter(|c| c.judged).filter_map(effect).collect()
}

/// Adds what more blocks would tell, and names interactions after their strongest factors.
fn planned(
    manifest: &Manifest,
    trials: &ByCondition<'_>,
    design: &FactorDesign,
    judged: &[ContrastResult],
) -> (Vec<Effect>, Option<f64>) {
    let mut comparisons: Vec<Comparison> =
        judged.iter().map(|j| j.candidate.comparison.clone()).collect();
    let spreads = contrast_spreads(resolution::spreads(manifest, trials, &comparisons), design);
    resolution::plan(manifest, &spreads, &mut comparisons);
    let detectable = spreads.get(&manifest.primary_metric).and_then(|spread| {
        let blocks = comparisons.iter().find(|c| c.primary)?.blocks;
        let members = resolution::members(&comparisons, FamilyKind::Question);
        Family { members, sd_log: spread.sd_log }.detectable(u32::try_from(blocks).ok()?)
    });
    let strength = |factor: usize, metric: &str| {
        let main = judged
            .iter()
            .zip(&comparisons)
            .find(|(j, c)| c.metric == metric && j.contrast.factors.as_slice() == [factor]);
        main.map_or((false, 0.0), |(_, c)| {
            (c.verdict.is_decided(), c.ratio.map_or(0.0, |ratio| ratio.ln().abs()))
        })
    };
    let mut joint: Vec<(usize, [usize; 2])> = Vec::new();
    let effect = |(n, mut comparison): (usize, Comparison)| {
        let judged = &judged[n];
        let metric = comparison.metric.clone();
        let mut pairs = contrasts::pairs(&judged.contrast);
        // Interactions are likelier between factors that have effects of their own (effect heredity:
        // Hamada and Wu, Journal of Quality Technology 24(3), 1992).
        let weight = |[a, b]: &[usize; 2]| {
            let (a, b) = (strength(*a, &metric), strength(*b, &metric));
            (usize::from(a.0) + usize::from(b.0), a.1 * b.1)
        };
        pairs.sort_by(|a, b| {
            let (a, b) = (weight(a), weight(b));
            b.0.cmp(&a.0).then(b.1.total_cmp(&a.1))
        });
        let name = |factor: usize| design.factors[factor].name.clone();
        let mut named = pairs.iter().map(|pair| pair.map(name));
        let factors = match named.next() {
            Some(pair) => pair.to_vec(),
            None => judged.contrast.factors.iter().map(|f| name(*f)).collect(),
        };
        comparison.condition = title(&factors);
        let conditional = pairs.first().filter(|_| comparison.verdict.is_decided()).map(|pair| {
            // The weaker factor is the one whose effect the other decides about.
            let mut ordered = *pair;
            ordered.sort_by(|a, b| strength(*a, &metric).1.total_cmp(&strength(*b, &metric).1));
            joint.push((n, ordered));
            joint.len() - 1
        });
        let (aliases, depends_on) = (named.collect(), Vec::new());
        (Effect { factors, aliases, comparison, depends_on, conditional: None }, conditional)
    };
    let (mut effects, conditional): (Vec<Effect>, Vec<Option<usize>>) =
        comparisons.iter().cloned().enumerate().map(effect).unzip();
    let joint: Vec<(&str, &Values, [usize; 2])> = joint
        .into_iter()
        .map(|(n, pair)| (comparisons[n].metric.as_str(), &judged[n].values, pair))
        .collect();
    let at_levels = at_levels(manifest, design, &joint);
    for (effect, number) in effects.iter_mut().zip(conditional) {
        effect.conditional = number.map(|number| at_levels[2 * number].conditional.clone());
    }
    let mut decided: BTreeMap<usize, margin::LevelDecision> = BTreeMap::new();
    for (found, (metric, ..)) in at_levels.iter().zip(joint.iter().flat_map(|j| [j, j])) {
        let Conditional { factor, given, .. } = &found.conditional;
        let is_it = |e: &Effect| e.factors == [factor.as_str()] && e.comparison.metric == *metric;
        let Some(n) = effects.iter().position(is_it) else { continue };
        let effect = &mut effects[n];
        effect.depends_on.push(given.clone());
        if let Some(own) = found.decided.filter(|_| effect.comparison.decision.is_some()) {
            let all = decided.get(&n).map_or(own, |former| former.and(own));
            all.adopt(&mut effect.comparison);
            decided.insert(n, all);
        }
    }
    (effects, detectable)
}

/// The effect of a factor at both levels of another one, and what that decides.
struct AtLevels {
    conditional: Conditional,
    decided: Option<margin::LevelDecision>,
}

/// Two for each pair of factors that act together: the first factor at both levels of the second, and the reverse. All
/// of a metric are one family, so that they can be read together.
fn at_levels(
    manifest: &Manifest,
    design: &FactorDesign,
    joint: &[(&str, &Values, [usize; 2])],
) -> Vec<AtLevels> {
    let mut kinds: Vec<&str> = Vec::new();
    let (mut of, mut series) = (Vec::new(), Vec::new());
    for (metric, values, [a, b]) in joint {
        let kind = kinds.iter().position(|kind| kind == metric).unwrap_or_else(|| {
            kinds.push(metric);
            kinds.len() - 1
        });
        for (factor, given) in [(*a, *b), (*b, *a)] {
            let levels = [false, true].map(|level| values.given(design, factor, (given, level)));
            series.extend(levels.iter().map(|(c, _)| Series { kind, ..values.series(c) }));
            of.push((factor, given, levels));
        }
    }
    let judged = family::judge(&series, ALPHA);
    let name = |factor: usize| design.factors[factor].name.clone();
    let found = of.into_iter().zip(judged.chunks(2)).map(|((factor, given, levels), judged)| {
        let level = |n: usize| LevelEffect {
            ratio: levels[n].0.ratio,
            interval: judged[n].bounds.map_or(Interval::UNKNOWN, |(low, high)| {
                Interval::from_ratio(low.exp(), high.exp())
            }),
        };
        let (low, high) = (level(0), level(1));
        let [at_low, at_high] = [0, 1].map(|n: usize| {
            margin::at_level(manifest, &levels[n].0.logs, judged[n].bounds, levels[n].1)
        });
        AtLevels {
            decided: at_low.zip(at_high).map(|(low, high)| low.and(high)),
            conditional: Conditional { factor: name(factor), given: name(given), low, high },
        }
    });
    found.collect()
}

/// Calls nothing too small to matter: what the model leaves in the cells was detected.
fn doubt(effects: &mut [Effect]) {
    let primary = effects.iter_mut().map(|e| &mut e.comparison).filter(|c| c.primary);
    for c in primary.filter(|c| c.decision == Some(Decision::DoesNotMatter)) {
        c.decision = Some(Decision::Undecided);
        (c.within_low, c.within_high) = (None, None);
    }
}

fn remaining_note(
    design: &FactorDesign,
    detected: Option<(String, effect::Comparison)>,
    tested: usize,
) -> Option<String> {
    if contrasts::interactions(design) == 0 {
        return None;
    }
    Some(match (detected, tested) {
        (Some((factors, c)), _) => {
            let percent = |ratio: f64| (ratio.ln().abs().exp_m1() * 100.0).max(0.1);
            format!(
                "single factors and pairs do not explain the cells, which differ from that by {:.1} %: \
                 {factors} act together; read the cells, no effect is called too small to matter",
                c.ratio.map_or(0.0, percent)
            )
        }
        (None, 0) => {
            "effects of three and more factors together are assumed to be negligible: this design has no \
             cells left to test that"
                .to_owned()
        }
        (None, 1) => {
            "no effect of three or more factors together was detected in the one contrast left".to_owned()
        }
        (None, n) => {
            format!("no effect of three or more factors together was detected in {n} contrasts")
        }
    })
}

/// The spread of a contrast: its two sides are means of half of the cells each, instead of two trials.
fn contrast_spreads(spreads: Spreads, design: &FactorDesign) -> Spreads {
    let part = (2.0 / design.cells.len() as f64).sqrt();
    let smaller = |s: Spread| Spread { sd_log: s.sd_log * part, upper: s.upper * part, ..s };
    spreads
        .into_iter()
        .map(|(metric, spread)| (metric, smaller(spread)))
        .collect::<BTreeMap<_, _>>()
}

fn notes(design: &FactorDesign, trials: &ByCondition<'_>, manifest: &Manifest) -> Vec<String> {
    let mut notes = Vec::new();
    match contrasts::interactions(design) {
        0 => notes.push(
            "with so many factors the design mixes interactions with each other, so none is shown; an effect \
             is the average over both levels of all other factors; screen fewer factors to see which act together"
                .to_owned(),
        ),
        _ => notes.push(
            "an effect is the average over both levels of all other factors; where factors act together, read \
             their interaction, whose whole ratio, the square of the one shown, is held against a margin"
                .to_owned(),
        ),
    }
    let missing = contrasts::incomplete(design, manifest, trials);
    if !missing.is_empty() {
        let blocks: Vec<String> = missing
            .iter()
            .map(|(block, cells)| format!("block {block} lacks {}", list_first(cells)))
            .collect();
        notes.push(format!(
            "a block counts only if every cell has a valid trial in it: {}",
            blocks.join("; ")
        ));
    }
    notes
}

/// The first names, and how many more there are.
fn list_first(names: &[String]) -> String {
    const SHOWN: usize = 3;
    match names.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        Some(more) => format!("{} and {more} more", names[..SHOWN].join(", ")),
        None => names.join(", "),
    }
}
