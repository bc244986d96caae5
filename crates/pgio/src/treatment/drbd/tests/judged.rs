//! What a trial's record and the looks inside its window prove.

use std::collections::BTreeMap;

use super::*;
use crate::treatment::test_support::in_context;
use pgio_results::model::CheckVerdict::{self, Invalid, Ok, Warning};
use pgio_results::telemetry::{Device, DrbdState, DrbdUse, HostUse, Storage, Telemetry};
use pgio_results::test_support::full_trial;

const GOOD: (&str, &str, u64) = ("Connected", "Established", 20);

fn trial_of(states: &[(&str, &str, u64)], change: impl Fn(&mut DrbdUse)) -> Trial {
    let state = |(connection, replication, samples): &(&str, &str, u64)| DrbdState {
        role: "Primary".to_owned(),
        peer_role: "Secondary".to_owned(),
        connection: (*connection).to_owned(),
        replication: (*replication).to_owned(),
        disk: "UpToDate".to_owned(),
        peer_disk: "UpToDate".to_owned(),
        protocol: Some("C".to_owned()),
        samples: *samples,
        ..DrbdState::default()
    };
    let mut drbd = DrbdUse { states: states.iter().map(state).collect(), ..DrbdUse::default() };
    change(&mut drbd);
    let host = HostUse { drbd: [("drbd0".to_owned(), drbd)].into(), ..HostUse::default() };
    let device = Device { name: "drbd0".to_owned(), ..Device::default() };
    let storage = Storage { host: "db1".to_owned(), devices: vec![device], ..Storage::default() };
    let telemetry = Telemetry {
        hosts: BTreeMap::from([("db1".to_owned(), host)]),
        storage: vec![storage],
        ..Telemetry::default()
    };
    Trial { telemetry: Some(telemetry), ..full_trial() }
}

#[test]
fn the_samples_inside_the_window_are_judged() {
    let connected = asked(true, Some("C"));
    let verdicts = |requested: &RequestedState, trial: &Trial| -> Vec<(String, CheckVerdict)> {
        proof::judge(requested, BufferReadings::default(), trial)
            .into_iter()
            .map(|c| (c.id, c.verdict))
            .collect()
    };
    let all = |configured, lost, congested| {
        vec![
            ("drbd-connection".to_owned(), configured),
            ("drbd-connection-lost".to_owned(), lost),
            ("drbd-congested".to_owned(), congested),
        ]
    };
    let both = |lost, congested| all(Ok, lost, congested);
    assert_eq!(verdicts(&connected, &trial_of(&[GOOD], |_| ())), both(Ok, Ok));
    let taken_away = trial_of(&[GOOD, ("StandAlone", "Off", 1)], |_| ());
    assert_eq!(verdicts(&connected, &taken_away), all(Invalid, Ok, Ok));
    let lost = trial_of(&[GOOD, ("Connecting", "Off", 1)], |_| ());
    assert_eq!(verdicts(&connected, &lost), both(Warning, Ok));
    let text = proof::judge(&connected, BufferReadings::default(), &lost).remove(1).message;
    assert_eq!(text, "DRBD pgio: it was Connecting on `db1` in 1 sample");
    let ahead = trial_of(&[GOOD, ("Connected", "Ahead", 1)], |_| ());
    assert_eq!(verdicts(&connected, &ahead), both(Ok, Warning));
    let grown = trial_of(&[GOOD], |d| d.out_of_sync_bytes_after = 4096);
    assert_eq!(verdicts(&connected, &grown), both(Warning, Ok));
    let anew = trial_of(&[GOOD], |d| d.connected_anew = 1);
    assert_eq!(verdicts(&connected, &anew), both(Warning, Ok));
    let outdated = trial_of(&[GOOD], |d| d.states[0].peer_disk = "Outdated".to_owned());
    assert_eq!(verdicts(&connected, &outdated), both(Warning, Ok));
    assert_eq!(verdicts(&asked(true, Some("A")), &trial_of(&[GOOD], |_| ()))[0].1, Invalid);
    for full in [1, 9] {
        let trial = trial_of(&[GOOD, ("Connected", "Established", full)], |d| {
            d.states[0].congested = Some(false);
            d.states[1].congested = Some(true);
        });
        assert_eq!(verdicts(&connected, &trial), both(Ok, Warning), "{full}");
    }
    let alone = asked(false, None);
    let apart = trial_of(&[("StandAlone", "Off", 20)], |d| d.out_of_sync_bytes_after = 1 << 30);
    assert_eq!(verdicts(&alone, &apart), [("drbd-connection".to_owned(), Ok)]);
    assert_eq!(verdicts(&alone, &trial_of(&[GOOD], |_| ()))[0].1, Invalid);
    let other = trial_of(&[GOOD], |d| d.resource = Some("mail".to_owned()));
    let unproved = [("drbd-connection".to_owned(), Invalid)];
    assert_eq!(verdicts(&connected, &other), unproved);
    let unwatched = Trial { telemetry: None, ..full_trial() };
    assert_eq!(verdicts(&connected, &unwatched), unproved);
    assert_eq!(verdicts(&alone, &unwatched), unproved);
}

/// Readings count, because DRBD 8.4 is sampled from /proc/drbd, which does not report congestion.
#[test]
fn a_full_buffer_is_counted_inside_the_window() {
    let (node, there) = node(Fake::new());
    let mut in_force = DrbdInForce {
        requested: asked(true, Some("C")),
        nodes: Arc::new([node]),
        buffer: BufferReadings::default(),
    };
    let look = |in_force: &mut DrbdInForce, times: usize, congested: bool| {
        there.0.lock().unwrap().congested = congested;
        let evidence = in_context(|context| {
            (0..times).flat_map(|_| in_force.verify(context, When::During)).collect::<Vec<_>>()
        });
        assert_eq!(evidence, [], "equal ones would be kept once");
    };
    let trial = trial_of(&[GOOD], |_| ());
    let judged = |in_force: &DrbdInForce| {
        let check = in_force.judge(&trial).remove(2);
        (check.verdict, check.message)
    };
    look(&mut in_force, 18, false);
    assert_eq!(judged(&in_force).0, Ok);
    look(&mut in_force, 2, true);
    let text = "the buffer to the peer of DRBD pgio was full in 2 of 20 readings";
    assert_eq!(judged(&in_force), (Warning, text.to_owned()));
    look(&mut in_force, 1, true);
    assert_eq!(judged(&in_force).0, Warning);
    // A reading that fails is not counted.
    there.0.lock().unwrap().up = false;
    look(&mut in_force, 5, true);
    assert!(judged(&in_force).1.ends_with("3 of 21 readings"), "{}", judged(&in_force).1);
    // The next trial begins with none.
    in_context(|context| in_force.verify(context, When::Before));
    assert!(judged(&in_force).1.contains("whether the buffer to it was full is unknown"));
}

#[test]
fn an_unknown_buffer_matters_with_protocol_a() {
    let verdict = |requested: &RequestedState, protocol: &str| {
        let trial = trial_of(&[GOOD], |d| d.states[0].protocol = Some(protocol.to_owned()));
        proof::judge(requested, BufferReadings::default(), &trial).remove(2).verdict
    };
    assert_eq!(verdict(&asked(true, Some("C")), "C"), Ok);
    assert_eq!(verdict(&asked(true, Some("A")), "A"), Warning);
    assert_eq!(verdict(&asked(true, None), "A"), Warning, "by its files");
}
