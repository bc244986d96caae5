//! Walsh averages: the averages of all pairs of values, including each value with itself, without
//! listing them.
//!
//! The number of averages above 0 equals the rank sum of the positive values (Tukey), which makes
//! test and interval two views of the same list. The n (n + 1) / 2 averages are never listed: on
//! sorted values, two pointers count those below a bound in n steps, and bisection over the floats
//! finds the k-th (the idea of Johnson and Mizoguchi, SIAM Journal on Computing 7(2), 1978, with
//! bisection in place of their partial sorting).

use crate::summary;

#[derive(Debug)]
pub(crate) struct Walsh {
    /// Ascending, finite.
    values: Vec<f64>,
}

impl Walsh {
    /// The values must be finite.
    pub(crate) fn new(values: &[f64]) -> Walsh {
        Walsh { values: summary::sorted(values) }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len() * (self.values.len() + 1) / 2
    }

    /// Number of averages that satisfy `holds`, which must be true up to some bound and false
    /// above.
    fn count(&self, holds: impl Fn(f64) -> bool) -> usize {
        let mut count = 0;
        let mut partners = self.values.len();
        for (i, a) in self.values.iter().enumerate() {
            while partners > i && !holds(f64::midpoint(*a, self.values[partners - 1])) {
                partners -= 1;
            }
            if partners <= i {
                break;
            }
            count += partners - i;
        }
        count
    }

    /// The count on the side of `center` that has fewer averages. An average equal to `center`
    /// counts on both sides, because it supports neither and must not help to reject. Breaking such
    /// ties in any way gives a count that is not larger, so the level holds; the closed interval
    /// treats its ends the same way.
    pub(crate) fn lesser_count(&self, center: f64) -> usize {
        self.count_up_to(center).min(self.count_from(center))
    }

    /// Number of averages that are at most `bound`.
    pub(crate) fn count_up_to(&self, bound: f64) -> usize {
        self.count(|w| w <= bound)
    }

    /// Number of averages that are at least `bound`.
    pub(crate) fn count_from(&self, bound: f64) -> usize {
        self.len() - self.count(|w| w < bound)
    }

    /// The k-th smallest average, numbered from 0.
    pub(crate) fn smallest(&self, k: usize) -> f64 {
        let (first, last) = (self.values[0], self.values[self.values.len() - 1]);
        let (mut low, mut high) = (ordered(first), ordered(last));
        while low < high {
            let middle = low + (high - low) / 2;
            let bound = from_ordered(middle);
            if self.count(|w| w <= bound) > k { high = middle } else { low = middle + 1 }
        }
        from_ordered(low)
    }

    /// The Hodges-Lehmann estimate.
    pub(crate) fn median(&self) -> f64 {
        let upper = self.smallest(self.len() / 2);
        if self.len() % 2 == 1 {
            return upper;
        }
        f64::midpoint(self.smallest(self.len() / 2 - 1), upper)
    }
}

/// Maps finite floats to integers in the same order, with -0 directly below 0.
fn ordered(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn from_ordered(number: u64) -> f64 {
    f64::from_bits(if number >> 63 == 1 { number & !(1 << 63) } else { !number })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(values: &[f64]) -> Vec<f64> {
        let mut all = Vec::new();
        for (i, a) in values.iter().enumerate() {
            all.extend(values[i..].iter().map(|b| f64::midpoint(*a, *b)));
        }
        summary::sorted(&all)
    }

    proptest! {
        #[test]
        fn walsh_averages_match_the_sorted_list(
            values in prop_oneof![
                prop::collection::vec(-1.0..2.0f64, 1..20),
                prop::collection::vec((-4..5i32).prop_map(|v| f64::from(v) / 4.0), 1..20),
            ],
            center in prop_oneof![Just(0.0), -1.0..1.0f64],
        ) {
            let (walsh, listed) = (Walsh::new(&values), listed(&values));
            prop_assert_eq!(walsh.len(), listed.len());
            for (k, wanted) in listed.iter().enumerate() {
                prop_assert!(walsh.smallest(k) == *wanted, "{k}");
            }
            let below = listed.partition_point(|w| *w < center);
            let not_above = listed.partition_point(|w| *w <= center);
            prop_assert_eq!(walsh.lesser_count(center), not_above.min(listed.len() - below));
            prop_assert!(Some(walsh.median()) == summary::median_of_sorted(&listed));
        }
    }
}
