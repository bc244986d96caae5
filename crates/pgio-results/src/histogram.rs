//! Latency histogram with logarithmic buckets, identical on the server and here.
//!
//! A latency of `x` µs belongs to bucket `17 + round(16 * log2(max(x, 0.5)))`, numbered from 1 like
//! PostgreSQL arrays, so each bucket is 4.4 % wide. `workload/sql/` contains the same formula,
//! because the server counts too; a test keeps them equal. Counts of several slices, sessions or
//! drivers merge by addition.
//!
//! A quantile is interpolated inside its bucket on the logarithmic scale. With bucket centers,
//! every quantile and every ratio of two quantiles would be rounded to steps of 4.4 %.
//!
//! An operation cut off by the end of the window is *censored*: only a lower bound of its latency
//! is known. Such operations are counted separately, and every statistic that depends on them is a
//! lower bound ([`Reading::at_least`]).

#[cfg(test)]
#[path = "histogram_tests.rs"]
mod tests;

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Buckets per doubling of the latency.
pub const PER_OCTAVE: f64 = 16.0;
/// The bucket of 1 µs, numbered from 1.
pub const ONE_MICROSECOND: usize = 17;
/// Number of buckets; the last one is about 2^31 µs (36 minutes).
pub const BUCKETS: usize = 512;
/// The smallest quantile that is reported: 20 steps of the server's clock, whose resolution is 1 µs. The mean has
/// no such limit.
pub const MIN_QUANTILE_NS: f64 = 20_000.0;

/// Maximum relative error from censored latencies for a statistic that is not marked as a lower
/// bound: a few calls cut off by the end of the window must not mark every percentile.
pub const NEGLIGIBLE: f64 = 0.01;

/// A statistic in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    pub ns: f64,
    /// Whether it is a lower bound, because it depends on censored latencies.
    pub at_least: bool,
}

impl Reading {
    pub fn seconds(self) -> f64 {
        self.ns / 1e9
    }
}

/// Latencies of answered operations and, separately, lower bounds of censored ones, by bucket.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    answered: Counts,
    censored: Option<Box<Counts>>,
}

/// Counts by bucket, with exact count, sum and maximum.
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
    /// `None` if there are more than [`BUCKETS`] buckets.
    pub fn from_parts(counts: &[u64], sum_ns: f64, max_ns: f64) -> Option<Counts> {
        if counts.len() > BUCKETS {
            return None;
        }
        let mut all = counts.to_vec();
        all.resize(BUCKETS, 0);
        let count = all.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
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

    /// 0 if nothing was recorded.
    pub fn max_ns(&self) -> f64 {
        self.max_ns
    }

    /// Counts from bucket 1 on, without trailing empty buckets.
    pub fn counts(&self) -> &[u64] {
        let used = self.counts.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
        &self.counts[..used]
    }

    /// The latency at a rank from 0 to the count, interpolated on the logarithmic scale between the
    /// edges of its bucket. The maximum is the upper edge of the last used bucket.
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
                // The last bucket has no upper edge.
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
    /// From the values of a slice: bucket counts, their exact sum and maximum.
    ///
    /// Returns `None` if there are more than [`BUCKETS`] buckets.
    pub fn from_parts(counts: &[u64], sum_ns: f64, max_ns: f64) -> Option<Histogram> {
        Some(Histogram::new(Counts::from_parts(counts, sum_ns, max_ns)?, None))
    }

    /// From answered and censored operations.
    pub fn new(answered: Counts, censored: Option<Counts>) -> Histogram {
        let censored = censored.filter(|c| c.count > 0).map(Box::new);
        Histogram { answered, censored }
    }

    #[inline]
    pub fn record(&mut self, ns: f64) {
        self.answered.record(ns, 1);
    }

    /// Records `n` censored operations that took longer than `ns`.
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

    /// Number of answered operations.
    pub fn count(&self) -> u64 {
        self.answered.count
    }

    /// Number of censored operations.
    pub fn censored_count(&self) -> u64 {
        self.censored.as_ref().map_or(0, |c| c.count)
    }

    /// Number of all operations, from which quantiles are computed.
    pub fn total_count(&self) -> u64 {
        self.count() + self.censored_count()
    }

    /// Sum of the answered operations' latencies.
    pub fn sum_ns(&self) -> f64 {
        self.answered.sum_ns
    }

    /// Sum over all operations, including the lower bounds of censored ones.
    pub fn total_sum_ns(&self) -> f64 {
        self.sum_ns() + self.censored.as_ref().map_or(0.0, |c| c.sum_ns)
    }

    /// Exact mean of the answered operations; `None` without any.
    pub fn answered_mean_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum_ns() / self.count() as f64)
    }

    /// Exact maximum of the answered operations; `None` without any.
    pub fn answered_max_ns(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.answered.max_ns)
    }

    /// The mean of all operations. It counts as a lower bound if it would grow by more than
    /// [`NEGLIGIBLE`] with every censored operation as long as the longest known one.
    pub fn mean(&self) -> Option<Reading> {
        let all = self.total_count();
        let ns = (all > 0).then(|| self.total_sum_ns() / all as f64)?;
        let longest = self.max()?.ns;
        let upper = (self.sum_ns() + self.censored_count() as f64 * longest) / all as f64;
        Some(Reading { ns, at_least: upper > ns * (1.0 + NEGLIGIBLE) })
    }

    /// The longest of all operations; a lower bound if that operation is censored.
    pub fn max(&self) -> Option<Reading> {
        let censored = self.censored.as_ref().map_or(0.0, |c| c.max_ns);
        let ns = self.answered.max_ns.max(censored);
        let at_least = self.censored_count() > 0 && censored >= self.answered.max_ns;
        (self.total_count() > 0).then_some(Reading { ns, at_least })
    }

    /// Interpolated quantile `q` in 0..=1 of all operations; `None` if nothing was recorded. Each
    /// censored operation counts with its lower bound, so the quantile is a lower bound too, unless
    /// it would be almost the same if all of them had lasted forever.
    pub fn quantile(&self, q: f64) -> Option<Reading> {
        let rank = q * self.total_count() as f64;
        if self.censored.is_none() {
            let ns = self.answered.at_rank(rank)?;
            return Some(Reading { ns, at_least: false });
        }
        let ns = self.all_counts().at_rank(rank)?;
        let within = rank <= self.count() as f64;
        let at_most = self.answered.at_rank(rank).filter(|_| within);
        let at_least = at_most.is_none_or(|most| most > ns * (1.0 + NEGLIGIBLE));
        Some(Reading { ns, at_least })
    }

    /// The quantile without its flag.
    pub fn quantile_ns(&self, q: f64) -> Option<f64> {
        self.quantile(q).map(|reading| reading.ns)
    }

    /// Counts of answered operations from bucket 1 on, without trailing empty buckets.
    pub fn counts(&self) -> &[u64] {
        self.answered.counts()
    }

    /// Counts of censored operations, if any.
    pub fn censored(&self) -> Option<&Counts> {
        self.censored.as_deref()
    }

    /// Counts of answered and censored operations together.
    pub fn all_counts(&self) -> Counts {
        let mut all = self.answered.clone();
        self.censored.iter().for_each(|censored| all.merge(censored));
        all
    }
}

/// The bucket of a latency, numbered from 1.
pub fn bucket_of(ns: f64) -> usize {
    let us = (ns / 1000.0).max(0.5);
    (ONE_MICROSECOND as f64 + (us.log2() * PER_OCTAVE).round()) as usize
}

/// The geometric center of a bucket, numbered from 1.
pub fn center_ns(bucket: usize) -> f64 {
    1000.0 * ((bucket as f64 - ONE_MICROSECOND as f64) / PER_OCTAVE).exp2()
}

/// The lower edge of a bucket, numbered from 1; it is the upper edge of the bucket before.
fn edge_ns(bucket: usize) -> f64 {
    1000.0 * ((bucket as f64 - 0.5 - ONE_MICROSECOND as f64) / PER_OCTAVE).exp2()
}

/// Counting this many calls one by one takes a few milliseconds.
const MAX_SINGLE_CALLS: u64 = 100_000;
/// A ten-thousandth of a window is negligible compared with the time such calls have waited.
const MAX_GROUPS: u64 = 10_000;

/// Groups the calls of an open loop that were due but never began, of which there may be billions: a rate
/// far above the server's capacity leaves that many at the end of the window. A small number of calls is
/// counted one by one. In a group, each call counts as due when the last one was, so that its censored
/// latency stays a lower bound. Returns for each group the index of its last call, from 0, and its number of calls.
pub fn overdue_groups(calls: u64) -> impl Iterator<Item = (u64, u64)> {
    let groups = if calls <= MAX_SINGLE_CALLS { calls } else { MAX_GROUPS };
    // The product of larger counts does not fit into 64 bits.
    let begin =
        move |group: u64| (u128::from(group) * u128::from(calls) / u128::from(groups)) as u64;
    (0..groups).map(move |group| (begin(group + 1) - 1, begin(group + 1) - begin(group)))
}

/// Sixteen buckets per doubling; bucket b is centered on 2^((b-17)/16) µs.
///
/// A latency of x µs is in bucket 17 + round(16 × log2(max(x, 0.5))), from 1 to 512. Count, sum and maximum are exact.
/// Histograms of several trials merge by adding counts and sums and taking the larger maximum. The server's clock has
/// steps of 1 µs: percentiles below 20 µs are stored, but neither reported nor compared.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistogramV1 {
    pub count: u64,
    pub sum_seconds: f64,
    pub max_seconds: f64,
    /// Pairs of bucket (numbered from 1) and count; empty buckets are omitted.
    pub buckets: Vec<(usize, u64)>,
    /// Operations cut off by the end of the window, with lower bounds of their latencies; not
    /// included in the counts above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub censored: Option<CensoredV1>,
}

/// The same buckets for operations that took at least that long.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CensoredV1 {
    pub count: u64,
    pub sum_seconds: f64,
    pub max_seconds: f64,
    pub buckets: Vec<(usize, u64)>,
}

impl HistogramV1 {
    /// A bucket that the format does not define.
    pub fn undefined_bucket(&self) -> Option<usize> {
        let censored = self.censored.iter().flat_map(|c| &c.buckets);
        let mut buckets = self.buckets.iter().chain(censored).map(|(bucket, _)| *bucket);
        buckets.find(|bucket| !(1..=BUCKETS).contains(bucket))
    }
}

/// Pairs of bucket and nonzero count.
fn pairs(counts: &[u64]) -> Vec<(usize, u64)> {
    (1..).zip(counts).filter(|(_, n)| **n > 0).map(|(bucket, n)| (bucket, *n)).collect()
}

impl From<&Histogram> for HistogramV1 {
    fn from(h: &Histogram) -> Self {
        HistogramV1 {
            count: h.count(),
            sum_seconds: h.sum_ns() / 1e9,
            max_seconds: h.answered_max_ns().unwrap_or(0.0) / 1e9,
            buckets: pairs(h.counts()),
            censored: h.censored().map(|c| CensoredV1 {
                count: c.count(),
                sum_seconds: c.sum_ns() / 1e9,
                max_seconds: c.max_ns() / 1e9,
                buckets: pairs(c.counts()),
            }),
        }
    }
}

/// `None` if the format does not define one of the buckets.
fn counts(buckets: &[(usize, u64)], sum_seconds: f64, max_seconds: f64) -> Option<Counts> {
    let mut counts = vec![0; BUCKETS];
    for (bucket, n) in buckets {
        *counts.get_mut(bucket.checked_sub(1)?)? = *n;
    }
    Counts::from_parts(&counts, sum_seconds * 1e9, max_seconds * 1e9)
}

fn in_memory(h: &HistogramV1) -> Option<Histogram> {
    let answered = counts(&h.buckets, h.sum_seconds, h.max_seconds)?;
    let censored = match &h.censored {
        Some(c) => Some(counts(&c.buckets, c.sum_seconds, c.max_seconds)?),
        None => None,
    };
    Some(Histogram::new(answered, censored))
}

pub fn serialize<S: Serializer>(
    histograms: &BTreeMap<String, Histogram>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(histograms.iter().map(|(class, h)| (class, HistogramV1::from(h))))
}

pub fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Histogram>, D::Error> {
    let stored = BTreeMap::<String, HistogramV1>::deserialize(deserializer)?;
    let read = |(class, h): (String, HistogramV1)| {
        let histogram = in_memory(&h).ok_or_else(|| D::Error::custom("undefined bucket"))?;
        Ok((class, histogram))
    };
    stored.into_iter().map(read).collect()
}
