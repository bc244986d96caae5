//! Fisher's exact test compares two shares, such as shares of failed trials.
//!
//! Source: Fisher, "The Logic of Inductive Inference", Journal of the Royal Statistical Society
//! 98(1), 1935. The two-sided p is the p of R's `fisher.test` (Agresti, "Categorical Data Analysis",
//! section 3.5): the total probability of all tables with the same margins that are no more
//! probable than the observed one. Assumption: all trials of a side have the same probability of
//! the outcome, independent of each other. The test is exact for any number of trials, and
//! conservative because counts are discrete.

/// Relative tolerance for equal probabilities, which may differ by rounding; the value is R's.
const ROUNDING: f64 = 1e-7;

/// The two-sided p of `a` out of `of_a` against `b` out of `of_b`. `None` if a side has no trials,
/// or more outcomes than trials.
pub fn two_sided(a: u64, of_a: u64, b: u64, of_b: u64) -> Option<f64> {
    if of_a == 0 || of_b == 0 || a > of_a || b > of_b {
        return None;
    }
    let both = a + b;
    let (least, most) = (both.saturating_sub(of_b), both.min(of_a));
    // Logs of the tables' probabilities, up to a constant; computed recursively to avoid overflow.
    let mut logs = vec![0.0];
    for x in least..most {
        let up = (both - x) as f64 * (of_a - x) as f64;
        let down = (x + 1) as f64 * (of_b + x + 1 - both) as f64;
        logs.push(logs[logs.len() - 1] + (up / down).ln());
    }
    let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logs.iter().map(|log| (log - largest).exp()).collect();
    let at = usize::try_from(a - least).ok()?;
    let limit = weights.get(at)? * (1.0 + ROUNDING);
    let extreme: f64 = weights.iter().filter(|w| **w <= limit).sum();
    Some((extreme / weights.iter().sum::<f64>()).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(found: Option<f64>, wanted: f64) {
        let found = found.expect("both sides have trials");
        assert!((found / wanted - 1.0).abs() < 1e-6, "{found} {wanted}");
    }

    #[test]
    fn known_answers() {
        // Computed with exact integers by the definition of R's fisher.test(matrix(c(a, of_a - a,
        // b, of_b - b), 2)).
        near(two_sided(3, 10, 0, 10), 0.2105263158);
        near(two_sided(5, 10, 0, 10), 0.0325077399);
        near(two_sided(6, 10, 0, 10), 0.0108359133);
        // From R's help of fisher.test: the lady tasting tea (0.4857), the convictions of twins (0.0005367).
        near(two_sided(3, 4, 1, 4), 0.4857142857);
        near(two_sided(2, 12, 15, 18), 0.0005367241);
        near(two_sided(5, 5, 0, 5), 0.0079365079);
        near(two_sided(0, 7, 0, 9), 1.0);
        near(two_sided(7, 7, 9, 9), 1.0);
    }

    #[test]
    fn sides_without_trials_have_no_answer() {
        assert_eq!(two_sided(0, 0, 1, 5), None);
        assert_eq!(two_sided(1, 5, 0, 0), None);
        assert_eq!(two_sided(6, 5, 0, 5), None);
    }

    #[test]
    fn many_trials_neither_overflow_nor_underflow() {
        let p = two_sided(3_000, 10_000, 2_900, 10_000).unwrap();
        // The normal approximation: z = 1.55.
        assert!((0.11..0.13).contains(&p), "{p}");
        assert!(two_sided(10_000, 10_000, 0, 10_000).unwrap() < 1e-300);
    }

    proptest! {
        #[test]
        fn the_test_is_symmetric(of_a in 1u64..40, of_b in 1u64..40, a in 0u64..40, b in 0u64..40) {
            let (a, b) = (a.min(of_a), b.min(of_b));
            let p = two_sided(a, of_a, b, of_b).unwrap();
            prop_assert!(p > 0.0 && p <= 1.0);
            let other = two_sided(b, of_b, a, of_a).unwrap();
            prop_assert!((p - other).abs() < 1e-9, "{} {}", p, other);
            // Outcome and absence of the outcome are symmetric too.
            let absent = two_sided(of_a - a, of_a, of_b - b, of_b).unwrap();
            prop_assert!((p - absent).abs() < 1e-9, "{} {}", p, absent);
        }

        /// With equal shares it detects a difference in at most one case of twenty.
        #[test]
        fn the_level_is_not_exceeded(n in 2u64..14, of_b in 2u64..14, share in 0.02f64..0.98) {
            let ln_choose = |n: u64, k: u64| -> f64 { (0..k).map(|i| ((n - i) as f64 / (k - i) as f64).ln()).sum() };
            let chance = |n: u64, k: u64| {
                (ln_choose(n, k) + k as f64 * share.ln() + (n - k) as f64 * (1.0 - share).ln()).exp()
            };
            let mut rejected = 0.0;
            for a in 0..=n {
                for b in 0..=of_b {
                    if two_sided(a, n, b, of_b).unwrap() <= 0.05 {
                        rejected += chance(n, a) * chance(of_b, b);
                    }
                }
            }
            prop_assert!(rejected <= 0.05, "{}", rejected);
        }
    }
}
