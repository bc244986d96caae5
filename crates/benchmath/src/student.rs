//! Student's t for one sample: the mean, its interval and p.
//!
//! Source: Student, "The probable error of a mean", Biometrika 6(1), 1908. Assumption: the values
//! are independent and normal. It describes means (values along an axis, parts of a latency) and
//! gives `power` and `totals` their quantiles; no verdict on a condition is its own.

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

/// `None` for fewer than two values, one that is not finite, or no spread at all: the interval
/// would have no width, which is a statement about the meter's resolution and not about the mean.
///
/// # Panics
///
/// Unless alpha lies between 0 and 1.
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

/// The value that Student's t stays below with probability `probability`.
pub(crate) fn quantile(probability: f64, freedom: f64) -> f64 {
    let t = distribution(freedom);
    let first = t.inverse_cdf(probability);
    // The library's inverse is off in the sixth digit at many degrees of freedom; its distribution
    // function is not, and one step of Newton's method carries that over.
    first - (t.cdf(first) - probability) / t.pdf(first)
}

pub(crate) fn upper_tail(t: f64, freedom: f64) -> f64 {
    distribution(freedom).sf(t)
}

fn distribution(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom).expect("callers have two values, so freedom is positive")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(got: f64, wanted: f64, within: f64) {
        assert!((got - wanted).abs() <= within, "{got} is not {wanted}");
    }

    /// R: t.test(extra ~ group, data = sleep, paired = TRUE), signs as in Student's paper.
    #[test]
    fn students_own_data() {
        let sleep = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let student = test(&sleep, 0.05).unwrap();
        close(student.interval.estimate, 1.58, 1e-12);
        close(student.interval.low, 0.700_114_2, 1e-7);
        close(student.interval.high, 2.459_885_8, 1e-7);
        close(student.p, 0.002_832_89, 1e-8);
    }

    /// Darwin's maize as Fisher gives it (The Design of Experiments, 1935, section 17): t = 2.148
    /// against the tabled 2.145, so the 5 % interval just leaves out 0.
    #[test]
    fn darwins_maize() {
        let eighths = [
            49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0,
            -48.0,
        ];
        let student = test(&eighths, 0.05).unwrap();
        close(student.interval.estimate, 20.933, 1e-3);
        close(student.p, 0.0497, 5e-5);
        assert!(student.interval.low > 0.0 && student.interval.low < 0.05);
    }

    /// The table in every textbook, and far outside it.
    #[test]
    fn quantiles_are_the_tabled_ones() {
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
    fn without_spread_there_is_no_answer() {
        assert_eq!(test(&[], 0.05), None);
        assert_eq!(test(&[1.0], 0.05), None);
        assert_eq!(test(&[0.1; 6], 0.05), None);
        assert_eq!(test(&[0.1, f64::NAN], 0.05), None);
        assert_eq!(test(&[0.1, f64::INFINITY], 0.05), None);
    }

    proptest! {
        /// Up to rounding, p crosses alpha where the interval's end crosses 0.
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
