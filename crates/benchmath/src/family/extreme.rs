//! Computes how extreme a member is, as observed and under sign flips.

use std::cmp::Ordering;

use super::Series;
use crate::signed_rank::{Null, Walsh};
use crate::summary;

/// With more blocks, p values rarely tie, so sizes need not break ties.
pub const MAX_BLOCKS_WITH_SIZES: usize = 20;

/// Ordered by p (a smaller one is more extreme), then by size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Extreme {
    pub(super) p: f64,
    /// Distance from no effect in units of the kind's noise.
    pub(super) size: f64,
}

impl Extreme {
    /// Less extreme than any possible value.
    pub(super) const LEAST: Extreme = Extreme { p: f64::INFINITY, size: 0.0 };

    pub(super) fn total_cmp(&self, other: &Extreme) -> Ordering {
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
pub(super) struct Member<'a> {
    pub(super) series: &'a Series,
    scale: Scale,
    null: Null,
    walsh: Walsh,
}

pub(super) fn members(series: &[Series]) -> Vec<Member<'_>> {
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
    pub(super) fn own_p(&self, shift: f64) -> f64 {
        if self.len() == 0 { 1.0 } else { self.null.two_sided(self.walsh.lesser_count(shift)) }
    }

    pub(super) fn own_bounds(&self, alpha: f64) -> Option<(f64, f64)> {
        let count = self.null.largest_rejecting(alpha)?;
        Some((self.walsh.smallest(count), self.walsh.smallest(self.walsh.len() - 1 - count)))
    }

    /// The Hodges-Lehmann estimate; 0 without values.
    pub(super) fn estimate(&self) -> f64 {
        if self.len() == 0 { 0.0 } else { self.walsh.median() }
    }

    pub(super) fn observed(&self) -> Extreme {
        self.shifted(0.0)
    }

    /// As it would have been observed with `shift` subtracted from all log-ratios.
    pub(super) fn shifted(&self, shift: f64) -> Extreme {
        let p = self.own_p(shift);
        let shifted: Vec<f64> = self.series.logs.iter().map(|d| d - shift).collect();
        Extreme { p, size: self.size(&shifted) }
    }

    /// Under sign flips of `logs`, which are this member's log-ratios, possibly shifted.
    pub(super) fn flipped<'b>(&'b self, logs: &'b [f64]) -> impl FnMut(&[bool]) -> Extreme + 'b {
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
    pub(super) fn largest_lesser(&self, p: f64) -> Option<usize> {
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
pub(super) struct SignedRanks {
    positive: f64,
    changes: Vec<f64>,
    /// The ranks of all values but zeros.
    total: f64,
}

impl SignedRanks {
    pub(super) fn new(logs: &[f64]) -> SignedRanks {
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
    pub(super) fn lesser(&self, flip: &[bool]) -> usize {
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
