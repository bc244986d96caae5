//! The reference set: flips of signs, shared by all members, and what each of them makes of a
//! member.

use std::collections::BTreeMap;

use super::Series;
use super::extreme::{Extreme, Member, SignedRanks};
use crate::rng::SplitMix64;

/// Up to so many blocks every flip is tried: 2,048 of them, the other half being their mirror.
const ALL_UP_TO: usize = 12;

/// Beyond, as many at random, fewer where each takes long; none of them is the identity, which
/// counts beside them. The seed is fixed: the same record always gives the same verdicts.
const DRAWN: usize = 2_047;
const DRAWN_OF_MANY: usize = 999;
const MANY: usize = 100;
const SEED: u64 = 0x05EE_D0FF_11B5;

/// How often an end of an interval is halved: to a millionth of the first step.
const HALVINGS: usize = 24;

/// An end that lies further out than 2^12 times the values' spread is nowhere.
const DOUBLINGS: usize = 12;

#[derive(Debug)]
pub(super) struct Flips {
    /// By flip, then by block in the order of `blocks`.
    signs: Vec<Vec<bool>>,
    blocks: BTreeMap<u32, usize>,
    /// Whether `signs` are all there are, the identity among them.
    exact: bool,
}

impl Flips {
    pub(super) fn of(series: &[Series]) -> Flips {
        let numbers = series.iter().flat_map(|s| &s.blocks).copied();
        let mut blocks: BTreeMap<u32, usize> = numbers.map(|block| (block, 0)).collect();
        blocks.values_mut().enumerate().for_each(|(i, place)| *place = i);
        let n = blocks.len();
        let exact = n <= ALL_UP_TO;
        let signs = if exact {
            // The last block keeps its sign: mirrored flips are equally extreme.
            let count = 1u32 << n.saturating_sub(1);
            (0..count).map(|flip| (0..n).map(|i| flip >> i & 1 == 1).collect()).collect()
        } else {
            let mut rng = SplitMix64::new(SEED);
            let drawn = if n > MANY { DRAWN_OF_MANY } else { DRAWN };
            (0..drawn).map(|_| (0..n).map(|_| rng.next_u64() >> 63 == 1).collect()).collect()
        };
        Flips { signs, blocks, exact }
    }

    /// One for each flip: no member at all.
    pub(super) fn nothing(&self) -> Vec<Extreme> {
        vec![Extreme::LEAST; self.signs.len()]
    }

    /// What each flip makes of a member.
    pub(super) fn extremes(&self, member: &Member<'_>) -> Vec<Extreme> {
        self.each(member, &member.series.logs)
    }

    /// What each flip makes of a member's distances from its own estimate.
    pub(super) fn residuals(&self, member: &Member<'_>) -> Vec<Extreme> {
        let centre = member.estimate();
        let residuals: Vec<f64> = member.series.logs.iter().map(|d| d - centre).collect();
        self.each(member, &residuals)
    }

    fn each(&self, member: &Member<'_>, logs: &[f64]) -> Vec<Extreme> {
        if logs.is_empty() {
            return self.nothing();
        }
        let mut flipped = member.flipped(logs);
        let mut flips = self.of_member(member);
        (0..self.signs.len()).map(|flip| flipped(flips.signs(flip))).collect()
    }

    fn of_member<'a>(&'a self, member: &Member<'_>) -> OfMember<'a> {
        let places: Vec<usize> = member.series.blocks.iter().map(|b| self.blocks[b]).collect();
        OfMember { flips: self, own: vec![false; places.len()], places }
    }

    pub(super) fn against<'a>(&'a self, others: &'a [Extreme]) -> Against<'a> {
        let mut sorted = others.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        Against { flips: self, others, sorted }
    }
}

/// The flips of those blocks that one member has.
struct OfMember<'a> {
    flips: &'a Flips,
    places: Vec<usize>,
    own: Vec<bool>,
}

impl OfMember<'_> {
    fn signs(&mut self, flip: usize) -> &[bool] {
        let signs = &self.flips.signs[flip];
        for (own, place) in self.own.iter_mut().zip(&self.places) {
            *own = signs[*place];
        }
        &self.own
    }
}

/// The more extreme of each flip.
pub(super) fn larger(a: &[Extreme], b: &[Extreme]) -> Vec<Extreme> {
    let more = |(a, b): (&Extreme, &Extreme)| if a.total_cmp(b).is_lt() { *b } else { *a };
    a.iter().zip(b).map(more).collect()
}

/// The most extreme of the members that stand beside the one that is judged, by flip.
#[derive(Debug)]
pub(super) struct Against<'a> {
    flips: &'a Flips,
    others: &'a [Extreme],
    /// The same, the most extreme first.
    sorted: Vec<Extreme>,
}

impl Against<'_> {
    /// The share of flips in which the member, moved by `shift`, or one of the others is as extreme
    /// as the member is seen; never below the member's own exact p. With more than [`MANY`] blocks
    /// the member's share is its own p, and the two are added: a bound, a little above what they
    /// have in common, which costs no flip.
    pub(super) fn p(&self, member: &Member<'_>, shift: f64) -> f64 {
        let seen = member.moved(shift);
        let others = self.as_extreme(&seen);
        self.p_seen(member, shift, &seen, others)
    }

    /// With what the member is seen as, and in how many flips one of the others is as extreme.
    fn p_seen(&self, member: &Member<'_>, shift: f64, seen: &Extreme, others: usize) -> f64 {
        if self.flips.blocks.len() > MANY {
            return (self.share(others) + seen.p).min(1.0);
        }
        let Some(enough) = member.largest_lesser(seen.p) else {
            return 1.0;
        };
        let moved: Vec<f64> = member.series.logs.iter().map(|d| d - shift).collect();
        let ranks = SignedRanks::of(&moved);
        let mut flips = self.flips.of_member(member);
        let own = (0..self.others.len())
            .filter(|flip| self.others[*flip].total_cmp(seen).is_lt())
            .filter(|flip| ranks.lesser(flips.signs(*flip)) <= enough)
            .count();
        self.share(others + own).max(seen.p).min(1.0)
    }

    /// In how many flips one of the others is as extreme.
    fn as_extreme(&self, seen: &Extreme) -> usize {
        self.sorted.partition_point(|other| other.total_cmp(seen).is_ge())
    }

    fn share(&self, count: usize) -> f64 {
        if self.flips.exact {
            count as f64 / self.others.len() as f64
        } else {
            // The identity is as extreme as what was seen.
            (count + 1) as f64 / (self.others.len() + 1) as f64
        }
    }

    /// Whether `p` is at most `alpha`, without the flips of the member where the others, or its own
    /// test, say so alone.
    fn rejects(&self, member: &Member<'_>, shift: f64, alpha: f64) -> bool {
        let seen = member.moved(shift);
        if seen.p > alpha {
            return false;
        }
        let others = self.as_extreme(&seen);
        self.share(others) <= alpha && self.p_seen(member, shift, &seen, others) <= alpha
    }

    /// The shifts that are not rejected. The member's own interval is inside: beyond its ends the
    /// member only gets more extreme, so each end is found by halving. `zero_rejected` is the
    /// verdict on 0, which an end never contradicts.
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
        Some((end(rejected, low, -far(low)), end(rejected, high, far(high))))
    }
}

/// From a shift that is not rejected outward, in first steps of `step`.
fn end(rejected: impl Fn(f64) -> bool, inside: f64, mut step: f64) -> f64 {
    let zero_is_outward = inside * step < 0.0;
    let (mut kept, mut outside) = match zero_is_outward {
        true if rejected(0.0) => (inside, 0.0),
        true => (0.0, step),
        false => (inside, inside + step),
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
