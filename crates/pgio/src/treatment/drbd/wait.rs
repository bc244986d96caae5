//! Waits for DRBD: for a connection, for its end, for a resync.
//!
//! A resync may take any time while it makes progress; one that stalls is an error with
//! its state. A stop request ends a wait that is part of putting a condition in
//! force, and the change is undone; an undo keeps waiting for the peer, until
//! a stop is requested a second time.

use std::thread;
use std::time::{Duration, Instant};

use super::node::Node;
use crate::host::drbd::State;
use crate::host::exec::ExecError;
use crate::host::stop::Stop;
use crate::treatment::error::TreatmentError;
use crate::treatment::step::Undone;
use pgio_results::model::Evidence;

const STEP: Duration = Duration::from_millis(200);

/// How long a peer may take to answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// How long the other node may take to notice a change.
const NOTICE_LIMIT: Duration = Duration::from_secs(10);

/// How long a resync may make no progress, or the state before and after it not change.
const STALL_LIMIT: Duration = Duration::from_secs(60);

pub(super) fn until_connected(
    node: &Node,
    resource: &str,
    stop: &Stop,
) -> Result<(), TreatmentError> {
    let begun = Instant::now();
    loop {
        let Some(states) = read(node, resource, begun, CONNECT_LIMIT)? else {
            pause(stop)?;
            continue;
        };
        if states.iter().all(State::is_connected) && !states.is_empty() {
            return Ok(());
        }
        // Both StandAlone again: they refused each other.
        let refused = states.iter().all(State::is_standalone) && begun.elapsed() > STEP * 10;
        if refused || begun.elapsed() > CONNECT_LIMIT {
            let why = if refused {
                "the peers refused each other (a split brain?); see the kernel log"
            } else {
                "the peer does not answer; check whether it is StandAlone, and the network"
            };
            return Err(not_in_force(node, resource, "connected", begun, why, &states));
        }
        pause(stop)?;
    }
}

/// Waits for the other node, which receives a new protocol only after the data sent before it.
pub(super) fn until_noticed(
    mut wrong: impl FnMut() -> Option<Evidence>,
    stop: &Stop,
) -> Result<(), TreatmentError> {
    let begun = Instant::now();
    while let Some(e) = wrong() {
        if begun.elapsed() > NOTICE_LIMIT {
            let requested = e.expected.unwrap_or_default();
            return Err(TreatmentError::NotInForce {
                what: e.what,
                seconds: NOTICE_LIMIT.as_secs(),
                why: format!("it is {}, but {requested} was requested", e.found),
            });
        }
        pause(stop)?;
    }
    Ok(())
}

pub(super) fn until_alone(node: &Node, resource: &str, stop: &Stop) -> Result<(), TreatmentError> {
    let begun = Instant::now();
    loop {
        let Some(states) = read(node, resource, begun, CONNECT_LIMIT)? else {
            pause(stop)?;
            continue;
        };
        if states.iter().all(State::is_standalone) {
            return Ok(());
        }
        if begun.elapsed() > CONNECT_LIMIT {
            return Err(not_in_force(node, resource, "disconnected", begun, "timed out", &states));
        }
        pause(stop)?;
    }
}

pub(super) fn until_in_sync(
    node: &Node,
    resource: &str,
    stop: &Stop,
) -> Result<(), TreatmentError> {
    let begun = Instant::now();
    let mut progress = Progress::new();
    loop {
        let Some(states) = read(node, resource, progress.at, STALL_LIMIT)? else {
            pause(stop)?;
            continue;
        };
        if states.iter().all(State::is_in_sync) && !states.is_empty() {
            return Ok(());
        }
        if progress.has_stalled(&states) {
            let why = "the resync makes no progress; check the peer, its disk and the network";
            return Err(not_in_force(node, resource, "in sync", begun, why, &states));
        }
        pause(stop)?;
    }
}

/// Waits while a resync makes progress, so that the next trial has the devices to itself. A resync that
/// stalls is no failure of the undo.
pub(super) fn until_resync_ends(
    node: &Node,
    resource: &str,
    stop: &Stop,
) -> Result<(), TreatmentError> {
    let mut progress = Progress::new();
    while !stop.requested() {
        let Some(states) = read(node, resource, progress.at, STALL_LIMIT)? else {
            thread::sleep(STEP);
            continue;
        };
        let connected = states.iter().all(State::is_connected);
        if !connected || states.iter().all(State::is_in_sync) || progress.has_stalled(&states) {
            return Ok(());
        }
        thread::sleep(STEP);
    }
    Ok(())
}

/// Waits for the peer to come back after an undo, so that the resync begins.
pub(super) fn until_returned(
    node: &Node,
    resource: &str,
    stop: &Stop,
) -> Result<Undone, TreatmentError> {
    let begun = Instant::now();
    loop {
        let states = read(node, resource, begun, CONNECT_LIMIT)?;
        let has_returned = |s: &State| s.is_connected() && s.replication != "Off";
        if states.as_ref().is_some_and(|states| states.iter().all(has_returned)) {
            return Ok(Undone::Restored);
        }
        if stop.urgent() {
            return Ok(Undone::RestoredNotAwaited);
        }
        let states = states.unwrap_or_default();
        if begun.elapsed() > CONNECT_LIMIT {
            let why = "the peer was connected before and does not reconnect; check whether it is StandAlone (`drbdadm connect` there) and the network, then rerun `pgio undo`, or run `pgio undo --keep` to leave it disconnected";
            return Err(not_in_force(node, resource, "connected", begun, why, &states));
        }
        thread::sleep(STEP);
    }
}

/// Returns the state of all volumes; `None` if it cannot be read at this moment, such as while a resync begins. That
/// is an error after `limit`, and at once where no answer may come.
fn read(
    node: &Node,
    resource: &str,
    since: Instant,
    limit: Duration,
) -> Result<Option<Vec<State>>, TreatmentError> {
    match node.states(resource) {
        Ok(states) => Ok(Some(states)),
        Err(TreatmentError::Refused(_) | TreatmentError::Host(ExecError::Failed { .. }))
            if since.elapsed() <= limit =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn pause(stop: &Stop) -> Result<(), TreatmentError> {
    if stop.requested() {
        return Err(TreatmentError::Stopped);
    }
    thread::sleep(STEP);
    Ok(())
}

struct Progress {
    last: (u64, String),
    at: Instant,
}

impl Progress {
    fn new() -> Progress {
        Progress { last: (u64::MAX, String::new()), at: Instant::now() }
    }

    fn has_stalled(&mut self, states: &[State]) -> bool {
        let left = states.iter().map(|s| s.out_of_sync_kib).sum();
        let now = (left, describe_states(states));
        // Writes may add to what is left; only less of it is progress.
        if now.1 != self.last.1 || now.0 < self.last.0 {
            (self.last, self.at) = (now, Instant::now());
        }
        self.at.elapsed() > STALL_LIMIT
    }
}

fn describe_states(states: &[State]) -> String {
    let one = |s: &State| format!("{} {}", s.link(), s.disks());
    states.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn not_in_force(
    node: &Node,
    resource: &str,
    what: &str,
    begun: Instant,
    why: &str,
    states: &[State],
) -> TreatmentError {
    let left: u64 = states.iter().map(|s| s.out_of_sync_kib).sum();
    let left = if left > 0 { format!(", {left} kB out of sync") } else { String::new() };
    TreatmentError::NotInForce {
        what: format!("DRBD {resource} {what} on host {}", node.name),
        seconds: begun.elapsed().as_secs(),
        why: format!("it is {}{left}; {why}", describe_states(states)),
    }
}
