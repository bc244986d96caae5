//! `[[condition]]`: a name, an optional target, and treatments; and conditions that run on several servers in one
//! window, by `together` of `[experiment]`.
//!
//! Any other key is a treatment: the key is its kind, and its body stays a TOML value that the
//! treatment parses. Conditions differ only in treatments and in the server: a comparison requires
//! that all conditions run the same workload.

use std::collections::BTreeMap;

use super::key::{Key, Parsed, Texts, section};
use super::keys as head_keys;
use super::section::Section;
use super::target::{SINGLE_TARGET, Target};
use super::workload::WorkloadSpec;
use super::{limits, part};
use crate::config::keys::Key as WorkloadKey;
use crate::config::kinds::Sessions;
use crate::config::value::{ConfigError, nearest};

section! { keys, "[[condition]]",
    "A variant of the environment that runs the same workload. Any other key is a treatment (table Treatments below).";
    name: Parsed<String>("one line of text", label) or "required", "name of the condition in reports";
    target: Parsed<String>("a NAME of [targets], or an array of them", text) or "the only target",
        "server that the condition uses; several share one window: the condition is put in force on each, and rates are their sum";
}

/// Suffix of the A/A condition's name; the name of a condition must not end with it.
pub const AA_SUFFIX: &str = " (A/A)";

#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub name: String,
    /// A key of the experiment's targets; absent only if the experiment has no targets.
    pub target: Option<String>,
    /// Further targets, which share its window.
    pub further_targets: Vec<String>,
    /// In the order of the file.
    pub treatments: Vec<TreatmentSpec>,
    /// Whether the condition runs at every point; otherwise only at the middle one.
    pub everywhere: bool,
}

impl Condition {
    /// Returns all its targets; none if pgio.conf or the environment names the server.
    pub fn targets(&self) -> impl Iterator<Item = &String> {
        self.target.iter().chain(&self.further_targets)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct TreatmentSpec {
    pub kind: String,
    pub body: toml::Value,
    /// Counted from 1.
    pub line: usize,
}

/// Parses all conditions; at least one is required. With `together`, a condition that names no target runs on all.
pub(super) fn parse(
    root: &Section<'_>,
    treatments: &[&str],
    targets: &BTreeMap<String, Target>,
    together: bool,
) -> Result<Vec<Condition>, ConfigError> {
    let mut conditions: Vec<Condition> = Vec::new();
    for section in root.sections_within("condition", limits::CONDITIONS)? {
        let condition = condition(&section, treatments, targets, together)?;
        if conditions.iter().any(|earlier| earlier.name == condition.name) {
            let message = format!("`{}` is the name of two conditions", condition.name);
            return Err(section.error(&keys::name, message));
        }
        conditions.push(condition);
    }
    if conditions.is_empty() {
        let message = "has no condition; write [[condition]] with a name and treatments";
        return Err(root.header_error(message));
    }
    Ok(conditions)
}

fn condition(
    section: &Section<'_>,
    treatments: &[&str],
    targets: &BTreeMap<String, Target>,
    together: bool,
) -> Result<Condition, ConfigError> {
    let mut on = parse_targets(section, targets, together)?.into_iter();
    Ok(Condition {
        name: name(section, &keys::name)?,
        target: on.next(),
        further_targets: on.collect(),
        treatments: self::treatments(section, treatments, &part::names(&keys::SECTION))?,
        everywhere: true,
    })
}

/// Reads a name that reports show as a condition's.
pub(crate) fn name(
    section: &Section<'_>,
    key: &Key<Parsed<String>>,
) -> Result<String, ConfigError> {
    let Some(name) = section.read(key)? else {
        return Err(section.header_error("has no name; write name = \"...\""));
    };
    if name.ends_with(AA_SUFFIX.trim_start()) {
        let message = "must not end with (A/A), which is the name of the condition that pgio adds";
        return Err(section.error(key, message));
    }
    Ok(name)
}

/// Parses the treatments of a section: all keys but its own.
pub(crate) fn treatments(
    section: &Section<'_>,
    treatments: &[&str],
    own: &[&str],
) -> Result<Vec<TreatmentSpec>, ConfigError> {
    let mut specs = Vec::new();
    for key in section.keys().into_iter().filter(|key| !own.contains(key)) {
        if !treatments.contains(&key) {
            return Err(section.error(key, unknown(key, treatments, own)));
        }
        let line = section.line_of(key);
        let (count, limit) = (section.count(key), limits::TREATMENTS);
        if specs.len() + count > limit {
            let count = specs.len() + count;
            let message = format!("makes {count} treatments; the maximum is {limit}");
            return Err(section.error(key, message));
        }
        let spec = |body| TreatmentSpec { kind: key.to_owned(), body, line };
        specs.extend(split_list(key, section.value(key)?).into_iter().map(spec));
    }
    Ok(specs)
}

/// The treatment whose body may be a list: the tables are the ends of one link, and the treatment
/// checks whether they match.
const TREATMENT_WITH_LIST: &str = "link";

/// Splits a list of tables into one treatment each, such as a throttle on each of two hosts.
fn split_list(kind: &str, body: toml::Value) -> Vec<toml::Value> {
    match body {
        toml::Value::Array(items)
            if kind != TREATMENT_WITH_LIST
                && !items.is_empty()
                && items.iter().all(toml::Value::is_table) =>
        {
            items
        }
        one => vec![one],
    }
}

fn unknown(key: &str, treatments: &[&str], own: &[&str]) -> String {
    if key == "workload" || WorkloadKey::named(key).is_some() {
        return "is not a treatment; conditions differ only in treatments, so write workload keys \
                in [workload]"
            .to_owned();
    }
    let valid = [own, treatments].concat();
    format!("is an unknown key; {}", nearest(key, &valid))
}

/// Returns the targets of a condition in the order of the file; none if the file has no target.
pub(super) fn parse_targets(
    section: &Section<'_>,
    targets: &BTreeMap<String, Target>,
    together: bool,
) -> Result<Vec<String>, ConfigError> {
    if section.is_list(&keys::target) {
        return parse_list(section, targets);
    }
    let names: Vec<&str> = targets.keys().map(String::as_str).collect();
    match (section.read(&keys::target)?, names.as_slice()) {
        (None, [] | [_]) => Ok(targets.keys().cloned().collect()),
        (None, _) if together => Ok(targets.keys().cloned().collect()),
        (None, _) => {
            let message = format!("has no target; set target to one of {}", names.join(", "));
            Err(section.header_error(message))
        }
        (Some(name), _) => check_target(section, &name, targets).map(|name| vec![name]),
    }
}

fn parse_list(
    section: &Section<'_>,
    targets: &BTreeMap<String, Target>,
) -> Result<Vec<String>, ConfigError> {
    let mut all: Vec<String> = Vec::new();
    for name in section.read_as(&keys::target, &Texts(""))?.unwrap_or_default() {
        let name = check_target(section, &name, targets)?;
        if all.contains(&name) {
            return Err(section.error(&keys::target, format!("names `{name}` twice")));
        }
        all.push(name);
    }
    if all.is_empty() {
        Err(section.error(&keys::target, "names no target; name one, or remove target"))
    } else {
        Ok(all)
    }
}

fn check_target(
    section: &Section<'_>,
    name: &str,
    targets: &BTreeMap<String, Target>,
) -> Result<String, ConfigError> {
    let names: Vec<&str> = targets.keys().map(String::as_str).collect();
    let message = match names.as_slice() {
        _ if names.contains(&name) => return Ok(name.to_owned()),
        [] | [SINGLE_TARGET] => format!("`{name}` is not a target; add [targets.{name}]"),
        _ => format!("`{name}` is not a target; {}", nearest(name, &names)),
    };
    Err(section.error(&keys::target, message))
}

/// Returns whether conditions that name no target run on all of them in one window.
pub(super) fn together(head: &Section<'_>, targets: usize) -> Result<bool, ConfigError> {
    match (head.read(&head_keys::together)?, targets) {
        (Some(true), 0 | 1) => {
            let message = "requires several targets; add [targets.NAME] sections";
            Err(head.error(&head_keys::together, message))
        }
        (_, _) => head.get(&head_keys::together),
    }
}

/// Refuses a workload that cannot share its window: only sessions of pgio's own start at an agreed moment.
pub(super) fn check_shared_windows(
    root: &Section<'_>,
    workloads: &[WorkloadSpec],
    conditions: &[Condition],
) -> Result<(), ConfigError> {
    for workload in workloads {
        let def = workload.kind.def();
        if def.sessions != Sessions::None && !def.program {
            continue;
        }
        let joint = |c: &&Condition| !c.further_targets.is_empty() && workload.runs_under(&c.name);
        if let Some(condition) = conditions.iter().find(joint) {
            let message = format!(
                "`{}` cannot run on several targets in one window, as condition `{}` asks; only slob and commit can",
                def.name, condition.name
            );
            return Err(root.error("workload", message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::experiment::tests::{condition_error, error, read};
    use crate::config::experiment::{Experiment, parse};

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
    fn faulty_conditions_are_refused_with_line_and_key() {
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

    const TARGETS: &str = "[targets.a]\nprivate = true\n[targets.b]\nprivate = true\n\
                           [targets.c]\nprivate = true\n";

    fn parsed(text: &str) -> Result<Experiment, String> {
        parse(text, "x.toml", "x", &["postgres"], &[]).map_err(|error| error.to_string())
    }

    fn with(head: &str, target: &str) -> Result<Experiment, String> {
        let work = "[workload]\nkind = 'commit'\n";
        parsed(&format!("{head}{TARGETS}{work}[[condition]]\nname = 'all'\n{target}\n"))
    }

    fn targets(e: &Experiment) -> Vec<&str> {
        e.conditions[0].targets().map(String::as_str).collect()
    }

    #[test]
    fn a_condition_names_one_server_several_or_none() {
        assert_eq!(targets(&with("", "target = 'b'").unwrap()), ["b"]);
        // The order is the file's: the first is the one that others are compared by.
        assert_eq!(targets(&with("", "target = ['c', 'a']").unwrap()), ["c", "a"]);
        let together = "[experiment]\ntogether = true\n";
        assert_eq!(targets(&with(together, "").unwrap()), ["a", "b", "c"]);
        assert_eq!(targets(&with(together, "target = 'b'").unwrap()), ["b"]);
    }

    #[test]
    fn wrong_lists_are_refused_with_their_line() {
        let refused = |target: &str, expected: &str| {
            let error = with("", target).unwrap_err();
            assert!(
                error.starts_with("x.toml:11: condition") && error.contains(expected),
                "{error}"
            );
        };
        refused("target = ['a', 'b', 'a']", "target: names `a` twice");
        refused("target = ['a', 'd']", "target: `d` is not a target; ");
        refused("target = []", "target: names no target");
        refused("target = ['a', 1]", "must be an array of strings");
        let error = with("", "").unwrap_err();
        assert!(error.contains("has no target; set target to one of a, b, c"), "{error}");
        let one = "[experiment]\ntogether = true\n[target]\nprivate = true\n[workload]\nkind = 'commit'\n\
                   [[condition]]\nname = 'a'\n";
        let error = parsed(one).unwrap_err();
        assert!(error.starts_with("x.toml:2: experiment.together: requires several"), "{error}");
    }

    #[test]
    fn only_sessions_of_pgio_share_a_window() {
        let text = format!(
            "{TARGETS}[workload]\nkind = 'command'\npreset = 'pgbench'\n\
             [[condition]]\nname = 'all'\ntarget = ['a', 'b']\n"
        );
        let error = parsed(&text).unwrap_err();
        assert!(error.contains("`command` cannot run on several targets"), "{error}");
    }
}
