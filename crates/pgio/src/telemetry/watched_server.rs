//! The server that the samplers watch, and what they do if it cannot be watched.

use std::time::Duration;

use pgio_connect::ConnectParams;
use pgio_results::Warning;

/// Timeout for a sampler to return its samples.
pub(super) const SAMPLER_TIMEOUT: Duration = Duration::from_secs(6);

/// The server under observation.
#[derive(Debug, Clone)]
pub(super) struct WatchedServer {
    pub(super) params: ConnectParams,
    pub(super) version_num: u32,
    /// The database of the workload.
    pub(super) database: String,
}

pub(super) fn not_observed(what: &str, why: &str) -> Warning {
    Warning::new(format!("{what} were not observed"), why, "check the server log, then run again")
}
