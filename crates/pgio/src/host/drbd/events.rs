//! `drbdsetup events2 --now --statistics`: one line per object, `key:value` words. Modules 8.4 and 9.

use std::collections::BTreeMap;

use super::{DrbdError, State};

const FROM: &str = "drbdsetup events2 --now --statistics";

type Fields<'a> = BTreeMap<&'a str, &'a str>;

/// Parses the state of each volume for each peer with a disk; a volume without such peers has one entry.
pub fn parse(text: &str) -> Result<Vec<State>, DrbdError> {
    let of_kind = |kind: &'static str| {
        let lines = text.lines().filter_map(move |line| {
            line.strip_prefix("exists ")?.strip_prefix(kind)?.strip_prefix(' ')
        });
        lines.map(fields).collect::<Vec<Fields<'_>>>()
    };
    let (resources, connections) = (of_kind("resource"), of_kind("connection"));
    let peer_devices = of_kind("peer-device");
    let mut all = Vec::new();
    for device in of_kind("device") {
        let name = required(&device, "name", "a device")?;
        let resource = resources.iter().find(|r| r.get("name") == Some(&name));
        let resource = resource.ok_or_else(|| DrbdError::missing(FROM, "the resource", name))?;
        let base = without_peer(name, &device, resource)?;
        let same = |f: &&Fields<'_>| ["name", "volume"].iter().all(|k| f.get(k) == device.get(k));
        let mut has_peer = false;
        // A peer may have no disk on purpose, such as one that only breaks ties.
        let has_disk = |f: &&Fields<'_>| f.get("peer-client") != Some(&"yes");
        for peer_device in peer_devices.iter().filter(same).filter(has_disk) {
            let same_peer = |c: &&Fields<'_>| {
                ["name", "peer-node-id"].iter().all(|k| c.get(k) == peer_device.get(k))
            };
            if let Some(connection) = connections.iter().find(same_peer) {
                let mut state = with_peer(base.clone(), name, connection, peer_device)?;
                state.percent_in_sync = percent(&state, &device);
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

fn without_peer(
    name: &str,
    device: &Fields<'_>,
    resource: &Fields<'_>,
) -> Result<State, DrbdError> {
    let minor = required(device, "minor", name)?;
    Ok(State {
        resource: Some(name.to_owned()),
        minor: minor.parse().map_err(|_| DrbdError::missing(FROM, "minor", name))?,
        role: required(resource, "role", name)?.to_owned(),
        disk: required(device, "disk", name)?.to_owned(),
        suspended: resource.get("suspended").is_some_and(|s| *s != "no"),
        al_writes: number(device, "al-writes", name)?,
        ..State::without_peer()
    })
}

fn with_peer(
    base: State,
    name: &str,
    connection: &Fields<'_>,
    peer_device: &Fields<'_>,
) -> Result<State, DrbdError> {
    Ok(State {
        connection: required(connection, "connection", name)?.to_owned(),
        peer_role: required(connection, "role", name)?.to_owned(),
        congested: connection.get("congested").map(|c| *c == "yes"),
        replication: required(peer_device, "replication", name)?.to_owned(),
        peer_disk: required(peer_device, "peer-disk", name)?.to_owned(),
        sent_kib: number(peer_device, "sent", name)?,
        received_kib: number(peer_device, "received", name)?,
        pending: number(peer_device, "pending", name)?,
        unacked: number(peer_device, "unacked", name)?,
        out_of_sync_kib: number(peer_device, "out-of-sync", name)?,
        ..base
    })
}

fn percent(state: &State, device: &Fields<'_>) -> Option<f64> {
    let size = device.get("size").and_then(|s| s.parse::<f64>().ok()).filter(|s| *s > 0.0)?;
    Some(100.0 * (1.0 - state.out_of_sync_kib as f64 / size))
}

fn required<'a>(fields: &Fields<'a>, key: &'static str, of: &str) -> Result<&'a str, DrbdError> {
    fields.get(key).copied().ok_or_else(|| DrbdError::missing(FROM, key, of))
}

/// Returns a counter; 0 if an older version does not report it.
fn number(fields: &Fields<'_>, key: &'static str, of: &str) -> Result<u64, DrbdError> {
    let value = fields.get(key).map_or(Ok(0), |value| value.parse());
    // One that cannot be read is not 0, which would mean in sync.
    value.map_err(|_| DrbdError::missing(FROM, key, of))
}
