//! Seeded randomness: named streams, and a permutation of keys.
//!
//! All randomness in an experiment (order of conditions, keys, mix of calls) derives from one
//! recorded seed, so that the experiment can be repeated. The generator is in benchmath.

pub use benchmath::rng::{SplitMix64, derive};

/// A seeded permutation of `0..n` without a table: a four-round Feistel network over the next power
/// of four, repeated until the value is inside `0..n` (cycle walking; fewer than four steps on average).
#[derive(Debug, Clone)]
pub struct Permutation {
    n: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    pub fn new(n: u64, seed: u64) -> Permutation {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        let mut stream = SplitMix64::new(seed);
        Permutation {
            n,
            half_bits: bits.div_ceil(2).max(1),
            keys: std::array::from_fn(|_| stream.next_u64()),
        }
    }

    /// Returns the position of `index` in the permutation; `index` must be below `n`.
    pub fn get(&self, index: u64) -> u64 {
        debug_assert!(index < self.n);
        let mut value = self.round_trip(index);
        while value >= self.n {
            value = self.round_trip(value);
        }
        value
    }

    fn round_trip(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            let mixed = SplitMix64::new(right ^ key).next_u64() & mask;
            (left, right) = (right, left ^ mixed);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn seeds_differ_by_purpose_and_index() {
        let seeds = [derive(1, "order", 0), derive(1, "order", 1), derive(1, "keys", 0)];
        assert!(seeds[0] != seeds[1] && seeds[0] != seeds[2] && seeds[1] != seeds[2]);
        assert_eq!(derive(7, "keys", 3), derive(7, "keys", 3));
    }

    #[test]
    fn neighbors_are_scattered() {
        let p = Permutation::new(100_000, 42);
        let near = (0..99_999).filter(|i| p.get(*i).abs_diff(p.get(i + 1)) < 100).count();
        assert!(near < 400, "{near} of 99,999 neighbors stayed close: about 200 are expected");
    }

    proptest! {
        #[test]
        fn every_value_appears_once(n in 1u64..3000, seed: u64) {
            let p = Permutation::new(n, seed);
            let mut seen: Vec<u64> = (0..n).map(|i| p.get(i)).collect();
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..n));
        }
    }
}
