//! The reference set: sign flips shared by all members, and the result of each flip for a member.

use std::collections::BTreeMap;

use super::Series;
use super::extreme::{Extreme, Member, SignedRanks};
use crate::rng::SplitMix64;

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
pub(super) struct Flips {
    /// Signs by flip, then by block in the order of `blocks`.
    signs: Vec<Vec<bool>>,
    blocks: BTreeMap<u32, usize>,
    /// Whether `signs` are all flips, including the identity.
    exact: bool,
}

impl Flips {
    pub(super) fn new(series: &[Series]) -> Flips {
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
    pub(super) fn least_extreme(&self) -> Vec<Extreme> {
        vec![Extreme::LEAST; self.signs.len()]
    }

    /// How extreme each flip makes a member.
    pub(super) fn extremes(&self, member: &Member<'_>) -> Vec<Extreme> {
        self.evaluate(member, &member.series.logs)
    }

    /// How extreme each flip makes the distances of a member's values from its estimate.
    pub(super) fn residuals(&self, member: &Member<'_>) -> Vec<Extreme> {
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

    pub(super) fn reference<'a>(&'a self, others: &'a [Extreme]) -> Reference<'a> {
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
pub(super) fn more_extreme(a: &[Extreme], b: &[Extreme]) -> Vec<Extreme> {
    let more = |(a, b): (&Extreme, &Extreme)| if a.total_cmp(b).is_lt() { *b } else { *a };
    a.iter().zip(b).map(more).collect()
}

/// The most extreme of the members against which a member is judged, by flip.
#[derive(Debug)]
pub(super) struct Reference<'a> {
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
    pub(super) fn p(&self, member: &Member<'_>, shift: f64) -> f64 {
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
    pub(super) fn bounds(
        &self,
        member: &Member<'_>,
        alpha: f64,
        zero_rejected: bool,
    ) -> Option<(f64, f64)> {
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
