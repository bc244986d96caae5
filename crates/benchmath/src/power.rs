//! Planning: the smallest effect that a number of blocks can detect, and the number of blocks that
//! an effect needs.
//!
//! Source: the sample-size formula of the t test, n = ((t_a + t_b) s / d)^2, iterated because t
//! depends on n (Kupper and Hafner, American Statistician 43(2), 1989). It uses the level that the
//! signed-rank test attains and divides by the test's efficiency relative to t, 3/pi for normal
//! data (Hodges and Lehmann, Annals of Mathematical Statistics 27(2), 1956). Assumption: log-ratios
//! are normal with the given standard deviation; `spread` estimates it from all conditions, with a
//! bound for its error. The effect must be chosen in advance: a number of blocks planned from an
//! effect just estimated is noise.

use std::f64::consts::PI;

use statrs::distribution::{ContinuousCDF, Normal};

use crate::summary::assert_probability;
use crate::{signed_rank, student};

/// Planned power: the effect is detected in 80 % of experiments.
pub const PLANNED_POWER: f64 = 0.8;

/// Maximum number of blocks; an effect that needs more cannot be detected in practice.
pub const MAX_BLOCKS: u32 = 100_000;

/// With more blocks, the signed-rank test attains the usual levels to within 3 %.
const EXACT_UP_TO: usize = 60;

/// The approximate level at which one of `members` comparisons of a family is judged with `n`
/// blocks: its share of alpha, but not less than the smallest possible p, where sizes break ties.
pub fn level_in_family(alpha: f64, members: usize, n: usize) -> f64 {
    let share = alpha / members.max(1) as f64;
    let smallest = signed_rank::smallest_p(n);
    if smallest <= alpha { share.max(smallest) } else { alpha }
}

/// The fewest blocks with which no member of a family of `members` comparisons needs a tie to be broken: its
/// smallest p is at most its share of alpha. With fewer, sizes decide, and one noisy member has the largest.
///
/// # Panics
///
/// Unless alpha is between 0 and 1.
pub fn blocks_without_ties(alpha: f64, members: usize) -> usize {
    signed_rank::min_values(alpha / members.max(1) as f64)
}

/// The smallest relative change that `n` blocks detect with probability `power`: 0.04 means a ratio
/// of 1.04 or 1/1.04. `None` if n blocks cannot reject at all, or without a usable sd.
///
/// # Panics
///
/// Unless alpha and power are between 0 and 1.
pub fn minimum_detectable_change(sd_log: f64, n: usize, alpha: f64, power: f64) -> Option<f64> {
    let usable = sd_log >= 0.0 && sd_log.is_finite();
    detectable_in_sds(n, alpha, power, false).filter(|_| usable).map(|d| (d * sd_log).exp_m1())
}

/// The same for one of `members` comparisons that are judged together at level `alpha`. It never grows with the number of blocks:
/// where the levels that p can take are so coarse that the formula says so, fewer of the blocks suffice.
///
/// # Panics
///
/// Unless alpha and power are between 0 and 1.
pub fn minimum_detectable_in_family(
    sd_log: f64,
    n: usize,
    alpha: f64,
    members: usize,
    power: f64,
) -> Option<f64> {
    let usable = sd_log >= 0.0 && sd_log.is_finite();
    let power_at =
        |n: usize| detectable_in_sds(n, level_in_family(alpha, members, n), power, members > 1);
    let fewer =
        (signed_rank::min_values(alpha)..=n.min(EXACT_UP_TO)).chain([n]).filter_map(power_at);
    fewer.reduce(f64::min).filter(|_| usable).map(|d| (d * sd_log).exp_m1())
}

/// The fewest blocks for which [`minimum_detectable_in_family`] is at most `change`; `None` if more than
/// [`MAX_BLOCKS`] are needed.
///
/// # Panics
///
/// Unless alpha and power are between 0 and 1.
pub fn blocks_needed_in_family(
    change: f64,
    sd_log: f64,
    alpha: f64,
    members: usize,
    power: f64,
) -> Option<u32> {
    let detects = |n: u32| {
        let least = minimum_detectable_in_family(sd_log, n as usize, alpha, members, power);
        least.is_some_and(|least| least <= change)
    };
    fewest_above(0, detects)
}

/// The minimum number of blocks that detects an effect of `effect_log` (the log of a ratio) with
/// probability `power`. `None` for no effect, if more than [`MAX_BLOCKS`] are needed, or without a
/// usable sd.
///
/// # Panics
///
/// Unless alpha and power are between 0 and 1.
pub fn blocks_needed(effect_log: f64, sd_log: f64, alpha: f64, power: f64) -> Option<u32> {
    let usable = sd_log >= 0.0 && sd_log.is_finite() && effect_log.is_finite();
    if !usable || effect_log == 0.0 {
        return None;
    }
    let detects = |n: u32| {
        let least = detectable_in_sds(n as usize, alpha, power, false);
        least.is_some_and(|d| d * sd_log <= effect_log.abs())
    };
    let fewest = signed_rank::min_values(alpha) as u32;
    let exact_up_to = (EXACT_UP_TO as u32).max(fewest);
    if let Some(n) = (fewest..=exact_up_to).find(|n| detects(*n)) {
        return Some(n);
    }
    // From here on more blocks always detect smaller effects.
    fewest_above(exact_up_to, detects)
}

/// The fewest blocks that suffice, if more always do and so many do not; `None` if more than [`MAX_BLOCKS`] are needed.
fn fewest_above(mut too_few: u32, detects: impl Fn(u32) -> bool) -> Option<u32> {
    let mut enough = MAX_BLOCKS;
    if !detects(enough) {
        return None;
    }
    while enough - too_few > 1 {
        let middle = u32::midpoint(too_few, enough);
        if detects(middle) { enough = middle } else { too_few = middle }
    }
    Some(enough)
}

/// The smallest shift, in standard deviations of the log-ratios, that is detected with probability
/// `power`; `None` if n values cannot reject. In a family, sizes break ties at the next p above alpha.
fn detectable_in_sds(n: usize, alpha: f64, power: f64, in_family: bool) -> Option<f64> {
    assert_probability("power", power);
    let (count, level) = if n <= EXACT_UP_TO {
        signed_rank::rejection(n, alpha)?
    } else if n >= signed_rank::min_values(alpha) {
        (usize::MAX, alpha)
    } else {
        return None;
    };
    let breaks_ties = in_family && level < alpha;
    let level = if count == 0 && breaks_ties { alpha } else { level };
    if count == 0 && !breaks_ties {
        // The test rejects only if all blocks are on one side, which has an exact solution. With
        // six blocks, the most common number, the formula below would promise an effect 10 % too
        // small.
        return Some(Normal::standard().inverse_cdf(power.powf(1.0 / n as f64)));
    }
    let freedom = (n - 1) as f64;
    let t = student::quantile(1.0 - level / 2.0, freedom) + student::quantile(power, freedom);
    Some(t / (n as f64 * 3.0 / PI).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::rng::normal;

    #[test]
    fn planned_power_is_reached() {
        let mut rng = SplitMix64::new(5);
        for n in [6, 7, 8, 10, 15] {
            let shift = detectable_in_sds(n, 0.05, 0.8, false).unwrap();
            let experiments = 2_000;
            let detected = (0..experiments)
                .filter(|_| {
                    let values: Vec<f64> = (0..n).map(|_| shift + normal(&mut rng)).collect();
                    signed_rank::test(&values, 0.05).unwrap().p <= 0.05
                })
                .count();
            let power = detected as f64 / f64::from(experiments);
            // Three standard errors are 0.027.
            assert!((power - 0.8).abs() < 0.035, "{n} blocks: {power}");
        }
    }

    #[test]
    fn known_answers() {
        // Six blocks: 0.8^(1/6) = 0.96350, whose normal quantile is 1.793.
        let change = minimum_detectable_change(0.03, 6, 0.05, 0.8).unwrap();
        assert!((change - (0.03f64 * 1.793).exp_m1()).abs() < 1e-4, "{change}");
        // Half a standard deviation: (2.037 + 0.853)^2 / 0.25 = 33.4 pairs for t; times pi / 3.
        assert_eq!(blocks_needed(0.5, 1.0, 0.05, 0.8), Some(35));
        assert_eq!(blocks_needed(-0.5, 1.0, 0.05, 0.8), Some(35));
        assert_eq!(blocks_needed(0.7, 0.02, 0.05, 0.8), Some(6));
        assert_eq!(blocks_needed(0.7, 0.02, 0.01, 0.8), Some(8));
        assert_eq!(blocks_needed(0.7, 0.0, 0.05, 0.8), Some(6));
    }

    #[test]
    fn more_members_need_more_blocks_without_ties() {
        let fewest = [1, 2, 3, 4, 6, 7, 12, 13, 25, 26].map(|m| blocks_without_ties(0.05, m));
        assert_eq!(fewest, [6, 7, 7, 8, 8, 9, 9, 10, 10, 11]);
    }

    #[test]
    fn an_undetectable_effect_is_none() {
        assert_eq!(minimum_detectable_change(0.03, 5, 0.05, 0.8), None);
        assert_eq!(minimum_detectable_change(f64::NAN, 6, 0.05, 0.8), None);
        assert_eq!(minimum_detectable_change(0.0, 6, 0.05, 0.8), Some(0.0));
        assert_eq!(blocks_needed(0.0, 0.03, 0.05, 0.8), None);
        assert_eq!(blocks_needed(f64::NAN, 0.03, 0.05, 0.8), None);
        assert_eq!(blocks_needed(0.1, f64::INFINITY, 0.05, 0.8), None);
        assert_eq!(blocks_needed(1e-6, 1.0, 0.05, 0.8), None);
    }

    #[test]
    fn the_smallest_detectable_effect_does_not_grow_with_the_blocks() {
        for members in [1, 2, 4, 8, 20] {
            let least = |n: usize| minimum_detectable_in_family(0.07, n, 0.05, members, 0.8);
            let all: Vec<f64> = (6..100).map(|n| least(n).unwrap()).collect();
            assert!(all.windows(2).all(|pair| pair[1] <= pair[0]), "{members}: {all:?}");
            assert_eq!(least(5), None);
            for n in [6, 8, 9, 30, 200] {
                let change = least(n).unwrap();
                let needed = blocks_needed_in_family(change, 0.07, 0.05, members, 0.8).unwrap();
                assert!(
                    needed as usize <= n && least(needed as usize) == Some(change),
                    "{needed} {n}"
                );
            }
        }
    }

    /// The two functions are inverse to each other, on both sides of the switch of the search
    /// method.
    #[test]
    fn blocks_and_change_agree() {
        for effect in [0.3, 0.12, 0.08, 0.079, 0.05, 0.01, 0.002] {
            let n = blocks_needed(effect, 0.2, 0.05, 0.8).unwrap() as usize;
            let change = |n| minimum_detectable_change(0.2, n, 0.05, 0.8).unwrap();
            assert!(change(n) <= effect.exp_m1(), "{effect}: {n}");
            assert!(n == 6 || change(n - 1) > effect.exp_m1(), "{effect}: {n}");
        }
    }
}
