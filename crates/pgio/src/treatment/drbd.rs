//! `drbd = { resource = "pgio", connection = …, protocol = …, … }`: replication under the database.
//!
//! Everything is changed in the running kernel only, so a reboot takes it back by itself, and the
//! files of the configuration stay as they are. The connection and its protocol are changed on the
//! server's host, whose peer follows; disk options on both hosts, since each has a disk. Before
//! anything is measured both disks are the same again, and no resync runs.
//!
//! Next: `node` for DRBD on one host, `change` for one reversible change, `wait`, `proof`.

mod change;
mod node;
mod proof;
#[cfg(test)]
mod tests;
mod wait;

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use crate::config::experiment::TreatmentSpec;
use crate::host::drbd::{self, Generation, State};
use crate::host::storage;
use crate::pg::directories::{GRANT, directories};
use crate::results::change as declared;
use crate::results::model::{Check, Evidence, Trial, When};

use self::change::{CONNECTED, Change, DISCONNECTED, Ours, connection_of};
use self::node::{Node, Seen};
use self::proof::Looks;
use super::body::Body;
use super::{
    Cost, Kind, Machines, Outlook, Replica, Resource, Step, Stranger, Touch, Treatment,
    TreatmentError, Undone, World,
};

pub(super) const KIND: Kind = Kind {
    name: "drbd",
    help: "DRBD under the data: { resource = \"r0\", connection = \"connected\" or \"disconnected\", protocol = \"A\", \"B\" or \"C\", secondary = the peer's name in [hosts] }; on both hosts also al-extents, disk-barrier, disk-flushes, md-flushes, al-updates",
    parse,
    undo,
};

const HOW: &str = "by drbdadm and drbdsetup, in the running kernel";
const EXAMPLE: &str = "{ resource = \"r0\", protocol = \"A\", secondary = \"db2\" }";
const SWITCHES: &[&str] = &["disk-barrier", "disk-flushes", "md-flushes", "al-updates"];
const AL_EXTENTS: &str = "al-extents";
/// By DRBD's manual; a resource may have room for fewer.
const AL_RANGE: std::ops::RangeInclusive<u64> = 7..=65_534;

#[derive(Debug)]
struct Drbd {
    resource: String,
    connected: bool,
    protocol: Option<&'static str>,
    /// By DRBD's names and in its words.
    options: Vec<(&'static str, String)>,
    /// A name in the experiment's hosts.
    secondary: Option<String>,
    /// Found once.
    nodes: OnceCell<Vec<Node>>,
    /// Of the present trial.
    looks: Cell<Looks>,
}

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    let own = ["resource", "connection", "protocol", "secondary", AL_EXTENTS];
    let body = Body::table(spec, &[&own, SWITCHES].concat(), EXAMPLE)?;
    let connection = body.one_of("connection", &[CONNECTED, DISCONNECTED])?;
    let connected = connection != Some(DISCONNECTED);
    let protocol = body.one_of("protocol", &["A", "B", "C"])?;
    if !connected && protocol.is_some() {
        return Err(body.error("protocol", "means nothing while disconnected: leave it out"));
    }
    let secondary = body.text("secondary")?.map(str::to_owned);
    if connected && secondary.is_none() {
        return Err(body.error(
            "secondary",
            "is missing: the name of the peer's host in [hosts], which must be seen to be connected",
        ));
    }
    let mut options = Vec::new();
    if let Some(extents) = body.whole(AL_EXTENTS, AL_RANGE)? {
        options.push((AL_EXTENTS, extents.to_string()));
    }
    for name in SWITCHES {
        if let Some(on) = body.boolean(name)? {
            options.push((name, if on { "yes" } else { "no" }.to_owned()));
        }
    }
    let resource = body.required("resource", "the name of the DRBD resource")?.to_owned();
    // It stands in commands beside options.
    if resource.starts_with('-') || resource == "all" {
        return Err(body.error("resource", format!("`{resource}` is no name of a resource")));
    }
    let (nodes, looks) = (OnceCell::new(), Cell::default());
    Ok(Box::new(Drbd { resource, connected, protocol, options, secondary, nodes, looks }))
}

impl Drbd {
    /// The server's node, then the peer's where it is named.
    fn nodes(&self, world: &World<'_>) -> Result<&[Node], TreatmentError> {
        if let Some(nodes) = self.nodes.get() {
            return Ok(nodes);
        }
        let mut nodes = vec![Node::open(world.host(None)?)?];
        if let Some(name) = &self.secondary {
            nodes.push(Node::open(world.host(Some(name))?)?);
        }
        Ok(self.nodes.get_or_init(|| nodes))
    }

    /// What has to be changed on a node, the server's being the first.
    fn needed(&self, first: bool, seen: &Seen) -> Vec<(Change, String)> {
        let mut changes = Vec::new();
        let asked = if self.connected { CONNECTED } else { DISCONNECTED };
        // The peer of a disconnected node waits by itself; one that is alone would never connect.
        if (first || self.connected) && connection_of(&seen.states) != asked {
            let net = seen.net_options();
            let with_peer = seen.states.iter().all(State::is_connected);
            changes.push((Change::Connection { net, with_peer }, asked.to_owned()));
        }
        if let Some(protocol) = self.protocol.filter(|p| first && seen.config.protocol() != Some(p))
        {
            changes.push((Change::Protocol, protocol.to_owned()));
        }
        for volume in &seen.config.volumes {
            for (name, value) in &self.options {
                if volume.options.get(*name) != Some(value) {
                    let change =
                        Change::DiskOption { minor: volume.minor, name: (*name).to_owned() };
                    changes.push((change, value.clone()));
                }
            }
        }
        changes
    }

    /// Each step that is needed, on its node.
    fn steps(&self, world: &World<'_>) -> Result<Vec<Step>, TreatmentError> {
        let mut steps = Vec::new();
        for (at, node) in self.nodes(world)?.iter().enumerate() {
            let seen = node.see(&self.resource)?;
            for (change, value) in self.needed(at == 0, &seen) {
                let prior = change.present(&seen);
                let ours = Ours {
                    resource: self.resource.clone(),
                    value,
                    boot: seen.boot.clone(),
                    change,
                };
                steps.push(ours.step(node, prior));
            }
        }
        // A protocol can be changed only where both are connected.
        steps.sort_by_key(|step| !matches!(Ours::of(step), Ok(ours) if ours.is_connection()));
        Ok(steps)
    }

    fn refused(&self, why: impl std::fmt::Display) -> TreatmentError {
        TreatmentError::Refused(format!("DRBD resource `{}` {why}", self.resource))
    }

    fn check_roles(&self, nodes: &[Node]) -> Result<(), TreatmentError> {
        for (at, node) in nodes.iter().enumerate() {
            let seen = node.see(&self.resource)?;
            let host = &node.name;
            if seen.config.connections.len() > 1 {
                return Err(self.refused("has more than one peer, and pgio knows two nodes only"));
            }
            let role = seen.states.first().map_or("", |s| s.role.as_str());
            let (expected, whose) =
                if at == 0 { ("Primary", "the server's") } else { ("Secondary", "the peer's") };
            if role != expected {
                return Err(self.refused(format!(
                    "is {role} on host {host}, which should be {whose} and {expected}: correct host in [target] and secondary"
                )));
            }
            if let Some(state) = seen.states.iter().find(|s| s.disk != drbd::UP_TO_DATE)
                && !drbd::is_resync(&state.replication)
            {
                return Err(self.refused(format!(
                    "has a disk that is {} on host {host}, and no resync runs: see to it first",
                    state.disk
                )));
            }
            // Both wait for each other in vain, as after a split brain or without a network.
            if self.connected && seen.states.iter().any(|s| s.connection == "Connecting") {
                let alone = |n: &Node| {
                    Ok::<_, TreatmentError>(
                        connection_of(&n.see(&self.resource)?.states) == DISCONNECTED,
                    )
                };
                let other = nodes.iter().find(|n| n.name != node.name);
                if !other.map(alone).transpose()?.unwrap_or(false) {
                    return Err(self.refused(format!(
                        "waits on host {host} for a peer that does not answer: see to the network and the peer"
                    )));
                }
            }
        }
        Ok(())
    }

    /// For what is done to the peer's disk.
    fn replica(&self, peer: &Node) -> Result<Replica, TreatmentError> {
        let volumes = peer.see(&self.resource)?.config.volumes;
        Ok(Replica {
            host: peer.name.clone(),
            of: format!("DRBD {}", self.resource),
            devices: volumes.into_iter().filter_map(|volume| volume.backing).collect(),
        })
    }

    /// What is measured must lie on what is changed.
    fn check_storage(&self, world: &mut World<'_>, node: &Node) -> Result<(), TreatmentError> {
        let places = directories(world.admin()?).map_err(|source| TreatmentError::Postgres {
            doing: "find out where the server keeps its data".to_owned(),
            source,
        })?;
        if places.is_empty() {
            return Err(self.refused(format!(
                "cannot be held against the server's directories, which the role may not see: GRANT {GRANT} to it"
            )));
        }
        let volumes = node.see(&self.resource)?.config.volumes;
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
        Err(self.refused(format!(
            "({}) carries nothing of this server: {}; write a [targets.NAME] for the server that lies on it, and target = \"NAME\" in the condition",
            ours.join(", "),
            elsewhere.join(", ")
        )))
    }
}

impl Treatment for Drbd {
    fn changes(&self) -> Vec<declared::Change> {
        let connection = match (self.connected, self.protocol) {
            (false, _) => DISCONNECTED.to_owned(),
            (true, None) => CONNECTED.to_owned(),
            // One factor: a protocol means nothing without a connection.
            (true, Some(protocol)) => format!("{CONNECTED} by protocol {protocol}"),
        };
        let change = |setting: &str, value: &str| {
            let subject = declared::Subject::Drbd { resource: self.resource.clone() };
            declared::Change::new(None, subject, setting, value)
        };
        let connection = change(declared::CONNECTION, &connection);
        let options = self.options.iter().map(|(name, value)| change(name, value));
        [connection].into_iter().chain(options).collect()
    }

    fn costs(&self) -> Vec<Cost> {
        vec![Cost::Resync]
    }

    fn intents(&self) -> Vec<String> {
        let peer = self.secondary.as_ref().map_or(String::new(), |peer| format!(" and on {peer}"));
        let change = |line: declared::Change| format!("{line} {HOW}, on the server's host{peer}");
        self.changes().into_iter().map(change).collect()
    }

    fn outlook(&self, world: &mut World<'_>) -> Result<Vec<Outlook>, TreatmentError> {
        let outlook = |step: Step| -> Option<Outlook> {
            Some(Outlook {
                then: Ours::of(&step).ok()?.value,
                now: step.prior.as_str().unwrap_or("not known without a connection").to_owned(),
                what: format!("{} on host {}", step.what, step.host.unwrap_or_default()),
                how: HOW,
            })
        };
        Ok(self.steps(world)?.into_iter().filter_map(outlook).collect())
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        Node::open(machines.host(None)?)?;
        match &self.secondary {
            Some(peer) => Node::open(machines.host(Some(peer))?).map(drop),
            None => Ok(()),
        }
    }

    fn check(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let nodes = self.nodes(world)?;
        if let [ours, peer] = nodes
            && world.host(None)?.is_same_machine(&*world.host(Some(&peer.name))?)
        {
            return Err(self.refused(format!(
                "cannot have its peer on {} and on {}, which are one machine: write [hosts.{}] with ssh = \"user@host\"",
                ours.name, peer.name, peer.name
            )));
        }
        self.check_roles(nodes)?;
        self.check_storage(world, &nodes[0])?;
        if let [_, peer] = nodes {
            world.replicas.push(self.replica(peer)?);
        }
        Ok(())
    }

    fn touches(&self, world: &mut World<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let mut hosts = vec![world.host(None)?];
        if let Some(peer) = &self.secondary {
            hosts.push(world.host(Some(peer))?);
        }
        let of = |host: Arc<crate::host::Host>| {
            Touch::Of(Resource::on(&host, format!("DRBD {}", self.resource)))
        };
        Ok(hosts.into_iter().map(of).collect())
    }

    fn probe(&self, world: &mut World<'_>) -> Result<Vec<Step>, TreatmentError> {
        self.steps(world)
    }

    fn apply(&self, world: &mut World<'_>, step: &Step) -> Result<(), TreatmentError> {
        let there = |node: &&Node| Some(&node.name) == step.host.as_ref();
        let node = self.nodes(world)?.iter().find(there).ok_or_else(|| {
            TreatmentError::Config(format!("no node of DRBD {} for {}", self.resource, step.what))
        })?;
        Ours::of(step)?.apply(node, &world.stop)
    }

    fn settle(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        let nodes = self.nodes(world)?;
        if self.connected {
            wait::until_connected(&nodes[0], &self.resource, &world.stop)?;
        } else {
            wait::until_alone(&nodes[0], &self.resource, &world.stop)?;
        }
        // Disks may still be on their way to being the same: that is for `rest`.
        let wrong = || {
            let evidence = proof::read(self, nodes, When::Before);
            evidence.into_iter().find(|e| !e.holds() && !e.what.contains("disks"))
        };
        wait::until_heard(wrong, &world.stop)
    }

    fn rest(&self, world: &mut World<'_>) -> Result<(), TreatmentError> {
        if self.connected {
            wait::until_in_sync(&self.nodes(world)?[0], &self.resource, &world.stop)?;
        }
        Ok(())
    }

    /// At the window's ends only: each reading is several commands on either host, and between them
    /// the telemetry sees the state. What it cannot see of module 8.4 is one command, counted for
    /// `judge`: evidence is kept once, however often it was found.
    fn verify(&self, world: &mut World<'_>, when: When) -> Vec<Evidence> {
        if when == When::Before {
            self.looks.set(Looks::default());
        }
        match self.nodes(world) {
            Ok(nodes) if when == When::During => {
                if self.connected && nodes[0].generation == Generation::V84 {
                    proof::look(self, &nodes[0]);
                }
                Vec::new()
            }
            Ok(nodes) => proof::read(self, nodes, when),
            Err(error) => vec![proof::unreadable(self, when, &error)],
        }
    }

    fn judge(&self, trial: &Trial) -> Vec<Check> {
        proof::judge(self, trial)
    }
}

fn undo(world: &mut World<'_>, step: &Step, stranger: Stranger) -> Result<Undone, TreatmentError> {
    let node = Node::open(world.host(step.host.as_deref())?)?;
    let ours = Ours::of(step)?;
    let undone = ours.undo(&node, step, stranger, &world.stop)?;
    if undone == Undone::PutBack && world.goes_on() {
        wait::out_resync(&node, &ours.resource, &world.stop)?;
    }
    Ok(undone)
}
