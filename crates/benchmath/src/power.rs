//! Planning: how small an effect so many blocks can show, and how many blocks an effect needs.
//!
//! Source: the sample-size formula of the t test, n = ((t_a + t_b) s / d)^2, iterated because t
//! depends on n (Kupper and Hafner, American Statistician 43(2), 1989), for the level that the
//! signed-rank test really attains, and divided by its efficiency relative to t, 3/pi for normal
//! data (Hodges and Lehmann, Annals of Mathematical Statistics 27(2), 1956).
//! Assumption: normal log-ratios whose standard deviation is the one given; `spread` gives one that is
//! pooled over all conditions, with a bound for its own error. The effect is one that somebody names
//! beforehand: planned from the effect that was just estimated, the number of blocks is noise.

use std::f64::consts::PI;

use statrs::distribution::{ContinuousCDF, Normal};

use crate::interval::assert_probability;
use crate::{signed_rank, student};

/// The power that is planned for: four times in five.
pub const PLANNED_POWER: f64 = 0.8;

/// More blocks than this nobody runs: the answer is then "this cannot be shown".
pub const MOST_BLOCKS: u32 = 100_000;

/// Beyond this many blocks the signed-rank test attains the usual levels to within 3 % of them.
const EXACT_UP_TO: usize = 60;

/// The level at which one of `members` comparisons of a family is about judged with `n` blocks:
/// its share of alpha, but no less than the smallest p there is, where sizes decide instead.
pub fn level_in_family(alpha: f64, members: usize, n: usize) -> f64 {
    let share = alpha / members.max(1) as f64;
    let smallest = signed_rank::smallest_p(n);
    if smallest <= alpha { share.max(smallest) } else { alpha }
}

/// The smallest relative change that `n` blocks show with probability `power`: 0.04 stands for a
/// ratio of 1.04 or of 1/1.04. `None` when n blocks cannot reject at all, or without a usable sd.
///
/// # Panics
///
/// Unless alpha and power lie between 0 and 1.
pub fn minimum_detectable_change(sd_log: f64, n: usize, alpha: f64, power: f64) -> Option<f64> {
    let usable = sd_log >= 0.0 && sd_log.is_finite();
    detectable_in_sds(n, alpha, power).filter(|_| usable).map(|d| (d * sd_log).exp_m1())
}

/// The fewest blocks that show an effect of `effect_log` (the log of a ratio) with probability
/// `power`. `None` when there is no effect to show, when it would take more than
/// [`MOST_BLOCKS`], or without a usable sd.
///
/// # Panics
///
/// Unless alpha and power lie between 0 and 1.
pub fn blocks_needed(effect_log: f64, sd_log: f64, alpha: f64, power: f64) -> Option<u32> {
    let usable = sd_log >= 0.0 && sd_log.is_finite() && effect_log.is_finite();
    if !usable || effect_log == 0.0 {
        return None;
    }
    let shows = |n: u32| {
        detectable_in_sds(n as usize, alpha, power).is_some_and(|d| d * sd_log <= effect_log.abs())
    };
    let fewest = signed_rank::fewest_values(alpha) as u32;
    let exact_up_to = (EXACT_UP_TO as u32).max(fewest);
    if let Some(n) = (fewest..=exact_up_to).find(|n| shows(*n)) {
        return Some(n);
    }
    // From here on more blocks always show smaller effects, so halving finds the border.
    let (mut too_few, mut enough) = (exact_up_to, MOST_BLOCKS);
    if !shows(enough) {
        return None;
    }
    while enough - too_few > 1 {
        let middle = u32::midpoint(too_few, enough);
        if shows(middle) { enough = middle } else { too_few = middle }
    }
    Some(enough)
}

/// The smallest shift, in standard deviations of the log-ratios, that is shown with probability
/// `power`; `None` when n values cannot reject.
fn detectable_in_sds(n: usize, alpha: f64, power: f64) -> Option<f64> {
    assert_probability("power", power);
    let (count, level) = if n <= EXACT_UP_TO {
        signed_rank::rejection(n, alpha)?
    } else if n >= signed_rank::fewest_values(alpha) {
        (usize::MAX, alpha)
    } else {
        return None;
    };
    if count == 0 {
        // Only "every block on one side" rejects, and that has an exact answer. The formula below
        // would promise an effect a tenth too small, just where most experiments are: six blocks.
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
    use crate::test_noise::normal;

    #[test]
    fn planned_power_is_reached() {
        let mut rng = SplitMix64::new(5);
        for n in [6, 7, 8, 10, 15] {
            let shift = detectable_in_sds(n, 0.05, 0.8).unwrap();
            let experiments = 2_000;
            let shown = (0..experiments)
                .filter(|_| {
                    let values: Vec<f64> = (0..n).map(|_| shift + normal(&mut rng)).collect();
                    signed_rank::test(&values, 0.05).unwrap().p <= 0.05
                })
                .count();
            let power = shown as f64 / f64::from(experiments);
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
    fn what_cannot_be_shown_is_none() {
        assert_eq!(minimum_detectable_change(0.03, 5, 0.05, 0.8), None);
        assert_eq!(minimum_detectable_change(f64::NAN, 6, 0.05, 0.8), None);
        assert_eq!(minimum_detectable_change(0.0, 6, 0.05, 0.8), Some(0.0));
        assert_eq!(blocks_needed(0.0, 0.03, 0.05, 0.8), None);
        assert_eq!(blocks_needed(f64::NAN, 0.03, 0.05, 0.8), None);
        assert_eq!(blocks_needed(0.1, f64::INFINITY, 0.05, 0.8), None);
        assert_eq!(blocks_needed(1e-6, 1.0, 0.05, 0.8), None);
    }

    /// The two functions are each other's inverse, on both sides of where the search changes.
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
