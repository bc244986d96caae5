//! Latency histogram with logarithmic buckets, the same on the server and here.
//!
//! A latency of `x` µs falls into bucket `17 + round(16 * log2(max(x, 0.5)))`, counted from 1 as
//! PostgreSQL arrays are, so each bucket is 4.4 % wide. The formula stands once more in
//! `workload/sql/`, where the counting happens; a test holds the two together. Counts of several
//! slices, sessions or drivers merge by addition.
//!
//! A quantile is interpolated inside its bucket, on the logarithmic scale: bucket centers alone
//! would put every quantile on a lattice of 4.4 %, and the ratio of two of them as well.
//!
//! An operation that the window's end cut off is *censored*: only a lower bound of its latency is
//! known. Such operations are counted beside the others, and every statistic that depends on
//! them is a lower bound ([`Reading::at_least`]).

/// Buckets per doubling of the latency.
pub const PER_OCTAVE: f64 = 16.0;
/// Where 1 µs falls, counted from 1.
pub const ONE_MICROSECOND: usize = 17;
/// Number of buckets: the last one is 2^31 µs, some 36 minutes.
pub const BUCKETS: usize = 512;
/// The clock of the server has steps of 1 µs: below this a quantile says nothing, the mean does.
pub const COARSEST_QUANTILE_NS: f64 = 20_000.0;

/// How far the unknown part of censored latencies may move a statistic that is still shown as a
/// plain number: a few calls that the window's end cut off must not mark every percentile.
const NEGLIGIBLE: f64 = 0.01;

/// A statistic in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    pub ns: f64,
    /// It is a lower bound: it depends on latencies of which no more is known than that.
    pub at_least: bool,
}

impl Reading {
    pub fn seconds(self) -> f64 {
        self.ns / 1e9
    }
}

/// Latencies by bucket, those of operations that were answered apart from the lower bounds of those
/// that were cut off.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    answered: Counts,
    censored: Option<Box<Counts>>,
}

/// Counts by bucket, with the exact count, sum and maximum beside them.
#[derive(Debug, Clone, PartialEq)]
pub struct Counts {
    counts: Vec<u64>,
    count: u64,
    sum_ns: f64,
    max_ns: f64,
}

impl Default for Counts {
    fn default() -> Self {
        Counts { counts: vec![0; BUCKETS], count: 0, sum_ns: 0.0, max_ns: 0.0 }
    }
}

impl Counts {
    /// `None` when there are more buckets than the format knows.
    pub fn from_parts(counts: &[u64], sum_ns: f64, max_ns: f64) -> Option<Counts> {
        if counts.len() > BUCKETS {
            return None;
        }
        let mut all = counts.to_vec();
        all.resize(BUCKETS, 0);
        let count = all.iter().sum();
        Some(Counts { counts: all, count, sum_ns, max_ns })
    }

    #[inline]
    fn record(&mut self, ns: f64, n: u64) {
        let bucket = bucket_of(ns).clamp(1, BUCKETS);
        self.counts[bucket - 1] += n;
        self.count += n;
        self.sum_ns += ns * n as f64;
        self.max_ns = self.max_ns.max(ns);
    }

    fn merge(&mut self, other: &Counts) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum_ns(&self) -> f64 {
        self.sum_ns
    }

    /// 0 when nothing was recorded.
    pub fn max_ns(&self) -> f64 {
        self.max_ns
    }

    /// Bucket counts, counted from bucket 1, without the empty tail.
    pub fn counts(&self) -> &[u64] {
        let used = self.counts.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
        &self.counts[..used]
    }

    /// Where a rank from 0 to the count lies, on the logarithmic scale between the edges of its
    /// bucket; the maximum is the upper edge of the last one.
    fn at_rank(&self, rank: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let rank = rank.clamp(0.0, self.count as f64);
        let mut below = 0;
        for (index, n) in self.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            let up_to = below + n;
            if up_to as f64 >= rank {
                let bucket = index + 1;
                let low = edge_ns(bucket);
                let is_last = up_to == self.count;
                // The last bucket of the format has no upper edge.
                let open = is_last && (bucket == BUCKETS || self.max_ns < edge_ns(bucket + 1));
                let high = if open { self.max_ns.max(low) } else { edge_ns(bucket + 1) };
                let share = (rank - below as f64) / *n as f64;
                return Some((low * (high / low).powf(share)).min(self.max_ns));
            }
            below = up_to;
        }
        Some(self.max_ns)
    }
}

impl Histogram {
    /// From what a slice returns: bucket counts, their exact sum and maximum.
    ///
    /// Returns `None` when there are more buckets than the format knows.
    pub fn from_parts(counts: &[u64], sum_ns: f64, max_ns: f64) -> Option<Histogram> {
        Some(Histogram::new(Counts::from_parts(counts, sum_ns, max_ns)?, None))
    }

    /// Of operations that were answered, and of those that were cut off.
    pub fn new(answered: Counts, censored: Option<Counts>) -> Histogram {
        let censored = censored.filter(|c| c.count > 0).map(Box::new);
        Histogram { answered, censored }
    }

    #[inline]
    pub fn record(&mut self, ns: f64) {
        self.answered.record(ns, 1);
    }

    /// `n` operations that took longer than `ns`: nobody knows by how much.
    pub fn record_censored(&mut self, ns: f64, n: u64) {
        if n > 0 {
            self.censored.get_or_insert_default().record(ns, n);
        }
    }

    pub fn merge(&mut self, other: &Histogram) {
        self.answered.merge(&other.answered);
        if let Some(censored) = &other.censored {
            self.censored.get_or_insert_default().merge(censored);
        }
    }

    /// Operations that were answered.
    pub fn count(&self) -> u64 {
        self.answered.count
    }

    /// Those that were cut off.
    pub fn censored_count(&self) -> u64 {
        self.censored.as_ref().map_or(0, |c| c.count)
    }

    /// Both together: what quantiles are taken of.
    pub fn observed(&self) -> u64 {
        self.count() + self.censored_count()
    }

    /// Of the answered ones.
    pub fn sum_ns(&self) -> f64 {
        self.answered.sum_ns
    }

    /// Of all: what is known of the cut-off ones is in it.
    pub fn observed_sum_ns(&self) -> f64 {
        self.sum_ns() + self.censored.as_ref().map_or(0.0, |c| c.sum_ns)
    }

    /// Exact mean of the answered ones, or `None` when there are none.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum_ns() / self.count() as f64)
    }

    /// Exact maximum of the answered ones, or `None` when there are none.
    pub fn max_ns(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.answered.max_ns)
    }

    /// The mean of all: a lower bound where it would be larger by more than [`NEGLIGIBLE`] if
    /// everything that was cut off had taken as long as the longest operation known.
    pub fn mean(&self) -> Option<Reading> {
        let all = self.observed();
        let ns = (all > 0).then(|| self.observed_sum_ns() / all as f64)?;
        let longest = self.longest()?.ns;
        let could_be = (self.sum_ns() + self.censored_count() as f64 * longest) / all as f64;
        Some(Reading { ns, at_least: could_be > ns * (1.0 + NEGLIGIBLE) })
    }

    /// The longest of all: a lower bound where that one was cut off.
    pub fn longest(&self) -> Option<Reading> {
        let censored = self.censored.as_ref().map_or(0.0, |c| c.max_ns);
        let ns = self.answered.max_ns.max(censored);
        let at_least = self.censored_count() > 0 && censored >= self.answered.max_ns;
        (self.observed() > 0).then_some(Reading { ns, at_least })
    }

    /// Quantile `q` in 0..=1 of all, interpolated; `None` when nothing was recorded. Each cut-off
    /// operation counts with its lower bound, so the quantile is one as well, unless it would be
    /// nearly the same if all of them had lasted forever.
    pub fn quantile(&self, q: f64) -> Option<Reading> {
        let rank = q * self.observed() as f64;
        let Some(censored) = &self.censored else {
            let ns = self.answered.at_rank(rank)?;
            return Some(Reading { ns, at_least: false });
        };
        let mut all = self.answered.clone();
        all.merge(censored);
        let ns = all.at_rank(rank)?;
        let within = rank <= self.count() as f64;
        let at_most = self.answered.at_rank(rank).filter(|_| within);
        let at_least = at_most.is_none_or(|most| most > ns * (1.0 + NEGLIGIBLE));
        Some(Reading { ns, at_least })
    }

    /// The quantile's number alone.
    pub fn quantile_ns(&self, q: f64) -> Option<f64> {
        self.quantile(q).map(|reading| reading.ns)
    }

    /// Of the answered ones: bucket counts, counted from bucket 1, without the empty tail.
    pub fn counts(&self) -> &[u64] {
        self.answered.counts()
    }

    /// Of the cut-off ones, where there are any.
    pub fn censored(&self) -> Option<&Counts> {
        self.censored.as_deref()
    }

    /// All together, without the distinction.
    pub fn together(&self) -> Counts {
        let mut all = self.answered.clone();
        self.censored.iter().for_each(|censored| all.merge(censored));
        all
    }
}

/// The bucket of a latency, counted from 1.
pub fn bucket_of(ns: f64) -> usize {
    let us = (ns / 1000.0).max(0.5);
    (ONE_MICROSECOND as f64 + (us.log2() * PER_OCTAVE).round()) as usize
}

/// The geometric center of a bucket counted from 1.
pub fn center_ns(bucket: usize) -> f64 {
    1000.0 * ((bucket as f64 - ONE_MICROSECOND as f64) / PER_OCTAVE).exp2()
}

/// The lower edge of a bucket counted from 1: the upper one of the bucket before.
fn edge_ns(bucket: usize) -> f64 {
    1000.0 * ((bucket as f64 - 0.5 - ONE_MICROSECOND as f64) / PER_OCTAVE).exp2()
}

#[cfg(test)]
mod tests;
