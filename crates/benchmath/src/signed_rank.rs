//! The deciding test: Wilcoxon's signed-rank test, with the Hodges-Lehmann estimate and the
//! interval obtained by inverting the test.
//!
//! Sources: Wilcoxon, Biometrics Bulletin 1(6), 1945; Hodges and Lehmann, Annals of Mathematical
//! Statistics 34(2), 1963; Tukey's identity of the statistic and the count of Walsh averages in
//! Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd ed., chapter 3. Assumption:
//! the values are independent and symmetric about their center. Randomized blocks give this
//! symmetry under the null hypothesis: without an effect, exchanging condition and baseline only
//! changes the sign.
//!
//! Reasons for this test: it is the exact sign-flip test, applied to ranks. It is exact for any n;
//! the estimate is always inside the interval; an outlier changes it by one rank instead of by its
//! size; and at n = 6, where only "all blocks on one side" can reject at 5 %, it equals the
//! sign-flip test of the mean.

mod null;
mod walsh;

use crate::interval::assert_probability;

pub(crate) use self::null::Null;
pub(crate) use self::walsh::Walsh;

/// The result for "the center is 0", in the unit of the values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignedRank {
    /// Hodges-Lehmann: the median of the Walsh averages.
    pub estimate: f64,
    /// Closed interval of level at least 1 - alpha; `None` with too few values for a test at that
    /// level. It excludes 0 exactly if `p <= alpha`.
    pub bounds: Option<(f64, f64)>,
    /// Two-sided.
    pub p: f64,
}

/// Tests whether `values` are symmetric about 0. `None` without values, or if one is not finite.
/// The run time is O(n log n): 10,000 values take milliseconds.
///
/// # Panics
///
/// Unless alpha is between 0 and 1.
pub fn test(values: &[f64], alpha: f64) -> Option<SignedRank> {
    assert_probability("alpha", alpha);
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let walsh = Walsh::new(values);
    let null = Null::new(values.len());
    let bounds = null
        .largest_rejecting(alpha)
        .map(|count| (walsh.smallest(count), walsh.smallest(walsh.len() - 1 - count)));
    Some(SignedRank {
        estimate: walsh.median(),
        bounds,
        p: null.two_sided(walsh.lesser_count(0.0)),
    })
}

/// Only the Hodges-Lehmann estimate: the median of the Walsh averages. `None` without values, or if
/// one is not finite.
pub fn estimate(values: &[f64]) -> Option<f64> {
    let usable = !values.is_empty() && values.iter().all(|v| v.is_finite());
    usable.then(|| Walsh::new(values).median())
}

/// The smallest possible two-sided p with `n` values: all on one side, 2 of the 2^n sign patterns.
pub fn smallest_p(n: usize) -> f64 {
    2.0f64.powi(1 - n.min(2_000) as i32).min(1.0)
}

/// The minimum number of values for a test at level alpha: 6 at 0.05, 8 at 0.01.
///
/// # Panics
///
/// Unless alpha is between 0 and 1.
pub fn min_values(alpha: f64) -> usize {
    assert_probability("alpha", alpha);
    (1..).find(|n| smallest_p(*n) <= alpha).expect("smallest_p approaches 0")
}

/// The rejection region of the test at level alpha with `n` values: the largest count of Walsh
/// averages on the lesser side, and the attained level. `None` if no such test exists.
pub(crate) fn rejection(n: usize, alpha: f64) -> Option<(usize, f64)> {
    let null = Null::new(n);
    null.largest_rejecting(alpha).map(|count| (count, null.two_sided(count)))
}

#[cfg(test)]
mod tests;
