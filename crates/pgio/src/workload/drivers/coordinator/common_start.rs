//! Opens a window on all drivers at one moment, which it converts to the clock of each.

use std::time::Duration;

use super::connected::ConnectedDrivers;
use super::part::PartState;
use crate::workload::clock::{ROUND_TRIPS, Start, common_lead};
use crate::workload::drivers::error::DriverError;
use crate::workload::drivers::messages::ToDriver;
use crate::workload::error::EngineError;
use pgio_link::{Clock, LinkError};

/// Time for the round trips to one driver.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Measures all clocks and opens a window on all drivers at the moment that `agree` returns, which may not
/// come sooner than the time that it is given.
pub(super) fn open_all(
    connected: &ConnectedDrivers,
    parts: &mut [PartState],
    number: u64,
    clock: Clock,
    agree: impl FnOnce(Duration) -> Result<Start, EngineError>,
) -> Result<Start, EngineError> {
    let mut worst = Duration::ZERO;
    for part in parts.iter_mut() {
        let Some(driver) = connected.driver(part.rank) else { continue };
        let peer = format!("driver {} on {}", part.rank, part.host);
        let measured = driver.link.offset(ROUND_TRIPS, CLOCK_TIMEOUT, &peer);
        let offset = measured.map_err(|error| match error {
            // The loss of the connection has not been read yet.
            LinkError::Clock { .. } => DriverError::Lost {
                rank: part.rank,
                host: part.host.clone(),
                why: error.to_string(),
                inside: false,
            },
            other => other.into(),
        })?;
        worst = worst.max(offset.worst);
        part.offset = Some(offset);
    }
    let start = agree(common_lead(worst))?;
    let at = clock.at(start.at);
    for part in parts.iter() {
        let Some(offset) = &part.offset else { continue };
        let open = ToDriver::Open { number, at: offset.to_peer(at), epoch: start.epoch };
        connected.send(part.rank, &open)?;
    }
    Ok(start)
}
