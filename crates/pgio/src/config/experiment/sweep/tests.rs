use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::config::experiment::{Experiment, parse};

fn parsed(text: &str) -> Result<Experiment, ConfigError> {
    parse(text, "x.toml", "x", &["postgres", "link", "command"], &[])
}

/// Parses a file with these lines of the workload, further lines, and two conditions.
fn read(workload: &str, rest: &str) -> Result<Experiment, ConfigError> {
    parsed(&format!(
        "[workload]\nkind = 'commit'\n{workload}\n{rest}\n[[condition]]\nname = 'a'\n\
         [[condition]]\nname = 'b'\npostgres = {{ synchronous_commit = 'off' }}\n"
    ))
}

fn error(workload: &str, rest: &str) -> String {
    read(workload, rest).unwrap_err().to_string()
}

const DELAY: &str = "[[axis]]\nname = 'delay'\nunit = 'ms'\nvalues = [0, 1, 5]\nmiddle = 1\n\
                     link = { relay = true, delay = '{delay}ms' }";

/// Returns the values of each point as text.
fn points(e: &Experiment, kind: SweepKind) -> Vec<String> {
    let workload = &e.workloads[0];
    let text = |point: &PointSpec| {
        let values: Vec<String> = workload.at(point).map(|(_, v)| v.text()).collect();
        values.join(" ")
    };
    workload.points(kind).iter().map(text).collect()
}

#[test]
fn the_middle_of_a_list_is_its_first_value_unless_set() {
    let e = read("sessions = [1, 4]\nrows_per_transaction = [10, 100]", "").unwrap();
    assert_eq!(points(&e, SweepKind::OneAtATime), ["1 10", "4 10", "1 100"]);
    assert_eq!(points(&e, SweepKind::Grid), ["1 10", "1 100", "4 10", "4 100"]);
    assert_eq!(e.workloads[0].layer.sessions, Some(1));
    let lists = "sessions = [1, 4]\nrows_per_transaction = [10, 100]\nmiddle = { sessions = 4 }";
    let e = read(lists, "").unwrap();
    assert_eq!(points(&e, SweepKind::OneAtATime), ["4 10", "1 10", "4 100"]);
    let workload = &e.workloads[0];
    assert_eq!(workload.layer.sessions, Some(4));
    let last = workload.points(e.sweep).pop().unwrap();
    let layer = workload.layer_at(&last);
    assert_eq!((layer.sessions, layer.rows_per_transaction), (Some(4), Some(100)));
    assert_eq!(layer.warmup, workload.layer.warmup, "other keys stay");
}

#[test]
fn axis_treatments_apply_to_every_condition() {
    let e = read("sessions = [1, 4]", DELAY).unwrap();
    assert_eq!(points(&e, SweepKind::OneAtATime), ["1 1", "4 1", "1 0", "1 5"]);
    let workload = &e.workloads[0];
    let axes: Vec<bool> = workload.axes.iter().map(AxisSpec::varies_workload).collect();
    assert_eq!(axes, [true, false]);
    let five = &workload.points(e.sweep)[3];
    for condition in &e.conditions {
        let specs = workload.treatments_at(condition, five);
        let link = specs.iter().find(|s| s.kind == "link").unwrap();
        assert_eq!(link.body["delay"].as_str(), Some("5ms"));
        assert_eq!(specs.len(), condition.treatments.len() + 1);
    }
}

#[test]
fn axes_may_have_strings_merge_tables_and_fill_conditions() {
    let e = read(
        "",
        "[[axis]]\nname = 'fsync'\nvalues = ['on', 'off']\npostgres = { fsync = '{fsync}' }\n\
         [[axis]]\nname = 'amount'\nvalues = [1, 2]\n\
         [[condition]]\nname = 'c'\ncommand = { apply = 'x {amount} {fsync}' }",
    );
    let e = e.unwrap();
    let workload = &e.workloads[0];
    let off = &workload.points(e.sweep)[1];
    let specs = |name: &str| {
        let condition = e.conditions.iter().find(|c| c.name == name).unwrap();
        workload.treatments_at(condition, off)
    };
    let joined = specs("b");
    assert_eq!(joined.len(), 1);
    assert_eq!(joined[0].body["fsync"].as_str(), Some("off"));
    assert_eq!(joined[0].body["synchronous_commit"].as_str(), Some("off"));
    assert_eq!(specs("c")[0].body["apply"].as_str(), Some("x 1 off"));
}

#[test]
fn conditions_may_be_excluded_from_the_sweep() {
    let text = |name: &str| {
        format!(
            "[workload]\nkind = 'commit'\nsessions = [1, 4]\n[[condition]]\nname = 'a'\n\
                 [[condition]]\nname = '{name}'\nsweep = false\n[experiment]\nbaseline = 'b'\n"
        )
    };
    assert_eq!(
        parsed(&text("b")).unwrap_err().message,
        "cannot be false for the baseline, because the others are compared with it at every point"
    );
    let e = parsed(&text("b").replace("baseline = 'b'", "")).unwrap();
    assert_eq!(e.size_of(&e.workloads[0]).cells, 3);
}

#[test]
fn durations_and_sizes_have_a_numeric_value() {
    let text = "[workload]\nkind = 'device'\ntest = 'random_read'\nblock_size = ['4K', '1M']\n\
                [[condition]]\nname = 'a'\n";
    let e = parsed(text).unwrap();
    let at: Vec<Option<f64>> = e.workloads[0].axes[0].values.iter().map(|v| v.at).collect();
    assert_eq!(at, [Some(4096.0), Some(1_048_576.0)]);
}

#[test]
fn errors_name_line_and_key() {
    let slob = |line: &str| {
        parsed(&format!("[workload]\n{line}\n[[condition]]\nname = 'a'\n")).unwrap_err().to_string()
    };
    for (found, expected) in [
        (error("sessions = []", ""), "x.toml:3: workload.sessions: has fewer than two values"),
        (error("sessions = [4]", ""), "x.toml:3: workload.sessions: has fewer than two values"),
        (error("sessions = [4, 1, 4]", ""), "x.toml:3: workload.sessions: contains `4` twice"),
        (
            error("sessions = [4, 0]", ""),
            "x.toml:3: workload.sessions: must be a whole number from",
        ),
        (error("sessions = [4, '8']", ""), "x.toml:3: workload.sessions: must be a list of type"),
        (
            error("run_time = ['1s', '2s']", ""),
            "x.toml:3: workload.run_time: cannot be a list, because all trials",
        ),
        (
            slob("scale = ['8M', '16M']"),
            "x.toml:2: workload.scale: cannot be a list, because each value",
        ),
        (
            slob("num_schemas = [1, 2]"),
            "x.toml:2: workload.num_schemas: cannot be a list, because each",
        ),
        (
            slob("access = ['index', 'bitmap']"),
            "x.toml:2: workload.access: cannot be a list, because only whole",
        ),
        (
            error("sessions = [1, 4]\nmiddle = { sessions = 2 }", ""),
            "x.toml:4: workload.middle.sessions: must be one of 1, 4, not `2`",
        ),
        (
            error("sessions = [1, 4]\nmiddle = { payload = 2 }", ""),
            "x.toml:4: workload.middle.payload: is not a list of this workload; valid names: sessions",
        ),
        (
            error("middle = { sessions = 2 }", ""),
            "x.toml:3: workload.middle.sessions: is not a list of this workload; no key of this",
        ),
        (error("", "[[axis]]\nvalues = [1, 2]"), "x.toml:4: axis: has no name"),
        (error("", "[[axis]]\nname = 'd'"), "x.toml:4: axis: has no values"),
        (
            error("", "[[axis]]\nname = 'sessions'\nvalues = [1, 2]"),
            "x.toml:5: axis.name: `sessions` is a workload key",
        ),
        (
            error("", "[[axis]]\nname = 'a b'\nvalues = [1, 2]"),
            "x.toml:5: axis.name: must be a word",
        ),
        (
            error("", "[[axis]]\nname = 'd'\nvalues = [1, 'x']"),
            "x.toml:6: axis.values: must be all numbers or all strings",
        ),
        (
            error("", "[[axis]]\nname = 'd'\nvalues = [1, 2]\nmiddle = 3"),
            "x.toml:7: axis.middle: must be one of 1, 2, not `3`",
        ),
        (
            error("", "[[axis]]\nname = 'd'\nvalues = [1, 2]\nlink = { delay = '1ms' }"),
            "x.toml:4: axis: has no effect; add a treatment that contains {d}",
        ),
        (
            error("", "[[axis]]\nname = 'd'\nvalues = [1, 2]\nlnik = { delay = '{d}ms' }"),
            "x.toml:7: axis.lnik: is an unknown key; the nearest valid one is `link`",
        ),
        (
            error(
                "",
                "[[axis]]\nname = 'd'\nvalues = [1, 2]\npostgres = { synchronous_commit = '{d}' }",
            ),
            "x.toml:7: axis.postgres: conflicts with `postgres` in line 12, which also applies to condition `b`",
        ),
    ] {
        assert!(found.starts_with(expected), "{found}\nis not\n{expected}");
    }
    let several = "[workload]\nkind = 'commit'\n[[condition]]\nname = 'a'\n\
                   link = [{ interface = 'a' }, { interface = 'b' }]\n\
                   [[axis]]\nname = 'n'\nvalues = [1, 2]\nlink = { delay = '{n}ms' }";
    let several = parsed(several).unwrap_err().to_string();
    assert!(several.contains("condition `a` has several treatments `link`"), "{several}");
    assert!(several.contains("write {n} there instead"), "{several}");
    let twice = error("", &format!("{DELAY}\n{DELAY}"));
    assert!(twice.contains("`delay` is the name of two axes"), "{twice}");
}

proptest! {
    #[test]
    fn a_grid_has_every_combination_once_and_contains_the_star(
        lengths in prop::collection::vec(2usize..5, 1..4), middles in prop::collection::vec(0usize..5, 3),
    ) {
        let axis = |(n, (length, middle)): (usize, (&usize, &usize))| AxisSpec {
            name: format!("a{n}"),
            unit: None,
            values: (0..*length)
                .map(|v| AxisValueSpec {
                    value: toml::Value::Integer(v as i64),
                    at: Some(v as f64),
                    layer: Layer::default(),
                })
                .collect(),
            middle: middle % length,
            templates: Vec::new(),
        };
        let mut workload = read("", "").unwrap().workloads.remove(0);
        workload.axes = lengths.iter().zip(&middles).enumerate().map(axis).collect();
        let set = |kind| -> (usize, BTreeSet<Vec<usize>>) {
            let points = workload.points(kind);
            (points.len(), points.into_iter().map(|p| p.0).collect())
        };
        let (grid_length, grid) = set(SweepKind::Grid);
        let (star_length, star) = set(SweepKind::OneAtATime);
        prop_assert_eq!(grid_length, lengths.iter().product::<usize>());
        prop_assert_eq!(grid.len(), grid_length);
        prop_assert_eq!(star.len(), star_length);
        prop_assert!(star.is_subset(&grid));
        for kind in [SweepKind::Grid, SweepKind::OneAtATime] {
            prop_assert_eq!(workload.count_points(kind), workload.points(kind).len() as u64);
            let middle: Vec<usize> = workload.axes.iter().map(|a| a.middle).collect();
            prop_assert_eq!(&workload.points(kind)[0].0, &middle);
        }
    }
}
