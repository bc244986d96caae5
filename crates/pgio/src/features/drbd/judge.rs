//! Judges what DRBD did inside the window of any trial: whether a resync disturbed it, and, for conditions without a
//! `drbd` treatment, which judges for itself ([`super::proof`]), whether it lost its peer or fell behind.
//!
//! Its configuration is a fact of the environment and compared with the baseline's. A device that stays
//! StandAlone, as an operator requests it, is no loss.

use std::collections::BTreeSet;

use pgio_results::change::{Change, Subject};
use pgio_results::model::{Check, Trial};
use pgio_results::telemetry::{DrbdState, DrbdUse, Telemetry};
use pgio_results::units::human;

use super::state::{
    CONGESTED_ID, CONGESTED_REMEDY, LOST_ID, LOST_REMEDY, STANDALONE, connection_loss, is_behind,
    is_resync, samples,
};
use crate::host::called;

pub(super) const RESYNC_ID: &str = "drbd-resync";

/// Empty if DRBD was not observed.
pub(super) fn judge(trial: &Trial, declared: &[Change]) -> Vec<Check> {
    let Some(telemetry) = &trial.telemetry else { return Vec::new() };
    let mut found: Vec<Check> = resync(telemetry).into_iter().collect();
    // The treatment has judged the connection that it requested.
    if !declared.iter().any(|change| matches!(change.subject, Subject::Drbd { .. })) {
        found.extend(connection(telemetry));
    }
    found
}

/// Empty if the server's files are not on DRBD.
fn connection(telemetry: &Telemetry) -> Vec<Check> {
    let found = below_the_server(telemetry);
    if found.is_empty() {
        return Vec::new();
    }
    let lost: Vec<String> = found.iter().flat_map(|(name, usage)| losses(name, usage)).collect();
    let kept = if lost.is_empty() {
        Check::ok(LOST_ID, "DRBD below the server's files lost no peer")
    } else {
        Check::warning(LOST_ID, lost.join("; "), LOST_REMEDY)
    };
    let behind: Vec<String> =
        found.iter().filter_map(|(name, usage)| behind(name, usage)).collect();
    let kept_up = if behind.is_empty() {
        Check::ok(CONGESTED_ID, "DRBD below the server's files was never ahead of its peer")
    } else {
        Check::warning(CONGESTED_ID, behind.join("; "), CONGESTED_REMEDY)
    };
    vec![kept, kept_up]
}

fn below_the_server(telemetry: &Telemetry) -> Vec<(String, &DrbdUse)> {
    let all = telemetry.storage.iter();
    let devices: BTreeSet<(&str, &str)> = all
        .flat_map(|s| s.devices.iter().map(|device| (s.host.as_str(), device.name.as_str())))
        .collect();
    let observed = devices.into_iter().filter_map(|(host, device)| {
        let usage = telemetry.hosts.get(host)?.drbd.get(device)?;
        let resource = usage.resource.as_ref().map_or(String::new(), |name| format!(" ({name})"));
        (!usage.states.is_empty())
            .then(|| (format!("DRBD {device}{resource} on {}", called(host)), usage))
    });
    observed.collect()
}

fn losses(name: &str, usage: &DrbdUse) -> Vec<String> {
    // Writes without a peer are out of sync, as requested.
    if usage.states.iter().all(|state| state.connection == STANDALONE) {
        return Vec::new();
    }
    let mut lost = Vec::new();
    for state in &usage.states {
        if let Some(was) = connection_loss(state) {
            lost.push(format!("{name} was {was} in {}", samples(state.samples)));
        }
    }
    if usage.connected_anew > 0 {
        lost.push(format!("{name} re-established its connection inside the window"));
    }
    if usage.out_of_sync_bytes_after > usage.out_of_sync_bytes_before {
        let grown = usage.out_of_sync_bytes_after - usage.out_of_sync_bytes_before;
        lost.push(format!("{} went out of sync on {name}", human::bytes(grown)));
    }
    lost
}

fn behind(name: &str, usage: &DrbdUse) -> Option<String> {
    let total = |wanted: &dyn Fn(&DrbdState) -> bool| -> u64 {
        usage.states.iter().filter(|state| wanted(state)).map(|state| state.samples).sum()
    };
    match (total(&|s| is_behind(&s.replication)), total(&|s| s.congested == Some(true))) {
        (0, 0) => None,
        (0, full) => {
            Some(format!("the buffer to the peer of {name} was full in {}", samples(full)))
        }
        (ahead, _) => Some(format!("{name} was ahead of its peer in {}", samples(ahead))),
    }
}

/// A resync uses disks and network of the measurement, regardless of the condition.
fn resync(telemetry: &Telemetry) -> Option<Check> {
    const ID: &str = RESYNC_ID;
    let mut watched = false;
    let mut caused: Option<Check> = None;
    for (host, usage) in &telemetry.hosts {
        for (device, drbd) in &usage.drbd {
            watched = true;
            let Some(state) = resync_in(&drbd.states) else { continue };
            let shown =
                format!("{device} on {} was {} inside the window", called(host), state.replication);
            // A short state may be sampled at one end only.
            let all = telemetry.hosts.values().filter_map(|host| host.drbd.get(device));
            let ends: Vec<&DrbdUse> = all.filter(|end| end.resource == drbd.resource).collect();
            match effect_of_condition(&drbd.states, &ends) {
                Some(remedy) => {
                    caused.get_or_insert_with(|| Check::warning(ID, shown, remedy));
                }
                None => {
                    let remedy = "wait until it ends, or pause it, and run again";
                    return Some(Check::invalid(ID, shown, remedy));
                }
            }
        }
    }
    let quiet = || Check::ok(ID, "DRBD neither synchronized nor verified");
    watched.then(|| caused.unwrap_or_else(quiet))
}

/// Returns a verification, which only a command starts, or else the first resync.
fn resync_in(states: &[DrbdState]) -> Option<&DrbdState> {
    let found = || states.iter().filter(|s| is_resync(&s.replication));
    found().find(|s| is_verification(s)).or_else(|| found().next())
}

fn is_verification(state: &DrbdState) -> bool {
    state.replication.starts_with("Verify")
}

/// Returns what to do about a resync that is an effect of the condition: the peer was lost by itself and
/// came back, or it was left behind (on-congestion pull-ahead) and catches up.
fn effect_of_condition(states: &[DrbdState], ends: &[&DrbdUse]) -> Option<&'static str> {
    let left = |s: &DrbdState| !["Connected", "StandAlone"].contains(&&*s.connection);
    if ends.iter().any(|end| end.connected_anew > 0 || end.states.iter().any(left)) {
        return Some("find out why the connection was lost");
    }
    // States are in the order in which they were first seen.
    let behind_first = |states: &[DrbdState]| {
        let first =
            |replicates: fn(&str) -> bool| states.iter().position(|s| replicates(&s.replication));
        let behind = first(is_behind)?;
        Some(first(is_resync).is_none_or(|resync| behind < resync))
    };
    let left_behind = behind_first(states)
        .unwrap_or_else(|| ends.iter().any(|end| behind_first(&end.states) == Some(true)));
    (left_behind && !states.iter().any(is_verification)).then_some(CONGESTED_REMEDY)
}

#[cfg(test)]
mod tests {
    use super::super::state::UP_TO_DATE;
    use super::*;
    use pgio_results::CheckVerdict::{self, Invalid, Warning};
    use pgio_results::telemetry::{Device, HostUse, Storage};
    use pgio_results::test_support::full_trial;
    use std::collections::BTreeMap;

    /// A server on drbd1, with these connections and replication states inside the window.
    fn on_drbd(states: &[(&str, &str)], change: impl Fn(&mut DrbdUse)) -> Trial {
        let state = |(connection, replication): &(&str, &str)| DrbdState {
            connection: (*connection).to_owned(),
            replication: (*replication).to_owned(),
            disk: UP_TO_DATE.to_owned(),
            peer_disk: UP_TO_DATE.to_owned(),
            samples: 4,
            ..DrbdState::default()
        };
        let mut usage = DrbdUse {
            resource: Some("r0".to_owned()),
            states: states.iter().map(state).collect(),
            ..DrbdUse::default()
        };
        change(&mut usage);
        let host = HostUse { drbd: [("drbd1".to_owned(), usage)].into(), ..HostUse::default() };
        let device = Device { name: "drbd1".to_owned(), ..Device::default() };
        let storage =
            Storage { host: "db1".to_owned(), devices: vec![device], ..Storage::default() };
        let telemetry = Telemetry {
            hosts: BTreeMap::from([("db1".to_owned(), host)]),
            storage: vec![storage],
            ..Telemetry::default()
        };
        Trial { telemetry: Some(telemetry), ..full_trial() }
    }

    fn verdicts(trial: &Trial) -> Vec<(CheckVerdict, String)> {
        judge(trial, &[]).into_iter().skip(1).map(|c| (c.verdict, c.message)).collect()
    }

    #[test]
    fn a_healthy_or_separate_device_passes() {
        for states in [[("Connected", "Established")], [("StandAlone", "Off")]] {
            let trial = on_drbd(&states, |d| {
                d.out_of_sync_bytes_after = if states[0].0 == "StandAlone" { 4096 } else { 0 };
            });
            let found = verdicts(&trial);
            assert!(found.iter().all(|(v, _)| *v == CheckVerdict::Ok) && found.len() == 2);
        }
        assert_eq!(verdicts(&full_trial()), [], "no DRBD");
    }

    #[test]
    fn a_lost_peer_is_reported() {
        let lost = on_drbd(&[("Connected", "Established"), ("Connecting", "Off")], |_| ());
        let message = "DRBD drbd1 (r0) on `db1` was Connecting in 4 samples".to_owned();
        assert_eq!(verdicts(&lost)[0], (Warning, message));
        let taken = on_drbd(&[("Connected", "Established"), ("StandAlone", "Off")], |_| ());
        assert_eq!(verdicts(&taken)[0].0, Warning);
        let faults: [fn(&mut DrbdUse); 4] = [
            |d| d.connected_anew = 1,
            |d| d.out_of_sync_bytes_after = 4096,
            |d| d.states[0].peer_disk = "Outdated".to_owned(),
            |d| d.states[0].suspended = true,
        ];
        for fault in faults {
            let found = verdicts(&on_drbd(&[("Connected", "Established")], fault));
            assert_eq!(found[0].0, Warning, "{found:?}");
        }
    }

    #[test]
    fn a_full_buffer_or_a_peer_left_behind_is_reported() {
        let ahead = on_drbd(&[("Connected", "Ahead")], |_| ());
        assert!(verdicts(&ahead)[1].1.ends_with("was ahead of its peer in 4 samples"));
        let full = on_drbd(&[("Connected", "Established")], |d| d.states[0].congested = Some(true));
        assert_eq!(verdicts(&full)[1].0, Warning);
    }

    #[test]
    fn a_resync_anywhere_disturbs_any_condition() {
        let hosts = ["db", "local"].map(|name| (name.to_owned(), HostUse::default())).into();
        let telemetry = &mut Telemetry { hosts, ..Telemetry::default() };
        assert_eq!(resync(telemetry), None, "no DRBD");
        let state = |replication: &str| DrbdState {
            connection: "Connected".to_owned(),
            replication: replication.to_owned(),
            samples: 3,
            ..DrbdState::default()
        };
        let drbd =
            DrbdUse { states: vec![state("Established"), state("Off")], ..DrbdUse::default() };
        let host = telemetry.hosts.get_mut("db").unwrap();
        host.drbd.insert("drbd0".to_owned(), drbd);
        assert_eq!(resync(telemetry).unwrap().verdict, CheckVerdict::Ok);
        let host = telemetry.hosts.get_mut("db").unwrap();
        host.drbd.get_mut("drbd0").unwrap().states.push(state("VerifyS"));
        let check = resync(telemetry).unwrap();
        assert_eq!(check.verdict, Invalid);
        assert_eq!(check.message, "drbd0 on `db` was VerifyS inside the window");
        // What follows from a peer that was lost by itself belongs to the condition.
        let host = telemetry.hosts.get_mut("db").unwrap();
        host.drbd.get_mut("drbd0").unwrap().connected_anew = 1;
        assert_eq!(resync(telemetry).unwrap().verdict, Warning);

        // So does catching up after congestion, but neither a resync before it nor a verification.
        let mut judged = |here: &[&str], peer: &[&str]| {
            for (host, states) in [("db", here), ("local", peer)] {
                let states = states.iter().map(|replication| state(replication)).collect();
                let drbd = DrbdUse { states, ..DrbdUse::default() };
                let host = telemetry.hosts.get_mut(host).unwrap();
                host.drbd.insert("drbd0".to_owned(), drbd);
            }
            let check = resync(telemetry).unwrap();
            (check.verdict, check.message)
        };
        let (ahead, behind) =
            (["Established", "Ahead", "SyncSource"], ["Established", "Behind", "SyncTarget"]);
        let message = "drbd0 on `db` was SyncSource inside the window".to_owned();
        assert_eq!(judged(&ahead, &behind), (Warning, message));
        let mut verdict = |here: &[&str], peer: &[&str]| judged(here, peer).0;
        assert_eq!(verdict(&["Ahead", "WFBitMapS", "Established"], &["PausedSyncT"]), Warning);
        assert_eq!(verdict(&["Established"], &["Established", "SyncTarget"]), Invalid);
        assert_eq!(verdict(&["SyncSource", "Established", "Ahead"], &["SyncTarget"]), Invalid);
        assert_eq!(verdict(&["Ahead", "SyncSource", "VerifyS"], &["Behind", "VerifyT"]), Invalid);
    }
}
