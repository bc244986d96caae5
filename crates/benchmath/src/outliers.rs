//! Values that lie far from all others: the modified z-score.
//!
//! Iglewicz and Hoaglin, "How to Detect and Handle Outliers", ASQC Basic References in Quality Control 16, 1993:
//! 0.6745 times the distance from the median divided by the median absolute deviation, and an outlier where this
//! is beyond 3.5. Median and MAD tolerate almost half of the values being wild, so one outlier does not hide
//! another, as it does with mean and standard deviation. Assumption: without outliers the values scatter about
//! normally around one center. Rates and ratios are compared by their logarithms.

use super::summary::median;

/// The score beyond which a value is an outlier.
pub const LIMIT: f64 = 3.5;

/// With fewer values, two that agree by chance would make outliers of the others.
pub const FEWEST: usize = 5;

/// Makes the median absolute deviation of normal values equal to their standard deviation.
const NORMAL: f64 = 0.6745;

/// Returns the modified z-score of each value; `None` for fewer than [`FEWEST`] values, for a value that is not
/// finite, and if more than half of the values are equal, where the deviation has no scale.
pub fn modified_z(values: &[f64]) -> Option<Vec<f64>> {
    if values.len() < FEWEST || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let center = median(values)?;
    let distances: Vec<f64> = values.iter().map(|v| (v - center).abs()).collect();
    let mad = median(&distances).filter(|mad| *mad > 0.0)?;
    Some(values.iter().map(|v| NORMAL * (v - center) / mad).collect())
}

/// Whether a modified z-score is that of an outlier.
pub fn is_outlier(score: f64) -> bool {
    score.abs() > LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_scores() {
        // Median 3, distances 2 1 0 1 97: median absolute deviation 1.
        let scores = modified_z(&[1.0, 2.0, 3.0, 4.0, 100.0]).unwrap();
        let expected = [-1.349, -0.6745, 0.0, 0.6745, 65.4265];
        assert!(scores.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{scores:?}");
        let found: Vec<bool> = scores.into_iter().map(is_outlier).collect();
        assert_eq!(found, [false, false, false, false, true]);
    }

    #[test]
    fn two_wild_values_do_not_hide_each_other() {
        let scores = modified_z(&[9.9, 10.0, 10.1, 10.2, 9.8, 60.0, 70.0]).unwrap();
        assert_eq!(scores.into_iter().filter(|score| is_outlier(*score)).count(), 2);
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
