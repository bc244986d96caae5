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
//! test as flipping the signs of the mean. `student` and `bootstrap` stand beside it.

use crate::interval::assert_probability;
use crate::summary;

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
/// not finite. Work and memory grow with n^3 and n^2: 1,000 values take a fraction of a second.
///
/// # Panics
///
/// Unless alpha lies between 0 and 1.
pub fn test(values: &[f64], alpha: f64) -> Option<SignedRank> {
    assert_probability("alpha", alpha);
    if values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let walsh = walsh_averages(values);
    let tail = null_tail(values.len());
    let estimate = summary::median_of_sorted(&walsh)?;
    let bounds =
        largest_rejecting(&tail, alpha).map(|count| (walsh[count], walsh[walsh.len() - 1 - count]));
    Some(SignedRank { estimate, bounds, p: two_sided(tail[lesser_count(&walsh)]) })
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
    let tail = null_tail(n);
    largest_rejecting(&tail, alpha).map(|count| (count, two_sided(tail[count])))
}

/// The averages of all pairs, each value with itself included, ascending. Those above 0 are as
/// many as the sum of the ranks of the positive values (Tukey), which makes test and interval two
/// views of one list.
fn walsh_averages(values: &[f64]) -> Vec<f64> {
    let mut averages = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (i, a) in values.iter().enumerate() {
        averages.extend(values[i..].iter().map(|b| f64::midpoint(*a, *b)));
    }
    averages.sort_unstable_by(f64::total_cmp);
    averages
}

/// The count on the side of 0 that has fewer. An average of exactly 0 counts on both sides: it
/// speaks for neither, so it must not help to reject. Any way of breaking such ties gives a count
/// no larger, hence the level holds; and the interval, being closed, treats its ends the same way.
fn lesser_count(walsh: &[f64]) -> usize {
    let not_above = walsh.partition_point(|w| *w <= 0.0);
    let not_below = walsh.len() - walsh.partition_point(|w| *w < 0.0);
    not_above.min(not_below)
}

/// P(T <= t) under the null hypothesis for t = 0, 1, .. n(n+1)/2, where T sums those of the ranks
/// 1..n whose coin shows heads. One rank is added at a time. Exact while 2^n fits the 53 bits of
/// an f64, and to rounding beyond.
fn null_tail(n: usize) -> Vec<f64> {
    let mut chance = vec![0.0; n * (n + 1) / 2 + 1];
    chance[0] = 1.0;
    let mut highest = 0;
    for rank in 1..=n {
        highest += rank;
        for t in (0..=highest).rev() {
            let with_rank = if t >= rank { chance[t - rank] } else { 0.0 };
            chance[t] = 0.5 * (chance[t] + with_rank);
        }
    }
    let mut sum = 0.0;
    for probability in &mut chance {
        sum += *probability;
        *probability = sum;
    }
    chance
}

/// The one comparison with alpha that both p and interval go through: were it written twice, a
/// rounding could make them disagree.
fn two_sided(tail: f64) -> f64 {
    (2.0 * tail).min(1.0)
}

fn largest_rejecting(tail: &[f64], alpha: f64) -> Option<usize> {
    tail.partition_point(|t| two_sided(*t) <= alpha).checked_sub(1)
}

#[cfg(test)]
mod tests;
