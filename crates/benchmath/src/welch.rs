//! Welch's t test for two samples: the difference of their means, its interval and p.
//!
//! Sources: Welch, "The generalization of Student's problem when several different population
//! variances are involved", Biometrika 34, 1947; degrees of freedom after Satterthwaite, Biometrics
//! Bulletin 2(6), 1946. Assumption: values are independent and normal within each sample, and the
//! samples differ only in the factor under test. The latter does not hold for trials of different
//! days, so use this only to compare stored experiments, with a note about it; within an
//! experiment, blocks are paired (`effect`).

use crate::interval::{Interval, assert_probability};
use crate::student::{Student, quantile, upper_tail};
use crate::summary;

/// mean(a) - mean(b) with its interval at level 1 - alpha, and the two-sided p of "no difference".
///
/// `None` unless both samples have at least two finite values and one of them has some spread.
///
/// # Panics
///
/// Unless alpha is between 0 and 1.
pub fn test(a: &[f64], b: &[f64], alpha: f64) -> Option<Student> {
    assert_probability("alpha", alpha);
    let error = |values: &[f64]| Some(summary::sd(values)?.powi(2) / values.len() as f64);
    let (of_a, of_b) = (error(a)?, error(b)?);
    let squared = of_a + of_b;
    if !(squared > 0.0 && squared.is_finite()) {
        return None;
    }
    let part = |error: f64, n: usize| error.powi(2) / (n - 1) as f64;
    let freedom = squared.powi(2) / (part(of_a, a.len()) + part(of_b, b.len()));
    let estimate = summary::mean(a)? - summary::mean(b)?;
    let reach = quantile(1.0 - alpha / 2.0, freedom) * squared.sqrt();
    let interval = Interval { estimate, low: estimate - reach, high: estimate + reach };
    let p = 2.0 * upper_tail((estimate / squared.sqrt()).abs(), freedom);
    Some(Student { interval, p })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::rng::normal;
    use proptest::prelude::*;

    /// R: t.test(extra ~ group, data = sleep): t = -1.8608, df = 17.776, p = 0.07939.
    #[test]
    fn welch_test_matches_r_on_students_sleep_data() {
        let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let welch = test(&first, &second, 0.05).unwrap();
        let close = |got: f64, wanted: f64| assert!((got - wanted).abs() < 1e-5, "{got} {wanted}");
        close(welch.interval.estimate, -1.58);
        close(welch.interval.low, -3.365_483_2);
        close(welch.interval.high, 0.205_483_2);
        close(welch.p, 0.079_394_1);
    }

    #[test]
    fn too_few_values_have_no_result() {
        assert_eq!(test(&[1.0], &[1.0, 2.0], 0.05), None);
        assert_eq!(test(&[1.0, 1.0], &[2.0, 2.0], 0.05), None);
        assert_eq!(test(&[1.0, f64::NAN], &[2.0, 3.0], 0.05), None);
        assert!(test(&[1.0, 1.0], &[2.0, 3.0], 0.05).is_some());
    }

    /// With unequal spread and size, for which Student's t test would fail.
    #[test]
    fn nineteen_of_twenty_intervals_cover_the_truth() {
        let mut rng = SplitMix64::new(5);
        let mut draw = |n: usize, mean: f64, sd: f64| -> Vec<f64> {
            (0..n).map(|_| mean + sd * normal(&mut rng)).collect()
        };
        let held = (0..2000)
            .filter(|_| {
                let (a, b) = (draw(6, 3.0, 4.0), draw(12, 1.0, 1.0));
                test(&a, &b, 0.05).is_some_and(|w| w.interval.contains(2.0))
            })
            .count();
        assert!((1860..=1940).contains(&held), "{held} of 2000");
    }

    proptest! {
        #[test]
        fn exchanging_the_samples_flips_the_sign(
            a in prop::collection::vec(-9.0..9.0f64, 2..9),
            b in prop::collection::vec(-9.0..9.0f64, 2..9),
        ) {
            let (there, back) = (test(&a, &b, 0.05), test(&b, &a, 0.05));
            if let (Some(there), Some(back)) = (there, back) {
                prop_assert!((there.interval.low + back.interval.high).abs() < 1e-9);
                prop_assert!((there.p - back.p).abs() < 1e-9);
            }
        }
    }
}
