//! Judges several comparisons as one family: bounds the probability of at least one false alarm,
//! and gives each comparison an interval.
//!
//! Sources: Westfall and Young, Resampling-Based Multiple Testing, Wiley 1993, algorithm 2.8
//! (step-down max-T); Romano and Wolf, JASA 100(469), 2005, on the validity of stepping down. The
//! reference set consists of sign flips *shared* by all members: under the null hypothesis,
//! exchanging every condition with the baseline in a block would flip all log-ratios of that block
//! together, which preserves their common part (the baseline and the disturbance of that block).
//!
//! Assumption: a block's vector of log-ratios is jointly symmetric about its center. Each single
//! log-ratio is symmetric for any noise, because two trials of one block are exchangeable under the
//! null hypothesis. Log-ratios that share a baseline are jointly symmetric only for symmetric
//! noise; with skewed noise each member's own test still has its exact level, and simulations in
//! the tests check the level of the family (stalled trials, exponential and log-normal noise).
//!
//! Members are ordered by their own exact signed-rank p, and members of equal p, which are common
//! with six blocks, by their distance from no effect in units of the noise. Therefore large effects
//! are detected with six blocks and any number of members, where Holm's method cannot reject at
//! all; and a family of one member is the signed-rank test itself.
//!
//! Decision and interval never contradict each other, because both derive from one p. A shift is
//! outside a member's interval if the member, moved by it, would be rejected among the members that
//! remain at its step and the noise of the members rejected before it. Therefore the intervals hold
//! simultaneously; one that would extend beyond 0 only because of that noise ends at 0.

mod extreme;
mod flips;
#[cfg(test)]
mod tests;

pub use self::extreme::MAX_BLOCKS_WITH_SIZES;
use self::extreme::{Extreme, Member};
use self::flips::Flips;
pub use self::flips::{MANY_BLOCKS, MAX_EXHAUSTIVE_BLOCKS, RANDOM_FLIPS, RANDOM_FLIPS_OF_MANY};
use crate::interval::assert_probability;

/// The log-ratios of one comparison, by block.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Members of the same kind have the same unit and source of noise, such as one metric under
    /// several conditions; their sizes are compared directly.
    pub kind: usize,
    /// Block numbers, each once, in any order.
    pub blocks: Vec<u32>,
    /// One finite log-ratio per block.
    pub logs: Vec<f64>,
}

/// The result for one member of the family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemberResult {
    /// Adjusted for the whole family: rejected at level a if at most a. 1 without values.
    pub p: f64,
    /// On the log scale; excludes 0 exactly if `p` is at most the level. `None` if there are too
    /// few blocks for an interval; an end is infinite if no shift is rejected.
    pub bounds: Option<(f64, f64)>,
}

/// Judges all members together and returns the results in their order.
///
/// # Panics
///
/// Unless alpha is between 0 and 1 and each series has one log-ratio per block.
pub fn judge(series: &[Series], alpha: f64) -> Vec<MemberResult> {
    assert_probability("alpha", alpha);
    let members = extreme::members(series);
    // A family of one member is the signed-rank test; flips would only repeat its exact
    // distribution.
    if let [member] = members.as_slice() {
        return vec![MemberResult { p: member.own_p(0.0), bounds: member.own_bounds(alpha) }];
    }
    let mut judged = vec![MemberResult { p: 1.0, bounds: None }; members.len()];
    // The noise of the rejected members: it no longer affects decisions, but all intervals must
    // hold simultaneously.
    let mut rejected: Option<Vec<Extreme>> = None;
    step_down(series, &members, alpha, |i, p, flips, others| {
        let all = rejected.as_ref().map(|rejected| flips::more_extreme(others, rejected));
        let reference = flips.reference(all.as_deref().unwrap_or(others));
        judged[i] = MemberResult { p, bounds: reference.bounds(&members[i], alpha, p <= alpha) };
        if p <= alpha {
            let residuals = flips.residuals(&members[i]);
            rejected = Some(match &rejected {
                None => residuals,
                Some(earlier) => flips::more_extreme(earlier, &residuals),
            });
        }
    });
    judged
}

/// The member without which another one would be rejected, as the one that makes its p smallest; `None` if no single
/// one keeps it from that. With few blocks p values tie, and a noisy member is in the way of all others.
///
/// # Panics
///
/// Unless alpha is between 0 and 1, and `member` is one of them.
pub fn in_the_way(series: &[Series], member: usize, alpha: f64) -> Option<usize> {
    let without = |left_out: &usize| -> f64 {
        let mut rest = series.to_vec();
        rest[*left_out] = Series::default();
        let members = extreme::members(&rest);
        let mut found = 1.0;
        step_down(&rest, &members, alpha, |i, p, _, _| {
            if i == member {
                found = p;
            }
        });
        found
    };
    let others = (0..series.len()).filter(|i| *i != member);
    let best = others.map(|i| (without(&i), i)).min_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 <= alpha).then_some(best.1)
}

/// Passes each member, from the most extreme on, with its adjusted p and the values it is compared
/// with, by flip: the members that remain at its step, or all remaining ones after the first member
/// that is not rejected.
fn step_down(
    series: &[Series],
    members: &[Member<'_>],
    alpha: f64,
    mut judged: impl FnMut(usize, f64, &Flips, &[Extreme]),
) {
    let flips = Flips::new(series);
    let observed: Vec<Extreme> = members.iter().map(Member::observed).collect();
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by(|a, b| observed[*b].total_cmp(&observed[*a]));
    let reference: Vec<Vec<Extreme>> = order.iter().map(|i| flips.extremes(&members[*i])).collect();
    // later[k] contains, by flip, the most extreme of the members from step k on.
    let mut later = vec![flips.least_extreme(); members.len() + 1];
    for k in (0..members.len()).rev() {
        later[k] = flips::more_extreme(&later[k + 1], &reference[k]);
    }

    let mut highest: f64 = 0.0;
    // The most extreme of the earlier members that were not rejected.
    let mut earlier = flips.least_extreme();
    for (k, i) in order.iter().enumerate() {
        let others = flips::more_extreme(&earlier, &later[k + 1]);
        highest = highest.max(flips.reference(&others).p(&members[*i], 0.0));
        judged(*i, highest, &flips, &others);
        if highest > alpha {
            earlier = flips::more_extreme(&earlier, &reference[k]);
        }
    }
}
