//! Student's t test for one sample: the mean, its interval and p.
//!
//! Source: Student, "The probable error of a mean", Biometrika 6(1), 1908. Assumption: the values
//! are independent and normal. It describes means (values along an axis, parts of a latency) and
//! provides quantiles for `power` and `totals`; it does not judge conditions.

use statrs::distribution::{Continuous, ContinuousCDF, StudentsT};

use crate::summary::{self, Interval, assert_probability};

/// The mean with its interval at level 1 - alpha, in the unit of the values, and the two-sided p
/// of "the mean is 0".
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Student {
    pub interval: Interval,
    pub p: f64,
}

// Welch's t test for two samples: the difference of their means, its interval and p. Sources: Welch, "The
// generalization of Student's problem when several different population variances are involved", Biometrika 34,
// 1947; degrees of freedom after Satterthwaite, Biometrics Bulletin 2(6), 1946. Assumption: values are independent
// and normal within each sample, and the samples differ only in the factor under test. The latter does not hold for
// trials of different days, so use this only to compare stored experiments, with a note about it; within an
// experiment, blocks are paired (`effect`).

/// `None` for fewer than two values, a value that is not finite, or no spread: an interval of width 0 would reflect the resolution of the measurement, not the precision of the mean.
///
/// # Panics
///
/// Unless alpha is between 0 and 1.
pub fn test(values: &[f64], alpha: f64) -> Option<Student> {
    assert_probability("alpha", alpha);
    let mean = summary::mean(values)?;
    let sd = summary::sd(values)?;
    if !(sd > 0.0 && sd.is_finite()) {
        return None;
    }
    let freedom = (values.len() - 1) as f64;
    let error = sd / (values.len() as f64).sqrt();
    let reach = quantile(1.0 - alpha / 2.0, freedom) * error;
    let interval = Interval { estimate: mean, low: mean - reach, high: mean + reach };
    Some(Student { interval, p: 2.0 * upper_tail((mean / error).abs(), freedom) })
}

/// The quantile of Student's t for `probability`.
pub(crate) fn quantile(probability: f64, freedom: f64) -> f64 {
    let t = distribution(freedom);
    let first = t.inverse_cdf(probability);
    // With many degrees of freedom, the library's inverse is wrong in the sixth digit, but its
    // distribution function is accurate. One Newton step corrects the inverse.
    first - (t.cdf(first) - probability) / t.pdf(first)
}

pub(crate) fn upper_tail(t: f64, freedom: f64) -> f64 {
    distribution(freedom).sf(t)
}

fn distribution(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom)
        .expect("callers have at least two values, so freedom is positive")
}

/// mean(a) - mean(b) with its interval at level 1 - alpha, and the two-sided p of "no difference".
///
/// `None` unless both samples have at least two finite values and one of them has some spread.
///
/// # Panics
///
/// Unless alpha is between 0 and 1.
pub fn welch(a: &[f64], b: &[f64], alpha: f64) -> Option<Student> {
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
    use crate::rng::{SplitMix64, normal};
    use proptest::prelude::*;

    fn close(got: f64, wanted: f64, within: f64) {
        assert!((got - wanted).abs() <= within, "{got} is not {wanted}");
    }

    /// R: t.test(extra ~ group, data = sleep, paired = TRUE), with signs as in Student's paper.
    #[test]
    fn paired_t_test_matches_r_on_students_sleep_data() {
        let sleep = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let student = test(&sleep, 0.05).unwrap();
        close(student.interval.estimate, 1.58, 1e-12);
        close(student.interval.low, 0.700_114_2, 1e-7);
        close(student.interval.high, 2.459_885_8, 1e-7);
        close(student.p, 0.002_832_89, 1e-8);
    }

    /// Darwin's maize data from Fisher (The Design of Experiments, 1935, section 17): t = 2.148
    /// against the critical value 2.145, so the 5 % interval barely excludes 0.
    #[test]
    fn t_test_matches_fisher_on_darwins_maize_data() {
        let eighths = [
            49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0,
            -48.0,
        ];
        let student = test(&eighths, 0.05).unwrap();
        close(student.interval.estimate, 20.933, 1e-3);
        close(student.p, 0.0497, 5e-5);
        assert!(student.interval.low > 0.0 && student.interval.low < 0.05);
    }

    /// Published values, and values far outside the published tables.
    #[test]
    fn quantiles_match_published_tables() {
        for (probability, freedom, wanted) in [
            (0.975, 1.0, 12.706_205),
            (0.975, 5.0, 2.570_582),
            (0.975, 9.0, 2.262_157),
            (0.995, 5.0, 4.032_143),
            (0.95, 30.0, 1.697_261),
            (0.8, 5.0, 0.919_544),
            (0.975, 99_999.0, 1.959_988),
            (0.8, 99_999.0, 0.841_625),
            (0.5, 7.0, 0.0),
            (0.2, 7.0, -0.896_030),
        ] {
            close(quantile(probability, freedom), wanted, 6e-7);
        }
    }

    #[test]
    fn without_spread_there_is_no_result() {
        assert_eq!(test(&[], 0.05), None);
        assert_eq!(test(&[1.0], 0.05), None);
        assert_eq!(test(&[0.1; 6], 0.05), None);
        assert_eq!(test(&[0.1, f64::NAN], 0.05), None);
        assert_eq!(test(&[0.1, f64::INFINITY], 0.05), None);
    }

    proptest! {
        /// Up to rounding, p crosses alpha where an end of the interval crosses 0.
        #[test]
        fn p_and_interval_agree(
            values in prop::collection::vec(-1.0..2.0f64, 2..30),
            alpha in 0.001..0.5f64,
        ) {
            if let Some(student) = test(&values, alpha) {
                let clear = (student.p / alpha - 1.0).abs() > 1e-6;
                prop_assert!(!clear || (student.p > alpha) == student.interval.contains(0.0));
            }
        }
    }

    /// R: t.test(extra ~ group, data = sleep): t = -1.8608, df = 17.776, p = 0.07939.
    #[test]
    fn welch_test_matches_r_on_students_sleep_data() {
        let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let found = welch(&first, &second, 0.05).unwrap();
        let close = |got: f64, wanted: f64| assert!((got - wanted).abs() < 1e-5, "{got} {wanted}");
        close(found.interval.estimate, -1.58);
        close(found.interval.low, -3.365_483_2);
        close(found.interval.high, 0.205_483_2);
        close(found.p, 0.079_394_1);
    }

    #[test]
    fn too_few_values_have_no_result() {
        assert_eq!(welch(&[1.0], &[1.0, 2.0], 0.05), None);
        assert_eq!(welch(&[1.0, 1.0], &[2.0, 2.0], 0.05), None);
        assert_eq!(welch(&[1.0, f64::NAN], &[2.0, 3.0], 0.05), None);
        assert!(welch(&[1.0, 1.0], &[2.0, 3.0], 0.05).is_some());
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
                welch(&a, &b, 0.05).is_some_and(|w| w.interval.contains(2.0))
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
            let (there, back) = (welch(&a, &b, 0.05), welch(&b, &a, 0.05));
            if let (Some(there), Some(back)) = (there, back) {
                prop_assert!((there.interval.low + back.interval.high).abs() < 1e-9);
                prop_assert!((there.p - back.p).abs() < 1e-9);
            }
        }
    }
}
