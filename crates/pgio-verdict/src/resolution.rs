//! The smallest effect that this experiment detects, and the number of blocks that a planned effect
//! needs.
//!
//! Both use the noise of equal trials, pooled over all conditions (`benchmath::spread`), because a single
//! pair of conditions estimates its spread poorly. If the pairs' spreads differ much, each pair has its own. The user names the effect to plan for
//! (`effect = "5%"`); a number of blocks planned from the estimated effect would be noise.

use std::collections::BTreeMap;

use benchmath::margin::Margin;
use benchmath::power::{self, PLANNED_POWER};
use benchmath::signed_rank::min_values;
use benchmath::spread::{self, Spread};
use pgio_results::store::Manifest;
use serde::{Deserialize, Serialize};

use super::comparison::{ALPHA, Comparison, Decision, FamilyKind, Interval, Verdict};
use super::pairing::{ByCondition, ConditionTrials};

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
    by_condition: &ByCondition<'_>,
    comparisons: &[Comparison],
) -> Spreads {
    let logs = |condition: &ConditionTrials<'_>, metric: &str| -> Vec<(u32, f64)> {
        let positive = condition.values_by_block(metric).filter(|(_, value)| *value > 0.0);
        positive.map(|(block, value)| (block, value.ln())).collect()
    };
    let mut found = Spreads::new();
    for c in comparisons.iter().filter(|c| c.ratio.is_some()) {
        if found.contains_key(&c.metric) {
            continue;
        }
        let conditions: Vec<Vec<(u32, f64)>> = manifest
            .conditions
            .iter()
            .map(|i| logs(&by_condition[i.name.as_str()], &c.metric))
            .collect();
        found.extend(spread::pooled(&conditions).map(|s| (c.metric.clone(), s)));
    }
    found
}

/// The spread to plan this comparison with.
fn spread_of(
    manifest: &Manifest,
    spreads: &Spreads,
    comparisons: &[Comparison],
    c: &Comparison,
) -> Option<Spread> {
    let pooled = spreads.get(&c.metric).copied();
    // Each effect of a factorial design is one of all cells.
    if manifest.design.as_ref().is_some_and(|design| design.kind.is_factorial()) {
        return pooled;
    }
    let own = |c: &Comparison| spread::from_pair(c.sd_log?, c.blocks);
    let alike = comparisons.iter().filter(|other| other.metric == c.metric);
    let pairs: Vec<Spread> = alike.filter_map(own).collect();
    if spread::are_unequal(&pairs) { own(c).or(pooled) } else { pooled }
}

/// The number of comparisons that are judged together, those by difference included.
pub(super) fn members(comparisons: &[Comparison], family: FamilyKind) -> usize {
    let is_member = |c: &&Comparison| c.family() == family && (c.ratio.is_some() || c.p.is_some());
    comparisons.iter().filter(is_member).count()
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

    /// Blocks that decide with this power whether an effect exceeds the margin. Where sizes break ties, half of
    /// the risk is left for ties that are lost.
    pub(super) fn blocks_needed(self, margin: Margin, power: f64) -> Option<u32> {
        self.fewest(|level, is_tied| {
            let power = if is_tied { f64::midpoint(power, 1.0) } else { power };
            margin.blocks_needed(self.sd_log, level, ALPHA, power)
        })
    }

    /// Blocks that detect an effect of this size, the log of a ratio, with the planned power: the fewest for which
    /// it is [`Family::detectable`].
    fn blocks_to_detect(self, effect_log: f64) -> Option<u32> {
        let change = effect_log.exp_m1();
        power::blocks_needed_in_family(change, self.sd_log, ALPHA, self.members, PLANNED_POWER)
    }

    /// The smallest change that so many blocks detect with the planned power.
    pub(super) fn detectable(self, blocks: u32) -> Option<f64> {
        let (sd, n) = (self.sd_log, blocks as usize);
        power::minimum_detectable_in_family(sd, n, ALPHA, self.members, PLANNED_POWER)
    }

    /// The fewest blocks for which `needed` is no more than there are, by the level of a member and whether it is
    /// tied: with so few blocks, the smallest p exceeds a member's share of the level, each member is judged at
    /// that p, and sizes break ties.
    fn fewest(self, needed: impl Fn(f64, bool) -> Option<u32>) -> Option<u32> {
        let share = self.level(u32::MAX);
        let enough = needed(share, false)?;
        let mut fewer = (1..enough).take_while(|n| self.level(*n) > share);
        let suffices = |n: &u32| needed(self.level(*n), true).is_some_and(|needed| needed <= *n);
        Some(fewer.find(suffices).unwrap_or(enough))
    }
}

/// Sets how many blocks the planned effect needs, for each undecided comparison of the primary metric.
pub(super) fn plan(manifest: &Manifest, spreads: &Spreads, comparisons: &mut [Comparison]) {
    let sizes: Vec<usize> = comparisons.iter().map(|c| members(comparisons, c.family())).collect();
    let own: Vec<Option<Spread>> =
        comparisons.iter().map(|c| spread_of(manifest, spreads, comparisons, c)).collect();
    let planned = comparisons.iter_mut().zip(sizes).zip(own).filter(|((c, _), _)| c.primary);
    for ((c, members), spread) in planned {
        let undecided = matches!(c.verdict, Verdict::NoDifference | Verdict::TooFewBlocks);
        let family = spread.map(|spread| Family { members, sd_log: spread.upper });
        let planned = || family.and_then(|f| f.blocks_to_detect(manifest.rules.effect?.ln_1p()));
        // As many blocks as there are did not show it: the effect is smaller than planned.
        let more = |n: &u32| *n as usize > c.blocks;
        c.blocks_needed = match planned().filter(|_| undecided).filter(more) {
            None if c.verdict == Verdict::TooFewBlocks => {
                Some(u32::try_from(min_values(ALPHA)).unwrap_or(u32::MAX))
            }
            needed => needed,
        };
        c.decision_blocks = decision_blocks(c, family);
    }
}

/// The blocks that an undecided comparison needs to tell whether its effect exceeds the margin, if they
/// are more than there are.
fn decision_blocks(c: &Comparison, family: Option<Family>) -> Option<u32> {
    let margin = c.margin.and_then(Margin::from_share)?;
    let needed = || family?.blocks_needed(margin, PLANNED_POWER);
    let more = |n: &u32| *n as usize > c.blocks;
    // The noise of the typical block does not tell how many blocks the totals need.
    let is_planned = c.decision == Some(Decision::Undecided) && !c.open_by_totals;
    is_planned.then(needed)?.filter(more)
}

/// The noise floor by metric, with the smallest detectable effect in the metric's own family.
pub(super) fn noise_floor(
    manifest: &Manifest,
    aa: &str,
    spreads: &Spreads,
    comparisons: &[Comparison],
) -> BTreeMap<String, NoiseFloor> {
    // A bound of the twin's effect is no measure of the noise.
    let twin = comparisons.iter().filter(|c| c.condition == aa && c.estimated_ratio().is_some());
    twin.map(|c| {
        let spread = spread_of(manifest, spreads, comparisons, c);
        let detectable = |sd: fn(&Spread) -> f64| {
            let sd_log = sd(spread.as_ref()?);
            let members = members(comparisons, c.family());
            Family { members, sd_log }.detectable(u32::try_from(c.blocks).unwrap_or(u32::MAX))
        };
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

// The width of the judged primary intervals, which `precision =` limits. The experiment loop checks it between
// blocks to decide whether to run another; the report warns if the limit of blocks was reached first.

/// The width of the primary intervals.
#[derive(Debug, Clone, PartialEq)]
pub enum Width {
    /// The widest half-width, of a ratio (0.05 is ±5 %), and its condition.
    Widest(String, f64),
    /// This condition has no interval yet.
    None(String),
}

impl Width {
    pub fn is_within(&self, precision: f64) -> bool {
        matches!(self, Width::Widest(_, half) if *half <= precision)
    }

    /// Compares it with the requested precision, in words.
    pub fn describe(&self, precision: f64) -> String {
        let requested = precision * 100.0;
        match self {
            Width::Widest(_, half) if self.is_within(precision) => format!(
                "the widest interval is ±{:.1} %, within the requested ±{requested:.1} %",
                half * 100.0
            ),
            Width::Widest(condition, half) => format!(
                "the widest interval is ±{:.1} % (`{condition}`), wider than the requested ±{requested:.1} %",
                half * 100.0
            ),
            Width::None(condition) => {
                format!("`{condition}` has no interval yet; requested precision: ±{requested:.1} %")
            }
        }
    }
}

/// Over all judged comparisons of the primary metric, including that with the A/A twin; `None` if there are
/// none. Those that `judge` leaves out share their family with the other secondary metrics.
pub fn width(comparisons: &[Comparison]) -> Option<Width> {
    let mut widest: Option<(String, f64)> = None;
    for c in comparisons.iter().filter(|c| c.primary && c.judged) {
        let (Some(low), Some(high)) = (c.interval.low, c.interval.high) else {
            return Some(Width::None(c.condition.clone()));
        };
        let half = half_width(low, high);
        if !half.is_finite() {
            return Some(Width::None(c.condition.clone()));
        }
        if widest.as_ref().is_none_or(|(_, w)| half > *w) {
            widest = Some((c.condition.clone(), half));
        }
    }
    widest.map(|(condition, half)| Width::Widest(condition, half))
}

/// p with high / low = (1 + p) / (1 - p): the interval is its middle ± p.
pub fn half_width(low: f64, high: f64) -> f64 {
    (high - low) / (high + low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Interval;
    use crate::test_support::{demo, experiment, trial};
    use crate::{analyze, primary_comparisons};
    use pgio_results::Trial;
    use pgio_results::model::Slice;

    #[test]
    fn the_planned_effect_needs_the_blocks_with_which_it_is_the_smallest_detectable_one() {
        for members in [1, 3, 8] {
            for (sd_log, effect) in [(0.01, 0.02), (0.02, 0.05), (0.05, 0.05), (0.03, 0.10)] {
                let family = Family { members, sd_log };
                let needed = family.blocks_to_detect(f64::ln_1p(effect)).unwrap();
                let detects = |n| family.detectable(n).is_some_and(|least| least <= effect);
                assert!(detects(needed), "{members} {sd_log} {effect}: {needed}");
                let fewer: Vec<u32> = (1..needed).filter(|n| detects(*n)).collect();
                assert_eq!(fewer, [0; 0], "{members} {sd_log} {effect}: {needed}");
            }
        }
    }

    /// One condition varies by 50 %, the others by 0.5 %: it hides neither their effects nor what can be seen.
    #[test]
    fn a_noisy_condition_does_not_widen_what_is_planned_for_the_others() {
        use benchmath::rng::SplitMix64;
        let mut rng = SplitMix64::new(8);
        let mut rate = |sd: f64| {
            let normal = (0..4).map(|_| rng.next_f64()).sum::<f64>() * 1.732 - 3.464;
            1000.0 * (sd * normal).exp()
        };
        let mut trials = Vec::new();
        for block in 1..=8 {
            for (name, level, sd) in [
                ("local", 1.0, 0.005),
                ("local-aa", 1.0, 0.005),
                ("x", 0.95, 0.005),
                ("wild", 1.0, 0.5),
            ] {
                trials.push(trial(name, block, &[("commits_per_second", level * rate(sd))]));
            }
        }
        let detectable = |blocks: u32| {
            let kept = trials.iter().filter(|t| t.place.as_ref().unwrap().block <= blocks).cloned();
            let mut stored = experiment(&["local", "local-aa", "x", "wild"], kept.collect());
            stored.manifest.aa = Some("local-aa".to_owned());
            stored.manifest.rules.matters = Some(0.05);
            analyze(&stored)
        };
        let analysis = detectable(8);
        let floor = analysis.noise_floor["commits_per_second"].minimum_detectable_effect.unwrap();
        assert!(floor < 0.03, "{floor}");
        let x = analysis.primary("x").unwrap();
        assert!(x.verdict.is_decided() && x.decision_blocks.is_none_or(|n| n < 100), "{x:?}");
        let wild = analysis.primary("wild").unwrap();
        assert!(wild.decision_blocks.unwrap() > 300, "{wild:?}");
        // With six blocks it is in the way, and the report says so.
        let few = detectable(6);
        let x = few.primary("x").unwrap();
        assert!(!x.verdict.is_decided(), "{x:?}");
        let why =
            "`wild` varies so much that 6 blocks cannot separate this effect from it; 7 blocks can";
        assert!(x.warnings.iter().any(|w| w == why), "{x:?}");
    }

    #[test]
    fn a_noise_floor_is_that_of_the_metrics_own_family() {
        let mut stored = demo();
        // With twice the blocks, the size of the family decides.
        let more: Vec<_> = stored
            .trials
            .clone()
            .into_iter()
            .map(|mut t| {
                t.place.as_mut().unwrap().block += 6;
                t
            })
            .collect();
        stored.trials.extend(more);
        let floors = analyze(&stored).noise_floor;
        let least = |metric: &str| floors[metric].minimum_detectable_effect.unwrap();
        // The latencies are as noisy as the rate, but the median is judged with all secondary metrics.
        let (rate, median) = (least("commits_per_second"), least("commit_latency_p50"));
        assert!(median > 1.05 * rate, "{median} {rate}");
        let mean = least("commit_latency_mean");
        assert!((mean / rate - 1.0).abs() < 1e-6, "{mean} {rate}");
        let comparisons = analyze(&stored).comparisons;
        assert_eq!(members(&comparisons, FamilyKind::Question), 3);
        assert_eq!(members(&comparisons, FamilyKind::OperationTime), 3);
        assert!(
            members(&comparisons, FamilyKind::Secondary) > 10,
            "{}",
            members(&comparisons, FamilyKind::Secondary)
        );
        // Comparisons by difference are members as well.
        stored.manifest.rules.also_judge = vec!["degraded_time".to_owned()];
        for t in &mut stored.trials {
            let slice = |at: u32| Slice {
                at: f64::from(at),
                seconds: 1.0,
                commits: if at == 4 {
                    t.place.as_ref().map_or(0, |p| p.block.into())
                } else {
                    1000
                },
                ..Default::default()
            };
            t.timeline = (1..=8).map(slice).collect();
        }
        assert_eq!(members(&analyze(&stored).comparisons, FamilyKind::Question), 6);
    }

    #[test]
    fn the_widest_interval_decides() {
        let mut stored = demo();
        let Some(Width::Widest(condition, half)) = width(&analyze(&stored).comparisons) else {
            panic!("six blocks have intervals");
        };
        let analysis = analyze(&stored);
        let c = analysis.primary(&condition).unwrap();
        assert!(
            (c.interval.high.unwrap() / c.interval.low.unwrap() - (1.0 + half) / (1.0 - half))
                .abs()
                < 1e-9
        );
        assert!(Width::Widest(condition.clone(), half).is_within(half));
        assert!(!Width::Widest(condition, half).is_within(half * 0.99));
        // Every comparison counts: one without an interval is infinitely wide.
        stored
            .trials
            .retain(|t| t.place.as_ref().is_some_and(|p| p.condition != "on" || p.block < 4));
        let found = width(&analyze(&stored).comparisons);
        assert_eq!(found, Some(Width::None("on".to_owned())));
    }

    /// The interval of one comparison, as the family left it.
    fn judgment(c: &Comparison) -> (String, Option<f64>, Interval, Option<f64>) {
        (c.condition.clone(), c.ratio, c.interval, c.p_adjusted)
    }

    #[test]
    fn the_loop_checks_the_same_intervals_as_the_report() {
        let lists: [(&[&str], &[&str]); 5] = [
            (&[], &[]),
            (&["on"], &[]),
            (&[], &["commit_latency_mean", "wal_bytes_per_second"]),
            (&["on", "remote_write"], &["commit_latency_mean", "degraded_time"]),
            (&["on"], &["degraded_longest"]),
        ];
        for (judge, also_judge) in lists {
            let mut stored = demo();
            stored.manifest.rules.judge = judge.iter().map(|name| (*name).to_owned()).collect();
            stored.manifest.rules.also_judge =
                also_judge.iter().map(|name| (*name).to_owned()).collect();
            let stall = |at: u32, commits: u64| Slice {
                at: f64::from(at),
                seconds: 1.0,
                commits,
                ..Slice::default()
            };
            for t in &mut stored.trials {
                t.timeline = (1..=9).map(|at| stall(at, 1000)).collect();
                if t.place.as_ref().is_some_and(|p| p.condition == "on" && p.block % 2 == 0) {
                    t.timeline.push(stall(10, 1));
                }
            }
            let analysis = analyze(&stored);
            let reported: Vec<_> = analysis
                .comparisons
                .iter()
                .filter(|c| c.primary && c.judged)
                .map(judgment)
                .collect();
            let looked: Vec<_> = primary_comparisons(&stored).iter().map(judgment).collect();
            assert_eq!(looked, reported, "{judge:?} {also_judge:?}");
            assert_eq!(width(&analysis.comparisons), width(&primary_comparisons(&stored)));
        }
    }

    #[test]
    fn unjudged_conditions_do_not_delay_the_end() {
        let mut stored = demo();
        stored.manifest.rules.judge = vec!["on".to_owned()];
        // Only three blocks of another condition are valid.
        let kept = |t: &Trial| {
            t.place.as_ref().is_some_and(|p| p.condition != "remote_write" || p.block < 4)
        };
        stored.trials.retain(kept);
        let found = width(&analyze(&stored).comparisons);
        assert!(matches!(&found, Some(Width::Widest(name, _)) if name == "on"), "{found:?}");
    }

    #[test]
    fn the_width_is_described_in_per_cent() {
        let widest = |half| Width::Widest("on".to_owned(), half);
        insta::assert_snapshot!(widest(0.062).describe(0.05), @"the widest interval is ±6.2 % (`on`), wider than the requested ±5.0 %");
        insta::assert_snapshot!(widest(0.04).describe(0.05), @"the widest interval is ±4.0 %, within the requested ±5.0 %");
        insta::assert_snapshot!(Width::None("on".to_owned()).describe(0.05), @"`on` has no interval yet; requested precision: ±5.0 %");
    }
}
