//! Faults of the load generator, pgio itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::accusations::Expected;
use super::case::{Fault, Needs};
use super::server::{slob, text};
use crate::truth::server::{load, private};

/// A second thread of this process keeps a core busy, as a generator with too much work of its own
/// would, and one thread of pgio serves all sessions.
pub(super) const SATURATED: Fault = Fault {
    rule: 6,
    needs: Needs::Nothing,
    what: "pgio's own process uses a whole core while one of its threads serves 16 sessions",
    expected: Expected::invalid("generator-bound", None),
    run: |case| {
        let cluster = private(case.round.pg, None, &[])?;
        load(&cluster, "32M")?;
        let workload = slob("32M", 1, 0) + "engine = \"client\"\nsessions = 16\n";
        let keys = "blocks = 1\nduration = \"3s\"\nburn_in = false";
        let text = text(case, &cluster, keys, &workload, &["a"]);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let analysis = case.undisturbed(&text);
            done.store(true, Ordering::Relaxed);
            analysis
        })
    },
};
