//! Waiting for a condition without taking the processors from what is waited for.
//!
//! A look may cost a connection to a server or a walk through /proc. It is repeated after a pause
//! that grows with its cost, so that waiting takes a fifth of a processor at most.

use std::thread;
use std::time::{Duration, Instant};

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
        thread::sleep((begun.elapsed() * 4).clamp(SHORTEST, LONGEST));
    }
}

/// Fails the test when the condition does not hold within a minute.
#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    poll(condition, || assert!(Instant::now() < deadline, "still not: {what}"));
}
