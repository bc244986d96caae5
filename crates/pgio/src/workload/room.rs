//! Checks, before any session connects, that the server and this process have room for all of them.
//!
//! Otherwise the server would refuse the last of a thousand sessions after all others have connected.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use super::error::EngineError;
use super::phase::TICK;
use crate::host::descriptors;
use crate::host::stop::Stop;
use crate::pg::server::{self, Connections};

/// Time for a thousand sessions of an earlier trial to disappear.
const ENDING: Duration = Duration::from_secs(5);
/// Open files per session: its socket, and the descriptors with which its driver waits.
const DESCRIPTORS: u64 = 5;

/// Checks for room besides the existing sessions. Waits for a server that is still ending the sessions
/// of the previous trial.
pub fn wait_for_room(admin: &mut Client, needed: u32, stop: &Stop) -> Result<(), EngineError> {
    let begun = Instant::now();
    loop {
        match check_room(admin, needed) {
            Err(EngineError::TooFewConnections { max, .. })
                if i64::from(needed) < max && begun.elapsed() < ENDING && !stop.requested() =>
            {
                thread::sleep(TICK);
            }
            checked => return checked,
        }
    }
}

fn check_room(admin: &mut Client, needed: u32) -> Result<(), EngineError> {
    let Connections { max, free } = server::connections(admin).map_err(|source| {
        EngineError::Postgres { doing: "querying the free connections", source }
    })?;
    if i64::from(needed) > free {
        return Err(EngineError::TooFewConnections { needed, free, max });
    }
    descriptors::raise_limit(u64::from(needed) * DESCRIPTORS)
        .map_err(|limit| EngineError::TooFewDescriptors { needed, limit })
}
