//! Which cell runs when: every one once a block, in an order drawn from the seed. A cell is a
//! condition, at a point of the sweep where there is one.
//!
//! Interleaving in randomised blocks is what makes a ratio hold on a machine whose speed drifts
//! (Abedi and Brecht, ICPE 2017): drift hits all conditions of a block alike.

use crate::rng::{SplitMix64, derive};

/// One trial to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Counted from 1.
    pub block: u32,
    /// Within the block, counted from 1.
    pub position: u32,
    /// Index into the experiment's cells, the A/A twin's included.
    pub cell: usize,
    /// The same for all trials of a block, so that they do the same work; 53 bits, which survive
    /// readers that take JSON numbers for doubles.
    pub seed: u64,
    /// How often it was tried before.
    pub attempt: u32,
}

impl Planned {
    /// The same once more, as this attempt.
    pub fn again(self, attempt: u32) -> Planned {
        Planned { attempt, ..self }
    }
}

/// More blocks of the same seed begin with the same ones.
pub fn plan(cells: usize, blocks: u32, seed: u64) -> Vec<Planned> {
    let mut order = SplitMix64::new(derive(seed, "order", 0));
    let mut planned = Vec::new();
    for block in 1..=blocks {
        let mut indices: Vec<usize> = (0..cells).collect();
        order.shuffle(&mut indices);
        for (at, cell) in indices.into_iter().enumerate() {
            planned.push(Planned {
                block,
                position: u32::try_from(at + 1).expect("no sweep has four billion cells"),
                cell,
                seed: derive(seed, "work", u64::from(block)) >> 11,
                attempt: 0,
            });
        }
    }
    planned
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        fn more_blocks_begin_with_the_same_ones(
            n in 1usize..8, few in 1u32..10, more in 0u32..10, seed: u64,
        ) {
            let short = plan(n, few, seed);
            prop_assert_eq!(&plan(n, few + more, seed)[..short.len()], &short[..]);
        }
    }

    #[test]
    fn the_seed_decides_the_order() {
        assert_eq!(plan(5, 6, 42), plan(5, 6, 42));
        assert_ne!(plan(5, 6, 42), plan(5, 6, 43));
    }

    #[test]
    fn orders_differ_between_blocks() {
        let planned = plan(4, 20, 1);
        let first: Vec<usize> =
            planned.iter().filter(|p| p.position == 1).map(|p| p.cell).collect();
        assert!((0..4).all(|c| first.contains(&c)), "each cell is first in some block");
    }
}
