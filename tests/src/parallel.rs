//! Runs parts of one test in parallel, because they mostly wait.

use std::thread;

use crate::timing;

/// Calls `each` for every item on a thread of its own; the test fails if one of the calls does.
pub fn run_in_parallel<T: Send>(all: impl IntoIterator<Item = T>, each: impl Fn(T) + Sync) {
    timing::begin();
    thread::scope(|scope| {
        for one in all {
            let each = &each;
            scope.spawn(move || each(one));
        }
    });
}
