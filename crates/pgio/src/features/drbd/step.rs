//! One reversible change of a resource on one node.
//!
//! The change is in the running kernel: after a reboot, or after the resource was taken down,
//! it no longer exists, and the current values come from the configuration: they
//! stay. With module 8.4 the options of a connection are lost with it, so the step keeps them.

use serde::{Deserialize, Serialize};

use super::node::{self, Node, Snapshot};
use super::show::Options;
use super::state::{self, State};
use crate::host::stop::Stop;
use crate::treatment::context::Context;
use crate::treatment::contract::Preview;
use crate::treatment::error::TreatmentError;
use crate::treatment::step::{Label, OnConflict, StepOf, Undo, Undone};
use pgio_results::change::{self, Subject};

pub(super) const KIND: &str = "drbd";

pub(super) const CONNECTED: &str = "connected";
pub(super) const DISCONNECTED: &str = "disconnected";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    Connection {
        /// The options that the connection had.
        net: Options,
        /// Whether the peer was connected.
        with_peer: bool,
    },
    Protocol,
    DiskOption {
        minor: u32,
        name: String,
    },
}

/// The prior value is none for a protocol without a connection.
pub(super) type DrbdStep = StepOf<Option<String>, AppliedDrbdChange>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct AppliedDrbdChange {
    pub(super) resource: String,
    pub(super) value: String,
    pub(super) boot: String,
    /// The node's role; unknown in journals of early versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<String>,
    pub(super) change: Change,
}

/// Whether the node is configured to be connected; it may still wait for its peer.
pub(super) fn connection_of(states: &[State]) -> &'static str {
    if states.iter().all(State::is_standalone) { DISCONNECTED } else { CONNECTED }
}

impl Change {
    fn what(&self, resource: &str) -> String {
        match self {
            Change::Connection { .. } => format!("connection of DRBD resource {resource}"),
            Change::Protocol => format!("protocol of DRBD resource {resource}"),
            Change::DiskOption { minor, name } => {
                format!("{name} of /dev/{} (DRBD resource {resource})", state::device(*minor))
            }
        }
    }

    /// The present value; none for a protocol without a connection.
    pub(super) fn current_value(&self, seen: &Snapshot) -> Option<String> {
        match self {
            Change::Connection { .. } => Some(connection_of(&seen.states).to_owned()),
            Change::Protocol => seen.config.protocol().map(str::to_owned),
            Change::DiskOption { minor, name } => {
                let volume = seen.config.volumes.iter().find(|v| v.minor == *minor)?;
                volume.options.get(name).cloned()
            }
        }
    }
}

impl Undo for DrbdStep {
    const KIND: &'static str = KIND;

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let node = Node::open(context.host(self.label.host())?)?;
        let undone = self.undo_on(&node, on_conflict, &context.stop)?;
        if undone == Undone::Restored && context.precedes_trial() {
            node::until_resync_ends(&node, &self.ours.resource, &context.stop)?;
        }
        Ok(undone)
    }
}

impl DrbdStep {
    pub(super) fn new(host: &str, prior: Option<String>, ours: AppliedDrbdChange) -> DrbdStep {
        let label = Label::on_host(ours.change.what(&ours.resource), host);
        DrbdStep { label, prior, ours }
    }

    pub(super) fn is_connection(&self) -> bool {
        matches!(self.ours.change, Change::Connection { .. })
    }

    pub(super) fn preview(self, how: &'static str) -> Preview {
        let unknown = || "unknown without a connection".to_owned();
        Preview {
            what: self.label.to_string(),
            now: self.prior.unwrap_or_else(unknown),
            then: self.ours.value,
            how,
        }
    }

    pub(super) fn apply(&self, node: &Node, stop: &Stop) -> Result<(), TreatmentError> {
        self.set(node, &self.ours.value, stop)
    }

    fn set(&self, node: &Node, value: &str, stop: &Stop) -> Result<(), TreatmentError> {
        let resource = self.ours.resource.as_str();
        match &self.ours.change {
            Change::Connection { net, .. } if value == CONNECTED => node.connect(resource, net),
            Change::Connection { .. } => node.disconnect(resource),
            Change::Protocol => {
                // Before they are connected, a change would reach one side only, and the peers would
                // refuse each other.
                node::until_connected(node, resource, stop)?;
                let only = Options::from([("protocol".to_owned(), value.to_owned())]);
                node.set_net(resource, &only)
            }
            Change::DiskOption { minor, name } => node.set_disk(*minor, name, value),
        }
    }

    pub(super) fn undo_on(
        &self,
        node: &Node,
        on_conflict: OnConflict,
        stop: &Stop,
    ) -> Result<Undone, TreatmentError> {
        let AppliedDrbdChange { resource, value: ours, boot, role, change } = &self.ours;
        let Some(seen) = node.find(resource)? else {
            return Ok(Undone::Kept);
        };
        let net = self.changed_net_options(&seen);
        let (prior, found) = match (self.prior.as_deref(), change.current_value(&seen)) {
            // The present value comes from the configuration, be it the prior value or not.
            (prior, found) if seen.boot != *boot => {
                let same = found.as_deref() == prior && net.is_empty();
                return Ok(if same { Undone::Restored } else { Undone::Kept });
            }
            (Some(prior), Some(found)) => (prior, found),
            // A protocol without a connection at first ends with our connection.
            (None, _) => return Ok(Undone::Restored),
            // Someone took down the connection or the volume, and our change with it.
            (Some(_), None) => return Ok(Undone::Kept),
        };
        if (found != prior && found != *ours) || !net.is_empty() {
            match on_conflict {
                OnConflict::Ask => {
                    return Err(TreatmentError::changed_since(
                        &self.label,
                        with_options(&found, &net, &seen.net_options()),
                        ours,
                        with_options(prior, &net, &net),
                    ));
                }
                // If someone changed the options alone, the connection is still ours to end.
                OnConflict::Keep if found != *ours => return Ok(Undone::Kept),
                OnConflict::Keep | OnConflict::Restore => {}
            }
        }
        if found != prior && self.is_connection() && prior == CONNECTED {
            match role.as_ref().zip(seen.role()).filter(|(was, is)| was != is) {
                None => {}
                Some(_) if on_conflict == OnConflict::Keep => return Ok(Undone::Kept),
                Some((was, is)) => return Err(role_changed_error(node, resource, was, is)),
            }
        }
        if found != prior {
            // A stop request does not end this wait: the protocol needs its connection to be undone.
            self.set(node, prior, &Stop::new())?;
        }
        let mut undone = Undone::Restored;
        if let Change::Connection { with_peer, .. } = change
            && prior == CONNECTED
        {
            if on_conflict == OnConflict::Keep && !net.is_empty() {
                return Ok(Undone::Kept);
            }
            // A replica that was connected must come back, or the user must know.
            if *with_peer && on_conflict != OnConflict::Keep {
                undone = node::until_returned(node, resource, stop)?;
            }
            self.restore_net(node)?;
        }
        Ok(undone)
    }

    /// Restores options that the new connection lacks, and options that someone set since.
    fn restore_net(&self, node: &Node) -> Result<(), TreatmentError> {
        let resource = &self.ours.resource;
        let net = self.changed_net_options(&node.snapshot(resource)?);
        if net.is_empty() { Ok(()) } else { node.set_net(resource, &net) }
    }

    /// The options of a connection that changed since, with their prior values. Empty
    /// without a connection, as with module 8.4 while disconnected.
    fn changed_net_options(&self, seen: &Snapshot) -> Options {
        let Change::Connection { net, .. } = &self.ours.change else { return Options::new() };
        if self.prior.as_deref() != Some(CONNECTED) {
            return Options::new();
        }
        let now = seen.net_options();
        net.iter()
            .filter(|(name, value)| now.get(*name).is_some_and(|found| found != *value))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// Somebody failed over while the node was alone: a connection might overwrite what one of the two wrote since.
fn role_changed_error(node: &Node, resource: &str, was: &str, is: &str) -> TreatmentError {
    TreatmentError::Refused(format!(
        "DRBD resource {resource} on host {} was {was} when pgio disconnected it and is {is} now: pgio does not connect nodes that may both have been written to; decide which node's data are to be kept, run `drbdadm connect {resource}` (with --discard-my-data on the other node) by hand, then rerun `pgio undo`; `pgio undo --keep` leaves it disconnected",
        node.name
    ))
}

/// `connected with protocol C`; the value alone where `named` is empty.
fn with_options(value: &str, named: &Options, of: &Options) -> String {
    let option = |name: &String| Some(format!("{name} {}", of.get(name)?));
    let all: Vec<String> = named.keys().filter_map(option).collect();
    if all.is_empty() { value.to_owned() } else { format!("{value} with {}", all.join(", ")) }
}

#[derive(Debug, Clone)]
pub(super) struct RequestedState {
    pub(super) resource: String,
    pub(super) connected: bool,
    pub(super) protocol: Option<&'static str>,
    /// Disk options by DRBD's names, with values in DRBD's spelling.
    pub(super) options: Vec<(&'static str, String)>,
}

impl RequestedState {
    /// The changes that a node needs; `first` is the server's.
    pub(super) fn needed_changes(&self, first: bool, seen: &Snapshot) -> Vec<(Change, String)> {
        let mut changes = Vec::new();
        let requested = if self.connected { CONNECTED } else { DISCONNECTED };
        // The peer of a disconnected node waits by itself; a StandAlone peer would never connect.
        if (first || self.connected) && connection_of(&seen.states) != requested {
            let net = seen.net_options();
            let with_peer = seen.states.iter().all(State::is_connected);
            changes.push((Change::Connection { net, with_peer }, requested.to_owned()));
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

    /// The steps of all nodes, the server's being the first.
    pub(super) fn steps(&self, nodes: &[Node]) -> Result<Vec<DrbdStep>, TreatmentError> {
        let mut steps = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let seen = node.snapshot(&self.resource)?;
            for (change, value) in self.needed_changes(at == 0, &seen) {
                let prior = change.current_value(&seen);
                let (resource, boot) = (self.resource.clone(), seen.boot.clone());
                let role = seen.role().cloned();
                let ours = AppliedDrbdChange { resource, value, boot, role, change };
                steps.push(DrbdStep::new(&node.name, prior, ours));
            }
        }
        // Changing a protocol needs a connection.
        steps.sort_by_key(|step| !step.is_connection());
        Ok(steps)
    }

    pub(super) fn changes(&self) -> Vec<change::Change> {
        let connection = match (self.connected, self.protocol) {
            (false, _) => DISCONNECTED.to_owned(),
            (true, None) => CONNECTED.to_owned(),
            // One setting: a protocol has no effect without a connection.
            (true, Some(protocol)) => format!("{CONNECTED} by protocol {protocol}"),
        };
        let new = |setting: &str, value: &str| {
            let subject = Subject::Drbd { resource: self.resource.clone() };
            change::Change::new(None, subject, setting, value)
        };
        let connection = new(change::CONNECTION, &connection);
        let options = self.options.iter().map(|(name, value)| new(name, value));
        [connection].into_iter().chain(options).collect()
    }

    pub(super) fn refused(&self, why: impl std::fmt::Display) -> TreatmentError {
        TreatmentError::Refused(format!("DRBD resource `{}` {why}", self.resource))
    }
}
