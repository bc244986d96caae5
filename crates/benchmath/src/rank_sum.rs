//! The shift between two samples: the Hodges-Lehmann estimate, with the interval obtained by inverting
//! the rank-sum test of Wilcoxon, Mann and Whitney.
//!
//! Sources: Hodges and Lehmann, Annals of Mathematical Statistics 34(2), 1963; Mann and Whitney, Annals
//! of Mathematical Statistics 18(1), 1947; Hollander, Wolfe and Chicken, Nonparametric Statistical
//! Methods, 3rd ed., chapter 4. Assumption: the values are independent, and the two samples differ in
//! their location alone. Without ties the level is exact; with ties the closed interval holds at least
//! its level (Noether, Journal of the American Statistical Association 62(317), 1967).
//!
//! It belongs to [`crate::change_points`]: both see ranks, so that one wild run turns neither the
//! change nor its direction. Two samples that ranks have not chosen are compared by [`crate::student`].

use statrs::distribution::{ContinuousCDF, Normal};

use crate::summary;
use crate::summary::assert_probability;

/// Up to this many values in both samples the numbers of arrangements are exact in 53 bits.
pub const EXACT_UP_TO: usize = 50;

/// How far the second sample lies above the first, in the unit of the values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// The median of all differences of a value of the second sample and one of the first.
    pub estimate: f64,
    /// Closed interval of level at least 1 - alpha; `None` if no test of samples of these sizes has
    /// that level.
    pub bounds: Option<(f64, f64)>,
}

/// The shift from `before` to `after`. `None` if a sample is empty or has a value that is not finite.
///
/// # Panics
///
/// Unless alpha is between 0 and 1.
pub fn shift(before: &[f64], after: &[f64], alpha: f64) -> Option<Shift> {
    assert_probability("alpha", alpha);
    let is_usable = |side: &[f64]| !side.is_empty() && side.iter().all(|v| v.is_finite());
    if !(is_usable(before) && is_usable(after)) {
        return None;
    }
    let differences = differences(before, after);
    let bounds = largest_rejecting(before.len(), after.len(), alpha)
        .map(|count| (differences[count], differences[differences.len() - 1 - count]));
    Some(Shift { estimate: summary::median_of_sorted(&differences)?, bounds })
}

/// All differences of a value of the second sample and one of the first, ascending.
fn differences(before: &[f64], after: &[f64]) -> Vec<f64> {
    let differences = |before: &f64| after.iter().map(|after| after - before).collect::<Vec<_>>();
    summary::sorted(&before.iter().flat_map(differences).collect::<Vec<_>>())
}

/// The largest number of differences on the lesser side with which the two-sided test rejects.
fn largest_rejecting(a: usize, b: usize, alpha: f64) -> Option<usize> {
    if a + b > EXACT_UP_TO {
        let (a, b) = (a as f64, b as f64);
        let sd = (a * b * (a + b + 1.0) / 12.0).sqrt();
        // With continuity correction.
        let count = a * b / 2.0 + sd * Normal::standard().inverse_cdf(alpha / 2.0) - 0.5;
        return (count >= 0.0).then_some(count as usize);
    }
    let ways = arrangements(a, b);
    let all: f64 = ways.iter().sum();
    let mut below = 0.0;
    let is_rejecting = |ways: &&f64| {
        below += *ways;
        2.0 * below <= alpha * all
    };
    ways.iter().take_while(is_rejecting).count().checked_sub(1)
}

/// For each count of differences below 0, the number of arrangements of the two samples that have it:
/// the coefficients of the Gaussian binomial, the product of (1 - q^(b + i)) / (1 - q^i) for i = 1 .. a.
fn arrangements(a: usize, b: usize) -> Vec<f64> {
    let mut ways = vec![0.0; a * b + 1];
    ways[0] = 1.0;
    for i in 1..=a {
        for count in (b + i..ways.len()).rev() {
            ways[count] -= ways[count - b - i];
        }
        for count in i..ways.len() {
            ways[count] += ways[count - i];
        }
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::rng::normal;
    use proptest::prelude::*;

    /// Permeability of the human chorioamnion, the example of Hollander and Wolfe and of R's
    /// `wilcox.test`: estimate 0.305, interval (-0.15, 0.76) at the attained 96 %.
    #[test]
    fn rank_sum_shift_matches_r_on_the_permeability_data() {
        let early = [1.15, 0.88, 0.90, 0.74, 1.21];
        let term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let found = shift(&early, &term, 0.05).unwrap();
        let (low, high) = found.bounds.unwrap();
        for (got, wanted) in [(found.estimate, 0.305), (low, -0.15), (high, 0.76)] {
            assert!((got - wanted).abs() < 1e-12, "{got} is not {wanted}");
        }
    }

    /// Two-sided 5 % critical values of U from published tables.
    #[test]
    fn critical_values_match_published_tables() {
        let tabled =
            [(3, 5, 0), (4, 4, 0), (5, 5, 2), (6, 6, 5), (8, 8, 13), (10, 10, 23), (20, 20, 127)];
        for (a, b, count) in tabled {
            assert_eq!(largest_rejecting(a, b, 0.05), Some(count), "{a}, {b}");
            assert_eq!(largest_rejecting(b, a, 0.05), Some(count), "{b}, {a}");
        }
        assert_eq!((largest_rejecting(3, 3, 0.05), largest_rejecting(3, 4, 0.05)), (None, None));
    }

    #[test]
    fn the_normal_approximation_continues_the_exact_distribution() {
        let exact = |a, b| largest_rejecting(a, b, 0.05).unwrap() as f64 / (a * b) as f64;
        // 50 values are exact, 51 are approximated.
        assert!((exact(25, 25) - exact(25, 26)).abs() < 0.005);
        assert!((exact(10, 40) - exact(10, 41)).abs() < 0.005);
        assert_eq!(largest_rejecting(1, 60, 0.01), None);
    }

    #[test]
    fn one_wild_value_does_not_turn_the_direction() {
        let before = [110.0, 111.0, 109.0, 110.5, 109.5, 20.0, 110.2, 109.8, 110.1, 110.9];
        let after = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1, 100.9, 99.2];
        let found = shift(&before, &after, 0.05).unwrap();
        let (low, high) = found.bounds.unwrap();
        assert!(-11.0 < low && high < -9.0, "{found:?}");
        assert!((found.estimate + 10.0).abs() < 0.2, "{found:?}");
    }

    #[test]
    fn unusable_samples_have_no_shift_and_small_ones_no_interval() {
        assert_eq!(shift(&[], &[1.0], 0.05), None);
        assert_eq!(shift(&[1.0], &[f64::NAN], 0.05), None);
        let few = shift(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 0.05).unwrap();
        assert_eq!(few, Shift { estimate: 3.0, bounds: None });
    }

    /// Also for noise that is not normal, and where the distribution is approximated.
    #[test]
    fn nineteen_of_twenty_intervals_cover_the_truth() {
        let mut rng = SplitMix64::new(9);
        let experiments = 2_000;
        for (a, b) in [(5, 8), (10, 10), (30, 40)] {
            for noise in [normal, |rng: &mut SplitMix64| normal(rng).powi(3)] {
                let covered = (0..experiments)
                    .filter(|_| {
                        let before: Vec<f64> = (0..a).map(|_| noise(&mut rng)).collect();
                        let after: Vec<f64> = (0..b).map(|_| 0.4 + noise(&mut rng)).collect();
                        let (low, high) = shift(&before, &after, 0.05).unwrap().bounds.unwrap();
                        low <= 0.4 && 0.4 <= high
                    })
                    .count();
                let coverage = covered as f64 / f64::from(experiments);
                // Three standard errors are 0.015; small samples attain up to 97 %.
                assert!((0.935..0.985).contains(&coverage), "{a}, {b}: {coverage}");
            }
        }
    }

    fn sample() -> impl Strategy<Value = Vec<f64>> {
        prop_oneof![
            prop::collection::vec(-9.0..9.0f64, 1..30),
            prop::collection::vec((-4..5i32).prop_map(f64::from), 1..40),
        ]
    }

    proptest! {
        #[test]
        fn the_estimate_is_inside_the_interval(
            before in sample(),
            after in sample(),
            alpha in 0.001..0.5f64,
        ) {
            let found = shift(&before, &after, alpha).unwrap();
            if let Some((low, high)) = found.bounds {
                prop_assert!(low <= found.estimate && found.estimate <= high, "{found:?}");
            }
        }

        #[test]
        fn exchanging_the_samples_flips_the_sign(before in sample(), after in sample()) {
            let there = shift(&before, &after, 0.05).unwrap();
            let back = shift(&after, &before, 0.05).unwrap();
            prop_assert_eq!(there.estimate, -back.estimate);
            prop_assert_eq!(there.bounds, back.bounds.map(|(low, high)| (-high, -low)));
        }
    }
}
