//! Ctrl-C and its kin set the one stop flag; the work itself sees to an orderly end.
//!
//! Where a server does not answer, the work cannot see the flag: it waits in a read. Such waits are
//! ended from here (`pg::interrupt`), some time after the first signal except where something
//! is being put back, and always after the second.

use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::exit::{FAILED, Failure, INTERRUPTED, UNFINISHED};
use crate::host::stop::Stop;
use crate::pg::interrupt;

/// For sessions to end in an orderly way: a cancel, and after a second pg_terminate_backend.
const ORDERLY: Duration = Duration::from_millis(1700);
/// After the second signal, for what is nearly put back.
const NEARLY: Duration = Duration::from_millis(1000);

/// A flag that the first signal sets and the second makes urgent.
pub fn stop_on_signals() -> Result<Stop, Failure> {
    let stop = Stop::new();
    let flag = stop.clone();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|e| Failure::new(FAILED, e).context("cannot listen for signals"))?;
    thread::spawn(move || {
        for _ in signals.forever() {
            let first = !flag.requested();
            flag.request();
            if first {
                eprintln!(
                    "\npgio: stopping; once more to leave, with what is not yet put back in the journal"
                );
                let flag = flag.clone();
                thread::spawn(move || end_waits(&flag));
            }
        }
    });
    Ok(stop)
}

/// Until the process ends.
fn end_waits(stop: &Stop) {
    let (mut since, mut urgent) = (Instant::now(), None);
    loop {
        thread::sleep(interrupt::REPEAT);
        if stop.is_restoring() {
            since = Instant::now();
        }
        if stop.urgent() {
            urgent.get_or_insert_with(Instant::now);
        }
        let late = urgent.is_some_and(|at| at.elapsed() >= NEARLY);
        interrupt::set_cutting(late || since.elapsed() >= ORDERLY);
    }
}

/// An error of a session that was cut off says no more than that pgio was asked to stop.
pub fn stopped(failure: Failure) -> Failure {
    match interrupt::was_cut() && ![UNFINISHED, INTERRUPTED].contains(&failure.code()) {
        true => Failure::interrupted(),
        false => failure,
    }
}
