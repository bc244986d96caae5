//! Checks of a DRBD resource before anything is changed: the roles of the nodes, and that the server's
//! data lies on the resource.

use super::asked::Asked;
use super::node::Node;
use super::step::{DISCONNECTED, connection_of};
use crate::host::drbd;
use crate::host::storage;
use crate::pg::directories::{GRANT, directories};
use crate::treatment::context::{Context, Replica};
use crate::treatment::error::TreatmentError;

/// The server's node is the first.
pub(super) fn roles(asked: &Asked, nodes: &[Node]) -> Result<(), TreatmentError> {
    for (at, node) in nodes.iter().enumerate() {
        let seen = node.snapshot(&asked.resource)?;
        let host = &node.name;
        if seen.config.connections.len() > 1 {
            return Err(asked.refused("has more than one peer, and pgio knows two nodes only"));
        }
        let role = seen.states.first().map_or("", |s| s.role.as_str());
        let (expected, whose) =
            if at == 0 { ("Primary", "the server's") } else { ("Secondary", "the peer's") };
        if role != expected {
            return Err(asked.refused(format!(
                "is {role} on host {host}, which should be {whose} and {expected}: correct host in [target] and secondary"
            )));
        }
        if let Some(state) = seen.states.iter().find(|s| s.disk != drbd::UP_TO_DATE)
            && !drbd::is_resync(&state.replication)
        {
            return Err(asked.refused(format!(
                "has a disk that is {} on host {host}, and no resync runs: see to it first",
                state.disk
            )));
        }
        // Both wait for each other in vain, as after a split brain or without a network.
        if asked.connected && seen.states.iter().any(|s| s.connection == "Connecting") {
            let alone = |n: &Node| {
                Ok::<_, TreatmentError>(
                    connection_of(&n.snapshot(&asked.resource)?.states) == DISCONNECTED,
                )
            };
            let other = nodes.iter().find(|n| n.name != node.name);
            if !other.map(alone).transpose()?.unwrap_or(false) {
                return Err(asked.refused(format!(
                    "waits on host {host} for a peer that does not answer: see to the network and the peer"
                )));
            }
        }
    }
    Ok(())
}

/// The peer's copy of the data, for treatments of its disk.
pub(super) fn replica(asked: &Asked, peer: &Node) -> Result<Replica, TreatmentError> {
    let volumes = peer.snapshot(&asked.resource)?.config.volumes;
    Ok(Replica {
        host: peer.name.clone(),
        of: format!("DRBD {}", asked.resource),
        devices: volumes.into_iter().filter_map(|volume| volume.backing).collect(),
    })
}

/// Refuses a resource that holds none of the server's directories.
pub(super) fn storage_of_server(
    asked: &Asked,
    context: &mut Context<'_>,
    node: &Node,
) -> Result<(), TreatmentError> {
    let places = directories(context.admin()?).map_err(|source| TreatmentError::Postgres {
        doing: "find out where the server keeps its data".to_owned(),
        source,
    })?;
    if places.is_empty() {
        return Err(asked.refused(format!(
            "cannot be held against the server's directories, which the role may not see: GRANT {GRANT} to it"
        )));
    }
    let volumes = node.snapshot(&asked.resource)?.config.volumes;
    let ours: Vec<String> = volumes.iter().map(|v| drbd::device(v.minor)).collect();
    let paths: Vec<&str> = places.iter().map(|d| d.path.as_str()).collect();
    let mut elsewhere = Vec::new();
    for (place, found) in places.iter().zip(storage::locate(node.exec.as_ref(), &paths)?) {
        let names: Vec<String> =
            found.into_iter().flat_map(|l| l.devices).map(|d| d.name).collect();
        if names.iter().any(|name| ours.contains(name)) {
            return Ok(());
        }
        let on = if names.is_empty() { "no known device".into() } else { names.join(" over ") };
        elsewhere.push(format!("{} ({}) on {on}", place.role, place.path));
    }
    Err(asked.refused(format!(
        "({}) carries nothing of this server: {}; write a [targets.NAME] for the server that lies on it, and target = \"NAME\" in the condition",
        ours.join(", "),
        elsewhere.join(", ")
    )))
}
