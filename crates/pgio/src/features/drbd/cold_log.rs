//! Checks whether the experiment began with an empty activity log of DRBD.
//!
//! DRBD writes its activity log synchronously before the first write to an extent (4 MiB) that is not in
//! it. After the device was created, attached or given another `al-extents`, no extent is, so the first
//! trial pays for all of them, and later ones hardly for any. Trials are compared within their condition
//! and point: data larger than the log costs such writes in every trial, which is an effect and no
//! cold start. The burn-in warms the log, so only an experiment without one is accused. In a woven window
//! an empty log slows all conditions alike, so no trial of one is accused.

use std::collections::{BTreeMap, BTreeSet};

use pgio_results::checks::{CheckDef, def};
use pgio_results::{Check, Outcome, Trial};

const ID: &str = "drbd-cold-log";

const REMEDY: &str = "keep burn_in on, or write to all of the data once before the experiment";

/// The first trial must have this many times the writes to the log of any other, per write to the device ...
const RATIO: f64 = 2.0;
/// ... at least this many such writes more, per write, because each delays only the write that it precedes ...
const MORE: f64 = 0.01;
/// ... and this many more in its window.
const WRITES: f64 = 10.0;

pub(super) fn definition() -> CheckDef {
    def(
        ID,
        "",
        format!(
            "the experiment's first trial wrote to DRBD's activity log more than twice as often per write as any other of its condition, by more than one per {} writes and more than {WRITES} in the window",
            1.0 / MORE
        ),
        REMEDY,
    )
}

/// The log of one device in one trial.
struct Sample {
    index: usize,
    is_first: bool,
    /// Writes to the log for each write to the device.
    share: f64,
    /// Writes to the device in the window.
    writes: f64,
}

/// Checks complete trials, without the burn-in.
pub(super) fn checks(trials: &[Trial]) -> Vec<(usize, Check)> {
    let devices: BTreeSet<(&str, &str)> = trials.iter().flat_map(below_the_server).collect();
    let found = devices.into_iter().find_map(|device| {
        let groups = samples(trials, device);
        let group = groups.values().filter(|g| g.len() > 2).min_by_key(|group| group[0].index)?;
        Some((group[0].index, judge(device, group)?))
    });
    found.into_iter().collect()
}

/// Hosts and DRBD devices with files of the server.
fn below_the_server(trial: &Trial) -> Vec<(&str, &str)> {
    let Some(telemetry) = trial.own_telemetry() else { return Vec::new() };
    let devices = telemetry
        .storage
        .iter()
        .flat_map(|s| s.devices.iter().map(|device| (s.host.as_str(), device.name.as_str())));
    let is_drbd = |(host, device): &(&str, &str)| {
        telemetry.hosts.get(*host).is_some_and(|h| h.drbd.contains_key(*device))
    };
    devices.filter(is_drbd).collect()
}

/// By condition and point, in order of execution.
fn samples<'a>(
    trials: &'a [Trial],
    (host, device): (&str, &str),
) -> BTreeMap<(&'a str, String), Vec<Sample>> {
    let mut groups: BTreeMap<(&str, String), Vec<Sample>> = BTreeMap::new();
    for (index, trial) in trials.iter().enumerate() {
        let place = trial.place.as_ref().filter(|place| !place.is_burn_in());
        let observed = trial.own_telemetry().and_then(|t| t.hosts.get(host));
        let Some((place, observed)) = place.zip(observed) else { continue };
        let writes = observed.devices.get(device).map(|d| d.writes_per_second);
        let log = observed.drbd.get(device).and_then(|d| d.al_writes_per_second);
        let (Some(writes), Some(log)) = (writes.filter(|w| *w > 0.0), log) else { continue };
        if trial.outcome != Outcome::Complete {
            continue;
        }
        let group = (place.condition.as_str(), format!("{:?}", place.point));
        groups.entry(group).or_default().push(Sample {
            index,
            is_first: place.block <= 1 && place.position == 1 && place.attempt == 0,
            share: log / writes,
            writes: writes * trial.window.seconds,
        });
    }
    groups
}

/// Judges the group of the experiment's first trial.
fn judge((host, device): (&str, &str), group: &[Sample]) -> Option<Check> {
    let (first, rest) = group.split_first()?;
    let most = rest.iter().map(|s| s.share).fold(0.0, f64::max);
    let more = first.share - most;
    let is_cold =
        first.is_first && first.share > most * RATIO && more > MORE && more * first.writes > WRITES;
    is_cold.then(|| {
        let message = format!(
            "in the experiment's first trial DRBD wrote to the activity log of {device} on `{host}` {:.1} times per \
             100 writes, in no other of its condition more than {:.1}: the log was cold",
            first.share * 100.0,
            most * 100.0
        );
        Check::warning(ID, message, REMEDY)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::model::Woven;
    use pgio_results::telemetry::{Device, DeviceUse, DrbdUse, HostUse, Storage, Telemetry};
    use pgio_verdict::test_support::trial;

    /// Trials of 4 s with these writes to drbd0 and to its activity log per second, two conditions in turn.
    fn measured(rates: &[(f64, f64)]) -> Vec<Trial> {
        let one = |(number, (writes, log)): (u32, &(f64, f64))| {
            let mut t = trial(["a", "b"][number as usize % 2], number / 2 + 1, &[]);
            t.place.as_mut().unwrap().position = number % 2 + 1;
            t.window.seconds = 4.0;
            let device = DeviceUse { writes_per_second: *writes, ..DeviceUse::default() };
            let drbd = DrbdUse { al_writes_per_second: Some(*log), ..DrbdUse::default() };
            let host = HostUse {
                devices: [("drbd0".to_owned(), device)].into(),
                drbd: [("drbd0".to_owned(), drbd)].into(),
                ..HostUse::default()
            };
            let device = Device { name: "drbd0".to_owned(), ..Device::default() };
            let storage =
                Storage { host: "db".to_owned(), devices: vec![device], ..Storage::default() };
            let hosts = [("db".to_owned(), host)].into();
            let storage = vec![storage];
            t.telemetry = Some(Telemetry { hosts, storage, ..Telemetry::default() });
            t
        };
        (0..).zip(rates).map(one).collect()
    }

    fn accused(rates: &[(f64, f64)]) -> Vec<(usize, String)> {
        checks(&measured(rates)).into_iter().map(|(i, c)| (i, c.message)).collect()
    }

    #[test]
    fn an_empty_log_in_the_first_trial_is_reported() {
        let rates = [(500.0, 20.0), (500.0, 1.0), (490.0, 0.5), (480.0, 0.0), (510.0, 0.2)];
        let message = "in the experiment's first trial DRBD wrote to the activity log of drbd0 on `db` 4.0 times per \
                       100 writes, in no other of its condition more than 0.1: the log was cold";
        assert_eq!(accused(&rates), [(0, message.to_owned())]);
        // Only the burn-in met the empty log.
        let mut trials = measured(&rates);
        trials[0].place.as_mut().unwrap().block = 0;
        assert_eq!(checks(&trials), []);
        // All conditions of the window met it.
        let mut trials = measured(&rates);
        trials.iter_mut().for_each(|t| t.woven = Some(Woven::default()));
        assert_eq!(checks(&trials), []);
    }

    #[test]
    fn numbers_in_words_are_the_thresholds() {
        assert_eq!(RATIO, 2.0, "more than twice as often");
    }

    #[test]
    fn healthy_runs_are_not_accused() {
        for rates in [
            // Warm from the start.
            [(500.0, 0.2), (500.0, 1.0), (490.0, 0.5), (480.0, 0.0), (510.0, 0.2)],
            // Data larger than the log.
            [(500.0, 90.0), (500.0, 95.0), (490.0, 88.0), (480.0, 91.0), (510.0, 80.0)],
            // Few writes decide nothing.
            [(10.0, 2.0), (10.0, 0.0), (10.0, 0.0), (10.0, 0.0), (10.0, 0.0)],
            // A later trial met as many new extents.
            [(500.0, 20.0), (500.0, 1.0), (490.0, 0.5), (480.0, 0.0), (510.0, 15.0)],
        ] {
            assert_eq!(accused(&rates), [], "{rates:?}");
        }
        assert_eq!(accused(&[(500.0, 20.0), (500.0, 0.0), (500.0, 0.0)]), [], "one other trial");
        assert_eq!(checks(&[trial("a", 1, &[])]), [], "no DRBD");
    }
}
