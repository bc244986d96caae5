//! The stored form of histograms, by class of operation: seconds, and only the buckets in use.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{BUCKETS, Counts, Histogram};

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
