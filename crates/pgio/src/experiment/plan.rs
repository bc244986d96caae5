//! Plans which cell runs when: each once per block, in an order drawn from the seed. A cell is a
//! condition, at a point of the sweep if there is one.
//!
//! Interleaving in randomized blocks keeps a ratio valid on a machine whose speed drifts
//! (Abedi and Brecht, ICPE 2017): drift affects all conditions of a block alike. The orders of several
//! blocks together form a Williams design, in which each cell follows each other one equally often, so
//! that what a trial leaves behind affects all cells alike as well.

use benchmath::williams;
use pgio_connect::Client;
use pgio_results::BURN_IN_BLOCK;
use pgio_results::model::{Check, Trial};
use pgio_results::points::Cell;

use crate::config::resolve::Extent;
use crate::rng::{SplitMix64, derive};

/// One trial to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Block, counted from 1; [`BURN_IN_BLOCK`] for the burn-in trial.
    pub block: u32,
    /// Position in the block, counted from 1.
    pub position: u32,
    /// Index into the experiment's cells, which include the A/A twin.
    pub cell: usize,
    /// Number of this attempt, from 0.
    pub attempt: u32,
}

impl Planned {
    /// Returns the same trial as the given attempt.
    pub fn with_attempt(self, attempt: u32) -> Planned {
        Planned { attempt, ..self }
    }
}

/// Plans all trials of a new experiment. A plan with more blocks begins with the same ones.
pub fn plan(cells: usize, blocks: u32, seed: u64) -> Vec<Planned> {
    let mut planned = Vec::new();
    for block in 1..=blocks {
        for (at, cell) in balanced(cells, block, seed).into_iter().enumerate() {
            planned.push(Planned {
                block,
                position: u32::try_from(at + 1).expect("no experiment has four billion cells"),
                cell,
                attempt: 0,
            });
        }
    }
    planned
}

/// Returns the order of one block, which depends on the seed and the block's number only. As many blocks
/// as a design has rows use one design, its rows in random order and its labels assigned at random, so that
/// every order of a single block is equally likely.
fn balanced(cells: usize, block: u32, seed: u64) -> Vec<usize> {
    let all = williams::rows(cells);
    if all == 0 {
        return Vec::new();
    }
    let before = block as usize - 1;
    let mut stream = SplitMix64::new(derive(seed, "williams", (before / all) as u64));
    let mut rows: Vec<usize> = (0..all).collect();
    stream.shuffle(&mut rows);
    let mut labels: Vec<usize> = (0..cells).collect();
    stream.shuffle(&mut labels);
    williams::row(cells, rows[before % all]).into_iter().map(|label| labels[label]).collect()
}

/// Returns the trial of the baseline before block 1 that absorbs the cold start; it never counts.
pub fn burn_in(baseline: usize) -> Planned {
    Planned { block: BURN_IN_BLOCK, position: 1, cell: baseline, attempt: 0 }
}

/// Derives the seed of one trial's work. Every trial draws its own stream: a trial that repeats another's visits
/// finds their blocks cached. It is derived from names and not from indexes, so that another
/// condition, point or block does not change other seeds. It has 53 bits, which survive
/// readers that take JSON numbers for doubles.
pub fn trial_seed(seed: u64, workload: &str, cell: &Cell, block: u32, attempt: u32) -> u64 {
    let point = serde_json::to_string(&cell.point).expect("names and plain values serialize");
    // No name holds the separator, so no two cells share a text.
    let purpose = ["work", workload, &cell.condition, &point].join("\0");
    let block_seed = derive(seed, &purpose, u64::from(block));
    derive(block_seed, "attempt", u64::from(attempt)) >> 11
}

// `checkpoint = "spread"`: windows that hold whole checkpoint cycles. A CHECKPOINT before the warm-up puts every
// window into the same phase; from there on the server's own timed checkpoints continue, spread by
// checkpoint_completion_target. A window of a whole number of checkpoint_timeout then holds each phase of the cycle
// equally often, whatever phase it begins in, so its share of full-page images is the long run's. Checkpoints
// issued by pgio at shorter distances would write more images than the server does.

/// Tolerated deviation from a whole number, in cycles.
const MAX_DEVIATION: f64 = 0.02;
const ID: &str = "checkpoints";

/// Returns the seconds of a cycle: the condition's setting, else the server's.
pub(super) fn cycle_seconds(
    admin: &mut Client,
    declared: Option<&str>,
) -> Result<f64, pgio_connect::Error> {
    let row = match declared {
        // A bare number means seconds in both.
        Some(value) => {
            admin.query_one("SELECT extract(epoch FROM $1::text::interval)::float8", &[&value])
        }
        None => admin.query_one(
            "SELECT setting::float8 FROM pg_settings WHERE name = 'checkpoint_timeout'",
            &[],
        ),
    };
    Ok(row?.get(0))
}

/// Returns the number of whole cycles in a window, or why the window is refused.
pub(super) fn whole_cycles(extent: Extent, timeout: f64) -> Result<u32, String> {
    let Extent::Time(window) = extent else {
        return Err("checkpoint = \"spread\" needs windows of fixed duration: use duration instead of an amount of work".to_owned());
    };
    let cycles = window.as_secs_f64() / timeout;
    let whole = cycles.round();
    if whole < 1.0 || (cycles - whole).abs() > MAX_DEVIATION {
        return Err(format!(
            "checkpoint = \"spread\" needs windows of whole checkpoint cycles: the window is {} s and checkpoint_timeout {timeout} s; make duration {} s, or set another checkpoint_timeout in every condition",
            window.as_secs_f64(),
            timeout * whole.max(1.0),
        ));
    }
    Ok(whole as u32)
}

/// Checks that the window held its cycles and no other checkpoint. The server publishes a checkpoint late that
/// is still being written at the end, if it is behind its schedule.
pub(super) fn check(trial: &Trial, cycles: u32) -> Check {
    let cycles = f64::from(cycles);
    match trial.metrics.get("checkpoints").and_then(|m| m.value) {
        None => Check::warning(ID, "checkpoints could not be counted", "GRANT pg_monitor TO ROLE"),
        Some(n) if n > cycles || n + 1.0 < cycles => Check::warning(
            ID,
            format!("{n} checkpoints inside a window of {cycles} checkpoint cycles"),
            "raise max_wal_size, so that only checkpoint_timeout triggers checkpoints",
        ),
        Some(_) => Check::ok(ID, format!("whole checkpoint cycles inside the window: {cycles}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        #[test]
        fn every_block_has_every_cell_once(n in 1usize..8, blocks in 1u32..10, seed: u64) {
            let planned = plan(n, blocks, seed);
            for block in 1..=blocks {
                let mut seen: Vec<usize> =
                    planned.iter().filter(|p| p.block == block).map(|p| p.cell).collect();
                seen.sort_unstable();
                prop_assert!(seen.into_iter().eq(0..n));
            }
        }

        #[test]
        fn a_longer_plan_begins_with_the_shorter_one(
            n in 1usize..8, few in 1u32..10, more in 0u32..10, seed: u64,
        ) {
            let short = plan(n, few, seed);
            prop_assert_eq!(&plan(n, few + more, seed)[..short.len()], &short[..]);
        }
    }

    /// Over whole designs, each cell follows each other one equally often.
    #[test]
    fn orders_are_balanced_for_carry_over() {
        for (cells, blocks) in [(2, 2), (3, 6), (3, 12), (4, 8), (5, 10), (6, 6)] {
            for seed in 0..20 {
                let planned = plan(cells, blocks, seed);
                let mut follows = vec![0; cells * cells];
                for pair in planned.windows(2).filter(|pair| pair[0].block == pair[1].block) {
                    follows[pair[1].cell * cells + pair[0].cell] += 1;
                }
                let often = blocks / cells as u32;
                let as_expected = |(at, count): (usize, &u32)| {
                    *count == if at / cells == at % cells { 0 } else { often }
                };
                assert!(follows.iter().enumerate().all(as_expected), "{cells}: {follows:?}");
            }
        }
    }

    #[test]
    fn every_order_of_a_block_is_equally_likely() {
        let mut seen = std::collections::BTreeMap::<Vec<usize>, u32>::new();
        for seed in 0..12_000 {
            let order = plan(4, 3, seed).iter().filter(|p| p.block == 3).map(|p| p.cell).collect();
            *seen.entry(order).or_default() += 1;
        }
        assert_eq!(seen.len(), 24);
        let chi_squared: f64 = seen.values().map(|n| (f64::from(*n) - 500.0).powi(2) / 500.0).sum();
        // The 99.99 % point with 23 degrees of freedom.
        assert!(chi_squared < 59.0, "{seen:?}");
    }

    #[test]
    fn stored_orders_never_change() {
        let cells = |planned: Vec<Planned>| planned.iter().map(|p| p.cell).collect::<Vec<_>>();
        assert_eq!(cells(plan(3, 2, 7)), [1, 0, 2, 0, 1, 2]);
    }

    #[test]
    fn the_seed_decides_the_order() {
        assert_eq!(plan(5, 6, 42), plan(5, 6, 42));
        assert_ne!(plan(5, 6, 42), plan(5, 6, 43));
    }

    #[test]
    fn every_trial_has_a_seed_of_its_own_that_names_decide() {
        let cell = |condition: &str, point: &[(&str, i32)]| Cell {
            condition: condition.to_owned(),
            point: point.iter().map(|(axis, v)| ((*axis).to_owned(), (*v).into())).collect(),
        };
        let mut seeds = std::collections::BTreeSet::new();
        let mut n = 0;
        for workload in ["slob", "commit"] {
            for cell in
                [cell("a", &[]), cell("b", &[]), cell("a", &[("x", 1)]), cell("a", &[("x", 2)])]
            {
                for (block, attempt) in [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)] {
                    let seed = trial_seed(7, workload, &cell, block, attempt);
                    assert_eq!(seed, trial_seed(7, workload, &cell, block, attempt));
                    assert!(seed < 1 << 53);
                    n += 1;
                    seeds.insert(seed);
                }
            }
        }
        assert_eq!(seeds.len(), n, "no two trials share a stream");
        let a = cell("a", &[]);
        assert_ne!(trial_seed(7, "slob", &a, 1, 0), trial_seed(8, "slob", &a, 1, 0));
        // A stored experiment is continued by later versions, so this never changes.
        assert_eq!(trial_seed(7, "slob", &a, 1, 0), 8_945_354_527_159_504);
    }

    #[test]
    fn orders_differ_between_blocks() {
        let planned = plan(4, 20, 1);
        let first: Vec<usize> =
            planned.iter().filter(|p| p.position == 1).map(|p| p.cell).collect();
        assert!((0..4).all(|c| first.contains(&c)), "each cell is first in some block");
    }

    #[test]
    fn only_whole_cycles_are_accepted() {
        let seconds = |s: f64| Extent::Time(Duration::from_secs_f64(s));
        assert_eq!(whole_cycles(seconds(30.0), 30.0), Ok(1));
        assert_eq!(whole_cycles(seconds(600.4), 300.0), Ok(2));
        let error = whole_cycles(seconds(10.0), 300.0).unwrap_err();
        assert!(
            error.contains("the window is 10 s and checkpoint_timeout 300 s; make duration 300 s"),
            "{error}"
        );
        let error = whole_cycles(seconds(750.0), 300.0).unwrap_err();
        assert!(error.contains("make duration 900 s"), "{error}");
        assert!(whole_cycles(Extent::Calls(9), 300.0).unwrap_err().contains("fixed duration"));
    }
}
