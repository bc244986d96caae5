//! `checkpoint = "spread"`: windows that hold whole checkpoint cycles.
//!
//! A CHECKPOINT before the warm-up puts every window into the same phase; from there on the server's own
//! timed checkpoints continue, spread by checkpoint_completion_target. A window of a whole number of
//! checkpoint_timeout then holds each phase of the cycle equally often, whatever phase it
//! begins in, so its share of full-page images is that of the long run. Checkpoints issued by pgio
//! at shorter distances would write more images than the server does.

use pgio_connect::Client;

use crate::config::resolve::Extent;
use pgio_results::model::{Check, Trial};

/// Tolerated deviation from a whole number, in cycles.
const MAX_DEVIATION: f64 = 0.02;
const ID: &str = "checkpoints";

/// Returns the seconds of a cycle: the condition's setting, else the server's.
pub(super) fn cycle_seconds(
    admin: &mut Client,
    declared: Option<&str>,
) -> Result<f64, pgio_connect::Error> {
    let row = match declared {
        // A bare number means seconds in both.
        Some(value) => {
            admin.query_one("SELECT extract(epoch FROM $1::text::interval)::float8", &[&value])
        }
        None => admin.query_one(
            "SELECT setting::float8 FROM pg_settings WHERE name = 'checkpoint_timeout'",
            &[],
        ),
    };
    Ok(row?.get(0))
}

/// Returns the number of whole cycles in a window, or why the window is refused.
pub(super) fn whole_cycles(extent: Extent, timeout: f64) -> Result<u32, String> {
    let Extent::Time(window) = extent else {
        return Err("checkpoint = \"spread\" needs windows of fixed duration: use duration instead of an amount of work".to_owned());
    };
    let cycles = window.as_secs_f64() / timeout;
    let whole = cycles.round();
    if whole < 1.0 || (cycles - whole).abs() > MAX_DEVIATION {
        return Err(format!(
            "checkpoint = \"spread\" needs windows of whole checkpoint cycles: the window is {} s and checkpoint_timeout {timeout} s; make duration {} s, or set another checkpoint_timeout in every condition",
            window.as_secs_f64(),
            timeout * whole.max(1.0),
        ));
    }
    Ok(whole as u32)
}

/// Checks that the window held its cycles and no other checkpoint. The server publishes a checkpoint late that
/// is still being written at the end, if it is behind its schedule.
pub(super) fn check(trial: &Trial, cycles: u32) -> Check {
    let cycles = f64::from(cycles);
    match trial.metrics.get("checkpoints").and_then(|m| m.value) {
        None => Check::warning(ID, "checkpoints could not be counted", "GRANT pg_monitor TO ROLE"),
        Some(n) if n > cycles || n + 1.0 < cycles => Check::warning(
            ID,
            format!("{n} checkpoints inside a window of {cycles} checkpoint cycles"),
            "raise max_wal_size, so that only checkpoint_timeout triggers checkpoints",
        ),
        Some(_) => Check::ok(ID, format!("whole checkpoint cycles inside the window: {cycles}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_whole_cycles_are_accepted() {
        let seconds = |s: f64| Extent::Time(Duration::from_secs_f64(s));
        assert_eq!(whole_cycles(seconds(30.0), 30.0), Ok(1));
        assert_eq!(whole_cycles(seconds(600.4), 300.0), Ok(2));
        let error = whole_cycles(seconds(10.0), 300.0).unwrap_err();
        assert!(
            error.contains("the window is 10 s and checkpoint_timeout 300 s; make duration 300 s"),
            "{error}"
        );
        let error = whole_cycles(seconds(750.0), 300.0).unwrap_err();
        assert!(error.contains("make duration 900 s"), "{error}");
        assert!(whole_cycles(Extent::Calls(9), 300.0).unwrap_err().contains("fixed duration"));
    }
}
