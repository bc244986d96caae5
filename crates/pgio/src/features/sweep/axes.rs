//! Axes in the experiment file: parameters that a sweep varies in addition to the conditions.
//!
//! A key of `[workload]` with a list of values is an axis of the workload. `[[axis]]` is an axis of
//! the environment: treatments that contain `{name}` in place of the value and that apply to every
//! condition, the baseline included. Next: [`super::points`] combines the axes into points and
//! fills the values in.

use std::time::Duration;

use crate::config::experiment::key::section;
use crate::config::experiment::part::{File, FilePart};
use crate::config::experiment::points::{merge, value_text};
use crate::config::experiment::section::Section;
use crate::config::experiment::{
    AxisSpec, AxisValueSpec, Combination, Condition, Experiment, TreatmentSpec, keys as head_keys,
    limits, size,
};
use crate::config::keys::{Key as WorkKey, Layer, Use, names};
use crate::config::value::{ConfigError, Kind, nearest};
use pgio_results::units;

pub(super) static PART: FilePart = FilePart {
    sections: &[
        keys::SECTION,
        experiment_keys::SECTION,
        condition_keys::SECTION,
        workload_keys::SECTION,
    ],
    lists: Some(lists),
    complete,
    ..FilePart::NONE
};

section! { keys, "[[axis]]",
    "An axis of a sweep over treatments. Any other key is a treatment in which {name} is replaced by the value.";
    name: Parsed<String>("a word of a to z, digits and _", label) or "required", "name of the axis and of its placeholder";
    unit: Parsed<String>("one line of text", label), "unit of its values";
    values: Raw("an array of numbers or of strings") or "required", "values of the axis";
    middle: Raw("one of the values") or "the first value", "value of this axis while other axes are varied";
}

section! { experiment_keys, "[experiment]", "";
    sweep: OneOf<Combination>(KINDS) = Combination::OneAtATime,
        "points of a sweep: vary each axis with the others at their middle value, or run every combination";
}

section! { condition_keys, "[[condition]]", "";
    sweep: Switch = true, "run the condition at every point of a sweep; false: only at the middle point";
}

section! { workload_keys, "[workload], [[workload]]",
    " A key with a list of values is an axis of a sweep.";
    middle: Raw("a table such as { sessions = 4 }") or "the first values",
        "value of each axis while other axes are varied";
}

const KINDS: &[(&str, Combination)] =
    &[("one-at-a-time", Combination::OneAtATime), ("grid", Combination::Grid)];
/// Default maximum number of cells of a workload.
const DEFAULT_CELLS_LIMIT: u64 = 200;
/// Default maximum time of warm-ups and windows in all requested blocks.
const MAX_HOURS: u64 = 8;

/// Keys that cannot be an axis: they make no curve and leave the trials incomparable.
const NOT_SWEEPABLE: &[&str] = names! { run_time warmup transactions seed };

/// Reads the keys of a workload that have lists of values, and which of these are the middle ones.
fn lists(section: &Section<'_>, keys: &[&'static WorkKey]) -> Result<Vec<AxisSpec>, ConfigError> {
    let mut axes = keys.iter().map(|key| parse_key(section, key)).collect::<Result<Vec<_>, _>>()?;
    set_middle(section, &mut axes)?;
    Ok(axes)
}

fn complete(file: &File<'_>, experiment: &mut Experiment) -> Result<(), ConfigError> {
    let axes = parse(file.root, file.treatments, &experiment.conditions)?;
    for workload in &mut experiment.workloads {
        workload.axes.extend(axes.iter().cloned());
    }
    experiment.combination = file.head.get(&experiment_keys::sweep)?;
    let swept = experiment.workloads.iter().any(|w| !w.axes.is_empty());
    read_conditions(file.root, experiment, swept)?;
    if file.head.has(&experiment_keys::sweep) && !swept {
        return Err(file.head.error(&experiment_keys::sweep, size::NO_AXIS));
    }
    // With too many axes, that is what is wrong, and not the number of cells.
    size::check(file.head, experiment)?;
    check_cells(file.head, experiment)
}

/// Parses a key of `[workload]` with a list of values.
fn parse_key(section: &Section<'_>, key: &'static WorkKey) -> Result<AxisSpec, ConfigError> {
    let name = key.name;
    // The number of tables loaded in parallel does not change the data set.
    if key.is_used_by(Use::Load) && ![names::num_threads, names::seed].contains(&name) {
        return Err(section.error(
            name,
            "cannot be a list, because each value needs another data set; write a separate experiment for each value",
        ));
    }
    let is_number = matches!(key.kind, Kind::Whole(_) | Kind::Duration { .. } | Kind::Bytes);
    if NOT_SWEEPABLE.contains(&name) {
        let message = "cannot be a list, because all trials of an experiment must be measured in the same way; write a separate experiment for each value";
        return Err(section.error(name, message));
    }
    if !is_number {
        let message = "cannot be a list, because only whole numbers, durations and sizes in bytes make a curve; write a separate experiment for each value, or use [[axis]] with a treatment";
        return Err(section.error(name, message));
    }
    let mut values = Vec::new();
    for value in section.items(name, limits::VALUES)? {
        let text = value_text(&value);
        if !key.kind.toml_types().contains(&value.type_str()) {
            let expected = key.kind.toml_types().join(" or ");
            return Err(section.error(name, format!("must be a list of type {expected}")));
        }
        let mut layer = Layer::default();
        key.set(&mut layer, &text).map_err(|message| section.error(name, message))?;
        let at = match &key.kind {
            Kind::Duration { .. } => units::parse_duration(&text).ok().map(|d| d.as_secs_f64()),
            Kind::Bytes => units::parse_bytes(&text).ok().map(|bytes| bytes as f64),
            _ => text.parse().ok(),
        };
        values.push(AxisValueSpec { value, at, layer });
    }
    check_distinct(section, name, &values)?;
    Ok(AxisSpec { name: name.to_owned(), unit: None, values, middle: 0, templates: Vec::new() })
}

/// Applies `middle = { sessions = 4 }` of `[workload]`; the middle of other axes is their first value.
fn set_middle(section: &Section<'_>, axes: &mut [AxisSpec]) -> Result<(), ConfigError> {
    let Some(middle) = section.section(&workload_keys::middle)? else { return Ok(()) };
    for key in middle.keys() {
        let names: Vec<String> = axes.iter().map(|axis| axis.name.clone()).collect();
        let Some(axis) = axes.iter_mut().find(|axis| axis.name == key) else {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let valid = match names.as_slice() {
                [] => "no key of this workload has a list".to_owned(),
                names => nearest(key, names),
            };
            return Err(middle.error(key, format!("is not a list of this workload; {valid}")));
        };
        axis.middle = index_of(&middle, key, axis)?;
    }
    Ok(())
}

fn values_text(axis: &AxisSpec) -> String {
    axis.values.iter().map(AxisValueSpec::text).collect::<Vec<_>>().join(", ")
}

fn index_of(section: &Section<'_>, key: &str, axis: &AxisSpec) -> Result<usize, ConfigError> {
    let text = value_text(&section.value(key)?);
    axis.values.iter().position(|value| value.text() == text).ok_or_else(|| {
        section.error(key, format!("must be one of {}, not `{text}`", values_text(axis)))
    })
}

/// Parses every `[[axis]]`.
fn parse(
    root: &Section<'_>,
    treatments: &[&str],
    conditions: &[Condition],
) -> Result<Vec<AxisSpec>, ConfigError> {
    let mut axes: Vec<AxisSpec> = Vec::new();
    for section in root.sections_within("axis", limits::AXES)? {
        let axis = axis(&section, treatments)?;
        if axes.iter().any(|earlier| earlier.name == axis.name) {
            let message = format!("`{}` is the name of two axes", axis.name);
            return Err(section.error(&keys::name, message));
        }
        for condition in conditions {
            check_conflicts(&section, condition, &axes, &axis)?;
        }
        let own = conditions.iter().flat_map(|c| &c.treatments);
        let placeholder = axis.placeholder();
        if !axis.templates.iter().chain(own).any(|spec| contains(&spec.body, &placeholder)) {
            let message = format!(
                "has no effect; add a treatment that contains {placeholder}, such as link = {{ relay = true, delay = \"{placeholder}ms\" }}"
            );
            return Err(section.header_error(message));
        }
        axes.push(axis);
    }
    Ok(axes)
}

fn axis(section: &Section<'_>, treatments: &[&str]) -> Result<AxisSpec, ConfigError> {
    let Some(name) = section.read(&keys::name)? else {
        return Err(section.header_error("has no name; write for example name = \"delay\""));
    };
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.chars().all(is_word) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        let message = "must be a word of a to z, digits and _, because {name} is its placeholder";
        return Err(section.error(&keys::name, message));
    }
    if WorkKey::named(&name).is_some() {
        let message = format!("`{name}` is a workload key; write the list in [workload]");
        return Err(section.error(&keys::name, message));
    }
    if !section.has(&keys::values) {
        return Err(section.header_error("has no values; write for example values = [0, 1, 5]"));
    }
    let value = |value: toml::Value| match &value {
        toml::Value::Integer(n) => Ok((Some(*n as f64), value)),
        toml::Value::Float(n) if n.is_finite() => Ok((Some(*n), value)),
        toml::Value::String(text) if !text.trim().is_empty() => Ok((None, value)),
        _ => Err(section.error(&keys::values, "must be a list of numbers or of strings")),
    };
    let items = section.items(&keys::values, limits::VALUES)?.into_iter().map(value);
    let values = items
        .map(|item| item.map(|(at, value)| AxisValueSpec { value, at, layer: Layer::default() }))
        .collect::<Result<Vec<_>, _>>()?;
    check_distinct(section, &keys::values, &values)?;
    if values.iter().any(|v| v.at.is_some() != values[0].at.is_some()) {
        return Err(section.error(&keys::values, "must be all numbers or all strings"));
    }
    let mut templates = Vec::new();
    for key in section.keys().into_iter().filter(|key| !keys::SECTION.names.contains(key)) {
        if !treatments.contains(&key) {
            let valid = [keys::SECTION.names, treatments].concat();
            return Err(section.error(key, format!("is an unknown key; {}", nearest(key, &valid))));
        }
        let body = section.value(key)?;
        templates.push(TreatmentSpec { kind: key.to_owned(), body, line: section.line_of(key) });
    }
    let mut axis =
        AxisSpec { name, unit: section.read(&keys::unit)?, values, middle: 0, templates };
    if section.has(&keys::middle) {
        axis.middle = index_of(section, &keys::middle, &axis)?;
    }
    Ok(axis)
}

fn check_distinct(
    section: &Section<'_>,
    key: &str,
    values: &[AxisValueSpec],
) -> Result<(), ConfigError> {
    if values.len() < 2 {
        let message =
            "has fewer than two values; write at least two, or a single value without [ ]";
        return Err(section.error(key, message));
    }
    for (n, value) in values.iter().enumerate() {
        let same = |earlier: &AxisValueSpec| {
            earlier.text() == value.text() || earlier.at.is_some() && earlier.at == value.at
        };
        if values[..n].iter().any(same) {
            return Err(section.error(key, format!("contains `{}` twice", value.text())));
        }
    }
    Ok(())
}

/// Refuses a template that conflicts with a condition or with an earlier axis.
fn check_conflicts(
    section: &Section<'_>,
    condition: &Condition,
    earlier: &[AxisSpec],
    axis: &AxisSpec,
) -> Result<(), ConfigError> {
    let before = earlier.iter().flat_map(|axis| &axis.templates);
    for template in &axis.templates {
        let same = |spec: &&TreatmentSpec| spec.kind == template.kind;
        let tables = |spec: &TreatmentSpec| spec.body.as_array().map_or(1, Vec::len);
        if condition.treatments.iter().filter(same).map(tables).sum::<usize>() > 1 {
            let (kind, placeholder) = (&template.kind, axis.placeholder());
            let message = format!(
                "is ambiguous, because condition `{}` has several treatments `{kind}`; write {placeholder} there instead",
                condition.name
            );
            return Err(section.error(kind, message));
        }
        for other in condition.treatments.iter().chain(before.clone()).filter(same) {
            if !merge(&mut other.body.clone(), &template.body) {
                let message = format!(
                    "conflicts with `{}` in line {}, which also applies to condition `{}`; set each key only once",
                    other.kind, other.line, condition.name
                );
                return Err(section.error(&template.kind, message));
            }
        }
    }
    Ok(())
}

/// Returns whether any string contains the placeholder.
fn contains(body: &toml::Value, placeholder: &str) -> bool {
    match body {
        toml::Value::String(text) => text.contains(placeholder),
        toml::Value::Array(items) => items.iter().any(|item| contains(item, placeholder)),
        toml::Value::Table(table) => table.values().any(|value| contains(value, placeholder)),
        _ => false,
    }
}

/// Reads `sweep` of each condition. Refuses it if there is no axis, and `sweep = false` for the baseline.
fn read_conditions(
    root: &Section<'_>,
    experiment: &mut Experiment,
    swept: bool,
) -> Result<(), ConfigError> {
    let sections = root.sections_within("condition", limits::CONDITIONS)?;
    for (section, condition) in sections.iter().zip(&mut experiment.conditions) {
        condition.everywhere = section.get(&condition_keys::sweep)?;
        if section.has(&condition_keys::sweep) && !swept {
            let message = "requires an axis; write a list in [workload], or [[axis]]";
            return Err(section.error(&condition_keys::sweep, message));
        }
        if !condition.everywhere && condition.name == experiment.baseline {
            let message = "cannot be false for the baseline, because the others are compared with it at every point";
            return Err(section.error(&condition_keys::sweep, message));
        }
    }
    Ok(())
}

/// Refuses sweeps that are probably larger than intended: one additional list multiplies a grid.
fn check_cells(head: &Section<'_>, experiment: &Experiment) -> Result<(), ConfigError> {
    let stated = head.read(&head_keys::cells_limit)?;
    for workload in experiment.workloads.iter().filter(|w| !w.axes.is_empty()) {
        let size = experiment.size_of(workload);
        let allowed = stated.unwrap_or(DEFAULT_CELLS_LIMIT);
        let key =
            if stated.is_some() { head_keys::cells_limit.name } else { &experiment_keys::sweep };
        let (name, cells) = (&workload.name, size.cells);
        if cells > allowed {
            let hint = if cells <= limits::CELLS {
                format!(", or set cells_limit = {cells}")
            } else {
                String::new()
            };
            let message = format!(
                "workload `{name}` has {cells} cells, but only {allowed} are allowed; remove values{hint}"
            );
            return Err(head.error(key, message));
        }
        let blocks = experiment.blocks;
        let lasts = size.total_duration(blocks).unwrap_or_default();
        if stated.is_none() && lasts > Duration::from_secs(MAX_HOURS * 3600) {
            let message = format!(
                "workload `{name}` has {cells} cells in {blocks} blocks, which take {:.1} h of warm-ups and windows; remove values, or set cells_limit = {cells} to allow more than {MAX_HOURS} h",
                lasts.as_secs_f64() / 3600.0
            );
            return Err(head.error(key, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::experiment::{PointSpec, parse};
    use crate::config::resolve::Extent;

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

    fn read_workload(head: &str, workload: &str) -> Result<Experiment, ConfigError> {
        let text = format!(
            "[experiment]\n{head}\n[workload]\nkind = \"commit\"\n{workload}\n\
             [[condition]]\nname = \"a\"\n[[condition]]\nname = \"b\"\n"
        );
        parse(&text, "f.toml", "f", &["postgres"], &[])
    }

    #[test]
    fn sweep_size_counts_cells_trials_and_duration() {
        let lists = "sessions = [1, 4, 16]\nrows_per_transaction = [1, 10]";
        for (sweep, cells) in [("one-at-a-time", 8), ("grid", 12)] {
            let e = read_workload(
                &format!("sweep = \"{sweep}\"\nduration = \"5s\"\nwarmup = \"1s\""),
                lists,
            );
            let e = e.unwrap();
            let size = e.size_of(&e.workloads[0]);
            assert_eq!((size.cells, size.trials_per_block), (cells, cells + 1), "{sweep}");
            assert_eq!(size.total_duration(2).unwrap().as_secs(), 12 * (cells + 1));
        }
        let e = read_workload("aa = false", "transactions = 100").unwrap();
        let size = e.size_of(&e.workloads[0]);
        assert_eq!((size.trials_per_block, size.trial), (2, None));
        // The time limit does not apply if the window does not end by time.
        let hours = "duration = \"9h\"";
        read_workload(hours, "sessions = [1, 2]\ntransactions = 100").unwrap();
        read_workload(hours, "sessions = [1, 2]").unwrap_err();
        let slob = |keys| {
            let text = format!(
                "[experiment]\n{hours}\n[workload]\nkind = \"slob\"\n{keys}\n\
                 [[condition]]\nname = \"a\"\n[[condition]]\nname = \"b\"\n"
            );
            parse(&text, "f.toml", "f", &["postgres"], &[])
        };
        let e = slob("work_unit = [1, 8]\nwork_loop = 1000").unwrap();
        assert_eq!(e.window_of(&e.workloads[0]), Some(Extent::Calls(1000)));
        slob("work_unit = [1, 8]").unwrap_err();
    }

    #[test]
    fn large_sweeps_require_cells_limit() {
        let many: Vec<String> = (1..=16).map(|n| n.to_string()).collect();
        let grid = format!(
            "sessions = [{0}]\nrows_per_transaction = [{0}]\npayload = [{0}]",
            many.join(", ")
        );
        let head = "sweep = \"grid\"\nduration = \"1s\"\nwarmup = \"0s\"\nblocks = 1";
        let error = read_workload(head, &grid).unwrap_err();
        assert_eq!(error.line, 2);
        assert_eq!(
            error.message,
            "workload `commit` has 8192 cells, but only 200 are allowed; remove values, or set \
             cells_limit = 8192"
        );
        let limited = |limit: u64| read_workload(&format!("{head}\ncells_limit = {limit}"), &grid);
        assert!(limited(8192).is_ok());
        assert_eq!(limited(8191).unwrap_err().key.as_deref(), Some("experiment.cells_limit"));

        let lists = "sessions = [1, 2, 3]";
        let long = "duration = \"1h\"";
        let error = read_workload(long, lists).unwrap_err();
        assert!(error.message.contains("6 cells in 7 blocks, which take 49.0 h of"), "{error}");
        assert!(read_workload(&format!("{long}\ncells_limit = 6"), lists).is_ok());
        assert!(read_workload(long, "").is_ok(), "the limit applies only to sweeps");
    }

    #[test]
    fn sweep_keys_require_an_axis() {
        let error = read_workload("sweep = \"grid\"", "").unwrap_err();
        assert!(error.message.starts_with("requires an axis"), "{error}");
        let error = read_workload("sweep = \"gird\"", "sessions = [1, 2]").unwrap_err();
        assert!(error.message.ends_with("the nearest valid one is `grid`"), "{error}");
    }
}
