//! Calls that were due in an open loop and never began, when there may be billions of them.
//!
//! A rate far above what a server can do leaves that many at the window's end. Each of a small number
//! counts by itself; a large number is divided into groups, of which each call counts as due when
//! the last one of its group was, so that what is said of their latency stays a lower bound.

/// One by one this takes a few milliseconds.
const ONE_BY_ONE: u64 = 100_000;
/// A ten-thousandth of a window is nothing beside what such calls have waited.
const GROUPS: u64 = 10_000;

/// The last of each group, counted from 0, and how many are in it.
pub(super) fn groups(calls: u64) -> impl Iterator<Item = (u64, u64)> {
    let groups = if calls <= ONE_BY_ONE { calls } else { GROUPS };
    // Counts above 2^64 / 10,000 would need a rate that no key can be given.
    let begin =
        move |group: u64| (u128::from(group) * u128::from(calls) / u128::from(groups)) as u64;
    (0..groups).map(move |group| (begin(group + 1) - 1, begin(group + 1) - begin(group)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_in_a_group_and_few_by_themselves() {
        assert_eq!(groups(0).count(), 0);
        assert_eq!(groups(3).collect::<Vec<_>>(), [(0, 1), (1, 1), (2, 1)]);
        for calls in [99_999, 100_001, 123_456_789, u64::MAX] {
            let all: Vec<(u64, u64)> = groups(calls).collect();
            assert_eq!(all.iter().map(|(_, n)| n).sum::<u64>(), calls);
            assert_eq!(all.last().unwrap().0, calls - 1);
            assert!(all.is_sorted_by(|a, b| a.0 < b.0) && all.len() <= ONE_BY_ONE as usize);
        }
    }
}
