//! What DRBD below the server's files did inside the window, for conditions without a `drbd` treatment,
//! which judges for itself: whether it lost its peer, and whether it fell behind.
//!
//! Its configuration is a fact of the environment and compared with the baseline's. A device that stays
//! StandAlone, as an operator requests it, is no loss.

use std::collections::BTreeSet;

use pgio_results::change::fact;
use pgio_results::checks;
use pgio_results::model::{Check, Trial};
use pgio_results::telemetry::{DrbdUse, Telemetry};
use pgio_results::units::human;

use crate::host::called;
use crate::host::drbd::{
    CONGESTED_ID, CONGESTED_REMEDY, LOST_ID, LOST_REMEDY, STANDALONE, connection_loss, is_behind,
    samples,
};
use crate::treatment::SYNCHRONOUS;

/// Empty if the server's files are not on DRBD, or it was not observed.
pub(super) fn checks(trial: &Trial) -> Vec<Check> {
    let Some(telemetry) = &trial.telemetry else { return Vec::new() };
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
    let total = |wanted: &dyn Fn(&pgio_results::telemetry::DrbdState) -> bool| -> u64 {
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

// Whether a standby flushes what it confirms: with fsync = off, a commit that waits for its flush waits for nothing,
// and the level of synchronous_commit that the condition names was not measured. The settings of standbys are among
// the facts of the environment (`telemetry::environment`).

/// `None` if no standby was found on an observed host, or the server itself does not flush.
pub(super) fn check(trial: &Trial) -> Option<Check> {
    const ID: &str = "standby-durability";
    if trial.server.fsync == "off" {
        return None;
    }
    let flushes = trial
        .environment
        .iter()
        .filter(|(name, _)| fact::is_of_standby(name) && name.ends_with(".fsync"));
    let (mut known, mut off) = (0, Vec::new());
    for (name, value) in flushes {
        known += 1;
        if value == "off" {
            off.push(name.as_str());
        }
    }
    if off.is_empty() {
        return (known > 0).then(|| Check::ok(ID, "fsync is on on every standby that was found"));
    }
    Some(Check::warning(
        ID,
        format!(
            "{} = off: commits that wait for the standby's flush wait for nothing",
            off.join(" and ")
        ),
        "turn fsync on in the standby's configuration and reload it",
    ))
}

/// Reports standbys that came, went or changed their state: commits may have waited for another one.
pub(super) fn changed(trial: &Trial) -> Option<Check> {
    const ID: &str = "standby-changed";
    let all = trial.evidence.iter().filter(|e| e.what == SYNCHRONOUS && e.expected.is_some());
    let found: Vec<&str> = all.map(|e| e.found.as_str()).collect();
    let first = *found.first()?;
    let other = *found.iter().find(|state| **state != first)?;
    Some(Check::warning(
        ID,
        format!("the standbys were `{first}` and then `{other}`"),
        checks::remedy(ID),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::drbd::UP_TO_DATE;
    use pgio_results::CheckVerdict;
    use pgio_results::model::{Evidence, When};
    use pgio_results::telemetry::{Device, DrbdState, HostUse, Storage};
    use pgio_results::test_support::full_trial;
    use std::collections::BTreeMap;
    use std::sync::Arc;

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
        checks(trial).into_iter().map(|c| (c.verdict, c.message)).collect()
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
        assert_eq!(verdicts(&lost)[0], (CheckVerdict::Warning, message));
        let taken = on_drbd(&[("Connected", "Established"), ("StandAlone", "Off")], |_| ());
        assert_eq!(verdicts(&taken)[0].0, CheckVerdict::Warning);
        let faults: [fn(&mut DrbdUse); 4] = [
            |d| d.connected_anew = 1,
            |d| d.out_of_sync_bytes_after = 4096,
            |d| d.states[0].peer_disk = "Outdated".to_owned(),
            |d| d.states[0].suspended = true,
        ];
        for fault in faults {
            let found = verdicts(&on_drbd(&[("Connected", "Established")], fault));
            assert_eq!(found[0].0, CheckVerdict::Warning, "{found:?}");
        }
    }

    #[test]
    fn a_full_buffer_or_a_peer_left_behind_is_reported() {
        let ahead = on_drbd(&[("Connected", "Ahead")], |_| ());
        assert!(verdicts(&ahead)[1].1.ends_with("was ahead of its peer in 4 samples"));
        let full = on_drbd(&[("Connected", "Established")], |d| d.states[0].congested = Some(true));
        assert_eq!(verdicts(&full)[1].0, CheckVerdict::Warning);
    }

    fn checked(facts: &[(&str, &str)]) -> Option<Check> {
        let facts = facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        check(&Trial { environment: Arc::new(facts.collect::<BTreeMap<_, _>>()), ..full_trial() })
    }

    #[test]
    fn standbys_that_change_inside_a_window_are_reported() {
        let found = |states: &[&str]| {
            let one = |state: &&str| Evidence {
                when: When::During,
                what: SYNCHRONOUS.to_owned(),
                found: (*state).to_owned(),
                expected: Some((*state).to_owned()),
            };
            changed(&Trial { evidence: states.iter().map(one).collect(), ..full_trial() })
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&["near: sync, far: potential"; 3]), None);
        let check = found(&["near: sync, far: potential", "far: sync", "far: sync"]).unwrap();
        assert_eq!(check.verdict, CheckVerdict::Warning);
        assert_eq!(
            check.message,
            "the standbys were `near: sync, far: potential` and then `far: sync`"
        );
    }

    #[test]
    fn a_standby_that_does_not_flush_is_reported() {
        let check = checked(&[("db2.standby./srv/s.fsync", "off"), ("standby./srv/t.fsync", "on")])
            .unwrap();
        assert_eq!(check.verdict, CheckVerdict::Warning);
        assert!(check.message.starts_with("db2.standby./srv/s.fsync = off: "), "{}", check.message);
    }

    #[test]
    fn a_healthy_standby_passes_and_none_is_not_judged() {
        let healthy = [("standby./srv/t.fsync", "on"), ("standby./srv/t.shared_buffers", "off")];
        assert_eq!(checked(&healthy).unwrap().verdict, CheckVerdict::Ok);
        assert_eq!(checked(&[("setting.fsync", "off"), ("host.kernel", "6.1")]), None);
    }
}
