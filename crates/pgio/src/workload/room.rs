//! Whether the server, and this process, have room for all sessions before one of them connects.
//!
//! A server that refuses the last of a thousand sessions would cost the time of all others.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use super::error::EngineError;
use super::phase::TICK;
use crate::host::descriptors;
use crate::host::stop::Stop;
use crate::pg::server::{self, Connections};

/// How long a thousand sessions of an earlier trial may take to be gone.
const ENDING: Duration = Duration::from_secs(5);
/// Open files of a session: its socket, and what its driver waits with.
const DESCRIPTORS: u64 = 5;

/// Checks for room beside the sessions there are. Waits for a server that may still be ending the
/// sessions of the trial before.
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
    let Connections { max, free } = server::connections(admin)
        .map_err(|source| EngineError::Postgres { doing: "asking for free connections", source })?;
    if i64::from(needed) > free {
        return Err(EngineError::TooFewConnections { needed, free, max });
    }
    descriptors::raise_limit(u64::from(needed) * DESCRIPTORS)
        .map_err(|limit| EngineError::TooFewDescriptors { needed, limit })
}
