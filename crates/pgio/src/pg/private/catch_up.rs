//! Waits, while a cluster starts, for its standbys: until they stream, commits can be confirmed,
//! and they have replayed what was done.
//!
//! Asks the server that a standby streams from. Not used during a measurement.

use std::thread;
use std::time::{Duration, Instant};

use pgio_connect::Client;

use super::Error;
use crate::host::stop::Stop;

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// What a standby has to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Goal {
    Stream,
    /// Replay up to this position in the WAL.
    Replay(String),
}

impl Goal {
    fn describe(&self) -> &'static str {
        match self {
            Goal::Stream => "stream",
            Goal::Replay(_) => "replay",
        }
    }
}

const STATE: &str = "SELECT coalesce(max(state), 'not connected') FROM pg_stat_replication \
     WHERE application_name = $1";
const REPLAYED: &str = "SELECT coalesce(max(CASE WHEN replay_lsn >= $2::text::pg_lsn THEN 'reached' \
     ELSE 'at ' || coalesce(replay_lsn::text, 'an unknown position') END), 'not connected') \
     FROM pg_stat_replication WHERE application_name = $1";
/// Absent where nothing waits for a standby.
const SYNCHRONOUS: &str = "SELECT coalesce(string_agg(application_name || ': ' || sync_state, ', '), \
     'none is connected'), coalesce(bool_or(sync_state IN ('sync', 'quorum')), false) \
     FROM pg_stat_replication";

/// A requested stop ends the wait.
pub(super) fn wait(
    client: &mut Client,
    standby: &str,
    goal: &Goal,
    stop: &Stop,
) -> Result<(), Error> {
    let mut reached = || -> Result<(bool, String), Error> {
        let state: String = match goal {
            Goal::Stream => client.query_one(STATE, &[&standby])?.try_get(0)?,
            Goal::Replay(position) => {
                client.query_one(REPLAYED, &[&standby, position])?.try_get(0)?
            }
        };
        Ok((["streaming", "reached"].contains(&state.as_str()), state))
    };
    poll(&format!("standby {standby}"), goal.describe(), &mut reached, stop)
}

/// Waits until commits find a standby that confirms them, unless a stop is requested.
pub(super) fn wait_for_synchronous(client: &mut Client, stop: &Stop) -> Result<(), Error> {
    let mut reached = || {
        let row = client.query_one(SYNCHRONOUS, &[])?;
        Ok((row.try_get(1)?, row.try_get(0)?))
    };
    poll("a standby", "become synchronous", &mut reached, stop)
}

/// Whether commits wait for a standby.
pub(super) fn requires_standby(client: &mut Client) -> Result<bool, Error> {
    let names: String = client.query_one("SHOW synchronous_standby_names", &[])?.try_get(0)?;
    Ok(!names.trim().is_empty())
}

/// The end of the WAL that the server has written or received.
pub(super) fn position(client: &mut Client) -> Result<String, Error> {
    let position = "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() \
         ELSE pg_current_wal_lsn() END)::text";
    Ok(client.query_one(position, &[])?.try_get(0)?)
}

fn poll(
    standby: &str,
    goal: &'static str,
    reached: &mut dyn FnMut() -> Result<(bool, String), Error>,
    stop: &Stop,
) -> Result<(), Error> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let (done, state) = reached()?;
        if done {
            return Ok(());
        }
        if stop.requested() {
            return Err(Error::Stopped);
        }
        if Instant::now() > deadline {
            let (standby, seconds) = (standby.to_owned(), TIMEOUT.as_secs());
            return Err(Error::NotReplicating { standby, goal, seconds, state });
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_the_wait() {
        let stop = Stop::new();
        let waited = |stops_at: u32, reached_at: u32| {
            let mut polls = 0;
            let mut reached = || {
                polls += 1;
                if polls == stops_at {
                    stop.request();
                }
                Ok((polls == reached_at, "async".to_owned()))
            };
            poll("a standby", "become synchronous", &mut reached, &stop)
        };
        assert!(waited(0, 2).is_ok());
        assert!(waited(1, 1).is_ok(), "what is reached is no stop");
        assert!(matches!(waited(0, 100), Err(Error::Stopped)));
    }
}
