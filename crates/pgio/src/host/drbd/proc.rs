//! /proc/drbd of module 8.4: two lines per device, and a third during a resync. All users may read it.
//!
//! The file combines connection state and replication state in one word (`cs:SyncSource`); the parser
//! splits it into two, as `drbdsetup` prints them. With module 9 the file contains only the version.

use super::{DrbdError, ESTABLISHED, State};

const FROM: &str = "/proc/drbd";

/// Parses the configured devices.
pub fn parse(text: &str) -> Result<Vec<State>, DrbdError> {
    let mut all: Vec<State> = Vec::new();
    for line in text.lines() {
        match head(line) {
            Some((minor, rest)) => all.extend(device(minor, rest)?),
            // Lines before the first device describe the module.
            None => {
                if let Some(state) = all.last_mut() {
                    counters(state, line)?;
                }
            }
        }
    }
    Ok(all)
}

/// Splits the first line of a device, ` 1: cs:Connected …`.
fn head(line: &str) -> Option<(u32, &str)> {
    let (minor, rest) = line.split_once(':')?;
    Some((minor.trim_start().parse().ok()?, rest))
}

/// Parses a device; `None` if the minor is unused.
fn device(minor: u32, rest: &str) -> Result<Option<State>, DrbdError> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let field = |key: &'static str| {
        let value = words.iter().find_map(|word| word.strip_prefix(key));
        value.ok_or_else(|| DrbdError::missing(FROM, key, &format!("minor {minor}")))
    };
    let pair = |key| -> Result<(String, String), DrbdError> {
        let (ours, theirs) = field(key)?.split_once('/').unwrap_or_default();
        Ok((ours.to_owned(), theirs.to_owned()))
    };
    let word = field("cs:")?;
    if word == "Unconfigured" {
        return Ok(None);
    }
    let (connection, replication) = split_state(word);
    let (role, peer_role) = pair("ro:")?;
    let (disk, peer_disk) = pair("ds:")?;
    // The protocol is blank without a connection; the flags begin with r (running) or s (suspended).
    let protocol = words.iter().find(|word| matches!(**word, "A" | "B" | "C"));
    let flags = words.last().copied().unwrap_or_default();
    Ok(Some(State {
        minor,
        role,
        peer_role,
        connection: connection.to_owned(),
        replication: replication.to_owned(),
        disk,
        peer_disk,
        protocol: protocol.map(|p| (*p).to_owned()),
        suspended: flags.starts_with('s'),
        ..State::default()
    }))
}

fn counters(state: &mut State, line: &str) -> Result<(), DrbdError> {
    for (key, value) in line.split_whitespace().filter_map(|word| word.split_once(':')) {
        let (key, counter) = match key {
            "ns" => ("ns:", &mut state.sent_kib),
            "nr" => ("nr:", &mut state.received_kib),
            "al" => ("al:", &mut state.al_writes),
            "pe" => ("pe:", &mut state.pending),
            "ua" => ("ua:", &mut state.unacked),
            "oos" => ("oos:", &mut state.out_of_sync_kib),
            _ => continue,
        };
        let missing = |_| DrbdError::missing(FROM, key, &format!("minor {}", state.minor));
        *counter = value.parse().map_err(missing)?;
    }
    Ok(())
}

/// Splits the combined state into connection state and replication state.
fn split_state(word: &str) -> (&str, &str) {
    match word {
        "Connected" => ("Connected", ESTABLISHED),
        "WFConnection" => ("Connecting", "Off"),
        "StandAlone" | "Disconnecting" | "Unconnected" | "Timeout" | "BrokenPipe"
        | "NetworkFailure" | "ProtocolError" | "TearDown" => (word, "Off"),
        "WFReportParams" => ("Connected", "Off"),
        replication => ("Connected", replication),
    }
}
