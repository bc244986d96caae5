//! Values that lie far from all others: the modified z-score.
//!
//! Iglewicz and Hoaglin, "How to Detect and Handle Outliers", ASQC Basic References in Quality Control 16, 1993:
//! 0.6745 times the distance from the median divided by the median absolute deviation. Median and MAD tolerate almost
//! half of the values being wild, so one outlier does not hide another, as it does with mean and standard deviation.
//! Assumption: without outliers the values scatter around one center, with tails no heavier than the tails of Student's t
//! with three degrees of freedom. Rates and ratios are compared by their logarithms.
//!
//! The two propose a fixed limit of 3.5. One sample of ten normal values without outliers exceeds it, and most samples
//! with heavier tails, as servers have: with the limits that hold for normal values, 38 % of samples of 20 such values
//! would accuse one. [`limit`] depends on the number of values, so that one such sample in twenty exceeds it, and
//! almost none of normal values.

use super::summary::median;

/// Numbers of values, and the score that the largest of this many values of Student's t with three degrees of freedom
/// exceeds in 5 % of samples: 100,000 simulated samples each, 50,000 from 200 values on and 10,000 for 1,000. Even and
/// odd numbers differ because the MAD of an odd number is one of the distances.
const LIMITS: [(usize, f64); 25] = [
    (5, 10.55),
    (6, 8.15),
    (7, 8.86),
    (8, 8.14),
    (9, 8.68),
    (10, 8.27),
    (11, 8.64),
    (12, 8.44),
    (13, 8.74),
    (14, 8.56),
    (15, 8.91),
    (16, 8.85),
    (17, 9.08),
    (18, 9.02),
    (19, 9.21),
    (20, 9.19),
    (25, 9.73),
    (30, 10.17),
    (40, 10.98),
    (50, 11.73),
    (70, 12.98),
    (100, 14.69),
    (200, 18.0),
    (500, 24.54),
    (1000, 30.82),
];

/// With fewer values, two that agree by chance would make outliers of the others.
pub const MIN_VALUES: usize = 5;

/// Makes the median absolute deviation of normal values equal to their standard deviation.
pub const NORMAL: f64 = 0.6745;

/// Returns the modified z-score of each value; `None` for fewer than [`MIN_VALUES`] values, for a value that is not
/// finite, and if more than half of the values are equal, where the deviation has no scale.
pub fn modified_z(values: &[f64]) -> Option<Vec<f64>> {
    if values.len() < MIN_VALUES || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let center = median(values)?;
    let distances: Vec<f64> = values.iter().map(|v| (v - center).abs()).collect();
    let mad = median(&distances).filter(|mad| *mad > 0.0)?;
    Some(values.iter().map(|v| NORMAL * (v - center) / mad).collect())
}

/// Returns the score beyond which one of so many values is an outlier. If all scatter as Student's t with three degrees
/// of freedom, one sample in twenty has one.
pub fn limit(values: usize) -> f64 {
    let above = LIMITS.iter().position(|(n, _)| *n >= values).unwrap_or(LIMITS.len() - 1);
    let ((n0, low), (n1, high)) = (LIMITS[above.saturating_sub(1)], LIMITS[above]);
    let beyond = values.clamp(n0, n1) - n0;
    low + (high - low) * beyond as f64 / (n1 - n0).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::rng::normal;
    use proptest::prelude::*;

    #[test]
    fn known_scores() {
        // Median 3, distances 2 1 0 1 97: median absolute deviation 1.
        let scores = modified_z(&[1.0, 2.0, 3.0, 4.0, 100.0]).unwrap();
        let expected = [-1.349, -0.6745, 0.0, 0.6745, 65.4265];
        assert!(scores.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{scores:?}");
        let found: Vec<bool> = scores.into_iter().map(|score| score.abs() > limit(5)).collect();
        assert_eq!(found, [false, false, false, false, true]);
    }

    #[test]
    fn two_wild_values_do_not_hide_each_other() {
        let scores = modified_z(&[9.9, 10.0, 10.1, 10.2, 9.8, 60.0, 70.0]).unwrap();
        assert_eq!(scores.into_iter().filter(|score| score.abs() > limit(7)).count(), 2);
    }

    #[test]
    fn limits_are_interpolated() {
        assert_eq!((limit(5), limit(20), limit(1000)), (10.55, 9.19, 30.82));
        assert!((limit(22) - 9.406).abs() < 1e-9, "{}", limit(22));
        // Where there is no entry, the nearest one.
        assert_eq!((limit(0), limit(5000)), (10.55, 30.82));
    }

    #[test]
    fn one_sample_in_twenty_has_an_outlier_by_chance() {
        const SAMPLES: usize = 4000;
        let mut rng = SplitMix64::new(18);
        let heavy_tails = |rng: &mut SplitMix64| {
            let squares: f64 = (0..3).map(|_| normal(rng).powi(2)).sum();
            normal(rng) / (squares / 3.0).sqrt()
        };
        for n in [5, 6, 8, 13, 20, 22, 60] {
            let mut accused = |value: &dyn Fn(&mut SplitMix64) -> f64| {
                let sample = |_: &usize| {
                    let values: Vec<f64> = (0..n).map(|_| value(&mut rng)).collect();
                    modified_z(&values).unwrap().iter().any(|score| score.abs() > limit(n))
                };
                (0..SAMPLES).filter(sample).count()
            };
            // 200 are expected, with a standard deviation of 14.
            let found = accused(&heavy_tails);
            assert!((145..=255).contains(&found), "{n} values: {found}");
            let found = accused(&normal);
            assert!(found <= 140, "{n} normal values: {found}");
        }
    }

    #[test]
    fn without_a_scale_nothing_is_an_outlier() {
        assert_eq!(modified_z(&[1.0, 2.0, 3.0, 100.0]), None);
        assert_eq!(modified_z(&[5.0, 5.0, 5.0, 5.0, 6.0]), None);
        assert_eq!(modified_z(&[1.0, 2.0, f64::NAN, 4.0, 5.0]), None);
    }

    proptest! {
        #[test]
        fn scores_do_not_depend_on_the_unit(
            values in prop::collection::vec(-1e3..1e3f64, 5..20), shift in -1e3..1e3f64
        ) {
            let moved: Vec<f64> = values.iter().map(|v| 2.0 * v + shift).collect();
            match (modified_z(&values), modified_z(&moved)) {
                (Some(a), Some(b)) => {
                    for (a, b) in a.iter().zip(&b) {
                        prop_assert!((a - b).abs() <= 1e-6 * a.abs().max(1.0), "{a} {b}");
                    }
                }
                (a, b) => prop_assert_eq!(a.is_some(), b.is_some()),
            }
        }
    }
}
