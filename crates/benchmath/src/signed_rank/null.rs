//! The null distribution of the signed-rank statistic.
//!
//! T sums a random subset of the ranks 1..n, each included with probability 1/2. Up to
//! [`EXACT_UP_TO`] values its distribution is computed exactly, rank by rank, and cached for the
//! next comparison with the same number of blocks. With more values, the normal distribution with
//! continuity correction replaces it, which is then within 1 % of a tail of 2.5 % (verified by a
//! test).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use statrs::distribution::{ContinuousCDF, Normal};

/// The table for this many values has 45,151 numbers and takes about ten milliseconds to compute.
const EXACT_UP_TO: usize = 300;

#[derive(Debug, Clone)]
pub(crate) struct Null {
    n: usize,
    /// P(T <= t) for t = 0, 1, .. n (n + 1) / 2; `None` above [`EXACT_UP_TO`].
    tail: Option<Arc<[f64]>>,
}

impl Null {
    pub(crate) fn new(n: usize) -> Null {
        static TABLES: Mutex<BTreeMap<usize, Arc<[f64]>>> = Mutex::new(BTreeMap::new());
        let tail = (n <= EXACT_UP_TO).then(|| {
            // A panic cannot leave an incomplete table, because tables are inserted complete.
            let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
            tables.entry(n).or_insert_with(|| exact(n).into()).clone()
        });
        Null { n, tail }
    }

    /// Both p and interval use this function, so that rounding cannot make them disagree.
    pub(crate) fn two_sided(&self, lesser: usize) -> f64 {
        (2.0 * self.at_most(lesser)).min(1.0)
    }

    /// The largest lesser count that rejects at level alpha.
    pub(crate) fn largest_rejecting(&self, alpha: f64) -> Option<usize> {
        let (mut rejecting, mut beyond) = (0, self.n * (self.n + 1) / 2 + 1);
        while rejecting < beyond {
            let middle = rejecting.midpoint(beyond);
            if self.two_sided(middle) <= alpha { rejecting = middle + 1 } else { beyond = middle }
        }
        rejecting.checked_sub(1)
    }

    /// One-sided p: the probability of a count of at most `t` on one side.
    pub(crate) fn at_most(&self, t: usize) -> f64 {
        match &self.tail {
            Some(tail) => tail[t.min(tail.len() - 1)],
            None => normal(self.n, t),
        }
    }
}

/// Exact while 2^n fits the 53 bits of an f64; with rounding errors beyond.
fn exact(n: usize) -> Vec<f64> {
    let mut chance = vec![0.0; n * (n + 1) / 2 + 1];
    chance[0] = 1.0;
    let mut highest = 0;
    for rank in 1..=n {
        highest += rank;
        for t in (0..=highest).rev() {
            let with_rank = if t >= rank { chance[t - rank] } else { 0.0 };
            chance[t] = 0.5 * (chance[t] + with_rank);
        }
    }
    let mut sum = 0.0;
    for probability in &mut chance {
        sum += *probability;
        *probability = sum;
    }
    chance
}

fn normal(n: usize, t: usize) -> f64 {
    let n = n as f64;
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0;
    let z = (t as f64 + 0.5 - n * (n + 1.0) / 4.0) / variance.sqrt();
    Normal::standard().cdf(z)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_accurate_with_many_values() {
        let tail = exact(200);
        assert!((tail[tail.len() - 1] - 1.0).abs() < 1e-12);
        // Symmetric about 200 * 201 / 4, with an atom there.
        let middle = 200 * 201 / 4;
        assert!((tail[middle] + tail[middle - 1] - 1.0).abs() < 1e-12);
        assert!(tail.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn the_normal_approximation_is_accurate_where_it_is_used() {
        let n = EXACT_UP_TO;
        let tail = exact(n);
        for level in [0.01, 0.025, 0.25, 0.5] {
            let t = tail.partition_point(|p| *p <= level);
            assert!((normal(n, t) / tail[t] - 1.0).abs() < 0.01, "{level}");
        }
        let counts = [n, n + 1].map(|n| Null::new(n).largest_rejecting(0.05).unwrap());
        assert!(counts[1] > counts[0] && counts[1] < counts[0] + n, "{counts:?}");
    }
}
