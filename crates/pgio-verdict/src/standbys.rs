//! The standbys of the measured server by condition: how far each was behind, and the use of its disk.
//!
//! Values are means over the trials that count; the greatest distance is taken over all of them. A
//! standby of which nothing was measured is omitted, and so are woven windows: their standbys followed all
//! conditions together.

use std::collections::BTreeMap;

use benchmath::summary::mean;
use serde::{Deserialize, Serialize};

use super::pairing::ByCondition;
use pgio_results::Trial;
use pgio_results::store::Manifest;
use pgio_results::telemetry::{DeviceUse, HostUse, StandbyLag, Storage};

/// One standby under one condition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StandbyUse {
    pub condition: String,
    /// Its application_name.
    pub name: String,
    /// The standby that it streams from; absent for the primary.
    pub from: Option<String>,
    /// `sync`, `quorum`, `potential` or `async` during most trials.
    pub sync_state: String,
    /// Configured, if known.
    pub apply_delay_seconds: Option<f64>,
    pub mean_bytes_behind: Option<f64>,
    pub max_bytes_behind: Option<f64>,
    pub flush_seconds: Option<f64>,
    pub replay_seconds: Option<f64>,
    /// The device of its data, if known.
    pub device: Option<String>,
    pub written_bytes_per_second: Option<f64>,
    pub flushes_per_second: Option<f64>,
    /// Share of time in which the device had requests in flight.
    pub utilisation: Option<f64>,
}

/// A standby in one trial, with the use of its disk.
struct StandbySample<'a> {
    lag: &'a StandbyLag,
    device: Option<&'a DeviceUse>,
    /// Those of the disk below, if the device itself counts none.
    flushes_per_second: Option<f64>,
}

pub(super) fn all(manifest: &Manifest, by_condition: &ByCondition<'_>) -> Vec<StandbyUse> {
    let mut all = Vec::new();
    for condition in &manifest.conditions {
        let Some(trials) = by_condition.get(condition.name.as_str()) else { continue };
        let mut found: BTreeMap<&str, Vec<StandbySample<'_>>> = BTreeMap::new();
        for (name, sample) in trials.valid().flat_map(standby_samples) {
            found.entry(name).or_default().push(sample);
        }
        let found =
            found.into_iter().map(|(name, samples)| summarize(&condition.name, name, &samples));
        all.extend(found.filter(is_measured));
    }
    all
}

fn standby_samples(trial: &Trial) -> impl Iterator<Item = (&str, StandbySample<'_>)> {
    let telemetry = trial.own_telemetry().into_iter();
    telemetry.flat_map(|t| {
        t.standbys.iter().map(|(name, lag)| {
            let storage = lag.storage.as_ref();
            let disk = storage.and_then(|storage| Some((storage, t.hosts.get(&storage.host)?)));
            let device =
                disk.and_then(|(storage, host)| host.devices.get(&storage.devices.first()?.name));
            let flushes_per_second = disk.and_then(|(storage, host)| flushes(storage, host));
            (name.as_str(), StandbySample { lag, device, flushes_per_second })
        })
    })
}

fn flushes(storage: &Storage, host: &HostUse) -> Option<f64> {
    let counted = host.flushed_below(storage)?;
    counted.into_iter().map(|name| host.devices.get(name)?.flushes_per_second).sum()
}

fn is_measured(standby: &StandbyUse) -> bool {
    let values = [
        standby.mean_bytes_behind,
        standby.flush_seconds,
        standby.replay_seconds,
        standby.written_bytes_per_second,
    ];
    values.iter().any(Option::is_some)
}

fn summarize(condition: &str, name: &str, samples: &[StandbySample<'_>]) -> StandbyUse {
    let lags = |value: fn(&StandbyLag) -> Option<f64>| {
        mean(&samples.iter().filter_map(|one| value(one.lag)).collect::<Vec<_>>())
    };
    let disk = |value: fn(&DeviceUse) -> Option<f64>| {
        mean(&samples.iter().filter_map(|one| value(one.device?)).collect::<Vec<_>>())
    };
    let known = samples.iter().rev().map(|one| one.lag).next();
    let greatest = samples.iter().filter_map(|one| one.lag.max_bytes_behind).reduce(f64::max);
    let device = |lag: &StandbyLag| Some(lag.storage.as_ref()?.devices.first()?.name.clone());
    StandbyUse {
        condition: condition.to_owned(),
        name: name.to_owned(),
        from: known.and_then(|lag| lag.from.clone()),
        sync_state: usual_state(samples),
        apply_delay_seconds: known.and_then(|lag| lag.apply_delay_seconds),
        mean_bytes_behind: lags(|lag| lag.mean_bytes_behind),
        max_bytes_behind: greatest,
        flush_seconds: lags(|lag| lag.flush_seconds),
        replay_seconds: lags(|lag| lag.replay_seconds),
        device: known.and_then(device),
        written_bytes_per_second: disk(|d| Some(d.written_bytes_per_second)),
        flushes_per_second: mean(
            &samples.iter().filter_map(|one| one.flushes_per_second).collect::<Vec<_>>(),
        ),
        utilisation: disk(|d| Some(d.utilisation)),
    }
}

/// The most frequent state.
fn usual_state(samples: &[StandbySample<'_>]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for one in samples {
        *counts.entry(&one.lag.sync_state).or_default() += 1;
    }
    let usual = counts.into_iter().max_by_key(|(_, count)| *count);
    usual.map_or_else(String::new, |(state, _)| state.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze;
    use crate::test_support::demo;
    use pgio_results::model::Woven;
    use pgio_results::telemetry::{Device, Telemetry};

    fn telemetry(mean_behind: f64, writes: f64) -> Telemetry {
        let device = Device { name: "vdc".to_owned(), ..Device::default() };
        let storage =
            Storage { host: "local".to_owned(), devices: vec![device], ..Storage::default() };
        let lag = StandbyLag {
            sync_state: "quorum".to_owned(),
            mean_bytes_behind: Some(mean_behind),
            max_bytes_behind: Some(mean_behind * 10.0),
            from: Some("a".to_owned()),
            apply_delay_seconds: Some(5.0),
            storage: Some(storage),
            ..StandbyLag::default()
        };
        let used = DeviceUse { written_bytes_per_second: writes, ..DeviceUse::default() };
        let host = HostUse { devices: [("vdc".to_owned(), used)].into(), ..HostUse::default() };
        let blank = StandbyLag { sync_state: "async".to_owned(), ..StandbyLag::default() };
        Telemetry {
            hosts: [("local".to_owned(), host)].into(),
            standbys: [("b".to_owned(), lag), ("unseen".to_owned(), blank)].into(),
            ..Telemetry::default()
        }
    }

    #[test]
    fn each_standby_has_its_distance_and_its_own_disk() {
        let mut stored = demo();
        let condition = stored.manifest.conditions[0].name.clone();
        let is_its = |t: &&mut Trial| t.is_of(&condition);
        for (n, trial) in stored.trials.iter_mut().filter(is_its).enumerate() {
            trial.telemetry = Some(telemetry(if n % 2 == 0 { 100.0 } else { 300.0 }, 4096.0));
        }
        let found = analyze(&stored).standbys;
        assert_eq!(found.len(), 1, "one of two was measured: {found:?}");
        let b = &found[0];
        assert_eq!((b.name.as_str(), b.from.as_deref()), ("b", Some("a")));
        assert_eq!((b.sync_state.as_str(), b.apply_delay_seconds), ("quorum", Some(5.0)));
        assert_eq!((b.max_bytes_behind, b.device.as_deref()), (Some(3000.0), Some("vdc")));
        assert_eq!(b.written_bytes_per_second, Some(4096.0));
        let behind = b.mean_bytes_behind.unwrap();
        assert!(behind > 100.0 && behind < 300.0, "{behind}");
    }

    #[test]
    fn standbys_of_a_woven_window_belong_to_no_condition() {
        let mut stored = demo();
        for trial in &mut stored.trials {
            trial.telemetry = Some(telemetry(100.0, 4096.0));
            trial.woven = Some(Woven::default());
        }
        assert!(analyze(&stored).standbys.is_empty());
        // A repeat of one condition has a window of its own.
        stored.trials[0].telemetry = Some(telemetry(300.0, 4096.0));
        stored.trials[0].woven = None;
        let found = analyze(&stored).standbys;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].mean_bytes_behind, Some(300.0));
    }
}
