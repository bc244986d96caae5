//! Turns snapshots into series: use of devices, CPUs and page cache from tick to tick.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::drbd;
use super::snapshot::Snapshot;
use super::window::{Span, shares};
use pgio_results::series::Track;
use pgio_results::telemetry::DeviceUse;

type Quantity = (&'static str, &'static str, fn(&DeviceUse) -> Option<f64>);

const DEVICE_QUANTITIES: &[Quantity] = &[
    ("reads_per_second", "reads/s", |d| Some(d.reads_per_second)),
    ("writes_per_second", "writes/s", |d| Some(d.writes_per_second)),
    ("flushes_per_second", "flushes/s", |d| d.flushes_per_second),
    ("utilisation", "share", |d| Some(d.utilisation)),
];

/// Times are seconds after `opened`. Idle devices have no tracks.
pub(super) fn tracks(host: &str, snapshots: &[Snapshot], opened: Instant) -> Vec<Track> {
    let spans: Vec<Span<'_>> =
        snapshots.windows(2).filter_map(|pair| Span::between(&pair[0], &pair[1])).collect();
    let at: Vec<f64> = spans.iter().map(|span| seconds_after(opened, span.to.at)).collect();
    let track = |subject: &str, name: &str, unit: &str, values: Vec<Option<f64>>| Track {
        source: host.to_owned(),
        subject: subject.to_owned(),
        name: name.to_owned(),
        unit: unit.to_owned(),
        at: at.clone(),
        values,
    };

    let cpu: Vec<BTreeMap<String, f64>> =
        spans.iter().map(|span| shares(span.from.stat.cpu, span.to.stat.cpu)).collect();
    let share = |names: &[&str]| -> Vec<Option<f64>> {
        let sum = |shares: &BTreeMap<_, _>| {
            let parts: Option<Vec<f64>> = names.iter().map(|n| shares.get(*n).copied()).collect();
            parts.map(|parts| parts.iter().sum())
        };
        cpu.iter().map(sum).collect()
    };
    let dirty = spans.iter().map(|span| span.to.memory.get("dirty").map(|bytes| *bytes as f64));
    let mut tracks = vec![
        track("", "busy_share", "share", share(&["user", "system"])),
        track("", "steal_share", "share", share(&["steal"])),
        track("", "dirty_bytes", "bytes", dirty.collect()),
    ];

    let devices: Vec<BTreeMap<String, DeviceUse>> = spans.iter().map(Span::devices).collect();
    let active: BTreeSet<&String> = devices
        .iter()
        .flatten()
        .filter(|(_, usage)| is_active(usage))
        .map(|(name, _)| name)
        .collect();
    for device in active {
        for (name, unit, take) in DEVICE_QUANTITIES {
            let values: Vec<Option<f64>> =
                devices.iter().map(|at| at.get(device).and_then(take)).collect();
            if values.iter().any(Option::is_some) {
                tracks.push(track(device, name, unit, values));
            }
        }
    }
    for (device, name, unit, values) in drbd::tracks(&spans) {
        tracks.push(track(&device, name, unit, values));
    }
    tracks
}

fn is_active(usage: &DeviceUse) -> bool {
    let flushes = usage.flushes_per_second.unwrap_or(0.0);
    usage.reads_per_second + usage.writes_per_second + flushes > 0.0
}

fn seconds_after(opened: Instant, moment: Instant) -> f64 {
    match moment.checked_duration_since(opened) {
        Some(after) => after.as_secs_f64(),
        None => -opened.duration_since(moment).as_secs_f64(),
    }
}
