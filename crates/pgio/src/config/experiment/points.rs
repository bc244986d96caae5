//! Sweeps: the points of a workload's axes, and what runs at each.
//!
//! A point has one value of every axis. The primary metric is judged at the middle point; a sweep
//! varies one axis at a time from there, or a grid runs every combination. A cell is a condition at a
//! point, and each block contains every cell once. [`super::size`] computes the size of a sweep.

use super::axis::{AxisSpec, AxisValueSpec, fill, merge};
use super::condition::{self, Condition, TreatmentSpec};
use super::section::Section;
use super::workload::WorkloadSpec;
use super::{Experiment, limits};
use crate::config::keys::Layer;
use crate::config::value::ConfigError;

use pgio_results::points::Combination;

/// A point: the index of a value for every axis of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointSpec(Vec<usize>);

impl WorkloadSpec {
    /// Returns all points, the middle point first.
    pub fn points(&self, kind: Combination) -> Vec<PointSpec> {
        let middle: Vec<usize> = self.axes.iter().map(|axis| axis.middle).collect();
        let mut points = vec![middle.clone()];
        match kind {
            Combination::OneAtATime => {
                for (n, axis) in self.axes.iter().enumerate() {
                    for value in (0..axis.values.len()).filter(|v| *v != axis.middle) {
                        let mut point = middle.clone();
                        point[n] = value;
                        points.push(point);
                    }
                }
            }
            Combination::Grid => {
                let mut grid = vec![Vec::new()];
                for axis in &self.axes {
                    let with = |point: &Vec<usize>| {
                        let longer = |value| [point.as_slice(), &[value]].concat();
                        (0..axis.values.len()).map(longer).collect::<Vec<_>>()
                    };
                    grid = grid.iter().flat_map(with).collect();
                }
                points.extend(grid.into_iter().filter(|point| *point != middle));
            }
        }
        points.into_iter().map(PointSpec).collect()
    }

    /// Counts the points without creating them: a grid may be too large.
    pub fn count_points(&self, kind: Combination) -> u64 {
        let values = self.axes.iter().map(|axis| axis.values.len() as u64);
        match kind {
            Combination::OneAtATime => 1 + values.map(|n| n - 1).sum::<u64>(),
            Combination::Grid => values.fold(1, u64::saturating_mul),
        }
    }

    /// Returns each axis with its value at the point.
    pub fn at<'a>(
        &'a self,
        point: &'a PointSpec,
    ) -> impl Iterator<Item = (&'a AxisSpec, &'a AxisValueSpec)> + 'a {
        self.axes.iter().zip(&point.0).map(|(axis, value)| (axis, &axis.values[*value]))
    }

    /// Returns the workload's keys at the point.
    pub fn layer_at(&self, point: &PointSpec) -> Layer {
        let all = self.at(point).map(|(_, value)| value.layer.clone());
        all.fold(self.layer.clone(), |layer, value| value.over(layer))
    }

    /// Returns the treatments of a single axis at one of its values, with all other axes at their middle.
    pub fn templates_at(&self, axis: usize, value: usize) -> Vec<TreatmentSpec> {
        let mut point: Vec<usize> = self.axes.iter().map(|axis| axis.middle).collect();
        point[axis] = value;
        self.filled(self.axes[axis].templates.clone(), &PointSpec(point))
    }

    /// Returns the treatments of a condition at a point: its own and the axes'.
    pub fn treatments_at(&self, condition: &Condition, point: &PointSpec) -> Vec<TreatmentSpec> {
        let mut specs = condition.treatments.clone();
        for template in self.axes.iter().flat_map(|axis| &axis.templates) {
            match specs.iter_mut().find(|spec| spec.kind == template.kind) {
                // The parser has checked that both are tables without a common key.
                Some(own) => {
                    merge(&mut own.body, &template.body);
                }
                None => specs.push(template.clone()),
            }
        }
        self.filled(specs, point)
    }

    fn filled(&self, mut specs: Vec<TreatmentSpec>, point: &PointSpec) -> Vec<TreatmentSpec> {
        for spec in &mut specs {
            for (axis, value) in self.at(point) {
                fill(&mut spec.body, &axis.placeholder(), &value.text());
            }
        }
        specs
    }
}

/// Refuses `sweep` in a condition if there is no sweep, and `sweep = false` for the baseline.
pub(super) fn check_conditions(
    root: &Section<'_>,
    experiment: &Experiment,
) -> Result<(), ConfigError> {
    let swept = experiment.workloads.iter().any(|w| !w.axes.is_empty());
    for section in root.sections_within("condition", limits::CONDITIONS)? {
        if section.has(&condition::keys::sweep) && !swept {
            let message = "requires an axis; write a list in [workload], or [[axis]]";
            return Err(section.error(&condition::keys::sweep, message));
        }
        let is_baseline =
            section.read(&condition::keys::name)?.as_ref() == Some(&experiment.baseline);
        if !section.get(&condition::keys::sweep)? && is_baseline {
            let message = "cannot be false for the baseline, because the others are compared with it at every point";
            return Err(section.error(&condition::keys::sweep, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
    fn points(e: &Experiment, kind: Combination) -> Vec<String> {
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
        assert_eq!(points(&e, Combination::OneAtATime), ["1 10", "4 10", "1 100"]);
        assert_eq!(points(&e, Combination::Grid), ["1 10", "1 100", "4 10", "4 100"]);
        assert_eq!(e.workloads[0].layer.sessions, Some(1));
        let lists =
            "sessions = [1, 4]\nrows_per_transaction = [10, 100]\nmiddle = { sessions = 4 }";
        let e = read(lists, "").unwrap();
        assert_eq!(points(&e, Combination::OneAtATime), ["4 10", "1 10", "4 100"]);
        let workload = &e.workloads[0];
        assert_eq!(workload.layer.sessions, Some(4));
        let last = workload.points(e.combination).pop().unwrap();
        let layer = workload.layer_at(&last);
        assert_eq!((layer.sessions, layer.rows_per_transaction), (Some(4), Some(100)));
        assert_eq!(layer.warmup, workload.layer.warmup, "other keys stay");
    }

    #[test]
    fn axis_treatments_apply_to_every_condition() {
        let e = read("sessions = [1, 4]", DELAY).unwrap();
        assert_eq!(points(&e, Combination::OneAtATime), ["1 1", "4 1", "1 0", "1 5"]);
        let workload = &e.workloads[0];
        let axes: Vec<bool> = workload.axes.iter().map(AxisSpec::varies_workload).collect();
        assert_eq!(axes, [true, false]);
        let five = &workload.points(e.combination)[3];
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
        let off = &workload.points(e.combination)[1];
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
    fn errors_name_line_and_key() {
        let refused = |found: String, expected: &str| {
            assert!(
                found.starts_with(&format!("x.toml:{expected}")),
                "{found}\nis not\n{expected}"
            );
        };
        for (workload, expected) in cases! {
            "sessions = []" => "3: workload.sessions: has fewer than two values";
            "sessions = [4]" => "3: workload.sessions: has fewer than two values";
            "sessions = [4, 1, 4]" => "3: workload.sessions: contains `4` twice";
            "sessions = [4, 0]" => "3: workload.sessions: must be a whole number from";
            "sessions = [4, '8']" => "3: workload.sessions: must be a list of type";
            "run_time = ['1s', '2s']" => "3: workload.run_time: cannot be a list, because all trials";
            "sessions = [1, 4]\nmiddle = { sessions = 2 }"
                => "4: workload.middle.sessions: must be one of 1, 4, not `2`";
            "sessions = [1, 4]\nmiddle = { payload = 2 }"
                => "4: workload.middle.payload: is not a list of this workload; valid names: sessions";
            "middle = { sessions = 2 }"
                => "3: workload.middle.sessions: is not a list of this workload; no key of this";
        } {
            refused(error(workload, ""), expected);
        }
        for (slob, expected) in [
            ("scale = ['8M', '16M']", "2: workload.scale: cannot be a list, because each value"),
            ("num_schemas = [1, 2]", "2: workload.num_schemas: cannot be a list, because each"),
            (
                "access = ['index', 'bitmap']",
                "2: workload.access: cannot be a list, because only whole",
            ),
        ] {
            let text = format!("[workload]\n{slob}\n[[condition]]\nname = 'a'\n");
            refused(parsed(&text).unwrap_err().to_string(), expected);
        }
        for (axis, expected) in cases! {
            "values = [1, 2]" => "4: axis: has no name";
            "name = 'd'" => "4: axis: has no values";
            "name = 'sessions'\nvalues = [1, 2]" => "5: axis.name: `sessions` is a workload key";
            "name = 'a b'\nvalues = [1, 2]" => "5: axis.name: must be a word";
            "name = 'd'\nvalues = [1, 'x']" => "6: axis.values: must be all numbers or all strings";
            "name = 'd'\nvalues = [1, 2]\nmiddle = 3" => "7: axis.middle: must be one of 1, 2, not `3`";
            "name = 'd'\nvalues = [1, 2]\nlink = { delay = '1ms' }"
                => "4: axis: has no effect; add a treatment that contains {d}";
            "name = 'd'\nvalues = [1, 2]\nlnik = { delay = '{d}ms' }"
                => "7: axis.lnik: is an unknown key; the nearest valid one is `link`";
            "name = 'd'\nvalues = [1, 2]\npostgres = { synchronous_commit = '{d}' }"
                => "7: axis.postgres: conflicts with `postgres` in line 12, which also applies to condition `b`";
        } {
            refused(error("", &format!("[[axis]]\n{axis}")), expected);
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
            let (grid_length, grid) = set(Combination::Grid);
            let (star_length, star) = set(Combination::OneAtATime);
            prop_assert_eq!(grid_length, lengths.iter().product::<usize>());
            prop_assert_eq!(grid.len(), grid_length);
            prop_assert_eq!(star.len(), star_length);
            prop_assert!(star.is_subset(&grid));
            for kind in [Combination::Grid, Combination::OneAtATime] {
                prop_assert_eq!(workload.count_points(kind), workload.points(kind).len() as u64);
                let middle: Vec<usize> = workload.axes.iter().map(|a| a.middle).collect();
                prop_assert_eq!(&workload.points(kind)[0].0, &middle);
            }
        }
    }
}
