//! The common start of all participants: one moment on two clocks, and who chooses it.

use std::time::{Duration, Instant};

use postgres::Client;

use super::error::EngineError;
use super::prepare;

/// One moment on two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    pub at: Instant,
    /// Seconds since the epoch on the server's clock.
    pub epoch: f64,
}

impl Start {
    /// Returns the moment that is `lead` ahead of now.
    pub(super) fn after(admin: &mut Client, lead: Duration) -> Result<Start, EngineError> {
        let asked = Instant::now();
        let now = prepare::server_clock(admin)?;
        // The server read its clock between request and answer; assume the middle.
        let read = asked + asked.elapsed() / 2;
        Ok(Start { at: read + lead, epoch: now + lead.as_secs_f64() })
    }
}

/// On a driver, the coordinator chooses the moment, the same for all drivers.
pub trait Gate: Send + Sync {
    /// Waits until all drivers are ready and returns the common start.
    fn open(&self) -> Result<Start, EngineError>;
}
