//! What this program itself uses of the processor, to the nanosecond.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// User and system time of all threads so far, ended ones included.
pub(super) fn process() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

/// Of the living threads whose names begin so; none where the kernel does not count by thread.
pub(super) fn threads_named(prefix: &str) -> Option<Duration> {
    let mut used = Duration::ZERO;
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let read = |file| fs::read_to_string(task.path().join(file)).ok();
        // A thread may end while it is looked at.
        let Some(name) = read("comm") else { continue };
        if name.starts_with(prefix) {
            let schedstat = read("schedstat")?;
            let ns = schedstat.split_whitespace().next()?.parse().ok()?;
            used += Duration::from_nanos(ns);
        }
    }
    Some(used)
}

fn duration(at: Timespec) -> Duration {
    Duration::new(at.tv_sec.unsigned_abs(), u32::try_from(at.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn work_is_charged_to_the_threads_of_that_name() {
        let all = process();
        let (done, wait) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let worker = thread::Builder::new().name("cpu-test-busy".to_owned()).spawn(move || {
            let begun = std::time::Instant::now();
            while begun.elapsed() < Duration::from_millis(50) {
                std::hint::spin_loop();
            }
            done.send(begun.elapsed()).unwrap();
            let _ = ended.recv();
        });
        let took = wait.recv().unwrap();
        // Others may have had the processor for some of that time.
        let used = threads_named("cpu-test-").unwrap();
        let most = took + Duration::from_millis(10);
        assert!(used > Duration::from_millis(1) && used < most, "{used:?} of {took:?}");
        assert!(process() - all >= used);
        assert_eq!(threads_named("no-such-thread-"), Some(Duration::ZERO));
        drop(end);
        worker.unwrap().join().unwrap();
    }
}
