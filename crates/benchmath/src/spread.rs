//! Estimates the noise between equal trials of a block, pooled over all conditions, for planning.
//!
//! The model for the logs of a rate is condition + block + noise (the two-way layout without
//! interaction: H. Scheffe, The Analysis of Variance, Wiley 1959, chapter 4), fitted by alternating
//! means, which also handles blocks with missing trials. The standard deviation of a log-ratio of
//! two trials is sqrt(2) times the noise's. Assumption: the noise is about the same under all
//! conditions. Six blocks of one A/A pair estimate the spread to within a factor of 0.5 to 1.5;
//! pooled over eight conditions, 0.8 to 1.2.

use statrs::distribution::{ChiSquared, ContinuousCDF, FisherSnedecor};

use crate::summary;

/// Probability that the true value exceeds the bound.
pub const BOUND: f64 = 0.1;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Standard deviation of the log-ratio of two trials of one block.
    pub sd_log: f64,
    /// Its 90 % upper bound.
    pub upper: f64,
    /// Degrees of freedom.
    pub freedom: usize,
}

/// Estimates the spread from the logs of each condition's trials, each with its block number.
/// `None` without two conditions that have two blocks in common, or if all trials are equal.
pub fn pooled(conditions: &[Vec<(u32, f64)>]) -> Option<Spread> {
    let mut residuals: Vec<(usize, u32, f64)> = Vec::new();
    for (condition, trials) in conditions.iter().enumerate() {
        residuals.extend(trials.iter().map(|(block, log)| (condition, *block, *log)));
    }
    if residuals.iter().any(|(_, _, log)| !log.is_finite()) {
        return None;
    }
    let count = |mut keys: Vec<u32>| {
        keys.sort_unstable();
        keys.dedup();
        keys.len()
    };
    let rows = count(residuals.iter().map(|r| r.0 as u32).collect());
    let blocks = count(residuals.iter().map(|r| r.1).collect());
    let freedom = (residuals.len() + 1).checked_sub(rows + blocks).filter(|f| *f > 0)?;
    // Complete layouts need one round; incomplete ones converge quickly.
    for _ in 0..20 {
        subtract_means(&mut residuals, |r| r.0 as u32);
        subtract_means(&mut residuals, |r| r.1);
    }
    let squares: f64 = residuals.iter().map(|r| r.2 * r.2).sum();
    bounded((2.0 * squares / freedom as f64).sqrt(), freedom)
}

/// The spread of one pair of conditions: the sample standard deviation of its log-ratios in so many blocks. For
/// conditions of unequal noise, which must not be pooled. `None` for fewer than two blocks, or without spread.
pub fn from_pair(sd_log: f64, blocks: usize) -> Option<Spread> {
    bounded(sd_log, blocks.checked_sub(1).filter(|f| *f > 0)?)
}

/// Spreads that differ by less are pooled: one pair alone estimates its spread poorly.
pub const UNEQUAL: f64 = 3.0;

/// With fewer degrees of freedom, a pair that happens to vary little says nothing.
const MIN_FREEDOM: usize = 3;

/// Whether the largest spread of several pairs is three times the smallest or more, and not by chance: by an F test at
/// 5 %, adjusted for the choice of the two among all (Bonferroni).
pub fn are_unequal(pairs: &[Spread]) -> bool {
    let by_sd = |a: &&Spread, b: &&Spread| a.sd_log.total_cmp(&b.sd_log);
    let (Some(least), Some(most)) = (pairs.iter().min_by(by_sd), pairs.iter().max_by(by_sd)) else {
        return false;
    };
    let ratio = most.sd_log / least.sd_log;
    let choices = (pairs.len() * (pairs.len() - 1)) as f64;
    let f = FisherSnedecor::new(most.freedom as f64, least.freedom as f64);
    let is_known = least.freedom.min(most.freedom) >= MIN_FREEDOM;
    is_known && ratio >= UNEQUAL && f.is_ok_and(|f| f.sf(ratio * ratio) * choices <= 0.05)
}

fn bounded(sd_log: f64, freedom: usize) -> Option<Spread> {
    let low = ChiSquared::new(freedom as f64).ok()?.inverse_cdf(BOUND);
    let upper = sd_log * (freedom as f64 / low).sqrt();
    (sd_log > 0.0 && upper.is_finite()).then_some(Spread { sd_log, upper, freedom })
}

fn subtract_means(residuals: &mut [(usize, u32, f64)], key: impl Fn(&(usize, u32, f64)) -> u32) {
    residuals.sort_by_key(|r| key(r));
    for group in residuals.chunk_by_mut(|a, b| key(a) == key(b)) {
        let values: Vec<f64> = group.iter().map(|r| r.2).collect();
        let mean = summary::mean(&values).unwrap_or(0.0);
        group.iter_mut().for_each(|r| r.2 -= mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::rng::normal;

    fn layout(rng: &mut SplitMix64, conditions: usize, n: u32, sd: f64) -> Vec<Vec<(u32, f64)>> {
        let drift: Vec<f64> = (0..n).map(|_| normal(rng)).collect();
        (0..conditions)
            .map(|c| {
                (1..=n).map(|b| (b, c as f64 + drift[b as usize - 1] + sd * normal(rng))).collect()
            })
            .collect()
    }

    /// Drift between blocks and differences between conditions do not affect the estimate; the
    /// bound has its nominal level.
    #[test]
    fn the_noise_is_estimated_without_drift_and_effects() {
        let mut rng = SplitMix64::new(2);
        let truth = 0.02 * 2f64.sqrt();
        let (mut sum, mut exceeded) = (0.0, 0);
        for _ in 0..1_000 {
            let spread = pooled(&layout(&mut rng, 8, 6, 0.02)).unwrap();
            assert_eq!(spread.freedom, 35);
            sum += spread.sd_log / truth;
            exceeded += u32::from(spread.upper < truth);
        }
        assert!((sum / 1_000.0 - 1.0).abs() < 0.02, "{sum}");
        assert!((70..=130).contains(&exceeded), "{exceeded}");
    }

    #[test]
    fn missing_trials_reduce_the_degrees_of_freedom() {
        let mut rng = SplitMix64::new(3);
        let mut sum = 0.0;
        for _ in 0..500 {
            let mut all = layout(&mut rng, 3, 8, 0.05);
            all[1].remove(2);
            all[2].truncate(5);
            let spread = pooled(&all).unwrap();
            assert_eq!(spread.freedom, 20 - 3 - 8 + 1);
            sum += (spread.sd_log / 0.05).powi(2) / 2.0;
        }
        assert!((sum / 500.0 - 1.0).abs() < 0.06, "{sum}");
    }

    #[test]
    fn spreads_of_pairs_are_unequal_if_chance_does_not_explain_it() {
        let unequal = |sds: &[f64], blocks: usize| {
            let all: Vec<Spread> = sds.iter().map(|sd| from_pair(*sd, blocks).unwrap()).collect();
            are_unequal(&all)
        };
        assert!(unequal(&[0.01, 0.012, 0.011, 0.5], 6));
        assert!(unequal(&[0.01, 0.012, 0.011, 0.032], 10) && !unequal(&[0.01, 0.028], 100));
        assert!(!unequal(&[0.01, 0.012, 0.011, 0.032], 4), "too few blocks to tell");
        assert!(!unequal(&[0.01], 6) && !unequal(&[], 6));
    }

    #[test]
    fn too_few_trials_have_no_spread() {
        assert_eq!(pooled(&[]), None);
        assert_eq!(pooled(&[vec![(1, 1.0), (2, 1.1)]]), None);
        assert_eq!(pooled(&[vec![(1, 1.0)], vec![(1, 1.1)]]), None);
        assert_eq!(pooled(&[vec![(1, 1.0), (2, 1.0)], vec![(1, 1.0), (2, 1.0)]]), None);
        assert_eq!(pooled(&[vec![(1, f64::NAN), (2, 1.0)], vec![(1, 1.0), (2, 1.0)]]), None);
    }
}
