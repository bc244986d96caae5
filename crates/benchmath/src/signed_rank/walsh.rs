//! The averages of all pairs of values, each value with itself included, without making them.
//!
//! Those above 0 are as many as the sum of the ranks of the positive values (Tukey), which makes
//! test and interval two views of one list. There are n (n + 1) / 2 of them, so they are never
//! listed: on sorted values, two pointers count those below a bound in n steps, and bisection over
//! the floats finds the k-th (the idea of Johnson and Mizoguchi, SIAM Journal on Computing 7(2),
//! 1978, with bisection in place of their partial sorting).

use crate::summary;

#[derive(Debug)]
pub(crate) struct Walsh {
    /// Ascending, finite.
    values: Vec<f64>,
}

impl Walsh {
    /// Of finite values.
    pub(crate) fn of(values: &[f64]) -> Walsh {
        Walsh { values: summary::sorted(values) }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len() * (self.values.len() + 1) / 2
    }

    /// How many averages satisfy `holds`, which must hold for a lower part of them.
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

    /// The count on the side of `centre` that has fewer. An average of exactly `centre` counts on
    /// both sides: it speaks for neither, so it must not help to reject. Any way of breaking such
    /// ties gives a count no larger, hence the level holds; and the interval, being closed, treats
    /// its ends the same way.
    pub(crate) fn lesser_count(&self, centre: f64) -> usize {
        let not_above = self.count(|w| w <= centre);
        let not_below = self.len() - self.count(|w| w < centre);
        not_above.min(not_below)
    }

    /// The k-th smallest average, counted from 0.
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

/// Finite floats in their order as integers, with -0 directly below 0.
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
        fn equals_the_list(
            values in prop_oneof![
                prop::collection::vec(-1.0..2.0f64, 1..20),
                prop::collection::vec((-4..5i32).prop_map(|v| f64::from(v) / 4.0), 1..20),
            ],
            centre in prop_oneof![Just(0.0), -1.0..1.0f64],
        ) {
            let (walsh, listed) = (Walsh::of(&values), listed(&values));
            prop_assert_eq!(walsh.len(), listed.len());
            for (k, wanted) in listed.iter().enumerate() {
                prop_assert!(walsh.smallest(k) == *wanted, "{k}");
            }
            let below = listed.partition_point(|w| *w < centre);
            let not_above = listed.partition_point(|w| *w <= centre);
            prop_assert_eq!(walsh.lesser_count(centre), not_above.min(listed.len() - below));
            prop_assert!(Some(walsh.median()) == summary::median_of_sorted(&listed));
        }
    }
}
