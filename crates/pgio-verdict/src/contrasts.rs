//! Contrasts of the cells, block by block.
//!
//! A cell's value in a block is the baseline's times the ratio of the cell to the baseline that was
//! measured beside it, so that a repeated trial is freed of drift as in every comparison. A side of a
//! contrast is the geometric mean of its cells. Assumption: the noise of a block's trials is exchangeable,
//! because their order is drawn. If a factor has no effect, exchanging its levels then leaves the
//! distribution of its contrast as it is except for the sign: it is symmetric about 0 for any noise.

use std::collections::{BTreeMap, BTreeSet};

use benchmath::effect::{self, Paired};
use benchmath::factorial::{Contrast, Design};
use benchmath::family::{self, Series};
use benchmath::totals::both_bounds;

use super::compare::{self, Candidate};
use super::comparison::{ALPHA, Verdict};
use super::pairing::{ByCondition, ConditionTrials, PairedTrials, Pairs};
use super::totals::{self, Totals};
use super::{families, margin, tail};
use pgio_results::factors::FactorDesign;
use pgio_results::metrics::{self, MetricDef};
use pgio_results::store::Manifest;

/// An effect after its family was judged.
pub(super) struct ContrastResult {
    pub(super) contrast: Contrast,
    pub(super) candidate: Candidate,
    pub(super) values: Values,
}

/// The values of all cells in each block in which every cell has one.
#[derive(Debug, Clone)]
pub(super) struct Values {
    blocks: Vec<u32>,
    /// By block, then by cell.
    cells: Vec<Vec<f64>>,
    has_totals: bool,
}

/// All main effects and interactions on the primary metric and on those that are judged beside it, as
/// one family.
pub(super) fn judge(
    design: &FactorDesign,
    manifest: &Manifest,
    trials: &ByCondition<'_>,
) -> Vec<ContrastResult> {
    let contrasts = all(design);
    let mut found = Vec::new();
    for def in metrics::all(&manifest.metrics).filter(|def| is_judged(def, manifest)) {
        let values = Values::new(design, manifest, trials, def.name);
        let why_not = why_not_compared(design, trials, &def);
        for contrast in &contrasts {
            let mut candidate = compare::by_ratio(&def, &values.sides(&contrast.high));
            candidate.whole = contrast.factors.len() as f64;
            let c = &mut candidate.comparison;
            c.condition = name(design, &contrast.factors);
            c.primary = def.name == manifest.primary_metric;
            c.judged = true;
            if c.primary {
                let level = ALPHA / contrasts.len() as f64;
                c.totals = values.totals(|cell| Some(contrast.high[cell]), level);
            }
            if let Some(why) = &why_not {
                *c = tail::not_compared(std::mem::take(c), why.clone());
                (c.totals, candidate.logs) = (None, Vec::new());
            }
            found.push(ContrastResult {
                contrast: contrast.clone(),
                candidate,
                values: values.clone(),
            });
        }
    }
    let (mut judged, rest): (Vec<_>, Vec<_>) =
        found.into_iter().map(|j| ((j.contrast, j.values), j.candidate)).unzip();
    let mut candidates: Vec<Candidate> = rest;
    let mut members: Vec<&mut Candidate> = candidates
        .iter_mut()
        .filter(|c| !c.logs.is_empty() && c.comparison.verdict != Verdict::NotApplicable)
        .collect();
    families::judge_together(&mut members);
    margin::decide(manifest, &mut candidates);
    let judged = judged.drain(..).zip(candidates);
    judged
        .map(|((contrast, values), candidate)| ContrastResult { contrast, candidate, values })
        .collect()
}

/// The contrasts of three and more factors, as one family: the largest that is detected, and the number of contrasts.
/// Many fractions leave none. `None` with too few blocks for a test.
pub(super) fn remaining(
    design: &FactorDesign,
    manifest: &Manifest,
    trials: &ByCondition<'_>,
) -> Option<(Option<(String, effect::Comparison)>, usize)> {
    let contrasts = matrix(design).map_or_else(Vec::new, |d| d.remaining());
    let values = Values::new(design, manifest, trials, &manifest.primary_metric);
    let compared: Vec<effect::Comparison> =
        contrasts.iter().map(|c| values.sides(&c.high)).map(|sides| compare(&sides)).collect();
    let series: Vec<Series> = compared.iter().map(|c| values.series(c)).collect();
    let judged = family::judge(&series, ALPHA);
    if judged.iter().any(|j| j.bounds.is_none()) {
        return None;
    }
    let detected = contrasts.iter().zip(compared).zip(judged).filter(|(_, j)| j.p <= ALPHA);
    let found = detected.map(|((contrast, mut c), judged)| {
        (c.low, c.high) = judged.bounds.map(|(low, high)| (low.exp(), high.exp())).unzip();
        (name(design, &contrast.factors), c)
    });
    let size = |c: &effect::Comparison| c.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    Some((found.max_by(|(_, a), (_, b)| size(a).total_cmp(&size(b))), contrasts.len()))
}

fn compare(sides: &Pairs) -> effect::Comparison {
    let paired = Paired::new(&sides.condition, &sides.baseline);
    effect::compare(paired.expect("both sides have one value for each block"), ALPHA)
}

fn is_judged(def: &MetricDef<'_>, manifest: &Manifest) -> bool {
    let is_primary = def.name == manifest.primary_metric;
    is_primary || manifest.rules.also_judge.iter().any(|name| name == def.name)
}

/// The design of the stored cells; without a usable one there are no contrasts.
fn matrix(design: &FactorDesign) -> Option<Design> {
    Design::from_cells(design.levels())
}

fn all(design: &FactorDesign) -> Vec<Contrast> {
    let matrix = matrix(design);
    matrix.map_or_else(Vec::new, |d| [d.main_effects(), d.interactions()].concat())
}

/// Number of interactions, aliased ones counted once.
pub(super) fn interactions(design: &FactorDesign) -> usize {
    matrix(design).map_or(0, |d| d.interactions().len())
}

pub(super) fn resolution(design: &FactorDesign) -> Option<u32> {
    matrix(design).filter(|_| design.kind.is_factorial()).map(|d| d.resolution())
}

/// All interactions of a contrast; empty for a main effect.
pub(super) fn pairs(contrast: &Contrast) -> Vec<[usize; 2]> {
    let own = <[usize; 2]>::try_from(contrast.factors.as_slice());
    own.into_iter().chain(contrast.aliases.iter().copied()).collect()
}

fn name(design: &FactorDesign, factors: &[usize]) -> String {
    let names: Vec<String> = factors.iter().map(|f| design.factors[*f].name.clone()).collect();
    title(&names)
}

/// Why a metric cannot be compared in this design, such as a percentile of too few operations.
fn why_not_compared(
    design: &FactorDesign,
    trials: &ByCondition<'_>,
    def: &MetricDef<'_>,
) -> Option<String> {
    let cells = design.cells.iter().filter_map(|cell| trials.get(cell.condition.as_str()));
    let cells: Vec<&ConditionTrials<'_>> = cells.collect();
    let is_bounded = || cells.iter().any(|condition| condition.is_bounded(def.name));
    let bounded = "not compared: the window's end cut off operations in some cell; lengthen the window, or lower the rate";
    tail::unreliable(&cells, def).or_else(|| is_bounded().then(|| bounded.to_owned()))
}

/// `commit_delay × synchronous_commit`
pub fn title(factors: &[String]) -> String {
    factors.join(" × ")
}

/// The value of each cell by block, as far as it has one.
fn by_block(
    design: &FactorDesign,
    manifest: &Manifest,
    trials: &ByCondition<'_>,
    metric: &str,
) -> BTreeMap<u32, Vec<Option<f64>>> {
    let mut found: BTreeMap<u32, Vec<Option<f64>>> = BTreeMap::new();
    let Some(baseline) = trials.get(manifest.baseline.as_str()) else { return found };
    let reference: BTreeMap<u32, f64> = baseline.values_by_block(metric).collect();
    for (n, cell) in design.cells.iter().enumerate() {
        let Some(condition) = trials.get(cell.condition.as_str()) else { continue };
        let mut put = |block: u32, value: f64| {
            found.entry(block).or_insert_with(|| vec![None; design.cells.len()])[n] = Some(value);
        };
        if cell.condition == manifest.baseline {
            reference.iter().for_each(|(block, value)| put(*block, *value));
            continue;
        }
        let pairs = PairedTrials::new(condition, baseline).values(metric);
        for (at, block) in pairs.blocks.iter().enumerate() {
            if let Some(reference) = reference.get(block) {
                put(*block, reference * pairs.condition[at] / pairs.baseline[at]);
            }
        }
    }
    found
}

/// Blocks that do not count, with the cells that have no valid trial.
pub(super) fn incomplete(
    design: &FactorDesign,
    manifest: &Manifest,
    trials: &ByCondition<'_>,
) -> Vec<(u32, Vec<String>)> {
    let all = by_block(design, manifest, trials, &manifest.primary_metric);
    let ran = trials
        .values()
        .flat_map(|condition| &condition.all)
        .filter_map(|(_, trial)| trial.place.as_ref());
    let ran: BTreeSet<u32> = ran.map(|place| place.block).collect();
    let missing = |block: u32| {
        // Without its baseline, a block has no ratios.
        let Some(values) = all.get(&block) else { return (block, vec![manifest.baseline.clone()]) };
        let without = design.cells.iter().zip(values).filter(|(_, value)| value.is_none());
        (block, without.map(|(cell, _)| cell.condition.clone()).collect::<Vec<_>>())
    };
    ran.into_iter().map(missing).filter(|(_, cells)| !cells.is_empty()).collect()
}

impl Values {
    fn new(
        design: &FactorDesign,
        manifest: &Manifest,
        trials: &ByCondition<'_>,
        metric: &str,
    ) -> Values {
        let def = metrics::find(&manifest.metrics, metric);
        let has_totals = def.is_some_and(|def| totals::exist(&def));
        let mut values = Values { blocks: Vec::new(), cells: Vec::new(), has_totals };
        for (block, cells) in by_block(design, manifest, trials, metric) {
            if let Some(cells) = cells.into_iter().collect::<Option<Vec<f64>>>() {
                values.blocks.push(block);
                values.cells.push(cells);
            }
        }
        values
    }

    /// The geometric means of both sides, by block.
    fn sides(&self, high: &[bool]) -> Pairs {
        let side = |wanted: bool| self.means(|cell| high[cell] == wanted);
        Pairs { blocks: self.blocks.clone(), condition: side(true), baseline: side(false) }
    }

    fn means(&self, wanted: impl Fn(usize) -> bool) -> Vec<f64> {
        let mean = |cells: &Vec<f64>| {
            let logs: Vec<f64> =
                (0..cells.len()).filter(|n| wanted(*n)).map(|n| cells[n].ln()).collect();
            benchmath::summary::mean(&logs).map_or(f64::NAN, f64::exp)
        };
        self.cells.iter().map(mean).collect()
    }

    /// The contrast of the cells' totals over all blocks, whose windows are equally long.
    fn totals(&self, side: impl Fn(usize) -> Option<bool>, alpha: f64) -> Option<Totals> {
        let interval = |alpha| benchmath::totals::contrast(&self.cells, &side, alpha);
        let found = interval(alpha).filter(|_| self.has_totals)?;
        Some(totals::from_ratio(found, interval(2.0 * ALPHA).map(both_bounds)))
    }

    /// The effect of a factor while another one has this level, judged alone, and the one-sided bounds of its totals.
    pub(super) fn given(
        &self,
        design: &FactorDesign,
        factor: usize,
        (given, level): (usize, bool),
    ) -> (effect::Comparison, Option<(f64, f64)>) {
        let levels = design.levels();
        let side = |high: bool| {
            self.means(|cell| levels[cell][given] == level && levels[cell][factor] == high)
        };
        let (condition, baseline) = (side(true), side(false));
        let at_level = |cell: usize| (levels[cell][given] == level).then(|| levels[cell][factor]);
        let totals = self.totals(at_level, ALPHA).map(|totals| totals.bounds());
        (compare(&Pairs { blocks: self.blocks.clone(), condition, baseline }), totals)
    }

    /// A comparison of these values as a member of a family.
    pub(super) fn series(&self, c: &effect::Comparison) -> Series {
        let blocks = if c.logs.is_empty() { Vec::new() } else { self.blocks.clone() };
        Series { kind: 0, blocks, logs: c.logs.clone() }
    }
}
