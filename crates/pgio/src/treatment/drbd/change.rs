//! One reversible change of a resource on one node, as the journal keeps it.
//!
//! All of it lives in the running kernel: on a machine that was started again, or where the resource
//! was taken down, nothing of ours is left, and what is there comes from the configuration: it stays
//! as it is. With module 8.4 the options of a connection are gone with it, so they are kept beside it.

use serde::{Deserialize, Serialize};

use super::KIND;
use super::node::{Node, Seen};
use super::wait;
use crate::host::drbd::show::Options;
use crate::host::drbd::{self, State};
use crate::host::stop::Stop;
use crate::treatment::{Step, Stranger, TreatmentError, Undone};

pub(super) const CONNECTED: &str = "connected";
pub(super) const DISCONNECTED: &str = "disconnected";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    Connection {
        /// Those that it had.
        net: Options,
        /// Whether the peer was there.
        with_peer: bool,
    },
    Protocol,
    DiskOption {
        minor: u32,
        name: String,
    },
}

/// The journal's `ours`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ours {
    pub(super) resource: String,
    pub(super) value: String,
    pub(super) boot: String,
    pub(super) change: Change,
}

/// Whether the node is meant to be connected; it may still be waiting for its peer.
pub(super) fn connection_of(states: &[State]) -> &'static str {
    if states.iter().all(State::is_standalone) { DISCONNECTED } else { CONNECTED }
}

impl Change {
    fn what(&self, resource: &str) -> String {
        match self {
            Change::Connection { .. } => format!("connection of DRBD resource {resource}"),
            Change::Protocol => format!("protocol of DRBD resource {resource}"),
            Change::DiskOption { minor, name } => {
                format!("{name} of /dev/{} (DRBD resource {resource})", drbd::device(*minor))
            }
        }
    }

    /// None for a protocol without a connection.
    pub(super) fn present(&self, seen: &Seen) -> Option<String> {
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

impl Ours {
    pub(super) fn of(step: &Step) -> Result<Ours, TreatmentError> {
        serde_json::from_value(step.ours.clone()).map_err(|e| {
            TreatmentError::Config(format!("the journal's step `{}` is not ours: {e}", step.what))
        })
    }

    pub(super) fn is_connection(&self) -> bool {
        matches!(self.change, Change::Connection { .. })
    }

    pub(super) fn step(&self, node: &Node, prior: Option<String>) -> Step {
        Step {
            kind: KIND.name.to_owned(),
            what: self.change.what(&self.resource),
            host: Some(node.name.clone()),
            prior: prior.into(),
            ours: serde_json::to_value(self).expect("plain data always serializes"),
        }
    }

    pub(super) fn apply(&self, node: &Node, stop: &Stop) -> Result<(), TreatmentError> {
        self.set(node, &self.value, stop)
    }

    fn set(&self, node: &Node, value: &str, stop: &Stop) -> Result<(), TreatmentError> {
        match &self.change {
            Change::Connection { net, .. } if value == CONNECTED => {
                node.connect(&self.resource, net)
            }
            Change::Connection { .. } => node.disconnect(&self.resource),
            Change::Protocol => {
                // While they wait for each other a change would reach one side only, and they would
                // refuse each other then.
                wait::until_connected(node, &self.resource, stop)?;
                let only = Options::from([("protocol".to_owned(), value.to_owned())]);
                node.set_net(&self.resource, &only)
            }
            Change::DiskOption { minor, name } => node.set_disk(*minor, name, value),
        }
    }

    pub(super) fn undo(
        &self,
        node: &Node,
        step: &Step,
        stranger: Stranger,
        stop: &Stop,
    ) -> Result<Undone, TreatmentError> {
        let Some(seen) = node.find(&self.resource)? else {
            return Ok(Undone::Kept);
        };
        let prior = step.prior.as_str();
        let net = self.net_set_since(&seen, prior);
        let (prior, found) = match (prior, self.change.present(&seen)) {
            // What is there comes from the files, whether or not it is what was found.
            (prior, found) if seen.boot != self.boot => {
                let same = found.as_deref() == prior && net.is_empty();
                return Ok(if same { Undone::PutBack } else { Undone::Kept });
            }
            (Some(prior), Some(found)) => (prior, found),
            // A protocol that was found without a connection goes with ours.
            (None, _) => return Ok(Undone::PutBack),
            // Someone took down what had the value, and ours went with it.
            (Some(_), None) => return Ok(Undone::Kept),
        };
        if (found != prior && found != self.value) || !net.is_empty() {
            match stranger {
                Stranger::Ask => {
                    return Err(TreatmentError::ChangedSince {
                        what: format!("{} on host {}", step.what, node.name),
                        found: with_options(&found, &net, &seen.net_options()),
                        ours: self.value.clone(),
                        prior: with_options(prior, &net, &net),
                    });
                }
                // Where only the options are someone's, the end of the connection is still ours.
                Stranger::Keep if found != self.value => return Ok(Undone::Kept),
                Stranger::Keep | Stranger::Restore => {}
            }
        }
        if found != prior {
            // Whoever wants to stop wants it undone: the protocol waits for its connection all the same.
            self.set(node, prior, &Stop::new())?;
        }
        let mut undone = Undone::PutBack;
        if let Change::Connection { with_peer, .. } = &self.change
            && prior == CONNECTED
        {
            if stranger == Stranger::Keep && !net.is_empty() {
                return Ok(Undone::Kept);
            }
            // A replica that was there and stays away is no state to leave without a word.
            if *with_peer && stranger != Stranger::Keep {
                undone = wait::until_returned(node, &self.resource, stop)?;
            }
            self.restore_net(node, prior)?;
        }
        Ok(undone)
    }

    /// What a connection could not be made with, and what someone set since and does not want kept.
    fn restore_net(&self, node: &Node, prior: &str) -> Result<(), TreatmentError> {
        let net = self.net_set_since(&node.see(&self.resource)?, Some(prior));
        if net.is_empty() {
            return Ok(());
        }
        node.set_net(&self.resource, &net)
    }

    /// The options of a connection that are not what they were, with the values that they had. Empty
    /// where there is none now, as with module 8.4 while disconnected.
    fn net_set_since(&self, seen: &Seen, prior: Option<&str>) -> Options {
        let Change::Connection { net, .. } = &self.change else { return Options::new() };
        if prior != Some(CONNECTED) {
            return Options::new();
        }
        let now = seen.net_options();
        net.iter()
            .filter(|(name, value)| now.get(*name).is_some_and(|found| found != *value))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// `connected with protocol C`: the value alone where none is named.
fn with_options(value: &str, named: &Options, of: &Options) -> String {
    let option = |name: &String| Some(format!("{name} {}", of.get(name)?));
    let all: Vec<String> = named.keys().filter_map(option).collect();
    if all.is_empty() { value.to_owned() } else { format!("{value} with {}", all.join(", ")) }
}
