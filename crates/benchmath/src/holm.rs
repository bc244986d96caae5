//! Holm's step-down adjustment of the p values of several tests.
//!
//! Source: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
//! Statistics 6(2), 1979. Assumption: each p is valid by itself; the tests may depend on each other
//! in any way. It bounds the probability of at least one false alarm. Use it for tests that share
//! no blocks, such as tests of two experiments; for comparisons of one experiment, `family` is more
//! powerful.

/// Adjusted p values in the order of `p_values`; a test is rejected at level a if its adjusted p <=
/// a. Each is at least the original value and at most 1.
///
/// The values must be numbers in [0, 1]; omit tests without a p value, because each additional test
/// makes the others harder to reject.
pub fn adjust(p_values: &[f64]) -> Vec<f64> {
    unlimited(p_values).into_iter().map(|p| p.min(1.0)).collect()
}

/// The share of the level at which each test is rejected, and has its interval, in the order of `p_values`: a test
/// whose p is at most level × share is one that [`adjust`] rejects at that level.
pub fn shares(p_values: &[f64]) -> Vec<f64> {
    let share = |(p, adjusted): (&f64, f64)| {
        if *p > 0.0 { p / adjusted } else { 1.0 / p_values.len() as f64 }
    };
    p_values.iter().zip(unlimited(p_values)).map(share).collect()
}

/// Adjusted p values before they are limited to 1.
fn unlimited(p_values: &[f64]) -> Vec<f64> {
    let mut by_size: Vec<usize> = (0..p_values.len()).collect();
    by_size.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));

    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest: f64 = 0.0;
    for (rank, &index) in by_size.iter().enumerate() {
        let remaining = (p_values.len() - rank) as f64;
        largest = largest.max(remaining * p_values[index]);
        adjusted[index] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_answers() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
        let adjusted = adjust(&[0.01, 0.04, 0.03, 0.005]);
        for (got, wanted) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - wanted).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(adjust(&[0.9, 0.8]), [1.0, 1.0]);
        assert_eq!(adjust(&[0.2]), [0.2]);
        assert!(adjust(&[]).is_empty());
    }

    #[test]
    fn the_level_depends_on_the_rank_and_not_on_the_limit_of_adjusted_values() {
        // The adjusted value of the second is 0.9 × 2, which is limited to 1.
        for (share, wanted) in
            shares(&[0.001, 0.9, 0.95]).into_iter().zip([1.0 / 3.0, 0.5, 0.95 / 1.8])
        {
            assert!((share - wanted).abs() < 1e-12, "{share}");
        }
        assert_eq!(shares(&[0.0, 0.5]), [0.5, 1.0]);
    }

    proptest! {
        /// Adjusting keeps the order, never lowers a p value, and never exceeds Bonferroni's
        /// adjustment.
        #[test]
        fn adjusting_is_monotone(p_values in prop::collection::vec(0.0..=1.0f64, 1..12)) {
            let adjusted = adjust(&p_values);
            for (i, p) in p_values.iter().enumerate() {
                prop_assert!(adjusted[i] >= *p);
                prop_assert!(adjusted[i] <= (p * p_values.len() as f64).min(1.0));
                for (j, q) in p_values.iter().enumerate() {
                    prop_assert!(p > q || adjusted[i] <= adjusted[j]);
                }
            }
        }

        /// No interval is wider than Bonferroni's, and none excludes what is not rejected.
        #[test]
        fn shares_lie_between_bonferronis_and_the_whole(
            p_values in prop::collection::vec(0.0..=1.0f64, 1..12)
        ) {
            let adjusted = adjust(&p_values);
            for (i, share) in shares(&p_values).into_iter().enumerate() {
                prop_assert!(share >= 1.0 / p_values.len() as f64 - 1e-12 && share <= 1.0 + 1e-12);
                let distance = p_values[i] - 0.05 * share;
                prop_assert!(distance.abs() < 1e-12 || (distance < 0.0) == (adjusted[i] <= 0.05));
            }
        }

        /// The definition: reject from the smallest p on while p <= alpha / (remaining tests).
        #[test]
        fn rejects_what_the_stepwise_procedure_rejects(
            p_values in prop::collection::vec(0.0..=0.1f64, 1..8),
        ) {
            let alpha = 0.05;
            let mut ascending = p_values.clone();
            ascending.sort_by(f64::total_cmp);
            let m = p_values.len();
            let stepwise = (0..m).take_while(|k| ascending[*k] * (m - k) as f64 <= alpha).count();
            let adjusted = adjust(&p_values).iter().filter(|p| **p <= alpha).count();
            prop_assert_eq!(stepwise, adjusted);
        }
    }
}
