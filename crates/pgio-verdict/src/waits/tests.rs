//! Divided by hand and by machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::analyze;
use crate::test_support::{experiment, replicated, sampled, timed, trial};
use pgio_results::change::{Change, Subject};
use pgio_results::store::StoredExperiment;

fn parts(analysis: &crate::Analysis, class: &str) -> BTreeMap<WaitGroup, f64> {
    let is_it = |d: &&Decomposition| d.class == class && d.condition == "local";
    let found = analysis.decompositions.iter().find(is_it).unwrap();
    // In microseconds, so that they compare as whole numbers.
    found.parts.iter().map(|p| (p.group, (p.seconds * 1e6).round())).collect()
}

const SLOB: &[(&str, f64)] = &[("read", 1.0), ("update", 2.0), ("commit", 5.0)];

#[test]
fn commits_wait_for_flush_and_standby_and_the_rest_is_shared() {
    let mut t = sampled(
        "local",
        1,
        &[
            ("IPC:SyncRep", 400),
            ("LWLock:WALWrite", 50),
            ("IO:WalSync", 30),
            ("IO:DataFileRead", 120),
            ("CPU", 200),
            ("Client", 200),
        ],
    );
    timed(&mut t, SLOB);
    let analysis = analyze(&experiment(&["local"], vec![t]));
    use WaitGroup::{Cpu, DataFileRead, Flush, SyncRep};
    assert_eq!(
        parts(&analysis, "commit"),
        BTreeMap::from([(SyncRep, 4000.0), (Flush, 800.0), (Cpu, 200.0)])
    );
    // 1.2 s of reading, one third where a third of the time left is.
    assert_eq!(parts(&analysis, "read"), BTreeMap::from([(DataFileRead, 400.0), (Cpu, 600.0)]));
    assert_eq!(parts(&analysis, "update"), BTreeMap::from([(DataFileRead, 800.0), (Cpu, 1200.0)]));
    let commit = analysis.decompositions.iter().find(|d| d.class == "commit").unwrap();
    assert_eq!((commit.operations, commit.trials), (1000, 1));
    assert!((commit.mean_seconds - 0.005).abs() < 1e-12);
    let standby = commit.parts.iter().find(|p| p.group == SyncRep).unwrap();
    assert!((standby.share - 0.8).abs() < 1e-9);
    // Binomial: 1.96 × sqrt(0.4 × 0.6 / 1000) × 10 s / 1000 operations.
    assert!((standby.error_seconds - 1.96 * (0.24f64 / 1000.0).sqrt() / 100.0).abs() < 1e-9);
}

#[test]
fn equal_trials_do_not_make_a_part_exact() {
    let in_block = |block| {
        let mut t = sampled("local", block, &[("IPC:SyncRep", 400), ("CPU", 600)]);
        timed(&mut t, &[("commit", 10.0)]);
        t
    };
    let analysis = analyze(&experiment(&["local"], (1..=3).map(in_block).collect()));
    let parts = &analysis.decompositions[0].parts;
    assert_eq!(parts.len(), 2);
    // Binomial: 1.96 × sqrt(0.4 × 0.6 / 3000) of the time.
    let expected = 1.96 * (0.24f64 / 3000.0).sqrt();
    assert!(parts.iter().all(|p| (p.share_error - expected).abs() < 1e-3), "{parts:?}");
}

#[test]
fn waits_beyond_the_commit_time_go_to_updates_or_are_cut() {
    use WaitGroup::{Cpu, Flush, SyncRep};
    let seen = [("IPC:SyncRep", 300), ("IO:WALSync", 300), ("CPU", 400)];
    let mut t = sampled("local", 1, &seen);
    timed(&mut t, SLOB);
    let analysis = analyze(&experiment(&["local"], vec![t.clone()]));
    // 6 s of waits for 5 s of commits.
    let commit = BTreeMap::from([(SyncRep, 2500.0), (Flush, 2500.0), (Cpu, 0.0)]);
    assert_eq!(parts(&analysis, "commit"), commit);
    assert_eq!(parts(&analysis, "update"), BTreeMap::from([(Flush, 500.0), (Cpu, 1500.0)]));
    assert_eq!(parts(&analysis, "read"), BTreeMap::from([(Cpu, 1000.0)]));
    // One transaction for the whole run: updates, then reads.
    t.histograms.remove("commit");
    let analysis = analyze(&experiment(&["local"], vec![t]));
    assert_eq!(parts(&analysis, "update")[&SyncRep], 1000.0);
    assert_eq!(parts(&analysis, "read")[&SyncRep], 500.0);
}

#[test]
fn waits_of_a_transaction_include_those_of_its_commit() {
    let mut t = sampled(
        "local",
        1,
        &[("IPC:SyncRep", 400), ("Lock:extend", 100), ("CPU", 300), ("Client", 200)],
    );
    timed(&mut t, &[("transaction", 8.0), ("commit", 5.0)]);
    let analysis = analyze(&experiment(&["local"], vec![t.clone()]));
    use WaitGroup::{Cpu, Locks, SyncRep};
    assert_eq!(parts(&analysis, "commit"), BTreeMap::from([(SyncRep, 4000.0), (Cpu, 1000.0)]));
    assert_eq!(
        parts(&analysis, "transaction"),
        BTreeMap::from([(SyncRep, 4000.0), (Locks, 1000.0), (Cpu, 3000.0)])
    );
    // Without commits of their own, transactions hold everything.
    t.histograms.remove("commit");
    let analysis = analyze(&experiment(&["local"], vec![t]));
    assert_eq!(parts(&analysis, "transaction")[&SyncRep], 4000.0);
}

/// Half of the time is a scan's, which reads; inserts and deletes flush beyond the commits as updates do.
#[test]
fn scans_inserts_and_deletes_have_their_own_waits() {
    use WaitGroup::{Cpu, DataFileRead, Flush};
    let seen = [("IO:DataFileRead", 600), ("IO:WALSync", 300), ("CPU", 100)];
    let mut t = sampled("local", 1, &seen);
    timed(&mut t, &[("read", 1.0), ("scan", 5.0), ("update", 1.0), ("commit", 1.0)]);
    timed(&mut t, &[("insert", 1.0), ("delete", 1.0)]);
    let analysis = analyze(&experiment(&["local"], vec![t.clone()]));
    assert_eq!(parts(&analysis, "commit"), BTreeMap::from([(Flush, 1000.0), (Cpu, 0.0)]));
    for class in ["update", "insert", "delete"] {
        assert!((parts(&analysis, class)[&Flush] - 667.0).abs() < 1.0, "{class}");
    }
    // 6 s of reading for 7 s: the waits of reads and scans, and what is left of the changes.
    let scan = parts(&analysis, "scan")[&DataFileRead];
    let read = parts(&analysis, "read")[&DataFileRead];
    assert!((scan - 4286.0).abs() < 1.0 && (read - 857.0).abs() < 1.0, "{scan} {read}");
    // Without commits, changes hold the flushes.
    t.histograms.remove("commit");
    let analysis = analyze(&experiment(&["local"], vec![t]));
    assert_eq!(parts(&analysis, "insert")[&Flush], 1000.0);
    assert!(!parts(&analysis, "scan").contains_key(&Flush));
}

#[test]
fn client_waits_belong_to_calls_of_the_client_engine_without_a_rate() {
    use WaitGroup::{Client, Cpu};
    let mut t = sampled("local", 1, &[("Client", 600), ("CPU", 400)]);
    timed(&mut t, &[("read", 10.0)]);
    for (key, value) in [("engine", "client".into()), ("pipeline", 1.into())] {
        t.workload.keys.insert(key.to_owned(), value);
    }
    let analysis = analyze(&experiment(&["local"], vec![t.clone()]));
    assert_eq!(parts(&analysis, "read"), BTreeMap::from([(Client, 6000.0), (Cpu, 4000.0)]));
    // At a rate, a session that waits for its client has nothing to do.
    t.workload.keys.insert("rate".to_owned(), 100.into());
    let analysis = analyze(&experiment(&["local"], vec![t]));
    assert_eq!(parts(&analysis, "read"), BTreeMap::from([(Cpu, 10_000.0)]));
}

/// One session that pauses 80 % of its time, commits for 1 s and updates for 1 s.
#[test]
fn pauses_belong_to_no_operation_and_do_not_inflate_other_waits() {
    use WaitGroup::{Cpu, Flush};
    let seen = [("Timeout:PgSleep", 160), ("IO:WalSync", 19), ("CPU", 21)];
    let mut t = sampled("local", 1, &seen);
    timed(&mut t, &[("update", 1.0), ("commit", 1.0)]);
    let analysis = analyze(&experiment(&["local"], vec![t]));
    assert_eq!(parts(&analysis, "commit"), BTreeMap::from([(Flush, 950.0), (Cpu, 50.0)]));
    assert_eq!(parts(&analysis, "update"), BTreeMap::from([(Cpu, 1000.0)]));
}

#[test]
fn without_samples_there_is_no_decomposition() {
    let mut silent = sampled("local", 1, &[]);
    timed(&mut silent, SLOB);
    let mut unsampled = trial("local", 2, &[]);
    timed(&mut unsampled, SLOB);
    let untimed = sampled("local", 3, &[("CPU", 10)]);
    let analysis = analyze(&experiment(&["local", "on"], vec![silent, unsampled, untimed]));
    assert!(analysis.decompositions.is_empty());
    assert!(analysis.decomposition_differences.is_empty());
}

#[test]
fn the_difference_by_blocks_adds_up_and_is_explained() {
    let analysis = analyze(&replicated(6));
    let [d] = analysis.decomposition_differences.as_slice() else { panic!("{analysis:?}") };
    assert_eq!((d.condition.as_str(), d.class.as_str(), d.blocks), ("on", "commit", 6));
    assert!((d.seconds - 0.001_005).abs() < 1e-9, "{d:?}");
    assert!(d.interval.low.unwrap() < 0.001_005 && d.interval.high.unwrap() < 0.00102);
    let sum: f64 = d.parts.iter().map(|p| p.seconds).sum();
    assert!((sum - d.seconds).abs() < 1e-12);
    let standby = d.parts.iter().find(|p| p.group == WaitGroup::SyncRep).unwrap();
    assert!((standby.seconds - 0.00101).abs() < 1e-9, "{standby:?}");
    assert!(standby.interval.low.unwrap() > 0.0009 && standby.interval.high.unwrap() < 0.0011);
    let predicted = d.predicted.as_ref().unwrap();
    assert!((predicted.seconds - 0.0009).abs() < 1e-12 && predicted.at_least);
    assert_eq!(predicted.from, "round trip 100 µs + standby's flush 800 µs");

    let two = analyze(&replicated(2));
    let [d] = two.decomposition_differences.as_slice() else { panic!("{two:?}") };
    assert_eq!((d.blocks, d.interval.low, d.parts[0].interval.low), (2, None, None));
}

#[test]
fn the_error_of_waits_is_the_spread_between_trials() {
    let analysis = analyze(&replicated(6));
    let on = analysis.decompositions.iter().find(|d| d.condition == "on").unwrap();
    let standby = on.parts.iter().find(|p| p.group == WaitGroup::SyncRep).unwrap();
    // 100 to 102 sightings a trial: their spread is far below the binomial error.
    assert!(standby.error_seconds > 0.0 && standby.error_seconds < 2e-5, "{standby:?}");
}

/// A trial with a tenth of the operations that took ten times as long: as total time by number.
#[test]
fn a_slow_trial_weighs_as_much_as_it_has_operations() {
    let mut stored = replicated(6);
    let slow = stored.trials.iter_mut().rfind(|t| t.is_of("on"));
    let mut few = pgio_results::histogram::Histogram::default();
    (0..100).for_each(|_| few.record(22e6));
    slow.unwrap().histograms.insert("commit".to_owned(), few);
    let analysis = analyze(&stored);
    let mean = |name: &str| {
        analysis.decompositions.iter().find(|d| d.condition == name).unwrap().mean_seconds
    };
    let d = &analysis.decomposition_differences[0];
    assert!((d.seconds - (mean("on") - mean("local"))).abs() < 1e-12, "{d:?}");
    let sum: f64 = d.parts.iter().map(|p| p.seconds).sum();
    assert!((sum - d.seconds).abs() < 1e-12);
    assert!(d.interval.low.unwrap() < d.seconds && d.seconds < d.interval.high.unwrap());
}

/// Trials drawn around a known truth: the interval holds it in 19 of 20, give or take.
#[test]
fn the_ratio_of_totals_is_held_by_its_interval() {
    let mut rng = benchmath::rng::SplitMix64::new(11);
    let held = (0..1000)
        .filter(|_| {
            let totals: Vec<f64> = (0..8).map(|_| 500.0 + 1000.0 * rng.next_f64()).collect();
            let parts: Vec<f64> =
                totals.iter().map(|n| n * (2.0 + 0.4 * (rng.next_f64() - 0.5))).collect();
            let values = around_ratio(&parts, &totals);
            let mean = summary::mean(&values).unwrap();
            let reach = half_width(&values, ALPHA).unwrap();
            let ratio = parts.iter().sum::<f64>() / totals.iter().sum::<f64>();
            assert!((mean - ratio).abs() < 1e-9);
            (mean - 2.0).abs() <= reach
        })
        .count();
    assert!((925..=975).contains(&held), "{held}");
}

fn store_setting(trial: &mut Trial, name: &str, value: &str) {
    let facts = Arc::make_mut(&mut trial.environment);
    facts.insert(format!("setting.{name}"), value.to_owned());
}

/// A role without pg_monitor sees no standby; the setting tells whether one can be synchronous.
#[test]
fn no_prediction_if_a_synchronous_standby_may_be_hidden() {
    let with = |setting: Option<(&str, &str)>, sync_state: Option<&str>| {
        let mut stored = replicated(3);
        for t in &mut stored.trials {
            let standbys = &mut t.telemetry.as_mut().unwrap().standbys;
            standbys.retain(|_, _| sync_state.is_some());
            for standby in standbys.values_mut() {
                standby.sync_state = sync_state.unwrap_or_default().to_owned();
            }
            if let Some((name, value)) = setting {
                store_setting(t, name, value);
            }
        }
        let found = analyze(&stored).decomposition_differences.remove(0).predicted;
        found.map(|p| (p.seconds * 1e6).round() as i64)
    };
    let named = Some(("synchronous_standby_names", "s1"));
    assert_eq!(with(named, None), None, "it may be hidden");
    assert_eq!(with(None, None), None, "an older result without settings");
    assert_eq!(with(Some(("work_mem", "64MB")), None), Some(0), "none is named");
    assert_eq!(with(None, Some("async")), Some(0), "nothing is hidden");
    assert_eq!(with(named, Some("potential, then sync")), Some(900));
}

#[test]
fn predicted_differences_depend_on_synchronous_commit() {
    let with = |baseline: &str, condition: &str, standby: bool| {
        let mut stored = replicated(3);
        for (info, level) in stored.manifest.conditions.iter_mut().zip([baseline, condition]) {
            info.changes = vec![Change::server("synchronous_commit", level)];
        }
        if !standby {
            stored.trials.iter_mut().for_each(|t| {
                t.telemetry.as_mut().unwrap().standbys.clear();
                store_setting(t, "synchronous_standby_names", "");
            });
        }
        let found = analyze(&stored).decomposition_differences.remove(0).predicted;
        found.map(|p| ((p.seconds * 1e6).round() as i64, p.at_least))
    };
    assert_eq!(with("local", "remote_write", true), Some((100, true)));
    assert_eq!(with("local", "remote_apply", true), Some((900, true)));
    assert_eq!(with("local", "off", true), Some((-900, false)));
    assert_eq!(with("off", "on", true), Some((1800, true)));
    assert_eq!(with("local", "on", false), Some((0, false)), "no standby to wait for");
    assert_eq!(with("remote_apply", "local", true), None);
    assert_eq!(with("local", "nonsense", true), None);
}

#[test]
fn errors_of_one_measurement_for_both_flushes_add_up() {
    let error = |shared_flush: bool| {
        let mut stored = replicated(3);
        for (info, level) in stored.manifest.conditions.iter_mut().zip(["off", "on"]) {
            info.changes = vec![Change::server("synchronous_commit", level)];
        }
        for trial in &mut stored.trials {
            let probes = trial.telemetry.as_mut().unwrap().probes.as_mut().unwrap();
            probes.shared_flush = shared_flush;
            probes.flush_error_seconds = Some(30e-6);
            probes.standby_flush_error_seconds = Some(40e-6);
        }
        let found = analyze(&stored).decomposition_differences.remove(0).predicted;
        (found.unwrap().error.unwrap() * 1e6).round()
    };
    assert_eq!((error(false), error(true)), (50.0, 70.0));
}

#[test]
fn no_prediction_without_probes_or_with_another_factor() {
    let predicted = |change: fn(&mut StoredExperiment)| {
        let mut stored = replicated(3);
        change(&mut stored);
        analyze(&stored).decomposition_differences.remove(0).predicted
    };
    assert!(predicted(|_| ()).is_some());
    let probes: fn(&mut StoredExperiment) = |s| {
        s.trials.iter_mut().for_each(|t| t.telemetry.as_mut().unwrap().probes = None);
    };
    assert_eq!(predicted(probes), None);
    let factor: fn(&mut StoredExperiment) =
        |s| s.manifest.conditions[1].changes.push(Change::server("commit_delay", "100"));
    assert_eq!(predicted(factor), None);
}

/// The probes ran before any treatment: a limit on the device slows the flushes of both conditions.
#[test]
fn no_prediction_with_a_treatment_of_both_conditions_that_probes_do_not_cover() {
    let predicted = |change: &Change| {
        let mut stored = replicated(3);
        stored.manifest.conditions.iter_mut().for_each(|c| c.changes.push(change.clone()));
        analyze(&stored).decomposition_differences.remove(0).predicted
    };
    let throttle = Subject::Device { path: "/dev/vda".to_owned() };
    assert_eq!(predicted(&Change::new(None, throttle, "write_iops", "100")), None);
    let link = Subject::Link { interface: Some("eth1".to_owned()) };
    assert!(predicted(&Change::new(None, link, "delay", "1ms")).is_some());
}

proptest! {
    /// Whatever was seen, parts are not negative and add up to the exact mean.
    #[test]
    fn wait_parts_are_not_negative_and_add_up_to_the_mean(
        seen in prop::collection::vec(0u64..400, 7),
        means in prop::collection::vec(0.001f64..9.0, 3),
        transactions in any::<bool>(),
    ) {
        let events = ["CPU", "Client", "IPC:SyncRep", "IO:WALSync", "IO:DataFileRead",
            "Lock:tuple", "Timeout:VacuumDelay"];
        let sightings: Vec<(&str, u64)> = events.into_iter().zip(seen.iter().copied()).collect();
        let mut t = sampled("local", 1, &sightings);
        if transactions {
            timed(&mut t, &[("commit", means[0]), ("transaction", means[0] + means[1])]);
        } else {
            timed(&mut t, &[("read", means[0]), ("update", means[1]), ("commit", means[2])]);
        }
        let analysis = analyze(&experiment(&["local"], vec![t]));
        prop_assert_eq!(analysis.decompositions.is_empty(), seen.iter().all(|n| *n == 0));
        for d in &analysis.decompositions {
            let sum: f64 = d.parts.iter().map(|p| p.seconds).sum();
            prop_assert!((sum - d.mean_seconds).abs() <= 1e-9 * d.mean_seconds, "{:?}", d);
            prop_assert!(d.parts.iter().all(|p| p.seconds >= 0.0 && p.error_seconds >= 0.0));
            prop_assert!(d.parts.iter().all(|p| p.group != WaitGroup::Client));
        }
    }
}
