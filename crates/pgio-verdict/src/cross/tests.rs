//! Each fault brought about in an experiment that is otherwise in order.

use std::sync::Arc;

use super::*;
use crate::analyze;
use crate::test_support::{experiment, set, trial};
use pgio_results::change::{CONNECTION, Change, Subject};
use pgio_results::checks::is_behavior;
use pgio_results::model::Metric;
use pgio_results::telemetry::{Storage, Telemetry};

const PRIMARY: &str = "commits_per_second";

/// Six blocks of local and on, with an environment and no fault.
fn sound() -> StoredExperiment {
    let one = |name: &str, block: u32, rate: f64| {
        let mut t = trial(name, block, &[(PRIMARY, rate), ("checkpoints", 0.0)]);
        for (name, value) in [("setting.work_mem", "4MB"), ("host.kernel", "6.1.0")] {
            Arc::make_mut(&mut t.environment).insert(name.to_owned(), value.to_owned());
        }
        t
    };
    let pair = |block: u32| {
        [one("local", block, 1000.0 + f64::from(block)), one("on", block, 500.0 + f64::from(block))]
    };
    experiment(&["local", "on"], (1..=6).flat_map(pair).collect())
}

fn trials_of<'a>(stored: &'a mut StoredExperiment, name: &str) -> Vec<&'a mut Trial> {
    stored.trials.iter_mut().filter(|t| t.is_of(name)).collect()
}

/// Puts the fact into the trials of `on`.
fn put_on(stored: &mut StoredExperiment, name: &str, value: &str) {
    trials_of(stored, "on").into_iter().for_each(|t| put(t, name, value));
}

fn put(trial: &mut Trial, name: &str, value: &str) {
    Arc::make_mut(&mut trial.environment).insert(name.to_owned(), value.to_owned());
}

fn found(stored: &StoredExperiment) -> Vec<(usize, String)> {
    let all = checks(&stored.manifest, &stored.trials);
    all.into_iter().map(|(i, c)| (i, c.id)).collect()
}

fn ids(stored: &StoredExperiment, id: &str) -> Vec<usize> {
    found(stored).into_iter().filter(|(_, found)| found == id).map(|(i, _)| i).collect()
}

#[test]
fn a_sound_experiment_has_no_failed_checks() {
    assert_eq!(found(&sound()), []);
    assert_eq!(found(&experiment(&["local", "on"], Vec::new())), []);
}

#[test]
fn the_kernels_write_back_and_read_ahead_must_not_differ() {
    for name in ["host.vm.dirty_ratio", "data.read_ahead"] {
        let mut stored = sound();
        stored.trials.iter_mut().for_each(|t| put(t, name, "20"));
        assert_eq!(found(&stored), []);
        put_on(&mut stored, name, "40");
        assert_eq!(ids(&stored, "environment-differs"), [1, 3, 5, 7, 9, 11], "{name}");
    }
}

#[test]
fn a_host_that_did_not_answer_is_unknown_and_not_different() {
    let mut stored = sound();
    stored.trials.iter_mut().for_each(|t| put(t, "data.scheduler", "none"));
    for name in ["data.scheduler", "host.kernel"] {
        Arc::make_mut(&mut stored.trials[3].environment).remove(name);
    }
    let all = checks(&stored.manifest, &stored.trials);
    let [(3, check)] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!(check.verdict, CheckVerdict::Warning);
    assert!(check.message.contains("did not answer"), "{}", check.message);
    // Settings come from the server, which did.
    put(&mut stored.trials[3], "setting.work_mem", "64MB");
    assert_eq!(checks(&stored.manifest, &stored.trials)[0].1.verdict, CheckVerdict::Invalid);
}

#[test]
fn an_undeclared_difference_leaves_no_trial_of_the_condition() {
    let mut stored = sound();
    put_on(&mut stored, "setting.work_mem", "64MB");
    assert_eq!(ids(&stored, "environment-differs"), [1, 3, 5, 7, 9, 11]);
    let (_, check) = &checks(&stored.manifest, &stored.trials)[0];
    assert_eq!(check.message, "setting.work_mem is 64MB here and 4MB under `local`");
    let analysis = analyze(&stored);
    assert_eq!(analysis.primary("on").unwrap().blocks, 0);
    assert!(analysis.checks.iter().any(|c| c.id == "environment-differs"));

    trials_of(&mut stored, "on").into_iter().for_each(|t| {
        Arc::make_mut(&mut t.environment).remove("setting.work_mem");
    });
    let (_, check) = &checks(&stored.manifest, &stored.trials)[0];
    assert_eq!(check.message, "setting.work_mem is absent here and 4MB under `local`");
}

/// `work_mem = 64MB`
fn server(words: &str) -> Change {
    let (setting, value) = words.split_once(" = ").unwrap();
    Change::server(setting, value)
}

fn drbd(resource: &str, setting: &str, value: &str) -> Change {
    Change::new(None, Subject::Drbd { resource: resource.to_owned() }, setting, value)
}

fn mount_option(path: Option<&str>) -> Change {
    Change::new(None, Subject::Mount { path: path.map(str::to_owned) }, "sync", "sync")
}

#[test]
fn the_mount_of_the_wal_is_not_declared_by_an_option_of_the_data() {
    let faults = |point_of_wal: &str, declared: Change| {
        let mut stored = sound();
        for t in trials_of(&mut stored, "on") {
            put(t, "wal.mount", "ext4 rw,sync");
            let place = |(role, point): (&str, &str)| Storage {
                role: role.to_owned(),
                mount_point: point.to_owned(),
                ..Storage::default()
            };
            let storage = [("data", "/srv/pg"), ("wal", point_of_wal)].map(place).to_vec();
            t.telemetry = Some(Telemetry { storage, ..Telemetry::default() });
        }
        stored.manifest.conditions[1].changes = vec![declared];
        ids(&stored, "environment-differs").len()
    };
    assert_eq!(faults("/srv/wal", mount_option(None)), 6);
    assert_eq!(faults("/srv/wal", mount_option(Some("/srv/wal"))), 0);
    assert_eq!(faults("/srv/pg", mount_option(None)), 0);
}

#[test]
fn declared_differences_of_the_environment_are_not_reported() {
    for (name, declared) in [
        ("setting.work_mem", server("work_mem = 64MB")),
        ("setting.auto_explain.log_timing", server("auto_explain.log_timing = off")),
        ("data.mount", mount_option(None)),
        ("setting.wal_buffers", server("shared_buffers = 1GB")),
    ] {
        let mut stored = sound();
        put_on(&mut stored, name, "64MB");
        assert_eq!(ids(&stored, "environment-differs").len(), 6, "{name}");
        stored.manifest.conditions[1].changes = vec![declared];
        assert_eq!(found(&stored), [], "{name}");
    }
    // Another setting that only ends alike is not declared by it.
    let mut stored = sound();
    trials_of(&mut stored, "on")
        .into_iter()
        .for_each(|t| put(t, "setting.maintenance_work_mem", "1GB"));
    stored.manifest.conditions[1].changes = vec![server("work_mem = 64MB")];
    assert_eq!(ids(&stored, "environment-differs").len(), 6);
}

#[test]
fn drbd_differences_are_reported_unless_declared() {
    let on = |pairs: &[(&str, &str)], declared: &[Change]| {
        let mut stored = sound();
        for t in &mut stored.trials {
            put(t, "drbd.protocol.r0", "C");
            put(t, "drbd.r0.net", "defaults");
            put(t, "drbd.r0.al-extents", "1237");
            put(t, "drbd.module", "8.4.11");
        }
        trials_of(&mut stored, "on")
            .into_iter()
            .for_each(|t| pairs.iter().for_each(|(name, value)| put(t, name, value)));
        stored.manifest.conditions[1].changes = declared.to_vec();
        stored
    };
    let protocol = [drbd("r0", CONNECTION, "connected by protocol A")];
    let faults = |stored: &StoredExperiment| ids(stored, "environment-differs").len();
    let to_a = [("drbd.protocol.r0", "A")];
    assert_eq!(faults(&on(&to_a, &[])), 6);
    assert_eq!(faults(&on(&to_a, &protocol)), 0);
    assert_eq!(faults(&on(&to_a, &[drbd("r1", CONNECTION, "connected by protocol A")])), 6);
    let extents = [("drbd.r0.al-extents", "127")];
    assert_eq!(faults(&on(&extents, &protocol)), 6, "another factor");
    assert_eq!(faults(&on(&extents, &[drbd("r0", "al-extents", "127")])), 0);
    assert_eq!(faults(&on(&[("drbd.r0.net", "sndbuf-size 1048576")], &protocol)), 6);
    assert_eq!(faults(&on(&[("drbd.module", "9.2.1")], &protocol)), 6);
    // With a connection its options are gone.
    let mut stored = on(&[("drbd.protocol.r0", "none")], &[drbd("r0", CONNECTION, "disconnected")]);
    trials_of(&mut stored, "on")
        .into_iter()
        .for_each(|t| drop(Arc::make_mut(&mut t.environment).remove("drbd.r0.net")));
    assert_eq!(faults(&stored), 0);
    stored.manifest.conditions[1].changes.clear();
    assert_eq!(faults(&stored), 6);
}

#[test]
fn a_change_of_the_environment_is_reported_in_the_trials_after_it() {
    let mut stored = sound();
    stored.trials[8..].iter_mut().for_each(|t| put(t, "host.kernel", "6.1.1"));
    assert_eq!(ids(&stored, "environment-differs"), [8, 9, 10, 11]);
    // A declared value has to hold throughout, too.
    let mut stored = sound();
    stored.manifest.conditions[1].changes = vec![server("work_mem = 64MB")];
    put_on(&mut stored, "setting.work_mem", "64MB");
    put(&mut stored.trials[5], "setting.work_mem", "32MB");
    assert_eq!(ids(&stored, "environment-differs"), [5]);
}

#[test]
fn another_server_may_differ_with_a_warning() {
    let mut stored = sound();
    for t in trials_of(&mut stored, "on") {
        t.server.target = "db2".to_owned();
        put(t, "host.kernel", "5.10.0");
    }
    let all = checks(&stored.manifest, &stored.trials);
    assert_eq!(all.len(), 6);
    assert!(all.iter().all(|(_, c)| c.verdict == CheckVerdict::Warning), "{all:?}");
    let message = &all[0].1.message;
    assert!(message.starts_with("`on` runs on db2, the baseline on local socket: "), "{message}");
    assert!(message.contains("host.kernel is 5.10.0 here and 6.1.0 there"), "{message}");
    assert_eq!(analyze(&stored).primary("on").unwrap().blocks, 6);
}

#[test]
fn metrics_that_the_program_does_not_know_are_compared_without_a_direction() {
    let mut stored = sound();
    for (n, trial) in stored.trials.iter_mut().enumerate() {
        let metric = Metric::new(Some(10.0 + n as f64), "messages");
        trial.metrics.insert("of_another_feature".to_owned(), metric);
    }
    let analysis = analyze(&stored);
    let mut found = analysis.comparisons.iter().filter(|c| c.metric == "of_another_feature");
    assert_eq!(found.next().map(|c| c.blocks), Some(6));
    let [unknown] = analysis.metrics.as_slice() else { panic!("{:?}", analysis.metrics) };
    assert_eq!((unknown.unit.as_str(), unknown.better), ("messages", Direction::Neutral));
}

#[test]
fn a_checkpoint_in_some_trials_is_a_warning() {
    let mut stored = sound();
    trials_of(&mut stored, "on").into_iter().for_each(|t| set(t, "checkpoints", 1.0));
    assert_eq!(ids(&stored, "checkpoint-in-one-condition"), [1, 3, 5, 7, 9, 11]);
    let judged = checks(&stored.manifest, &stored.trials);
    assert!(judged.iter().all(|(_, check)| is_behavior(check)));
    assert_eq!(analyze(&stored).primary("on").unwrap().blocks, 6);
    set(&mut stored.trials[0], "checkpoints", 2.0);
    assert_eq!(found(&stored), [], "most trials have one now");
}

#[test]
fn checkpoints_of_a_setting_that_is_compared_are_its_effect() {
    // Whether they are called a part of the effect.
    let verdicts = |stored: &StoredExperiment| -> Vec<(usize, bool)> {
        let all = checks(&stored.manifest, &stored.trials);
        let checkpoints = all.into_iter().filter(|(_, c)| c.id == "checkpoint-in-one-condition");
        checkpoints
            .map(|(i, c)| (i, c.message.ends_with("so this is part of the effect")))
            .collect()
    };
    let declared = |on: &[&str], local: &[&str]| {
        let mut stored = sound();
        let own = |all: &[&str]| all.iter().map(|t| server(t)).collect();
        stored.manifest.conditions[0].changes = own(local);
        stored.manifest.conditions[1].changes = own(on);
        trials_of(&mut stored, "on").into_iter().take(2).for_each(|t| set(t, "checkpoints", 2.0));
        stored
    };
    let excused = [(1, true), (3, true)];
    let accused = [(1, false), (3, false)];
    for setting in ["max_wal_size = 64MB", "checkpoint_timeout = 30s", "full_page_writes = off"] {
        let mut stored = declared(&[setting], &[]);
        assert_eq!(verdicts(&stored), excused, "{setting}");
        assert_eq!(analyze(&stored).primary("on").unwrap().blocks, 6);
        // The baseline has fewer of them, and they are the other half of the same effect.
        set(&mut stored.trials[0], "checkpoints", 1.0);
        assert_eq!(verdicts(&stored)[0], (0, true));
        // Declared by the baseline alone it is no less what is compared.
        assert_eq!(verdicts(&declared(&[], &[setting])), excused, "{setting}");
        // What both have explains nothing.
        assert_eq!(verdicts(&declared(&[setting], &[setting])), accused, "{setting}");
    }
    assert_eq!(verdicts(&declared(&["work_mem = 64MB"], &[])), accused);
    let (_, check) = &checks(
        &declared(&["max_wal_size = 64MB"], &[]).manifest,
        &declared(&["max_wal_size = 64MB"], &[]).trials,
    )[0];
    assert_eq!(
        check.message,
        "2 checkpoints began inside the window: `on` and `local` differ in max_wal_size, so this is part of the effect"
    );
    // Nobody forces them to any phase.
    let mut stored = declared(&[], &[]);
    stored.manifest.rules.checkpoint = "none".to_owned();
    assert_eq!(verdicts(&stored), accused, "and yet not by a setting that is compared");
}

#[test]
fn repeats_do_not_hide_checkpoints_in_one_condition() {
    let mut stored = sound();
    trials_of(&mut stored, "on").into_iter().for_each(|t| set(t, "checkpoints", 1.0));
    for attempt in 1..=3 {
        let mut again: Vec<Trial> =
            trials_of(&mut stored, "on").into_iter().map(|t| t.clone()).collect();
        again.truncate(6);
        for t in &mut again {
            t.place.as_mut().unwrap().attempt = attempt;
        }
        stored.trials.extend(again);
    }
    assert_eq!(ids(&stored, "checkpoint-in-one-condition").len(), 24);
}

#[test]
fn data_that_grew_between_trials() {
    let mut stored = sound();
    for (i, t) in (0..).zip(&mut stored.trials) {
        let data = t.dataset.as_mut().unwrap();
        data.bytes_before += i * data.bytes_before / 100;
    }
    assert_eq!(ids(&stored, "data-drift"), [6, 7, 8, 9, 10, 11]);
    let (_, check) = checks(&stored.manifest, &stored.trials).pop().unwrap();
    assert!(check.message.contains("grown by 11 %"), "{}", check.message);
    assert!(check.remedy.contains("reset = \"vacuum\" or \"reload\""));
}

#[test]
fn a_trial_with_the_same_check_or_incomplete_is_not_judged_again() {
    let mut stored = sound();
    for t in trials_of(&mut stored, "on") {
        put(t, "setting.work_mem", "64MB");
        t.checks.push(Check::invalid("environment-differs", "as stored", ""));
    }
    assert_eq!(found(&stored), []);
    let mut stored = sound();
    put(&mut stored.trials[1], "setting.work_mem", "64MB");
    stored.trials[1].outcome = Outcome::Interrupted;
    assert_eq!(found(&stored), []);
}

/// Whatever came in which order: a verdict that was updated is the verdict from scratch.
#[test]
fn incremental_checks_equal_those_computed_from_scratch() {
    let mut stored = sound();
    stored.trials[8..].iter_mut().for_each(|t| put(t, "host.kernel", "6.1.1"));
    put(&mut stored.trials[3], "setting.jit", "off");
    Arc::make_mut(&mut stored.trials[4].environment).remove("setting.work_mem");
    stored.trials[5].outcome = Outcome::Interrupted;
    trials_of(&mut stored, "on").into_iter().for_each(|t| set(t, "checkpoints", 1.0));
    let mut across = Across::default();
    for n in 1..=stored.trials.len() {
        across.add(&stored.manifest, &stored.trials[n - 1]);
        let trials = &stored.trials[..n];
        let updated = across.checks(&stored.manifest, trials.iter().enumerate());
        assert_eq!(updated, checks(&stored.manifest, trials), "{n}");
    }
}
