//! Latency histogram with logarithmic buckets, the same on the server and here.
//!
//! A latency of `x` µs falls into bucket `17 + round(16 * log2(max(x, 0.5)))`, counted from 1 as
//! PostgreSQL arrays are, so each bucket is 4.4 % wide and quantiles are within 2.2 %. The formula
//! stands once more in `workload/sql/`, where the counting happens; a test holds the two together.
//! Counts of several slices, sessions or drivers merge by addition.

/// Buckets per doubling of the latency.
pub const PER_OCTAVE: f64 = 16.0;
/// Where 1 µs falls, counted from 1.
pub const ONE_MICROSECOND: usize = 17;
/// Number of buckets: the last one is 2^31 µs, some 36 minutes.
pub const BUCKETS: usize = 512;
/// The clock of the server has steps of 1 µs: below this a quantile says nothing, the mean does.
pub const COARSEST_QUANTILE_NS: f64 = 20_000.0;

/// Counts by bucket, with the exact count, sum and maximum beside them.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: f64,
    max_ns: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], count: 0, sum_ns: 0.0, max_ns: 0.0 }
    }
}

impl Histogram {
    /// From what a slice returns: bucket counts, their exact sum and maximum.
    ///
    /// Returns `None` when there are more buckets than the format knows.
    pub fn from_parts(counts: &[u64], sum_ns: f64, max_ns: f64) -> Option<Histogram> {
        if counts.len() > BUCKETS {
            return None;
        }
        let mut all = counts.to_vec();
        all.resize(BUCKETS, 0);
        let count = all.iter().sum();
        Some(Histogram { counts: all, count, sum_ns, max_ns })
    }

    pub fn record(&mut self, ns: f64) {
        let bucket = bucket_of(ns).clamp(1, BUCKETS);
        self.counts[bucket - 1] += 1;
        self.count += 1;
        self.sum_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn merge(&mut self, other: &Histogram) {
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

    /// Exact mean, or `None` when nothing was recorded.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns / self.count as f64)
    }

    /// Exact maximum, or `None` when nothing was recorded.
    pub fn max_ns(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// The centre of the bucket that holds quantile `q` in 0..=1, never above the maximum.
    pub fn quantile_ns(&self, q: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (index, n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return Some(centre_ns(index + 1).min(self.max_ns));
            }
        }
        Some(self.max_ns)
    }

    /// Bucket counts, counted from bucket 1, without the empty tail.
    pub fn counts(&self) -> &[u64] {
        let used = self.counts.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
        &self.counts[..used]
    }
}

/// The bucket of a latency, counted from 1.
pub fn bucket_of(ns: f64) -> usize {
    let us = (ns / 1000.0).max(0.5);
    (ONE_MICROSECOND as f64 + (us.log2() * PER_OCTAVE).round()) as usize
}

/// The geometric centre of a bucket counted from 1.
pub fn centre_ns(bucket: usize) -> f64 {
    1000.0 * ((bucket as f64 - ONE_MICROSECOND as f64) / PER_OCTAVE).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_microsecond_is_bucket_seventeen() {
        assert_eq!(bucket_of(1000.0), ONE_MICROSECOND);
        assert_eq!(bucket_of(2000.0), ONE_MICROSECOND + 16);
        assert_eq!(bucket_of(0.0), 1);
    }

    #[test]
    fn empty_has_no_statistics() {
        let empty = Histogram::default();
        assert_eq!(empty.quantile_ns(0.5), None);
        assert_eq!(empty.mean_ns(), None);
        assert!(empty.counts().is_empty());
    }

    #[test]
    fn quantiles_of_a_known_sample() {
        let mut h = Histogram::default();
        for us in 1..=1000 {
            h.record(f64::from(us) * 1000.0);
        }
        for (q, us) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0)] {
            let got = h.quantile_ns(q).unwrap() / 1000.0;
            assert!((got / us - 1.0).abs() < 0.025, "{q}: {got} is not {us}");
        }
        assert_eq!(h.max_ns(), Some(1_000_000.0));
        assert_eq!(h.mean_ns(), Some(500_500.0));
    }

    #[test]
    fn more_buckets_than_known_are_refused() {
        assert_eq!(Histogram::from_parts(&[0; BUCKETS + 1], 0.0, 0.0), None);
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_latency_within_its_width(ns in 500.0f64..2e12) {
            let centre = centre_ns(bucket_of(ns));
            prop_assert!((centre / ns).ln().abs() <= 0.5 / PER_OCTAVE * 2f64.ln() + 1e-9);
        }

        #[test]
        fn merging_is_recording_all(a in prop::collection::vec(1e3f64..1e9, 0..50),
                                    b in prop::collection::vec(1e3f64..1e9, 0..50)) {
            let record = |all: &[f64]| {
                let mut h = Histogram::default();
                all.iter().for_each(|ns| h.record(*ns));
                h
            };
            let mut merged = record(&a);
            merged.merge(&record(&b));
            let all: Vec<f64> = a.iter().chain(&b).copied().collect();
            let direct = record(&all);
            prop_assert_eq!(merged.counts(), direct.counts());
            prop_assert_eq!(merged.max_ns(), direct.max_ns());
        }
    }
}
