//! Compares the two disks of a replicated device, of the primary and of the secondary.
//!
//! Both write the same data in different requests: the secondary merges and flushes by its own rules,
//! and only the primary keeps the activity log. Values are means over the trials that count, by
//! condition and resource. A resource is omitted if the disk is unknown or was not observed on either host; so
//! are woven windows, whose disks served all conditions together.

use std::collections::BTreeMap;

use benchmath::summary::mean;
use serde::{Deserialize, Serialize};

use super::pairing::ByCondition;
use pgio_results::Trial;
use pgio_results::store::Manifest;
use pgio_results::telemetry::HostUse;

const SECTOR_BYTES: f64 = 512.0;

/// The disks of one resource under one condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replica {
    pub condition: String,
    pub resource: String,
    pub primary: Disk,
    pub secondary: Disk,
}

/// A backing disk; rates per second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Disk {
    pub host: String,
    pub device: String,
    pub writes: f64,
    /// Writes that were merged into others before they reached the disk.
    pub merged_writes: f64,
    /// Sectors of 512 bytes.
    pub sectors_written: f64,
    pub flushes: Option<f64>,
}

pub(super) fn all(manifest: &Manifest, by_condition: &ByCondition<'_>) -> Vec<Replica> {
    let mut all = Vec::new();
    for condition in &manifest.conditions {
        let mut found: BTreeMap<String, Vec<(Disk, Disk)>> = BTreeMap::new();
        for trial in by_condition[condition.name.as_str()].valid() {
            for (resource, pair) in disks_by_resource(trial) {
                found.entry(resource).or_default().push(pair);
            }
        }
        for (resource, pairs) in found {
            let side = |of: fn(&(Disk, Disk)) -> &Disk| {
                averaged(&pairs.iter().map(of).collect::<Vec<_>>())
            };
            if let Some((primary, secondary)) = side(|p| &p.0).zip(side(|p| &p.1)) {
                let condition = condition.name.clone();
                all.push(Replica { condition, resource, primary, secondary });
            }
        }
    }
    all
}

/// The disks of each resource that holds the server's files.
fn disks_by_resource(trial: &Trial) -> Vec<(String, (Disk, Disk))> {
    let Some(telemetry) = trial.own_telemetry() else { return Vec::new() };
    let mut found = Vec::new();
    for (host, device) in
        telemetry.storage.iter().flat_map(|s| s.devices.iter().map(move |d| (&s.host, &d.name)))
    {
        let Some(usage) = telemetry.hosts.get(host) else { continue };
        let Some(ours) = usage.replicated().find(|d| d.device == device) else { continue };
        let Some(resource) = ours.resource else { continue };
        let peers = telemetry.hosts.iter().filter(|(name, _)| *name != host);
        let mut peers =
            peers.flat_map(|(name, usage)| usage.replicated().map(move |d| (name, usage, d)));
        let peer = peers.find(|(_, _, d)| d.resource == Some(resource));
        let theirs = peer.and_then(|(name, usage, d)| disk(name, usage, d.backing?));
        let ours = ours.backing.and_then(|backing| disk(host, usage, backing));
        if let Some(pair) = ours.zip(theirs)
            && !found.iter().any(|(known, _)| known == resource)
        {
            found.push((resource.to_owned(), pair));
        }
    }
    found
}

fn disk(host: &str, usage: &HostUse, device: &str) -> Option<Disk> {
    // The disk is read when it is attached, so even an idle one is listed: a missing one is unknown.
    let used = usage.devices.get(device)?;
    Some(Disk {
        host: host.to_owned(),
        device: device.to_owned(),
        writes: used.writes_per_second,
        merged_writes: used.merged_writes_per_second,
        sectors_written: used.written_bytes_per_second / SECTOR_BYTES,
        flushes: used.flushes_per_second,
    })
}

fn averaged(disks: &[&Disk]) -> Option<Disk> {
    let first = *disks.first()?;
    let over = |of: fn(&Disk) -> Option<f64>| {
        mean(&disks.iter().filter_map(|d| of(d)).collect::<Vec<_>>())
    };
    Some(Disk {
        host: first.host.clone(),
        device: first.device.clone(),
        writes: over(|d| Some(d.writes))?,
        merged_writes: over(|d| Some(d.merged_writes))?,
        sectors_written: over(|d| Some(d.sectors_written))?,
        flushes: over(|d| d.flushes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze;
    use crate::test_support::{experiment, trial};
    use pgio_results::model::Woven;
    use pgio_results::telemetry::{Device, DeviceUse, DrbdUse, Storage, Telemetry};

    fn host(backing: Option<&str>, writes: f64) -> HostUse {
        let drbd = DrbdUse {
            resource: Some("pgio".to_owned()),
            backing: backing.map(str::to_owned),
            ..DrbdUse::default()
        };
        let used = DeviceUse {
            writes_per_second: writes,
            merged_writes_per_second: 3.0,
            written_bytes_per_second: writes * 8192.0,
            ..DeviceUse::default()
        };
        HostUse {
            drbd: [("drbd0".to_owned(), drbd)].into(),
            devices: [("vdb".to_owned(), used)].into(),
            ..HostUse::default()
        }
    }

    fn replicated(condition: &str, block: u32, peer: Option<&str>, writes: f64) -> Trial {
        let device = |name: &str| Device { name: name.to_owned(), ..Device::default() };
        let storage = Storage {
            host: "db1".to_owned(),
            devices: vec![device("drbd0"), device("vdb")],
            ..Storage::default()
        };
        let hosts = [
            ("db1".to_owned(), host(Some("vdb"), writes)),
            ("db2".to_owned(), host(peer, writes + 10.0)),
            ("local".to_owned(), HostUse::default()),
        ];
        Trial {
            telemetry: Some(Telemetry {
                hosts: hosts.into(),
                // Data and WAL on one device are one device.
                storage: vec![storage.clone(), storage],
                ..Telemetry::default()
            }),
            ..trial(condition, block, &[("commits_per_second", 1.0)])
        }
    }

    #[test]
    fn replicas_show_both_disks_for_each_condition() {
        let trials = vec![
            replicated("c", 1, Some("vdb"), 100.0),
            replicated("c", 2, Some("vdb"), 200.0),
            replicated("gone", 1, Some("vdz"), 300.0),
            replicated("unknown", 1, None, 400.0),
        ];
        let found = analyze(&experiment(&["c", "gone", "unknown"], trials)).replicas;
        let [c] = found.as_slice() else { panic!("what was not observed is not 0: {found:?}") };
        assert_eq!((c.condition.as_str(), c.resource.as_str()), ("c", "pgio"));
        assert_eq!((c.primary.host.as_str(), c.secondary.host.as_str()), ("db1", "db2"));
        assert_eq!((c.primary.writes, c.secondary.writes), (150.0, 160.0));
        assert_eq!((c.primary.sectors_written, c.primary.flushes), (2400.0, None));
    }

    #[test]
    fn disks_of_a_woven_window_belong_to_no_condition() {
        let woven = |condition: &str| Trial {
            woven: Some(Woven::default()),
            ..replicated(condition, 1, Some("vdb"), 100.0)
        };
        let trials = vec![woven("c"), woven("a"), replicated("c", 2, Some("vdb"), 200.0)];
        let found = analyze(&experiment(&["c", "a"], trials)).replicas;
        let [c] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((c.condition.as_str(), c.primary.writes), ("c", 200.0));
    }
}
