//! A server's clock against this machine's monotonic one, and the common start of several servers.
//!
//! A reading takes [`ROUND_TRIPS`] round trips. The server reads its clock somewhere between request and answer;
//! the quickest round trip counts, because its middle is off by at most half of the shortest time (Cristian,
//! Distributed Computing 3, 1989). Two readings show how far the server's clock moved in between.
//! Next: `window`, which opens the window at a moment of both clocks.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::error::EngineError;
use super::{prepare, slice};
use crate::host::clock::seconds_between;

/// One moment on two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    pub at: Instant,
    /// Seconds since the epoch on the server's clock.
    pub epoch: f64,
}

impl Start {
    /// Returns the moment that is `lead` ahead of now.
    pub(super) fn after_lead(admin: &mut Client, lead: Duration) -> Result<Start, EngineError> {
        let asked = Instant::now();
        let now = prepare::server_clock(admin)?;
        // The server read its clock between request and answer; assume the middle.
        let read = asked + asked.elapsed() / 2;
        Ok(Start { at: read + lead, epoch: now + lead.as_secs_f64() })
    }

    /// Returns the present moment, by the quickest of a few round trips, and that round trip: half of it is the error.
    pub(super) fn now(admin: &mut Client) -> Result<(Duration, Start), EngineError> {
        quickest(|| {
            let asked = Instant::now();
            let epoch = query_clock(admin)?;
            let round_trip = asked.elapsed();
            Ok((round_trip, Start { at: asked + round_trip / 2, epoch }))
        })
    }

    /// Returns a later moment of this machine as seconds since the epoch on the server's clock.
    pub(super) fn epoch_of(&self, at: Instant) -> f64 {
        self.epoch + at.saturating_duration_since(self.at).as_secs_f64()
    }

    /// Returns the moment at which the window opens: after `lead`, or when other servers open theirs.
    pub(crate) fn agree_on_window(
        opener: Option<&Arc<dyn Opener>>,
        admin: &mut Client,
        lead: Duration,
    ) -> Result<Start, EngineError> {
        match opener {
            Some(opener) => opener.start(admin, lead),
            None => Start::after_lead(admin, lead),
        }
    }

    /// Returns the moment at which the warm-up begins: after `lead`, or when other drivers begin theirs.
    pub(crate) fn agree_on_warm_up(
        opener: Option<&Arc<dyn Opener>>,
        admin: &mut Client,
        lead: Duration,
    ) -> Result<Start, EngineError> {
        match opener {
            Some(opener) => opener.warm_up(admin, lead),
            None => Start::after_lead(admin, lead),
        }
    }
}

/// Returns how far the server's clock moved against this machine's between two readings of [`Start::now`], in seconds:
/// at least, because of their errors.
pub(super) fn moved(earlier: (Duration, Start), later: (Duration, Start)) -> f64 {
    let error = (earlier.0 + later.0).as_secs_f64() / 2.0;
    let apparent = later.1.epoch - earlier.1.epoch_of(later.1.at);
    apparent.signum() * (apparent.abs() - error).max(0.0)
}

/// `ask` returns the round trip and what it read.
fn quickest<T, E>(mut ask: impl FnMut() -> Result<(Duration, T), E>) -> Result<(Duration, T), E> {
    let mut best = ask()?;
    for _ in 1..FEW_ROUND_TRIPS {
        let found = ask()?;
        if found.0 < best.0 {
            best = found;
        }
    }
    Ok(best)
}

/// Waits until a moment of this machine's clock.
pub fn wait_until(at: Instant) {
    thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// Agrees with other servers or drivers on the moment when a window opens.
pub trait Opener: std::fmt::Debug + Send + Sync {
    /// Returns the common start; `lead` is the least time that this server's sessions need to receive it.
    fn start(&self, admin: &mut Client, lead: Duration) -> Result<Start, EngineError>;
    /// Returns the start of the warm-up, by default as soon as the sessions of this server can begin.
    fn warm_up(&self, admin: &mut Client, lead: Duration) -> Result<Start, EngineError> {
        Start::after_lead(admin, lead)
    }
    /// Reports that a long preparation continues.
    fn keep_alive(&self) {}
}

pub const ROUND_TRIPS: usize = 16;
/// Few, because sessions may be waiting meanwhile.
const FEW_ROUND_TRIPS: usize = 4;
/// The least time from the order to open a common window until it opens.
pub const COMMON_LEAD: Duration = Duration::from_millis(200);
/// The least number of the slowest round trips that this time must last.
const LEAD_ROUND_TRIPS: u32 = 4;

/// Returns the time from the order to open a common window until it opens.
pub fn common_lead(slowest: Duration) -> Duration {
    COMMON_LEAD.max(slowest * LEAD_ROUND_TRIPS)
}

/// A server clock may step back by this much between two answers: its own resolution, in seconds.
const RESOLUTION: f64 = 2e-6;

/// A moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockReading {
    at: Instant,
    /// Seconds since the epoch on the server's clock.
    epoch: f64,
    /// The quickest round trip; half of it is the error.
    pub round_trip: Duration,
    pub slowest: Duration,
}

impl ClockReading {
    pub fn take(admin: &mut Client) -> Result<ClockReading, EngineError> {
        ClockReading::take_with(|| {
            let sent = Instant::now();
            let epoch = query_clock(admin)?;
            Ok((sent, epoch, sent.elapsed()))
        })
    }

    /// `ask` returns when it asked, the server's clock and the round trip.
    fn take_with(
        mut ask: impl FnMut() -> Result<(Instant, f64, Duration), EngineError>,
    ) -> Result<ClockReading, EngineError> {
        let mut reading: Option<ClockReading> = None;
        let mut last = f64::NEG_INFINITY;
        for _ in 0..ROUND_TRIPS {
            let (sent, epoch, round_trip) = ask()?;
            if epoch < last - RESOLUTION {
                return Err(EngineError::Clock(format!(
                    "the server's clock went back by {:.3} ms between two answers",
                    (last - epoch) * 1e3
                )));
            }
            last = epoch;
            let slowest = reading.map_or(round_trip, |r| r.slowest.max(round_trip));
            let quickest = reading.filter(|r| r.round_trip <= round_trip);
            reading = Some(match quickest {
                Some(quickest) => ClockReading { slowest, ..quickest },
                None => ClockReading { at: sent + round_trip / 2, epoch, round_trip, slowest },
            });
        }
        reading.ok_or_else(|| EngineError::Clock("the server's clock was not read".to_owned()))
    }

    /// Returns the server's clock at a moment of this machine.
    pub fn epoch_at(&self, at: Instant) -> f64 {
        self.epoch + seconds_between(self.at, at)
    }

    /// Returns how far the server's clock moved against this machine's since an earlier reading, in seconds.
    pub fn drift_since(&self, earlier: &ClockReading) -> f64 {
        self.epoch - earlier.epoch_at(self.at)
    }
}

/// Asks for the server's clock in one round trip; a query with parameters would take two.
fn query_clock(admin: &mut Client) -> Result<f64, EngineError> {
    let answer = admin
        .simple_query("SELECT (date_part('epoch', clock_timestamp()) * 1e6)::bigint")
        .map_err(prepare::failed("reading the server's clock"))?;
    let text: Option<&str> = prepare::first_row(&answer).and_then(|row| row.try_get(0).ok()?);
    let clock = text.and_then(|text| text.parse().ok()).map(slice::seconds);
    clock.ok_or_else(|| EngineError::Clock("the server did not return its clock".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_methodology_names_the_round_trips() {
        let words = pgio_results::test_support::in_words(ROUND_TRIPS as u64);
        let sentence = format!("reads each clock by {words} round trips");
        pgio_results::test_support::assert_documented("METHODOLOGY.md", &sentence);
    }

    /// A server whose clock is `offset` seconds after the epoch at `origin`, behind a network.
    fn reading(
        origin: Instant,
        offset: f64,
        there_and_back: impl Fn(usize) -> (u64, u64),
    ) -> Result<ClockReading, EngineError> {
        let mut number = 0;
        ClockReading::take_with(|| {
            let (there, back) = there_and_back(number);
            let sent = origin + Duration::from_millis(100 * number as u64);
            number += 1;
            let epoch = offset + seconds_between(origin, sent) + there as f64 / 1e3;
            Ok((sent, epoch, Duration::from_millis(there + back)))
        })
    }

    #[test]
    fn the_server_clock_is_taken_from_the_quickest_round_trip() {
        let origin = Instant::now();
        // One way takes longer in all but one of sixteen.
        let slow = |n: usize| if n == 11 { (1, 1) } else { (40, 2) };
        let found = reading(origin, 1000.0, slow).unwrap();
        assert_eq!(found.round_trip, Duration::from_millis(2));
        assert_eq!(found.slowest, Duration::from_millis(42));
        assert!((found.epoch_at(origin) - 1000.0).abs() < 1e-6, "{found:?}");
        let earlier = origin.checked_sub(Duration::from_secs(1)).unwrap_or(origin);
        let expected = 1000.0 - seconds_between(earlier, origin);
        assert!((found.epoch_at(earlier) - expected).abs() < 1e-6);
    }

    #[test]
    fn a_moment_is_read_by_the_quickest_of_a_few_round_trips() {
        let mut trips = [9, 3, 1, 7, 0].into_iter().map(|ms| (Duration::from_millis(ms), ms));
        assert_eq!(quickest(|| trips.next().ok_or(())), Ok((Duration::from_millis(1), 1)));
        assert_eq!(trips.next().map(|(_, ms)| ms), Some(0), "no fifth one was taken");
        let at = Instant::now();
        let start = Start { at, epoch: 1000.0 };
        assert_eq!(start.epoch_of(at + Duration::from_millis(500)), 1000.5);
    }

    #[test]
    fn a_move_within_the_error_of_two_readings_is_none() {
        let at = Instant::now();
        let reading = |ms, epoch| {
            (Duration::from_millis(ms), Start { at: at + Duration::from_secs(1), epoch })
        };
        let first = (Duration::from_millis(4), Start { at, epoch: 1000.0 });
        let moved = |later| (moved(first, later) * 1e6).round() / 1e6;
        assert_eq!(moved(reading(2, 1001.0)), 0.0);
        assert_eq!(moved(reading(2, 1001.003)), 0.0);
        assert_eq!(moved(reading(2, 1001.25)), 0.247);
        assert_eq!(moved(reading(2, 1000.75)), -0.247);
    }

    #[test]
    fn a_clock_that_moved_between_two_readings_is_seen() {
        let origin = Instant::now();
        let before = reading(origin, 1000.0, |_| (1, 1)).unwrap();
        let after = reading(origin + Duration::from_secs(10), 1010.25, |_| (1, 1)).unwrap();
        assert!((after.drift_since(&before) - 0.25).abs() < 1e-6);
        // The error is at most half the round trip, whichever way is slow.
        let lopsided = reading(origin, 1000.0, |_| (30, 0)).unwrap();
        assert!((lopsided.epoch_at(origin) - 1000.0).abs() <= 0.015 + 1e-9);
    }

    #[test]
    fn a_clock_that_goes_back_is_refused() {
        let origin = Instant::now();
        let mut number = 0.0;
        let error = ClockReading::take_with(|| {
            number += 1.0;
            Ok((origin, 1000.0 - 0.5 * number, Duration::from_millis(1)))
        });
        let text = error.unwrap_err().to_string();
        assert!(text.contains("went back by 500.000 ms"), "{text}");
    }
}
