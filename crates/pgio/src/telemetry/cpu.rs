//! What this program itself uses of the processor, to the nanosecond.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// User and system time of all threads so far, ended ones included.
pub(super) fn process() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

/// Of the calling thread.
pub(super) fn thread() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}

fn duration(at: Timespec) -> Duration {
    Duration::new(at.tv_sec.unsigned_abs(), u32::try_from(at.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_charged_to_the_thread_that_does_it() {
        let (mine, all) = (thread(), process());
        let other = std::thread::spawn(|| {
            let before = thread();
            let mut x = 1u64;
            while thread() - before < Duration::from_millis(20) {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
        });
        other.join().unwrap();
        assert!(process() - all >= Duration::from_millis(20));
        assert!(thread() - mine < Duration::from_millis(20));
    }
}
