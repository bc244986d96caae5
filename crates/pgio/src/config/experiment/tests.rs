//! Tests of whole experiment files. The file is long because every key and every error has a case.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::config::keys::Layer;
use crate::config::resolve::{CommitSettings, Extent, SlobSettings};
use crate::config::value::ConnectString;

const TREATMENTS: &[&str] = &["postgres", "drbd", "throttle", "command"];
const CHECKS: &[&str] = &["durability", "foreign-load"];

fn read(text: &str) -> Experiment {
    parse(text, "x.toml", "x", TREATMENTS, CHECKS).unwrap()
}

fn error(text: &str) -> String {
    parse(text, "x.toml", "x", TREATMENTS, CHECKS).unwrap_err().to_string()
}

/// Returns the error of a valid file with these lines in front.
fn error_of(lines: &str) -> String {
    error(&format!("{lines}\n[[condition]]\nname = 'a'\n[[condition]]\nname = 'b'\n"))
}

/// Returns the error of a valid file with these lines in the second condition.
fn condition_error(lines: &str) -> String {
    error(&format!("[[condition]]\nname = 'a'\n[[condition]]\n{lines}\n"))
}

fn server(dsn: &str) -> Target {
    Target::Server {
        dsn: ConnectString::new(dsn),
        host: None,
        standby_host: None,
        device: None,
        control: None,
    }
}

#[test]
fn telemetry_may_be_off() {
    let cadence = |text: &str| {
        read(&format!("[experiment]\ntelemetry = {text}\n[[condition]]\nname = 'a'\n")).telemetry
    };
    assert_eq!(cadence("'500ms'"), Duration::from_millis(500));
    assert_eq!(cadence("0"), Duration::ZERO);
}

#[test]
fn only_the_name_of_a_condition_is_required() {
    let seconds = Duration::from_secs;
    assert_eq!(
        read("[[condition]]\nname = 'a'\n"),
        Experiment {
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
                max_blocks: 6,
                repeats: 2,
                reset: Reset::Checkpoint,
                checkpoint: Checkpoint::Before,
                tolerate: Vec::new(),
                question: Question::default(),
            },
            sweep: SweepKind::OneAtATime,
            targets: BTreeMap::new(),
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
                treatments: Vec::new(),
                sweep: true,
            }],
        }
    );
}

#[test]
fn workloads_may_override_the_reset() {
    let text = |reset: &str| {
        format!(
            "[experiment]\nreset = 'reload'\n[[workload]]\nname = 'x'\nreset = '{reset}'\n\
             [[workload]]\nkind = 'commit'\n[[condition]]\nname = 'a'\n"
        )
    };
    for (name, own) in [("checkpoint", Reset::Checkpoint), ("vacuum", Reset::Vacuum)] {
        let experiment = read(&text(name));
        let resets: Vec<_> = experiment.workloads.iter().map(|w| experiment.reset_of(w)).collect();
        assert_eq!(resets, [&own, &Reset::Reload]);
    }
    let error = |reset| parse(&text(reset), "x.toml", "x", &[], &[]).unwrap_err().to_string();
    assert!(error("recreate").contains("x.toml:5: workload.reset: recreate is valid only in"));
    assert!(error("relaod").contains("the nearest valid one is `reload`"), "{}", error("relaod"));
}

#[test]
fn a_list_of_tables_is_split_into_treatments() {
    let experiment = read(
        "[[condition]]\nname = 'a'\ndrbd = {}\nthrottle = [{ host = 'x' }, { host = 'y' }]\n\
         postgres = []\n",
    );
    let seen: Vec<_> =
        experiment.conditions[0].treatments.iter().map(|t| (t.kind.as_str(), t.line)).collect();
    assert_eq!(seen, [("drbd", 3), ("throttle", 4), ("throttle", 4), ("postgres", 5)]);
    assert_eq!(experiment.conditions[0].treatments[2].body["host"].as_str(), Some("y"));
}

#[test]
fn burn_in_runs_by_default_if_trials_share_a_data_set() {
    for (workload, key, expected) in [
        ("kind = 'slob'", "", true),
        ("kind = 'commit'", "", false),
        ("kind = 'mail'", "", false),
        ("kind = 'command'\npreset = 'pgbench'", "", false),
        ("kind = 'command'\npreset = 'pgbench-S'", "", true),
        ("kind = 'slob'", "burn_in = false", false),
        ("kind = 'commit'", "burn_in = true", true),
    ] {
        let text =
            format!("[experiment]\n{key}\n[workload]\n{workload}\n[[condition]]\nname = 'a'\n");
        let Ok(experiment) = parse(&text, "x.toml", "x", TREATMENTS, CHECKS) else {
            panic!("{text}: {:?}", parse(&text, "x.toml", "x", TREATMENTS, CHECKS))
        };
        assert_eq!(experiment.burns_in(&experiment.workloads[0]), expected, "{text}");
    }
}

#[test]
fn checkpoint_modes() {
    let mode = |key: &str| {
        let text = format!("[experiment]\n{key}\n[[condition]]\nname = 'a'\n");
        parse(&text, "x.toml", "x", TREATMENTS, CHECKS).map(|e| e.rules.checkpoint)
    };
    assert_eq!(mode("").unwrap(), Checkpoint::Before);
    assert_eq!(mode("checkpoint = 'spread'").unwrap(), Checkpoint::Spread);
    assert_eq!(mode("checkpoint = 'none'").unwrap(), Checkpoint::None);
    let error = mode("checkpoint = 'never'").unwrap_err();
    assert_eq!(error.message, "must be one of before, spread, none, not `never`");
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
    let own = Target::Private { major: Some(18), standby: true, directory: None };
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
fn a_single_target_applies_to_all_conditions() {
    for text in ["[target]\ndsn = 'pgio'", "[targets.one]\ndsn = 'pgio'"] {
        let experiment = read(&format!("{text}\n[[condition]]\nname = 'a'\n"));
        let target = experiment.target_of(&experiment.conditions[0]);
        assert_eq!(target, Some(&server("pgio")));
    }
}

#[test]
fn targets_name_their_hosts() {
    let experiment = read(
        "[hosts.db1]\nssh = 'postgres@db1'\n[hosts.db2]\nssh = 'db2'\nssh_config = '/x/ssh'\n\
         [hosts.here]\n[targets.a]\ndsn = 'x'\nhost = 'db1'\nstandby_host = 'db2'\ndevice = 'vdb'\n\
         [targets.b]\ndsn = 'y'\nhost = 'local'\n\
         [[condition]]\nname = 'a'\ntarget = 'a'\n",
    );
    let db2 = HostSpec { ssh: Some("db2".to_owned()), ssh_config: Some(PathBuf::from("/x/ssh")) };
    assert_eq!(experiment.hosts["db2"], db2);
    assert_eq!(db2.absolute(), db2);
    let here = std::env::current_dir().unwrap();
    let relative = HostSpec { ssh_config: Some(PathBuf::from("x/ssh")), ..db2 };
    assert_eq!(relative.absolute().ssh_config, Some(here.join("x/ssh")));
    assert_eq!(experiment.hosts["here"], HostSpec::default());
    let Target::Server { host, standby_host, device, .. } = &experiment.targets["a"] else {
        panic!()
    };
    assert_eq!((host.as_deref(), standby_host.as_deref()), (Some("db1"), Some("db2")));
    assert_eq!(device.as_deref(), Some("vdb"));
    let Target::Server { host, .. } = &experiment.targets["b"] else { panic!() };
    assert_eq!(host.as_deref(), Some("local"), "requires no section");
}

#[test]
fn control_methods() {
    let control = |text: &str| {
        let file = format!("[target]\ndsn = 'x'\ncontrol = '{text}'\n[[condition]]\nname = 'a'\n");
        parse(&file, "x.toml", "x", &[], &[])
    };
    let method = |text: &str| match &control(text).unwrap().targets[SINGLE_TARGET] {
        Target::Server { control, .. } => control.clone().unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(method("pg_ctl"), ControlMethod::PgCtl);
    let unit = |name: &str| ControlMethod::Systemctl { unit: name.to_owned() };
    assert_eq!(method("systemctl postgresql@15-main"), unit("postgresql@15-main.service"));
    assert_eq!(method("systemctl pg.service"), unit("pg.service"));
    for wrong in ["", "pg_ctl restart", "systemctl", "systemctl a b", "systemctl --user", "service"]
    {
        let error = control(wrong).unwrap_err().to_string();
        assert!(error.starts_with("x.toml:3: target.control: must be \"pg_ctl\" or"), "{error}");
    }
}

#[test]
fn errors_in_hosts_name_the_line() {
    for (lines, expected) in [
        (
            "[target]\ndsn = 'x'\nhost = 'db1'",
            "x.toml:3: target.host: `db1` is not a host; add [hosts.db1] with ssh = \"user@host\"",
        ),
        (
            "[hosts.db1]\n[target]\ndsn = 'x'\nstandby_host = 'db2'",
            "x.toml:4: target.standby_host: `db2` is not a host; the nearest valid one is `db1`",
        ),
        (
            "[hosts.db1]\nport = 22",
            "x.toml:2: hosts.db1.port: is an unknown key; valid names: ssh, ssh_config",
        ),
        (
            "[hosts.db1]\nssh = 'a -p 22'",
            "x.toml:2: hosts.db1.ssh: must be one word, such as \"postgres@db1\"; write ports and keys in \
             ~/.ssh/config or in ssh_config",
        ),
        (
            "[hosts.db1]\nssh_config = 'x'",
            "x.toml:2: hosts.db1.ssh_config: requires ssh = \"user@host\"",
        ),
        (
            "[hosts.local]\nssh = 'a'",
            "x.toml:2: hosts.local.ssh: cannot be set for `local`, which is always this machine; use another \
             name",
        ),
        (
            "[hosts.local]\n[hosts.db1]\nssh = 'db1'\n[hosts.db2]",
            "x.toml:1: hosts.local: is this machine, because it has no ssh, and so is `db2`; write ssh = \"user@host\" \
             in one of them, or remove one",
        ),
        ("[hosts.'a b']", "x.toml:1: hosts.a b: is not a valid host name; use one word"),
        ("[hosts]\ndb1 = 'x'", "x.toml:2: hosts.db1: must be a table, but is of type string"),
        (
            "[hosts.db1]\n[target]\nprivate = true\nhost = 'db1'",
            "x.toml:4: target.host: cannot be set with private = true",
        ),
    ] {
        assert_eq!(error_of(lines), expected);
    }
}

#[test]
fn the_shipped_examples() {
    let sync = include_str!("../../../../../examples/sync-commit-quick.toml");
    let sync = parse(sync, "sync-commit-quick.toml", "sync-commit", TREATMENTS, CHECKS).unwrap();
    assert_eq!(sync.name, "sync-commit");
    assert_eq!(sync.baseline, "local");
    let [commit, slob] = sync.workloads.as_slice() else { panic!("two workloads") };
    assert_eq!(sync.conditions_of(commit).count(), 5);
    let names: Vec<_> = sync.conditions_of(slob).map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["local", "on", "remote_apply"]);
    SlobSettings::resolve(slob.layer.clone()).unwrap();

    let fixed = include_str!("../../../../../examples/commit-10000.toml");
    let fixed = parse(fixed, "commit-10000.toml", "commit-10000", TREATMENTS, CHECKS).unwrap();
    let settings = CommitSettings::resolve(fixed.workloads[0].layer.clone()).unwrap();
    assert_eq!(settings.extent, Extent::Transactions(10_000));
    assert_eq!(fixed.conditions.len(), 2);
}

#[test]
fn invalid_toml_names_its_line() {
    assert_eq!(
        error("[experiment]\nname = unquoted\n"),
        "x.toml:2: string values must be quoted, expected literal string"
    );
    assert_eq!(error("a = 1\na = 2\n"), "x.toml:2: duplicate key");
    let secret = error("[target]\ndsn = 'host=h password=hunter2\n");
    assert!(secret.starts_with("x.toml:2: ") && !secret.contains("hunter2"), "{secret}");
}

#[test]
fn unknown_keys_suggest_the_nearest_key() {
    for (lines, message) in [
        ("[experimnt]", "1: experimnt: is an unknown key; the nearest valid one is `experiment`"),
        (
            "[experiment]\nblocs = 6",
            "2: experiment.blocs: is an unknown key; the nearest valid one is `blocks`",
        ),
        ("[target]\ndns = ''", "2: target.dns: is an unknown key; the nearest valid one is `dsn`"),
        (
            "[workload]\n\nupdate_pc = 1",
            "3: workload.update_pc: is an unknown key; the nearest valid one is `update_pct`",
        ),
    ] {
        assert_eq!(error_of(lines), format!("x.toml:{message}"));
    }
    assert_eq!(
        condition_error("name = 'b'\npostgers = {}"),
        "x.toml:5: condition.postgers: is an unknown key; the nearest valid one is `postgres`"
    );
}

#[test]
fn wrong_types() {
    for (lines, message) in [
        ("experiment = 1", "1: experiment: must be a table, but is of type integer"),
        ("[experiment]\nname = 1", "2: experiment.name: must be a string, but is of type integer"),
        (
            "[experiment]\naa = 'yes'",
            "2: experiment.aa: must be true or false, but is of type string",
        ),
        (
            "[experiment]\nblocks = '6'",
            "2: experiment.blocks: must be a whole number, but is of type string",
        ),
        (
            "[experiment]\nwarmup = 1.5",
            "2: experiment.warmup: must be a duration such as \"10s\", but is of type float",
        ),
        (
            "[workload]\nupdate_pct = '10'",
            "2: workload.update_pct: must be of type integer, but is of type string",
        ),
        (
            "[workload]\nscale = 1.5",
            "2: workload.scale: must be of type string or integer, but is of type float",
        ),
        (
            "[workload]\nconditions = ['a', 1]",
            "2: workload.conditions: must be an array of strings, but is of type array",
        ),
    ] {
        assert_eq!(error_of(lines), format!("x.toml:{message}"));
    }
}

#[test]
fn values_out_of_range() {
    for (lines, message) in [
        ("blocks = 0", "blocks: must be a whole number from 1 to 10000, not `0`"),
        ("blocks = -6", "blocks: must be a whole number from 1 to 10000, not `-6`"),
        ("duration = 0", "duration: must be above zero"),
        (
            "duration = 'long'",
            "duration: `long` is not a duration: use a whole number with ms, s, m or h, for \
             example 500ms or 2s",
        ),
        ("name = ' '", "name: must be one line of text without leading or trailing spaces"),
        ("name = \"a\\nb\"", "name: must be one line of text without leading or trailing spaces"),
    ] {
        assert_eq!(
            error_of(&format!("[experiment]\n{lines}")),
            format!("x.toml:2: experiment.{message}")
        );
    }
    assert_eq!(
        error_of("[workload]\nupdate_pct = 101"),
        "x.toml:2: workload.update_pct: must be a whole number from 0 to 100, not `101`"
    );
}

#[test]
fn a_baseline_must_be_a_condition() {
    assert_eq!(
        error_of("[experiment]\nbaseline = 'aa'"),
        "x.toml:2: experiment.baseline: `aa` is not a condition; the nearest valid one is `a`"
    );
}

#[test]
fn targets() {
    for (lines, message) in [
        (
            "[target]\ndsn = 'a'\n[targets.b]\ndsn = 'b'",
            "3: targets: conflicts with [target]; rename [target] to [targets.NAME]",
        ),
        ("[target]", "1: target: requires dsn = \"...\" or private = true"),
        (
            "[target]\nprivate = true\ndsn = 'a'",
            "3: target.dsn: conflicts with private = true; keep only one of them",
        ),
        ("[target]\ndsn = 'a'\npg = 18", "3: target.pg: requires private = true"),
        (
            "[target]\nprivate = true\ndirectory = 'here'",
            "3: target.directory: must be an absolute path, such as \"/mnt/disk\"",
        ),
        (
            "[target]\nprivate = true\npg = 9",
            "3: target.pg: must be a whole number from 13 to 99, not `9`",
        ),
        (
            "[targets.b]\ndsn = 'b'\n[targets.c]\ndsn = 'c'",
            "5: condition: has no target; set target to one of b, c",
        ),
    ] {
        assert_eq!(error_of(lines), format!("x.toml:{message}"));
    }
    assert_eq!(
        condition_error("name = 'b'\ntarget = 'east'"),
        "x.toml:5: condition.target: `east` is not a target; add [targets.east]"
    );
    assert_eq!(
        condition_error("name = 'b'\ntarget = 'eats'\n[targets.east]\ndsn = ''"),
        "x.toml:5: condition.target: `eats` is not a target; the nearest valid one is `east`"
    );
}

#[test]
fn conditions() {
    assert_eq!(
        error("[experiment]\n"),
        "x.toml:1: has no condition; write [[condition]] with a name and treatments"
    );
    assert_eq!(
        condition_error("drbd = 'C'"),
        "x.toml:3: condition: has no name; write name = \"...\""
    );
    assert_eq!(
        condition_error("name = 'a'"),
        "x.toml:4: condition.name: `a` is the name of two conditions"
    );
    for name in ["a (A/A)", "(A/A)"] {
        assert_eq!(
            condition_error(&format!("name = '{name}'")),
            "x.toml:4: condition.name: must not end with (A/A), which is the name of the condition \
             that pgio adds"
        );
    }
    for key in ["workload = {}", "update_pct = 10"] {
        let name = key.split(' ').next().unwrap();
        assert_eq!(
            condition_error(&format!("name = 'b'\n{key}")),
            format!(
                "x.toml:5: condition.{name}: is not a treatment; conditions differ only in \
                 treatments, so write workload keys in [workload]"
            )
        );
    }
    assert_eq!(
        condition_error("name = 'b'\ncommand = 99999999999999999999"),
        "x.toml:5: condition.command: invalid type: integer `99999999999999999999` as i128, \
         expected any valid TOML value"
    );
}

#[test]
fn workloads() {
    for (lines, message) in [
        (
            "[workload]\nkind = 'tpcc'",
            "2: workload.kind: `tpcc` is not a workload; valid names: slob, commit, device, command, mail",
        ),
        (
            "[workload]\nkind = 'commit'\nupdate_pct = 10",
            "3: workload.update_pct: does not apply to the workload `commit`; delete it",
        ),
        (
            "[workload]\nconnect_string = 'x'",
            "2: workload.connect_string: belongs to the target; write dsn = \"...\" in [target]",
        ),
        (
            "[workload]\nkind = 'commit'\nrun_time = 10\ntransactions = 5",
            "4: workload.transactions: conflicts with run_time; keep only one of them",
        ),
        (
            "[[workload]]\nkind = 'slob'\n[[workload]]\nkind = 'slob'",
            "3: workload.name: `slob` is the name of two workloads; use different names",
        ),
        (
            "[workload]\nname = '../../x'",
            "2: workload.name: must be usable as a directory name: letters a to z and A to Z, digits, \
             `_`, `-`, `.` and inner spaces, at most 64 characters, not beginning with `.` or `-`",
        ),
        (
            "[workload]\nconditions = ['a', 'c']",
            "2: workload.conditions: `c` is not a condition; the nearest valid one is `a`",
        ),
        (
            "[workload]\nconditions = ['b']",
            "2: workload.conditions: must include the baseline `a`, because the others are \
             compared with it",
        ),
    ] {
        assert_eq!(error_of(lines), format!("x.toml:{message}"));
    }
}

#[test]
fn a_number_of_transactions_replaces_the_duration() {
    let text = "[experiment]\nduration = 5\n[workload]\nkind = 'commit'\ntransactions = 10\n\
                [[condition]]\nname = 'a'\n";
    assert_eq!(read(text).workloads[0].layer.run_time, None);
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in "(\\PC|\n|\r|\t)*") {
        let _ = parse(&text, "x", "x", TREATMENTS, CHECKS);
    }

    #[test]
    fn arbitrary_keys_and_values_do_not_panic(lines in prop::collection::vec(
        prop::sample::select(&[
            "[experiment]", "[target]", "[targets.a]", "[workload]", "[[workload]]",
            "[[condition]]", "[condition.drbd]", "name = 'a'", "name = 'b'", "name = ''",
            "blocks = 1", "seed = -1", "seed = 0x", "baseline = 'b'", "target = 'a'", "dsn = 'x'",
            "private = true", "kind = 'commit'", "conditions = []", "conditions = 1",
            "scale = 1", "warmup = ''", "experiment = []", "workload = [1]", "condition = 'é'",
            "condition.name = 'a'", "targets = { é = {} }",
        ]), 0..12))
    {
        let _ = parse(&lines.join("\n"), "x", "x", TREATMENTS, CHECKS);
    }

    #[test]
    fn quoted_names_round_trip(name in "[^\\pC\\s]([^\\pC]*[^\\pC\\s])?") {
        prop_assume!(!name.ends_with("(A/A)"));
        let quoted = toml::Value::String(name.clone());
        prop_assert_eq!(&read(&format!("[[condition]]\nname = {quoted}\n")).baseline, &name);
    }
}

#[test]
fn rules_of_the_loop() {
    let rules =
        |lines: &str| read(&format!("[experiment]\n{lines}\n[[condition]]\nname = 'a'\n")).rules;
    let parsed =
        rules("precision = '2.5 %'\nrepeats = 0\nreset = 'reload'\ntolerate = ['foreign-load']");
    assert_eq!(parsed.precision, Some(0.025));
    assert_eq!((parsed.max_blocks, parsed.repeats), (30, 0));
    assert_eq!(parsed.reset, Reset::Reload);
    assert_eq!(parsed.tolerate, ["foreign-load"]);
    assert_eq!(rules("blocks = 40\nprecision = '5%'").max_blocks, 40);
    assert_eq!(rules("precision = '5%'\nmax_blocks = 8").max_blocks, 8);
    let named = Reset::Recreate { named: Some("bench".to_owned()) };
    assert_eq!(rules("reset = 'recreate'\nrecreate_database = 'bench'").reset, named);
    let private =
        "[experiment]\nreset = 'recreate'\n[target]\nprivate = true\n[[condition]]\nname = 'a'\n";
    assert_eq!(read(private).rules.reset, Reset::Recreate { named: None });
}

#[test]
fn invalid_rules_are_refused() {
    let error_of = |line: &str| error_of(&format!("[experiment]\n{line}"));
    insta::assert_snapshot!(error_of("precision = '5'"), @"x.toml:2: experiment.precision: must be a share from 0.1% to below 100% such as \"5%\", not `5`");
    insta::assert_snapshot!(error_of("precision = '0%'"), @"x.toml:2: experiment.precision: must be a share from 0.1% to below 100% such as \"5%\", not `0%`");
    insta::assert_snapshot!(error_of("max_blocks = 9"), @"x.toml:2: experiment.max_blocks: requires precision; add precision = \"5%\", or set blocks instead");
    insta::assert_snapshot!(error_of("max_blocks = 5\nprecision = '5%'"), @"x.toml:2: experiment.max_blocks: must be a whole number from 6 to 10000, not `5`");
    insta::assert_snapshot!(error_of("reset = 'relaod'"), @"x.toml:2: experiment.reset: cannot be `relaod`; the nearest valid one is `reload`");
    insta::assert_snapshot!(error_of("reset = 'recreate'"), @"x.toml:2: experiment.reset: recreate drops the database; to confirm, set recreate_database = \"NAME\"");
    insta::assert_snapshot!(error_of("recreate_database = 'x'"), @"x.toml:2: experiment.recreate_database: requires reset = \"recreate\"");
    insta::assert_snapshot!(error_of("tolerate = ['forein-load']"), @"x.toml:2: experiment.tolerate: `forein-load` is not a check that can make a trial invalid; the nearest valid one is `foreign-load`");
    insta::assert_snapshot!(error_of("tolerate = 'all'"), @"x.toml:2: experiment.tolerate: must be an array of strings, but is of type string");
}

/// Returns a valid file with these lines in one of its sections.
fn with_lines_in(title: &str, lines: &str) -> String {
    let at = |section: &str, own: &str| {
        // The key under test replaces the file's own.
        let tried = lines.split(' ').next().filter(|_| section == title);
        let own = own.lines().filter(|line| line.split(' ').next() != tried);
        let own = own.collect::<Vec<_>>().join("\n");
        if section == title { format!("{own}\n{lines}\n") } else { format!("{own}\n") }
    };
    let is_command = ["[workload] with kind = \"command\"", "[[workload.metric]]"].contains(&title);
    let work = match is_command {
        true => {
            at("[workload] with kind = \"command\"", "kind = 'command'\nrun = 'work {seconds}'")
        }
        false => at("[workload], [[workload]]", "kind = 'commit'"),
    };
    // The key under test may be the array itself, or conflict with regex.
    let find = if lines.starts_with("json ") { "" } else { "regex = 'x'" };
    let metric = match is_command && !lines.starts_with("metric ") {
        true => format!(
            "[[workload.metric]]\n{}",
            at("[[workload.metric]]", &format!("name = 'm'\nunit = 's'\nbetter = 'lower'\n{find}"))
        ),
        false => String::new(),
    };
    let axis = match title == "[[axis]]" {
        true => {
            at("[[axis]]", "[[axis]]\nname = 'd'\nvalues = [1, 2, 3]\npostgres = { a = '{d}' }")
        }
        false => String::new(),
    };
    format!(
        "[experiment]\n{}[target]\n{}[hosts.h]\n{}[workload]\n{work}{metric}{axis}[[condition]]\n{}",
        at("[experiment]", ""),
        at("[target], [targets.NAME]", "dsn = 'x'"),
        at("[hosts.NAME]", "ssh = 'x'"),
        at("[[condition]]", "name = 'a'"),
    )
}

/// The parser reads every key of the table: it refuses a value that no key takes, and names the key.
/// `only_keys_of` refuses all other keys.
#[test]
fn the_parser_reads_exactly_the_keys_of_the_table() {
    const NO_VALUE: &str = "1979-05-27T07:32:00Z";
    let refused = |title: &str, key: &str| {
        let text = with_lines_in(title, &format!("{key} = {NO_VALUE}"));
        parse(&text, "x.toml", "x", TREATMENTS, CHECKS)
            .expect_err(&format!("{title} {key} is not read:\n{text}"))
    };
    for section in sections::SECTIONS {
        read(&with_lines_in(section.title, ""));
        for key in section.keys {
            let error = refused(section.title, key.name);
            let named = error.key.clone().unwrap_or_default();
            assert_eq!(named.rsplit('.').next(), Some(key.name), "{}: {error}", section.title);
            assert!(!error.message.contains("unknown key"), "{}: {error}", section.title);
        }
        let error = refused(section.title, "no_such_key");
        assert!(error.message.contains("unknown key"), "{}: {error}", section.title);
    }
}

#[test]
fn judged_conditions_and_metrics_must_exist() {
    let file = |head: &str| {
        format!(
            "[experiment]\n{head}\n[[condition]]\nname = 'a'\n[[condition]]\nname = 'b'\n\
             [[condition]]\nname = 'c'\n"
        )
    };
    let question =
        |head: &str| parse(&file(head), "f.toml", "f", &[], &[]).map(|e| e.rules.question);
    let parsed = question("judge = ['c']\nalso_judge = ['riops']\neffect = '5%'").unwrap();
    let expected = Question {
        judge: vec!["c".to_owned()],
        also_judge: vec!["riops".to_owned()],
        effect: Some(0.05),
    };
    assert_eq!(parsed, expected);
    for (head, message) in [
        ("judge = ['d']", "`d` is not a condition other than the baseline"),
        ("judge = ['a']", "`a` is not a condition other than the baseline"),
        ("judge = []", "names no condition"),
        ("judge = ['b', 'b']", "names `b` twice"),
        ("effect = '0%'", "must be a share from 0.1% to below 100%"),
        ("effect = 'five'", "must be a share from 0.1% to below 100%"),
    ] {
        let error = question(head).unwrap_err().to_string();
        assert!(error.contains(message), "{head}: {error}");
    }
}
