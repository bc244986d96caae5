//! Proves that the condition held: evidence read at the window's ends, and in between telemetry's
//! samples; with module 8.4 also readings of the buffer to the peer.

use super::node::{Node, Snapshot};
use super::state::{
    self, CONGESTED_ID, CONGESTED_REMEDY, CONNECTED, LOST_ID, LOST_REMEDY, STANDALONE, State,
    connection_loss, counted, samples,
};
use super::step::{DISCONNECTED, RequestedState};
use crate::host::called;
use crate::treatment::error::TreatmentError;
use pgio_results::model::{Check, Evidence, Trial, When};
use pgio_results::telemetry::{DrbdState, DrbdUse, Telemetry};
use pgio_results::units::human;

const IN_SYNC: &str = "UpToDate/UpToDate";

pub(super) const CONNECTION_ID: &str = "drbd-connection";

/// Whether disks must be in sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disks {
    InSync,
    /// A resync may still run.
    Any,
}

/// Reads the evidence of all nodes, of which the server's is the first.
pub(super) fn read(
    requested: &RequestedState,
    nodes: &[Node],
    when: When,
    disks: Disks,
) -> Vec<Evidence> {
    let mut all = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        match node.snapshot(&requested.resource) {
            Ok(seen) => all.extend(node_evidence(requested, at == 0, node, &seen, when, disks)),
            Err(error) => all.push(unreadable(requested, when, &error)),
        }
    }
    all
}

fn unreadable(requested: &RequestedState, when: When, error: &TreatmentError) -> Evidence {
    Evidence {
        when,
        what: format!("DRBD {}", requested.resource),
        found: format!("unreadable: {error}"),
        expected: Some("readable".to_owned()),
    }
}

fn node_evidence(
    requested: &RequestedState,
    first: bool,
    node: &Node,
    seen: &Snapshot,
    when: When,
    wanted: Disks,
) -> Vec<Evidence> {
    let evidence = |what: &str, found: String, expected: &str| Evidence {
        when,
        what: format!("{what} of DRBD {} on host {}", requested.resource, node.name),
        found,
        expected: Some(expected.to_owned()),
    };
    let mut all = Vec::new();
    if requested.connected {
        // A connection holds during a resync, too, so disks are separate evidence.
        let connection = join_values(&seen.states, |s| s.connection.clone());
        let disks = join_values(&seen.states, State::disks);
        // A lost peer does not mean that someone changed the condition: `judge` reports it.
        let lost = when != When::Before
            && connection != STANDALONE
            && (connection != CONNECTED || disks != IN_SYNC);
        if lost {
            let found = format!("{connection}, {disks}");
            let what = format!("state of DRBD {} on host {}", requested.resource, node.name);
            all.push(Evidence { when, what, found, expected: None });
        } else {
            all.push(evidence("connection", connection, CONNECTED));
            if wanted == Disks::InSync {
                all.push(evidence("disks", disks, IN_SYNC));
            }
        }
        if seen.states.iter().any(|s| s.congested.is_some()) {
            let full = seen.states.iter().any(|s| s.congested == Some(true));
            let found = if full { "full" } else { "not full" }.to_owned();
            let what = format!("{} on host {}", buffer(requested), node.name);
            all.push(Evidence { when, what, found, expected: None });
        }
    } else if first {
        all.push(evidence("connection", join_values(&seen.states, State::link), STANDALONE));
    }
    if let Some(protocol) = requested.protocol {
        let found = seen.config.protocol().unwrap_or("none").to_owned();
        all.push(evidence("protocol", found, protocol));
    }
    for volume in &seen.config.volumes {
        for (name, value) in &requested.options {
            let found = volume.options.get(*name).cloned().unwrap_or("none".to_owned());
            let what = format!("{name} of /dev/{}", state::device(volume.minor));
            all.push(evidence(&what, found, value));
        }
    }
    all
}

/// Readings of the buffer to the peer inside the window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BufferReadings {
    full: u64,
    all: u64,
}

impl BufferReadings {
    /// Reads the buffer on the server's host, which sends. A failed reading does not count: telemetry shows
    /// the state of the connection.
    pub(super) fn add(&mut self, requested: &RequestedState, node: &Node) {
        let Ok(states) = node.states(&requested.resource) else { return };
        if states.iter().all(|s| s.congested.is_none()) {
            return;
        }
        self.full += u64::from(states.iter().any(|s| s.congested == Some(true)));
        self.all += 1;
    }
}

fn buffer(requested: &RequestedState) -> String {
    format!("buffer to the peer of DRBD {}", requested.resource)
}

/// The common value of all volumes, or each value.
fn join_values(states: &[State], of: impl Fn(&State) -> String) -> String {
    let mut all: Vec<String> = states.iter().map(of).collect();
    all.dedup();
    all.join(", ")
}

/// The resource on each host where it was seen.
fn observed_uses<'a>(
    requested: &RequestedState,
    telemetry: &'a Telemetry,
) -> Vec<(&'a str, &'a DrbdUse)> {
    // If only root may read names, the device under the server identifies the resource.
    let server = |host: &str, device: &str| {
        let on_host = telemetry.storage.iter().filter(|s| s.host == host);
        on_host.flat_map(|s| &s.devices).any(|d| d.name == device)
    };
    let mut found = Vec::new();
    for (host, usage) in &telemetry.hosts {
        for (device, drbd) in &usage.drbd {
            let ours = match &drbd.resource {
                Some(name) => *name == requested.resource,
                None => server(host, device),
            };
            if ours && !drbd.states.is_empty() {
                found.push((host.as_str(), drbd));
            }
        }
    }
    found
}

pub(super) fn judge(
    requested: &RequestedState,
    buffer: BufferReadings,
    trial: &Trial,
) -> Vec<Check> {
    let found = trial.telemetry.as_ref().map(|t| observed_uses(requested, t)).unwrap_or_default();
    if found.is_empty() {
        return vec![Check::invalid(
            CONNECTION_ID,
            format!(
                "DRBD {} was not observed inside the window, so its state is unproven",
                requested.resource
            ),
            "turn telemetry on, let pgio read DRBD on the hosts, and see its warnings",
        )];
    }
    if requested.connected {
        let (configured, lost) = check_connected(requested, &found);
        vec![configured, lost, check_congestion(requested, buffer, &found)]
    } else {
        vec![check_disconnected(requested, &found)]
    }
}

fn states<'a>(found: &[(&'a str, &'a DrbdUse)]) -> impl Iterator<Item = (&'a str, &'a DrbdState)> {
    found.iter().flat_map(|(host, usage)| usage.states.iter().map(move |state| (*host, state)))
}

/// Checks that it was configured as requested, and that it did not lose its peer by itself. StandAlone is
/// requested by an operator; in every other state but Connected the kernel tries to connect.
fn check_connected(requested: &RequestedState, found: &[(&str, &DrbdUse)]) -> (Check, Check) {
    let (mut other, mut lost): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for (host, state) in states(found) {
        let protocol = requested.protocol.zip(state.protocol.as_deref()).filter(|(a, b)| a != b);
        let (list, what) = if state.connection == STANDALONE {
            (&mut other, state.connection.clone())
        } else if let Some((_, protocol)) = protocol.filter(|_| state.connection == CONNECTED) {
            (&mut other, format!("protocol {protocol}"))
        } else if let Some(what) = connection_loss(state) {
            (&mut lost, what)
        } else {
            continue;
        };
        list.push(format!("it was {what} on {} in {}", called(host), samples(state.samples)));
    }
    for (host, usage) in found {
        // Samples before and after a short loss show only this.
        if usage.connected_anew > 0 {
            lost.push(format!(
                "the connection was re-established inside the window, as seen on {}",
                called(host)
            ));
        }
        if usage.out_of_sync_bytes_after > usage.out_of_sync_bytes_before {
            let grown = usage.out_of_sync_bytes_after - usage.out_of_sync_bytes_before;
            lost.push(format!("{} went out of sync on {}", human::bytes(grown), called(host)));
        }
    }
    let resource = &requested.resource;
    let configured = if other.is_empty() {
        let seen: u64 = states(found).map(|(_, s)| s.samples).sum();
        let message = format!("DRBD {resource} was configured as requested in {}", samples(seen));
        Check::ok(CONNECTION_ID, message)
    } else {
        Check::invalid(
            CONNECTION_ID,
            format!("DRBD {resource}: {}", other.join("; ")),
            "find out what changes it, then run again",
        )
    };
    let kept = if lost.is_empty() {
        Check::ok(LOST_ID, format!("DRBD {resource} lost no peer by itself"))
    } else {
        Check::warning(LOST_ID, format!("DRBD {resource}: {}", lost.join("; ")), LOST_REMEDY)
    };
    (configured, kept)
}

fn check_disconnected(requested: &RequestedState, found: &[(&str, &DrbdUse)]) -> Check {
    const ID: &str = CONNECTION_ID;
    // The peer waits to be connected; only the server's side counts.
    let ours: Vec<_> = states(found).filter(|(_, s)| s.role == "Primary").collect();
    if ours.iter().all(|(_, s)| s.samples == 0) {
        return Check::invalid(
            ID,
            format!("DRBD {} was not observed on the server's side", requested.resource),
            "make its host reachable throughout the window, then run again",
        );
    }
    let wrong: Vec<String> = ours
        .iter()
        .filter(|(_, s)| s.connection != STANDALONE)
        .map(|(host, s)| format!("{} on {} in {}", s.connection, called(host), samples(s.samples)))
        .collect();
    if wrong.is_empty() {
        Check::ok(ID, format!("DRBD {} stayed {DISCONNECTED}", requested.resource))
    } else {
        Check::invalid(
            ID,
            format!("DRBD {} was {}", requested.resource, wrong.join("; ")),
            "find out what connects it, then run again",
        )
    }
}

fn check_congestion(
    requested: &RequestedState,
    readings: BufferReadings,
    found: &[(&str, &DrbdUse)],
) -> Check {
    let behind: u64 = states(found)
        .filter(|(_, s)| state::is_behind(&s.replication))
        .map(|(_, s)| s.samples)
        .sum();
    if behind > 0 {
        let message = format!(
            "DRBD {} was ahead of its peer (Ahead/Behind) in {}",
            requested.resource,
            samples(behind)
        );
        return Check::warning(CONGESTED_ID, message, CONGESTED_REMEDY);
    }
    let sampled = |full: Option<bool>| -> u64 {
        states(found).filter(|(_, s)| s.congested == full).map(|(_, s)| s.samples).sum()
    };
    let (full, not_full) = (sampled(Some(true)), sampled(Some(false)));
    let (full, all, of_all) = match full + not_full {
        // With module 8.4 the telemetry samples /proc/drbd, which does not show it.
        0 => {
            let BufferReadings { full, all } = readings;
            (full, all, counted(all, "reading"))
        }
        all => (full, all, samples(all)),
    };
    if all == 0 {
        return unknown_congestion(requested, found);
    }
    let message = format!("the {} was full in {full} of {of_all}", buffer(requested));
    match full {
        0 => Check::ok(CONGESTED_ID, message),
        _ => Check::warning(CONGESTED_ID, message, CONGESTED_REMEDY),
    }
}

/// With protocol A a commit waits only for the buffer to the peer: a full one makes it another protocol.
fn unknown_congestion(requested: &RequestedState, found: &[(&str, &DrbdUse)]) -> Check {
    let message = format!(
        "DRBD {} was never ahead of its peer; whether the buffer to it was full is unknown",
        requested.resource
    );
    let by_a = requested.protocol == Some("A")
        || states(found).any(|(_, s)| s.protocol.as_deref() == Some("A"));
    if by_a {
        Check::warning(
            CONGESTED_ID,
            message,
            "check whether `drbdsetup events2 --now --statistics` (module 9: `drbdsetup status --json`) reports `congested` on the server's host",
        )
    } else {
        Check::ok(CONGESTED_ID, message)
    }
}
