//! The offset between two monotonic clocks, from round trips. Pure arithmetic but for [`Clock`].

use std::time::{Duration, Instant};

/// Moments as nanoseconds since the process took its base; comparable only through an [`Offset`].
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    pub fn now(&self) -> i64 {
        self.at(Instant::now())
    }

    pub fn at(&self, moment: Instant) -> i64 {
        match moment.checked_duration_since(self.0) {
            Some(since) => since.as_nanos() as i64,
            None => -((self.0 - moment).as_nanos() as i64),
        }
    }

    pub fn moment(&self, ns: i64) -> Instant {
        let distance = Duration::from_nanos(ns.unsigned_abs());
        // A moment before the machine's boot cannot be represented and is never asked for.
        if ns < 0 { self.0.checked_sub(distance).unwrap_or(self.0) } else { self.0 + distance }
    }
}

/// One ping and its pong: our clock before and after, the peer's in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrip {
    pub sent: i64,
    pub peer: i64,
    pub received: i64,
}

impl RoundTrip {
    fn duration(&self) -> i64 {
        self.received - self.sent
    }
}

/// What to add to our clock to get the peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    pub ns: i64,
    /// The quickest round trip. The peer read its clock somewhere inside it, so the offset is off by at
    /// most half of it.
    pub quickest: Duration,
    pub worst: Duration,
}

impl Offset {
    /// The quickest round trip counts: it was delayed least, so its two directions differ least.
    pub fn estimate(trips: &[RoundTrip]) -> Option<Offset> {
        let quickest = trips.iter().min_by_key(|trip| trip.duration())?;
        let worst = trips.iter().map(RoundTrip::duration).max()?;
        let span = |ns: i64| Duration::from_nanos(ns.max(0).unsigned_abs());
        Some(Offset {
            ns: quickest.peer - (quickest.sent + quickest.duration() / 2),
            quickest: span(quickest.duration()),
            worst: span(worst),
        })
    }

    pub fn to_peer(&self, ours: i64) -> i64 {
        ours + self.ns
    }

    pub fn to_ours(&self, peers: i64) -> i64 {
        peers - self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_offset_is_taken_from_the_quickest_round_trip() {
        // The peer is 1000 ahead; the first two pongs were held up on one of their ways.
        let trips = [(0, 1100, 900), (1000, 2800, 2000), (3000, 4010, 3020)];
        let trips = trips.map(|(sent, peer, received)| RoundTrip { sent, peer, received });
        let offset = Offset::estimate(&trips).unwrap();
        assert_eq!(offset.ns, 1000);
        assert_eq!((offset.quickest.as_nanos(), offset.worst.as_nanos()), (20, 1000));
        assert_eq!(offset.to_ours(offset.to_peer(5)), 5);
        assert_eq!(Offset::estimate(&[]), None);
    }

    #[test]
    fn the_error_is_at_most_half_of_the_quickest_round_trip() {
        for peer in 0..=100 {
            let trip = RoundTrip { sent: 50, peer: 50 + peer + 7000, received: 150 };
            let offset = Offset::estimate(&[trip]).unwrap();
            assert!((offset.ns - 7000).unsigned_abs() <= 50, "{peer}");
        }
    }

    #[test]
    fn a_clock_counts_from_its_start_in_both_directions() {
        let clock = Clock::start();
        for ns in [0, 5, 1_000_000_007] {
            assert_eq!(clock.at(clock.moment(ns)), ns);
        }
        assert!(clock.now() >= 0);
    }
}
