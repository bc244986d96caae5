//! Checks, before any session connects, that the server, the role, the database and this process have room for all.
//!
//! Otherwise the server would refuse the last of a thousand sessions after all others have connected.

use std::time::Duration;

use pgio_connect::Client;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::error::EngineError;
use super::phase::TICK;
use crate::host::clock::Clock;
use crate::host::stop::Stop;
use crate::pg::server::{self, ConnectionLimit, Connections, FreeConnections};

/// Time for a thousand sessions of an earlier trial to disappear.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Open files per session: its socket, and the descriptors with which its driver waits.
const DESCRIPTORS_PER_SESSION: u64 = 5;

/// Sessions that need room besides the existing ones.
#[derive(Debug, Clone, Copy)]
pub struct NeededSessions {
    /// Sessions of the admin session's role in its database.
    pub own: u32,
    /// Further sessions on the server. They may be of other roles and in other databases, so only the limit of the
    /// server applies to them here; their own check comes before they connect.
    pub beside: u32,
}

impl NeededSessions {
    fn total(self) -> u32 {
        self.own.saturating_add(self.beside)
    }
}

/// Checks for room besides the existing sessions. Waits for a server that is still ending the sessions
/// of the previous trial.
pub fn wait_for_room(admin: &mut Client, needed: u32, stop: &Stop) -> Result<(), EngineError> {
    wait_for_declared_room(admin, &[], NeededSessions { own: needed, beside: 0 }, stop)
}

/// [`wait_for_room`] for a server as it will be under these values of [`Connections::SETTINGS`].
pub fn wait_for_declared_room(
    admin: &mut Client,
    declared: &[(&str, i64)],
    sessions: NeededSessions,
    stop: &Stop,
) -> Result<(), EngineError> {
    retry(|| check_room(admin, declared, sessions), stop, &Clock::default())
}

/// Checks again as long as earlier sessions may be ending.
fn retry(
    mut check: impl FnMut() -> Result<(), EngineError>,
    stop: &Stop,
    clock: &Clock,
) -> Result<(), EngineError> {
    let begun = clock.now();
    loop {
        match check() {
            Err(EngineError::TooFewConnections { needed, max, .. })
                if i64::from(needed) < max
                    && clock.now() - begun < END_TIMEOUT
                    && !stop.requested() =>
            {
                clock.sleep(TICK);
            }
            checked => return checked,
        }
    }
}

fn check_room(
    admin: &mut Client,
    declared: &[(&str, i64)],
    sessions: NeededSessions,
) -> Result<(), EngineError> {
    let found = server::connections(admin).map_err(|source| EngineError::Postgres {
        doing: "querying the free connections",
        source,
    })?;
    check_free(&found.under(declared), sessions)?;
    let needed = sessions.total();
    raise_limit(u64::from(needed) * DESCRIPTORS_PER_SESSION)
        .map_err(|limit| EngineError::TooFewDescriptors { needed, limit })
}

fn check_free(connections: &Connections, sessions: NeededSessions) -> Result<(), EngineError> {
    for FreeConnections { limit, max, free } in connections.under_each_limit() {
        let needed = match limit {
            ConnectionLimit::Server => sessions.total(),
            ConnectionLimit::Role(_) | ConnectionLimit::Database(_) => sessions.own,
        };
        if i64::from(needed) > free {
            return Err(EngineError::TooFewConnections { needed, free, max, limit });
        }
    }
    Ok(())
}

/// Descriptors reserved for other uses.
const RESERVED: u64 = 64;

/// Raises the soft limit on open files and sockets, often 1,024 for the sake of select(2), for a number
/// of descriptors; the error is the hard limit. Call it only if necessary, because programs started
/// later inherit the limit.
fn raise_limit(needed: u64) -> Result<(), u64> {
    let limit = getrlimit(Resource::Nofile);
    // `None` means unlimited.
    let required = needed.saturating_add(RESERVED);
    if limit.current.is_none_or(|soft| soft >= required) {
        return Ok(());
    }
    if let Some(hard) = limit.maximum.filter(|hard| *hard < required) {
        return Err(hard);
    }
    let raised = Rlimit { current: Some(required), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| limit.current.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(limited: &[FreeConnections]) -> Connections {
        let limited = limited.to_vec();
        Connections { max: 100, superuser_reserved: 3, reserved: 0, used: 7, limited }
    }

    #[test]
    fn sessions_fit_under_the_limits_of_their_role_and_database() {
        let role = ConnectionLimit::Role("app".to_owned());
        let database = ConnectionLimit::Database("shop".to_owned());
        let found = found(&[
            FreeConnections { limit: role, max: 10, free: 9 },
            FreeConnections { limit: database, max: 30, free: 5 },
        ]);
        assert_eq!(found.free(), 5);
        let refusal = |own, beside| {
            let checked = check_free(&found, NeededSessions { own, beside });
            checked.map_or_else(|error| error.to_string(), |()| String::new())
        };
        // Background work may be of another role and in another database.
        assert_eq!(refusal(5, 85), "");
        let refused = [
            (refusal(5, 86), "91 sessions", "server has only 90 of 100", "max_connections"),
            (refusal(6, 0), "6 sessions", "database has only 5 of 30", "LIMIT of database shop"),
            (refusal(10, 0), "10 sessions", "role has only 9 of 10", "LIMIT of role app"),
        ];
        for (text, sessions, free, raised) in refused {
            let expected = format!("{sessions} are needed, but the {free} connections free: lower");
            assert!(text.starts_with(&expected) && text.contains(raised), "{text}");
        }
    }

    #[test]
    fn sessions_fit_beside_those_that_are_there_and_those_that_are_reserved() {
        let found = found(&[]);
        let free = |declared: &[(&str, i64)], own| {
            let checked = check_free(&found.under(declared), NeededSessions { own, beside: 0 });
            match checked {
                Ok(()) => None,
                Err(EngineError::TooFewConnections { free, max, .. }) => Some((free, max)),
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!((free(&[], 90), free(&[], 91)), (None, Some((90, 100))));
        // A condition lowers or raises the limit.
        let small = [("max_connections", 50)];
        assert_eq!((free(&small, 40), free(&small, 64)), (None, Some((40, 50))));
        assert_eq!(free(&[("max_connections", 200)], 190), None);
        let reserved = [("superuser_reserved_connections", 10), ("reserved_connections", 20)];
        assert_eq!((free(&reserved, 63), free(&reserved, 64)), (None, Some((63, 100))));
        assert_eq!(free(&[("max_connections", 5)], 1), Some((0, 5)));
        // Each setting that is asked for is one of the limits.
        for name in Connections::SETTINGS {
            assert_ne!(found.under(&[(name, 99)]).free(), found.free(), "{name}");
        }
    }

    #[test]
    fn room_is_waited_for_while_earlier_sessions_end() {
        let waited = |needed, free_after: u64, stop: &Stop| {
            let clock = Clock::fake();
            let begun = clock.now();
            let too_few = || {
                let limit = ConnectionLimit::Server;
                Err(EngineError::TooFewConnections { needed, free: 0, max: 100, limit })
            };
            let free_at = begun + Duration::from_secs(free_after);
            let check = || if clock.now() < free_at { too_few() } else { Ok(()) };
            (retry(check, stop, &clock).is_ok(), (clock.now() - begun).as_secs())
        };
        assert_eq!(waited(50, 3, &Stop::new()), (true, 3));
        assert_eq!(waited(50, 60, &Stop::new()), (false, END_TIMEOUT.as_secs()));
        assert_eq!(waited(100, 3, &Stop::new()), (false, 0), "more than there can ever be");
        let stop = Stop::new();
        stop.request();
        assert_eq!(waited(50, 3, &stop), (false, 0));
    }

    #[test]
    fn only_the_soft_limit_is_raised() {
        let before = getrlimit(Resource::Nofile);
        let soft = before.current.unwrap();
        raise_limit(soft.saturating_sub(RESERVED)).unwrap();
        assert_eq!(getrlimit(Resource::Nofile), before);
        if before.maximum.is_none_or(|hard| hard > soft) {
            raise_limit(soft + 1 - RESERVED).unwrap();
            let after = getrlimit(Resource::Nofile);
            assert_eq!((after.current, after.maximum), (Some(soft + 1), before.maximum));
        }
        if let Some(hard) = before.maximum {
            assert_eq!(raise_limit(hard), Err(hard));
        }
    }
}
