//! Parsers for files in /proc. Pure, so that they work with text from any host.
//!
//! Units are the kernel's (ticks, sectors, milliseconds; kB are converted to bytes) and are part of
//! the names. Counters only grow; callers compute rates. Parsers never panic and skip invalid lines.
//! Next: `telemetry::host` computes differences.

pub mod diskstats;
pub mod meminfo;
pub mod mountinfo;
pub mod net_dev;
pub mod pid_stat;
pub mod stat;

#[cfg(test)]
mod tests;
