//! Parts of one test that run beside each other, since most of their time is waiting.

use std::thread;

use crate::timing;

/// Calls `each` for all, on a thread each; the test fails if one of them does.
pub(crate) fn beside_each_other<T: Send>(
    all: impl IntoIterator<Item = T>,
    each: impl Fn(T) + Sync,
) {
    timing::begin();
    thread::scope(|scope| {
        for one in all {
            let each = &each;
            scope.spawn(move || each(one));
        }
    });
}
