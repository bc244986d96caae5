//! Several comparisons as one family: verdicts with a bounded chance of even one false alarm, and
//! the interval that belongs to each.
//!
//! Sources: Westfall and Young, Resampling-Based Multiple Testing, Wiley 1993, algorithm 2.8
//! (step-down max-T); Romano and Wolf, JASA 100(469), 2005, on why stepping down is valid. The
//! reference set are sign flips *shared* by all members: were nothing different, exchanging every
//! condition with the baseline in a block would flip all of that block's log-ratios together,
//! which keeps what they have in common (the baseline, the disturbance of that block).
//!
//! Assumption: a block's vector of log-ratios is jointly symmetric about its centre. Each single
//! ratio is, whatever the noise, since two trials of one block are exchangeable where nothing
//! differs. Ratios that share a baseline are jointly symmetric for symmetric noise only; with
//! skewed noise each member's own test still holds its level exactly, and the family's is checked
//! by simulation in the tests (stalled trials, exponential and log-normal noise).
//!
//! How extreme a member is: first by its own exact signed-rank p; between members of equal p, which
//! with six blocks is the rule, by how far it lies from no effect, measured in units of the noise.
//! So large effects are told apart with six blocks however many members there are, where Holm's
//! method cannot reject at all, and a family of one is the signed-rank test itself.
//!
//! Verdict and interval never contradict each other: both come from one p. A shift is outside a
//! member's interval when the member, moved by it, would be rejected among the members that still
//! stand at its step and the noise of those that were rejected before it. So the intervals hold all at once; one that would reach
//! over 0 only because of the latter ends there.

mod extreme;
mod flips;
#[cfg(test)]
mod tests;

use self::extreme::{Extreme, Member};
use self::flips::Flips;
use crate::interval::assert_probability;

/// The log-ratios of one comparison, by block.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Members of one kind have one unit and one source of noise, such as the same metric under
    /// several conditions: their sizes are compared directly.
    pub kind: usize,
    /// Numbers of the blocks, each once, in any order.
    pub blocks: Vec<u32>,
    /// One finite log-ratio for each block.
    pub logs: Vec<f64>,
}

/// What the family says of one member.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// Adjusted for the whole family: rejected at level a when at most a. 1 without any value.
    pub p: f64,
    /// On the scale of the logs; it leaves out 0 exactly when `p` is at most the level. `None`
    /// where so few blocks have no interval; an end may be infinite where no shift is rejected.
    pub bounds: Option<(f64, f64)>,
}

/// Judges all members together, in their order.
///
/// # Panics
///
/// Unless alpha lies between 0 and 1, and where a series has not one log for each block.
pub fn judge(series: &[Series], alpha: f64) -> Vec<Judged> {
    assert_probability("alpha", alpha);
    let members = extreme::members(series);
    // A family of one is the signed-rank test: flips would only repeat its exact distribution.
    if let [member] = members.as_slice() {
        return vec![Judged { p: member.own_p(0.0), bounds: member.own_bounds(alpha) }];
    }
    let mut judged = vec![Judged { p: 1.0, bounds: None }; members.len()];
    // What the members that were rejected vary by: they no longer stand in the way of a verdict,
    // but all intervals are to hold at once.
    let mut rejected: Option<Vec<Extreme>> = None;
    step_down(series, &members, alpha, |i, p, flips, others| {
        let all = rejected.as_ref().map(|rejected| flips::larger(others, rejected));
        let against = flips.against(all.as_deref().unwrap_or(others));
        judged[i] = Judged { p, bounds: against.bounds(&members[i], alpha, p <= alpha) };
        if p <= alpha {
            let residuals = flips.residuals(&members[i]);
            rejected = Some(match &rejected {
                None => residuals,
                Some(earlier) => flips::larger(earlier, &residuals),
            });
        }
    });
    judged
}

/// Gives each member, from the most extreme on, its adjusted p and what it was judged against, by
/// flip: the members that still stand at its step, or all that are left once one is not rejected.
fn step_down(
    series: &[Series],
    members: &[Member<'_>],
    alpha: f64,
    mut judged: impl FnMut(usize, f64, &Flips, &[Extreme]),
) {
    let flips = Flips::of(series);
    let seen: Vec<Extreme> = members.iter().map(Member::seen).collect();
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by(|a, b| seen[*b].total_cmp(&seen[*a]));
    let reference: Vec<Vec<Extreme>> = order.iter().map(|i| flips.extremes(&members[*i])).collect();
    // later[k] holds, by flip, the most extreme of the members from step k on.
    let mut later = vec![flips.nothing(); members.len() + 1];
    for k in (0..members.len()).rev() {
        later[k] = flips::larger(&later[k + 1], &reference[k]);
    }

    let mut highest: f64 = 0.0;
    // The members that were not rejected and come before the one at hand.
    let mut earlier = flips.nothing();
    for (k, i) in order.iter().enumerate() {
        let others = flips::larger(&earlier, &later[k + 1]);
        highest = highest.max(flips.against(&others).p(&members[*i], 0.0));
        judged(*i, highest, &flips, &others);
        if highest > alpha {
            earlier = flips::larger(&earlier, &reference[k]);
        }
    }
}
