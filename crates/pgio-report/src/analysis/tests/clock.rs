//! Timing of I/O on a server whose clock is slow. Short, as one rule.

use std::sync::Arc;

use crate::analysis::analyze;
use crate::analysis::test_support::demo;
use pgio_results::change::fact;

#[test]
fn timing_by_a_slow_clock_is_reported() {
    let found = |slow: bool, timing: &str| {
        let mut stored = demo();
        if slow {
            stored.manifest.environment.insert(fact::SLOW_CLOCK.to_owned(), "yes".to_owned());
        }
        let on = (fact::setting("track_io_timing"), timing.to_owned());
        stored.trials[1].environment = Arc::new([on].into());
        analyze(&stored).checks.iter().any(|c| c.id == "clock-cost")
    };
    assert!(found(true, "on"));
    assert!(!found(false, "on") && !found(true, "off"));
}
