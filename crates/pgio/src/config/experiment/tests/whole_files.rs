//! Whole files: defaults, every key, and the shipped examples.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{CHECKS, TREATMENTS, read, server};
use crate::config::experiment::{
    Checkpoint, Condition, Experiment, PrivateTarget, Question, Reset, Rules, StandbyTarget,
    SweepKind, Target, Weave, WorkloadKind, WorkloadSpec, parse,
};
use crate::config::keys::Layer;
use crate::config::resolve::{CommitSettings, Extent, SlobSettings};

#[test]
fn only_the_name_of_a_condition_is_required() {
    let seconds = Duration::from_secs;
    assert_eq!(
        read("[[condition]]\nname = 'a'\n"),
        Experiment {
            drivers: Default::default(),
            name: "x".to_owned(),
            blocks: 6,
            warmup: seconds(2),
            duration: seconds(10),
            seed: None,
            baseline: "a".to_owned(),
            aa: true,
            burn_in: None,
            telemetry: seconds(1),
            primary: None,
            hosts: BTreeMap::new(),
            rules: Rules {
                precision: None,
                enough_blocks: 6,
                max_blocks: 6,
                repeats: 2,
                reset: Reset::Checkpoint,
                checkpoint: Checkpoint::Before,
                weave: Weave::Off,
                tolerate: Vec::new(),
                question: Question::default(),
            },
            sweep: SweepKind::OneAtATime,
            targets: BTreeMap::new(),
            background: Vec::new(),
            workloads: vec![WorkloadSpec {
                name: "slob".to_owned(),
                kind: WorkloadKind::Slob,
                layer: Layer {
                    warmup: Some(seconds(2)),
                    run_time: Some(seconds(10)),
                    ..Layer::default()
                },
                axes: Vec::new(),
                command: None,
                conditions: None,
                reset: None,
            }],
            conditions: vec![Condition {
                name: "a".to_owned(),
                target: None,
                further_targets: Vec::new(),
                treatments: Vec::new(),
                sweep: true,
            }],
            screening: None,
        }
    );
}

#[test]
fn all_keys_are_read() {
    let experiment = read(
        "[experiment]\nname = 'sync commit'\nblocks = 12\nwarmup = 0\nduration = '500ms'\n\
         seed = 0xffff_ffff_ffff_ffff\nbaseline = 'b'\naa = false\nprimary = 'wal_bytes'\n\
         [targets.east]\ndsn = 'service=east'\n[targets.own]\nprivate = true\npg = 18\n\
         standby = true\n\
         [workload]\nkind = 'slob'\nupdate_pct = 10\nscale = 25_600\naccess = 'bitmap'\n\
         run_time = '1m'\ncreate_base_table = false\n\
         [[condition]]\nname = 'a'\ntarget = 'own'\n\
         postgres = { synchronous_commit = 'on', work_mem = 4, x = 1.5, y = true }\n\
         drbd = { protocol = 'C' }\n\
         [[condition]]\nname = 'b'\ntarget = 'east'\n[condition.throttle]\niops = 500\n",
    );
    assert_eq!(experiment.name, "sync commit");
    assert_eq!(experiment.blocks, 12);
    assert_eq!(experiment.warmup, Duration::ZERO);
    assert_eq!(experiment.duration, Duration::from_millis(500));
    assert_eq!(experiment.seed, Some(u64::MAX));
    assert_eq!(experiment.baseline, "b");
    assert!(!experiment.aa);
    assert_eq!(experiment.primary.as_deref(), Some("wal_bytes"));

    let [a, b] = experiment.conditions.as_slice() else { panic!("two conditions") };
    let standbys = vec![StandbyTarget::named("standby")];
    let own =
        Target::Private(PrivateTarget { major: Some(18), standbys, ..PrivateTarget::default() });
    let east = server("service=east");
    assert_eq!(experiment.target_of(a), Some(&own));
    assert_eq!(experiment.target_of(b), Some(&east));
    let kinds: Vec<_> = a.treatments.iter().map(|t| (t.kind.as_str(), t.line)).collect();
    assert_eq!(kinds, [("postgres", 26), ("drbd", 27)], "in the order of the file");
    let settings = a.treatments[0].body.as_table().unwrap();
    assert_eq!(settings["synchronous_commit"].as_str(), Some("on"));
    assert_eq!(settings["work_mem"].as_integer(), Some(4));
    assert_eq!(settings["x"].as_float(), Some(1.5));
    assert_eq!(settings["y"].as_bool(), Some(true));
    assert_eq!(b.treatments[0].body["iops"].as_integer(), Some(500));

    let slob = SlobSettings::resolve(experiment.workloads[0].layer.clone()).unwrap();
    assert_eq!(slob.scale, "200M".parse().unwrap());
    assert_eq!(slob.run_time, Duration::from_secs(60), "overrides the experiment's duration");
    assert_eq!(slob.warmup, Duration::ZERO);
}

#[test]
fn shipped_examples_parse_with_their_workloads_and_conditions() {
    let sync = include_str!("../../../../../../examples/sync-commit-quick.toml");
    let sync = parse(sync, "sync-commit-quick.toml", "sync-commit", TREATMENTS, CHECKS).unwrap();
    assert_eq!(sync.name, "sync-commit");
    assert_eq!(sync.baseline, "local");
    let [commit, slob] = sync.workloads.as_slice() else { panic!("two workloads") };
    assert_eq!(sync.conditions_of(commit).count(), 5);
    let names: Vec<_> = sync.conditions_of(slob).map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["local", "on", "remote_apply"]);
    SlobSettings::resolve(slob.layer.clone()).unwrap();

    let fixed = include_str!("../../../../../../examples/commit-10000.toml");
    let fixed = parse(fixed, "commit-10000.toml", "commit-10000", TREATMENTS, CHECKS).unwrap();
    let settings = CommitSettings::resolve(fixed.workloads[0].layer.clone()).unwrap();
    assert_eq!(settings.extent, Extent::Transactions(10_000));
    assert_eq!(fixed.conditions.len(), 2);
}
