//! Valid commands, and errors with their lines.

use super::super::{Experiment, WorkloadSpec, parse as parse_file};
use super::*;
use crate::config::command::{
    Better, Combine, CommandSettings, Extractor, MatchChoice, OutputSource,
};

const METRIC: &str = "[[workload.metric]]\nname = 'tps'\nunit = 'tx/s'\nbetter = 'higher'\nregex = 'tps = ([0-9.]+)'\n";

fn read(workload: &str) -> Result<Experiment, ConfigError> {
    let text = format!("[workload]\nkind = 'command'\n{workload}[[condition]]\nname = 'a'\n");
    parse_file(&text, "x.toml", "x", &[], &[])
}

fn only(workload: &str) -> WorkloadSpec {
    read(workload).unwrap_or_else(|e| panic!("{e}")).workloads.remove(0)
}

fn spec(workload: &str) -> CommandSpec {
    only(workload).command.unwrap()
}

fn refused(workload: &str) -> String {
    read(workload).unwrap_err().to_string()
}

fn words(line: &Line) -> Vec<&str> {
    line.texts().map(Template::text).collect()
}

#[test]
fn a_command_with_all_keys() {
    let workload = only(
        "run = ['prog', '-c', '{sessions}', '-T', '{seconds}', '{n}']\nwarm_up = ['prog', '{warmup}']\n\
         setup = 'prog init | grep ok'\nsetup_once = true\nsetup_limit = '5m'\ncleanup = ['rm', '{dir}/x']\n\
         host = 'client'\nschema = 'mine'\nenv = { A = '{seed}' }\nparameters = { n = 4 }\n\
         time_limit = '90s'\nsessions = 8\nrun_time = '30s'\nwarmup = '5s'\n\
         metric = [{ name = 'a', unit = 's', better = 'lower', json = ['/a', '/b'], file = '{dir}/x', scale = 1, optional = true, combine = 'max' },\n\
                   { name = 'b', unit = 'x', better = 'neither', regex = 'x', from = 'stderr', take = 'sum', skip = 2, primary = true }]\n",
    );
    let spec = workload.command.clone().unwrap();
    assert_eq!(words(&spec.run), ["prog", "-c", "{sessions}", "-T", "{seconds}", "{n}"]);
    assert_eq!(spec.setup, Some(Line::Shell(Template::new("prog init | grep ok"))));
    assert!(spec.setup_once);
    assert_eq!(spec.setup_limit, Duration::from_secs(300));
    assert_eq!((spec.host.as_deref(), spec.schema.as_deref()), (Some("client"), Some("mine")));
    assert_eq!(spec.parameters["n"].text(), "4");
    let [primary, other] = spec.metrics.as_slice() else { panic!("two") };
    assert_eq!(
        (primary.name.as_str(), primary.better, &primary.source),
        ("b", Better::Neither, &OutputSource::Stderr)
    );
    let Extractor::Regex { take, skip, .. } = &primary.extractor else { panic!("a regex") };
    assert_eq!((*take, *skip), (MatchChoice::Sum, 2));
    assert_eq!((primary.optional, other.optional), (false, true));
    assert_eq!((primary.combine, other.combine), (None, Some(Combine::Max)));
    assert_eq!(other.extractor, Extractor::Json(vec!["/a".to_owned(), "/b".to_owned()]));
    assert_eq!(other.source, OutputSource::File(Template::new("{dir}/x")));

    let settings = CommandSettings::resolve(spec, workload.layer);
    assert_eq!(settings.run_time, Some(Duration::from_secs(30)));
    assert_eq!(settings.time_limit, Duration::from_secs(90));
    assert_eq!((settings.sessions, settings.warmup), (8, Duration::from_secs(5)));
}

#[test]
fn a_time_that_the_program_does_not_take_is_refused() {
    for (keys, message) in [
        ("preset = 'pgbench'\nrun_time = '500ms'\n", "window of 500ms, and pgbench counts"),
        ("preset = 'pgbench'\nwarmup = '1500ms'\n", "warm-up of 1500ms, and pgbench"),
        ("preset = 'sysbench-oltp_insert'\nrun_time = '2500ms'\n", "2500ms, and sysbench"),
    ] {
        assert!(refused(keys).contains(message), "{}", refused(keys));
    }
    let own =
        format!("run = 'cd x && /usr/bin/pgbench -T {{seconds}}'\nrun_time = '1500ms'\n{METRIC}");
    assert!(refused(&own).contains("window of 1500ms, and pgbench counts"), "{}", refused(&own));
    only(&format!("run = 'prog {{seconds}}'\nrun_time = '1500ms'\n{METRIC}"));
}

#[test]
fn a_command_without_seconds_has_no_run_time() {
    let workload = only(&format!("run = 'prog'\n{METRIC}"));
    assert_eq!(workload.layer.warmup, Some(Duration::ZERO), "the experiment's does not apply");
    let settings = CommandSettings::resolve(workload.command.unwrap(), workload.layer);
    assert_eq!(settings.run_time, None);
    // Derived from the experiment's duration of 10 s.
    assert_eq!(settings.time_limit, Duration::from_secs(90));
    assert!(settings.spec.metrics[0].primary, "the only metric is primary");
}

#[test]
fn every_preset_parses() {
    let names = presets();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let parameters = match name.as_str() {
            "pgbench-script" => "script = 'x.sql'",
            "fio" => "job = 'x.fio'",
            "postal" => "server = 'localhost', users = 'list'",
            _ => "",
        };
        let spec = spec(&format!("preset = '{name}'\nparameters = {{ {parameters} }}\n"));
        assert_eq!(spec.preset.as_deref(), Some(name.as_str()));
        assert!(
            spec.primary().unwrap().primary && spec.primary().unwrap().better != Better::Neither,
            "{name}"
        );
        assert_eq!(
            spec.primary().unwrap().combine,
            Some(Combine::Sum),
            "{name}: several drivers can run it"
        );
    }
}

#[test]
fn keys_override_the_preset() {
    let spec = spec(
        "preset = 'pgbench-S'\nsetup = []\nschema = ''\nparameters = { threads = 4 }\n\
         metric = [{ name = 'mine', unit = 's', better = 'lower', regex = 'x', primary = true }]\n",
    );
    assert_eq!((spec.setup.is_none(), spec.schema.is_none()), (true, true));
    assert_eq!(spec.parameters["threads"].text(), "4");
    assert_eq!(spec.parameters["builtin"].text(), "select-only");
    assert_eq!(spec.primary().unwrap().name, "mine");
    assert_eq!(spec.metrics.iter().filter(|m| m.primary).count(), 1);
    assert!(spec.metrics.len() > 2, "the preset's metrics are included");
}

#[test]
fn errors_name_line_and_key() {
    let with = |keys: &str| refused(&format!("{keys}\n{METRIC}"));
    insta::assert_snapshot!(with(""), @"x.toml:1: workload.run: is missing; set run = [\"program\", \"argument\", …] or a preset");
    insta::assert_snapshot!(with("run = 3"), @"x.toml:3: workload.run: must be a list of words, [\"program\", \"argument\"], or a command line for sh");
    insta::assert_snapshot!(with("run = ['']"), @"x.toml:3: workload.run: begins with an empty word instead of a program");
    insta::assert_snapshot!(with("rum = 'x'"), @"x.toml:3: workload.rum: is an unknown key; the nearest valid one is `run`");
    insta::assert_snapshot!(with("preset = 'pgbensh'"), @"x.toml:3: workload.preset: `pgbensh` is not a preset; the nearest valid one is `pgbench`");
    insta::assert_snapshot!(with("run = 'p {secs}'"), @"x.toml:1: workload: contains unknown placeholder {secs}; the nearest valid one is `seed` (parameters = { secs = … } defines it, {{secs}} is literal text)");
    insta::assert_snapshot!(with("run = 'p {schema}'"), @"x.toml:1: workload: contains {schema}; set schema = \"…\"");
    insta::assert_snapshot!(with("run = 'p {warmup}'\nwarm_up = 'p'"), @"x.toml:1: workload: has both warm_up and {warmup} in another line; keep only one of them");
    insta::assert_snapshot!(with("run = 'p'\nrun_time = 5"), @"x.toml:4: workload.run_time: has no effect; the command does not contain {seconds}");
    insta::assert_snapshot!(with("run = 'p'\nsessions = 5"), @"x.toml:4: workload.sessions: has no effect; the command does not contain {sessions}");
    insta::assert_snapshot!(with("run = 'p'\nwarmup = 5"), @"x.toml:4: workload.warmup: has no effect; the command does not contain {warmup} and has no warm_up");
    insta::assert_snapshot!(with("run = 'p'\nscale = 5"), @"x.toml:4: workload.scale: does not apply to the workload `command`; delete it");
    insta::assert_snapshot!(with("run = 'p'\nsetup_once = true"), @"x.toml:4: workload.setup_once: requires setup");
    insta::assert_snapshot!(with("run = 'p'\nschema = 'public'"), @"x.toml:4: workload.schema: is a system schema; choose another name, because pgio creates and drops the schema");
    insta::assert_snapshot!(with("run = 'p'\nschema = 'My Schema'"), @"x.toml:4: workload.schema: must be a name of at most 63 letters a-z, digits and _, such as \"pgio_command\"");
    insta::assert_snapshot!(with("run = 'p'\nenv = { PGHOST = 'x' }"), @"x.toml:4: workload.env.PGHOST: cannot be set, because pgio sets it from the target and the condition; see dsn in [target]");
    insta::assert_snapshot!(with("run = 'p'\nparameters = { n = 1 }"), @"x.toml:4: workload.parameters: `n` is unused; no text contains {n}");
    insta::assert_snapshot!(with("run = 'p'\nparameters = { seed = 1 }"), @"x.toml:4: workload.parameters: `seed` is a predefined placeholder; choose another name");
    insta::assert_snapshot!(refused("preset = 'pgbench-script'\n"), @"x.toml:1: workload.parameters: `script` is missing; set parameters = { script = \"…\" }");
    insta::assert_snapshot!(with("run = 'p'\ntime_limit = 0"), @"x.toml:4: workload.time_limit: must be above zero");
    insta::assert_snapshot!(
        parse_file(&format!("[workload]\nkind = 'commit'\nrun = 'p'\n{METRIC}[[condition]]\nname = 'a'\n"), "x.toml", "x", &[], &[]).unwrap_err(),
        @"x.toml:3: workload.run: does not apply to the workload `commit`; delete it"
    );
}

#[test]
fn errors_in_metrics_name_line_and_key() {
    let with = |keys: &str| refused(&format!("run = 'p'\n[[workload.metric]]\n{keys}\n"));
    let named = |keys: &str| with(&format!("name = 'm'\nunit = 's'\nbetter = 'lower'\n{keys}"));
    insta::assert_snapshot!(refused("run = 'p'\n"), @"x.toml:1: workload.metric: is missing; add at least one [[workload.metric]] with name, unit, better, and json or regex");
    insta::assert_snapshot!(with("unit = 's'"), @"x.toml:4: workload.metric.name: is missing; set name = \"transactions_per_second\"");
    insta::assert_snapshot!(with("name = 'My TPS'\nunit = 's'"), @"x.toml:5: workload.metric.name: must consist of letters a-z, digits and _");
    insta::assert_snapshot!(with("name = 'm'\nunit = 's'"), @"x.toml:4: workload.metric.better: is missing; set higher, lower or neither");
    insta::assert_snapshot!(with("name = 'm'\nunit = 's'\nbetter = 'hihger'"), @"x.toml:7: workload.metric.better: cannot be `hihger`; the nearest valid one is `higher`");
    insta::assert_snapshot!(named("regex = 'x'\ncombine = 'add'"), @"x.toml:9: workload.metric.combine: cannot be `add`; valid names: sum, mean, max, min");
    insta::assert_snapshot!(named(""), @"x.toml:4: workload.metric.regex: and json are missing; set for example regex = \"tps = ([0-9.]+)\" or json = \"/a/b\"");
    insta::assert_snapshot!(named("regex = 'x'\njson = '/x'"), @"x.toml:8: workload.metric.regex: conflicts with json; keep only one of them");
    insta::assert_snapshot!(named("json = 'x'"), @"x.toml:8: workload.metric.json: `x` is not a JSON pointer, because it does not begin with `/`");
    insta::assert_snapshot!(named("json = '/x'\ntake = 'sum'"), @"x.toml:9: workload.metric.take: requires regex");
    insta::assert_snapshot!(named("regex = 'x'\nscale = 0"), @"x.toml:9: workload.metric.scale: must be a number above 0, such as 0.001");
    insta::assert_snapshot!(named("regex = 'x'\nfile = 'a'\nfrom = 'stdout'"), @"x.toml:10: workload.metric.from: conflicts with file; keep only one of them");
    assert!(
        named("regex = 'tps = ([0-9'")
            .starts_with("x.toml:8: workload.metric.regex: is not a valid regular expression: ")
    );
    let two = |more: &str| {
        refused(&format!("run = 'p'\n{METRIC}{more}{}", METRIC.replace("tps'", "tps2'")))
    };
    insta::assert_snapshot!(two(""), @"x.toml:4: workload.metric: has no primary metric; write primary = true in one [[workload.metric]]");
    let optional = |more: &str| refused(&format!("run = 'p'\n{METRIC}optional = true\n{more}"));
    insta::assert_snapshot!(optional("primary = true\n"), @"x.toml:4: workload.metric: `tps` is the primary metric and cannot be optional; delete optional, or write primary = true in another metric");
    // A single metric is primary even if the file does not mark it.
    assert_eq!(optional(""), optional("primary = true\n"));
    let same = refused(&format!("run = 'p'\n{METRIC}{METRIC}"));
    insta::assert_snapshot!(same, @"x.toml:10: workload.metric.name: `tps` is the name of two metrics");
}

#[test]
fn the_experiment_may_name_another_primary_metric() {
    let own = METRIC.replace("'tps'", "'rows'").replace("regex", "primary = true\nregex");
    let text = format!(
        "[experiment]\nprimary = 'tps'\n[workload]\nkind = 'command'\nrun = 'p'\n{METRIC}{own}\
         [[condition]]\nname = 'a'\n"
    );
    let mut experiment = parse_file(&text, "x.toml", "x", &[], &[]).unwrap();
    let spec = experiment.workloads.remove(0).command.unwrap();
    assert_eq!(spec.primary().unwrap().name, "rows", "drivers are weighted by the workload's own");
    let primary: Vec<(&str, bool, bool)> =
        spec.metrics.iter().map(|m| (m.name.as_str(), m.named_primary, m.is_primary())).collect();
    assert_eq!(primary, [("rows", false, true), ("tps", true, true)]);
}
