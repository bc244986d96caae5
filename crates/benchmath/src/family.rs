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

#[cfg(test)]
#[path = "family_tests.rs"]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::rng::SplitMix64;
use crate::signed_rank::{Null, Walsh};
use crate::summary::{self, assert_probability};

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
    let members = members(series);
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
        let all = rejected.as_ref().map(|rejected| more_extreme(others, rejected));
        let reference = flips.reference(all.as_deref().unwrap_or(others));
        judged[i] = MemberResult { p, bounds: reference.bounds(&members[i], alpha, p <= alpha) };
        if p <= alpha {
            let residuals = flips.residuals(&members[i]);
            rejected = Some(match &rejected {
                None => residuals,
                Some(earlier) => more_extreme(earlier, &residuals),
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
        let members = members(&rest);
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
        later[k] = more_extreme(&later[k + 1], &reference[k]);
    }

    let mut highest: f64 = 0.0;
    // The most extreme of the earlier members that were not rejected.
    let mut earlier = flips.least_extreme();
    for (k, i) in order.iter().enumerate() {
        let others = more_extreme(&earlier, &later[k + 1]);
        highest = highest.max(flips.reference(&others).p(&members[*i], 0.0));
        judged(*i, highest, &flips, &others);
        if highest > alpha {
            earlier = more_extreme(&earlier, &reference[k]);
        }
    }
}

/// With more blocks, p values rarely tie, so sizes need not break ties.
pub const MAX_BLOCKS_WITH_SIZES: usize = 20;

/// Ordered by p (a smaller one is more extreme), then by size.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Extreme {
    p: f64,
    /// Distance from no effect in units of the kind's noise.
    size: f64,
}

impl Extreme {
    /// Less extreme than any possible value.
    const LEAST: Extreme = Extreme { p: f64::INFINITY, size: 0.0 };

    fn total_cmp(&self, other: &Extreme) -> Ordering {
        other.p.total_cmp(&self.p).then(self.size.total_cmp(&other.size))
    }
}

/// The unit for sizes of a kind. Neither unit depends on the signs, as a valid statistic requires.
#[derive(Debug, Clone, Copy)]
enum Scale {
    /// The median in units of the median of the member with the least noise, often the baseline's
    /// A/A twin.
    Quietest(f64),
    /// For a single member: the mean in units of its standard deviation, which orders flips as Student's t
    /// does. Like the other unit it has no upper limit, so that a large effect exceeds the flips of other
    /// kinds.
    Own,
}

#[derive(Debug)]
struct Member<'a> {
    series: &'a Series,
    scale: Scale,
    null: Null,
    walsh: Walsh,
}

fn members(series: &[Series]) -> Vec<Member<'_>> {
    let noise = |s: &Series| {
        let sizes: Vec<f64> = s.logs.iter().map(|d| d.abs()).collect();
        summary::median(&sizes).unwrap_or(0.0)
    };
    let same_kind = |kind| series.iter().filter(move |s| s.kind == kind && !s.logs.is_empty());
    let scale = |s: &Series| match same_kind(s.kind).count() {
        0 | 1 => Scale::Own,
        // A member whose log-ratios are all 0 does not indicate the noise of the others.
        _ => same_kind(s.kind)
            .map(noise)
            .filter(|n| *n > 0.0)
            .reduce(f64::min)
            .map_or(Scale::Own, Scale::Quietest),
    };
    series
        .iter()
        .map(|s| {
            assert_eq!(s.blocks.len(), s.logs.len(), "each block has one log-ratio");
            Member {
                series: s,
                scale: scale(s),
                null: Null::new(s.logs.len()),
                walsh: Walsh::new(&s.logs),
            }
        })
        .collect()
}

impl Member<'_> {
    fn len(&self) -> usize {
        self.series.logs.len()
    }

    /// The signed-rank p of "the center is `shift`"; 1 without values.
    fn own_p(&self, shift: f64) -> f64 {
        if self.len() == 0 { 1.0 } else { self.null.two_sided(self.walsh.lesser_count(shift)) }
    }

    fn own_bounds(&self, alpha: f64) -> Option<(f64, f64)> {
        let count = self.null.largest_rejecting(alpha)?;
        Some((self.walsh.smallest(count), self.walsh.smallest(self.walsh.len() - 1 - count)))
    }

    /// The Hodges-Lehmann estimate; 0 without values.
    fn estimate(&self) -> f64 {
        if self.len() == 0 { 0.0 } else { self.walsh.median() }
    }

    fn observed(&self) -> Extreme {
        self.shifted(0.0)
    }

    /// As it would have been observed with `shift` subtracted from all log-ratios.
    fn shifted(&self, shift: f64) -> Extreme {
        let p = self.own_p(shift);
        let shifted: Vec<f64> = self.series.logs.iter().map(|d| d - shift).collect();
        Extreme { p, size: self.size(&shifted) }
    }

    /// Under sign flips of `logs`, which are this member's log-ratios, possibly shifted.
    fn flipped<'b>(&'b self, logs: &'b [f64]) -> impl FnMut(&[bool]) -> Extreme + 'b {
        let ranks = SignedRanks::new(logs);
        let mut signed = logs.to_vec();
        move |flip| {
            let p = self.null.two_sided(ranks.lesser(flip));
            if logs.len() > MAX_BLOCKS_WITH_SIZES {
                return Extreme { p, size: 0.0 };
            }
            for ((signed, log), flip) in signed.iter_mut().zip(logs).zip(flip) {
                *signed = if *flip { -log } else { *log };
            }
            Extreme { p, size: self.size(&signed) }
        }
    }

    /// The largest lesser rank sum whose p is at most `p`; a flip with a larger one is less
    /// extreme. `None` if even 0 has a larger p.
    fn largest_lesser(&self, p: f64) -> Option<usize> {
        self.null.largest_rejecting(p)
    }

    fn size(&self, logs: &[f64]) -> f64 {
        if logs.is_empty() || logs.len() > MAX_BLOCKS_WITH_SIZES {
            return 0.0;
        }
        match self.scale {
            Scale::Quietest(noise) => {
                let mut sorted = [0.0; MAX_BLOCKS_WITH_SIZES];
                let sorted = &mut sorted[..logs.len()];
                sorted.copy_from_slice(logs);
                sorted.sort_unstable_by(f64::total_cmp);
                summary::median_of_sorted(sorted).unwrap_or(0.0).abs() / noise
            }
            Scale::Own => {
                let (sum, squares) = logs.iter().fold((0.0, 0.0), |(s, q), d| (s + d, q + d * d));
                let root = (squares * logs.len() as f64).sqrt();
                if root == 0.0 {
                    return 0.0;
                }
                // The mean is a share of the root mean square, at most 1. Round to a billionth, so that equal
                // values are equally extreme in any order.
                let share = ((sum.abs() / root * 1e9).round() / 1e9).min(1.0);
                share / (1.0 - share * share).sqrt()
            }
        }
    }
}

/// Ranks of the absolute values, with the change of the positive rank sum by each sign flip. Ties
/// and zeros are treated so that flips become more extreme, because they must not help to reject: a
/// zero counts on neither side, so a flip and its mirror image are equally extreme.
#[derive(Debug)]
struct SignedRanks {
    positive: f64,
    changes: Vec<f64>,
    /// The ranks of all values but zeros.
    total: f64,
}

impl SignedRanks {
    fn new(logs: &[f64]) -> SignedRanks {
        let mut signed =
            SignedRanks { positive: 0.0, changes: Vec::with_capacity(logs.len()), total: 0.0 };
        for (log, rank) in logs.iter().zip(ranks(logs)) {
            let change = match log.total_cmp(&0.0) {
                _ if *log == 0.0 => 0.0,
                Ordering::Less => rank,
                _ => -rank,
            };
            signed.changes.push(change);
            signed.positive += (-change).max(0.0);
            signed.total += change.abs();
        }
        signed
    }

    /// The lesser rank sum. Ranks are multiples of 1/2, so their sums are exact.
    fn lesser(&self, flip: &[bool]) -> usize {
        let changes = self.changes.iter().zip(flip);
        // Multiply instead of branching, because the signs are random.
        let change: f64 = changes.map(|(change, flip)| change * f64::from(u8::from(*flip))).sum();
        let positive = self.positive + change;
        positive.min(self.total - positive).floor() as usize
    }
}

/// Ranks of the absolute values; ties share their mean rank.
fn ranks(logs: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..logs.len()).collect();
    order.sort_by(|a, b| logs[*a].abs().total_cmp(&logs[*b].abs()));
    let mut ranks = vec![0.0; logs.len()];
    let mut from = 0;
    for tied in order.chunk_by(|a, b| logs[*a].abs() == logs[*b].abs()) {
        let mean = from as f64 + (tied.len() as f64 + 1.0) / 2.0;
        tied.iter().for_each(|i| ranks[*i] = mean);
        from += tied.len();
    }
    ranks
}

/// Up to this many blocks every flip is evaluated: 2,048 of them; the other half are their mirror
/// images.
pub const MAX_EXHAUSTIVE_BLOCKS: usize = 12;

/// With more blocks, the number of random flips; fewer if each takes long. The identity is counted
/// in addition. The seed is fixed, so that the same record always gives the same decisions.
pub const RANDOM_FLIPS: usize = 2_047;
pub const RANDOM_FLIPS_OF_MANY: usize = 999;
pub const MANY_BLOCKS: usize = 100;
const SEED: u64 = 0x05EE_D0FF_11B5;

/// Bisection steps for an end of an interval: down to less than a millionth of the first step.
const HALVINGS: usize = 24;

/// An end further away than 2^12 times the spread of the values is infinite.
const DOUBLINGS: usize = 12;

#[derive(Debug)]
struct Flips {
    /// Signs by flip, then by block in the order of `blocks`.
    signs: Vec<Vec<bool>>,
    blocks: BTreeMap<u32, usize>,
    /// Whether `signs` are all flips, including the identity.
    exact: bool,
}

impl Flips {
    fn new(series: &[Series]) -> Flips {
        let numbers = series.iter().flat_map(|s| &s.blocks).copied();
        let mut blocks: BTreeMap<u32, usize> = numbers.map(|block| (block, 0)).collect();
        blocks.values_mut().enumerate().for_each(|(i, index)| *index = i);
        let n = blocks.len();
        let exact = n <= MAX_EXHAUSTIVE_BLOCKS;
        let signs = if exact {
            // The last block keeps its sign, because mirrored flips are equally extreme.
            let count = 1u32 << n.saturating_sub(1);
            (0..count).map(|flip| (0..n).map(|i| flip >> i & 1 == 1).collect()).collect()
        } else {
            let mut rng = SplitMix64::new(SEED);
            let drawn = if n > MANY_BLOCKS { RANDOM_FLIPS_OF_MANY } else { RANDOM_FLIPS };
            (0..drawn).map(|_| (0..n).map(|_| rng.next_u64() >> 63 == 1).collect()).collect()
        };
        Flips { signs, blocks, exact }
    }

    /// The least extreme value for each flip: without any member.
    fn least_extreme(&self) -> Vec<Extreme> {
        vec![Extreme::LEAST; self.signs.len()]
    }

    /// How extreme each flip makes a member.
    fn extremes(&self, member: &Member<'_>) -> Vec<Extreme> {
        self.evaluate(member, &member.series.logs)
    }

    /// How extreme each flip makes the distances of a member's values from its estimate.
    fn residuals(&self, member: &Member<'_>) -> Vec<Extreme> {
        let center = member.estimate();
        let residuals: Vec<f64> = member.series.logs.iter().map(|d| d - center).collect();
        self.evaluate(member, &residuals)
    }

    fn evaluate(&self, member: &Member<'_>, logs: &[f64]) -> Vec<Extreme> {
        if logs.is_empty() {
            return self.least_extreme();
        }
        let mut flipped = member.flipped(logs);
        let mut flips = self.member_flips(member);
        (0..self.signs.len()).map(|flip| flipped(flips.signs(flip))).collect()
    }

    fn member_flips<'a>(&'a self, member: &Member<'_>) -> MemberFlips<'a> {
        let indexes: Vec<usize> = member.series.blocks.iter().map(|b| self.blocks[b]).collect();
        MemberFlips { flips: self, own: vec![false; indexes.len()], indexes }
    }

    fn reference<'a>(&'a self, others: &'a [Extreme]) -> Reference<'a> {
        let mut sorted = others.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        Reference { flips: self, others, sorted }
    }
}

/// The flips restricted to the blocks of one member.
struct MemberFlips<'a> {
    flips: &'a Flips,
    indexes: Vec<usize>,
    own: Vec<bool>,
}

impl MemberFlips<'_> {
    fn signs(&mut self, flip: usize) -> &[bool] {
        let signs = &self.flips.signs[flip];
        for (own, index) in self.own.iter_mut().zip(&self.indexes) {
            *own = signs[*index];
        }
        &self.own
    }
}

/// The more extreme value for each flip.
fn more_extreme(a: &[Extreme], b: &[Extreme]) -> Vec<Extreme> {
    let more = |(a, b): (&Extreme, &Extreme)| if a.total_cmp(b).is_lt() { *b } else { *a };
    a.iter().zip(b).map(more).collect()
}

/// The most extreme of the members against which a member is judged, by flip.
#[derive(Debug)]
struct Reference<'a> {
    flips: &'a Flips,
    others: &'a [Extreme],
    /// The same values, most extreme first.
    sorted: Vec<Extreme>,
}

impl Reference<'_> {
    /// The share of flips in which the member, moved by `shift`, or one of the others is at least
    /// as extreme as observed; never below the member's own exact p. With more than [`MANY_BLOCKS`]
    /// blocks, the member's share is its own p and the two shares are added: an upper bound that
    /// ignores their small overlap and needs no flips.
    fn p(&self, member: &Member<'_>, shift: f64) -> f64 {
        let observed = member.shifted(shift);
        let others = self.count_as_extreme(&observed);
        self.p_of_observed(member, shift, &observed, others)
    }

    /// Like [`Reference::p`], for the observed value and the number of flips in which one of the
    /// others is at least as extreme.
    fn p_of_observed(
        &self,
        member: &Member<'_>,
        shift: f64,
        observed: &Extreme,
        others: usize,
    ) -> f64 {
        if self.flips.blocks.len() > MANY_BLOCKS {
            return (self.share(others) + observed.p).min(1.0);
        }
        let Some(enough) = member.largest_lesser(observed.p) else {
            return 1.0;
        };
        let shifted: Vec<f64> = member.series.logs.iter().map(|d| d - shift).collect();
        let ranks = SignedRanks::new(&shifted);
        let mut flips = self.flips.member_flips(member);
        let own = (0..self.others.len())
            .filter(|flip| self.others[*flip].total_cmp(observed).is_lt())
            .filter(|flip| ranks.lesser(flips.signs(*flip)) <= enough)
            .count();
        self.share(others + own).max(observed.p).min(1.0)
    }

    /// Number of flips in which one of the others is at least as extreme.
    fn count_as_extreme(&self, observed: &Extreme) -> usize {
        self.sorted.partition_point(|other| other.total_cmp(observed).is_ge())
    }

    fn share(&self, count: usize) -> f64 {
        if self.flips.exact {
            count as f64 / self.others.len() as f64
        } else {
            // The identity is exactly as extreme as observed.
            (count + 1) as f64 / (self.others.len() + 1) as f64
        }
    }

    /// Whether `p` is at most `alpha`. Skips the member's flips if the others or its own test
    /// suffice.
    fn rejects(&self, member: &Member<'_>, shift: f64, alpha: f64) -> bool {
        let observed = member.shifted(shift);
        if observed.p > alpha {
            return false;
        }
        let others = self.count_as_extreme(&observed);
        self.share(others) <= alpha && self.p_of_observed(member, shift, &observed, others) <= alpha
    }

    /// The interval of shifts that are not rejected. It contains the member's own interval; beyond
    /// its ends the member only becomes more extreme, so bisection finds each end. `zero_rejected`
    /// is the decision on 0, which an end never contradicts.
    fn bounds(&self, member: &Member<'_>, alpha: f64, zero_rejected: bool) -> Option<(f64, f64)> {
        let (low, high) = member.own_bounds(alpha)?;
        let rejected = |shift: f64| {
            if shift == 0.0 { zero_rejected } else { self.rejects(member, shift, alpha) }
        };
        let far = |inside: f64| {
            let logs = &member.series.logs;
            logs.iter().fold(f64::EPSILON, |far, d| far.max((d - inside).abs()))
        };
        Some((find_bound(rejected, low, -far(low)), find_bound(rejected, high, far(high))))
    }
}

/// Searches outward from a shift that is not rejected, starting with steps of `step`.
fn find_bound(rejected: impl Fn(f64) -> bool, inside: f64, mut step: f64) -> f64 {
    let zero_is_outward = inside * step < 0.0;
    let (mut kept, mut outside) = if !zero_is_outward {
        (inside, inside + step)
    } else if rejected(0.0) {
        (inside, 0.0)
    } else {
        (0.0, step)
    };
    let mut doubled = 0;
    while !rejected(outside) {
        kept = outside;
        step *= 2.0;
        outside += step;
        doubled += 1;
        if doubled > DOUBLINGS {
            return step * f64::INFINITY;
        }
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(kept, outside);
        if rejected(middle) { outside = middle } else { kept = middle }
    }
    kept
}
