//! For tests of shells that start programs.

use std::path::Path;
use std::thread;
use std::time::Duration;

/// Waits until the process whose number is written to this file has ended, as a zombie or without a trace.
pub(crate) fn await_end(pid_file: &Path) {
    let has_ended = || {
        let pid = std::fs::read_to_string(pid_file).unwrap_or_default();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        pid.ends_with('\n') && stat.map_or(true, |stat| stat.contains(") Z "))
    };
    while !has_ended() {
        thread::sleep(Duration::from_millis(5));
    }
}
