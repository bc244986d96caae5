//! The test that decides: Wilcoxon's signed-rank test, its Hodges-Lehmann estimate and the
//! interval got by inverting it.
//!
//! Sources: Wilcoxon, Biometrics Bulletin 1(6), 1945; Hodges and Lehmann, Annals of Mathematical
//! Statistics 34(2), 1963; Tukey's identity of the statistic with the count of Walsh averages in
//! Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd ed., chapter 3.
//! Assumption: the values are independent and symmetric about their centre. Randomised blocks
//! give the symmetry under the null hypothesis: were the condition without effect, exchanging it
//! with the baseline would only change the sign.
//!
//! Why this one: it is the exact sign-flip test, applied to ranks. It is exact at any n; its
//! estimate always lies inside its interval; one wild block moves it by one rank instead of by
//! its size; and at n = 6, where only "all blocks on one side" can reject at 5 %, it is the same
//! test as flipping the signs of the mean.

mod null;
mod walsh;

use crate::interval::assert_probability;

pub(crate) use self::null::Null;
pub(crate) use self::walsh::Walsh;

/// The verdict on "the centre is 0", in the unit of the values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignedRank {
    /// Hodges-Lehmann: the median of the Walsh averages.
    pub estimate: f64,
    /// Closed interval of level 1 - alpha at least; `None` when too few values for any test at
    /// that level. It leaves out 0 exactly when `p <= alpha`.
    pub bounds: Option<(f64, f64)>,
    /// Two-sided.
    pub p: f64,
}

/// Tests whether `values` lie symmetrically about 0. `None` when there are none, or when one is
/// not finite. Work grows with n log n: 10,000 values take milliseconds.
///
/// # Panics
///
/// Unless alpha lies between 0 and 1.
pub fn test(values: &[f64], alpha: f64) -> Option<SignedRank> {
    assert_probability("alpha", alpha);
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let walsh = Walsh::of(values);
    let null = Null::of(values.len());
    let bounds = null
        .largest_rejecting(alpha)
        .map(|count| (walsh.smallest(count), walsh.smallest(walsh.len() - 1 - count)));
    Some(SignedRank {
        estimate: walsh.median(),
        bounds,
        p: null.two_sided(walsh.lesser_count(0.0)),
    })
}

/// The Hodges-Lehmann estimate alone: the median of the Walsh averages. `None` without values, or
/// when one is not finite.
pub fn estimate(values: &[f64]) -> Option<f64> {
    let usable = !values.is_empty() && values.iter().all(|v| v.is_finite());
    usable.then(|| Walsh::of(values).median())
}

/// The smallest two-sided p that `n` values can give: all on one side, 2 of the 2^n sign patterns.
pub fn smallest_p(n: usize) -> f64 {
    2.0f64.powi(1 - n.min(2_000) as i32).min(1.0)
}

/// The fewest values with which a test at level alpha exists: 6 at 0.05, 8 at 0.01.
///
/// # Panics
///
/// Unless alpha lies between 0 and 1.
pub fn fewest_values(alpha: f64) -> usize {
    assert_probability("alpha", alpha);
    (1..).find(|n| smallest_p(*n) <= alpha).expect("smallest_p comes down to 0")
}

/// How the test at level alpha rejects with `n` values: the largest count of Walsh averages on
/// the lesser side, and the level really used up. `None` when no such test exists.
pub(crate) fn rejection(n: usize, alpha: f64) -> Option<(usize, f64)> {
    let null = Null::of(n);
    null.largest_rejecting(alpha).map(|count| (count, null.two_sided(count)))
}

#[cfg(test)]
mod tests;
