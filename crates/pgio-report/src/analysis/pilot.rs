//! Plans from a pilot how many blocks decide about a margin.
//!
//! A pilot is the same experiment with few blocks. The plan uses its noise and its duration and ignores
//! its effects, because a number of blocks planned from an estimated effect is noise. The number of
//! blocks is that of `benchmath::margin` for the 90 % upper bound of the noise (`benchmath::spread`), not
//! for its estimate: it is an upper bound, because the true noise exceeds that bound in only one of ten
//! pilots.
//!
//! Pure, as all of `analysis`. Next: `report::pilot` prints it.

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
const MIN_BLOCKS: usize = 4;
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

/// Seconds from the start of one trial to that of the next.
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
    let margin = Margin::of_share(share).ok_or(PilotError::Margin)?;
    let judged = cross::judged(stored);
    let manifest = &judged.manifest;
    let metric = &manifest.primary_metric;
    let arms = pairing::arms(manifest, &judged.trials);
    let complete = arms.values().map(|arm| -> BTreeSet<u32> {
        let positive = arm.values_by_block(metric).filter(|(_, value)| *value > 0.0);
        positive.map(|(block, _)| block).collect()
    });
    let complete = complete.reduce(|a, b| &a & &b).unwrap_or_default();
    if complete.len() < MIN_BLOCKS {
        return Err(PilotError::TooFewBlocks { metric: metric.clone(), valid: complete.len() });
    }
    let comparisons = compare::with_baseline(manifest, &arms);
    let spread = resolution::spreads(manifest, &arms, &comparisons).remove(metric);
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
        let margin = Margin::of_share(share(step));
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
    let once = manifest.sweep.as_ref().map_or(0, |sweep| sweep.at_middle_only.len());
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
mod tests;
