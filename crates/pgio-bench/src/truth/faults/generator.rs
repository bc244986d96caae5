//! Faults of processor time: the load generator, pgio itself, has none left, or other programs take it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::accusations::Expected;
use super::case::{Fault, Needs};
use super::device::start_detached;
use super::inject::InWindow;
use super::server::{disturbed, slob, text};
use crate::truth::server::{load, private};

/// The weight of this process's session against others.
const OWN_SHARE: &str = "/proc/self/autogroup";

/// Threads of this process keep all cores busy, as a generator with too much work of its own would, and one
/// thread of pgio serves all sessions.
pub(super) const SATURATED: Fault = Fault {
    rule: 6,
    needs: Needs::Nothing,
    what: "pgio's own process keeps all cores busy while one of its threads serves four sessions",
    expected: Expected::invalid("generator-bound", None),
    run: |case| {
        let cluster = private(case.round.pg, None, &[])?;
        load(&cluster, "32M")?;
        let workload = slob("32M", 1, 0) + "engine = \"client\"\nsessions = 4\n";
        let keys = "blocks = 1\nduration = \"3s\"\nburn_in = false";
        let text = text(case, &cluster, keys, &workload, &["a"]);
        let done = AtomicBool::new(false);
        // Each session of terminals and services has an equal share, so other work would leave less than a core.
        // Without the right to it, an idle machine is needed.
        let _ = std::fs::write(OWN_SHARE, "-10");
        thread::scope(|scope| {
            // Two for each core, so that other work on the machine leaves them at least one together.
            for _ in 0..2 * thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let analysis = case.undisturbed(&text);
            done.store(true, Ordering::Relaxed);
            let _ = std::fs::write(OWN_SHARE, "0");
            analysis
        })
    },
};

pub(super) const BUSY_PROGRAMS: Fault = Fault {
    rule: 14,
    needs: Needs::Nothing,
    what: "three programs of others compute inside the window of `disturbed`",
    expected: Expected::any("foreign-load", Some("disturbed")),
    run: |case| {
        let cluster = private(case.round.pg, None, &[])?;
        load(&cluster, "32M")?;
        let keys = "blocks = 1\nduration = \"5s\"";
        let text = text(case, &cluster, keys, &slob("32M", 8, 0), &["disturbed"]);
        // Until after the window's end.
        let script = "for i in 1 2 3; do timeout \"$1\" sh -c 'while :; do :; done' & done; wait";
        disturbed(case, &text, InWindow::of("disturbed").at(0.1, || start_detached(script, "6")))
    },
};
