//! CPU time used by pgio itself, in nanoseconds.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// User and system time of all threads so far, including threads that have ended.
pub(super) fn process() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time of the running threads whose names begin with `prefix`; `None` if the kernel does not
/// account for single threads.
pub(super) fn threads_named(prefix: &str) -> Option<Duration> {
    let mut used = Duration::ZERO;
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let read = |file| fs::read_to_string(task.path().join(file)).ok();
        // The thread may have ended meanwhile.
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
    fn cpu_time_is_counted_for_threads_with_the_prefix() {
        let all = process();
        let (done, wait) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let worker = thread::Builder::new().name("cpu-test-busy".to_owned()).spawn(move || {
            let started = std::time::Instant::now();
            while started.elapsed() < Duration::from_millis(50) {
                std::hint::spin_loop();
            }
            done.send(started.elapsed()).unwrap();
            let _ = ended.recv();
        });
        let took = wait.recv().unwrap();
        // Other processes may have used the CPU for some of that time.
        let used = threads_named("cpu-test-").unwrap();
        let most = took + Duration::from_millis(10);
        assert!(used > Duration::from_millis(1) && used < most, "{used:?} of {took:?}");
        assert!(process() - all >= used);
        assert_eq!(threads_named("no-such-thread-"), Some(Duration::ZERO));
        drop(end);
        worker.unwrap().join().unwrap();
    }
}
