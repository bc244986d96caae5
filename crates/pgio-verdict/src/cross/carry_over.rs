//! Checks whether a trial profited from a cache that an earlier trial had filled.
//!
//! It compares buffer misses and device reads per visit by a trial's position in its block and in the
//! experiment. Trials are compared, by medians, only within their condition and point, because a condition
//! may change how much is cached. A difference counts if it is a quarter of the value and large enough to
//! cost time.

use std::collections::BTreeMap;

use benchmath::summary::{mean, median};

use super::super::pairing::value;
use super::super::reconcile::device_blocks;
use pgio_results::thresholds::CARRY_OVER;
use pgio_results::{Check, Outcome, Trial};

const ID: &str = "cache-carry-over";

/// One value must exceed the other by this factor ...
const MIN_RATIO: f64 = 1.0 + CARRY_OVER.0;
/// ... by this many blocks (or requests) per visit, because fewer cost little time ...
const MIN_PER_VISIT: f64 = 0.005;
/// ... and by this many per window, because ratios of tiny counts are meaningless.
const MIN_BLOCKS_PER_WINDOW: f64 = 50.0;
/// The share of blocks whose first trial must differ.
const MIN_SHARE_OF_BLOCKS: f64 = 0.75;
/// For a trend, the share of values above the median must differ by this much between the first and the
/// second half of the blocks (the median test, in linear time).
const MIN_RISE: f64 = 0.5;

const REMEDY: &str = "keep burn_in on, lengthen the warm-up, use a data set that is several times the \
                      cache or fits into it, or set cache = \"cold\" in every condition";

/// A quantity in one trial.
struct Sample {
    index: usize,
    block: u32,
    is_first: bool,
    per_visit: f64,
    visits: f64,
}

/// Whether the first of the two is worse, by a difference that matters.
fn exceeds(high: f64, low: f64, visits: f64) -> bool {
    high > low * MIN_RATIO
        && high - low > MIN_PER_VISIT
        && (high - low) * visits > MIN_BLOCKS_PER_WINDOW
}

const REQUESTED: &str = "device_reads_per_second";

struct Quantity {
    unit: &'static str,
    verb: &'static str,
    per_second: fn(&Trial) -> Option<f64>,
}

const MISSES: Quantity =
    Quantity { unit: "blocks", verb: "missed shared buffers", per_second: |t| value(t, "riops") };
const READS: Quantity = Quantity {
    unit: "blocks",
    verb: "were read from the device",
    // A woven trial has no counters of its own.
    per_second: |t| value(t, REQUESTED).and_then(|_| device_blocks(t)),
};
/// A request may read many blocks.
const REQUESTS: Quantity = Quantity {
    unit: "read requests",
    verb: "reached the device",
    per_second: |t| value(t, REQUESTED),
};

/// Checks complete trials, without the burn-in.
pub(super) fn checks(trials: &[Trial]) -> Vec<(usize, Check)> {
    // Without the bytes of some trial, requests are comparable between all.
    let lacks_bytes =
        |t: &Trial| (REQUESTS.per_second)(t).is_some() && (READS.per_second)(t).is_none();
    let reads = if trials.iter().any(lacks_bytes) { REQUESTS } else { READS };
    for quantity in [MISSES, reads] {
        let groups = samples(trials, quantity.per_second);
        // Only the most severe one, because one cause has several symptoms.
        let found = first_of_block(&groups, &quantity)
            .or_else(|| first_of_all(&groups, &quantity))
            .or_else(|| trend(&groups, &quantity));
        if let Some((mut indices, message)) = found {
            indices.sort_unstable();
            let check = Check::warning(ID, message, REMEDY);
            return indices.into_iter().map(|index| (index, check.clone())).collect();
        }
    }
    Vec::new()
}

/// By condition and point, in order of execution.
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

/// Block visits per second. If the workload does not count them, as a command, buffer accesses.
fn visits(trial: &Trial) -> Option<f64> {
    let accesses = || Some(value(trial, "riops")? + value(trial, "cache_hits_per_second")?);
    value(trial, "block_visits_per_second").or_else(accesses).filter(|visits| *visits > 0.0)
}

type Accusation = (Vec<usize>, String);

/// The first trial of a block fills the cache for the later ones.
fn first_of_block(groups: &[Vec<Sample>], of: &Quantity) -> Option<Accusation> {
    let Quantity { unit, verb, .. } = of;
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
    // A single cold start is not a pattern.
    let enough =
        accused.len() >= 2 && accused.len() as f64 >= MIN_SHARE_OF_BLOCKS * firsts.len() as f64;
    enough.then(|| {
        let message = format!(
            "in the first trial of a block {:.4} {unit} per visit {verb}, in the others {:.4} (medians; \
             {} of {} blocks): one trial filled the cache for the next",
            median(&firsts).unwrap_or_default(),
            median(&rests).unwrap_or_default(),
            accused.len(),
            firsts.len()
        );
        (accused.into_iter().map(|(index, _)| index).collect(), message)
    })
}

/// Only the experiment's first trial had a cold cache.
fn first_of_all(groups: &[Vec<Sample>], of: &Quantity) -> Option<Accusation> {
    let Quantity { unit, verb, .. } = of;
    let group = groups.iter().filter(|g| g.len() > 2).min_by_key(|group| group[0].index)?;
    let (first, rest) = group.split_first()?;
    // Only the experiment's own first trial counts, not the first one that has this metric.
    if first.block > 1 || !first.is_first {
        return None;
    }
    let most = rest.iter().map(|s| s.per_visit).fold(f64::MIN, f64::max);
    exceeds(first.per_visit, most, first.visits).then(|| {
        let message = format!(
            "in the experiment's first trial {:.4} {unit} per visit {verb}, in no other of its condition more \
             than {most:.4}: it started with a cold cache",
            first.per_visit
        );
        (vec![first.index], message)
    })
}

/// The cache keeps filling, or the data outgrows it, from block to block.
fn trend(groups: &[Vec<Sample>], of: &Quantity) -> Option<Accusation> {
    let Quantity { unit, verb, .. } = of;
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
    let is_trend = rise.abs() >= MIN_RISE && (rise > 0.0) == (late > early);
    (is_trend && exceeds(high, low, visits)).then(|| {
        let message = format!(
            "in the first half of the blocks {early:.4} {unit} per visit {verb}, in the second {late:.4}: \
             the state of the cache changes from block to block"
        );
        (accused, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{experiment, trial};
    use pgio_results::store::StoredExperiment;
    use pgio_results::telemetry::{Device, DeviceUse, HostUse, Storage, Telemetry};

    const CONDITIONS: [&str; 3] = ["a", "b", "c"];

    /// The data lie on this device.
    fn reading_from(used: DeviceUse) -> Telemetry {
        let host = HostUse { devices: [("vda".to_owned(), used)].into(), ..HostUse::default() };
        let storage = Storage {
            role: "data".to_owned(),
            host: "local".to_owned(),
            devices: vec![Device { name: "vda".to_owned(), ..Device::default() }],
            ..Storage::default()
        };
        Telemetry {
            hosts: [("local".to_owned(), host)].into(),
            storage: vec![storage],
            ..Telemetry::default()
        }
    }

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
    fn trials_of_one_seed_fail() {
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
                message.starts_with("in the first trial of a block 0.8875 blocks per visit missed"),
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
        for t in stored.trials.iter_mut().filter(|t| t.is_of("b")) {
            crate::test_support::set(t, "riops", 1800.0);
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
    fn only_a_cold_first_trial_is_reported_unless_it_is_a_burn_in() {
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
            crate::test_support::set(t, "device_reads_per_second", rate);
        }
        let requests = "0.7500 read requests per visit reached the device";
        assert!(accused(&stored).1.contains(requests), "{:?}", accused(&stored));
        // Requests of 64 kB.
        for t in &mut stored.trials {
            let requests = value(t, "device_reads_per_second").unwrap();
            let device = DeviceUse {
                reads_per_second: requests,
                read_bytes_per_second: requests * 65_536.0,
                ..DeviceUse::default()
            };
            t.telemetry = Some(reading_from(device));
        }
        let blocks = "6.0000 blocks per visit were read from the device";
        assert!(accused(&stored).1.contains(blocks), "{:?}", accused(&stored));
        let mut stored = measured(4, |_, position| if position == 1 { 0.5 } else { 0.0 });
        for t in &mut stored.trials {
            t.metrics.remove("block_visits_per_second");
            crate::test_support::set(t, "cache_hits_per_second", 1000.0);
        }
        assert_eq!(accused(&stored).0.len(), 4);
    }
}
