//! `drbdsetup status --json --statistics` of module 9.

use serde_json::Value;

use super::{DrbdError, State};
use crate::host::json;

const FROM: &str = "drbdsetup status --json --statistics";

/// Parses the state of each volume for each peer with a disk; a volume without such peers has one entry.
pub fn parse(text: &str) -> Result<Vec<State>, DrbdError> {
    let resources: Value =
        json::parse(text.trim_end()).map_err(|source| DrbdError::Json { from: FROM, source })?;
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
        minor: minor.ok_or_else(|| DrbdError::missing(FROM, "minor", name))?,
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
    value.ok_or_else(|| DrbdError::missing(FROM, key, of))
}

/// Returns a counter; 0 if an older version does not report it.
fn number(object: &Value, key: &'static str, of: &str) -> Result<u64, DrbdError> {
    // One that cannot be read is not 0, which would mean in sync.
    object.get(key).map_or(Some(0), Value::as_u64).ok_or_else(|| DrbdError::missing(FROM, key, of))
}
