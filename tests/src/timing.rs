//! Waiting for a condition, running parts of a test in parallel, and how long each test takes.
//!
//! A look may cost a connection to a server or a walk through /proc. It is repeated after a pause
//! that grows with its cost, so that waiting takes a tenth of a processor at most.
//!
//! The times are for the list of the slowest at the end of `.ci/run`. The test harness runs each test on a thread of
//! its own, named after the test. The first use of the fixture starts the clock, the end of the thread stops it and
//! appends `SECONDS NAME` to `test-times` in the target's temporary directory. Tests that never use the fixture are not
//! listed: they take no time worth listing. No test may depend on this file.

use std::env;
use std::fs::File;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use crate::fixture::profile_dir;

const LIMIT: Duration = Duration::from_secs(60);
const SHORTEST: Duration = Duration::from_millis(10);
/// The awaited state must last until the next check.
const LONGEST: Duration = Duration::from_millis(200);

/// Looks until the condition holds. `between` runs after each look that failed and panics when
/// there is nothing to wait for any more.
pub fn poll(mut condition: impl FnMut() -> bool, mut between: impl FnMut()) {
    loop {
        let begun = Instant::now();
        if condition() {
            return;
        }
        between();
        thread::sleep((begun.elapsed() * 9).clamp(SHORTEST, LONGEST));
    }
}

/// Fails the test when the condition does not hold within a minute.
#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    poll(condition, || assert!(Instant::now() < deadline, "still not: {what}"));
}

/// Calls `each` for every item on a thread of its own, since they mostly wait; the test fails if one of the calls does.
pub fn run_in_parallel<T: Send>(all: impl IntoIterator<Item = T>, each: impl Fn(T) + Sync) {
    begin();
    thread::scope(|scope| {
        for one in all {
            let each = &each;
            scope.spawn(move || each(one));
        }
    });
}

/// Starts this test's clock unless it runs.
pub fn begin() {
    thread_local!(static CLOCK: Clock = Clock::start());
    // A thread that is about to end has no clock any more.
    let _ = CLOCK.try_with(|_| ());
}

/// In a test's process that runs in a mount namespace of its own.
pub const INSIDE: &str = "PGIO_TEST_INSIDE";

/// Whether this process is the test in its own mount namespace.
pub fn is_inside(test: &str) -> bool {
    env::var(INSIDE).is_ok_and(|inside| inside == test)
}

struct Clock {
    test: Option<String>,
    begun: Instant,
}

impl Clock {
    fn start() -> Clock {
        // Threads that a test starts have other names or none; a process inside a namespace belongs
        // to a test that counts its time already.
        let name = thread::current().name().map(str::to_owned);
        let test = name.filter(|name| name.contains("::") && !is_inside(name));
        Clock { test, begun: Instant::now() }
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let Some(test) = &self.test else { return };
        let path = profile_dir().join("../tmp/test-times");
        // One write for each line: tests end at the same time.
        let line = format!("{:.2} {test}\n", self.begun.elapsed().as_secs_f64());
        let file = File::options().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
