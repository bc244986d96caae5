//! The state of a DRBD resource that a condition requests, and the steps from the current state to it.

use super::node::{Node, Snapshot};
use super::step::{AppliedDrbdChange, CONNECTED, Change, DISCONNECTED, DrbdStep, connection_of};
use crate::host::drbd::State;
use crate::treatment::error::TreatmentError;
use pgio_results::change::{self, Subject};

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
