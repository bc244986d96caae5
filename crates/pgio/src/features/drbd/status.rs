//! Parsers of the state: `drbdsetup status --json --statistics` of module 9, `drbdsetup events2 --now --statistics`, and
//! /proc/drbd of module 8.4.

use std::collections::BTreeMap;

use serde_json::Value;

use super::state::{DrbdError, ESTABLISHED, State};
use crate::host::json;

const STATUS: &str = "drbdsetup status --json --statistics";

/// Parses the state of each volume for each peer with a disk; a volume without such peers has one entry.
pub(super) fn parse_status(text: &str) -> Result<Vec<State>, DrbdError> {
    let resources: Value =
        json::parse(text.trim_end()).map_err(|source| DrbdError::Json { from: STATUS, source })?;
    let mut all = Vec::new();
    for resource in items(Some(&resources)) {
        let name = required(resource, "name", "a resource")?;
        for device in items(resource.get("devices")) {
            let base = without_peer(name, resource, device)?;
            let before = all.len();
            for connection in items(resource.get("connections")) {
                let peer_devices = items(connection.get("peer_devices"));
                let same = |p: &&Value| p.get("volume") == device.get("volume");
                match peer_devices.iter().find(same) {
                    // An unreachable peer may be reported without volumes.
                    None if peer_devices.is_empty() => {
                        all.push(unreachable_peer(base.clone(), name, connection)?);
                    }
                    None => {}
                    Some(peer) if is_client(peer) => {}
                    Some(peer) => {
                        all.push(with_peer(base.clone(), name, connection, peer)?);
                    }
                }
            }
            if all.len() == before {
                all.push(base);
            }
        }
    }
    Ok(all)
}

fn without_peer(name: &str, resource: &Value, device: &Value) -> Result<State, DrbdError> {
    let minor = device.get("minor").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    Ok(State {
        resource: Some(name.to_owned()),
        minor: minor.ok_or_else(|| DrbdError::missing(STATUS, "minor", name))?,
        role: required(resource, "role", name)?.to_owned(),
        disk: required(device, "disk-state", name)?.to_owned(),
        suspended: resource.get("suspended").and_then(Value::as_bool).unwrap_or(false),
        al_writes: number(device, "al-writes", name)?,
        ..State::without_peer()
    })
}

/// Whether the peer has no disk on purpose, such as one that only breaks ties.
fn is_client(peer_device: &Value) -> bool {
    peer_device.get("peer-client").and_then(Value::as_bool).unwrap_or(false)
}

fn with_peer(
    base: State,
    name: &str,
    connection: &Value,
    peer_device: &Value,
) -> Result<State, DrbdError> {
    Ok(State {
        connection: required(connection, "connection-state", name)?.to_owned(),
        peer_role: required(connection, "peer-role", name)?.to_owned(),
        congested: connection.get("congested").and_then(Value::as_bool),
        replication: required(peer_device, "replication-state", name)?.to_owned(),
        peer_disk: required(peer_device, "peer-disk-state", name)?.to_owned(),
        sent_kib: number(peer_device, "sent", name)?,
        received_kib: number(peer_device, "received", name)?,
        pending: number(peer_device, "pending", name)?,
        unacked: number(peer_device, "unacked", name)?,
        out_of_sync_kib: number(peer_device, "out-of-sync", name)?,
        percent_in_sync: peer_device.get("percent-in-sync").and_then(Value::as_f64),
        ..base
    })
}

fn unreachable_peer(base: State, name: &str, connection: &Value) -> Result<State, DrbdError> {
    let connection = required(connection, "connection-state", name)?.to_owned();
    Ok(State { connection, ..base })
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn required<'a>(object: &'a Value, key: &'static str, of: &str) -> Result<&'a str, DrbdError> {
    let value = object.get(key).and_then(Value::as_str);
    value.ok_or_else(|| DrbdError::missing(STATUS, key, of))
}

/// Returns a counter; 0 if an older version does not report it.
fn number(object: &Value, key: &'static str, of: &str) -> Result<u64, DrbdError> {
    // One that cannot be read is not 0, which would mean in sync.
    object
        .get(key)
        .map_or(Some(0), Value::as_u64)
        .ok_or_else(|| DrbdError::missing(STATUS, key, of))
}

// `drbdsetup events2 --now --statistics`: one line per object, `key:value` words. Modules 8.4 and 9.

const EVENTS: &str = "drbdsetup events2 --now --statistics";

type Fields<'a> = BTreeMap<&'a str, &'a str>;

/// Parses the state of each volume for each peer with a disk; a volume without such peers has one entry.
pub(super) fn parse_events(text: &str) -> Result<Vec<State>, DrbdError> {
    let lines_with = |kind: &'static str| {
        let lines = text.lines().filter_map(move |line| {
            line.strip_prefix("exists ")?.strip_prefix(kind)?.strip_prefix(' ')
        });
        lines.map(fields).collect::<Vec<Fields<'_>>>()
    };
    let (resources, connections) = (lines_with("resource"), lines_with("connection"));
    let peer_devices = lines_with("peer-device");
    let mut all = Vec::new();
    for device in lines_with("device") {
        let name = event_field(&device, "name", "a device")?;
        let resource = resources.iter().find(|r| r.get("name") == Some(&name));
        let resource = resource.ok_or_else(|| DrbdError::missing(EVENTS, "the resource", name))?;
        let base = event_without_peer(name, &device, resource)?;
        let same = |f: &&Fields<'_>| ["name", "volume"].iter().all(|k| f.get(k) == device.get(k));
        let mut has_peer = false;
        // A peer may have no disk on purpose, such as one that only breaks ties.
        let has_disk = |f: &&Fields<'_>| f.get("peer-client") != Some(&"yes");
        for peer_device in peer_devices.iter().filter(same).filter(has_disk) {
            let same_peer = |c: &&Fields<'_>| {
                ["name", "peer-node-id"].iter().all(|k| c.get(k) == peer_device.get(k))
            };
            if let Some(connection) = connections.iter().find(same_peer) {
                let mut state = event_with_peer(base.clone(), name, connection, peer_device)?;
                state.percent_in_sync = event_percent(&state, &device);
                all.push(state);
                has_peer = true;
            }
        }
        if !has_peer {
            all.push(base);
        }
    }
    Ok(all)
}

fn fields(line: &str) -> Fields<'_> {
    line.split_whitespace().filter_map(|word| word.split_once(':')).collect()
}

fn event_without_peer(
    name: &str,
    device: &Fields<'_>,
    resource: &Fields<'_>,
) -> Result<State, DrbdError> {
    let minor = event_field(device, "minor", name)?;
    Ok(State {
        resource: Some(name.to_owned()),
        minor: minor.parse().map_err(|_| DrbdError::missing(EVENTS, "minor", name))?,
        role: event_field(resource, "role", name)?.to_owned(),
        disk: event_field(device, "disk", name)?.to_owned(),
        suspended: resource.get("suspended").is_some_and(|s| *s != "no"),
        al_writes: event_number(device, "al-writes", name)?,
        ..State::without_peer()
    })
}

fn event_with_peer(
    base: State,
    name: &str,
    connection: &Fields<'_>,
    peer_device: &Fields<'_>,
) -> Result<State, DrbdError> {
    Ok(State {
        connection: event_field(connection, "connection", name)?.to_owned(),
        peer_role: event_field(connection, "role", name)?.to_owned(),
        congested: connection.get("congested").map(|c| *c == "yes"),
        replication: event_field(peer_device, "replication", name)?.to_owned(),
        peer_disk: event_field(peer_device, "peer-disk", name)?.to_owned(),
        sent_kib: event_number(peer_device, "sent", name)?,
        received_kib: event_number(peer_device, "received", name)?,
        pending: event_number(peer_device, "pending", name)?,
        unacked: event_number(peer_device, "unacked", name)?,
        out_of_sync_kib: event_number(peer_device, "out-of-sync", name)?,
        ..base
    })
}

fn event_percent(state: &State, device: &Fields<'_>) -> Option<f64> {
    let size = device.get("size").and_then(|s| s.parse::<f64>().ok()).filter(|s| *s > 0.0)?;
    Some(100.0 * (1.0 - state.out_of_sync_kib as f64 / size))
}

fn event_field<'a>(fields: &Fields<'a>, key: &'static str, of: &str) -> Result<&'a str, DrbdError> {
    fields.get(key).copied().ok_or_else(|| DrbdError::missing(EVENTS, key, of))
}

/// Returns a counter; 0 if an older version does not report it.
fn event_number(fields: &Fields<'_>, key: &'static str, of: &str) -> Result<u64, DrbdError> {
    let value = fields.get(key).map_or(Ok(0), |value| value.parse());
    // One that cannot be read is not 0, which would mean in sync.
    value.map_err(|_| DrbdError::missing(EVENTS, key, of))
}

// /proc/drbd of module 8.4: two lines per device, and a third during a resync. All users may read it.
//
// The file combines connection state and replication state in one word (`cs:SyncSource`); the parser
// splits it into two, as `drbdsetup` prints them. With module 9 the file contains only the version.

const PROC: &str = "/proc/drbd";

/// Parses the configured devices.
pub(super) fn parse_proc(text: &str) -> Result<Vec<State>, DrbdError> {
    let mut all: Vec<State> = Vec::new();
    for line in text.lines() {
        match proc_head(line) {
            Some((minor, rest)) => all.extend(proc_device(minor, rest)?),
            // Lines before the first device describe the module.
            None => {
                if let Some(state) = all.last_mut() {
                    proc_counters(state, line)?;
                }
            }
        }
    }
    Ok(all)
}

/// Splits the first line of a device, ` 1: cs:Connected …`.
fn proc_head(line: &str) -> Option<(u32, &str)> {
    let (minor, rest) = line.split_once(':')?;
    Some((minor.trim_start().parse().ok()?, rest))
}

/// Parses a device; `None` if the minor is unused.
fn proc_device(minor: u32, rest: &str) -> Result<Option<State>, DrbdError> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let field = |key: &'static str| {
        let value = words.iter().find_map(|word| word.strip_prefix(key));
        value.ok_or_else(|| DrbdError::missing(PROC, key, &format!("minor {minor}")))
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

fn proc_counters(state: &mut State, line: &str) -> Result<(), DrbdError> {
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
        let missing = |_| DrbdError::missing(PROC, key, &format!("minor {}", state.minor));
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
