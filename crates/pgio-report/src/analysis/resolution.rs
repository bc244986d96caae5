//! The smallest effect that this experiment detects, and the number of blocks that a planned effect
//! needs.
//!
//! Both use the noise of equal trials, pooled over all conditions (`benchmath::spread`), because a single
//! pair of conditions estimates its spread poorly. The user names the effect to plan for
//! (`effect = "5%"`); a number of blocks planned from the estimated effect would be noise.

use std::collections::BTreeMap;

use benchmath::margin::Margin;
use benchmath::power::{self, PLANNED_POWER};
use benchmath::signed_rank::fewest_values;
use benchmath::spread::{self, Spread};
use serde::{Deserialize, Serialize};

use super::comparison::Comparison;
use super::interval::Interval;
use super::pairing::Arm;
use super::verdict::{ALPHA, Decision, Verdict};
use pgio_results::store::Manifest;

/// The noise floor: the effect of the A/A twin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoiseFloor {
    pub ratio: Option<f64>,
    #[serde(flatten)]
    pub interval: Interval,
    /// The smallest change that as many blocks detect with 80 % power, from the spread of all
    /// conditions' trials: 0.04 is 4 %.
    pub minimum_detectable_effect: Option<f64>,
    /// The same from the upper bound (90 %) of that spread, which is itself an estimate.
    #[serde(default)]
    pub minimum_detectable_effect_at_most: Option<f64>,
}

/// The spread of each compared metric.
pub(super) type Spreads = BTreeMap<String, Spread>;

pub(super) fn spreads(
    manifest: &Manifest,
    arms: &BTreeMap<&str, Arm<'_>>,
    comparisons: &[Comparison],
) -> Spreads {
    let logs = |arm: &Arm<'_>, metric: &str| -> Vec<(u32, f64)> {
        let positive = arm.values_by_block(metric).filter(|(_, value)| *value > 0.0);
        positive.map(|(block, value)| (block, value.ln())).collect()
    };
    let mut found = Spreads::new();
    for c in comparisons.iter().filter(|c| c.ratio.is_some()) {
        if found.contains_key(&c.metric) {
            continue;
        }
        let conditions: Vec<Vec<(u32, f64)>> =
            manifest.conditions.iter().map(|i| logs(&arms[i.name.as_str()], &c.metric)).collect();
        found.extend(spread::pooled(&conditions).map(|s| (c.metric.clone(), s)));
    }
    found
}

/// The number of comparisons that are judged together.
pub(super) fn judged(comparisons: &[Comparison]) -> usize {
    comparisons.iter().filter(|c| c.judged && c.ratio.is_some()).count()
}

/// The approximate level of one judged comparison.
fn level(comparisons: &[Comparison], blocks: usize) -> f64 {
    power::level_in_family(ALPHA, judged(comparisons), blocks)
}

/// The smallest change that this many blocks detect with 80 % power, of one of these comparisons.
pub(super) fn detectable(comparisons: &[Comparison], sd_log: f64, blocks: usize) -> Option<f64> {
    let level = level(comparisons, blocks);
    power::minimum_detectable_change(sd_log, blocks, level, PLANNED_POWER)
}

/// Comparisons that are judged together, with the noise of each. The report and the pilot both plan with it,
/// so that they name the same number of blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    pub(super) members: usize,
    pub(super) sd_log: f64,
}

impl Family {
    fn level(self, blocks: u32) -> f64 {
        power::level_in_family(ALPHA, self.members, blocks as usize)
    }

    /// Blocks that decide with this power whether an effect exceeds the margin.
    pub(super) fn blocks_needed(self, margin: Margin, power: f64) -> Option<u32> {
        let at = |level, power| margin.blocks_needed(self.sd_log, level, ALPHA, power);
        let share = self.level(u32::MAX);
        let enough = at(share, power)?;
        // With so few blocks, the smallest p exceeds a member's share of the level. Each member is then
        // judged at that p, and sizes break ties. Half of the risk is left for ties that are lost.
        let mut fewer = (1..enough).take_while(|n| self.level(*n) > share);
        let tied = f64::midpoint(power, 1.0);
        let decides = |n: &u32| at(self.level(*n), tied).is_some_and(|needed| needed <= *n);
        Some(fewer.find(decides).unwrap_or(enough))
    }
}

/// Sets how many blocks the planned effect needs, for each undecided comparison of the primary metric.
pub(super) fn plan(manifest: &Manifest, spreads: &Spreads, comparisons: &mut [Comparison]) {
    let (level, members) = (level(comparisons, usize::MAX), judged(comparisons));
    for c in comparisons.iter_mut().filter(|c| c.primary) {
        let undecided = matches!(c.verdict, Verdict::NoDifference | Verdict::TooFewBlocks);
        let planned = || {
            let effect = manifest.rules.effect?;
            let spread = spreads.get(&c.metric)?;
            power::blocks_needed(effect.ln_1p(), spread.upper, level, PLANNED_POWER)
        };
        // As many blocks as there are did not show it: the effect is smaller than planned.
        let more = |n: &u32| *n as usize > c.blocks;
        c.blocks_needed = match planned().filter(|_| undecided).filter(more) {
            None if c.verdict == Verdict::TooFewBlocks => {
                Some(u32::try_from(fewest_values(ALPHA)).unwrap_or(u32::MAX))
            }
            needed => needed,
        };
        c.decision_blocks = decision_blocks(c, spreads, members);
    }
}

/// The blocks that an undecided comparison needs to tell whether its effect exceeds the margin, if they
/// are more than there are.
fn decision_blocks(c: &Comparison, spreads: &Spreads, members: usize) -> Option<u32> {
    let margin = c.margin.and_then(Margin::of_share)?;
    let family = Family { members, sd_log: spreads.get(&c.metric)?.upper };
    let needed = || family.blocks_needed(margin, PLANNED_POWER);
    let more = |n: &u32| *n as usize > c.blocks;
    (c.decision == Some(Decision::Undecided)).then(needed)?.filter(more)
}

/// The noise floor by metric, with the smallest detectable effect.
pub(super) fn noise_floor(
    aa: &str,
    spreads: &Spreads,
    comparisons: &[Comparison],
) -> BTreeMap<String, NoiseFloor> {
    let twin = comparisons.iter().filter(|c| c.condition == aa && c.ratio.is_some());
    twin.map(|c| {
        let detectable =
            |sd: fn(&Spread) -> f64| detectable(comparisons, sd(spreads.get(&c.metric)?), c.blocks);
        let floor = NoiseFloor {
            ratio: c.ratio,
            interval: c.interval,
            minimum_detectable_effect: detectable(|s| s.sd_log),
            minimum_detectable_effect_at_most: detectable(|s| s.upper),
        };
        (c.metric.clone(), floor)
    })
    .collect()
}
