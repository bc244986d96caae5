//! `drbd = { resource = "pgio", connection = …, protocol = …, … }`: DRBD replication under the database.
//!
//! Everything is changed in the running kernel only, so a reboot undoes it, and
//! configuration files stay as they are. The connection and its protocol are changed on the
//! server's host, and the peer follows; disk options on both hosts, since each has a disk. A trial begins
//! only when both disks are in sync and no resync runs.
//!
//! Next: [`node`] for DRBD on one host, [`step`] for one reversible change, [`proof`]; [`observer`] for what any trial
//! shows of DRBD, and [`judge`].

mod cold_log;
mod disks;
mod facts;
mod judge;
mod node;
mod observer;
mod proof;
mod show;
mod state;
mod status;
mod step;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::node::{Node, Snapshot};
use self::proof::{BufferReadings, Disks};
use self::state::Generation;
use self::step::{CONNECTED, Change, DISCONNECTED, DrbdStep, RequestedState, connection_of};
use crate::config::experiment::TreatmentSpec;
use crate::feature::Feature;
use crate::host::stop::Stop;
use crate::host::{Host, storage};
use crate::pg::server::{DIRECTORIES_GRANT, directories};
use crate::treatment::body::Body;
use crate::treatment::context::{Context, Machines, Replica};
use crate::treatment::contract::{Cost, Declared, InForce, Kind, Prepared, Preview, Treatment};
use crate::treatment::error::TreatmentError;
use crate::treatment::journal::Journal;
use crate::treatment::resource::{Resource, Touch};
use crate::treatment::step::carry_out;
use pgio_results::checks::{CheckDef, behavior, def};
use pgio_results::model::{Check, Evidence, Trial, When};

pub(super) static FEATURE: Feature = Feature {
    name: "drbd",
    treatments: &[KIND],
    checks,
    judge: judge::judge,
    judge_all: cold_log::checks,
    observers: &[observer::OBSERVER],
    claims: &[disks::CLAIM],
    examples: &[
        example!("drbd-arms"),
        example!("drbd-impact"),
        example!("drbd-protocols"),
        example!("drbd-protocols-full"),
    ],
    ..Feature::NONE
};

fn checks() -> Vec<CheckDef> {
    vec![
        def(
            proof::CONNECTION_ID,
            "DRBD's configuration differs from the condition (another protocol, StandAlone, connected although it should be disconnected), or DRBD was not observed inside the window",
            "",
            "find out what changes it; keep telemetry on",
        ),
        behavior(
            state::LOST_ID,
            "DRBD lost its peer inside the window without a command: not connected, not up to date, suspended, reconnected, or blocks out of sync",
            "check the kernel log on both hosts and the network between them",
        ),
        behavior(
            state::CONGESTED_ID,
            "DRBD was ahead of its peer (Ahead, Behind), or its send buffer was full in one of the samples (module 8.4: readings), or with protocol A it is unknown whether it was full",
            "reduce the load below the capacity of the link, or use a larger sndbuf-size",
        ),
        def(
            judge::RESYNC_ID,
            "a resync or an online verification ran on an observed host",
            "it follows from a connection that was lost inside the window without a command, or from congestion (Ahead, Behind) inside the window",
            "wait until it ends, or pause it",
        ),
        cold_log::definition(),
    ]
}

const KIND: Kind = Kind {
    name: step::KIND,
    help: "DRBD under the data: { resource = \"r0\", connection = \"connected\" or \"disconnected\", protocol = \"A\", \"B\" or \"C\", secondary = the peer's name in [hosts] }; on both hosts also al-extents, disk-barrier, disk-flushes, md-flushes, al-updates",
    parse,
    read: DrbdStep::read,
};

const HOW: &str = "by drbdadm and drbdsetup, in the running kernel";
const EXAMPLE: &str = "{ resource = \"r0\", protocol = \"A\", secondary = \"db2\" }";
const SWITCHES: &[&str] = &["disk-barrier", "disk-flushes", "md-flushes", "al-updates"];
const AL_EXTENTS: &str = "al-extents";
/// From DRBD's manual; a resource may have room for fewer.
const AL_RANGE: std::ops::RangeInclusive<u64> = 7..=65_534;

#[derive(Debug)]
struct Drbd {
    requested: RequestedState,
    /// The peer's name in the experiment's hosts.
    secondary: Option<String>,
}

/// The resource on its nodes, the server's being the first.
#[derive(Debug)]
struct PreparedDrbd {
    requested: RequestedState,
    nodes: Arc<[Node]>,
}

/// The replication of a trial.
#[derive(Debug)]
struct DrbdInForce {
    requested: RequestedState,
    nodes: Arc<[Node]>,
    buffer: BufferReadings,
}

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    let own = ["resource", "connection", "protocol", "secondary", AL_EXTENTS];
    let body = Body::table(spec, &[&own, SWITCHES].concat(), EXAMPLE)?;
    let connection = body.one_of("connection", &[CONNECTED, DISCONNECTED])?;
    let connected = connection != Some(DISCONNECTED);
    let protocol = body.one_of("protocol", &["A", "B", "C"])?;
    if !connected && protocol.is_some() {
        return Err(body.error("protocol", "has no effect while disconnected: remove it"));
    }
    let secondary = body.text("secondary")?.map(str::to_owned);
    if connected && secondary.is_none() {
        return Err(body.error(
            "secondary",
            "is missing: the name of the peer's host in [hosts], where pgio verifies the connection",
        ));
    }
    let mut options = Vec::new();
    if let Some(extents) = body.integer(AL_EXTENTS, AL_RANGE)? {
        options.push((AL_EXTENTS, extents.to_string()));
    }
    for name in SWITCHES {
        if let Some(on) = body.boolean(name)? {
            options.push((name, if on { "yes" } else { "no" }.to_owned()));
        }
    }
    let resource = body.required("resource", "the name of the DRBD resource")?.to_owned();
    // The name is an argument of commands and must not look like an option.
    if resource.starts_with('-') || resource == "all" {
        return Err(body.error("resource", format!("`{resource}` is not a resource name")));
    }
    Ok(Box::new(Drbd {
        requested: RequestedState { resource, connected, protocol, options },
        secondary,
    }))
}

impl Drbd {
    /// The server's node, then the peer's if the file names it.
    fn nodes(&self, machines: &Machines<'_>) -> Result<Vec<Node>, TreatmentError> {
        self.hosts(machines)?.into_iter().map(Node::open).collect()
    }

    fn hosts(&self, machines: &Machines<'_>) -> Result<Vec<Arc<Host>>, TreatmentError> {
        let mut hosts = vec![machines.host(None)?];
        if let Some(peer) = &self.secondary {
            hosts.push(machines.host(Some(peer))?);
        }
        Ok(hosts)
    }
}

impl Treatment for Drbd {
    fn declared(&self) -> Declared {
        let peer = self.secondary.as_ref().map_or(String::new(), |peer| format!(" and on {peer}"));
        let changes = self.requested.changes();
        let intent = |change: &_| format!("{change} {HOW}, on the server's host{peer}");
        Declared {
            intents: changes.iter().map(intent).collect(),
            changes,
            costs: vec![Cost::Resync],
            round_trip: None,
        }
    }

    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        let steps = self.requested.steps(&self.nodes(&context.machines())?)?;
        Ok(steps.into_iter().map(|step| step.preview(HOW)).collect())
    }

    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        let hosts = self.hosts(&context.machines())?;
        let touch = |host: Arc<Host>| {
            Touch::Resource(Resource::on(&host, format!("DRBD {}", self.requested.resource)))
        };
        Ok(hosts.into_iter().map(touch).collect())
    }

    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        self.nodes(machines).map(drop)
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        let nodes = self.nodes(&context.machines())?;
        let requested = self.requested.clone();
        if let [ours, peer] = &nodes[..]
            && context.host(None)?.is_same_machine(&*context.host(Some(&peer.name))?)
        {
            return Err(requested.refused(format!(
                "cannot have its nodes on {} and {}, which are the same machine: write [hosts.{}] with ssh = \"user@host\"",
                ours.name, peer.name, peer.name
            )));
        }
        roles(&requested, &nodes)?;
        storage_of_server(&requested, context, &nodes[0])?;
        if let [_, peer] = &nodes[..] {
            context.layout.replicas.push(replica(&requested, peer)?);
        }
        Ok(Box::new(PreparedDrbd { requested, nodes: nodes.into() }))
    }
}

impl Prepared for PreparedDrbd {
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        let PreparedDrbd { requested, nodes } = self;
        let steps = requested.steps(nodes)?;
        for step in &steps {
            let there = |node: &&Node| Some(node.name.as_str()) == step.label.host();
            let node = nodes.iter().find(there).ok_or_else(|| {
                let what = &step.label.what;
                TreatmentError::Config(format!("no node of DRBD {} for {what}", requested.resource))
            })?;
            carry_out(journal, step, || step.apply(node, &context.stop))?;
        }
        if !steps.is_empty() {
            self.wait_until_effective(&context.stop)?;
        }
        if requested.connected {
            node::until_in_sync(&nodes[0], &requested.resource, &context.stop)?;
        }
        let (requested, nodes) = (requested.clone(), Arc::clone(nodes));
        Ok(Box::new(DrbdInForce { requested, nodes, buffer: BufferReadings::default() }))
    }
}

impl PreparedDrbd {
    fn wait_until_effective(&self, stop: &Stop) -> Result<(), TreatmentError> {
        let PreparedDrbd { requested, nodes } = self;
        if requested.connected {
            node::until_connected(&nodes[0], &requested.resource, stop)?;
        } else {
            node::until_alone(&nodes[0], &requested.resource, stop)?;
        }
        // Disks may not be in sync yet; a later step waits for that.
        let wrong = || {
            let evidence = proof::read(requested, nodes, When::Before, Disks::Any);
            evidence.into_iter().find(|e| !e.holds())
        };
        node::until_noticed(wrong, stop)
    }
}

impl InForce for DrbdInForce {
    /// Reads evidence at the window's ends only: each reading takes several commands on either host, and in between
    /// telemetry observes the state. With module 8.4 it cannot see the buffer to the peer: one command
    /// inside the window counts that for `judge`.
    fn verify(&mut self, _context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        let DrbdInForce { requested, nodes, buffer } = self;
        match when {
            When::Before => *buffer = BufferReadings::default(),
            When::During => {
                if requested.connected && nodes[0].generation == Generation::V84 {
                    buffer.add(requested, &nodes[0]);
                }
                return Vec::new();
            }
            When::After => {}
        }
        proof::read(requested, nodes, when, Disks::InSync)
    }

    fn judge(&self, trial: &Trial) -> Vec<Check> {
        proof::judge(&self.requested, self.buffer, trial)
    }
}

/// The server's node is the first.
fn roles(requested: &RequestedState, nodes: &[Node]) -> Result<(), TreatmentError> {
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
        if let Some(state) = seen.states.iter().find(|s| s.disk != state::UP_TO_DATE)
            && !state::is_resync(&state.replication)
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
fn replica(requested: &RequestedState, peer: &Node) -> Result<Replica, TreatmentError> {
    let volumes = peer.snapshot(&requested.resource)?.config.volumes;
    Ok(Replica {
        host: peer.name.clone(),
        description: format!("DRBD {}", requested.resource),
        devices: volumes.into_iter().filter_map(|volume| volume.backing).collect(),
    })
}

/// Refuses a resource that holds none of the server's directories.
fn storage_of_server(
    requested: &RequestedState,
    context: &mut Context<'_>,
    node: &Node,
) -> Result<(), TreatmentError> {
    let places = directories(context.admin()?)
        .map_err(TreatmentError::postgres("find out where the server keeps its data"))?;
    if places.is_empty() {
        return Err(requested.refused(format!(
            "cannot be compared with the server's directories, which the role may not see: GRANT {DIRECTORIES_GRANT} TO ROLE"
        )));
    }
    let volumes = node.snapshot(&requested.resource)?.config.volumes;
    let ours: Vec<String> = volumes.iter().map(|v| state::device(v.minor)).collect();
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
