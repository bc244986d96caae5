//! Ctrl-C and its kin set the one stop flag; the work itself sees to an orderly end.

use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::exit::{FAILED, Failure};
use crate::host::stop::Stop;

/// A flag that the first signal sets and the second makes urgent.
pub(super) fn stop_on_signals() -> Result<Stop, Failure> {
    let stop = Stop::new();
    let flag = stop.clone();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|e| Failure::new(FAILED, e).context("cannot listen for signals"))?;
    thread::spawn(move || {
        for _ in signals.forever() {
            flag.request();
            if !flag.urgent() {
                eprintln!("\npgio: stopping; once more to leave as soon as everything is put back");
            }
        }
    });
    Ok(stop)
}
