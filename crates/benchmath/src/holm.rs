//! Several tests at once: Holm's step-down adjustment of their p values.
//!
//! Source: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal
//! of Statistics 6(2), 1979. Assumption: each p is valid by itself; none about how the tests
//! depend on each other. It bounds the chance of even one false alarm among all of them.
//! For tests that share no blocks, such as those of two experiments; comparisons of one experiment
//! are judged by `family`, which is more powerful.

/// Adjusted p values in the order of `p_values`; a test is rejected at level a when its adjusted
/// p <= a. Each is at least the value it came from, and at most 1.
///
/// The values must be numbers in [0, 1]; leave out tests that have none, since each one here
/// makes the others harder to reject.
pub fn adjust(p_values: &[f64]) -> Vec<f64> {
    let mut by_size: Vec<usize> = (0..p_values.len()).collect();
    by_size.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));

    let mut adjusted = vec![0.0; p_values.len()];
    let mut so_far: f64 = 0.0;
    for (rank, &index) in by_size.iter().enumerate() {
        let still_standing = (p_values.len() - rank) as f64;
        so_far = so_far.max(still_standing * p_values[index]).min(1.0);
        adjusted[index] = so_far;
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

    proptest! {
        /// Adjusting keeps the order, never helps a test, and never costs more than Bonferroni.
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

        /// The definition: reject smallest first while p <= alpha / (tests still standing).
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
