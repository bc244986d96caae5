//! Text of /proc into numbers: pure, for any host's text.
//!
//! Units stay the kernel's (ticks, sectors, milliseconds, kB become bytes) and are named so;
//! counters only grow, and rates are the caller's business. Whatever a line holds, no parser
//! panics: what is not understood is left out. Next: `telemetry::host` takes differences.

pub mod diskstats;
pub mod meminfo;
pub mod mountinfo;
pub mod net_dev;
pub mod pid_stat;
pub mod pressure;
pub mod stat;

#[cfg(test)]
mod tests;
