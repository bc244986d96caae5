//! Plans from a pilot how many blocks decide about a margin.
//!
//! A pilot is the same experiment with few blocks. The plan uses its noise and its duration and ignores
//! its effects, because a number of blocks planned from an estimated effect is noise. The number of
//! blocks comes from `benchmath::margin` for the 90 % upper bound of the noise (`benchmath::spread`), not
//! for its estimate: it is an upper bound, because the true noise exceeds that bound in only one of ten
//! pilots.
//!
//! Pure, as all of this crate. Next: `report::pilot` prints it.

use std::collections::BTreeSet;

use benchmath::margin::Margin;
use benchmath::power::PLANNED_POWER;
use benchmath::spread::Spread;
use jiff::Timestamp;

use super::comparison::FamilyKind;
use super::resolution::Family;
use super::{compare, cross, pairing, resolution};
use pgio_results::store::{Manifest, StoredExperiment};
use pgio_results::{Outcome, Trial};

/// Blocks that a pilot needs. With noise of 3 %, where 14 blocks are enough, pilots of 2 blocks planned 6 to 67, of 3
/// blocks 15 to 41, of 6 blocks 15 to 30.
pub(super) const MIN_BLOCKS: usize = 4;
/// The probabilities of a decision that are planned for.
const POWERS: [f64; 2] = [PLANNED_POWER, 0.95];
/// Margins are searched in steps of 0.1 %, up to the largest that an experiment may name.
const STEPS: u32 = 500;

/// What one workload needs to decide about a margin.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub experiment: String,
    pub metric: String,
    /// As a share of the baseline's value.
    pub margin: f64,
    /// Blocks of the pilot in which every condition has a trial that counts.
    pub pilot_blocks: usize,
    pub spread: Spread,
    /// Comparisons that are judged together.
    pub comparisons: usize,
    pub trials_per_block: usize,
    pub trial_time: Option<TrialTime>,
    /// In ascending order of power.
    pub needed: Vec<Needed>,
    /// The number of blocks that the experiment has now.
    pub blocks: u32,
    /// The smallest margin that those decide with 80 % power; `None` if it would exceed 50 %.
    pub smallest_margin: Option<f64>,
}

/// Blocks that decide with this power; `None` if they are too many to be of use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Needed {
    pub power: f64,
    pub blocks: Option<u32>,
}

/// Seconds from the start of one trial to the start of the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TrialTime {
    /// The mean of the pilot's trials.
    Measured(f64),
    /// Estimated from the experiment file.
    Estimated(f64),
}

impl TrialTime {
    pub fn seconds(self) -> f64 {
        match self {
            TrialTime::Measured(seconds) | TrialTime::Estimated(seconds) => seconds,
        }
    }
}

/// A pilot from which nothing can be planned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PilotError {
    #[error("a margin must be a share from 0.1% to 50%")]
    Margin,
    #[error(
        "the pilot needs at least {MIN_BLOCKS} blocks in which the trials of all conditions are valid and have {metric}; it has {valid}"
    )]
    TooFewBlocks { metric: String, valid: usize },
    #[error(
        "the pilot shows no noise: {metric} cannot be compared, or all its trials are equal; run a pilot with more blocks"
    )]
    NoNoise { metric: String },
}

/// Plans how many blocks decide about the margin, and what `blocks` decide.
pub fn plan(stored: &StoredExperiment, share: f64, blocks: u32) -> Result<Plan, PilotError> {
    let margin = Margin::from_share(share).ok_or(PilotError::Margin)?;
    let judged = cross::judged(stored);
    let manifest = &judged.manifest;
    let metric = &manifest.primary_metric;
    let by_condition = pairing::by_condition(manifest, &judged.trials);
    let complete = by_condition.values().map(|condition| -> BTreeSet<u32> {
        let positive = condition.values_by_block(metric).filter(|(_, value)| *value > 0.0);
        positive.map(|(block, _)| block).collect()
    });
    let complete = complete.reduce(|a, b| &a & &b).unwrap_or_default();
    if complete.len() < MIN_BLOCKS {
        return Err(PilotError::TooFewBlocks { metric: metric.clone(), valid: complete.len() });
    }
    let comparisons = compare::with_baseline(manifest, &by_condition);
    let spread = resolution::spreads(manifest, &by_condition, &comparisons).remove(metric);
    let spread = spread.ok_or_else(|| PilotError::NoNoise { metric: metric.clone() })?;
    let family = Family {
        members: resolution::members(&comparisons, FamilyKind::Question),
        sd_log: spread.upper,
    };
    let needed = |power| Needed { power, blocks: family.blocks_needed(margin, power) };
    Ok(Plan {
        experiment: manifest.name.clone(),
        metric: metric.clone(),
        margin: share,
        pilot_blocks: complete.len(),
        spread,
        comparisons: family.members,
        trials_per_block: trials_per_block(manifest),
        trial_time: seconds_between_starts(&judged).map(TrialTime::Measured),
        needed: POWERS.map(needed).to_vec(),
        blocks,
        smallest_margin: smallest_margin(family, blocks),
    })
}

/// The smallest margin that this many blocks decide with the planned power.
fn smallest_margin(family: Family, blocks: u32) -> Option<f64> {
    let share = |step: u32| f64::from(step) / 1000.0;
    let decided = |step: u32| {
        let margin = Margin::from_share(share(step));
        let needed = margin.and_then(|margin| family.blocks_needed(margin, PLANNED_POWER));
        needed.is_some_and(|needed| needed <= blocks)
    };
    let steps: Vec<u32> = (1..=STEPS).collect();
    let first = steps.partition_point(|step| !decided(*step));
    steps.get(first).map(|step| share(*step))
}

/// Trials of a block without repeats, at all points of a sweep.
fn trials_per_block(manifest: &Manifest) -> usize {
    let points = manifest.points().len();
    let once = manifest.varied.as_ref().map_or(0, |varied| varied.at_middle_only.len());
    (manifest.conditions.len() * points).saturating_sub(once * (points - 1))
}

/// The mean time of a block without repeats.
pub(super) fn seconds_of_block(stored: &StoredExperiment) -> Option<f64> {
    Some(seconds_between_starts(stored)? * trials_per_block(&stored.manifest) as f64)
}

/// The mean time between the starts of consecutive trials, without pauses before a continuation. Woven trials
/// share a window and its start, and have an equal part of its time each.
pub(super) fn seconds_between_starts(stored: &StoredExperiment) -> Option<f64> {
    let continued: BTreeSet<usize> = stored.manifest.resumed.iter().map(|r| r.from_trial).collect();
    let share_window = |one: &Trial, next: &Trial| {
        one.woven.is_some() && next.woven.is_some() && one.started_at == next.started_at
    };
    let windows: Vec<&[Trial]> = stored.trials.chunk_by(share_window).collect();
    // The line of the first trial of a window, counted from 1.
    let mut line = 1;
    let mut gaps = Vec::new();
    for pair in windows.windows(2) {
        let [window, next] = [pair[0], pair[1]];
        line += window.len();
        if window.iter().any(|t| t.outcome != Outcome::Complete) || continued.contains(&line) {
            continue;
        }
        let start = |window: &[Trial]| window[0].started_at.parse::<Timestamp>().ok();
        let Some((from, to)) = start(window).zip(start(next)) else { continue };
        let share = to.duration_since(from).as_secs_f64() / window.len() as f64;
        gaps.extend(std::iter::repeat_n(share, window.len()));
    }
    let mean = benchmath::summary::mean(&gaps)?;
    (mean > 0.0).then_some(mean)
}

#[cfg(test)]
mod tests {
    use benchmath::rng::SplitMix64;
    use benchmath::spread;

    use super::super::Decision;
    use super::super::primary_comparisons;
    use super::super::test_support::{experiment, swept, trial};
    use super::super::{ALPHA, analyze};
    use super::*;
    use pgio_results::model::Woven;
    use pgio_results::store::Resumed;
    use pgio_results::{Check, Trial};

    const RATE: &str = "commits_per_second";
    const NAMES: [&str; 16] =
        ["local", "local-aa", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"];

    /// Standard normal, by the Box-Muller method.
    fn normal(rng: &mut SplitMix64) -> f64 {
        let radius = (-2.0 * (1.0 - rng.next_f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * rng.next_f64()).cos()
    }

    /// An experiment of this many blocks: one condition per effect (the log of a ratio), the baseline first,
    /// and noise of standard deviation `sd` in the log of each trial.
    fn simulated(rng: &mut SplitMix64, effects: &[f64], sd: f64, blocks: u32) -> StoredExperiment {
        let mut trials = Vec::new();
        for block in 1..=blocks {
            let drift = 0.1 * normal(rng);
            for (name, effect) in NAMES.iter().zip(effects) {
                let log = drift + effect + sd * normal(rng);
                trials.push(trial(name, block, &[(RATE, 1000.0 * log.exp())]));
            }
        }
        experiment(&NAMES[..effects.len()], trials)
    }

    fn pilot(blocks: u32) -> StoredExperiment {
        simulated(&mut SplitMix64::new(1), &[0.0, 0.0, -0.3], 0.02, blocks)
    }

    fn blocks(plan: &Plan) -> Vec<Option<u32>> {
        plan.needed.iter().map(|needed| needed.blocks).collect()
    }

    #[test]
    fn a_single_comparison_needs_the_blocks_of_the_formula() {
        let mut stored = pilot(4);
        stored.manifest.rules.judge = vec!["a".to_owned()];
        let plan = plan(&stored, 0.05, 6).unwrap();
        let logs = |name: &&str| -> Vec<(u32, f64)> {
            let is_it = stored.trials.iter().filter(|t| t.is_of(name));
            is_it
                .map(|t| (t.place.as_ref().unwrap().block, t.metrics[RATE].value.unwrap().ln()))
                .collect()
        };
        let conditions: Vec<_> = NAMES[..3].iter().map(logs).collect();
        assert_eq!(plan.spread, spread::pooled(&conditions).unwrap());
        assert_eq!((plan.comparisons, plan.pilot_blocks, plan.trials_per_block), (1, 4, 3));
        let margin = Margin::from_share(0.05).unwrap();
        let by_formula = |power| margin.blocks_needed(plan.spread.upper, ALPHA, ALPHA, power);
        assert_eq!(blocks(&plan), [by_formula(0.8), by_formula(0.95)]);
        let by_estimate = margin.blocks_needed(plan.spread.sd_log, ALPHA, ALPHA, 0.8);
        assert!(by_estimate < by_formula(0.8), "{by_estimate:?}");
    }

    #[test]
    fn several_comparisons_need_no_more_than_each_at_its_share_of_the_level() {
        let plan = plan(&pilot(4), 0.05, 6).unwrap();
        assert_eq!(plan.comparisons, 2);
        let margin = Margin::from_share(0.05).unwrap();
        for (needed, power) in blocks(&plan).into_iter().zip(POWERS) {
            let at = |level| margin.blocks_needed(plan.spread.upper, level, ALPHA, power);
            assert!(at(ALPHA) <= needed && needed <= at(ALPHA / 2.0), "{needed:?}");
        }
    }

    /// An experiment that is its own pilot: both name one number, also where ties make it smaller.
    #[test]
    fn the_report_names_the_blocks_of_the_plan() {
        let margin = Margin::from_share(0.05).unwrap();
        let (mut named, mut fewer) = (0, 0);
        for seed in 1..=20 {
            let mut stored = simulated(&mut SplitMix64::new(seed), &[0.0; 4], 0.01, 4);
            stored.manifest.rules.matters = Some(0.05);
            let plan = plan(&stored, 0.05, 6).unwrap();
            let planned = blocks(&plan)[0];
            let by_share = margin.blocks_needed(plan.spread.upper, ALPHA / 3.0, ALPHA, 0.8);
            fewer += usize::from(planned < by_share);
            for c in analyze(&stored).comparisons.iter().filter(|c| c.primary) {
                assert_eq!(c.decision_blocks, planned, "{seed}: {}", c.condition);
                named += 1;
            }
        }
        assert!(named > 0 && fewer > 0, "{named}, {fewer}");
    }

    #[test]
    fn the_smallest_margin_is_the_smallest_that_the_blocks_decide() {
        let stored = pilot(4);
        for own in [6, 7, 9, 20, 100] {
            let smallest = plan(&stored, 0.05, own).unwrap().smallest_margin.unwrap();
            let needed = |share| blocks(&plan(&stored, share, own).unwrap())[0];
            assert!(needed(smallest).unwrap() <= own, "{own}: {smallest}");
            assert!(needed(smallest - 0.001).is_none_or(|n| n > own), "{own}: {smallest}");
        }
        assert_eq!(plan(&stored, 0.05, 4).unwrap().smallest_margin, None);
    }

    #[test]
    fn blocks_without_a_valid_trial_of_every_condition_do_not_count() {
        let too_few = |stored: &StoredExperiment, valid| {
            let metric = RATE.to_owned();
            assert_eq!(plan(stored, 0.05, 6), Err(PilotError::TooFewBlocks { metric, valid }));
        };
        too_few(&pilot(3), 3);
        too_few(&experiment(&NAMES[..2], Vec::new()), 0);
        let mut stored = pilot(4);
        stored.trials[4].checks.push(Check::invalid("steal", "30 %", "measure elsewhere"));
        too_few(&stored, 3);
        let mut stored = pilot(5);
        stored.trials.retain(|t| {
            let place = t.place.as_ref().unwrap();
            (place.condition.as_str(), place.block) != ("a", 2)
        });
        assert_eq!(plan(&stored, 0.05, 6).unwrap().pilot_blocks, 4);
        stored.trials.retain(|t| t.place.as_ref().unwrap().block < 5);
        too_few(&stored, 3);
    }

    #[test]
    fn without_noise_or_margin_there_is_no_plan() {
        let equal = |block| ["local", "local-aa"].map(|name| trial(name, block, &[(RATE, 1000.0)]));
        let trials: Vec<Trial> = (1..=4).flat_map(equal).collect();
        let stored = experiment(&NAMES[..2], trials);
        assert!(matches!(plan(&stored, 0.05, 6), Err(PilotError::NoNoise { .. })));
        assert_eq!(plan(&pilot(4), 0.6, 6), Err(PilotError::Margin));
    }

    #[test]
    fn noise_that_no_number_of_blocks_overcomes_has_no_number() {
        let stored = simulated(&mut SplitMix64::new(1), &[0.0, 0.0], 3.0, 4);
        let plan = plan(&stored, 0.001, 6).unwrap();
        assert_eq!((blocks(&plan), plan.smallest_margin), (vec![None, None], None));
    }

    #[test]
    fn time_is_that_between_the_starts_of_trials_without_pauses() {
        let mut stored = pilot(4);
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (n, trial) in (0..).zip(&mut stored.trials) {
            let pause = if n < 4 { 0 } else { 86_400 };
            let seconds = std::time::Duration::from_secs(10 * n + pause);
            trial.started_at = start.checked_add(seconds).unwrap().to_string();
        }
        let resumed =
            Resumed { at: String::new(), pgio: String::new(), from_trial: 5, remarks: Vec::new() };
        stored.manifest.resumed.push(resumed);
        assert_eq!(plan(&stored, 0.05, 6).unwrap().trial_time, Some(TrialTime::Measured(10.0)));
        // Woven, the three of a block share a window of 30 s, and so its start.
        stored.manifest.resumed.clear();
        for (n, trial) in (0..).zip(&mut stored.trials) {
            let seconds = std::time::Duration::from_secs(30 * (n / 3));
            trial.started_at = start.checked_add(seconds).unwrap().to_string();
            trial.woven = Some(Woven::default());
        }
        assert_eq!(plan(&stored, 0.05, 6).unwrap().trial_time, Some(TrialTime::Measured(10.0)));
        stored.trials.iter_mut().for_each(|trial| trial.started_at = String::new());
        assert_eq!(plan(&stored, 0.05, 6).unwrap().trial_time, None);
    }

    #[test]
    fn a_block_of_a_sweep_has_the_twin_once() {
        // Six points of two conditions, and the twin at the middle one.
        assert_eq!(trials_per_block(&swept(2).manifest), 13);
        assert_eq!(trials_per_block(&pilot(2).manifest), 3);
    }

    /// The share of the comparisons with this effect that an experiment decides.
    fn decided(rng: &mut SplitMix64, effects: &[f64], effect: f64, sd: f64, blocks: u32) -> f64 {
        let mut stored = simulated(rng, effects, sd, blocks);
        stored.manifest.rules.matters = Some(0.05);
        let found = primary_comparisons(&stored);
        let with_effect = found.iter().zip(&effects[1..]).filter(|(_, e)| **e == effect);
        let decided =
            with_effect.clone().filter(|(c, _)| c.decision.unwrap() != Decision::Undecided);
        decided.count() as f64 / with_effect.count() as f64
    }

    /// No effect, and twice the margin on either side.
    fn effects() -> [f64; 3] {
        [0.0, 1.10f64.ln(), 0.90f64.ln()]
    }

    /// The number of blocks from the bound of the noise of a pilot of four blocks.
    #[test]
    fn the_planned_blocks_decide_four_times_in_five() {
        let mut rng = SplitMix64::new(3);
        let experiments = 40;
        for effect in effects() {
            let one = |_| {
                let pilot = simulated(&mut rng, &[0.0, 0.0, -0.3, 0.1], 0.01, 4);
                let planned = blocks(&plan(&pilot, 0.05, 6).unwrap())[0].unwrap();
                decided(&mut rng, &[0.0, effect, effect, effect], effect, 0.01, planned)
            };
            let power = (0..experiments).map(one).sum::<f64>() / f64::from(experiments);
            assert!(power >= 0.8, "{effect}: {power}");
        }
    }

    /// The same if the bound is the true noise, as in the worst of ten pilots, in families small and large,
    /// with an effect of all conditions and of one alone.
    #[test]
    fn the_planned_blocks_decide_if_the_bound_is_the_true_noise() {
        let mut rng = SplitMix64::new(4);
        let margin = Margin::from_share(0.05).unwrap();
        let experiments = 50;
        for (members, sd) in [(1, 0.018), (3, 0.0163), (15, 0.0163), (5, 0.02)] {
            let family = Family { members, sd_log: sd * 2f64.sqrt() };
            let planned = family.blocks_needed(margin, 0.8).unwrap();
            for effect in effects() {
                for with_effect in [1, members] {
                    let mut effects = vec![0.0; members + 1];
                    effects[members + 1 - with_effect..].fill(effect);
                    let one = |_| decided(&mut rng, &effects, effect, sd, planned);
                    let power = (0..experiments).map(one).sum::<f64>() / f64::from(experiments);
                    assert!(
                        power >= 0.8,
                        "{members}, {sd}, {planned}, {effect}, {with_effect}: {power}"
                    );
                }
            }
        }
    }
}
