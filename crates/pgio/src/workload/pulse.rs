//! Finds the moments in which this process stood still: stopped by a signal, without a processor, or on a machine
//! that was suspended or paused.
//!
//! A thread wakes forty times a second and notes when it was late. What the sessions of a client wait for
//! meanwhile is the generator's delay, and looks like a stall of the server.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

const BEAT: Duration = Duration::from_millis(25);
/// Any busy machine has shorter delays.
const MIN_GAP: Duration = Duration::from_millis(100);

/// Dropping it ends the thread.
pub(super) struct Pulse {
    end: Sender<()>,
    gaps: Receiver<Gap>,
}

/// The process did nothing between these moments.
#[derive(Debug, Clone, Copy)]
struct Gap {
    began: Instant,
    ended: Instant,
    /// Time of a suspended machine, which is not between them.
    suspended: Duration,
}

impl Pulse {
    pub(super) fn start() -> Pulse {
        let (end, ended) = mpsc::channel();
        let (sender, gaps) = mpsc::channel();
        // Without the thread no gap is found.
        let _ = thread::Builder::new().name("pulse".to_owned()).spawn(move || {
            let mut last = (Instant::now(), boot_time());
            loop {
                let goes_on = ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout);
                let now = (Instant::now(), boot_time());
                let length = now.1.saturating_sub(last.1);
                if length >= MIN_GAP {
                    let suspended = length.saturating_sub(now.0 - last.0);
                    let _ = sender.send(Gap { began: last.0, ended: now.0, suspended });
                }
                if !goes_on {
                    return;
                }
                last = now;
            }
        });
        Pulse { end, gaps }
    }

    /// Returns the longest time in seconds for which the process stood still between these moments.
    pub(super) fn longest_gap(self, from: Instant, to: Instant) -> f64 {
        // The thread notes whether it is late, and ends.
        drop(self.end);
        let inside = self.gaps.iter().map(|gap| overlap(gap, from, to));
        inside.max().unwrap_or_default().as_secs_f64()
    }
}

/// The part of a gap inside a window.
fn overlap(gap: Gap, from: Instant, to: Instant) -> Duration {
    let awake = gap.ended.min(to).saturating_duration_since(gap.began.max(from));
    if awake.is_zero() { awake } else { awake + gap.suspended }
}

/// Goes on while the machine is suspended.
fn boot_time() -> Duration {
    let at = clock_gettime(ClockId::Boottime);
    Duration::new(at.tv_sec.unsigned_abs(), u32::try_from(at.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_counts_as_far_as_it_lies_in_the_window() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let gap = |began, ended, suspended| {
            let suspended = Duration::from_millis(suspended);
            overlap(Gap { began: at(began), ended: at(ended), suspended }, at(1000), at(5000))
        };
        assert_eq!(gap(2000, 4000, 0), Duration::from_secs(2));
        assert_eq!(gap(0, 3000, 0), Duration::from_secs(2));
        assert_eq!(gap(4000, 9000, 0), Duration::from_secs(1));
        assert_eq!(gap(0, 900, 7000) + gap(6000, 7000, 0), Duration::ZERO);
        assert_eq!(gap(2000, 2010, 7000), Duration::from_millis(7010));
    }
}
