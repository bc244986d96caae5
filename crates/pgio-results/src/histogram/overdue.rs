//! Groups the calls of an open loop that were due but never began, of which there may be billions.
//!
//! A rate far above the server's capacity leaves that many at the end of the window. A small number
//! of calls is counted one by one. A large number is divided into groups; each call of a group counts
//! as due when the last one of the group was, so that its censored latency stays a lower bound.

/// Counting this many calls one by one takes a few milliseconds.
const ONE_BY_ONE: u64 = 100_000;
/// A ten-thousandth of a window is negligible compared with the time such calls have waited.
const GROUPS: u64 = 10_000;

/// Returns for each group the index of its last call, from 0, and its number of calls.
pub fn groups(calls: u64) -> impl Iterator<Item = (u64, u64)> {
    let groups = if calls <= ONE_BY_ONE { calls } else { GROUPS };
    // The product of larger counts does not fit into 64 bits.
    let begin =
        move |group: u64| (u128::from(group) * u128::from(calls) / u128::from(groups)) as u64;
    (0..groups).map(move |group| (begin(group + 1) - 1, begin(group + 1) - begin(group)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_in_one_group() {
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
