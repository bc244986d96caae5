//! Checks of a DRBD resource before anything is changed: the roles of the nodes, the quorum, and that the server's
//! data lies on the resource.

use super::node::{Node, Snapshot};
use super::requested::RequestedState;
use super::step::{Change, DISCONNECTED, connection_of};
use crate::host::drbd;
use crate::host::storage;
use crate::pg::server::{DIRECTORIES_GRANT, directories};
use crate::treatment::context::{Context, Replica};
use crate::treatment::error::TreatmentError;

/// The server's node is the first.
pub(super) fn roles(requested: &RequestedState, nodes: &[Node]) -> Result<(), TreatmentError> {
    let snapshots = nodes.iter().map(|node| node.snapshot(&requested.resource));
    let snapshots = snapshots.collect::<Result<Vec<_>, _>>()?;
    quorum(requested, nodes, &snapshots)?;
    for (at, (node, seen)) in nodes.iter().zip(&snapshots).enumerate() {
        let host = &node.name;
        if seen.config.connections.len() > 1 {
            return Err(requested.refused("has more than one peer; pgio supports two nodes"));
        }
        let role = seen.states.first().map_or("", |s| s.role.as_str());
        let (expected, whose) =
            if at == 0 { ("Primary", "the server's") } else { ("Secondary", "the peer's") };
        if role != expected {
            return Err(requested.refused(format!(
                "is {role} on host {host}, which should be {whose} and {expected}: correct host in [target] and secondary"
            )));
        }
        if let Some(state) = seen.states.iter().find(|s| s.disk != drbd::UP_TO_DATE)
            && !drbd::is_resync(&state.replication)
        {
            return Err(requested.refused(format!(
                "has a disk in state {} on host {host}, and no resync is running: repair it first",
                state.disk
            )));
        }
        // Both nodes wait for each other, as after a split brain or without a network.
        if requested.connected && seen.states.iter().any(|s| s.connection == "Connecting") {
            let mut others = snapshots.iter().enumerate().filter(|(other, _)| *other != at);
            if !others.any(|(_, other)| connection_of(&other.states) == DISCONNECTED) {
                return Err(requested.refused(format!(
                    "is waiting on host {host} for a peer that does not answer: check the network and the peer"
                )));
            }
        }
    }
    Ok(())
}

/// Refuses to disconnect the nodes, or to connect them, which an undo would revert, if the server's node requires a
/// quorum. Whether it keeps that without its peer depends on the value and on the version of the module.
fn quorum(
    requested: &RequestedState,
    nodes: &[Node],
    snapshots: &[Snapshot],
) -> Result<(), TreatmentError> {
    let Some((server, seen)) = nodes.first().zip(snapshots.first()) else { return Ok(()) };
    let Some(quorum) = seen.config.quorum() else { return Ok(()) };
    for (at, seen) in snapshots.iter().enumerate() {
        let needed = requested.needed_changes(at == 0, seen);
        if needed.iter().any(|(change, _)| matches!(change, Change::Connection { .. })) {
            return Err(requested.refused(format!(
                "has quorum {quorum} on host {}, so pgio does not change its connection: without the peer, I/O of the server might be suspended or fail; set quorum to off in the resource's options for the experiment",
                server.name
            )));
        }
    }
    Ok(())
}

/// The peer's copy of the data, for treatments of its disk.
pub(super) fn replica(requested: &RequestedState, peer: &Node) -> Result<Replica, TreatmentError> {
    let volumes = peer.snapshot(&requested.resource)?.config.volumes;
    Ok(Replica {
        host: peer.name.clone(),
        description: format!("DRBD {}", requested.resource),
        devices: volumes.into_iter().filter_map(|volume| volume.backing).collect(),
    })
}

/// Refuses a resource that holds none of the server's directories.
pub(super) fn storage_of_server(
    requested: &RequestedState,
    context: &mut Context<'_>,
    node: &Node,
) -> Result<(), TreatmentError> {
    let places = directories(context.admin()?).map_err(|source| TreatmentError::Postgres {
        doing: "find out where the server keeps its data".to_owned(),
        source,
    })?;
    if places.is_empty() {
        return Err(requested.refused(format!(
            "cannot be compared with the server's directories, which the role may not see: GRANT {DIRECTORIES_GRANT} TO ROLE"
        )));
    }
    let volumes = node.snapshot(&requested.resource)?.config.volumes;
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
    Err(requested.refused(format!(
        "({}) holds no data of this server: {}; write a [targets.NAME] for the server that uses it, and target = \"NAME\" in the condition",
        ours.join(", "),
        elsewhere.join(", ")
    )))
}
