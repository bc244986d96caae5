//! Ctrl-C and other signals set the stop flag; the work then ends in an orderly way.
//!
//! While a server does not answer, the work waits in a read and cannot see the flag. Such waits are
//! ended here (`pgio_connect::interrupt`): some time after the first signal, except during an undo,
//! and always after the second signal.

use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, process, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::exit::{CONNECT, FAILED, Failure, INTERRUPTED, REFUSED, TRIAL, UNFINISHED};
use super::output;
use crate::experiment::state;
use crate::host::exec::in_thread;
use crate::host::stop::Stop;
use crate::treatment::journal;
use pgio_connect::interrupt;

/// Time for sessions to end in an orderly way: a cancel request, after a second pg_terminate_backend.
const ORDERLY_END_TIMEOUT: Duration = Duration::from_millis(1700);
/// Time after the second signal for an undo that is nearly complete.
const URGENT_UNDO_TIMEOUT: Duration = Duration::from_millis(1000);
/// Time after the second signal for everything. A wait for a file (a FIFO, NFS) or a program ends by nothing else.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

const STOPPING: &str = "\npgio: stopping; press Ctrl-C again to exit within 5 s and leave pending undo steps in the journal\n";

/// Codes of the errors that a cut session can cause. A server that cannot be examined is refused.
const OF_CUT_SESSION: [u8; 4] = [FAILED, CONNECT, REFUSED, TRIAL];

/// Installs handlers: the first signal sets the flag, the second makes it urgent.
pub fn stop_on_signals() -> Result<Stop, Failure> {
    let stop = Stop::new();
    let flag = stop.clone();
    // nohup has it ignored, so that the run survives its terminal.
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup))
        .map_err(|e| Failure::new(FAILED, e).context("cannot listen for signals"))?;
    let listen = move || {
        for _ in signals.forever() {
            let first = !flag.requested();
            flag.request();
            if first {
                let flag = flag.clone();
                in_background(move || end_waits(&flag));
                // A stderr that takes nothing more must not keep the second signal from being seen.
                in_background(|| output::to_stderr(STOPPING));
            }
        }
    };
    in_thread("signals", listen)
        .map_err(|e| Failure::new(FAILED, e).context("cannot listen for signals"))?;
    Ok(stop)
}

fn in_background(work: impl FnOnce() + Send + 'static) {
    // Without a thread, the signal still stops the work.
    let _ = in_thread("stop", work);
}

/// Whether this process was started with the signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    // One bit each, the lowest for signal 1.
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask & 1 << (signal - 1) != 0
}

/// Ends waits until the process ends, and the process itself if a wait does not end.
fn end_waits(stop: &Stop) {
    let (mut since, mut urgent): (_, Option<Instant>) = (Instant::now(), None);
    loop {
        thread::sleep(interrupt::REPEAT);
        if stop.is_restoring() {
            since = Instant::now();
        }
        if stop.urgent() {
            urgent.get_or_insert_with(Instant::now);
        }
        if urgent.is_some_and(|at| at.elapsed() >= EXIT_TIMEOUT) {
            exit_with_journal();
        }
        let is_over = urgent.is_some_and(|at| at.elapsed() >= URGENT_UNDO_TIMEOUT);
        interrupt::set_cutting(is_over || since.elapsed() >= ORDERLY_END_TIMEOUT);
    }
}

/// Names the journal of changes that are in place.
fn exit_with_journal() -> ! {
    let (found, result) = mpsc::channel();
    // The state directory may be what does not answer.
    in_background(move || {
        let journals = state::journal_dir().ok();
        let _ = found.send(journals.map_or(Ok(()), |dir| journal::check_finished(&dir)));
    });
    let is_finished = matches!(result.recv_timeout(URGENT_UNDO_TIMEOUT), Ok(Ok(())));
    let (code, left) = if is_finished {
        (INTERRUPTED, "")
    } else {
        (UNFINISHED, "; changes may be in place: run `pgio undo`")
    };
    let text = format!("pgio: stopped while waiting for a file or a program{left}\n");
    in_background(move || output::to_stderr(&text));
    thread::sleep(interrupt::REPEAT);
    process::exit(code.into())
}

/// Replaces the error of a session that was cut off by the message that pgio was stopped.
pub fn replace_if_stopped(failure: Failure) -> Failure {
    replace(failure, interrupt::was_cut())
}

fn replace(failure: Failure, was_cut: bool) -> Failure {
    if was_cut && OF_CUT_SESSION.contains(&failure.code()) {
        Failure::interrupted()
    } else {
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::{FILES, UNDECIDED, USAGE, WORSE};

    #[test]
    fn only_errors_that_a_cut_session_causes_become_a_stop() {
        let replaced = |code, was_cut| replace(Failure::message(code, "why"), was_cut).code();
        for code in OF_CUT_SESSION {
            assert_eq!(replaced(code, true), INTERRUPTED);
            assert_eq!(replaced(code, false), code);
        }
        // The verdict of a gate and results that cannot be written stay true after a stop.
        for code in [USAGE, UNFINISHED, FILES, WORSE, UNDECIDED, INTERRUPTED] {
            assert_eq!(replaced(code, true), code);
        }
    }
}
