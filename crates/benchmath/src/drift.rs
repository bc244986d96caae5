//! Tests whether values rise or fall over the blocks of an experiment.
//!
//! The test is the one of Mann and Kendall (Mann, Econometrica 13(3), 1945; Kendall, Rank Correlation
//! Methods, 1975), summed over several series of the same blocks as Hirsch, Slack and Smith sum it over
//! seasons (Water Resources Research 18(1), 1982): each series is compared with itself only, so series
//! of different levels and units can be pooled. The p value comes from permuting whole blocks, which
//! leaves any dependence between the series of a block intact: exactly up to [`MAX_EXACT_BLOCKS`] blocks,
//! beyond by the normal distribution with the variance of that permutation. The size of the change is the
//! Theil-Sen slope (Sen, JASA 63(324), 1968).
//!
//! Assumption: without a drift, blocks are exchangeable. Next: [`crate::steady`] does the same inside a
//! window, where neighbors depend on each other.

use statrs::distribution::{ContinuousCDF, Normal};

use crate::summary;

/// The p value is exact for at most this many blocks.
pub const MAX_EXACT_BLOCKS: usize = 8;

/// With fewer blocks, even values in perfect order have a p above 0.05.
pub const MIN_BLOCKS: usize = 5;

/// Time and memory grow with the square of the number of blocks, so more blocks than this are tested as the
/// means of runs of consecutive ones.
pub const MAX_BLOCKS: usize = 256;

/// A drift over the blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    pub blocks: usize,
    /// Kendall's tau over all series: 1 if all values rise from block to block, -1 if all fall.
    pub tau: f64,
    /// Change per block, in the unit of the values: the median over all pairs of blocks (or of runs of blocks,
    /// by the distance of their centers) and all series.
    pub slope: f64,
    /// Two-sided.
    pub p: f64,
}

/// Tests series of finite values, all over the same blocks in their order; `None` is a missing value.
/// Returns `None` with fewer than [`MIN_BLOCKS`] blocks, or if no two values of a series differ.
pub fn test(series: &[Vec<Option<f64>>]) -> Option<Drift> {
    let all = series.iter().map(Vec::len).max().filter(|n| *n >= MIN_BLOCKS)?;
    let length = all.div_ceil(MAX_BLOCKS);
    let runs: Vec<Vec<Option<f64>>> = series.iter().map(|values| means(values, length)).collect();
    let blocks = all.div_ceil(length);
    let center = |run: usize| {
        let (first, end) = (run * length, all.min((run + 1) * length));
        (first + end - 1) as f64 / 2.0
    };
    let mut signs = vec![vec![0.0; blocks]; blocks];
    let (mut slopes, mut pairs) = (Vec::new(), 0.0);
    for values in &runs {
        for (i, early) in values.iter().enumerate() {
            for (j, late) in values.iter().enumerate().skip(i + 1) {
                let (Some(early), Some(late)) = (early, late) else { continue };
                let sign = f64::from(i8::from(late > early) - i8::from(late < early));
                signs[i][j] += sign;
                signs[j][i] -= sign;
                slopes.push((late - early) / (center(j) - center(i)));
                pairs += 1.0;
            }
        }
    }
    let squares: f64 = signs.iter().flatten().map(|sign| sign * sign).sum();
    if squares == 0.0 {
        return None;
    }
    let sum: f64 = (0..blocks).map(|i| signs[i][i + 1..].iter().sum::<f64>()).sum();
    let p =
        if blocks <= MAX_EXACT_BLOCKS { exact(&signs, sum) } else { normal(&signs, squares, sum) };
    Some(Drift { blocks: all, tau: sum / pairs, slope: summary::median(&slopes)?, p })
}

/// The means of runs of this many values; those that are missing do not count.
fn means(values: &[Option<f64>], length: usize) -> Vec<Option<f64>> {
    let mean = |run: &[Option<f64>]| {
        let present: Vec<f64> = run.iter().copied().flatten().collect();
        summary::mean(&present)
    };
    values.chunks(length).map(mean).collect()
}

/// The share of all orders of the blocks whose sum is at least as far from 0.
fn exact(signs: &[Vec<f64>], sum: f64) -> f64 {
    let mut counts = Counts { at_least: 0.0, all: 0.0, sum: sum.abs() };
    let mut left: Vec<usize> = (0..signs.len()).collect();
    counts.extend(signs, &mut Vec::new(), &mut left, 0.0);
    counts.at_least / counts.all
}

struct Counts {
    at_least: f64,
    all: f64,
    sum: f64,
}

impl Counts {
    /// Counts all orders that begin with the blocks in `placed`, whose own sum is known.
    fn extend(
        &mut self,
        signs: &[Vec<f64>],
        placed: &mut Vec<usize>,
        left: &mut Vec<usize>,
        sum: f64,
    ) {
        if left.is_empty() {
            self.all += 1.0;
            self.at_least += f64::from(u8::from(sum.abs() >= self.sum));
        }
        for at in 0..left.len() {
            let next = left.swap_remove(at);
            let added: f64 = placed.iter().map(|before| signs[*before][next]).sum();
            placed.push(next);
            self.extend(signs, placed, left, sum + added);
            placed.pop();
            left.push(next);
            let last = left.len() - 1;
            left.swap(at, last);
        }
    }
}

/// Over all orders of the blocks, the signs of two pairs of blocks are uncorrelated unless the pairs share
/// a block; then their correlation is 1/3. This gives Kendall's variance n (n - 1) (2 n + 5) / 18 for one
/// series without ties, and the one of Dietz and Killeen (JASA 76(373), 1981) for several.
fn normal(signs: &[Vec<f64>], squares: f64, sum: f64) -> f64 {
    let block_sums: f64 = signs.iter().map(|row| row.iter().sum::<f64>().powi(2)).sum();
    let deviation = (squares / 6.0 + block_sums / 3.0).sqrt();
    // Sums of one series without ties differ by 2, so half of that is the continuity correction.
    let z = (sum.abs() - 1.0).max(0.0) / deviation;
    let standard = Normal::standard();
    (2.0 * standard.cdf(-z)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::rng::normal as noise;

    fn p(values: &[f64]) -> f64 {
        test(&[values.iter().copied().map(Some).collect()]).unwrap().p
    }

    #[test]
    fn known_answers() {
        // Kendall 1975, table 1: for n = 6, P(S >= 13) = 0.0083, P(S >= 15) = 0.0014.
        assert!((p(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) - 2.0 / 720.0).abs() < 1e-12);
        assert!((p(&[1.0, 2.0, 3.0, 4.0, 6.0, 5.0]) - 12.0 / 720.0).abs() < 1e-12);
        // S = 8 of 10 pairs for n = 5: P(S >= 8) = 0.042.
        assert!((p(&[2.0, 1.0, 3.0, 4.0, 5.0]) - 10.0 / 120.0).abs() < 1e-12);
        // Without ties, n (n - 1) (2 n + 5) / 18 = 268.67 for n = 13, and S = 78.
        let rising: Vec<f64> = (0..13).map(f64::from).collect();
        let z = 77.0 / (13.0 * 12.0 * 31.0 / 18.0f64).sqrt();
        assert!((p(&rising) - 2.0 * Normal::standard().cdf(-z)).abs() < 1e-12);
        let falling: Vec<Option<f64>> = (0..6).map(|n| Some(7.0 - 0.5 * f64::from(n))).collect();
        let found = test(&[falling]).unwrap();
        assert_eq!((found.blocks, found.tau, found.slope), (6, -1.0, -0.5));
    }

    #[test]
    fn many_blocks_are_tested_as_means_of_consecutive_ones() {
        let falling: Vec<Option<f64>> = (0..1001).map(|n| Some(f64::from(n) * -0.001)).collect();
        let mut late = falling.clone();
        late[..5].fill(None);
        let runs = means(&late, 4);
        assert_eq!((runs.len(), runs[0]), (251, None));
        assert!((runs[1].unwrap() + 0.006).abs() < 1e-12, "the mean of three: {:?}", runs[1]);
        // The last run holds one block only, which must not bend the slope.
        let found = test(&[falling]).unwrap();
        assert_eq!((found.blocks, found.tau), (1001, -1.0));
        assert!((found.slope + 0.001).abs() < 1e-12, "{}", found.slope);
    }

    #[test]
    fn the_normal_approximation_continues_the_exact_p() {
        let mut rng = SplitMix64::new(5);
        let mut worst: f64 = 0.0;
        for _ in 0..40 {
            let series: Vec<Vec<Option<f64>>> =
                (0..3).map(|_| (0..8).map(|_| Some(noise(&mut rng))).collect()).collect();
            let mut signs = vec![vec![0.0; 8]; 8];
            for values in &series {
                for (i, j) in (0..64).map(|n| (n / 8, n % 8)).filter(|(i, j)| i != j) {
                    signs[i][j] += (values[j].unwrap() - values[i].unwrap()).signum();
                }
            }
            let squares = signs.iter().flatten().map(|s: &f64| s * s).sum();
            let sum = (0..8).map(|i| signs[i][i + 1..].iter().sum::<f64>()).sum();
            worst = worst.max((exact(&signs, sum) - normal(&signs, squares, sum)).abs());
        }
        assert!(worst < 0.05, "{worst}");
    }

    /// Blocks of four conditions whose noise they share in part.
    fn layout(rng: &mut SplitMix64, blocks: usize, drift: f64) -> Vec<Vec<Option<f64>>> {
        let mut series = vec![Vec::new(); 4];
        for block in 0..blocks {
            let shared = noise(rng);
            for (level, values) in (0..).map(f64::from).zip(&mut series) {
                let missing = rng.below(20) == 0;
                let value = 10.0 * level + shared + noise(rng) + drift * block as f64;
                values.push((!missing).then_some(value));
            }
        }
        series
    }

    /// The shares of runs with a p of at most 5 % and of at most 1 %.
    fn found(rng: &mut SplitMix64, blocks: usize, drift: f64, runs: usize) -> [f64; 2] {
        let layouts = (0..runs).map(|_| test(&layout(rng, blocks, drift)));
        let values: Vec<f64> = layouts.map(|found| found.map_or(1.0, |drift| drift.p)).collect();
        [0.05, 0.01]
            .map(|level| values.iter().filter(|p| **p <= level).count() as f64 / runs as f64)
    }

    /// Without a drift no more are accused than the level says, although the conditions of a block depend on
    /// each other.
    #[test]
    fn size_and_power_by_simulation() {
        let mut rng = SplitMix64::new(11);
        for (blocks, runs) in [(6, 1_500), (7, 500), (10, 2_000), (30, 1_000)] {
            let sizes = found(&mut rng, blocks, 0.0, runs);
            for (size, level) in sizes.into_iter().zip([0.05, 0.01]) {
                // Three standard errors.
                let limit = level + 3.0 * (level * (1.0 - level) / runs as f64).sqrt();
                assert!(size <= limit, "{blocks} blocks: {size} at {level}");
            }
            assert!(sizes[0] > 0.015, "{blocks} blocks: {sizes:?}");
        }
        // A drift by one standard deviation of a value from block to block.
        assert!(found(&mut rng, 6, 1.4, 300)[0] > 0.85);
        assert!(found(&mut rng, 12, 0.7, 300)[0] > 0.9);
    }

    #[test]
    fn a_late_cliff_is_found() {
        let mut rng = SplitMix64::new(12);
        let with_cliff = |series: Vec<Vec<Option<f64>>>| -> Vec<Vec<Option<f64>>> {
            // Four standard deviations, in the last third.
            let lower =
                |(at, v): (usize, Option<f64>)| v.map(|v| v - if at < 8 { 0.0 } else { 5.7 });
            series.into_iter().map(|s| s.into_iter().enumerate().map(lower).collect()).collect()
        };
        let found = |_: &u32| test(&with_cliff(layout(&mut rng, 12, 0.0))).unwrap().p <= 0.05;
        let share = (0..300u32).filter(found).count();
        // Only the pairs across the cliff differ.
        assert!(share > 210, "{share} of 300");
    }

    #[test]
    fn drift_test_has_no_result_for_short_constant_or_missing_values() {
        assert_eq!(test(&[]), None);
        assert_eq!(test(&[vec![Some(1.0), Some(2.0), Some(3.0), Some(4.0)]]), None);
        assert_eq!(test(&[vec![Some(1.0); 9]]), None);
        assert_eq!(test(&[vec![None; 6], vec![None; 6]]), None);
    }
}
