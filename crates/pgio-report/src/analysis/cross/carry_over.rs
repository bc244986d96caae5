//! Did a trial find in a cache what an earlier one had fetched?
//!
//! Buffer misses and device reads per visit, held against a trial's position in its block and in the
//! experiment. Every trial is compared with others of its own condition and point only, since a condition
//! may change how much is cached, and by medians. Judged are differences that are both a quarter of
//! the value and large enough to cost time: a run that is all cached or all missing has neither.

use std::collections::BTreeMap;

use benchmath::summary::{mean, median};

use super::super::pairing::value;
use pgio_results::{Check, Outcome, Trial};

const ID: &str = "cache-carry-over";

/// One value must exceed the other by this part of it ...
const RATIO: f64 = 1.25;
/// ... by so many blocks a visit, since fewer hardly cost time ...
const PER_VISIT: f64 = 0.005;
/// ... and by so many blocks in its window, since ratios of tiny counts mean nothing.
const BLOCKS: f64 = 50.0;
/// The part of the blocks whose first trial must stand out.
const MOST: f64 = 0.75;
/// How much larger a part of one half of the blocks must lie above the median than of the other, for a
/// change to be a trend (the median test, in linear time).
const TREND: f64 = 0.5;

const REMEDY: &str = "leave burn_in on, use a longer warm-up, a data set that is several times the \
                      cache or all in it, or cache = \"cold\" in every condition";

/// What a quantity of one trial is.
struct Sample {
    index: usize,
    block: u32,
    is_first: bool,
    per_visit: f64,
    visits: f64,
}

/// Whether the first of the two is worse, by a difference that matters.
fn exceeds(high: f64, low: f64, visits: f64) -> bool {
    high > low * RATIO && high - low > PER_VISIT && (high - low) * visits > BLOCKS
}

type Quantity = (&'static str, fn(&Trial) -> Option<f64>);

const QUANTITIES: [Quantity; 2] = [
    ("missed shared buffers", |t| value(t, "riops")),
    ("were read from the device", |t| value(t, "device_reads_per_second")),
];

/// Of complete trials that are no burn-in.
pub(super) fn checks(trials: &[Trial]) -> Vec<(usize, Check)> {
    for (did, quantity) in QUANTITIES {
        let groups = samples(trials, quantity);
        // The gravest alone: one cause has several signs.
        let found = first_of_block(&groups, did)
            .or_else(|| first_of_all(&groups, did))
            .or_else(|| trend(&groups, did));
        if let Some((mut indices, message)) = found {
            indices.sort_unstable();
            let check = Check::warning(ID, message, REMEDY);
            return indices.into_iter().map(|index| (index, check.clone())).collect();
        }
    }
    Vec::new()
}

/// By condition and point, in the order in which they ran.
fn samples(trials: &[Trial], quantity: fn(&Trial) -> Option<f64>) -> Vec<Vec<Sample>> {
    let mut groups: BTreeMap<(&str, String), Vec<Sample>> = BTreeMap::new();
    for (index, trial) in trials.iter().enumerate() {
        let Some(place) = trial.place.as_ref().filter(|place| !place.is_burn_in()) else {
            continue;
        };
        let counted = trial.outcome == Outcome::Complete;
        let (Some(per_second), Some(visits), true) = (quantity(trial), visits(trial), counted)
        else {
            continue;
        };
        let group = (place.condition.as_str(), format!("{:?}", place.point));
        groups.entry(group).or_default().push(Sample {
            index,
            block: place.block,
            is_first: place.position == 1 && place.attempt == 0,
            per_visit: per_second / visits,
            visits: visits * trial.window.seconds,
        });
    }
    groups.into_values().collect()
}

/// Per second. Where the workload counts none, such as a command, a visit is an access to a buffer.
fn visits(trial: &Trial) -> Option<f64> {
    let accesses = || Some(value(trial, "riops")? + value(trial, "cache_hits_per_second")?);
    value(trial, "block_visits_per_second").or_else(accesses).filter(|visits| *visits > 0.0)
}

type Found = (Vec<usize>, String);

/// The first trial of a block fetches, those after it find.
fn first_of_block(groups: &[Vec<Sample>], did: &str) -> Option<Found> {
    let (mut firsts, mut rests) = (Vec::new(), Vec::new());
    let mut accused = Vec::new();
    for group in groups {
        let rest: Vec<f64> = group.iter().filter(|s| !s.is_first).map(|s| s.per_visit).collect();
        let Some(usual) = median(&rest) else { continue };
        for first in group.iter().filter(|s| s.is_first) {
            firsts.push(first.per_visit);
            rests.push(usual);
            if exceeds(first.per_visit, usual, first.visits) {
                accused.push((first.index, first.block));
            }
        }
    }
    // One cold start is no pattern.
    let enough = accused.len() >= 2 && accused.len() as f64 >= MOST * firsts.len() as f64;
    enough.then(|| {
        let message = format!(
            "in the first trial of a block {:.4} blocks a visit {did}, in the others {:.4} (medians; \
             {} of {} blocks): what one trial fetched, the next found",
            median(&firsts).unwrap_or_default(),
            median(&rests).unwrap_or_default(),
            accused.len(),
            firsts.len()
        );
        (accused.into_iter().map(|(index, _)| index).collect(), message)
    })
}

/// The experiment's first trial met a cold cache, and no other did.
fn first_of_all(groups: &[Vec<Sample>], did: &str) -> Option<Found> {
    let group = groups.iter().filter(|g| g.len() > 2).min_by_key(|group| group[0].index)?;
    let (first, rest) = group.split_first()?;
    // Of the whole experiment, and not only of what was measured of it.
    if first.block > 1 || !first.is_first {
        return None;
    }
    let most = rest.iter().map(|s| s.per_visit).fold(f64::MIN, f64::max);
    exceeds(first.per_visit, most, first.visits).then(|| {
        let message = format!(
            "in the experiment's first trial {:.4} blocks a visit {did}, in no other of its condition more \
             than {most:.4}: it began with a cold cache",
            first.per_visit
        );
        (vec![first.index], message)
    })
}

/// The cache goes on filling, or the data outgrows it, from block to block.
fn trend(groups: &[Vec<Sample>], did: &str) -> Option<Found> {
    let (mut early, mut late, mut visits) = (Vec::new(), Vec::new(), Vec::new());
    let (mut above_before, mut above_after) = (Vec::new(), Vec::new());
    let mut accused = Vec::new();
    for group in groups.iter().filter(|group| group.len() > 3) {
        let values: Vec<f64> = group.iter().map(|s| s.per_visit).collect();
        let usual = median(&values)?;
        let above = |s: &Sample| f64::from(u8::from(s.per_visit > usual));
        let (before, after) = group.split_at(group.len() / 2);
        early.extend(before.iter().map(|s| s.per_visit));
        late.extend(after.iter().map(|s| s.per_visit));
        visits.extend(group.iter().map(|s| s.visits));
        accused.extend(before.iter().map(|s| s.index));
        above_before.extend(before.iter().map(above));
        above_after.extend(after.iter().map(above));
    }
    let (early, late, visits) = (mean(&early)?, mean(&late)?, mean(&visits)?);
    let rise = mean(&above_after)? - mean(&above_before)?;
    let (high, low) = (early.max(late), early.min(late));
    let is_trend = rise.abs() >= TREND && (rise > 0.0) == (late > early);
    (is_trend && exceeds(high, low, visits)).then(|| {
        let message = format!(
            "in the first half of the blocks {early:.4} blocks a visit {did}, in the second {late:.4}: \
             the cache is not the same from block to block"
        );
        (accused, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::test_support::{experiment, trial};
    use pgio_results::store::StoredExperiment;

    const CONDITIONS: [&str; 3] = ["a", "b", "c"];

    /// Blocks of three equal conditions in turned order; `misses` of a visit by block and position.
    fn measured(blocks: u32, misses: impl Fn(u32, u32) -> f64) -> StoredExperiment {
        let mut trials = Vec::new();
        for block in 1..=blocks {
            for position in 1..=3u32 {
                let condition = CONDITIONS[((block + position) % 3) as usize];
                let visits = 2000.0;
                let rates = [
                    ("block_visits_per_second", visits),
                    ("riops", visits * misses(block, position)),
                ];
                let mut t = trial(condition, block, &rates);
                t.place.as_mut().unwrap().position = position;
                trials.push(t);
            }
        }
        experiment(&CONDITIONS, trials)
    }

    fn accused(stored: &StoredExperiment) -> (Vec<usize>, String) {
        let found = checks(&stored.trials);
        let message = found.first().map_or_else(String::new, |(_, c)| c.message.clone());
        (found.into_iter().map(|(i, _)| i).collect(), message)
    }

    /// Reproducible, within ±1.
    fn noise(block: u32, position: u32) -> f64 {
        f64::from((block * 7 + position * 3) % 11) / 5.0 - 1.0
    }

    #[test]
    fn trials_of_one_seed_would_have_been_accused() {
        // As measured when the trials of a block replayed the same keys.
        for blocks in [2, 3, 6] {
            let stored = measured(blocks, |_, position| if position == 1 { 0.8875 } else { 0.0 });
            let (indices, message) = accused(&stored);
            let firsts: Vec<usize> = (0..blocks as usize).map(|block| block * 3).collect();
            match blocks {
                // With two blocks each first trial has one other of its condition.
                2 => assert_eq!(indices.len(), 2),
                _ => assert_eq!(indices, firsts),
            }
            assert!(
                message.starts_with("in the first trial of a block 0.8875 blocks a visit missed"),
                "{message}"
            );
        }
        let stored = measured(4, |_, position| if position == 1 { 0.5 } else { 0.35 });
        assert_eq!(accused(&stored).0.len(), 4);
    }

    #[test]
    fn healthy_runs_are_not_accused() {
        // All missing, a part missing, all cached, and a handful of misses that only the first has.
        let all: [&dyn Fn(u32, u32) -> f64; 5] = [
            &|b, p| 0.97 + 0.02 * noise(b, p),
            &|b, p| 0.40 * (1.0 + 0.1 * noise(b, p)),
            &|_, _| 0.0,
            &|_, p| if p == 1 { 0.004 } else { 0.0 },
            &|b, p| if (b, p) == (1, 1) { 0.005 } else { 1e-5 },
        ];
        for (n, misses) in all.iter().enumerate() {
            for blocks in 1..=8 {
                assert_eq!(accused(&measured(blocks, misses)).0, [0; 0], "{n}, {blocks} blocks");
            }
        }
        // A condition that caches less misses more wherever it stands.
        let mut stored = measured(6, |_, _| 0.2);
        for t in stored.trials.iter_mut().filter(|t| t.place.as_ref().unwrap().condition == "b") {
            crate::analysis::test_support::set(t, "riops", 1800.0);
        }
        assert_eq!(accused(&stored).0, [0; 0]);
    }

    #[test]
    fn few_visits_decide_nothing() {
        let mut stored = measured(3, |_, position| if position == 1 { 0.9 } else { 0.0 });
        stored.trials.iter_mut().for_each(|t| t.window.seconds = 0.02);
        assert_eq!(accused(&stored).0, [0; 0]);
    }

    #[test]
    fn a_cold_first_trial_is_accused_alone_and_a_burn_in_takes_it_upon_itself() {
        let cold = |b: u32, p: u32| if (b, p) == (1, 1) { 1.0 } else { 0.3 + 0.01 * noise(b, p) };
        let mut stored = measured(4, cold);
        let (indices, message) = accused(&stored);
        assert_eq!(indices, [0]);
        assert!(message.contains("first trial 1.0000 blocks"), "{message}");
        stored.trials[0].place.as_mut().unwrap().block = 0;
        assert_eq!(accused(&stored).0, [0; 0]);
    }

    #[test]
    fn a_cache_that_goes_on_filling_is_a_trend() {
        let stored = measured(6, |b, p| 0.8 - 0.1 * f64::from(b) + 0.01 * noise(b, p));
        let (indices, message) = accused(&stored);
        assert_eq!(indices, (0..9).collect::<Vec<_>>());
        assert!(message.contains("in the second 0.2987"), "{message}");
        // The other way round the data outgrows the cache.
        assert_eq!(accused(&measured(6, |b, _| 0.1 * f64::from(b))).0.len(), 9);
    }

    #[test]
    fn reads_of_the_device_and_of_commands_count_as_well() {
        let mut stored = measured(4, |_, _| 0.9);
        for t in &mut stored.trials {
            let first = t.place.as_ref().unwrap().position == 1;
            let rate = if first { 1500.0 } else { 10.0 };
            crate::analysis::test_support::set(t, "device_reads_per_second", rate);
        }
        assert!(accused(&stored).1.contains("0.7500 blocks a visit were read from the device"));
        let mut stored = measured(4, |_, position| if position == 1 { 0.5 } else { 0.0 });
        for t in &mut stored.trials {
            t.metrics.remove("block_visits_per_second");
            crate::analysis::test_support::set(t, "cache_hits_per_second", 1000.0);
        }
        assert_eq!(accused(&stored).0.len(), 4);
    }
}
