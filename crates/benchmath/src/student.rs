//! Student's t test for one sample: the mean, its interval and p.
//!
//! Source: Student, "The probable error of a mean", Biometrika 6(1), 1908. Assumption: the values
//! are independent and normal. It describes means (values along an axis, parts of a latency) and
//! provides quantiles for `power` and `totals`; it does not judge conditions.

use statrs::distribution::{Continuous, ContinuousCDF, StudentsT};

use crate::interval::{Interval, assert_probability};
use crate::summary;

/// The mean with its interval at level 1 - alpha, in the unit of the values, and the two-sided p
/// of "the mean is 0".
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Student {
    pub interval: Interval,
    pub p: f64,
}

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

#[cfg(test)]
mod tests {
    use super::*;
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
}
